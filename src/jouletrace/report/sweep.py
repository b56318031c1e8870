"""A sweep as a table: a point a row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Required, TypedDict

from jouletrace.analysis.checks import joined, of, outcomes
from jouletrace.analysis.facts import facts_of
from jouletrace.comparing.compare import compare
from jouletrace.comparing.pairs import DIFFERENT
from jouletrace.report.comparison_words import stored_scatter
from jouletrace.report.facts import SIMULATED
from jouletrace.report.headline import ENERGY, Headline
from jouletrace.report.table import Column, Table
from jouletrace.report.text import Document, rendered
from jouletrace.report.trust import lines as trust_lines
from jouletrace.report.trust import to_dict
from jouletrace.report.verdict import gain_line
from jouletrace.run import Estimate, Run
from jouletrace.run.channels import GAIN_PCT
from jouletrace.run.frames import frame
from jouletrace.run.info import device_labels
from jouletrace.run.parts import STORED_SCATTER, Parts
from jouletrace.run.shown import Shown
from jouletrace.words.scale import NBSP, figure, number

DONE, INTERRUPTED = "done", "interrupted"
AXES = {
    "workload": "workload",
    "config": "config",
    "batch": "batch",
    "seq_len": "tokens",
    "dtype": "dtype",
    "mode": "mode",
    "power_limit_w": "limit (W)",
    "clock_mhz": "clock (MHz)",
}
"""Settings that may be varied, with their headings."""

_WORDS = ("workload", "config", "dtype", "mode")
"""Those whose values are words."""

FIGURES = {
    "latency_s": ("latency", "s"),
    "throughput_per_s": ("", "samples/s"),
    "power_w": ("power", "W"),
    "energy_per_sample_j": ("per sample", "J"),
    "work_per_sample_j": ("of it work", "J"),
}
_JUDGED = {
    "energy_per_sample_j": ("least energy", ENERGY),
    "work_per_sample_j": ("least work", "energy_work_j"),
    "throughput_per_s": ("fastest", "iteration_time_s"),
}
"""Figures by which points are judged: words for the best, and the metric by which two points are compared."""

_SURER = "compare two points with jouletrace ab, or sweep with --repeats 3"
"""A remedy where points are single runs."""


MEETS, EXCEEDS, UNDECIDED = "meets", "exceeds", "undecided"


@dataclass(frozen=True)
class Judged:
    """A point against a limit.

    Attributes:
        limit: The limit as it is written.
        quantity: The quantity that it limits.
        bound_s: Its largest value in seconds.
        figure: The quantity of the point, in seconds.
        verdict: ``MEETS``, ``EXCEEDS`` or ``UNDECIDED``.
        share: Of iterations over the limit, of a limit on a percentile.
    """

    limit: str
    quantity: str
    bound_s: float
    figure: Estimate
    verdict: str
    share: Estimate | None = None

    def __str__(self) -> str:
        """In words: "p99 21.0 ± 0.3 ms, 0.82 to 2.3 % of iterations over it"."""
        words = f"{self.quantity} {'not known' if self.figure.value is None else figure(self.figure, 's')}"
        if self.share is None or self.share.low is None or self.share.high is None:
            return words
        low, high = (number(100 * end, 2) for end in (self.share.low, self.share.high))
        return f"{words}, {low if low == high else f'{low} to {high}'}{NBSP}% of iterations over it"

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        share = None if self.share is None else self.share.to_dict()
        return {"limit": self.limit, "figure": self.figure.to_dict(), "share_over": share, "verdict": self.verdict}


class Point(TypedDict, total=False):
    """The settings of a point of a sweep, by the names of ``AXES``."""

    workload: Required[str]
    config: str
    batch: int
    seq_len: int
    dtype: str
    mode: str
    power_limit_w: float
    clock_mhz: float


@dataclass(frozen=True)
class Entry:
    """A point of a sweep.

    Attributes:
        point: What was set, by axis.
        outcome: "done", or why it has no figures: a code of ``campaign.loop.Outcome``.
        reason: Why it is not done.
        place: Where its Run is.
        run: The Run; None if it isn't done.
        judged: The point against each limit; empty without limits or a Run.
        read: Values that were set on the GPU as the driver read them, and the SM clock; empty if none was.
        not_taken: Why a value that was set on the GPU wasn't in force; "" if all were.
    """

    point: Point
    outcome: str
    reason: str
    place: str
    run: Run | None = None
    judged: tuple[Judged, ...] = ()
    read: Mapping[str, float] = field(default_factory=dict)
    not_taken: str = ""

    @property
    def verdict(self) -> str:
        """``EXCEEDS`` if it exceeds any limit, ``MEETS`` if it meets all, else ``UNDECIDED``."""
        said = {judged.verdict for judged in self.judged}
        return EXCEEDS if EXCEEDS in said else MEETS if said <= {MEETS} else UNDECIDED

    def limited(self) -> dict[str, Any]:
        """The limited quantities by name, and the verdict as "limits"; empty without."""
        limits: dict[str, Any] = {judged.quantity: judged.figure for judged in self.judged}
        return limits | {"limits": self.verdict} if limits else limits

    def figures(self) -> dict[str, Estimate]:
        """The figures of a point, by the names of ``FIGURES``."""
        if self.run is None:
            return {name: Estimate.null(self.outcome) for name in FIGURES}
        results = Parts(self.run)
        items = self.run.workload.get("items") or 1
        figures = {name: results.get(name) for name in ("latency_s", "throughput_per_s", "power_w")}
        energies = {"energy_per_sample_j": ENERGY, "work_per_sample_j": "energy_work_j"}
        return figures | {name: results.get(metric).scaled(1 / items) for name, metric in energies.items()}


@dataclass(repr=False)
class Sweep(Shown):
    """The points of a sweep; ``print`` shows the table of ``jouletrace sweep``.

    Attributes:
        entries: Each point with its outcome and its Run, in the grid's order.
        folder: Where the Runs are.
    """

    entries: list[Entry]
    folder: Path

    @property
    def runs(self) -> list[Run]:
        """The Runs of the points that have one."""
        return [entry.run for entry in self.entries if entry.run is not None]

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row a point: its settings, outcome, figures with their ends, and its Run's place.

        Raises:
            NotPossibleError: If pandas isn't installed.
        """
        rows = [{**entry.point, "outcome": entry.outcome, **entry.read, **entry.figures()} for entry in self.entries]
        rows = [{**row, **entry.limited()} for row, entry in zip(rows, self.entries, strict=True)]
        return frame([{**row, "run": entry.place} for row, entry in zip(rows, self.entries, strict=True)])

    def __str__(self) -> str:
        """The table, and the best points."""
        return render(self.entries).rstrip("\n")

    def __repr__(self) -> str:
        return f"Sweep({len(self.entries)} points, {len(self.runs)} with a Run, {str(self.folder)!r})"


def render(entries: Sequence[Entry], form: str = "table", *, colour: bool = False) -> str:
    """A sweep in a format; a "table" may have ``colour``.

    Raises:
        BadInputError: If there is no such format.
    """
    return rendered(_document(entries), lambda: _to_dict(entries), form, colour=colour)


def _to_dict(entries: Sequence[Entry]) -> dict[str, Any]:
    """The JSON object."""
    rows: list[dict[str, Any]] = []
    for swept in entries:
        rows.append(
            {"point": swept.point, "outcome": swept.outcome, "reason": swept.reason or None, "run": swept.place}
        )
        rows[-1] |= {"read": swept.read, "not_in_force": swept.not_taken or None} if swept.read else {}
        rows[-1] |= {"gpu": swept.run.devices[0].id} if swept.run and _gpus(entries) else {}
        rows[-1] |= {name: estimate.to_dict() for name, estimate in swept.figures().items()}
        rows[-1] |= {"limits": [judged.to_dict() for judged in swept.judged]} if swept.judged else {}
        rows[-1]["trust"] = None if swept.run is None else to_dict(outcomes(swept.run, Parts(swept.run)))
    whole: dict[str, Any] = {"schema": 1, "simulated": _is_simulated(entries), "points": rows}
    if any(entry.judged for entry in entries):
        best = _best([entry for entry in entries if entry.judged and entry.verdict == MEETS], "energy_per_sample_j")
        whole |= {"limit": _limits(entries, ","), "recommended": None if best is None else best.place}
    return whole


def _is_simulated(entries: Sequence[Entry]) -> bool:
    return any(entry.run is not None and entry.run.simulated for entry in entries)


def _limits(entries: Sequence[Entry], between: str) -> str:
    """The limits that points are judged by, as they are written; "" without."""
    return between.join(judged.limit for judged in next((entry.judged for entry in entries if entry.judged), ()))


def _document(entries: Sequence[Entry]) -> Document:
    """The table, and why points are missing from it."""
    limits = _limits(entries, ", ")
    title = f"Sweep of {len(entries)} points{', ' if limits else ''}{limits}"
    sweep_text = Document(title, SIMULATED if _is_simulated(entries) else "")
    names = [name for name in AXES if any(name in entry.point for entry in entries)]
    varying = [name for name in names if len({str(entry.point.get(name)) for entry in entries}) > 1] or names[:1]
    same = [f"{AXES[name]} {entries[0].point.get(name)}" for name in names if name not in varying]
    devices = dict.fromkeys(device.name for entry in entries if entry.run for device in entry.run.devices)
    sweep_text.subtitle = [" · ".join([*same, *devices])]
    columns = [Column(AXES[name], numeric=name not in _WORDS, key=name) for name in varying]
    read = list(dict.fromkeys(name for entry in entries for name in entry.read))
    columns += [Column(name, numeric=True) for name in read]
    figures = [entry.figures() for entry in entries]
    of_host = any(figures_of["work_per_sample_j"].value is not None for figures_of in figures)
    stated = [name for name in FIGURES if of_host or name != "work_per_sample_j"]
    section = Table(
        "", [*columns, *(Column(FIGURES[name][0], unit=FIGURES[name][1], key=name, ends=True) for name in stated)]
    )
    limited = [entry.limited() for entry in entries]
    names = list(dict.fromkeys(name for limit_figures in limited for name in limit_figures))
    section.columns += [Column(name, unit="" if name == "limits" else "s", ends=name != "limits") for name in names]
    gpus = _gpus(entries)
    section.columns += [Column("GPU")] if gpus else []
    section.rows = [
        [
            *(_said(entry.point.get(name)) for name in varying),
            *(_said(entry.read.get(name)) for name in read),
            *(row_figures[name] for name in stated),
            *map(more.get, names),
            *([gpus[entry.run.devices[0].id] if entry.run else None] if gpus else ()),
        ]
        for entry, row_figures, more in zip(entries, figures, limited, strict=True)
    ]
    if gpus:
        apart = f"{math.hypot(GAIN_PCT, GAIN_PCT):.0f}{NBSP}%"
        section.notes.append(f"points ran on {len(gpus)} GPUs, whose sensors differ by up to {apart}")
    for entry in entries:
        what = " ".join(_said(entry.point.get(name)) for name in varying)
        if entry.not_taken:
            section.notes.append(f"{what}: {entry.not_taken}")
        if entry.outcome != DONE:
            reason = entry.reason if entry.run is None else f"of some of its runs alone: {entry.reason}"
            section.notes.append(f"{what}: {entry.outcome.replace('_', ' ')}: {reason}")
    sweep_text.sections = [section]
    sweep_text.verdict = _verdict(entries, varying)
    return sweep_text.printable()


def _gpus(entries: Sequence[Entry]) -> dict[str, str]:
    """Labels of the GPUs that points ran on, by id; empty if it is one."""
    labels = device_labels(
        list({run.devices[0].id: run.devices[0] for entry in entries if (run := entry.run)}.values())
    )
    return labels if len(labels) > 1 else {}


def _verdict(entries: Sequence[Entry], varying: Sequence[str]) -> list[str]:
    """The points with the least energy and work per sample and the most samples per second, and how far to trust."""
    done = [entry for entry in entries if entry.run is not None]
    if any(entry.outcome == INTERRUPTED for entry in entries):
        return [f"not finished: {sum(entry.outcome == DONE for entry in entries)} of {len(entries)} points are whole"]
    every = done = [entry for entry in done if not entry.not_taken]  # else it isn't the point that was asked for
    limits = _limits(done, " and ")
    done = [entry for entry in done if entry.verdict == MEETS]
    best = {name: entry for name in _JUDGED if (entry := _best(done, name)) is not None}
    lines = []
    if limits and not done:
        nearest = min(
            every,
            key=lambda candidate: max(
                (judged.figure.value or math.inf) / judged.bound_s for judged in candidate.judged
            ),
        )
        lines = [f"no point surely meets {limits}; nearest: {_point(nearest, varying)}: {_limited(nearest)}"]
    for entry in {id(entry): entry for entry in best.values()}.values():
        judged = [name for name, best_entry in best.items() if best_entry is entry]
        words = _listed([_JUDGED[name][0] for name in judged])
        within = f" of what meets {limits}" if limits else ""
        lines.append(f"{words}{within}: {_point(entry, varying)}: {_took(entry)}")
        for name in judged:
            if ties := [_point(other, varying) for other in done if other is not entry and _tie(entry, other, name)]:
                what = name.partition("_")[0].replace("throughput", "rate")
                lines.append(f"  no difference in {what} seen from {_listed(ties)}")
    for said, verdict in (("misses", EXCEEDS), ("undecided", UNDECIDED)):
        if those := [
            f"{_point(candidate, varying)} ({_limited(candidate)})"
            for candidate in every
            if candidate.verdict == verdict
        ]:
            lines.append(f"  {said}: {_listed(those)}")
    if not lines or not best:
        return lines
    there = [(entry.run, Parts(entry.run)) for entry in done if entry.run is not None]
    of_runs = [outcomes(run, parts) for run, parts in there]
    if len(done) > 1 and any(STORED_SCATTER in parts.get(ENERGY).flags for _, parts in there):
        of_runs.append(of([], [stored_scatter(_SURER)]))
    first = next((candidate.run, Parts(candidate.run)) for candidate in best.values() if candidate.run is not None)
    return [*lines, *gain_line(*first, facts_of(*first)), *trust_lines(joined(of_runs))]


def _limited(entry: Entry) -> str:
    """The limited quantities of a point in words."""
    return "; ".join(map(str, entry.judged))


def _best(entries: Sequence[Entry], name: str) -> Entry | None:
    """The point with the least energy, or the most samples per second; None where a point lacks the figure of work."""
    values = {n: value for n, entry in enumerate(entries) if (value := entry.figures()[name].value) is not None}
    if not values or (name == "work_per_sample_j" and len(values) < len(entries)):
        return None
    return entries[(max if name == "throughput_per_s" else min)(values, key=lambda n: values[n])]


def _tie(entry: Entry, other: Entry, name: str) -> bool:
    """True if ``compare`` shows no difference between a figure of two points that have it."""
    if entry.run is None or other.run is None or other.figures()[name].value is None:
        return False
    row = compare([(entry.run, entry.place)], [(other.run, other.place)]).whole.get(_JUDGED[name][1])
    return row is None or row.verdict not in DIFFERENT


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{'; '.join(names[:-1])} and {names[-1]}"


def _point(entry: Entry, varying: Sequence[str]) -> str:
    """The settings of a point in words."""
    return ", ".join(
        _said(entry.point.get(name)) if name in _WORDS else f"{AXES[name]} {_said(entry.point.get(name))}"
        for name in varying
    )


def _took(entry: Entry) -> str:
    """Energy, with its absolute uncertainty, and rate of a point."""
    figures = entry.figures()
    energy, rate = figures["energy_per_sample_j"], figures["throughput_per_s"]
    said = []
    if entry.run is not None and energy.value is not None:
        absolute = Headline.from_part(entry.run, Parts(entry.run).whole, ENERGY).behind
        said.append(f"{figure(energy, 'J')} per sample{absolute}")
    return ", ".join(said + ([figure(rate, "samples/s")] if rate.value is not None else []))


def _said(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
