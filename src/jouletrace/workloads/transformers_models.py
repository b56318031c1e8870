"""Models of transformers, created from their configuration. Nothing is downloaded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError, JouletraceError, nearest
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import Built, Call, Inputs, Iteration
from jouletrace.workloads.environment import Precision, common_facts, precision, require_device, require_transformers
from jouletrace.workloads.inputs import random_inputs
from jouletrace.workloads.models import ModelEntry
from jouletrace.workloads.options import PROMPT, WorkloadOptions, check_consistent
from jouletrace.workloads.placement import random_model, seeded
from jouletrace.workloads.training import (
    ImageFolder,
    ImageLoader,
    TrainingIteration,
    loss_on_labels,
    loss_on_loaded,
    make_optimizer,
)
from jouletrace.workloads.user_code import memory_guard

if TYPE_CHECKING:
    import torch

Make = Callable[["torch.device", "torch.dtype"], tuple[Any, str]]
"""Creates a model on a device in a type; returns it and the origin of its weights."""

Draw = Callable[[Any, "torch.device", "torch.dtype"], tuple[list[Inputs], WorkloadFacts]]
"""Creates the input sets of a model and their facts, as ``random_inputs`` does."""


class BuiltInModel:
    """An entry of the table of models.

    Attributes:
        name: Its canonical name.
    """

    def __init__(self, name: str, entry: ModelEntry) -> None:
        self.name = name
        self._entry = entry

    def model_class(self) -> Any:
        """The class of transformers, whose code is imported at first use."""
        return getattr(require_transformers(), self._entry.model)

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """See ``Workload.build``."""
        check_consistent(self.name, options)
        require_device(device)
        model_class = self.model_class()
        config_class = model_class.config_class
        typed = typed_overrides(config_class(**self._entry.config), options.config, self.name)

        def make(on: torch.device, dtype: torch.dtype) -> tuple[Any, str]:
            with refused_config(self.name, typed):
                # The configuration is rebuilt, so that values derived from a changed setting change too.
                config = config_class(**{**self._entry.config, **typed})
                return random_model(model_class, config, on, dtype, options.seed)

        facts: WorkloadFacts = {"name": self.name, "config": typed, "note": self._entry.note}
        seq_len = self._entry.seq_len
        if options.task == "generate":
            del facts["note"]  # it concerns plain forwards
            seq_len = min(seq_len or PROMPT, PROMPT)
        return build_model(make, device, options, facts=facts, seq_len=seq_len)


def build_model(
    make: Make,
    device: str,
    options: WorkloadOptions,
    *,
    facts: WorkloadFacts,
    seq_len: int | None = None,
    draw: Draw | None = None,
    classes: Callable[[Any], int] | None = None,
) -> Built:
    """A new model with its inputs, ready for its task; options already checked.

    Args:
        make: Creates the model.
        device: See ``Workload.build``.
        options: The options.
        facts: Facts from the caller: "name", "config", "note".
        seq_len: Default sequence length.
        draw: Creates the inputs; None for random ones for a model of transformers.
        classes: Maps the model to the number of its classes; None for that of its configuration.

    Raises:
        BadInputError: See ``random_inputs`` and ``make_generation``.
        NotPossibleError: If the device is missing or has no memory left.
    """
    on = require_device(device)
    training = options.task == "train"
    usual = ("bf16" if training else "fp16") if on.type == "cuda" else "fp32"
    how = precision(options.dtype or usual, device)
    assert how.weights is not None  # every named precision has a type
    with memory_guard(f"{facts['name']}, batch {options.batch or 1} on {device}"), seeded(options.seed, on):
        model, weights = make(on, how.weights)
        _check_filled(model, facts["name"], facts["config"])
        model.train(training)
        if draw is None:
            inputs, input_facts = random_inputs(model, on, how.weights, options, seq_len)
        else:
            inputs, input_facts = draw(model, on, how.weights)
        generation: Callable[[int], Call] | None = None
        if options.task == "generate":
            require_transformers()
            from jouletrace.workloads.generation import make_generation

            call, generation, task_facts = make_generation(model, inputs, how.settings, options, facts["name"])
        else:
            call, task_facts = _iteration(model, inputs, how, options, on, (classes or _labels)(model))
            if hasattr(model, "can_generate"):  # of transformers
                from jouletrace.workloads.kv_cache import cache_arguments

                for _, keywords in inputs:
                    keywords.update(cache_arguments(model))
    stated: WorkloadFacts = {
        **facts,
        "task": options.task,
        "model": type(model).__name__,
        "weights": weights,
        **input_facts,
        **task_facts,
        **common_facts(model, how, on),
    }
    if not stated.get("note"):
        stated.pop("note", None)
    if not stated["config"]:
        del stated["config"]
    return Built(
        call=call,
        module=model,
        inputs=inputs,
        facts=stated,
        items=int(input_facts["batch"] or 1),
        generation=generation,
    )


def _iteration(
    model: Any, inputs: list[Inputs], how: Precision, options: WorkloadOptions, on: torch.device, classes: int
) -> tuple[Callable[[int], Any], WorkloadFacts]:
    """The call of an iteration, and facts about a training step."""
    import torch

    if options.task != "train":
        return Iteration(model, inputs, how.settings), {}
    facts: WorkloadFacts = {"optimizer": options.optimizer, "label_smoothing": options.label_smoothing}
    load = None
    if options.data is not None:
        loader = _loader(model, inputs, options, on)
        del inputs[1:]  # every batch differs anyway
        load, loss = loader.load, loss_on_loaded(loader, options.label_smoothing)
        facts |= {"data": loader.describe(), "inputs": f"images of {Path(str(options.data))}"}
    else:
        labels = [torch.randint(classes, (options.batch or 1,), device=on) for _ in inputs]
        loss = loss_on_labels(labels, inputs, options.label_smoothing)
        facts["data"] = "synthetic, on the device"
    optimizer = make_optimizer(options.optimizer, model, on)
    return TrainingIteration(model, inputs, how.training, loss, optimizer, load), facts


def _labels(model: Any) -> int:
    return int(getattr(model.config, "num_labels", 2))


def _loader(model: Any, inputs: list[Inputs], options: WorkloadOptions, on: torch.device) -> ImageLoader:
    """Loads images in place of the inputs, whose shape they get."""
    folder, config = ImageFolder.listed(str(options.data)), getattr(model, "config", None)
    if getattr(model, "main_input_name", "") != "pixel_values" or not hasattr(config, "num_labels"):
        raise BadInputError(
            f"--data {folder.path}: {type(model).__name__} doesn't classify images as models of transformers do"
        )
    classes = _labels(model)
    if len(folder.classes) > classes:
        raise BadInputError(
            f"--data {folder.path}: it has {len(folder.classes)} classes, and the model {classes} "
            f"(--config num_labels={len(folder.classes)} makes room)"
        )
    like = inputs[0][1]["pixel_values"]
    return ImageLoader(folder, like.shape[0], tuple(like.shape[1:]), like.dtype, on, options.seed)


def _check_filled(model: torch.nn.Module, name: str, typed: dict[str, Any]) -> None:
    """Refuse a change that leaves a layer without width: it would run, but its figures would mean nothing."""
    empty = next((key for key, parameter in model.named_parameters() if typed and not parameter.numel()), None)
    if empty is not None:
        raise BadInputError(f"{name} can't be built with --config {_changed(typed)}: {empty} would hold no numbers")


@contextmanager
def refused_config(name: str, typed: dict[str, Any]) -> Iterator[None]:
    """Report a configuration that the model's code refuses as bad input, if the user changed it."""
    try:
        yield
    except JouletraceError:
        raise
    except Exception as error:  # the libraries that check configurations have their own errors
        if not typed or isinstance(error, MemoryError) or "memory" in str(error):
            raise
        why = " ".join(str(error).split())
        raise BadInputError(f"{name} can't be built with --config {_changed(typed)}: {why}") from error


def _changed(typed: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in typed.items())


_BOOL = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_COUNT = re.compile(
    r"(num|n)(_.*)?|(.*_)?(layers|depths?|heads|channels|experts|positions|embeddings|stride|sizes?|dims?|widths?|embd)"
)
"""Names of settings that are counts or widths; others (token ids, positions of layers) may be negative."""

# Settable although a configuration doesn't list them among its fields.
_HIDDEN = {"num_labels": 0, "attn_implementation": "sdpa"}


def typed_overrides(config: Any, overrides: Mapping[str, str], name: str) -> dict[str, Any]:
    """Values for the keyword arguments of the class of a configuration of transformers, from texts by key.

    Raises:
        BadInputError: If a key is unknown, a text can't be read as the type of the present value, or a count is
            below 0.
    """
    alternative: dict[str, str] = getattr(config, "attribute_map", {})
    present = {**_HIDDEN, **config.to_dict()}
    typed = {}
    for key, text in overrides.items():
        field = alternative.get(key, key)
        if field not in present:
            raise BadInputError(f"--config {key}: {name} has no such setting{nearest(key, [*present, *alternative])}")
        value = typed[field] = read_as(key, text, present[field])
        if _COUNT.fullmatch(field) and _below_0(value) and not _below_0(present[field]):
            raise BadInputError(f"--config {key}={text}: a count can't be below 0")
    return typed


def _below_0(value: Any) -> bool:
    """True if a number, or one of several, is negative."""
    numbers = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(number, int | float) and number < 0 for number in numbers)


def read_as(key: str, text: str, present: Any) -> Any:
    """``text`` as the type of ``present``; JSON for lists, mappings and settings that are unset."""
    if isinstance(present, str):
        return text
    try:
        if isinstance(present, bool):
            return _BOOL[text.lower()]
        if isinstance(present, (int, float)):
            return type(present)(text)
        if isinstance(present, (list, tuple)):
            return list(json.loads(text if text.startswith("[") else f"[{text}]"))
        return _json_or_text(text) if present is None else dict(json.loads(text))
    except (KeyError, ValueError, TypeError):
        kind = type(present).__name__
        raise BadInputError(f"--config {key}={text}: must read as {kind}, such as {present!r}") from None


def _json_or_text(text: str) -> Any:
    """The value of an unset setting, which has no type: JSON where the text is JSON, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
