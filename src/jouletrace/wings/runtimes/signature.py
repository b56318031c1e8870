"""The named tensors of a workload, and the difference between the outputs of two models."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError, CheckFailedError
from jouletrace.workloads.base import Built
from jouletrace.workloads.placement import map_tensors, named_tensors

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Signature:
    """A workload decomposed for export.

    Attributes:
        module: Takes the tensors, one positional argument each, and returns a tuple of tensors.
        inputs: The tensors of the first input set, by name.
        outputs: The workload's own outputs for them, by name.
    """

    module: torch.nn.Module
    inputs: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]


def signature(built: Built, input_names: Sequence[str] = (), output_names: Sequence[str] = ()) -> Signature:
    """Decompose a workload on the CPU, which runs it once.

    Inputs are named after the parameters of the model's forward, outputs after the fields that it returns ("logits");
    a single tensor is "input", or "output". Arguments other than tensors (a flag, an empty cache) become constants.

    Raises:
        BadInputError: If it takes or returns no tensor, or the number of given names differs.
    """
    import torch

    target: Any = getattr(built.call, "target", None)  # the model, a method of it, or any callable
    if target is None:
        raise BadInputError(f"{built.facts.get('name', 'the workload')}: only a forward pass can be exported")
    args, kwargs = built.inputs[0]
    tensors = tensors_of((args, kwargs))
    with torch.no_grad():
        returned = target(*args, **kwargs)
    results = dict(named_tensors(returned))
    who = built.facts.get("name", "the workload")
    if not tensors or not results:
        raise BadInputError(f"{who}: it {'returns' if tensors else 'takes'} no tensor, so nothing can be exported")

    class Flat(torch.nn.Module):
        """The same model, with its tensors in a flat sequence."""

        def __init__(self) -> None:
            super().__init__()
            self.model = target
            self.owner = built.module if built.module is not target else None

        def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
            following = iter(given)
            args_now, kwargs_now = map_tensors(lambda _: next(following), (args, kwargs))
            return tuple(tensor for _, tensor in named_tensors(self.model(*args_now, **kwargs_now)))

    inputs = _named("--input-names", input_names, _argument_names(target, args, kwargs), tensors)
    outputs = _named("--output-names", output_names, _output_names(list(results)), list(results.values()))
    return Signature(Flat().eval(), inputs, outputs)


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """The tensors among arguments, in the order of ``map_tensors``."""
    found: list[torch.Tensor] = []

    def collect(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    map_tensors(collect, tree)
    return found


def _named(
    option: str, wanted: Sequence[str], usual: Sequence[str], tensors: Sequence[torch.Tensor]
) -> dict[str, torch.Tensor]:
    if wanted and len(wanted) != len(tensors):
        raise BadInputError(f"{option} {','.join(wanted)}: there are {len(tensors)}, by default {','.join(usual)}")
    named = dict(zip(wanted or usual, tensors, strict=True))
    if len(named) < len(tensors):
        raise BadInputError(f"{option} {','.join(wanted)}: names must be different")
    return named


def _argument_names(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """Names from the parameters of the model's forward; tensors inside one parameter are numbered."""
    try:
        forward = getattr(target, "forward", target)
        parameters = [
            p.name for p in inspect.signature(forward).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD
        ]
    except (ValueError, TypeError):  # some builtins have no signature
        parameters = []
    names: list[str] = []
    given = [(parameters[i] if i < len(parameters) else f"in_{i}", value) for i, value in enumerate(args)]
    for name, value in [*given, *kwargs.items()]:
        n = len(tensors_of(value))
        names += [name] if n == 1 else [f"{name}_{k}" for k in range(n)]
    return ["input"] if len(names) == 1 and not kwargs else names


def _output_names(paths: list[str]) -> list[str]:
    if paths == [""]:
        return ["output"]
    return [re.sub(r"\W", "_", path if not path[:1].isdigit() else f"output_{path}") for path in paths]


TOLERANCES = {"fp32": 1e-3, "fp64": 1e-3, "fp16": 2e-2}
"""Largest difference of an output relative to its largest value, by number format: the effect of summation order."""


@dataclass(frozen=True)
class Difference:
    """The output with the largest difference, in words too.

    It is relative to the largest value of the original; infinite for another shape or NaN.
    """

    output: str
    relative: float
    text: str


def compare_outputs(original: Mapping[str, NDArray[Any]], other: Sequence[NDArray[Any]]) -> Difference:
    """Compare the outputs of a model with the original's, in order."""
    if len(original) != len(other):
        return Difference("", np.inf, f"it has {len(other)} outputs, not {len(original)}")
    pairs = zip(original.items(), other, strict=True)
    return max((_one(name, a, b) for (name, a), b in pairs), key=lambda one: one.relative)


def check_difference(found: Difference, tolerance: float, what: str) -> None:
    """Refuse a model with a larger difference than permitted.

    Raises:
        CheckFailedError: With the difference and the tolerance.
    """
    if not found.relative <= tolerance:
        raise CheckFailedError(f"{what} differs from the model in torch: {found.text} (--tolerance {tolerance:g})")


def _one(name: str, a: NDArray[Any], b: NDArray[Any]) -> Difference:
    if a.shape != b.shape:
        ours, theirs = ("x".join(map(str, shape)) or "a single number" for shape in (a.shape, b.shape))
        return Difference(name, np.inf, f"output {name!r} has the shape {theirs}, not {ours}")
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    if not a.size:
        return Difference(name, 0.0, f"output {name!r} is empty")
    if not np.array_equal(np.isfinite(wide_a), np.isfinite(wide_b)):
        return Difference(name, np.inf, f"output {name!r} has NaN or infinity in other places")
    finite = np.isfinite(wide_a)
    if not finite.any():
        return Difference(name, np.inf, f"output {name!r} is NaN or infinite throughout: nothing can be compared")
    apart = float(np.abs(wide_a - wide_b)[finite].max(initial=0.0))
    largest = float(np.abs(wide_a[finite]).max(initial=0.0))
    relative = apart / largest if largest else (0.0 if apart == 0 else np.inf)
    return Difference(name, relative, f"output {name!r} by {apart:.3g}, {relative:.2g} of its largest value")
