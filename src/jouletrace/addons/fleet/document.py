"""The report of a fleet in words and tables, for terminal and HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from jouletrace.addons.fleet.findings import Findings, mean_of
from jouletrace.addons.fleet.results import Fleet
from jouletrace.addons.fleet.slowness import CONDITIONS, COUNTED, is_counted
from jouletrace.addons.fleet.spread import FIGURES, Spread
from jouletrace.addons.fleet.words import NAMES, PERCENT, SAME_TIME, reason
from jouletrace.report.document import Cell, Column, Document, Footnotes, Section, printable
from jouletrace.report.facts import SIMULATED
from jouletrace.report.html.tables import Heading, Table
from jouletrace.report.scale import NBSP, NONE, Unit, cell, fixed, quantity, unit_for
from jouletrace.run import Estimate

_ASIDE = ("temperature_max_c", "context_idle_w")
"""Columns of the HTML page that are hidden at first."""

_LEVELS = {"node": "between hosts", "gpu": "between GPUs", "run": "between runs", "within": "within a run"}


def document(fleet: Fleet, found: Sequence[Findings], top: int | None = None) -> Document:
    """The whole report.

    Args:
        fleet: The results.
        found: Findings on each group.
        top: Number of the best and of the worst GPUs to show, where there are more than twice as many.
    """
    page = Document(f"Fleet {fleet.source}".strip(), SIMULATED if fleet.simulated else "")
    marks = Footnotes()
    for one in found:
        page.sections += [spread_table(one, marks), variance_table(one, marks), gpu_section(one, marks, top)]
        page.sections += filter(None, [slowness_table(one)])
    page.facts = [fact for one in found for fact in facts(one)]
    page.warnings = warnings(fleet, found)
    return page.printable()


def spread_table(found: Findings, others: Footnotes) -> Section:
    """Differences between GPUs in each figure; ``others`` are the footnotes of the whole output."""
    columns = [
        Column("figure"),
        *(Column(n, numeric=True) for n in ("mean", "max/min − 1 (%)", "as measured (%)", "IQR/median (%)")),
    ]
    section = Section(found.group.title, columns)
    marks = Footnotes(others)
    for figure, spread in found.spreads.items():
        if spread.split is None:
            continue
        observed = spread.observed_range
        section.rows.append(
            [
                NAMES[figure],
                quantity(float(spread.split.means.mean()), FIGURES[figure]),
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


def variance_table(found: Findings, others: Footnotes) -> Section:
    """Contributions to the variance."""
    numbers = [Column(name, numeric=True) for name in ("(% of mean)", "share of variance (%)")]
    section = Section("Where the spread comes from", [Column("figure"), Column("standard deviation"), *numbers])
    marks = Footnotes(others)
    for figure, spread in found.spreads.items():
        if spread.split is None:
            continue
        mean = float(spread.split.means.mean())
        alike = _alike(spread)
        for part in spread.components:
            level = _LEVELS[part.level]
            if alike and part.level == "within":
                level += f" {marks.mark(alike)}"
            share = NONE if part.share.value is None else f"{100 * part.share.value:.0f}"
            section.rows.append([NAMES[figure], level, _cell(part.sd.scaled(1 / mean), marks), share])
    section.notes = marks.lines()
    return section


def _alike(spread: Spread) -> str:
    """A note on the correlation of successive windows; "" without correlation."""
    found = spread.once.correlation if spread.once is not None else None
    if found is None or not found.seen:
        return ""
    of, worth = fixed(float(found.windows.mean()), 0), fixed(found.effective, 1)
    return (
        f"successive windows of a run are correlated in {NAMES[spread.figure]} (correlation "
        f"{cell(found.rho, Unit(1.0, ''))}): the {of} of a run determine its mean as well as {worth} independent ones"
    )


_CONDITIONS = (
    ("power_w", "power (W)", 1),
    ("clock_mhz", "SM (MHz)", 0),
    (COUNTED, "SM, measured (MHz)", 0),
    ("temperature_c", "die (°C)", 1),
    ("temperature_max_c", "hottest (°C)", 0),
    ("idle_w", "deep idle (W)", 1),
    ("context_idle_w", "context idle (W)", 1),
    ("power_cap_share", "under the cap (share)", 2),
    ("hardware_share", "slowed by hardware (share)", 2),
)
"""Columns of runs, their titles in the table of GPUs, and digits after the decimal point."""

_TERMINAL = {
    "label": "GPU",
    "runs": "runs",
    "time_s": "",
    "time_s_off": "off median (%)",
    "time_s_rank": "rank",
    "energy_j": "",
    "energy_j_rank": "rank",
    "power_w": "",
    "clock_mhz": "",
    COUNTED: "counted (MHz)",
    "temperature_c": "",
    "idle_w": "idle (W)",
    "remark": "",
}
"""Columns of the terminal's table of GPUs, by key, and their shorter titles, if any."""

_WIDE = ("runs", "power_w", "clock_mhz", COUNTED, "idle_w")
"""Those of them that are omitted on narrow terminals."""


def gpu_section(found: Findings, others: Footnotes, top: int | None = None) -> Section:
    """The table of GPUs for the terminal; with ``top``, as many of the best and of the worst."""
    whole = gpu_table(found, others)
    keys = [heading.key for heading in whole.headings]
    shown = [n for n, key in enumerate(keys) if key in _TERMINAL]
    columns = [
        Column(_TERMINAL[keys[n]] or whole.headings[n].name, whole.headings[n].numeric, wide=int(keys[n] in _WIDE))
        for n in shown
    ]
    rows = whole.rows if top is None or len(whole.rows) <= 2 * top else [*whole.rows[:top], *whole.rows[-top:]]
    section = Section(whole.title, columns, [[row[n].full or row[n].text for n in shown] for row in rows], apart=True)
    if len(rows) < len(whole.rows):
        left = len(whole.rows) - len(rows)
        section.notes.append(f"{left} GPUs between these are left out; --top shows more, --json all")
    section.notes += whole.notes
    return section


def gpu_table(found: Findings, others: Footnotes | None = None) -> Table:
    """Every GPU with all its figures, the fastest first; by number where figures are missing."""
    marks = Footnotes(others)
    columns = [*_identity(found), *_ranked(found, "time_s", "time"), *_ranked(found, "energy_j", "energy")]
    heading = Heading("at equal temperature (%)", "off_at_equal_temperature", True, aside=True)
    columns.append((heading, lambda code: _figure(found.cooler.get(code), PERCENT, sign=True)))
    for name, words, digits in _CONDITIONS:
        if name != COUNTED or is_counted(found.group):
            columns.append((Heading(words, name, True, aside=name in _ASIDE), _condition(found, name, digits)))
    columns.append((Heading("", "remark"), lambda code: Cell(_remark(found, code, marks))))
    table = Table("gpus", gpu_heading(found), [heading for heading, _ in columns])
    table.rows = [[value(place.gpu) for _, value in columns] for place in found.spreads["time_s"].places]
    table.notes = [*marks.lines(), *_energy_note(found)]
    if found.group.shares_time:
        table.notes.append(f"{SAME_TIME[0].upper()}{SAME_TIME[1:]}")
    return table


_Column = tuple[Heading, Callable[[int], Cell]]
"""A column of the table of GPUs, and its cell for a GPU's code."""


def _identity(found: Findings) -> list[_Column]:
    gpus = found.group.gpus
    runs = np.bincount(found.group.runs["gpu"], minlength=len(gpus)).tolist()

    def fact(name: str) -> Callable[[int], Cell]:
        return lambda code: Cell(printable(str(gpus[code].facts.get(name) or "")))

    return [
        (Heading("GPU", "label"), lambda code: label(gpus[code].label)),
        (
            Heading("host", "host", aside=len({gpu.node for gpu in gpus}) == 1),
            lambda code: Cell(printable(gpus[code].node)),
        ),
        (Heading("UUID", "gpu", aside=True), lambda code: Cell(printable(gpus[code].id))),
        (Heading("serial", "serial", aside=True), fact("serial")),
        (Heading("slot", "pci_bus", aside=True), fact("pci_bus")),
        (Heading("runs", "runs", True), lambda code: Cell(str(runs[code]), runs[code])),
    ]


def _ranked(found: Findings, figure: str, words: str) -> list[_Column]:
    """A figure of each GPU, its distance from the median, and its rank."""
    places = {place.gpu: place for place in found.spreads[figure].places}
    unit = unit_for([place.value.value for place in places.values()], FIGURES[figure])

    def shown(what: str, cell_of: Callable[[Estimate], Cell]) -> Callable[[int], Cell]:
        return lambda code: cell_of(getattr(places[code], what)) if code in places else Cell(NONE)

    return [
        (Heading(f"{words} ({unit.name})", figure, True), shown("value", lambda own: _figure(own, unit))),
        (
            Heading(f"{words} off median (%)", f"{figure}_off", True),
            shown("off", lambda own: _figure(own, PERCENT, sign=True)),
        ),
        (Heading(f"rank by {words}", f"{figure}_rank", True), shown("rank", _rank)),
    ]


def _condition(found: Findings, name: str, digits: int) -> Callable[[int], Cell]:
    def value(code: int) -> Cell:
        mean = mean_of(found.group, name, code)
        return Cell(NONE if mean is None else fixed(mean, digits), mean)

    return value


def _energy_note(found: Findings) -> list[str]:
    if len(found.spreads["energy_j"].places) < 2 or found.gain_pct is None:
        return []
    hides = "the differences in energy here are within that error"
    return [
        "ranks by energy are those of each GPU's own sensor: the gain of a GPU's power sensor is known to "
        f"±{found.gain_pct:g} % only and differs from GPU to GPU; "
        + (hides if found.hides_in_gain else "it may cause part of the distance")
    ]


def label(text: str) -> Cell:
    """The name of a GPU, on one line."""
    shown = printable(text)
    return Cell(shown.replace(" ", NBSP), full=shown)


def _figure(estimate: Estimate | None, unit: Unit, sign: bool = False) -> Cell:
    if estimate is None or estimate.value is None:
        return Cell(NONE)
    text = cell(estimate, unit)
    plus = "+" if sign and estimate.value > 0 and not text.startswith(("−", "0 ")) else ""
    return Cell(f"{plus}{text}", estimate.value, estimate.low, estimate.high)


def _rank(rank: Estimate) -> Cell:
    if rank.value is None or rank.low is None or rank.high is None:
        return Cell(NONE)
    low, high = round(rank.low), round(rank.high)
    return Cell(f"{low}" if low == high else f"{low}–{high}", rank.value, rank.low, rank.high)


def gpu_heading(found: Findings) -> str:
    """The title of the table of GPUs, with their order, if they have one."""
    if len(found.group.gpus) == 1:
        return "GPU"
    return "GPUs" if found.group.shares_time else "GPUs, the fastest first"


def slowness_table(found: Findings) -> Section | None:
    """Correlates of slowness; None where they can't be determined."""
    known = [one for one in found.correlates if one.r.value is not None]
    if not known:
        return None
    section = Section(
        "Correlates of slowness", [Column("condition"), Column("where"), Column("correlation with time", numeric=True)]
    )
    plain = Unit(1.0, "")
    section.rows = [[CONDITIONS[one.condition], one.where, cell(one.r, plain)] for one in known]
    section.notes = ["a correlation doesn't show a cause"]
    return section


def facts(found: Findings) -> list[tuple[str, str]]:
    """The lines below the tables."""
    lines = [("Worth asking for?", _worth(found)), ("Temperature", _temperature(found.slope))]
    skew = found.skew
    if skew.most is not None:
        text = f"at most {quantity(skew.most, 's')}, median {quantity(skew.median, 's')}, over {skew.n} starts at once"
    else:
        text = f"none: {reason(skew.reason)}"
    lines += [("Start skew", text), ("Power limits", _limits(found)), ("Power step", _step(found))]
    return [(name, text) for name, text in lines if text]


def _worth(found: Findings) -> str:
    group, worth = found.group, found.worth
    if worth is None:
        return ""
    answer = {"yes": "yes", "no": "no", "undecided": "can't be determined yet"}[worth.verdict]
    takes = [] if group.shares_time else [_less(worth.time, "time")]
    if worth.energy.value is not None:
        takes.append(f"{_less(worth.energy, 'energy')} (sensor gain apart)")
    said = [f"{group.gpus[worth.gpu].label}: {answer}", SAME_TIME if group.shares_time else ""]
    said.append(f"it takes {' and '.join(takes)} than one of the others picked blindly" if takes else "")
    return "; ".join(filter(None, said))


def _temperature(slope: Estimate) -> str:
    if slope.value is None:
        return f"no correction: {reason(slope.reason)}"
    longer = slope.value >= 0
    per = f"{cell(slope.scaled(1 if longer else -1), PERCENT)} % {'longer' if longer else 'shorter'}"
    return f"an iteration takes {per} a degree hotter, from how runs of a GPU differ"


def _limits(found: Findings) -> str:
    gpus = found.group.gpus
    ends = [(end, gpus[0].facts.get(f"power_limit_{end}_w")) for end in ("min", "default", "max")]
    text = ", ".join(f"{end} {watts:g} W" for end, watts in ends if watts)
    modes = {gpu.facts.get("persistence") for gpu in gpus} - {None}
    mode = f"; persistence mode {' and '.join(sorted('on' if m else 'off' for m in modes))}" if modes else ""
    return text and text + mode


def _step(found: Findings) -> str:
    """The response of the GPUs' power to the begin of the load; "" where it couldn't be measured."""
    runs = found.group.runs
    seen = {n: runs[f"step_{n}"][np.isfinite(runs[f"step_{n}"])] for n in ("settled_w", "peak_w", "rise_s", "return_s")}
    if not len(seen["settled_w"]):
        return ""
    rest = runs["step_rest_w"][np.isfinite(runs["step_settled_w"])]

    def median(values: NDArray[np.float64], unit: str) -> str:
        return quantity(float(np.median(values)), unit)

    text = f"from {median(rest, 'W')} to {median(seen['settled_w'], 'W')} when the load begins"
    if len(seen["rise_s"]):
        text += f", 90 % of it after {median(seen['rise_s'], 's')}"
    peaks = seen["peak_w"]
    if len(peaks):
        text += f"; above it in {len(peaks)} of {len(rest)} runs: to {median(peaks, 'W')}"
        text += f", at most {quantity(float(peaks.max()), 'W')}" if len(peaks) > 1 else ""
    if len(seen["return_s"]):
        text += f", back after {median(seen['return_s'], 's')}"
    return f"{text} (medians, through the sensor)"


def warnings(fleet: Fleet, found: Sequence[Findings]) -> list[str]:
    """Missing results, and conditions that affect the figures."""
    lines = []
    if len(found) > 1:
        lines.append(f"{len(found)} kinds of GPUs or loads are present: each is compared only with its own kind")
    missing: dict[tuple[str, str, str], int] = {}
    for failure in fleet.failures:
        key = str(failure.get("node")), str(failure.get("gpu")), str(failure.get("text"))
        missing[key] = missing.get(key, 0) + 1
    for (node, gpu, text), n in missing.items():
        lines.append(f"{n} result{'s' if n > 1 else ''} of {fleet.name(node, gpu)} missing: {text}")
    for one in found:
        hot = int(one.group.runs["hot"].sum())
        if hot:
            n = len(one.group.runs["hot"])
            lines.append(f"{hot} of {n} runs: the GPU was not as cool as requested when it began")
    return [*lines, *fleet.damaged]


def _remark(found: Findings, code: int, marks: Footnotes) -> str:
    remarks = []
    for name, figure in (("time", "time_s"), ("energy", "energy_j")):
        side = next((place.outlier for place in found.spreads[figure].places if place.gpu == code), "")
        if side:
            where = "above" if side == "high" else "below"
            remarks.append(f"is an outlier in {name}: its whole interval is {where} the box plot's fence")
    if mean_of(found.group, "hardware_share", code):
        remarks.append("slowed down by its hardware (heat or power brake) in part of the time")
    if found.group.gpus[code].facts.get("noise_here"):
        remarks.append("noise ran on this GPU too: its power and energy include both")
    return "".join(map(marks.mark, remarks))


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
