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
        complete = [
            n for n, row in enumerate(self.rows) if row.cost.value is not None and row.latency.value is not None
        ]
        least, front = float("inf"), []
        for n in sorted(complete, key=lambda n: (self.rows[n].latency.value, self.rows[n].cost.value)):
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


def render(tuning: Tuning, form: str = "table", *, colour: bool = False) -> str:
    """The result in a format; a "table" may have ``colour``.

    Raises:
        BadInputError: If there is no such format.
    """
    return rendered(_document(tuning), lambda: to_dict(tuning), form, colour=colour)


def to_dict(tuning: Tuning) -> dict[str, Any]:
    """The JSON object; shares are fractions, figures the contract's ``E`` objects in SI units."""
    settings, front = [row.setting for row in tuning.rows], set(tuning.front)
    rows = [
        {
            "setting": row.setting,
            "outcome": row.outcome,
            "reason": row.reason or None,
            "processes": row.processes,
            "part": _part(tuning, n) or None,
            "front": n in front,
            "outputs_differ": row.differs,
            **({"read": row.read} if row.read else {}),
            "exceeds": row.exceeds,
            "runs": [str(path.relative_to(tuning.folder)) for path in row.places],
            **{name: figure.to_dict() for name, figure in row.figures.items()},
            **{f"{name}_p95": value.to_dict() for name, value in row.p95.items()},
        }
        for n, row in enumerate(tuning.rows)
    ]
    low, high = tuning.saving or (None, None)
    return {
        "schema": 1,
        "simulated": tuning.simulated,
        "workload": tuning.workload,
        "per": tuning.per,
        "device": tuning.device,
        "objective": tuning.objective,
        "unit": OBJECTIVES[tuning.objective][1],
        "limit": tuning.limit or None,
        "outcome": tuning.outcome,
        "best": None if tuning.best is None else settings[tuning.best],
        "reference": settings[tuning.reference],
        "saves_at_least": low,
        "saves_at_most": high,
        "within": tuning.within,
        "equal": [settings[n] for n in tuning.equal],
        "not_distinguished": [settings[n] for n in tuning.alike],
        "undecided": [{"setting": settings[n], "saves": saves} for n, saves in tuning.undecided],
        "nearest": None if tuning.nearest is None else settings[tuning.nearest],
        "outputs_not_compared": tuning.why_not or None,
        "command": tuning.command or None,
        "seconds": tuning.seconds,
        "processes": tuning.processes,
        "stopped": tuning.stopped or None,
        "note": tuning.note or None,
        "verdict": _verdict(tuning),
        "settings": rows,
    }


def from_dict(stated: Mapping[str, Any], folder: Path) -> Tuning:
    """The result that ``to_dict`` states, of the campaign in ``folder``.

    Raises:
        KeyError, TypeError, ValueError: If it is none.
    """
    rows = [
        SettingRow(
            setting["setting"],
            setting["outcome"],
            setting["reason"] or "",
            setting["processes"],
            **cast(Any, {name: Estimate.from_dict(setting[name]) for name in FIGURES}),
            exceeds=setting["exceeds"],
            differs=setting["outputs_differ"],
            p95={key[:-4]: Estimate.from_dict(value) for key, value in setting.items() if key.endswith("_p95")},
            read=setting.get("read", {}),
            places=tuple(folder / path for path in setting["runs"]),
        )
        for setting in stated["settings"]
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
        undecided=tuple((number(settled["setting"]), settled["saves"]) for settled in stated["undecided"]),
        why_not=stated["outputs_not_compared"] or "",
        folder=folder,
    )


def _document(tuning: Tuning) -> Document:
    limit = f", {tuning.limit}" if tuning.limit else ""
    title = f"{tuning.workload}: least {OBJECTIVES[tuning.objective][0]} of {len(tuning.rows)} settings{limit}"
    shown = Document(title, SIMULATED if tuning.simulated else "")
    shown.subtitle = [tuning.device]
    shown.verdict = _verdict(tuning)
    shown.sections = [_table(tuning)]
    return shown.printable()


def _table(tuning: Tuning) -> Table:
    """A row a setting: the least of the objective first, those without figures last."""
    unit = OBJECTIVES[tuning.objective][1]
    names = list(tuning.rows[0].setting)
    timed = any(row.p50.value is not None for row in tuning.rows)
    compared = any(row.differs is not None for row in tuning.rows)
    beside = next((list(row.p95) for row in tuning.rows if row.p95), [])
    limited = any(row.over.reason != "no_limit" for row in tuning.rows)
    read = list(dict.fromkeys(name for row in tuning.rows for name in row.read))
    table = Table(
        "",
        [
            *(Column(name, numeric=_is_number(tuning, name)) for name in names),
            *(Column(name, numeric=True, wide=1) for name in read),
            Column(tuning.per, unit=unit, ends=True, key="cost"),
            Column("time", unit="s", ends=True, key="time", wide=1),
            *([Column(name, unit="s", ends=True, brief=True) for name in ("p50", "p99")] if timed else []),
            *(Column(f"{name.upper()} p95", unit="s", ends=True, brief=True) for name in beside),
            *([Column("over limit", unit=PERCENT, ends=True)] if limited else []),
            *([Column("outputs differ", unit=PERCENT, wide=1)] if compared else []),
            Column("processes", numeric=True, wide=2),
            Column("result"),
        ],
    )
    rows = sorted(
        enumerate(tuning.rows), key=lambda numbered: (numbered[1].cost.value is None, numbered[1].cost.value or 0.0)
    )
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
                _part(tuning, n),
            ]
        )
    table.notes = [f"{row.words}: {row.reason}" for row in tuning.rows if row.outcome != DONE]
    return table


def _part(tuning: Tuning, n: int) -> str:
    """The words for a setting in the result: "chosen", "reference", "over the limit", ..."""
    row, parts = tuning.rows[n], []
    if n == tuning.best:
        parts.append("chosen")
    if n == tuning.reference:
        parts.append("reference")
    if n in tuning.equal:
        parts.append("equal within 2 %")
    elif n in tuning.alike:
        parts.append("not distinguished")
    if n in dict(tuning.undecided):
        parts.append("limit undecided")
    elif row.exceeds:
        parts.append("over the limit")
    if row.outcome != DONE:
        parts.append(row.outcome.replace("_", " "))
    elif not row.processes:
        parts.append("not measured")
    if n in tuning.front:
        parts.append("on the front")
    return ", ".join(parts)


def _verdict(tuning: Tuning) -> list[str]:
    """The result in lines that stand alone."""
    rows = tuning.rows
    lines = _outcome(tuning)
    if tuning.equal:
        lines.append(f"equal within 2 %: {_listed(tuning, tuning.equal)}")
    if alike := [n for n in tuning.alike if n not in tuning.equal]:
        lines.append(f"not distinguished: {_listed(tuning, alike)}")
    for n, saves in tuning.undecided:
        saved = "" if saves is None else f", which would save {_percent(saves)}"
        lines.append(f"undecided whether {rows[n].words} meets {tuning.limit}{saved}")
    if tuning.best is not None and tuning.best != tuning.reference and rows[tuning.best].differs is not None:
        differs = rows[tuning.best].differs or 0.0
        lines.append(f"its outputs differ from the reference's by up to {_percent(differs)} of their largest")
    if tuning.why_not:
        lines.append(f"outputs weren't all compared: {tuning.why_not}")
    if tuning.note:
        lines.append(tuning.note)
    if tuning.stopped:
        left = [n for n, row in enumerate(rows) if row.outcome == DONE and not row.processes]
        missing = f"; not measured: {_listed(tuning, left)}" if left else ""
        lines.append(
            f"not finished: {tuning.stopped}{missing}; the same command with -o {quoted(tuning.folder)} goes on"
        )
    if tuning.command:
        lines.append(f"apply it: {tuning.command}")
    return lines


def _outcome(tuning: Tuning) -> list[str]:
    """The choice and its saving in words, or why there is none."""
    rows, reference = tuning.rows, tuning.rows[tuning.reference]
    took = f"{tuning.processes} process{'es' * (tuning.processes != 1)}, {tuning.seconds:.0f} s"
    if tuning.best is None and tuning.nearest is not None:
        nearest = rows[tuning.nearest]
        over = "" if nearest.over.value is None else f", {_percent(nearest.over.value)} of its {tuning.timed}s over it"
        return [f"none of {len(rows)} settings meets {tuning.limit}; nearest: {nearest.words}{over} ({took})"]
    if tuning.best is None:
        return [f"undecided: no setting surely meets {tuning.limit or 'the limit'} ({took})"]
    best = rows[tuning.best]
    if tuning.best == tuning.reference:
        seen = any(row.processes for n, row in enumerate(rows) if n != tuning.best)
        why = "nothing that was tried surely costs less" if seen else "nothing else was measured"
        first = f"keep {best.words}: {_figures(tuning, best)}: {why}"
    else:
        saves = "the reference failed" if tuning.saving is None else _saves(tuning.saving)
        first = f"{best.words}: {_figures(tuning, best)}: {saves} against {reference.words}"
    if tuning.outcome == "undecided":
        first = f"undecided: {first}"
    if tuning.within is None or tuning.within > _UNBOUNDED:
        return [first, "how near it is to the least isn't known yet"]
    tried = sum(row.processes > 0 for row in rows)
    ran = sum(row.outcome == DONE for row in rows)
    among = f"those of {ran} settings that meet {tuning.limit}" if tuning.limit else f"{ran} settings"
    among += f", beside {len(rows) - ran} that failed" if ran < len(rows) else ""
    least = "the least" if tuning.within < _NOTHING else f"within {_percent(tuning.within)} of the least"
    within = f"{least} of {among} (95 %, this GPU, now; {tried} measured in {took})"
    return [first, within]


_UNBOUNDED = 0.5
"""Share above which nothing is known of how near the choice is to the least."""


def _figures(tuning: Tuning, row: SettingRow) -> str:
    unit = OBJECTIVES[tuning.objective][1]
    said = [f"{figure(row.cost, unit)} {tuning.per}"]
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


def _listed(tuning: Tuning, numbers: Sequence[int], most: int = 4) -> str:
    named = "; ".join(tuning.rows[n].words for n in list(numbers)[:most])
    return named + (f"; {len(numbers) - most} more" if len(numbers) > most else "")


def _is_number(text: Tuning, name: str) -> bool:
    return all(isinstance(row.setting[name], int | None) for row in text.rows)


def _said(name: str, value: object) -> str:
    """A value in words: those that say themselves what they are stand alone."""
    if value is None:
        return f"{name.replace('_', ' ')} by default"
    unit = {"power_limit": " W", "clock": " MHz"}.get(name, "")
    return str(value) if name in ("mode", "dtype", "backend") else f"{name.replace('_', ' ')} {value}{unit}"


def write_page(tuning: Tuning, path: Path) -> None:
    """Write the verdict, the table and the front as one HTML file; an existing page is replaced.

    Raises:
        BadInputError: If another file has that name, or it can't be written.
        NotPossibleError: If plotly isn't installed.
    """
    from jouletrace.report.html import assets, write_page
    from jouletrace.run.places import file_mode

    def page() -> str:
        shown, front = _document(tuning), front_plot(tuning)
        plots: dict[str, Any] = {"front": front} if front else {}
        return assets.page(
            "tune.html.j2",
            [plots],
            document=shown,
            simulated=shown.simulated,
            table=replace(_table(tuning).shown(), id="settings"),
            chart=front is not None,
            data=assets.embedded({"plots": plots, "timeline": None, "simulated": tuning.simulated}),
        )

    write_page(path, page, file_mode())


def front_plot(tuning: Tuning) -> Spec | None:
    """Cost against median latency of each setting, with intervals, and the front as a line; None of fewer than two."""
    complete = [n for n, row in enumerate(tuning.rows) if row.cost.value is not None and row.latency.value is not None]
    if len(complete) < 2:
        return None
    unit = OBJECTIVES[tuning.objective][1]
    cost_unit = unit_for([tuning.rows[n].cost.value for n in complete], unit)
    time_unit = unit_for([tuning.rows[n].latency.value for n in complete], "s")

    def points(numbers: Sequence[int]) -> dict[str, Any]:
        rows = [tuning.rows[n] for n in numbers]
        halves = [row.cost.half_width or 0.0 for row in rows]
        return {
            "x": short([(row.latency.value or 0.0) / time_unit.factor for row in rows]),
            "y": short([(row.cost.value or 0.0) / cost_unit.factor for row in rows]),
            "error_y": {"type": "data", "array": short([half / cost_unit.factor for half in halves]), "thickness": 1},
            "text": [plain(row.words) for row in rows],
            "hovertemplate": f"%{{text}}<br>%{{x}} {time_unit.name}<br>%{{y}} {cost_unit.name}<extra></extra>",
        }

    marked = [n for n in (tuning.best, tuning.reference) if n in complete]
    traces = [
        {"type": "scatter", "mode": "markers", "marker": {"color": PALETTE[6]}, **points(complete)},
        {"type": "scatter", "mode": "lines+markers", "marker": {"color": PALETTE[0]}, **points(tuning.front)},
        {
            "type": "scatter",
            "mode": "markers+text",
            "marker": {"color": PALETTE[1], "size": 11},
            "textposition": "top center",
            **points(marked),
        },
    ]
    timed = any(row.p50.value is not None for row in tuning.rows)
    latency = f"median latency of {with_article(tuning.timed)}" if timed else "time"
    layout = {
        "xaxis": {"title": {"text": f"{latency}, {time_unit.name}"}, "type": "log"},
        "yaxis": {"title": {"text": f"{tuning.per}, {cost_unit.name}"}, "rangemode": "tozero"},
        "showlegend": False,
    }
    return {"title": "Front", "data": traces, "layout": layout}
