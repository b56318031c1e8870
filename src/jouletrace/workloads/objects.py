"""A model or callable with its inputs, given as objects by the user's code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError
from jouletrace.run.forms import WorkloadFacts
from jouletrace.workloads.base import Built, Generation, Inputs, Iteration
from jouletrace.workloads.checks import check_options
from jouletrace.workloads.deferred import check_runs
from jouletrace.workloads.environment import common_facts, require_device
from jouletrace.workloads.generation import make_generation
from jouletrace.workloads.memory import memory_guard
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.placement import holds_values, kept, place_module
from jouletrace.workloads.precision import precision, short_name
from jouletrace.workloads.training import TrainingIteration, loss_of_outputs, make_optimizer
from jouletrace.workloads.trees import map_tensors, named_tensors

if TYPE_CHECKING:
    import torch


class ObjectWorkload:
    """A model (or any callable) and its inputs.

    The model is used in place: it is moved to the device, put in eval mode and, if a dtype is
    requested, cast; the inputs are copied. A simulated GPU needs only shapes and leaves the model as it was.

    Attributes:
        name: Name in messages and results.
    """

    def __init__(self, target: Any, inputs: Any = (), name: str | None = None) -> None:
        """Check that it can be called.

        Args:
            target: A module or any callable.
            inputs: A tuple of positional arguments, a mapping of keyword arguments, or a single argument.
            name: Name in messages and results; by default that of its class or function.

        Raises:
            BadInputError: If ``target`` can't be called.
        """
        self.name = name or str(getattr(target, "__qualname__", type(target).__qualname__))
        if not callable(target):
            raise BadInputError(f"{self.name}: a model or callable is required, not {type(target).__name__}")
        self._target = target
        self._inputs = inputs

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """See ``Workload.build``.

        Raises:
            BadInputError: If the options apply only to built-in models.
        """
        check_options(self.name, options)
        self._refuse(options)
        return build_object(self._target, self._inputs, device, options, name=self.name)

    def _refuse(self, options: WorkloadOptions) -> None:
        for option, given in (("--batch", options.batch), ("--seq-len", options.seq_len)):
            if given is not None:
                raise BadInputError(f"{option} {given}: {self.name} comes with its own inputs")


def _check_options(options: WorkloadOptions, name: str) -> None:
    """Refuse options that don't apply to existing objects."""
    if options.config:
        raise BadInputError(f"--config {next(iter(options.config))}: {name} has no configuration to change")
    if options.random:
        raise BadInputError(f"--random: {name} comes with its own weights")
    if options.input_sets != 1:
        raise BadInputError(f"--input-sets {options.input_sets}: {name} comes with one set of inputs")


def build_object(
    target: Any, inputs: Any, device: str, options: WorkloadOptions, *, name: str, batch: int | None = None
) -> Built:
    """An existing model or callable, moved to ``device``.

    Args:
        target: Module or callable.
        inputs: See ``ObjectWorkload``.
        device: See ``Workload.build``.
        options: Already checked. Without a dtype, everything keeps its type.
        name: Name of the workload.
        batch: Samples in the inputs, where known; else the first dimension of a module's first
            input tensor.

    Raises:
        BadInputError: If the options don't fit, or a call of ``target`` returns before its body has run.
        NotPossibleError: If the device is missing or has no memory left.
    """
    import torch

    check_runs(target, name)
    _check_options(options, name)
    on = require_device(device)
    how = precision(options.dtype, device)
    # A bound method of a model (model.encode) carries its model.
    owner = target if isinstance(target, torch.nn.Module) else getattr(target, "__self__", None)
    module = owner if isinstance(owner, torch.nn.Module) else None

    def place(tensor: torch.Tensor) -> torch.Tensor:
        cast = how.weights if how.weights is not None and tensor.is_floating_point() else None
        return tensor.to(on, cast)

    restore = kept(module) if module is not None and not holds_values(on) else lambda: None
    try:
        with memory_guard(f"{name} on {device}"):
            if module is not None:
                place_module(module, on, how.weights)
                module.train(options.task == "train")
            args, kwargs = arguments(inputs)
            placed: Inputs = (map_tensors(place, args), map_tensors(place, kwargs))
    except BaseException as error:
        restore()
        if isinstance(error, RecursionError):
            text = "a module contains itself, perhaps indirectly: torch can't iterate over its parts"
            raise BadInputError(f"{name}: {text}") from None
        raise
    if batch is None and module is not None:
        batch = _leading(placed)
    facts: WorkloadFacts = {
        "name": name,
        "task": options.task,
        "batch": batch,
        "weights": "as given" if module is not None else None,
        "inputs": "as given",
        **common_facts(module, how, on),
    }
    facts["dtype"] = how.name or _dtypes(module, placed)
    call: Any = Iteration(target, [placed], how.settings)
    if options.task == "train":
        if module is None:
            raise BadInputError(f"--task train: {name} isn't a model: it has no parameters to train")
        if options.data is not None:
            raise BadInputError(f"--data: {name} comes with its inputs; a folder needs a model that classifies images")
        optimizer = make_optimizer(options.optimizer, module, on)
        call = TrainingIteration(target, [placed], how.training, loss_of_outputs(name), optimizer)
        facts |= {"optimizer": options.optimizer}
    generation: Generation | None = None
    if options.task == "generate":
        try:
            with memory_guard(f"{name} on {device}"):
                call, generation, told = make_generation(module or target, [placed], how.settings, options, name)
        except BaseException:
            restore()
            raise
        facts |= told
    return Built(call, module, [placed], facts, items=batch or 1, restore=restore, generation=generation)


def arguments(inputs: Any) -> Inputs:
    """Positional and keyword arguments: a tuple's items, a mapping's items, or the single object."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple) and not hasattr(inputs, "_fields"):
        return inputs, {}
    return (inputs,), {}


def _leading(placed: Inputs) -> int | None:
    """First dimension of the first tensor, which is the batch for most models."""
    return next((int(tensor.shape[0]) for _, tensor in named_tensors(placed) if tensor.dim() > 0), None)


def _dtypes(module: torch.nn.Module | None, placed: Inputs) -> str | None:
    """The floating types in use, such as "fp32" or "fp16+fp32"."""
    tensors = [tensor for _, tensor in named_tensors(placed)] + (list(module.parameters()) if module else [])
    return "+".join(sorted({short_name(t.dtype) for t in tensors if t.is_floating_point()})) or None
