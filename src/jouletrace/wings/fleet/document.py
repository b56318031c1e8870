"""The report of a fleet in words and tables, for terminal and HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from jouletrace.analysis.checks import Failure, Outcomes, of
from jouletrace.analysis.rules import CARE, YES, rule
from jouletrace.report.document import Footnotes, NoFootnotes
from jouletrace.report.facts import SIMULATED
from jouletrace.report.table import Cell, Column, Table
from jouletrace.report.tariffs import Tariff
from jouletrace.report.text import Document
from jouletrace.report.trust import lines as trust_lines
from jouletrace.run import Estimate
from jouletrace.wings.fleet.findings import CONDITIONS, Findings
from jouletrace.wings.fleet.results import Fleet
from jouletrace.wings.fleet.spread import FIGURES, GpuRank
from jouletrace.words import reasons
from jouletrace.words.scale import NBSP, NONE, PERCENT, cell, fixed, unit_for
from jouletrace.words.scale import figure as with_unit
from jouletrace.words.text import printable

NAMES = {"time_s": "time of an iteration", "energy_j": "energy of an iteration", "power_w": "power"}
"""Names by figure of ``spread.FIGURES``."""


_REASONS = {
    "one_node": "only one host",
    "one_gpu_a_node": "no host has two GPUs: GPUs and hosts can't be distinguished",
    "one_run_a_gpu": "every GPU ran once: runs and GPUs can't be distinguished; use --repeats",
    "one_window_a_run": "a run has one reading: its variation can't be determined",
    "one_gpu": "only one GPU",
    "no_spread": "nothing differs",
}
"""Reasons for missing figures of a fleet by code; codes that Runs share are in ``words.reasons``."""

_LEVELS = {"node": "between hosts", "gpu": "between GPUs", "run": "between runs", "within": "within a run"}

_CONDITIONS = (
    ("power_w", "power (W)", 1, 1),
    ("clock_mhz", "SM (MHz)", 0, 1),
    ("counted_mhz", "SM, counted (MHz)", 0, 1),
    ("temperature_c", "die (°C)", 1, 0),
    ("idle_w", "idle (W)", 1, 1),
)
"""Figures of runs, their titles in the table of GPUs, digits after the decimal point, and as ``Column.wide``."""


def document(fleet: Fleet, found: Sequence[Findings], top: int | None = None, tariff: Tariff | None = None) -> Document:
    """The whole report. ``top`` limits the best and the worst GPUs shown, where there are more than twice as many."""
    page = Document(f"Fleet {fleet.source}".strip(), SIMULATED if fleet.simulated else "")
    marks = Footnotes()
    for one in found:
        page.verdict += _verdict(one)
        page.sections += sections(one, marks, top)
        page.facts += facts(one, tariff)
    page.verdict += trust_lines(_outcomes(fleet, found))
    page.warnings = warnings(fleet, found)
    return page.printable()


def short(fleet: Fleet, found: Sequence[Findings], top: int | None = None, tariff: Tariff | None = None) -> Document:
    """The verdict on a fleet, and the table of its GPUs."""
    page = Document(f"Fleet {fleet.source}".strip(), SIMULATED if fleet.simulated else "").marked()
    for one in found:
        page.verdict += [one.group.title, *totals(one, tariff), *_verdict(one)]
        section = _gpus(one, NoFootnotes(), top)
        section.notes = [note for note in section.notes if "left out" in note]
        page.sections.append(section)
    page.verdict += trust_lines(_outcomes(fleet, found))
    return page.printable()


def totals(found: Findings, tariff: Tariff | None = None) -> list[str]:
    """The power and time of an iteration of all GPUs together under the load; the price of an hour of it."""
    power, energy = found.spreads["power_w"].total, found.spreads["energy_j"].total
    if power.value is None or energy.value is None:
        return []
    count, known = len(found.group.gpus), len(found.spreads["power_w"].places)
    who = "1 GPU" if count == 1 else f"{count} GPUs together" if known == count else f"{known} of {count} GPUs together"
    each = "an iteration" if count == 1 else "an iteration on each"
    lines = [f"{who}: {with_unit(power, 'W')}, {with_unit(energy, 'J')} for {each}"]
    return lines + ([tariff.line(found.hour, "hour", of_gpu=bool(found.gain_pct))] if tariff is not None else [])


def _verdict(found: Findings) -> list[str]:
    """How far GPUs are apart in time and energy, and whether one is worth asking for."""
    count = len(found.group.gpus)
    lines = []
    if count == 1:
        lines.append("one GPU: nothing to compare it with; give Runs of several GPUs")
    for name, words in (("time_s", "time"), ("energy_j", "energy")):
        apart = found.spreads[name].range
        if apart.value is not None and count > 1:
            worst = found.spreads[name].places[-1]
            line = f"{words} per iteration differs by {cell(apart, PERCENT)}{NBSP}% between {count} GPUs"
            lines.append(line + (with_gain(found) if name == "energy_j" and found.gain else ""))
            if worst.off.low is not None and worst.off.low > 0 and not (name == "energy_j" and found.hides_in_gain):
                most = "slowest" if name == "time_s" else "most energy"
                off = f"{cell(worst.off, PERCENT)}{NBSP}% above the median"
                lines.append(f"{most}: {label(found.group.gpus[worst.gpu].label)}, {off}")
    return lines + ([f"worth asking for {text}"] if (text := _worth(found)) else [])


def with_gain(found: Findings) -> str:
    """The share that the gain of the GPUs' sensors has in the difference of their energies, as ``compare`` says it."""
    gain = f"{100 * found.gain:.1f}{NBSP}%"
    if found.hides_in_gain:
        return f", {reason('sensor_gain')}, ±{NBSP}{gain}"
    low, high = (fixed(100 * (end or 0.0), 1) for end in (found.energy_range.low, found.energy_range.high))
    return f", with their sensors' gain (±{NBSP}{gain}) by {low} to {high}{NBSP}%"


def _outcomes(fleet: Fleet, found: Sequence[Findings]) -> Outcomes:
    """The checks of a fleet: all results are there, and they can distinguish GPUs from runs."""
    lost = warnings(fleet, found)
    failed = [Failure("all results there", CARE, "run_failed", message=line, action="") for line in lost]
    splits = [spread.split for one in found for spread in one.spreads.values() if spread.split is not None]
    codes = dict.fromkeys(part.sd.reason for split in splits for part in split.components if part.sd.value is None)
    for code in codes:
        level = rule(code or "unknown").level
        if level != YES:
            failed.append(Failure("repeats", level, code or "unknown", message=reason(code)))
    if any(one.hides_in_gain for one in found):
        text = f"the differences in energy are {reason('sensor_gain')}"
        failed.append(Failure("gain of the sensors", CARE, "sensor_gain", message=text, action=""))
    return of(["all results there", "repeats", "gain of the sensors"], failed)


def sections(found: Findings, marks: Footnotes, top: int | None = None) -> list[Table]:
    """The tables of a group; ``marks`` are the footnotes of the whole output, ``top`` as for ``document``."""
    return [_spread(found, marks), _variance(found, marks), _gpus(found, marks, top), *_slowness(found)]


def _spread(found: Findings, others: Footnotes) -> Table:
    columns = [
        Column("figure"),
        *(Column(n, numeric=True) for n in ("mean", "max/min − 1 (%)", "as measured (%)", "IQR/median (%)")),
    ]
    section = Table(found.group.title, columns)
    marks = others.of_table()
    for figure, spread in found.spreads.items():
        if spread.split is None:
            continue
        observed = spread.observed_range
        section.rows.append(
            [
                NAMES[figure],
                with_unit(spread.mean, FIGURES[figure]),
                _cell(spread.range, marks),
                NONE if observed is None else fixed(100 * observed, 2),
                _cell(spread.quartiles, marks),
            ]
        )
    section.notes = marks.lines()
    if len(found.group.gpus) > 1:
        text = "max/min and IQR refer to the true means: the contribution of noise, which spreads the means, is removed"
        section.notes.append(text)
    return section


def _variance(found: Findings, others: Footnotes) -> Table:
    """Contributions to the variance."""
    numbers = [Column(name, numeric=True) for name in ("(% of mean)", "share of variance (%)")]
    section = Table("Where the spread comes from", [Column("figure"), Column("standard deviation"), *numbers])
    marks = others.of_table()
    for figure, spread in found.spreads.items():
        if spread.split is None:
            continue
        mean = float(spread.split.means.mean())
        for part in spread.split.components:
            share = NONE if part.share.value is None else f"{100 * part.share.value:.0f}"
            section.rows.append([NAMES[figure], _LEVELS[part.level], _cell(part.sd.scaled(1 / mean), marks), share])
    section.notes = marks.lines()
    return section


def _gpus(found: Findings, others: Footnotes, top: int | None) -> Table:
    """Every GPU, the fastest first; with ``top``, as many of the best and of the worst."""
    group = found.group
    marks = others.of_table()
    cells: list[tuple[Column, Callable[[int], str | Estimate]]] = [
        (Column("GPU"), lambda code: label(group.gpus[code].label)),
        (Column("runs", numeric=True, wide=1), lambda code: str(int((group.runs["gpu"] == code).sum()))),
        *_ranked(found, "time_s", "time"),
        *_ranked(found, "energy_j", "energy"),
    ]
    for name, words, digits, wide in _CONDITIONS:
        if any(group.mean(name, code) is not None for code in range(len(group.gpus))):
            cells.append((Column(words, numeric=True, wide=wide), _condition(found, name, digits)))
    cells.append((Column("", key="remark"), lambda code: _remark(found, code, marks)))
    codes = [place.gpu for place in found.spreads["time_s"].places]
    shown = codes if top is None or len(codes) <= 2 * top else [*codes[:top], *codes[-top:]]
    title = "GPUs, the fastest first" if len(codes) > 1 else "GPU"
    rows = [[value(code) for _, value in cells] for code in shown]
    section = Table(title, [column for column, _ in cells], rows, apart=True)
    if len(shown) < len(codes):
        left = len(codes) - len(shown)
        section.notes.append(f"{left} GPUs between these are left out; --top shows more, --json all")
    section.notes += [*marks.lines(), *_energy_note(found)]
    return section


def _ranked(found: Findings, figure: str, words: str) -> list[tuple[Column, Callable[[int], str | Estimate]]]:
    """A figure of each GPU, its distance from the median, and its rank."""
    places = {place.gpu: place for place in found.spreads[figure].places}
    unit = unit_for([place.value.value for place in places.values()], FIGURES[figure])

    def shown(value: Callable[[GpuRank], str | Estimate]) -> Callable[[int], str | Estimate]:
        return lambda code: value(places[code]) if code in places else NONE

    columns = [
        (Column(words, unit=unit), shown(lambda place: place.value)),
        (Column("off median (%)", numeric=True, wide=1), shown(lambda place: _off(place.off))),
    ]
    if figure == "energy_j" and found.hides_in_gain:
        return columns  # a rank would be that of the sensors
    return [*columns, (Column("rank", numeric=True), shown(lambda place: _rank(place.rank)))]


def _condition(found: Findings, name: str, digits: int) -> Callable[[int], str]:
    def value(code: int) -> str:
        mean = found.group.mean(name, code)
        return NONE if mean is None else Cell(fixed(mean, digits), mean)

    return value


def _energy_note(found: Findings) -> list[str]:
    if len(found.spreads["energy_j"].places) < 2 or found.gain_pct is None:
        return []
    hides = f"the differences in energy here are {reason('sensor_gain')}"
    return [
        "ranks by energy are those of each GPU's own sensor: the gain of a GPU's power sensor is known to "
        f"±{found.gain_pct:g} % only and differs from GPU to GPU; "
        + (hides if found.hides_in_gain else "it may cause part of the distance")
    ]


def label(text: str) -> Cell:
    """The name of a GPU, on one line."""
    return Cell(printable(text).replace(" ", NBSP))


def _off(estimate: Estimate) -> str:
    if estimate.value is None:
        return NONE
    text = cell(estimate, PERCENT)
    plus = "+" if estimate.value > 0 and not text.startswith(("−", "0 ")) else ""
    return Cell(f"{plus}{text}", estimate.value, estimate.low, estimate.high)


def _rank(rank: Estimate) -> str:
    if rank.value is None or rank.low is None or rank.high is None:
        return NONE
    low, high = round(rank.low), round(rank.high)
    return Cell(f"{low}" if low == high else f"{low}–{high}", rank.value, rank.low, rank.high)


def _slowness(found: Findings) -> list[Table]:
    """Correlates of slowness, if they can be determined."""
    known = [one for one in found.correlates if one.r.value is not None]
    if not known:
        return []
    columns = [Column("condition"), Column("where"), Column("correlation with time", unit="1")]
    rows = [[CONDITIONS[one.condition], one.where, one.r] for one in known]
    return [Table("Correlates of slowness", columns, rows, notes=["a correlation doesn't show a cause"])]


def facts(found: Findings, tariff: Tariff | None = None) -> list[tuple[str, str]]:
    """The lines below the tables."""
    lines = [("Worth asking for?", _worth(found)), ("Power limits", _limits(found))]
    return [("All GPUs", line) for line in totals(found, tariff)] + [(name, text) for name, text in lines if text]


def _worth(found: Findings) -> str:
    group, worth = found.group, found.worth
    if worth is None:
        return ""
    answer = {"yes": "yes", "no": "no", "undecided": "can't be determined yet"}[worth.verdict]
    takes = [_less(worth.time, "time")]
    if worth.energy.value is not None:
        takes.append(f"{_less(worth.energy, 'energy')} (sensor gain apart)")
    name = group.gpus[worth.gpu].label
    return f"{name}: {answer}; it takes {' and '.join(takes)} than one of the others picked blindly"


def _limits(found: Findings) -> str:
    gpus = found.group.gpus
    limits = gpus[0].facts.get("power_limits_w") or {}
    text = ", ".join(f"{end} {limits[end]:g} W" for end in ("min", "default", "max") if limits.get(end))
    modes = {gpu.facts.get("persistence") for gpu in gpus} - {None}
    mode = f"; persistence mode {' and '.join(sorted('on' if m else 'off' for m in modes))}" if modes else ""
    return text and text + mode


def warnings(fleet: Fleet, found: Sequence[Findings]) -> list[str]:
    """Missing results, and conditions that affect the figures."""
    lines = []
    if len(found) > 1:
        lines.append(f"{len(found)} kinds of GPUs or loads are present: each is compared only with its own kind")
    missing = Counter((str(one["node"]), str(one["gpu"]), str(one["text"])) for one in fleet.failures)
    for (node, gpu, text), n in missing.items():
        name = fleet.names.get((node, gpu)) or f"{node}:{gpu}"
        lines.append(f"{n} result{'s' if n > 1 else ''} of {name} missing: {text}")
    return [*lines, *fleet.damaged]


def _remark(found: Findings, code: int, marks: Footnotes) -> str:
    remarks = []
    for name, figure in (("time", "time_s"), ("energy", "energy_j")):
        side = next((place.outlier for place in found.spreads[figure].places if place.gpu == code), "")
        if side:
            where = "above" if side == "high" else "below"
            remarks.append(f"is an outlier in {name}: its whole interval is {where} the box plot's fence")
    if found.group.mean("hardware_share", code):
        remarks.append("slowed down by its hardware (heat or power brake) in part of the time")
    if found.group.gpus[code].facts.get("noise_here"):
        remarks.append("noise ran on this GPU too: its power and energy include both")
    return "".join(map(marks.mark, remarks))


def reason(code: str | None) -> str:
    """Why a figure is missing, in words."""
    return _REASONS.get(code or "", "") or reasons.reason(code)


def _cell(estimate: Estimate, marks: Footnotes) -> str:
    if estimate.value is None:
        return f"{NONE} {marks.mark(reason(estimate.reason))}"
    return cell(estimate, PERCENT)


def _less(gain: Estimate, what: str) -> str:
    if gain.value is None:
        return f"an unknown share of {what}"
    more = gain.value < 0
    shown = gain.scaled(-1) if more else gain
    return f"{cell(shown, PERCENT).replace(' ', NBSP)}{NBSP}% {'more' if more else 'less'} {what}"
