"""The operator calls of one iteration in order: what there is to remove and to repeat. Imports torch."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from jouletrace.errors import JouletraceError, NotPossibleError
from jouletrace.steps.module_names import ModuleNames
from jouletrace.steps.operator_mode import OperatorMode
from jouletrace.steps.operators import (
    describe,
    has_kernel,
    is_idempotent,
    op_name,
    out_form,
    storage_key,
    tensors_in,
    written,
)
from jouletrace.steps.units import Key, Unit, group
from jouletrace.workloads.base import Built
from jouletrace.workloads.trees import named_tensors
from jouletrace.workloads.user_errors import one_line


class ChangedCallsError(JouletraceError):
    """An iteration called other operators than the one before: its calls can't be told apart by place."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator that may do work, in an ordinary pass. Views are none.

    Storages are numbered in the order in which the pass met them.

    Attributes:
        func: The operator (``torch._ops.OpOverload``).
        key: What makes it part of a unit.
        launches: Whether it does work on the device; work on the host beside a GPU is no part.
        looks: Whether it reads its inputs' values: all that work, and questions from the host.
        touches: Storages of its inputs.
        makes: Storages of its outputs that weren't inputs.
        writes: Storages that it writes over.
        repeatable: Whether it can run several times and leave what once would.
        call: In which call of its module, as of ``module_names.CallSite``.
    """

    func: Any
    key: Key
    launches: bool
    looks: bool
    touches: frozenset[int]
    makes: frozenset[int]
    writes: frozenset[int]
    repeatable: bool
    call: str = ""


@dataclass(frozen=True)
class Structure:
    """An iteration as its calls.

    Attributes:
        calls: In order; a place is an index into them.
        returned: Storages of what the iteration returned.
        hidden: Whether work runs that is no operator's, and may read anything.
    """

    calls: tuple[Call, ...]
    returned: frozenset[int]
    hidden: bool = False

    def units(self) -> list[Unit]:
        """The units of all calls that launch."""
        launching = [call for call in self.calls if call.launches]
        return group((call.key for call in launching), (call.call for call in launching))

    def places(self, unit: Unit) -> list[int]:
        """Where a unit is called; empty if it isn't one of this structure."""
        return [place for place, call in enumerate(self.calls) if call.launches and call.key == unit.key]

    def needed(self, removed: Collection[int], running: Collection[int] = ()) -> frozenset[int]:
        """Those places among ``removed`` whose results somebody reads who still runs, ``running`` ones among them.

        Only their outputs have to be kept; memory would not hold all of a large model's.
        """
        if self.hidden:
            return frozenset(removed)
        gone, read, found = frozenset(removed), set(self.returned), set()
        for place in reversed(range(len(self.calls))):
            call = self.calls[place]
            if place in gone and not read.isdisjoint(call.makes | call.writes):
                found.add(place)
            if call.looks and (place not in gone or place in running):
                read |= call.touches
        return frozenset(found)

    def chained(self, running: Collection[int]) -> frozenset[int]:
        """Those places among ``running`` whose results a later one of them reads."""
        found: set[int] = set()
        places = sorted(running)
        for i, place in enumerate(places):
            left = self.calls[place].makes | self.calls[place].writes
            if any(not left.isdisjoint(self.calls[later].touches) for later in places[i + 1 :]):
                found.add(place)
        return frozenset(found)

    def launching(self, places: Iterable[int], hidden: bool) -> Structure:
        """The same with what is known from a capture: which calls launch, and if others do."""
        known = frozenset(places)
        calls = tuple(replace(call, launches=place in known) for place, call in enumerate(self.calls))
        return replace(self, calls=calls, hidden=hidden)


def record_structure(built: Built, i: int, device: torch.device) -> Structure:
    """Run iteration ``i`` once under a dispatch mode and hooks, and list its calls.

    Args:
        built: A workload that has run before, so that caches and optimiser states exist.
        i: Which input set.
        device: Where it runs.

    Raises:
        NotPossibleError: If it doesn't run under a dispatch mode (compiled code, some subclasses of
            tensors).
    """
    with ModuleNames(built.module) as names:
        follow = _Follow(names, device)
        try:
            with follow:
                outputs = built.call(i)
        except JouletraceError:
            raise
        except Exception as error:  # without the mode it runs: trial() has seen to that
            where = f" at {follow.calls[-1].key[0]}" if follow.calls else ""
            raise NotPossibleError(f"its operators can't be followed{where}: {one_line(error)}") from error
    returned = frozenset(follow.number(tensor) for _, tensor in named_tensors(outputs))
    return Structure(tuple(follow.calls), returned)


class _Follow(OperatorMode):  # type: ignore[no-untyped-call]  # torch's __init_subclass__
    def __init__(self, names: ModuleNames, device: torch.device) -> None:
        super().__init__(device)
        self.calls: list[Call] = []
        self._names = names
        self._numbers: dict[int, int] = {}
        # A weak reference lets the memory go but keeps the key from being used again.
        self._met: list[StorageWeakRef] = []

    def number(self, tensor: torch.Tensor) -> int:
        key = storage_key(tensor)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            self._met.append(StorageWeakRef(tensor.untyped_storage()))  # type: ignore[no-untyped-call]
        return self._numbers[key]

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        site, backward = self._names.locate()
        inputs = list(tensors_in((args, kwargs)))
        overwritten = list(written(func, args, kwargs))
        shapes = describe(inputs)
        touches = frozenset(map(self.number, inputs))
        repeatable = (
            not overwritten or is_idempotent(func, args, kwargs) or out_form(func, self.device.type.upper()) is not None
        )
        out = func(*args, **kwargs)
        outputs = list(tensors_in(out))
        works = has_kernel(func, [*outputs, *overwritten])
        there = any(tensor.device.type == self.device.type for tensor in (*inputs, *outputs))
        self.calls.append(
            Call(
                func=func,
                key=(op_name(func), shapes, site.module, backward),
                launches=works and there,
                looks=works or torch.Tag.data_dependent_output in func.tags,
                touches=touches,
                makes=frozenset(map(self.number, outputs)) - touches,
                writes=frozenset(map(self.number, overwritten)),
                repeatable=repeatable,
                call=site.call,
            )
        )
        return out
