"""A local folder of transformers: its configuration, and its weights if it holds them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import Built
from jouletrace.workloads.checks import check_options
from jouletrace.workloads.config import typed_overrides
from jouletrace.workloads.environment import require_device, require_transformers
from jouletrace.workloads.inputs import random_inputs, text_inputs
from jouletrace.workloads.iteration import Inputs
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.placement import holds_values
from jouletrace.workloads.random_weights import random_model
from jouletrace.workloads.transformers_models import build_model, refused_config

if TYPE_CHECKING:
    import torch

WEIGHT_FILES = ("*.safetensors", "pytorch_model*.bin")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.*", "sentencepiece*")


class LocalFolder:
    """A model saved by transformers' ``save_pretrained``, or just its ``config.json``.

    Attributes:
        name: The folder, as given.
    """

    def __init__(self, spec: str) -> None:
        self.name = spec
        self._folder = Path(spec)
        if not (self._folder / "config.json").is_file():
            raise BadInputError(f"{spec}: a folder without config.json isn't a transformers model")

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """See ``Workload.build``."""
        check_options(self.name, options)
        values = holds_values(require_device(device)) and not options.random
        transformers = require_transformers()
        located = self.locate(weights=values)
        config = self._config(transformers)
        typed = typed_overrides(config, options.config, self.name)
        loads = values and has_file(self._folder, WEIGHT_FILES)

        def make(on: torch.device, dtype: torch.dtype) -> tuple[Any, str]:
            with refused_config(self.name, typed):
                # Rebuilt, so that values derived from a changed setting change too.
                changed = type(config).from_dict({**config.to_dict(), **typed}) if typed else config
                model_class = self._model_class(transformers, changed, options.task)
                if loads:
                    return self._load(model_class, changed, on, dtype)
                return random_model(model_class, changed, on, dtype, options.seed)

        def draw(model: Any, on: torch.device, dtype: torch.dtype) -> tuple[list[Inputs], WorkloadFacts]:
            reads = model.main_input_name == "input_ids" and not model.config.is_encoder_decoder
            if not loads or not reads or not has_file(self._folder, _TOKENIZER_FILES):
                return random_inputs(model, on, dtype, options, None)
            return text_inputs(model, self._tokenizer(transformers), on, options)

        return build_model(make, device, options, facts={"name": self.name, "config": typed, **located}, draw=draw)

    def locate(self, *, weights: bool) -> WorkloadFacts:
        """Ensure that the folder exists; returns facts about its origin.

        Args:
            weights: Whether the weights are needed, or only the configuration.
        """
        return {}

    def _tokenizer(self, transformers: Any) -> Any:
        try:
            return transformers.AutoTokenizer.from_pretrained(self._folder, local_files_only=True)
        except Exception as error:  # each kind of tokenizer has its own errors
            raise BadInputError(
                f"{self.name}: its tokenizer can't be loaded: {_line(error)}; --random needs none"
            ) from error

    def _config(self, transformers: Any) -> Any:
        path = self._folder / "config.json"
        try:
            if "auto_map" in json.loads(path.read_text()):
                raise BadInputError(f"{path}: needs its own code; give it as file.py:callable instead")
            return transformers.AutoConfig.from_pretrained(self._folder, local_files_only=True)
        except BadInputError:
            raise
        except Exception as error:  # the libraries that check configurations have their own errors
            raise BadInputError(f"{path}: {_line(error)}") from error

    def _model_class(self, transformers: Any, config: Any, task: str) -> Any:
        """The architecture that the configuration names, else the model of its type for the task."""
        named = [name for name in config.architectures or [] if hasattr(transformers, name)]
        if named:
            return getattr(transformers, named[0])
        if config.architectures:
            raise BadInputError(
                f"{self.name}/config.json: transformers {transformers.__version__} has no {config.architectures[0]}"
            )
        try:
            generates = task == "generate"
            models = transformers.MODEL_FOR_CAUSAL_LM_MAPPING if generates else transformers.MODEL_MAPPING
            return models[type(config)]
        except KeyError as error:
            raise BadInputError(f"{self.name}/config.json: no model is known for {type(config).__name__}") from error

    def _load(self, model_class: Any, config: Any, device: torch.device, dtype: torch.dtype) -> tuple[Any, str]:
        """The model with the folder's weights, and the origin of its weights."""
        try:
            model, info = model_class.from_pretrained(
                self._folder, config=config, local_files_only=True, output_loading_info=True
            )
        except Exception as error:  # each file format has its own errors
            if "memory" in str(error):
                raise
            raise BadInputError(f"{self.name}: weights can't be loaded: {_line(error)}") from error
        missing = len(info["missing_keys"]) + len(info["mismatched_keys"])
        origin = f"loaded from {self.name}"
        return model.to(device, dtype), origin + (
            f", but {missing} tensors random: not in the files" if missing else ""
        )


def has_file(folder: Path, patterns: Iterable[str]) -> bool:
    """Whether a folder holds a file that matches one of the patterns."""
    return any(True for pattern in patterns for _ in folder.glob(pattern))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
