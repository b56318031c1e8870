"""The report of a fleet in words and tables, for terminal and page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jouletrace.addons.fleet.findings import Findings, mean_of
from jouletrace.addons.fleet.results import Fleet
from jouletrace.addons.fleet.slowness import CONDITIONS, COUNTED, is_counted
from jouletrace.addons.fleet.spread import FIGURES, Spread
from jouletrace.addons.fleet.words import NAMES, PERCENT, SAME_TIME, reason
from jouletrace.report.document import Column, Document, Footnotes, Section
from jouletrace.report.facts import SIMULATED
from jouletrace.report.scale import NBSP, NONE, Unit, cell, fixed, quantity, unit_for
from jouletrace.run import Estimate

_LEVELS = {"node": "between hosts", "gpu": "between GPUs", "run": "between runs", "within": "within a run"}


def document(fleet: Fleet, found: Sequence[Findings], top: int | None = None) -> Document:
    """The whole report.

    Args:
        fleet: What it was read from.
        found: Of each group.
        top: So many of the best and of the worst GPUs, where there are more than twice as many.
    """
    told = Document(f"Fleet {fleet.source}".strip(), SIMULATED if fleet.simulated else "")
    marks = Footnotes()
    for one in found:
        told.sections += [spread_table(one, marks), variance_table(one, marks), gpu_table(one, marks, top)]
        told.sections += filter(None, [slowness_table(one)])
    told.facts = [fact for one in found for fact in facts(one)]
    told.warnings = warnings(fleet, found)
    return told.printable()


def spread_table(found: Findings, others: Footnotes) -> Section:
    """How far GPUs are apart in each figure; ``others`` are the footnotes of the whole output."""
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
        text = "max/min and IQR are of what the means truly are: noise, which drives them apart, is taken out"
        section.notes.append(text)
    return section


def variance_table(found: Findings, others: Footnotes) -> Section:
    """Where the variance is."""
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
    """What is to be known of windows that resemble one another; "" where they don't."""
    found = spread.correlation
    if found is None or not found.seen:
        return ""
    of, worth = fixed(float(found.windows.mean()), 0), fixed(found.effective, 1)
    return (
        f"successive windows of a run resemble one another in {NAMES[spread.figure]} (correlation "
        f"{cell(found.rho, Unit(1.0, ''))}): the {of} of a run tell as much of its mean as {worth} independent ones"
    )


def gpu_table(found: Findings, others: Footnotes, top: int | None = None) -> Section:
    """Every GPU, the fastest first; by number where none is."""
    group, marks = found.group, Footnotes(others)
    time = {place.gpu: place for place in found.spreads["time_s"].places}
    energy = {place.gpu: place for place in found.spreads["energy_j"].places}
    power = {place.gpu: place for place in found.spreads["power_w"].places}
    units = {
        name: unit_for([place.value.value for place in places.values()], FIGURES[name])
        for name, places in (("time_s", time), ("energy_j", energy), ("power_w", power))
    }
    columns = [
        Column("GPU"),
        Column("runs", numeric=True, wide=True),
        Column(f"time ({units['time_s'].name})", numeric=True),
    ]
    columns += [Column(name, numeric=True) for name in ("off median (%)", "rank")]
    columns += [Column(f"energy ({units['energy_j'].name})", numeric=True), Column("rank", numeric=True)]
    columns += [Column("power (W)", numeric=True, wide=True), Column("SM (MHz)", numeric=True, wide=True)]
    counted = is_counted(group)
    columns += [Column("counted (MHz)", numeric=True, wide=True)] if counted else []
    columns += [Column("die (°C)", numeric=True), Column("idle (W)", numeric=True, wide=True), Column("")]
    section = Section(gpu_heading(found), columns, apart=True)
    places = found.spreads["time_s"].places
    shown = places if top is None or len(places) <= 2 * top else [*places[:top], *places[-top:]]
    for place in shown:
        code = place.gpu
        drawn, watts = energy.get(code), power.get(code)
        off = NONE if place.off.value is None else _signed(place.off)
        section.rows.append(
            [
                group.gpus[code].label,
                str(int((group.runs["gpu"] == code).sum())),
                cell(place.value, units["time_s"]),
                off,
                _rank(place.rank),
                NONE if drawn is None else cell(drawn.value, units["energy_j"]),
                NONE if drawn is None else _rank(drawn.rank),
                NONE if watts is None else cell(watts.value, units["power_w"]),
                _plain(mean_of(group, "clock_mhz", code), 0),
                *([_plain(mean_of(group, COUNTED, code), 0)] if counted else []),
                _plain(mean_of(group, "temperature_c", code), 1),
                _plain(mean_of(group, "idle_w", code), 1),
                _remark(found, code, place.outlier, drawn.outlier if drawn else "", marks),
            ]
        )
    section.notes = marks.lines()
    if group.shares_time:
        section.notes.append(SAME_TIME)
    if len(shown) < len(places):
        section.notes.insert(
            0, f"{len(places) - len(shown)} GPUs between these are left out; --top shows more, --json all"
        )
    if len(energy) > 1 and found.gain_pct is not None:
        gain = (
            f"the gain of a board's power sensor is known to ±{found.gain_pct:g} % only and differs from board to board"
        )
        hides = (
            "energies here are no further apart than that alone may make them"
            if found.hides_in_gain
            else "part of the distance may be that"
        )
        section.notes.append(f"ranks by energy are by what each board's own sensor says: {gain}; {hides}")
    return section


def gpu_heading(found: Findings) -> str:
    """What the table of GPUs is called: how they are ordered, where there is an order."""
    if len(found.group.gpus) == 1:
        return "GPU"
    return "GPUs" if found.group.shares_time else "GPUs, the fastest first"


def slowness_table(found: Findings) -> Section | None:
    """What goes with slowness; None where nothing can be told."""
    known = [one for one in found.correlates if one.r.value is not None]
    if not known:
        return None
    section = Section(
        "What goes with slowness", [Column("condition"), Column("where"), Column("correlation with time", numeric=True)]
    )
    plain = Unit(1.0, "")
    section.rows = [[CONDITIONS[one.condition], one.where, cell(one.r, plain)] for one in known]
    section.notes = ["a correlation says what goes together, not what causes what"]
    return section


def facts(found: Findings) -> list[tuple[str, str]]:
    """What is said in lines below the tables."""
    group = found.group
    lines: list[tuple[str, str]] = []
    worth = found.worth
    if worth is not None:
        label = group.gpus[worth.gpu].label
        answer = {"yes": "yes", "no": "no", "undecided": "can't be told yet"}[worth.verdict]
        takes = [] if group.shares_time else [_less(worth.time, "time")]
        if worth.energy.value is not None:
            takes.append(f"{_less(worth.energy, 'energy')} (sensor gain apart)")
        text = f"it takes {' and '.join(takes)} than one of the others picked blindly" if takes else ""
        said = [f"{label}: {answer}", *([SAME_TIME] if group.shares_time else []), *([text] if text else [])]
        lines.append(("Worth asking for?", "; ".join(said)))
    if found.slope.value is not None:
        longer = found.slope.value >= 0
        per = f"{cell(found.slope.scaled(1 if longer else -1), PERCENT)} % {'longer' if longer else 'shorter'}"
        lines.append(("Temperature", f"an iteration takes {per} a degree hotter, from how runs of a GPU differ"))
    else:
        lines.append(("Temperature", f"no correction: {reason(found.slope.reason)}"))
    if found.skew.most is not None and found.skew.median is not None:
        most, median = quantity(found.skew.most, "s"), quantity(found.skew.median, "s")
        lines.append(("Start skew", f"at most {most}, median {median}, over {found.skew.n} starts at once"))
    else:
        lines.append(("Start skew", f"none: {reason(found.skew.reason)}"))
    limits = group.gpus[0].facts if group.gpus else {}
    ends = [
        f"{end} {limits[f'power_limit_{end}_w']:g} W"
        for end in ("min", "default", "max")
        if limits.get(f"power_limit_{end}_w")
    ]
    if ends:
        modes = {gpu.facts.get("persistence") for gpu in group.gpus} - {None}
        mode = f"; persistence mode {' and '.join(sorted('on' if m else 'off' for m in modes))}" if modes else ""
        lines.append(("Power limits", ", ".join(ends) + mode))
    if step := _step(found):
        lines.append(("Power step", step))
    return lines


def _step(found: Findings) -> str:
    """What the boards' power did when the load began; "" where it couldn't be seen."""
    runs = found.group.runs
    known = np.isfinite(runs["step_settled_w"])
    if not known.any():
        return ""
    rest, settled = (quantity(float(np.median(runs[f"step_{n}_w"][known])), "W") for n in ("rest", "settled"))
    text = f"from {rest} to {settled} when the load begins"
    rise = runs["step_rise_s"][np.isfinite(runs["step_rise_s"])]
    if len(rise):
        text += f", 90 % of it after {quantity(float(np.median(rise)), 's')}"
    peaks, back = (runs[name][np.isfinite(runs[name])] for name in ("step_peak_w", "step_return_s"))
    if len(peaks):
        most, median = quantity(float(peaks.max()), "W"), quantity(float(np.median(peaks)), "W")
        text += f"; beyond it in {len(peaks)} of {int(known.sum())} runs: to {median}"
        text += f", at most {most}" if len(peaks) > 1 else ""
    if len(back):
        text += f", back after {quantity(float(np.median(back)), 's')}"
    return f"{text} (medians, through the sensor)"


def warnings(fleet: Fleet, found: Sequence[Findings]) -> list[str]:
    """What is missing, and what touches the figures."""
    lines = []
    if len(found) > 1:
        lines.append(f"{len(found)} kinds of GPUs or loads are here: each is held against its own kind only")
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
            lines.append(f"{hot} of {n} runs: the board was not as cool as asked for when it began")
    return [*lines, *fleet.damaged]


def _remark(found: Findings, code: int, time: str, energy: str, marks: Footnotes) -> str:
    remarks = []
    for name, side in (("time", time), ("energy", energy)):
        if side:
            where = "above" if side == "high" else "below"
            remarks.append(marks.mark(f"stands out by {name}: its whole interval is {where} the box plot's fence"))
    slowed = mean_of(found.group, "hardware_share", code)
    if slowed:
        remarks.append(marks.mark("slowed down by its hardware (heat or power brake) in part of the time"))
    gpu = found.group.gpus[code]
    if gpu.facts.get("noise_here"):
        remarks.append(marks.mark("noise ran on this very GPU: its power and energy hold both"))
    return "".join(remarks)


def _cell(estimate: Estimate, marks: Footnotes) -> str:
    if estimate.value is None:
        return f"{NONE} {marks.mark(reason(estimate.reason))}"
    return cell(estimate, PERCENT)


def _signed(estimate: Estimate) -> str:
    text = cell(estimate, PERCENT)
    return (
        f"+{text}" if estimate.value is not None and estimate.value > 0 and not text.startswith(("−", "0 ")) else text
    )


def _rank(rank: Estimate) -> str:
    if rank.value is None or rank.low is None or rank.high is None:
        return NONE
    low, high = round(rank.low), round(rank.high)
    return f"{low}" if low == high else f"{low}–{high}"


def _plain(value: float | None, places: int) -> str:
    return NONE if value is None else fixed(value, places)


def _less(gain: Estimate, what: str) -> str:
    if gain.value is None:
        return f"an unknown share of {what}"
    more = gain.value < 0
    shown = gain.scaled(-1) if more else gain
    return f"{cell(shown, PERCENT).replace(' ', NBSP)}{NBSP}% {'more' if more else 'less'} {what}"
