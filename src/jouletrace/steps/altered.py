"""A workload whose iterations run with some units removed or repeated. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.steps.base import DETACHED, VariantRefusedError
from jouletrace.steps.stored import Stored, store_outputs
from jouletrace.steps.structure import Structure, record_structure
from jouletrace.steps.surgery import Surgery
from jouletrace.steps.units import Unit
from jouletrace.workloads.base import Built

Observe = Callable[[int | None], None]


@dataclass
class AlteredCall:
    """The ``call`` of a ``Built``: the workload's own under ``Surgery``.

    Attributes:
        call: The workload's own.
        structures: Calls of an iteration, for each input set.
        multiplicities: Launches for one by place, for each input set.
        stored: What removed calls left behind by place, for each input set.
        device: Where it runs.
        strict: See ``Surgery``.
        observe: See ``Surgery``.
    """

    call: Callable[[int], Any]
    structures: Sequence[Structure]
    multiplicities: Sequence[Mapping[int, int]]
    stored: Sequence[Mapping[int, Stored]]
    device: torch.device
    strict: bool = False
    observe: Observe | None = field(default=None, repr=False)

    def __call__(self, i: int) -> Any:
        """Run on input set ``i % len(inputs)`` and return the workload's outputs."""
        at = i % len(self.structures)
        surgery = Surgery(
            self.structures[at],
            self.multiplicities[at],
            self.stored[at],
            self.device,
            strict=self.strict,
            observe=self.observe,
        )
        with surgery:
            outputs = self.call(i)
        return surgery.finish(outputs)


def record_structures(built: Built, device: torch.device) -> list[Structure]:
    """The structure of an iteration on each input set.

    Raises:
        NotPossibleError: If operators can't be followed, or input sets call different ones.
    """
    structures = [record_structure(built, i, device) for i in range(len(built.inputs))]
    for i, structure in enumerate(structures):
        if [call.key for call in structure.calls] != [call.key for call in structures[0].calls]:
            raise NotPossibleError(f"input set {i} runs other operators than input set 0: use one input set")
    return structures


def alter(
    built: Built, structures: Sequence[Structure], changes: Mapping[Unit, int], device: torch.device
) -> tuple[Built, AlteredCall]:
    """The same workload with units removed or repeated. Runs it once or twice, the ordinary way and altered.

    Args:
        built: The workload.
        structures: Of its iterations.
        changes: Multiplicities by unit.
        device: Where it runs.

    Returns:
        The altered workload, and its ``call``.

    Raises:
        BadInputError: If a unit isn't one of the workload, or a multiplicity is below ``DETACHED``.
        VariantRefusedError: If a unit can't be changed so.
    """
    multiplicities = [_by_place(structure, changes) for structure in structures]
    stored = [
        _stored(built, i, structure, by_place, device)
        for i, (structure, by_place) in enumerate(zip(structures, multiplicities, strict=True))
    ]
    call = AlteredCall(built.call, structures, multiplicities, stored, device, strict=True)
    # What can't be done shows here and not in the middle of a capture, where kernels new to the
    # process couldn't be loaded either.
    for i in range(len(built.inputs)):
        call(i)
    call.strict = False
    return replace(built, call=call), call


def _stored(
    built: Built, i: int, structure: Structure, by_place: Mapping[int, int], device: torch.device
) -> dict[int, Stored]:
    handed_on = [place for place, times in by_place.items() if times in (0, DETACHED)]
    running = [place for place in handed_on if by_place[place] == DETACHED]
    return store_outputs(built, i, structure, handed_on, device, running)


def _by_place(structure: Structure, changes: Mapping[Unit, int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for unit, multiplicity in changes.items():
        places = structure.places(unit)
        if not places:
            raise BadInputError(f"the step has no unit {unit}")
        if multiplicity < DETACHED:
            raise BadInputError(f"{unit}: the multiplicity must be 0 or more, or -1 (detached), not {multiplicity}")
        for place in places:
            if multiplicity not in (0, 1) and not structure.calls[place].repeatable:
                raise VariantRefusedError("in_place", f"{unit} writes over its input and can't be repeated")
            found[place] = multiplicity
    return found
