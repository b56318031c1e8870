"""Energies of pods, by the spans of ``watch``: a ``report.kinds.KindOfRun`` with ranges as rows, which the core words.

Between two answers of the kubelet that differ a GPU changed hands at an unknown moment. Half of what it took then is of
those before and half of those after, and the interval of each reaches from none of it to all of it. Pods that held one
GPU together have a row together: what each of them drew can't be known from the power of the GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from jouletrace.analysis.monitor import watched
from jouletrace.analysis.power import energies, no_power_reason, readings
from jouletrace.arrays import Ints
from jouletrace.comparing.pairs import ComparedRow
from jouletrace.run import Estimate, Run, device_labels
from jouletrace.run.figures import Figures
from jouletrace.run.spans import Spans, spans_of
from jouletrace.stats.interval import total
from jouletrace.wings.pods.watch import LANE, NO_POD

LEVEL = ""
"""The core words all rows."""

Names = frozenset[str]
_NO_POD = Names([NO_POD])
_MOST = 20
"""Spans that are listed below the figures."""


def add(run: Run, figures: Figures) -> None:
    """Add a unit for those that held GPUs alone or together; all add up to the energy of the devices."""
    of: dict[Names, list[tuple[str, Estimate, float, float, float]]] = defaultdict(list)
    for device, label in _labels(run).items():
        for names, figure in _of_device(run, device).items():
            of[names].append((label, *figure))
    devices = (unit for unit, row in figures.units.rows.items() if row["level"] == "device")
    whole = sum(figures.get(unit, "energy_total_j").value or 0.0 for unit in devices)
    for names in sorted(of, key=lambda names: (names == _NO_POD, sorted(names))):
        labels, each, half_j, seconds, half_s = zip(*of[names], strict=True)
        unit = figures.units.add(
            "range", " + ".join(sorted(names)) + f" on {', '.join(labels)}" * (len(_labels(run)) > 1)
        )
        exact_s, unsure_s = max(zip(seconds, half_s, strict=True))
        figures.add(unit, "time_s", _off_by(Estimate(exact_s, exact_s, exact_s, 1, "clock"), unsure_s))
        energy = _off_by(each[0] if len(each) == 1 else total(each), sum(half_j))
        figures.add(
            unit, "energy_total_j", energy
        )  # no power: its error isn't that of the energy, nor that of the time
        if whole:
            figures.add(unit, "share", replace(energy, budget={}).scaled(1 / whole))


def _off_by(figure: Estimate, limit: float) -> Estimate:
    """A figure that may be off by so much beside what its interval says; errors of edges may be alike, and add up."""
    if not limit or figure.value is None or figure.low is None or figure.high is None:
        return figure
    return replace(figure, low=figure.low - limit, high=figure.high + limit, flags=(*figure.flags, "pods_edges"))


def _of_device(run: Run, device: str) -> dict[Names, tuple[Estimate, float, float, float]]:
    """Energy, the limit of its error by changes, J, time, and the limit of its error, s, by who held a device."""
    log, spans = readings(run, device), _held(run)
    spans = spans.take(spans.those("device", (device,)))
    if log is None:
        none = Estimate.null(no_power_reason(run, device), "windows"), 0.0, 0.0, 0.0
        return {Names([spans.text("name", k) or NO_POD]): none for k in range(len(spans))}
    start, end = watched(run, device, *log)
    edges, sides = _pieces(spans, start, end)
    holes = np.clip(log[0].holes.ravel(), start, end)
    cut = np.unique(np.concatenate([edges, holes]).astype(np.int64))
    piece = np.searchsorted(edges, cut[:-1], side="right") - 1
    solved, seconds = energies(run, device, cut[:-1], cut[1:]), np.diff(cut) / 1e9
    lost = ~solved.has_energy & (2 * log[0].hole_seconds(cut[:-1], cut[1:]) >= seconds)
    of = {}
    for names in dict.fromkeys(names for both in sides for names in both):
        share = np.where(lost, 0.0, np.array([np.mean([side == names for side in both]) for both in sides])[piece])
        unsure = np.where(share == 0.5, share, 0.0)
        half_j = float(np.nansum(unsure * solved.energy_j))
        of[names] = solved.estimate(share), half_j, float(share @ seconds), float(unsure @ seconds)
    return of


def _pieces(spans: Spans, first: int, last: int) -> tuple[Ints, list[tuple[Names, Names]]]:
    """Edges of the pieces of a time, shape (m + 1,), and who held the device before and after each: others in a change.

    A span may be empty, of pods that one answer alone names.
    """
    times = np.clip(np.stack(spans.edges_ns, axis=1), first, last)
    edges = np.unique(np.append(times, [first, last]))
    held, begun, ended = (defaultdict[int, set[str]](set) for _ in range(3))
    for k, (start, end) in enumerate(np.searchsorted(edges, times).tolist()):
        name = spans.text("name", k) or NO_POD
        begun[start].add(name)
        ended[end].add(name)
        for piece in range(start, end):
            held[piece].add(name)
    sides = [
        (Names(held[k] or ended[k] or _NO_POD), Names(held[k] or begun[k + 1] or _NO_POD))
        for k in range(len(edges) - 1)
    ]
    kept = [k for k, both in enumerate(sides) if not k or both != sides[k - 1] or both[0] != both[1]]
    return np.append(edges[kept], edges[-1]), [sides[k] for k in kept]


def _labels(run: Run) -> dict[str, str]:
    """Short names of devices, by id."""
    names = device_labels(run.devices)
    return {info.id: names[info.id] if info.index is None else f"GPU {info.index}" for info in run.devices}


def _held(run: Run) -> Spans:
    spans = spans_of(run, "range")
    return spans.take(spans.those("lane", (LANE,)))


def facts(run: Run) -> list[tuple[str, str]]:
    """Who held which GPU from when to when, in UTC, as far as answers name it."""
    spans, labels = _held(run), _labels(run)
    since: dict[tuple[str, str], list[int]] = {}
    for k, times in enumerate(np.stack(spans.edges_ns, axis=1).tolist()):
        key = spans.text("name", k) or NO_POD, labels.get(spans.text("device", k) or "", "")
        since[key] = [*since.get(key, times)[:1], times[1]]
    said = {
        ns: f"{datetime.fromtimestamp(ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}" for times in since.values() for ns in times
    }
    lines = [
        f"{name} on {gpu}, {said[start]} to {said[end]} UTC"
        for (name, gpu), (start, end) in since.items()
        if name != NO_POD
    ]
    return [("Pod", line) for line in (*lines[:_MOST], *[f"and {len(lines) - _MOST} more"] * (len(lines) > _MOST))]


def join(runs: Sequence[Run]) -> None:
    """Nothing, and so below: what is stated of pods stands in spans."""


def edges(run: Run) -> list[tuple[int, int]]:
    """None."""
    return []


def shift(run: Run, by_ns: int) -> None:
    """Nothing."""


def paired(rows: Sequence[ComparedRow], a: Run, b: Run) -> Sequence[ComparedRow]:
    """The rows as they are."""
    return rows
