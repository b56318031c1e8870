"""Energies of pods, by the spans of ``watch``: a ``report.kinds.KindOfRun`` with ranges as rows, which the core words.

Between two answers of the kubelet that differ a GPU changed hands at an unknown moment. Half of what it took then is of
those before and half of those after, and the interval of each reaches from none of it to all of it. Pods that held one
GPU together have a row together: what each of them drew can't be known from the power of the GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from jouletrace.analysis.imported_recording import span_text
from jouletrace.analysis.monitor import watched
from jouletrace.analysis.power import energies, no_power_reason, readings
from jouletrace.comparing.pairs import ComparedRow
from jouletrace.run import Estimate, Run, device_labels
from jouletrace.run.figures import Figures
from jouletrace.run.spans import spans_of
from jouletrace.stats.interval import total
from jouletrace.wings.pods.watch import LANE, NO_POD

LEVEL = ""
"""The core words all rows."""

_MOST = 20
"""Spans that are listed below the figures."""


class _Held(NamedTuple):
    """What a GPU took, and how long, while it was held; by how much both may be off, as it changed hands."""

    gpu: str
    energy: Estimate
    unsure_j: float
    seconds: float
    unsure_s: float


def add(run: Run, figures: Figures) -> None:
    """Add a unit for those that held GPUs alone or together; all add up to the energy of the devices."""
    by_name: dict[str, list[_Held]] = defaultdict(list)
    for device, label in device_labels(run.devices).items():
        for name, held in _of_device(run, device, label):
            by_name[name].append(held)
    devices = (unit for unit, row in figures.units.rows.items() if row["level"] == "device")
    whole = sum(figures.get(unit, "energy_total_j").value or 0.0 for unit in devices)
    for name, each in sorted(by_name.items(), key=lambda row: (row[0] == NO_POD, row[0])):
        where = f" on {', '.join(held.gpu for held in each)}" if len(run.devices) > 1 else ""
        unit = figures.units.add("range", name + where)
        seconds, unsure_s = max((held.seconds, held.unsure_s) for held in each)
        figures.add(unit, "time_s", _off_by(Estimate(seconds, seconds, seconds, 1, "clock"), unsure_s))
        energy = each[0].energy if len(each) == 1 else total([held.energy for held in each])
        energy = _off_by(energy, sum(held.unsure_j for held in each))  # errors of edges may be alike, and add up
        figures.add(unit, "energy_total_j", energy)  # no power: its error isn't that of the energy, nor of the time
        if whole:
            figures.add(unit, "share", replace(energy, budget={}).scaled(1 / whole))


def _off_by(figure: Estimate, limit: float) -> Estimate:
    """A figure that may be off by so much beside what its interval says."""
    if not limit or figure.value is None or figure.low is None or figure.high is None:
        return figure
    return replace(figure, low=figure.low - limit, high=figure.high + limit, flags=(*figure.flags, "pods_edges"))


def _of_device(run: Run, device: str, label: str) -> Iterator[tuple[str, _Held]]:
    """What a GPU took while each held it, by name."""
    log = readings(run, device)
    if log is None:
        none = Estimate.null(no_power_reason(run, device), "windows")
        names = dict.fromkeys(name for *_, name in _holders(run, device))
        yield from ((name, _Held(label, none, 0.0, 0.0, 0.0)) for name in names)
        return
    first, last = watched(run, device, *log)
    holders = _joined([(first, first, NO_POD), *_holders(run, device), (last, last, NO_POD)])
    each = [name for *_, name in holders]
    # Spans and the times between them in turn, with those who held the GPU before and after each, who differ in these
    edges = np.clip([edge for start, end, _ in holders for edge in (start, end)], first, last)
    sides = np.stack([np.repeat(each, 2)[:-1], np.repeat(each, 2)[1:]], axis=1)
    cut = np.unique(np.append(edges, np.clip(log[0].holes.ravel(), first, last))).astype(np.int64)
    sides, seconds = sides[np.searchsorted(edges, cut[:-1], side="right") - 1], np.diff(cut) / 1e9
    solved = energies(run, device, cut[:-1], cut[1:])
    lost = ~solved.has_energy & (2 * log[0].hole_seconds(cut[:-1], cut[1:]) >= seconds)
    for name in dict.fromkeys(each):
        share = np.where(lost, 0.0, (sides == name).mean(axis=1))
        unsure = np.where(share == 0.5, share, 0.0)
        unsure_j = float(np.nansum(unsure * solved.energy_j))
        yield name, _Held(label, solved.estimate(share), unsure_j, float(share @ seconds), float(unsure @ seconds))


def _holders(run: Run, device: str) -> list[tuple[int, int, str]]:
    """From when to when, ns, and who held a GPU, in order, as far as answers of the kubelet say."""
    spans = spans_of(run, "range")
    spans = spans.take(spans.those("lane", (LANE,)) & spans.those("device", (device,)))
    names = (spans.text("name", k) or NO_POD for k in range(len(spans)))
    return _joined(sorted(zip(spans.start_ns.tolist(), spans.end_ns.tolist(), names, strict=True)))


def _joined(spans: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """The same, one for those that follow each other with a name."""
    joined = list[tuple[int, int, str]]()
    for span in spans:
        if joined and joined[-1][2] == span[2]:
            joined[-1] = (joined[-1][0], *span[1:])
        else:
            joined.append(span)
    return joined


def facts(run: Run) -> list[tuple[str, str]]:
    """Who held which GPU from when to when, in UTC, as far as answers name it."""
    lines = [
        f"{name} on {label}, {span_text(start, end)}"
        for device, label in device_labels(run.devices).items()
        for start, end, name in _holders(run, device)
        if name != NO_POD
    ]
    return [("Pod", line) for line in (*lines[:_MOST], *[f"and {len(lines) - _MOST} more"] * (len(lines) > _MOST))]


def join(*_: object) -> None:
    """Nothing, and so below: what is stated of pods stands in spans."""


shift = join


def edges(run: Run) -> list[tuple[int, int]]:
    """None."""
    return []


def paired(rows: Sequence[ComparedRow], a: Run, b: Run) -> Sequence[ComparedRow]:
    """The rows as they are."""
    return rows
