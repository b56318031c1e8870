"""A workload as a function of named tensors, as required by model formats."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError
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
    """Decompose a workload, which runs it once.

    Inputs are named after the parameters of the model's forward, outputs after the fields that it returns ("logits");
    a single tensor is "input", or "output". Arguments other than tensors (a flag, an empty cache) become constants.

    Args:
        built: The workload, on the CPU.
        input_names: Names to use instead.
        output_names: Likewise.

    Raises:
        BadInputError: If it takes or returns no tensor, or the number of names differs.
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
