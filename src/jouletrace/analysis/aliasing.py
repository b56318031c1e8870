"""Loads of a Run that repeat, and whether their sensor meets few phases of them, by the estimator's own solution.

Iterations of a profile repeat themselves exactly. Forwards of a generation grow longer token by token, and steps of a
program take what they take: those have a period only as far as they are regular.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.power import energies
from jouletrace.analysis.windows import of_variant
from jouletrace.attribution.spans import ALIASED_FROM
from jouletrace.run import Run
from jouletrace.run.forms import Segment
from jouletrace.run.readings import ALIASED
from jouletrace.run.spans import Path, PathSpans, spans_of

SEGMENT = "segment"
"""Variant of the windows of a generation's pieces; their unit says which."""

REGULAR = 0.03
"""Spread of periods up to which a load is regular, relative.

Where periods scatter by σ, the phase is another one after ``2 / (2πσ)²`` of them, some fifty here, and whatever is
seen of a swing averages out from there on.
"""

Ints = NDArray[np.int64]


def of_whole(run: Run, device: str, variant: str = "untouched") -> list[str]:
    """The flag, if the iterations of windows of a variant alias, or the decode steps of which they consist."""
    windows = of_variant(run, variant)
    seconds, replays = _lengths(windows)
    if not len(seconds):
        return []
    period_s = float(np.median(seconds / replays))  # with the flush of a cache, if there is one
    decoding = _decode_steps(run)
    periods = [period_s, *(decoding if _regular(decoding) else [])]
    return _flag(any(_hidden(run, device, *_edges(windows), one) > ALIASED_FROM for one in periods))


def of_pieces(run: Run, device: str, pieces: Iterable[Segment]) -> list[str]:
    """The flag, if one of these pieces of a generation (as ``Run.workload`` has them) aliases while it is measured."""
    found = ((_edges(_windows_of(run, piece)), _forward_s(run, piece)) for piece in pieces)
    return _flag(any(_hidden(run, device, *edges, forward_s) > ALIASED_FROM for edges, forward_s in found))


def of_paths(run: Run, marked: Sequence[PathSpans], devices: Callable[[Path], Iterable[str]]) -> set[Path]:
    """Paths of the ranges that alias with the sensor of one of their devices, and of those that consist of such."""
    total = {spans.path: float(spans.seconds.sum()) for spans in marked}
    found: set[Path] = set()
    judged: dict[tuple[str, str], float] = {}  # paths within one step have its period
    for spans in marked:
        period_s = repeated_s(spans.start_ns, spans.lane)
        for device in devices(spans.path) if period_s else ():
            key = device, f"{period_s:.3g}"
            if key not in judged:
                judged[key] = _hidden(run, device, spans.start_ns, spans.start_ns, period_s)
            around = [spans.path[:depth] for depth in range(1, len(spans.path) + 1)]
            found |= {
                path for path in around if judged[key] * total[spans.path] > ALIASED_FROM * total.get(path, np.inf)
            }
    return found


def of_steps(run: Run, device: str, watched_s: float) -> list[str]:
    """The flag, if steps that a program marked alias and take a good part of the time that a device was watched."""
    spans = spans_of(run, "iteration")
    if run.settings.get("ranks"):  # each has a device of its own, where all steps are of all devices otherwise
        spans = spans.take(spans.those("device", (device,)))
    hidden = _hidden(run, device, spans.start_ns, spans.start_ns, repeated_s(spans.start_ns, spans.lane))
    return _flag(hidden * float(spans.seconds.sum()) > ALIASED_FROM * watched_s)


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
    found = energies(run, device, begun[np.append(0, apart)], ended[np.append(apart - 1, -1)], period_s=period_s)
    return 0.0 if found is None else found.hidden(np.ones(len(found)))


def _flag(found: bool) -> list[str]:
    return [ALIASED] if found else []


def _regular(periods: Sequence[float] | NDArray[np.float64]) -> bool:
    """Whether most are alike: an evaluation now and then makes none of the others another length. Few must be all."""
    if not len(periods):
        return False
    # of so few none may be of another length
    if len(periods) < 20:
        return bool(np.ptp(periods) / 2 <= REGULAR * np.median(periods))
    low, middle, high = np.quantile(periods, [0.16, 0.5, 0.84])
    return bool((high - low) / 2 <= REGULAR * middle)


def _decode_steps(run: Run) -> list[float]:
    """Seconds of a decode step within an iteration, at each length that was measured; empty where nothing decodes.

    A step is a forward, and what happens between it and the next.
    """
    stated = run.workload.get("generation")
    if stated is None:
        return []
    pieces = stated["segments"]
    forwards = [_forward_s(run, piece) for piece in pieces if piece["phase"] == "decode"]
    beside = sum(piece["weight"] * _forward_s(run, piece) for piece in pieces if piece["phase"] == "between forwards")
    steps = [forward_s + beside / stated["steps"] for forward_s in forwards]
    return [seconds for seconds in steps if np.isfinite(seconds)]


def _forward_s(run: Run, piece: Segment) -> float:
    """Seconds of a piece, once, as it was measured by itself; NaN if it wasn't."""
    seconds, replays = _lengths(_windows_of(run, piece))
    return float(np.median(seconds / replays)) / piece["times"] if len(seconds) else float("nan")


def _windows_of(run: Run, piece: Segment) -> pa.Table:
    windows = of_variant(run, SEGMENT)
    return windows.filter(pc.equal(windows["unit"], piece["unit"]))


def _edges(windows: pa.Table) -> tuple[Ints, Ints]:
    """Starts and ends of each, in ns."""
    return windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy()


def _lengths(windows: pa.Table) -> tuple[NDArray[np.float64], Ints]:
    """Seconds and replays of each."""
    start_ns, end_ns = _edges(windows)
    return np.asarray((end_ns - start_ns) / 1e9, np.float64), windows["replays"].to_numpy()
