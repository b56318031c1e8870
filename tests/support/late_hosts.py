"""Profiles of powers by hand, among them one whose host is late."""

from itertools import pairwise

import numpy as np

from jouletrace.analysis import analyse
from jouletrace.recording.calibrations import SCATTER
from records import make_run, phases, readings, windows


def stepped(edges, watts, idle_after=120.0, noise=0.3, scatter=SCATTER):
    """A profile of a power in each window, of 50 iterations, between idle at 120 W and at another power."""
    levels, end = np.concatenate(([120.0], watts, [idle_after])), edges[-1] + 3.0
    spans = phases(
        ("context idle before", 2.0, 5.0), ("energy", 5.0, edges[-1]), ("context idle after", edges[-1], end)
    )
    rows = readings(lambda t: levels[np.searchsorted(edges, t, side="right")], end, noise=noise)
    run = make_run(rows, spans=spans, window_rows=windows(list(pairwise(edges)), replays=50))
    if scatter is not None:
        run.stored["between_runs"] = scatter
    return analyse(run)


def late_host(idle_after=120.0, excess_w=0.0, **also):
    """A profile whose host is late by 0 to 300 ms in each window of 0.5 s: idle time, and the same active energy."""
    edges = 5.0 + np.append(0.0, np.cumsum(0.5 + np.random.default_rng(0).uniform(0.0, 0.3, 8)))
    watts = 120.0 + excess_w + 40.0 / np.diff(edges)  # 40 J active in each window of 50 iterations
    return stepped(edges, watts, idle_after, **also), watts
