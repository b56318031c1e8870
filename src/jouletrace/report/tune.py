"""The result of ``tune``: a verdict in words, a table of settings, and the front of energy against latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from jouletrace.report.charts import PALETTE, Spec, plain, short
from jouletrace.report.facts import SIMULATED
from jouletrace.report.sweep import DONE
from jouletrace.report.table import Column, Table
from jouletrace.report.text import Document, rendered
from jouletrace.run import Estimate
from jouletrace.run.files import quoted
from jouletrace.run.frames import frame
from jouletrace.run.names import with_article
from jouletrace.run.parts import ABSENT
from jouletrace.run.shown import Shown
from jouletrace.words.scale import PERCENT, figure, unit_for

OBJECTIVES: Final = {"energy": ("energy", "J"), "edp": ("energy-delay product", "J·s")}
"""Quantities that may be least: name and unit."""

PER_TOKEN: Final = "per output token"
"""Unit of work of a server."""

Setting = dict[str, Any]
"""Values by dimension, as ``--over`` names them; None for a default."""

FIGURES: Final = ("cost", "time", "p50", "p99", "over")
"""Figures of a setting, by the names of ``SettingRow``."""

_NO_LIMIT: Final = Estimate.null("no_limit")

_NOTHING = 0.0005
"""Share below which a difference reads as none."""


@dataclass(frozen=True)
class SettingRow:
    """A setting that was tried.

    Attributes:
        setting: Its values.
        outcome: "done", or why it has no figures: a code of ``campaign.worker.reason_of``.
        reason: The same as a sentence.
        processes: In how many processes it was measured.
        cost: The objective: energy, J per sample, or its product with time, J s.
        time: Seconds per sample.
        p50, p99: Latencies of an iteration, s.
        over: Share of iterations over the limit; null without a limit on a percentile.
        exceeds: Whether that share is too large, counting iterations over the limit by more than 1 %.
        differs: The largest difference of its outputs from the reference's, relative to the largest of these; None
            where it isn't known.
        p95: Further latencies by name that 95 % of a server's requests don't exceed, s.
        places: Where its Runs are.
        read: Values that were set on the GPU as the driver read them, and the SM clock; empty if none was.
    """

    setting: Setting
    outcome: str = DONE
    reason: str = ""
    processes: int = 0
    cost: Estimate = ABSENT
    time: Estimate = ABSENT
    p50: Estimate = ABSENT
    p99: Estimate = ABSENT
    over: Estimate = _NO_LIMIT
    exceeds: bool = False
    differs: float | None = None
    p95: Mapping[str, Estimate] = field(default_factory=dict)
    places: tuple[Path, ...] = ()
    read: Mapping[str, float] = field(default_factory=dict)

    @property
    def latency(self) -> Estimate:
        """Median of an iteration, s, or the time of the whole where iterations aren't timed."""
        return self.time if self.p50.value is None else self.p50

    @property
    def figures(self) -> dict[str, Estimate]:
        """Its figures by name."""
        return {name: getattr(self, name) for name in FIGURES}

    @property
    def words(self) -> str:
        """The setting in words: "batch 256, graph"."""
        return ", ".join(_said(name, value) for name, value in self.setting.items())


@dataclass(repr=False)
class Tuning(Shown):
    """The result of ``tune``; ``print`` shows what the command prints.

    Attributes:
        workload, device: What was run on what.
        per: Of what unit of work figures are: "per sample", "of the program", "per output token".
        objective: A key of ``OBJECTIVES``.
        limit: As it was given; "" for none.
        rows: All settings, the reference among them.
        outcome: "chosen", "none" (no setting meets the limit) or "undecided".
        reference, best, nearest: Indices of rows; ``best`` is None unless one is chosen, ``nearest`` unless none meets.
        saving: Least and largest share of the reference's cost that the best saves, 95 %; None without a best.
        within: The best costs at most this share more than the least of all that meet the limit, 95 %.
        equal: Rows that cost the same as the best within 2 %, 95 %.
        alike: Rows whose difference from the best is within its error.
        undecided: Rows that may or may not meet the limit, with what they would save against the reference; None where
            that failed.
        why_not: Why it isn't known how far outputs differ; "" where it is, or where none can.
        note: What else there is to know of its rounds; "" if there is nothing.
        seconds, processes: What it took.
        stopped: Why it ended before it had decided; "" if it didn't.
        simulated: Whether the GPU is a simulated one.
        command: The command that applies the choice; "" if the reference is kept.
        folder: Where the Runs are.
    """

    workload: str
    per: str
    device: str
    objective: str
    limit: str
    rows: list[SettingRow]
    outcome: str
    reference: int
    best: int | None = None
    saving: tuple[float, float] | None = None
    within: float | None = None
    equal: Sequence[int] = ()
    alike: Sequence[int] = ()
    undecided: Sequence[tuple[int, float | None]] = ()
    nearest: int | None = None
    why_not: str = ""
    note: str = ""
    seconds: float = 0.0
    processes: int = 0
    stopped: str = ""
    simulated: bool = False
    command: str = ""
    folder: Path = Path()

    @property
    def timed(self) -> str:
        """The unit whose latencies are stated."""
        return "request" if self.per == PER_TOKEN else "iteration"

    @property
    def front(self) -> list[int]:
        """Rows than which none takes both less of the objective and less median latency, by latency."""
        known = [n for n, row in enumerate(self.rows) if row.cost.value is not None and row.latency.value is not None]
        least, front = float("inf"), []
        for n in sorted(known, key=lambda n: (self.rows[n].latency.value, self.rows[n].cost.value)):
            cost = self.rows[n].cost.value
            if cost is not None and cost < least:
                least = cost
                front.append(n)
        return front

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row a setting.

        Raises:
            NotPossibleError: If pandas isn't installed.
        """
        return frame([{**row.setting, "outcome": row.outcome, **row.figures} for row in self.rows])

    def __str__(self) -> str:
        """The verdict and the table."""
        return render(self).rstrip("\n")

    def __repr__(self) -> str:
        return f"Tuning({self.outcome}, {len(self.rows)} settings, {str(self.folder)!r})"


def render(found: Tuning, form: str = "table", *, colour: bool = False) -> str:
    """The result in a format; a "table" may have ``colour``.

    Raises:
        BadInputError: If there is no such format.
    """
    return rendered(_document(found), lambda: to_dict(found), form, colour=colour)


def to_dict(found: Tuning) -> dict[str, Any]:
    """The JSON object; shares are fractions, figures the contract's ``E`` objects in SI units."""
    settings, front = [row.setting for row in found.rows], set(found.front)
    rows = [
        {
            "setting": row.setting,
            "outcome": row.outcome,
            "reason": row.reason or None,
            "processes": row.processes,
            "part": _part(found, n) or None,
            "front": n in front,
            "outputs_differ": row.differs,
            **({"read": row.read} if row.read else {}),
            "exceeds": row.exceeds,
            "runs": [str(place.relative_to(found.folder)) for place in row.places],
            **{name: figure.to_dict() for name, figure in row.figures.items()},
            **{f"{name}_p95": value.to_dict() for name, value in row.p95.items()},
        }
        for n, row in enumerate(found.rows)
    ]
    low, high = found.saving or (None, None)
    return {
        "schema": 1,
        "simulated": found.simulated,
        "workload": found.workload,
        "per": found.per,
        "device": found.device,
        "objective": found.objective,
        "unit": OBJECTIVES[found.objective][1],
        "limit": found.limit or None,
        "outcome": found.outcome,
        "best": None if found.best is None else settings[found.best],
        "reference": settings[found.reference],
        "saves_at_least": low,
        "saves_at_most": high,
        "within": found.within,
        "equal": [settings[n] for n in found.equal],
        "not_distinguished": [settings[n] for n in found.alike],
        "undecided": [{"setting": settings[n], "saves": saves} for n, saves in found.undecided],
        "nearest": None if found.nearest is None else settings[found.nearest],
        "outputs_not_compared": found.why_not or None,
        "command": found.command or None,
        "seconds": found.seconds,
        "processes": found.processes,
        "stopped": found.stopped or None,
        "note": found.note or None,
        "verdict": _verdict(found),
        "settings": rows,
    }


def from_dict(stated: Mapping[str, Any], folder: Path) -> Tuning:
    """The result that ``to_dict`` states, of the campaign in ``folder``.

    Raises:
        KeyError, TypeError, ValueError: If it is none.
    """
    rows = [
        SettingRow(
            one["setting"],
            one["outcome"],
            one["reason"] or "",
            one["processes"],
            **cast(Any, {name: Estimate.from_dict(one[name]) for name in FIGURES}),
            exceeds=one["exceeds"],
            differs=one["outputs_differ"],
            p95={key[:-4]: Estimate.from_dict(value) for key, value in one.items() if key.endswith("_p95")},
            read=one.get("read", {}),
            places=tuple(folder / place for place in one["runs"]),
        )
        for one in stated["settings"]
    ]
    number = [row.setting for row in rows].index
    low, high = stated["saves_at_least"], stated["saves_at_most"]
    same = ("workload", "per", "device", "objective", "outcome", "simulated", "within", "seconds", "processes")
    fields: dict[str, Any] = {name: stated[name] for name in same}
    fields |= {name: stated[name] or "" for name in ("limit", "command", "stopped", "note")}
    fields |= {name: None if stated[name] is None else number(stated[name]) for name in ("best", "nearest")}
    return Tuning(
        **fields,
        rows=rows,
        reference=number(stated["reference"]),
        saving=None if low is None else (low, high),
        equal=tuple(map(number, stated["equal"])),
        alike=tuple(map(number, stated["not_distinguished"])),
        undecided=tuple((number(one["setting"]), one["saves"]) for one in stated["undecided"]),
        why_not=stated["outputs_not_compared"] or "",
        folder=folder,
    )


def _document(found: Tuning) -> Document:
    limit = f", {found.limit}" if found.limit else ""
    title = f"{found.workload}: least {OBJECTIVES[found.objective][0]} of {len(found.rows)} settings{limit}"
    shown = Document(title, SIMULATED if found.simulated else "")
    shown.subtitle = [found.device]
    shown.verdict = _verdict(found)
    shown.sections = [_table(found)]
    return shown.printable()


def _table(found: Tuning) -> Table:
    """A row a setting: the least of the objective first, those without figures last."""
    unit = OBJECTIVES[found.objective][1]
    names = list(found.rows[0].setting)
    timed = any(row.p50.value is not None for row in found.rows)
    compared = any(row.differs is not None for row in found.rows)
    beside = next((list(row.p95) for row in found.rows if row.p95), [])
    limited = any(row.over.reason != "no_limit" for row in found.rows)
    read = list(dict.fromkeys(name for row in found.rows for name in row.read))
    table = Table(
        "",
        [
            *(Column(name, numeric=_is_number(found, name)) for name in names),
            *(Column(name, numeric=True, wide=1) for name in read),
            Column(found.per, unit=unit, ends=True, key="cost"),
            Column("time", unit="s", ends=True, key="time", wide=1),
            *([Column(name, unit="s", ends=True, brief=True) for name in ("p50", "p99")] if timed else []),
            *(Column(f"{name.upper()} p95", unit="s", ends=True, brief=True) for name in beside),
            *([Column("over limit", unit=PERCENT, ends=True)] if limited else []),
            *([Column("outputs differ", unit=PERCENT, wide=1)] if compared else []),
            Column("processes", numeric=True, wide=2),
            Column("result"),
        ],
    )
    rows = sorted(enumerate(found.rows), key=lambda one: (one[1].cost.value is None, one[1].cost.value or 0.0))
    for n, row in rows:
        setting = ["default" if row.setting[name] is None else str(row.setting[name]) for name in names]
        table.rows.append(
            [
                *setting,
                *(f"{row.read[name]:g}" if name in row.read else None for name in read),
                row.cost,
                row.time,
                *((row.p50, row.p99) if timed else ()),
                *(row.p95.get(name) for name in beside),
                *((row.over,) if limited else ()),
                *((row.differs,) if compared else ()),
                row.processes or None,
                _part(found, n),
            ]
        )
    table.notes = [f"{row.words}: {row.reason}" for row in found.rows if row.outcome != DONE]
    return table


def _part(found: Tuning, n: int) -> str:
    """The words for a setting in the result: "chosen", "reference", "over the limit", ..."""
    row, parts = found.rows[n], []
    if n == found.best:
        parts.append("chosen")
    if n == found.reference:
        parts.append("reference")
    if n in found.equal:
        parts.append("equal within 2 %")
    elif n in found.alike:
        parts.append("not distinguished")
    if n in dict(found.undecided):
        parts.append("limit undecided")
    elif row.exceeds:
        parts.append("over the limit")
    if row.outcome != DONE:
        parts.append(row.outcome.replace("_", " "))
    elif not row.processes:
        parts.append("not measured")
    if n in found.front:
        parts.append("on the front")
    return ", ".join(parts)


def _verdict(found: Tuning) -> list[str]:
    """The result in lines that stand alone."""
    rows = found.rows
    lines = _outcome(found)
    if found.equal:
        lines.append(f"equal within 2 %: {_listed(found, found.equal)}")
    if alike := [n for n in found.alike if n not in found.equal]:
        lines.append(f"not distinguished: {_listed(found, alike)}")
    for n, saves in found.undecided:
        saved = "" if saves is None else f", which would save {_percent(saves)}"
        lines.append(f"undecided whether {rows[n].words} meets {found.limit}{saved}")
    if found.best is not None and found.best != found.reference and rows[found.best].differs is not None:
        differs = rows[found.best].differs or 0.0
        lines.append(f"its outputs differ from the reference's by up to {_percent(differs)} of their largest")
    if found.why_not:
        lines.append(f"outputs weren't all compared: {found.why_not}")
    if found.note:
        lines.append(found.note)
    if found.stopped:
        left = [n for n, row in enumerate(rows) if row.outcome == DONE and not row.processes]
        missing = f"; not measured: {_listed(found, left)}" if left else ""
        lines.append(f"not finished: {found.stopped}{missing}; the same command with -o {quoted(found.folder)} goes on")
    if found.command:
        lines.append(f"apply it: {found.command}")
    return lines


def _outcome(found: Tuning) -> list[str]:
    """The choice and its saving in words, or why there is none."""
    rows, reference = found.rows, found.rows[found.reference]
    took = f"{found.processes} process{'es' * (found.processes != 1)}, {found.seconds:.0f} s"
    if found.best is None and found.nearest is not None:
        nearest = rows[found.nearest]
        over = "" if nearest.over.value is None else f", {_percent(nearest.over.value)} of its {found.timed}s over it"
        return [f"none of {len(rows)} settings meets {found.limit}; nearest: {nearest.words}{over} ({took})"]
    if found.best is None:
        return [f"undecided: no setting surely meets {found.limit or 'the limit'} ({took})"]
    best = rows[found.best]
    if found.best == found.reference:
        seen = any(row.processes for n, row in enumerate(rows) if n != found.best)
        why = "nothing that was tried surely costs less" if seen else "nothing else was measured"
        first = f"keep {best.words}: {_figures(found, best)}: {why}"
    else:
        saves = "the reference failed" if found.saving is None else _saves(found.saving)
        first = f"{best.words}: {_figures(found, best)}: {saves} against {reference.words}"
    if found.outcome == "undecided":
        first = f"undecided: {first}"
    if found.within is None or found.within > _UNBOUNDED:
        return [first, "how near it is to the least isn't known yet"]
    tried = sum(row.processes > 0 for row in rows)
    ran = sum(row.outcome == DONE for row in rows)
    among = f"those of {ran} settings that meet {found.limit}" if found.limit else f"{ran} settings"
    among += f", beside {len(rows) - ran} that failed" if ran < len(rows) else ""
    least = "the least" if found.within < _NOTHING else f"within {_percent(found.within)} of the least"
    within = f"{least} of {among} (95 %, this GPU, now; {tried} measured in {took})"
    return [first, within]


_UNBOUNDED = 0.5
"""Share above which nothing is known of how near the choice is to the least."""


def _figures(found: Tuning, row: SettingRow) -> str:
    unit = OBJECTIVES[found.objective][1]
    said = [f"{figure(row.cost, unit)} {found.per}"]
    said += [f"p99 {figure(row.p99, 's')}"] if row.p99.value is not None else []
    return ", ".join(said)


def _saves(saving: tuple[float, float]) -> str:
    low, high = saving
    if low <= 0 <= high:
        return f"no saving seen ({_signed(low)} to {_signed(high)} %)"
    if high < 0:
        return f"takes {-100 * high:.3g} to {-100 * low:.3g} % more"
    return f"saves {100 * low:.3g} to {100 * high:.3g} %"


def _signed(share: float) -> str:
    return f"{100 * share:+.2g}".replace("-", "−")


def _percent(share: float) -> str:
    return f"{100 * share:.{3 if share >= 0.995 else 2}g} %"


def _listed(found: Tuning, numbers: Sequence[int], most: int = 4) -> str:
    named = "; ".join(found.rows[n].words for n in list(numbers)[:most])
    return named + (f"; {len(numbers) - most} more" if len(numbers) > most else "")


def _is_number(found: Tuning, name: str) -> bool:
    return all(isinstance(row.setting[name], int | None) for row in found.rows)


def _said(name: str, value: object) -> str:
    """A value in words: those that say themselves what they are stand alone."""
    if value is None:
        return f"{name.replace('_', ' ')} by default"
    unit = {"power_limit": " W", "clock": " MHz"}.get(name, "")
    return str(value) if name in ("mode", "dtype", "backend") else f"{name.replace('_', ' ')} {value}{unit}"


def write_page(found: Tuning, path: Path) -> None:
    """Write the verdict, the table and the front as one HTML file; an existing page is replaced.

    Raises:
        BadInputError: If another file has that name, or it can't be written.
        NotPossibleError: If plotly isn't installed.
    """
    from jouletrace.report.html import assets, write_page
    from jouletrace.run.places import file_mode

    def page() -> str:
        shown, front = _document(found), front_plot(found)
        plots: dict[str, Any] = {"front": front} if front else {}
        return assets.page(
            "tune.html.j2",
            [plots],
            document=shown,
            simulated=shown.simulated,
            table=replace(_table(found).shown(), id="settings"),
            chart=front is not None,
            data=assets.embedded({"plots": plots, "timeline": None, "simulated": found.simulated}),
        )

    write_page(path, page, file_mode())


def front_plot(found: Tuning) -> Spec | None:
    """Cost against median latency of each setting, with intervals, and the front as a line; None of fewer than two."""
    known = [n for n, row in enumerate(found.rows) if row.cost.value is not None and row.latency.value is not None]
    if len(known) < 2:
        return None
    unit = OBJECTIVES[found.objective][1]
    cost_unit = unit_for([found.rows[n].cost.value for n in known], unit)
    time_unit = unit_for([found.rows[n].latency.value for n in known], "s")

    def points(numbers: Sequence[int]) -> dict[str, Any]:
        rows = [found.rows[n] for n in numbers]
        halves = [row.cost.half_width or 0.0 for row in rows]
        return {
            "x": short([(row.latency.value or 0.0) / time_unit.factor for row in rows]),
            "y": short([(row.cost.value or 0.0) / cost_unit.factor for row in rows]),
            "error_y": {"type": "data", "array": short([half / cost_unit.factor for half in halves]), "thickness": 1},
            "text": [plain(row.words) for row in rows],
            "hovertemplate": f"%{{text}}<br>%{{x}} {time_unit.name}<br>%{{y}} {cost_unit.name}<extra></extra>",
        }

    marked = [n for n in (found.best, found.reference) if n in known]
    traces = [
        {"type": "scatter", "mode": "markers", "marker": {"color": PALETTE[6]}, **points(known)},
        {"type": "scatter", "mode": "lines+markers", "marker": {"color": PALETTE[0]}, **points(found.front)},
        {
            "type": "scatter",
            "mode": "markers+text",
            "marker": {"color": PALETTE[1], "size": 11},
            "textposition": "top center",
            **points(marked),
        },
    ]
    timed = any(row.p50.value is not None for row in found.rows)
    latency = f"median latency of {with_article(found.timed)}" if timed else "time"
    layout = {
        "xaxis": {"title": {"text": f"{latency}, {time_unit.name}"}, "type": "log"},
        "yaxis": {"title": {"text": f"{found.per}, {cost_unit.name}"}, "rangemode": "tozero"},
        "showlegend": False,
    }
    return {"title": "Front", "data": traces, "layout": layout}
