"""A power record made fit for integration: sorted, unique, finite, repairs counted; and its plain integral."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from jouletrace.arrays import Floats, Ints
from jouletrace.errors import BadInputError
from jouletrace.run.readings import Readings
from jouletrace.sensor.stamps import find_grid

HOLE_PERIODS, LONGEST_S = 2.5, 3600.0
"""Stamps farther apart than this many periods leave time that no reading speaks for; the longest that counts as one."""

_FEW, _FEW_HOLES = 4, 0.1
"""So many spacings, and such a share of all, may be far above the usual one and are holes."""

MOST_W = 20_000.0
"""More than any GPU draws."""

MOST_OF_A_BOARD_W = 1500.0
"""No GPU board draws more for long."""

_STEP_RUN = 3
"""So many readings in order after a backward stamp mean that the clock stepped, not that one came late."""


_RATED_W = {
    r"T4G?|A2|L4|P4": 75,
    r"Jetson|Orin|Xavier": 130,
    r"A10G?|A16|A30|P40|RTX A[24]\d00": 300,
    r"[VP]100|TITAN \w+|A40|RTX A[56]000|L40S?|RTX 6000 Ada.*": 450,
    r"RTX \d0\d0.*": 600,
    r"A100|A800": 500,
    r"H100|H200|H800|H20": 700,
    r"G[HB]\d00|B[123]00": 1400,
}
"""Watts that the largest GPU of a family may draw, for logs that state no limit: only precise enough for glitches."""


_OVER_LIMIT = 1.6
"""A power limit is held over tens of milliseconds, and a kernel is shorter: in eleven recordings of H100s and H200s,
with a limit of 700 W, rows known to 10 % draw up to 1023 W, 1.46 times that (docs/results/accuracy-programs.md)."""

_OVER_ENFORCED = 10.0
"""The same where nothing but the limit in force is known."""

HELD, HELD_S = 1.1 / _OVER_LIMIT, 10.0
"""Share of what a GPU can draw above which the mean of so many seconds can't be: 1.1 of its limit, since the sensor's
gain is off by 5 %, and H100s and H200s read 0.99 times their limit at most."""


def most_power_w(largest_limit_w: float | None, enforced_limit_w: float | None, name: str = "") -> float:
    """The most that a GPU can draw, in watts: readings beyond are glitches of a sensor or its driver.

    Args:
        largest_limit_w: The largest power limit that the GPU takes; None if unknown.
        enforced_limit_w: The one that is in force, which may have been another one before; None if unknown.
        name: Of the GPU, by which its power is rated where the largest limit isn't known.
    """
    largest_w = largest_limit_w or rated_w(name)
    limit_w = max(largest_w or 0.0, enforced_limit_w or 0.0)
    return min(MOST_W, (_OVER_LIMIT if largest_w else _OVER_ENFORCED) * limit_w) if limit_w else MOST_W


def rated_w(name: str) -> float | None:
    """The most that the power limit of a GPU may be by its name, in watts; None if unknown."""
    rated = (watts for names, watts in _RATED_W.items() if re.search(rf"\b({names})\b", name, re.I))
    return next(rated, None)


def clean(
    time_ns: ArrayLike,
    value: ArrayLike,
    period_s: float | None = None,
    *,
    most_w: float = MOST_W,
    gapless: bool = False,
) -> Readings:
    """Sort and check raw readings; what is repaired, dropped or missing is counted in ``issues``.

    Args:
        time_ns: Stamps in ns since the Unix epoch, in order of arrival, shape (n,).
        value: Readings in watts, shape (n,).
        period_s: Update period of the sensor; the median spacing if None.
        most_w: The most that the GPU can draw, see ``most_power_w``.
        gapless: True if readings come at each period, so that any that lacks leaves a hole.

    Returns:
        The record. Readings that are NaN, infinite, negative or beyond ``most_w`` are dropped, not replaced. Where a
        clock stepped back, the time lived through twice is dropped and becomes a hole.

    Raises:
        BadInputError: If the arrays differ in shape or stamps aren't integers.
    """
    time, power = np.asarray(time_ns), np.asarray(value, np.float64)
    if time.shape != power.shape or time.ndim != 1:
        raise BadInputError(f"power record: {time.shape} stamps do not go with {power.shape} readings")
    if time.size and time.dtype.kind not in "iu":
        raise BadInputError(f"power record: stamps must be integer nanoseconds, not {time.dtype}")
    time = time.astype(np.int64)
    finite, negative = np.isfinite(power), power < 0
    implausible = finite & (power > most_w)
    issues = {"nan": ~finite, "negative": finite & negative, "implausible": implausible}
    good = finite & ~negative & ~implausible
    left_out, time, power = np.sort(time[implausible]), time[good], power[good]

    twice = [(int(time[i]), int(time[:i].max())) for i in clock_steps(time)]
    keep = np.ones(len(time), bool)
    for since, until in twice:
        keep &= (time < since) | (time > until)
    time, power = time[keep], power[keep]
    issues |= {"clock_stepped_back": np.ones(len(twice)), "out_of_order": np.diff(time) < 0}
    order = np.argsort(time, kind="stable")
    time, power = time[order], power[order]
    same, equal = np.diff(time) == 0, np.diff(power) == 0
    issues |= {"duplicate": same & equal, "conflicting_stamps": same & ~equal}
    keep = np.append(~same, True)[: len(time)]  # of readings that share a stamp the last to arrive stays
    time, power = time[keep], power[keep]

    spacing = np.diff(time) / 1e9
    if period_s is None:
        period_s = float(np.median(np.diff(time))) / 1e9 if len(time) > 1 else float("nan")
    period_s = min(period_s, LONGEST_S)
    wide = spacing > max(HOLE_PERIODS * period_s, 0.0 if gapless else _irregular_s(spacing))
    issues |= {"hole": wide, "skipped": (spacing > 1.5 * period_s) & ~wide}
    issues |= {"no_samples": np.array([len(time) == 0]), "one_sample": np.array([len(time) == 1])}
    counts = {code: int(some.sum()) for code, some in issues.items() if some.any()}
    at = np.flatnonzero(wide)
    holes = _merged([*zip(time[at].tolist(), time[at + 1].tolist(), strict=True), *twice])
    origin_ns = int(time[0]) if len(time) else 0
    return Readings(time, power, period_s, holes, counts, left_out, origin_ns)


def _irregular_s(spacing: Floats) -> float:
    """The longest spacing of readings that were read at irregular times, in s; 0 of regular ones.

    Where many spacings are far above the usual one and there is one of every length between, none of these is a hole.
    """
    usual_s = float(np.median(spacing)) if len(spacing) else 0.0
    above = np.sort(spacing[spacing >= usual_s])
    if np.sum(above > HOLE_PERIODS * usual_s) <= max(_FEW, _FEW_HOLES * len(spacing)):
        return 0.0
    apart = np.flatnonzero(above[1:] > HOLE_PERIODS * above[:-1])
    return float(above[apart[0] if len(apart) else -1])


def at_slots(record: Readings, period_s: float, parts: int) -> Readings:
    """Return a record with each reading at the time at which it was taken, by the grid behind its stamps.

    Args:
        record: Two readings or more.
        period_s: About that of the grid.
        parts: Parts of a slot at which a reading may be taken, see ``Grid.taken``. Of two in one part the first stays.
    """
    grid = find_grid(record.time_ns, period_s, only_late=parts > 1)  # such a driver is late for a slot, never early
    taken = np.maximum.accumulate(grid.taken(parts)) + record.seconds(record.time_ns[0])
    later = np.diff(taken, prepend=-np.inf) > 0
    return replace(record, true_s=taken, late_s=grid.unsure_s).take(later)


def clock_steps(time: Ints) -> list[int]:
    """Places of the readings, in order of arrival, before which the clock had stepped back.

    A reading delivered late is followed by newer ones; after a step of the clock the readings after it go on, in order,
    from the earlier time.
    """
    after = (np.flatnonzero(np.diff(time) < 0) + 1).tolist()
    runs = ((i, time[i : i + _STEP_RUN]) for i in after)
    return [i for i, run in runs if len(run) == _STEP_RUN and np.all(np.diff(run) >= 0) and run[1] < time[:i].max()]


def _merged(segments: Sequence[tuple[int, int]]) -> Ints:
    """Segments in order, those that overlap as one, shape (h, 2)."""
    merged: list[list[int]] = []
    for since, until in sorted(segments):
        if merged and since <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], until)
        else:
            merged.append([since, until])
    return np.array(merged, np.int64).reshape(len(merged), 2)


def spliced(record: Readings, time_ns: ArrayLike) -> tuple[Readings, Ints]:
    """A record whose holes are closed to one period, so that only time of which readings speak is left; times in it.

    Readings stay where they are up to the first hole. What a load did in a hole is in no figure then, and neither is a
    reading between two holes.
    """
    begun, ended = record.holes.T
    closed_ns = np.minimum(ended - begun, round(1e9 * record.period_s))
    gone_ns = np.append(0, np.cumsum(ended - begun - closed_ns))

    def moved(at_ns: Ints) -> Ints:
        hole = np.searchsorted(begun, at_ns, side="right") - 1  # the last that began before, -1 without one
        since = np.where(hole >= 0, at_ns - begun[hole], 0)
        length, left = (np.where(hole >= 0, some[hole], 0) for some in (ended - begun, closed_ns))
        return np.asarray(at_ns - gone_ns[hole] * (hole >= 0) - np.minimum(since, length) + np.minimum(since, left))

    between = np.searchsorted(begun, record.time_ns, side="left") > np.searchsorted(ended, record.time_ns, side="right")
    kept = record.take(~between)
    time, true_s = moved(kept.time_ns), kept.true_s
    if true_s is not None:
        true_s = true_s + (time - kept.time_ns) / 1e9
    return replace(kept, time_ns=time, true_s=true_s, holes=record.holes[:0]), moved(np.asarray(time_ns, np.int64))


def printed_step(values: Floats, steps: Sequence[float] = (1.0, 0.1, 0.01, 0.001)) -> float:
    """The first of some steps, the largest first, to which all values were rounded; 0 if to none.

    All readings of a steady level are off by the same: their spread says nothing of it.
    """
    rounded = (step for step in steps if np.all(np.abs(values / step - np.round(values / step)) < 1e-6))
    return next(rounded, 0.0)


def cumulative_energy(time_ns: Ints, power_w: Floats) -> Floats:
    """Joules from the first stamp to each stamp, shape (n,): each reading is the mean power since the one before."""
    energy = np.zeros(len(time_ns))
    if len(time_ns) > 1:
        np.cumsum(np.diff(time_ns) * power_w[1:], out=energy[1:])
        energy *= 1e-9
    return energy


def integrate(time_ns: ArrayLike, power_w: ArrayLike, start_ns: ArrayLike, end_ns: ArrayLike) -> Floats:
    """Joules of each window [start, end] by the readings as they are, shape (m,).

    Response and lag of the sensor are not corrected: ``attribution.spans`` does that. NaN where a window reaches
    outside of the stamps, which increase, or ends before it starts.
    """
    time, power = np.asarray(time_ns, np.int64), np.asarray(power_w, np.float64)
    start, end = np.asarray(start_ns, np.int64), np.asarray(end_ns, np.int64)
    # From the first stamp on, times are exact to the nanosecond as floats.
    knots, running = (time - time[0]).astype(np.float64), cumulative_energy(time, power)
    reached = [np.interp((at - time[0]).astype(float), knots, running, np.nan, np.nan) for at in (start, end)]
    return np.where(end < start, np.nan, reached[1] - reached[0])
