"""Servers on several slices of one GPU: the GPU's energy divided among them, by the activity of each.

The rule is that of ``split``. Idle power is that of the pauses before and after, and goes to the slices by
their size. Loads on several slices at the same time share one window, in which all are steady, so that their energies
and the rest add up to the GPU's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jouletrace.attribution.prior import MOVING
from jouletrace.run import Estimate, Run
from jouletrace.run.forms import Server, Serving
from jouletrace.run.model import SampleIndex
from jouletrace.run.spans import spans_of
from jouletrace.wings.mig.split import METHOD, divided, mean_powers, shifted, slice_factors
from jouletrace.wings.serving.analysis.measured import Record
from jouletrace.wings.serving.analysis.shared import Found, LoadDivision
from jouletrace.wings.serving.analysis.steady import Requests, steady_window

ACTIVITY = "graphics_active"
_PIECE_S = 0.5
"""Length of the times in whose activity the slices' powers are sought: counters are read some times in each."""

_SETTLE_S = 0.5
"""Of a pause, until its power is that of idle."""


def divide(run: Run, serving: Serving, found: Sequence[Found]) -> list[LoadDivision]:
    """The part of each load in the energy of the Run's first device, the GPU; see ``Divider``.

    Its slices are devices of activity channels. Divisions have as ``beside`` the slice's activity, and measured power
    and idle power of the whole GPU, W.
    """
    servers, whole = serving["servers"], serving.get("slices", 0)
    groups: dict[int, list[Requests]] = {}
    for number, load, requests in found:
        groups.setdefault(load.get("group", number), []).append(requests)
    windows = {group: _common(loads) for group, loads in groups.items()}
    edges_ns = [(start, end) for start, end, _ in windows.values()]
    loads_ns = [(r.origin_ns, r.nanoseconds(float(np.nanmax(r.last)))) for *_, r in found]
    pauses = _pauses(run)
    powers = mean_powers(run, [*pauses, *edges_ns], loads_ns, MOVING)
    idle = [(sum(edges) / 2, one.value) for edges, one in zip(pauses, powers, strict=False) if one.value is not None]
    power_of = dict(zip(groups, powers[len(pauses) :], strict=True))
    origin_ns, sizes = loads_ns[0][0], [server["slices"] for server in servers]
    record = Record.from_run(run, origin_ns, (np.array(loads_ns) - origin_ns) / 1e9)
    pieces = [np.linspace(a, b, max(1, int((b - a) / 1e9 / _PIECE_S)) + 1).astype(np.int64) for a, b in edges_ns]
    pieces_ns = np.concatenate([np.column_stack([one[:-1], one[1:]]) for one in pieces])
    activity = np.array([_activity(run, servers, *piece) for piece in pieces_ns.tolist()])
    factors = slice_factors(record, (pieces_ns - origin_ns) / 1e9, activity, sizes)
    divisions = []
    for number, load, r in found:
        start_ns, end_ns, is_steady = windows[load.get("group", number)]
        seconds, place = (end_ns - start_ns) / 1e9, min(load.get("server", 0), len(servers) - 1)
        gpu, activity_of = power_of[load.get("group", number)], _activity(run, servers, start_ns, end_ns)
        idle_w = float(np.interp((start_ns + end_ns) / 2, *np.array(sorted(idle)).T)) if idle else math.nan
        above = shifted(gpu, -idle_w) if idle else Estimate.null(gpu.reason or "no_power_sensor", METHOD)
        active = divided(factors, above, activity_of)[place]
        own_idle_w = idle_w * sizes[place] / max(whole, sum(sizes))
        busy, unknown = activity_of[place], Estimate.null("no_activity", ACTIVITY)
        beside = {
            "activity": unknown if math.isnan(busy) else Estimate(busy, method=ACTIVITY),
            "power_gpu_w": replace(gpu, flags=(), budget={}),
        }
        if idle:
            beside["baseline_context_idle_w"] = Estimate(idle_w, method="windows")
        window = (start_ns - r.origin_ns) / 1e9, (end_ns - r.origin_ns) / 1e9
        total = replace(shifted(active, own_idle_w).scaled(seconds), flags=(METHOD,))
        divisions.append(LoadDivision(window, is_steady, total, active.scaled(seconds), beside))
    return divisions


def _common(loads: Sequence[Requests]) -> tuple[int, int, bool]:
    """The time in which all loads of a group are steady; their common time where there is none."""
    steady = [(one, *steady_window(one)) for one in loads]
    start = max(one.nanoseconds(begin) for one, begin, _, _ in steady)
    end = min(one.nanoseconds(finish) for one, _, finish, _ in steady)
    if start < end:
        return start, end, all(is_steady for *_, is_steady in steady)
    start = max(one.nanoseconds(float(one.sent[0])) for one in loads)
    end = min(one.nanoseconds(float(np.nanmax(one.last))) for one in loads)
    return start, max(end, start + 1), False


def _pauses(run: Run) -> list[tuple[int, int]]:
    """Starts and ends of the pauses, once power is that of idle, which rises with the die's heat; ns."""
    edges = zip(*(edge.tolist() for edge in spans_of(run, "phase").named("idle").edges_ns), strict=True)
    return [(start + round(min(_SETTLE_S, (end - start) / 3e9) * 1e9), end) for start, end in edges]


def _activity(run: Run, servers: Sequence[Server], start_ns: int, end_ns: int) -> list[float]:
    """Mean activity of each slice in a window; NaN without readings."""
    found, index = [], run.remember("samples", "index", SampleIndex)  # a slice may have no reading
    for server in servers:
        stamps, values = index.series(server["slice"], ACTIVITY)
        inside = values[(stamps > start_ns) & (stamps <= end_ns)]
        found.append(float(inside.mean()) if len(inside) else math.nan)
    return found
