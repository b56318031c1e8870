"""Loads of a Run whose repetition is aliased with the samples behind readings of power (``sensor.aliasing``).

Iterations of a profile repeat themselves exactly. Forwards of a generation grow longer token by token, and steps of a
program take what they take: those alias only as far as their period is regular.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.windows import of_variant
from jouletrace.run import Run
from jouletrace.run.channels import POWER
from jouletrace.run.forms import Segment, StoredLevel
from jouletrace.run.recording_names import SAMPLE_RATE
from jouletrace.run.spans import Path, PathSpans, spans_of
from jouletrace.sensor.aliasing import ANY_RATE_U, KNOWN_RATE_U, aliased, read_in_step
from jouletrace.sensor.kinds import response_of

FLAG = "aliased_with_sensor"

SEGMENT = "segment"
"""Variant of the windows of a generation's pieces; their unit says which."""

REGULAR = 0.03
"""Spread of periods up to which a load is regular, relative.

Where periods scatter by σ, the phase is another one after ``2 / (2πσ)²`` of them, some fifty here, and whatever is
seen of a swing averages out from there on.
"""

_PART = 0.1
"""Share of a time from which on what aliases in it can be determined in its energy: power swings by a half at most."""


Ints = NDArray[np.int64]


def of_whole(run: Run, device: str, variant: str = "untouched") -> list[str]:
    """The flag, if the iterations of windows of a variant alias, or the decode steps of which they consist."""
    seconds, replays = _lengths(of_variant(run, variant))
    if not len(seconds):
        return []
    period_s = float(np.median(seconds / replays))  # with the flush of a cache, if there is one
    decoding = _decode_steps(run)
    periods = [period_s, *(decoding if _regular(decoding) else [])]
    return _flag(any(_aliased(run, device, one, float(seconds.sum())) for one in periods))


def of_pieces(run: Run, device: str, pieces: Iterable[Segment]) -> list[str]:
    """The flag, if one of these pieces of a generation (as ``Run.workload`` has them) aliases while it is measured."""
    found = ((_forward_s(run, piece), _lengths(_windows_of(run, piece))[0]) for piece in pieces)
    return _flag(any(_aliased(run, device, forward_s, float(seconds.sum())) for forward_s, seconds in found))


def of_paths(run: Run, marked: Sequence[PathSpans], devices: Callable[[Path], Iterable[str]]) -> set[Path]:
    """Paths of the ranges that alias with the sensor of one of their devices, and of those that consist of such."""
    total = {spans.path: float(spans.seconds.sum()) for spans in marked}
    found = set()
    for spans in marked:
        if any(_repeat_aliased(run, device, spans.start_ns, spans.lane) for device in devices(spans.path)):
            around = [spans.path[:depth] for depth in range(1, len(spans.path) + 1)]
            found |= {path for path in around if total[spans.path] >= _PART * total.get(path, np.inf)}
    return found


def of_steps(run: Run, device: str, watched_s: float) -> list[str]:
    """The flag, if steps that a program marked alias and take a good part of the time that a device was watched."""
    spans = spans_of(run, "iteration")
    if run.settings.get("ranks"):  # each has a device of its own, where all steps are of all devices otherwise
        spans = spans.take(spans.those("device", (device,)))
    long = spans.seconds.sum() >= _PART * watched_s
    return _flag(bool(long) and _repeat_aliased(run, device, spans.start_ns, spans.lane))


def _aliased(run: Run, device: str, period_s: float, total_s: float) -> bool:
    """Whether a load is aliased with the samples behind a device's readings, or with the readings themselves."""
    channel = run.channel(device, POWER)
    if channel is None:
        return False
    rate_hz = run.stored.get(SAMPLE_RATE, {}).get(device, StoredLevel()).get("value")
    sampling_s, rate_u = (1 / rate_hz, KNOWN_RATE_U) if rate_hz else (channel.sampling_s, ANY_RATE_U)
    return aliased(period_s, sampling_s, total_s, rate_u) or read_in_step(period_s, response_of(channel), total_s)


def _repeat_aliased(run: Run, device: str, start: Ints, lane: NDArray[Any]) -> bool:
    """Whether spans with these starts, each thread's with its own period, are aliased with the sensor."""
    order = np.lexsort((start, lane))
    apart = (np.diff(start[order]) / 1e9)[lane[order][1:] == lane[order][:-1]]
    # one spacing says nothing of regularity
    if len(apart) < 2 or not _regular(apart):
        return False
    period_s = float(np.median(apart))
    return _aliased(run, device, period_s, period_s * len(start))


def _flag(found: bool) -> list[str]:
    return [FLAG] if found else []


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


def _lengths(windows: pa.Table) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Seconds and replays of each."""
    seconds = (windows["end_ns"].to_numpy() - windows["start_ns"].to_numpy()) / 1e9
    return np.asarray(seconds, np.float64), windows["replays"].to_numpy()
