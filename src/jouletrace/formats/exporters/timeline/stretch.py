"""The part of a timeline that a picture shows: one iteration, where the Run has iterations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.formats.exporters.timeline.tracks import Spans, codes
from jouletrace.run import Run


@dataclass(frozen=True)
class Stretch:
    """A part of a timeline.

    Attributes:
        start_ns, end_ns: Its edges; the end is after the start.
        what: Its description.
        device: The device of most of its kernels; None without kernels.
        kernels: Rows of ``Spans.table`` of that device's kernels within it, by start, shape (n,).
    """

    start_ns: int
    end_ns: int
    what: str
    device: str | None
    kernels: NDArray[np.int64]


def stretch_of(run: Run, spans: Spans) -> Stretch | None:
    """The first iteration with kernels, preferably with hardware counters; else all kernels; else all of it.

    None if nothing in the Run has a time.
    """
    kinds, kind = codes(spans.table["kind"])
    of_kind = {name: np.flatnonzero((kind == i) & spans.drawn) for i, name in enumerate(kinds)}
    none = np.empty(0, np.int64)
    kernels, iterations = (of_kind.get(name, none) for name in ("kernel", "iteration"))
    kernels = kernels[np.argsort(spans.start_ns[kernels], kind="stable")]
    if len(kernels):
        chosen = _iteration(run, spans, kernels, iterations)
        if chosen is not None:
            number, row = chosen
            of = f" {number} of {len(iterations)}" if len(iterations) > 1 else ""
            return _with_kernels(spans, kernels, spans.start_ns[row], spans.end_ns[row], f"iteration{of}")
        return _with_kernels(spans, kernels, spans.start_ns[kernels[0]], spans.end_ns[kernels].max(), "all kernels")
    edges = [edge[spans.drawn] for edge in (spans.start_ns, spans.end_ns)]
    if len(run.samples):
        edges.append(run.samples["time_ns"].drop_null().to_numpy())
    every = np.concatenate(edges)
    if len(every) == 0 or every.max() == every.min():
        return None
    return Stretch(int(every.min()), int(every.max()), "all of it", None, none)


def _iteration(
    run: Run, spans: Spans, kernels: NDArray[np.int64], iterations: NDArray[np.int64]
) -> tuple[int, int] | None:
    """Number, from 1, and row of the iteration to show."""
    iterations = iterations[np.argsort(spans.start_ns[iterations], kind="stable")]
    counted = np.isin(spans.table["id"].fill_null(-1).to_numpy()[kernels], run.counters["span"].drop_null().to_numpy())
    for some in (kernels[counted], kernels):
        starts = spans.start_ns[some]
        first, last = (np.searchsorted(starts, edge[iterations]) for edge in (spans.start_ns, spans.end_ns))
        found = np.flatnonzero(last > first)
        if len(found):
            return int(found[0]) + 1, int(iterations[found[0]])
    return None


def _with_kernels(spans: Spans, kernels: NDArray[np.int64], start_ns: np.int64, end_ns: np.int64, what: str) -> Stretch:
    end_ns = max(end_ns, start_ns + 1)
    inside = kernels[(spans.start_ns[kernels] < end_ns) & (spans.end_ns[kernels] > start_ns)]
    devices, device = codes(spans.table["device"])
    counts = np.bincount(device[inside] + 1, minlength=len(devices) + 1)
    most = int(np.argmax(counts)) - 1
    mine = inside[device[inside] == most]
    return Stretch(int(start_ns), int(end_ns), what, devices[most] if most >= 0 else None, mine)
