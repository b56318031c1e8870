"""Models that were saved: a local folder of transformers, a model of the hub, a file for a runtime."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, NotPossibleError, nearest
from jouletrace.run.forms import WorkloadFacts
from jouletrace.wing import registered
from jouletrace.workloads.base import Built, Inputs
from jouletrace.workloads.environment import require_device, require_transformers
from jouletrace.workloads.inputs import random_inputs, text_inputs
from jouletrace.workloads.options import WorkloadOptions, check_consistent
from jouletrace.workloads.placement import holds_values, random_model
from jouletrace.workloads.transformers_models import build_model, refused_config, typed_overrides

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
        check_consistent(self.name, options)
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
    """True if a folder holds a file that matches one of the patterns."""
    return any(True for pattern in patterns for _ in folder.glob(pattern))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_CONFIG_FILES = ["*.json", "*.txt", "*.model"]
# Files that transformers loads; a repository also holds files for other frameworks and programs.
_TIMEOUT_S = 10.0
_WHOLE = ("model.safetensors", "pytorch_model.bin")
_WEIGHTS = (["model*.safetensors"], ["pytorch_model*.bin"])


class HubModel(LocalFolder):
    """A model of the hub, by its snapshot in the local cache; missing files are downloaded.

    Attributes:
        name: ``hf:ORG/NAME``, as given.
    """

    def __init__(self, spec: str) -> None:
        self.name, self._id = spec, spec.removeprefix("hf:")
        if not _ID.fullmatch(self._id):
            raise BadInputError(f"'{spec}': write hf:ORG/NAME, such as hf:openai-community/gpt2")

    def locate(self, *, weights: bool) -> WorkloadFacts:
        """Locate the snapshot in the cache, else download it.

        Raises:
            BadInputError: If the hub has no such model, or no file of it that can be run.
            NotPossibleError: If it isn't cached and the hub can't be reached; the message states a remedy.
        """
        from huggingface_hub import snapshot_download

        try:
            # Completeness is checked below, since older caches keep no list of files.
            self._folder = Path(snapshot_download(self._id, local_files_only=True, allow_patterns=["config.json"]))
            missing = missing_file(self._folder, weights)
        except (OSError, ValueError):  # LocalEntryNotFoundError is both
            missing = "config.json"
        source = "the local cache"
        if missing:
            self._download(weights, missing)
            source = "the Hugging Face hub, downloaded"
        if missing := missing_file(self._folder, weights):
            hint = "; --random needs none" if missing != "config.json" else ""
            raise BadInputError(f"{self.name}: the hub has no {missing} of it for transformers{hint}")
        return {"source": f"{source}, revision {self._folder.name[:12]}"}

    def _download(self, weights: bool, missing: str) -> None:
        from huggingface_hub import errors, model_info, snapshot_download

        try:
            # Query the hub first: when it can't be reached, a download silently returns the cached files.
            revision = model_info(self._id, timeout=_TIMEOUT_S).sha
            self._folder = Path(snapshot_download(self._id, revision=revision, allow_patterns=_CONFIG_FILES))
            for patterns in _WEIGHTS if weights else ():
                if missing_file(self._folder, weights):
                    snapshot_download(self._id, revision=revision, allow_patterns=patterns)
        except errors.RepositoryNotFoundError as error:
            raise BadInputError(
                f"{self.name}: the hub has no such model, or shows it only to users who have agreed to its terms: see "
                f"https://huggingface.co/{self._id}, then run hf auth login{nearest(self._id, cached())}"
            ) from error
        except Exception as error:  # each layer of the network has its own errors
            there = "" if missing == "config.json" else f", {missing} missing (--random needs its configuration alone)"
            raise NotPossibleError(
                f"{self.name}: not in the local cache{there}, and the hub can't be reached "
                f"({type(error.__cause__ or error).__name__}): on a machine with network run `hf download {self._id} "
                f"--local-dir DIR`, copy DIR here and give it in place of {self.name}{nearest(self._id, cached())}"
            ) from error


def missing_file(folder: Path, weights: bool) -> str:
    """The missing part of a snapshot: the name of a file, "weights" (where needed), or "" if it is complete."""
    if not (folder / "config.json").is_file():
        return "config.json"
    if not weights:
        return ""
    if not has_file(folder, WEIGHT_FILES):
        return "weights"
    if any((folder / name).is_file() for name in _WHOLE):
        return ""
    indexes = folder.glob("*.index.json")  # one per format; one complete format suffices
    lacking = [[name for name in _shards(index) if not (folder / name).is_file()] for index in indexes]
    return min(lacking)[0] if lacking and all(lacking) else "" if lacking else "weights"


def cached() -> list[str]:
    """Models in the local cache, by their ids."""
    from huggingface_hub import constants

    return [path.name[8:].replace("--", "/") for path in Path(constants.HF_HUB_CACHE).glob("models--*")]


def _shards(index: Path) -> list[str]:
    """The files that an index names, sorted; empty for an unreadable index, which transformers then refuses."""
    try:
        return sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return []


class ModelFile:
    """A model in a file that torch can't run, by its suffix (``wing.Wing.model_files``).

    Raises:
        BadInputError: If the file doesn't exist, or is empty.
    """

    def __init__(self, spec: str) -> None:
        self.name = spec
        self.path = Path(spec)
        if not self.path.is_file():
            raise BadInputError(f"{spec}: there is no such file")
        if self.path.stat().st_size == 0:
            raise BadInputError(f"{spec} is empty")

    @property
    def backend(self) -> str:
        """The default runtime for the file."""
        return registered("model_files")[self.path.suffix.lower()]

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """Refused: see ``Workload.build``."""
        raise BadInputError(f"{self.name}: a model file runs with --backend {' or '.join(registered('backends'))}")
