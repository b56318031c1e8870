"""Servers on several slices of one GPU: the GPU's energy divided among them, by the activity of each.

A slice has no power sensor. The rule is that of ``analysis.split``: power above idle is divided by activity times a
coefficient of each server, which windows with different activities determine, those with one server alone most.
Idle power is that of the pauses before and after, and goes to the slices by their size. Loads on several slices at the
same time share one window, in which all are steady, so that their energies and the rest add up to the GPU's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from jouletrace.analysis.power import energies
from jouletrace.analysis.serving.steady import Floats, Requests, steady_window
from jouletrace.analysis.split import METHOD, SplitModel, fit, shifted, split
from jouletrace.attribution.prior import MOVING
from jouletrace.run import Estimate, Run
from jouletrace.run.forms import Load, Server
from jouletrace.run.spans import spans_of

ACTIVITY = "graphics_active"
_PIECE_S, _MOST_PIECES = 2.0, 30
"""Length of the windows from which the coefficients are estimated, and the most of them in a load."""

_SETTLE_S = 0.5
"""Of a pause, until its power is that of idle."""

Found = tuple[int, Load, Requests]
"""A load's number, what was offered, and its requests."""


@dataclass(frozen=True)
class Division:
    """What a load on one slice took in its window.

    Attributes:
        window: Start and end in seconds, of its requests' origin.
        is_steady: Whether all loads of that time are steady.
        total: Energy with the slice's share of idle, J.
        active: Energy above idle, J.
        activity: Share of time in which the slice was active.
        gpu: Measured power of the whole GPU, W.
        idle_w: Idle power of the whole GPU then; NaN if it is unknown.
        flags: Of the energies.
    """

    window: tuple[float, float]
    is_steady: bool
    total: Estimate
    active: Estimate
    activity: Estimate
    gpu: Estimate
    idle_w: float
    flags: tuple[str, ...] = (METHOD,)


def divide(run: Run, servers: Sequence[Server], whole: int, found: Sequence[Found]) -> dict[int, Division]:
    """What each load took of the GPU's energy, by its number.

    Args:
        run: The Run; its first device is the GPU, whose slices are devices of activity channels.
        servers: The servers with their slices.
        whole: Compute slices of the GPU.
        found: The loads; those of the same ``group`` ran at the same time.
    """
    groups: dict[int, list[Found]] = {}
    for one in found:
        groups.setdefault(one[1].get("group", one[0]), []).append(one)
    windows = {group: _common(loads) for group, loads in groups.items()}
    extents = [(r.origin_ns, r.nanoseconds(float(np.nanmax(r.last)))) for *_, r in found]
    whole_windows = [window for *window, _ in windows.values()]
    pieces = _pieces(whole_windows)
    idle, every = _powers(run, [*whole_windows, *pieces], extents)
    power_of = dict(zip(groups, every, strict=False))
    watts = [math.nan if one.value is None else one.value for one in every[len(groups) :]]
    above_w = np.array(watts) - [_idle_w(idle, *piece) for piece in pieces]
    busy_of = [[_activity(run, server, start, end) for server in servers] for start, end in pieces]
    model = fit(above_w, 0.0, busy_of, [server["slices"] for server in servers])
    slices = max(whole, round(float(model.slices.sum())))
    divided: dict[int, Division] = {}
    for group, loads in groups.items():
        start_ns, end_ns, is_steady = windows[group]
        seconds = (end_ns - start_ns) / 1e9
        activity = [_activity(run, server, start_ns, end_ns) for server in servers]
        idle_w, power = _idle_w(idle, start_ns, end_ns), power_of[group]
        for number, load, requests in loads:
            place = min(load.get("server", 0), len(servers) - 1)
            active, own_idle = _part(model, power, idle_w, activity, slices, place)
            busy = activity[place]
            divided[number] = Division(
                ((start_ns - requests.origin_ns) / 1e9, (end_ns - requests.origin_ns) / 1e9),
                is_steady,
                shifted(active, own_idle).scaled(seconds),
                active.scaled(seconds),
                Estimate(busy, method=ACTIVITY) if math.isfinite(busy) else Estimate.null("no_activity", ACTIVITY),
                power,
                idle_w,
            )
    return divided


def _common(loads: Sequence[Found]) -> tuple[int, int, bool]:
    """The time in which all loads of a group are steady; their common time where there is none."""
    steady = [(requests, *steady_window(requests)) for _, _, requests in loads]
    start = max(requests.nanoseconds(begin) for requests, begin, _, _ in steady)
    end = min(requests.nanoseconds(finish) for requests, _, finish, _ in steady)
    if start < end:
        return start, end, all(is_steady for *_, is_steady in steady)
    start = max(requests.nanoseconds(float(requests.sent[0])) for requests, *_ in steady)
    end = min(requests.nanoseconds(float(np.nanmax(requests.last))) for requests, *_ in steady)
    return start, max(end, start + 1), False


def _powers(
    run: Run, windows: Sequence[Sequence[int]], extents: Sequence[tuple[int, int]]
) -> tuple[tuple[Floats, Floats], list[Estimate]]:
    """Middles of the pauses in nanoseconds, with the GPU's mean power in each, and its power in windows of loads.

    Idle power rises with the die's heat.
    """
    edges = zip(*(edge.tolist() for edge in spans_of(run, "phase").named("idle").edges_ns), strict=True)
    pauses = [(start + round(min(_SETTLE_S, (end - start) / 3e9) * 1e9), end) for start, end in edges]
    starts, ends = np.array([*pauses, *windows], np.int64).T
    found, seconds = energies(run, run.devices[0].id, starts, ends, extents, prior=MOVING), (ends - starts) / 1e9
    count, middle = len(pauses), (starts + ends) / 2
    known = np.flatnonzero(found.known[:count])
    known = known[np.argsort(middle[known])]
    each = [found.estimate(np.arange(len(starts)) == k, method="window") for k in range(count, len(starts))]
    whole = [one.scaled(1 / s) for one, s in zip(each, seconds[count:].tolist(), strict=True)]
    return (middle[known], (found.energy_j / seconds)[known]), whole


def _idle_w(idle: tuple[Floats, Floats], start_ns: int, end_ns: int) -> float:
    """Idle power in a window, between that of the pauses before and after it; NaN if it is unknown."""
    return float(np.interp((start_ns + end_ns) / 2, *idle)) if len(idle[0]) else math.nan


def _pieces(windows: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Parts of all windows, from which the coefficients are estimated."""
    pieces: list[tuple[int, int]] = []
    for start, end in windows:
        count = max(1, min(_MOST_PIECES, int((end - start) / 1e9 / _PIECE_S)))
        edges = np.linspace(start, end, count + 1).astype(np.int64).tolist()
        pieces += list(pairwise(edges))
    return pieces


def _part(
    model: SplitModel, power: Estimate, idle_w: float, activity: Sequence[float], whole: int, place: int
) -> tuple[Estimate, float]:
    """Power above idle of one slice, and its share of idle power, W."""
    if power.value is None or math.isnan(idle_w):
        return Estimate.null(power.reason or "no_power_sensor", METHOD), 0.0
    parts = split(model, power, idle_w, activity, whole)
    return parts.slices[place], parts.idle[place]


def _activity(run: Run, server: Server, start_ns: int, end_ns: int) -> float:
    """Mean activity of a slice in a window; NaN without readings."""
    stamps, values = run.series(server["slice"], ACTIVITY)
    inside = values[(stamps > start_ns) & (stamps <= end_ns)]
    return float(inside.mean()) if len(inside) else math.nan
