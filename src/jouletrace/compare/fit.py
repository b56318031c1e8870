"""Whether two sides were run alike, and notes on how they differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jouletrace.compare import setup
from jouletrace.compare.sides import Source, boards, items
from jouletrace.run import Run

_CLOCKS_APART = 0.01
"""Relative difference of mean clocks above which a note states it."""


def differences(a: Sequence[Source], b: Sequence[Source]) -> tuple[list[str], tuple[float, float]]:
    """Notes on how the runs of the sides differ, and factors that make their figures refer to the same work.

    Where iterations hold different numbers of samples, time and energy are compared per sample.
    """
    notes = _differing(a, b, setup.options) + _differing(a, b, setup.config, "default")
    scale = (1.0, 1.0)
    if items(a) != items(b):
        scale = (1 / items(a), 1 / items(b))
        notes.append("times back to back and energies are compared per sample, latency per iteration")
    first, second = boards(a), boards(b)
    if set(first) != set(second):
        notes.append(f"GPUs differ: {', '.join(first) or 'none'} in A, {', '.join(second) or 'none'} in B")
    notes += _differing(a, b, setup.boards) + _clocks(a, b)
    notes += _differing(a, b, setup.versions) + _differing(a, b, setup.environment, "not set")
    return notes, scale


def warnings(a: Sequence[Source], b: Sequence[Source]) -> list[str]:
    """Warnings of the runs themselves, each once, with its side, and with its Runs unless all have it."""
    found = []
    for name, side in (("A", a), ("B", b)):
        places: dict[str, list[str]] = {}
        for source in side:
            for message in dict.fromkeys(warning.message for warning in source.run.warnings):
                places.setdefault(message, []).append(source.place)
        for message, of in places.items():
            which = f" ({', '.join(of)})" if len(of) < len(side) else ""
            found.append(f"{name}{which}: {message}")
    return found


def _differing(
    a: Sequence[Source], b: Sequence[Source], of: Callable[[Run], setup.Setup], absent: str | None = None
) -> list[str]:
    """A line for each name whose values differ between the sides.

    ``absent`` represents a value that a Run lacks. Without it, names that one side lacks are left out: they belong
    to another version, or to a library that isn't installed.
    """
    first, second = ([of(source.run) for source in side] for side in (a, b))
    notes = []
    for name in dict.fromkeys(name for found in (*first, *second) for name in found):
        if absent is None and not all(any(name in found for found in side) for side in (first, second)):
            continue
        values = [{found.get(name) or absent or "not stated" for found in side} for side in (first, second)]
        if values[0] != values[1]:
            a_said, b_said = (", ".join(sorted(side)) for side in values)
            notes.append(f"{name} differs: {a_said} in A, {b_said} in B")
    return notes


def _clocks(a: Sequence[Source], b: Sequence[Source]) -> list[str]:
    measured = [[setup.clock_mhz(source.run, "sm_measured") for source in side] for side in (a, b)]
    both = all(clock for side in measured for clock in side)  # a reported clock is the requested one
    reported = [[setup.clock_mhz(source.run, "sm_reported") for source in side] for side in (a, b)]
    known = [[clock for clock in side if clock] for side in (measured if both else reported)]
    if not all(known):
        return []
    means = [float(np.mean(side)) for side in known]
    if abs(means[1] / means[0] - 1) <= _CLOCKS_APART:
        return []
    how = "by the SMs' cycle counters" if both else "as the driver reports it"
    return [f"SM clock differs: {means[0]:.0f} MHz in A, {means[1]:.0f} MHz in B, on average, {how}"]
