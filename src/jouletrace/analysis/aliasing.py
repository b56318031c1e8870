"""Loads of a Run that repeat, and whether their sensor meets few phases of them, by the estimator's own solution.

Iterations of a profile repeat themselves exactly. Steps of a program take what they take: those have a period only as
far as they are regular.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.power import energies
from jouletrace.attribution.spans import ALIASED_FROM
from jouletrace.run import Run
from jouletrace.run.readings import ALIASED
from jouletrace.run.spans import Path, PathSpans, spans_of

REGULAR = 0.03
"""Spread of periods up to which a load is regular, relative.

Where periods scatter by σ, the phase is another one after ``2 / (2πσ)²`` of them, some fifty here, and whatever is
seen of a swing averages out from there on.
"""

_MOSTLY = 0.5
"""Share of a time from which on what aliases in it makes its energy."""

Ints = NDArray[np.int64]


def of_paths(run: Run, marked: Sequence[PathSpans], devices: Callable[[Path], Iterable[str]]) -> set[Path]:
    """Paths of the ranges that alias with the sensor of one of their devices, and of those that consist of such."""
    total = {spans.path: float(spans.seconds.sum()) for spans in marked}
    aliased: set[Path] = set()
    judged: dict[tuple[str, str], float] = {}  # paths within one step have its period
    for spans in marked:
        period_s = repeated_s(spans.start_ns, spans.lane)
        for device in devices(spans.path) if period_s else ():
            key = device, f"{period_s:.3g}"
            if key not in judged:
                judged[key] = _hidden(run, device, spans.start_ns, spans.start_ns, period_s)
            around = [spans.path[:depth] for depth in range(1, len(spans.path) + 1)]
            aliased |= {
                path for path in around if judged[key] * total[spans.path] > ALIASED_FROM * total.get(path, np.inf)
            }
    return aliased


def of_steps(run: Run, device: str, watched_s: float) -> list[str]:
    """The flag, if steps that a program marked alias and take a good part of the time that a device was watched."""
    spans = spans_of(run, "iteration")
    if run.settings.get("ranks"):  # each has a device of its own, where all steps are of all devices otherwise
        spans = spans.take(spans.those("device", (device,)))
    hidden = _hidden(run, device, spans.start_ns, spans.start_ns, repeated_s(spans.start_ns, spans.lane))
    return _flag(hidden > ALIASED_FROM and float(spans.seconds.sum()) > _MOSTLY * watched_s)


def repeated_s(start_ns: Ints, lane: NDArray[Any]) -> float:
    """Period of spans with these starts, each thread's with its own, in s; 0 if they aren't regular."""
    order = np.lexsort((start_ns, lane))
    apart = (np.diff(start_ns[order]) / 1e9)[lane[order][1:] == lane[order][:-1]]
    # one spacing says nothing of regularity
    return float(np.median(apart)) if len(apart) > 1 and _regular(apart) else 0.0


def _hidden(run: Run, device: str, start_ns: Ints, end_ns: Ints, period_s: float) -> float:
    """See ``SpanEnergies.hidden``: of a load that repeats with this period; 0 without one, or without a power record.

    Spans that less than two periods lie between are one load: readings meet the same phase of each.
    """
    if not period_s > 0:
        return 0.0
    period_ns = round(1e9 * period_s)
    begun, ended = np.sort(start_ns), np.sort(np.maximum(end_ns, start_ns + period_ns))
    apart = np.flatnonzero(begun[1:] > ended[:-1] + period_ns) + 1
    loads = energies(run, device, begun[np.append(0, apart)], ended[np.append(apart - 1, -1)], period_s=period_s)
    return loads.hidden(np.ones(len(loads)))


def _flag(aliases: bool) -> list[str]:
    return [ALIASED] if aliases else []


def _regular(periods: Sequence[float] | NDArray[np.float64]) -> bool:
    """True if most are alike: an evaluation now and then makes none of the others another length. Few must be all."""
    if not len(periods):
        return False
    # of so few none may be of another length
    if len(periods) < 20:
        return bool(np.ptp(periods) / 2 <= REGULAR * np.median(periods))
    low, middle, high = np.quantile(periods, [0.16, 0.5, 0.84])
    return bool((high - low) / 2 <= REGULAR * middle)
