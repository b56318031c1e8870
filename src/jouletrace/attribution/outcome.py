"""Outcomes of the checks of an estimate, and the refusal of readings that no estimate can be made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jouletrace.arrays import Floats

READINGS, SWINGS = "readings and response of the sensor", "swings between readings"
HOLES = "holes of the record"
"""Sources of an energy's uncertainty; what happened in a hole is alike on all devices."""

ALIASED_LOG = "aliased_with_log"
"""Its readings are as those of a load that repeats in the log's own rhythm. Where they change with the moments of the
polls, it does, and there are no energies. Where they are equal but for one change, it may: of all periods one in as
many as there are readings gives such a log. Readings at uneven times, or an energy counter, would show what lies
between."""

REPEATED, LEAST = "repeated", 10
"""Method of means of short spans that repeat; spans of a kind, and readings, from which on there is one."""

IMPROBABLE = 1e-3
"""Probability by chance below which a check fails. Of powers of seven programs on H100s it is 0.03 and more."""


class Outcome(NamedTuple):
    """Outcome of a check, and the quantity that it is about; ``analysis.rules`` words it."""

    code: str
    passed: bool
    estimate: tuple[float, float, float]  # value, low and high end of 95 %, NaN where these aren't known
    probability: float = math.nan  # of as much or more by chance, where that decides
    beside: Mapping[str, float] = {}  # what it was compared with, by name

    @classmethod
    def without_interval(cls, code: str, passed: bool, value: float, **beside: float) -> Outcome:
        """The outcome of a check of a quantity without an interval."""
        return cls(code, bool(passed), (value, math.nan, math.nan), beside=beside)


def refuse_unordered(times_s: Floats, values_w: Floats) -> None:
    """Raise ValueError unless these are as many finite values as times, and times increase."""
    if np.ndim(times_s) != 1 or np.shape(times_s) != np.shape(values_w):
        raise ValueError(
            f"readings have times of shape {np.shape(times_s)} and values of shape {np.shape(values_w)}:"
            " give one value for each time"
        )
    for name, some in (("time", times_s), ("value", values_w)):
        if not np.isfinite(some).all():
            raise ValueError(f"reading {int(np.argmin(np.isfinite(some)))} has no finite {name}: leave it out")
    if (back := np.diff(times_s) <= 0).any():
        at = int(np.argmax(back)) + 1
        raise ValueError(
            f"reading {at} at {times_s[at]:.6f} s isn't later than the one before it: sort readings and drop repeats"
        )


def refuse_overlapping(bursts: Floats) -> None:
    """Raise ValueError unless there are bursts, in order and apart from each other."""
    if not len(bursts):
        raise ValueError("there are no spans: give a start and an end of one at least")
    if (back := np.diff(bursts.ravel()) < 0).any():
        at = (int(np.argmax(back)) + 1) // 2
        raise ValueError(f"burst {at} ends before it begins, or begins before the last one ended: give them in order")
