"""Modules of a recording, with the kernels that run in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jouletrace.analysis.kernel_times import Kinds, Launched, no_kinds
from jouletrace.run.recording_names import OUTSIDE
from jouletrace.run.tables import UnitRow

_BY_OTHERS = "called by others"


@dataclass
class Layer:
    """Seconds of each kind of kernel in a module, or in one of its calls."""

    total: Kinds = field(default_factory=no_kinds)  # all that runs in it
    own: Kinds = field(default_factory=no_kinds)  # what it calls itself
    calls: dict[str, Layer] = field(default_factory=dict)  # its calls, by what they are called
    numbers: set[str] = field(default_factory=set)  # of its calls in an iteration

    def add(self, part: Launched, number: str | None, *, own: bool) -> None:
        """Add what runs at a site, in the call of this number."""
        self.total[part.kind] += part.seconds
        if own:
            self.own[part.kind] += part.seconds
        if number is not None:
            self.numbers.add(number)


def layers_of(parts: Iterable[Launched], units: Mapping[int, UnitRow], *, by_phase: bool) -> dict[str, Layer]:
    """Modules by name, outer ones before those in them; ``by_phase`` names calls by phases in place of numbers."""
    layers: dict[str, Layer] = {}
    for part in parts:
        if part.site < 0:
            continue
        row = units[part.site]
        path = _path(row["module"] or OUTSIDE)
        numbers = [word for word in (row["call"] or "").split(".") if word]
        for depth, name in enumerate(path):
            own, layer = depth == len(path) - 1, layers.setdefault(name, Layer())
            number = numbers[depth] if len(numbers) == len(path) else None
            layer.add(part, number, own=own)
            if number is not None:
                called = row["phase"] or "" if by_phase else f"call {number}" if int(number) else _BY_OTHERS
                layer.calls.setdefault(called, Layer()).add(part, number, own=own)
    return layers


def _path(name: str) -> list[str]:
    """A module and all around it, outer ones first."""
    if name == OUTSIDE:
        return [name]
    words = name.split(".")
    return [".".join(words[:depth]) for depth in range(1, len(words) + 1)]
