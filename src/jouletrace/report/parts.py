"""The parts of a Run as tables: one a row, a column a metric, in one unit a column."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from jouletrace.levels import TITLES
from jouletrace.report.columns import add_figures, check_section, distinguished
from jouletrace.report.document import Footnotes
from jouletrace.report.table import Cell, Column, Table, shortened
from jouletrace.run import Estimate, Run, device_labels, layers
from jouletrace.run.layers import OWN
from jouletrace.run.metrics import BEST, EACH, OF_PARTS, WORK, metric, ordered
from jouletrace.run.names import short_names
from jouletrace.run.parts import ABSENT, Part, Parts
from jouletrace.run.sums import Sums
from jouletrace.words import reasons
from jouletrace.words.reasons import NO_KERNEL, printed
from jouletrace.words.scale import NBSP, NONE, number, quantity

_SECONDARY = ("power_w", "energy_own_j", "time_own_s", "time_traced_s", *reversed(WORK.values()), *BEST, *WORK)
"""Metrics of parts that are shown where there is room, the most informative first."""

_UNEQUAL = 1.01
"""Ratio of the times of devices from which on their mean powers are shown in place of the differences of levels."""

_NAMED = {
    "operator": Column("operator", long="middle"),
    "op": Column("operator", wide=2, long="middle"),
    "layer": Column("layer", long="start"),
    "module": Column("module", wide=2, long="start"),
    "kernel": Column("kernel", long="middle"),
    "shapes": Column("shapes", wide=2, long="middle"),
}
"""Columns that say which part a row is, by level or step: how they are headed, and what their names lose."""

_CLOSED = ("phase", "layer", "op", "kernel")
"""Levels whose parts divide the whole."""

_LISTED = 56
"""Characters of a kernel's name in a list: a line of a terminal less what stands in front."""

_OF_TOKENS = {"prefill": "prompt tokens", "decode": "new tokens"}
"""By phase: the tokens that it takes in or makes, which are those of its figures a token."""

MOST_ROWS = 20
"""Rows of a table below a verdict, or of a level of an import, unless more are asked for."""

_SHARE_DIGITS = 3

_LEAST: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1)
"""Shares of the energy below which a range or module isn't listed, the first that leaves few enough."""


class _Listing(NamedTuple):
    """How much is listed.

    Attributes:
        ranked: Levels whose parts are always in the order of their costs; others where there is a ``top``.
        top: Rows where none is given; None for all.
        cause: Share of the whole from which on a cause of the time between kernels has a row.
        summed: Metrics of which is stated what the rows left out come to.
    """

    ranked: tuple[str, ...] = ("kernel",)
    top: int | None = None
    cause: float = 0.0
    summed: tuple[str, ...] = ("energy_total_j", "energy_active_j", "time_s", "share")


_ALL = _Listing()
_BRIEF = _Listing(("kernel", "op"), MOST_ROWS, 0.05, ("energy_total_j", "share"))
"""The listing below a verdict."""


def sections(
    run: Run, results: Parts, level: str, top: int | None, marks: Footnotes, *, brief: bool = False
) -> list[Table]:
    """The parts of a level as a terminal lists them, what is left out, and how well they make the whole.

    If ``brief`` as below a verdict: those with a figure, the costliest, without checks; only ranges have notes.
    """
    how, sums = _BRIEF if brief else _ALL, Sums(run, results)
    as_tree = level == "layer" and top is None
    left: list[str] = []
    if as_tree:
        most = MOST_ROWS if brief and run.kind == "program" else None
        listed = layer_table(run, results, sums, marks, brief=brief, most=most)
    else:
        ranked, with_energy = top is not None or level in how.ranked, brief and level not in ("device", "range", "load")
        # modules contain one another: those of a list add up to nothing
        closed = level in _CLOSED and not _contain(results, results.units(level) if level == "layer" else ())
        of = sums if closed else None
        listed, rest, without = table(
            run, results, level, top or how.top, marks, ranked=ranked, with_energy=with_energy, cause=how.cause, sums=of
        )
        if rest and not closed:
            left.append(_rest(results, rest, how.summed))
        if rest and not brief:
            left.append("--top lists more")
        # what is pooled has its energy in the row of its pool
        without = [unit for unit in without if not brief or unit.get("energy_total_j").reason != "pooled"]
        if without and not (brief and closed):
            left += [_without_energy(without)] if brief else _unattributed(without, top)
    left += above_limit(run, listed)
    if not brief:
        listed.notes += left
        checked = level in ("phase", "layer", "kernel", "op") and not (as_tree and run.kind == "program")
        return [listed, check_section(results)] if checked else [listed]
    listed.notes += left
    for n, column in enumerate(listed.columns):
        if column.key == "share":
            for row in listed.rows:
                share = getattr(row[n], "value", None)
                missing = "" if column.name == metric("share").short else NONE  # in a column of shares of time
                row[n] = Cell(missing if share is None else number(100 * share, _SHARE_DIGITS), share)
    return [listed]


def _without_energy(units: Sequence[Part]) -> str:
    """A sentence on the parts without an energy: how many they are, and their time."""
    time = sum(unit.get("time_s").value or unit.get("time_traced_s").value or 0.0 for unit in units)
    rows = "1 row" if len(units) == 1 else f"{len(units)} rows"
    together = f", together {quantity(time, 's')}" if time else ""
    if all(unit.get("time_s").reason == "impossible_times" for unit in units):
        return f"{rows} without a time that is possible"
    unresolved = all(unit.get("energy_total_j").reason == "not_resolved" for unit in units)
    why = "not resolved by the readings" if unresolved else "too short for the sensor"
    return f"{rows} without energy{together}: {why}"


def table(
    run: Run,
    results: Parts,
    level: str,
    top: int | None,
    marks: Footnotes,
    *,
    ranked: bool,
    with_energy: bool = False,
    cause: float = 0.0,
    sums: Sums | None = None,
) -> tuple[Table, list[Part], list[Part]]:
    """The units of a level (a key of ``TITLES``): one a row, a column a metric, in one unit a column.

    If ``with_energy``, only those with an energy, if any has one. The time between kernels has a row for each of its
    causes with a share of ``cause`` of the whole below its own. With ``sums``, rows that divide the whole are followed
    by what isn't listed, and by what all parts leave of the whole.

    Returns:
        The table with at most ``top`` rows, the costliest first if ``ranked``; units that are beyond, and kernels
        that no part accounts for.
    """
    units = results.ranked(level) if ranked else results.units(level)
    if level == "phase" and units and not results.units("length"):  # of a training step
        units = units + results.outside()
        if not ranked:
            units.sort(key=lambda unit: results.order(unit.gpu))
    names = ordered({name for unit in units for name in unit.figures} - set(OF_PARTS))
    units, unattributed = _attributed(results, units) if level == "kernel" else (units, [])
    if with_energy and any(unit.get("energy_total_j").value is not None for unit in units):
        unattributed = [*unattributed, *(unit for unit in units if unit.get("energy_total_j").value is None)]
        units = [unit for unit in units if unit.get("energy_total_j").value is not None]
    shown, rest = (units, []) if top is None else (units[:top], units[top:])
    if sums is not None and level in _CLOSED:
        # kernels of which only the trace knows are listed apart, but for the brief listing
        left = [*rest, *(unit for unit in unattributed if with_energy or unit.id in sums.seconds)]
        shown = sums.closed(shown, left, cause)
        if not ranked:
            shown.sort(key=lambda unit: results.order(unit.gpu))
    else:
        shown = [row for unit in shown for row in (unit, *results.causes(cause, unit))]
    section = Table(TITLES[level], *_naming(run, level, shown), id=level)
    figures, meant = distinguished(run, results, shown) if level == "range" else ([part.figures for part in shown], [])
    _complete(section, shown, figures, names, marks, results.change, counted=True)
    section.notes += meant
    return section, rest, unattributed


def _complete(
    section: Table,
    units: Sequence[Part],
    figures: Sequence[dict[str, Estimate]],
    names: Sequence[str],
    marks: Footnotes,
    change: Callable[[Part], Part] | None,
    *,
    counted: bool,
) -> None:
    """Add what all tables of parts have to rows that name these: on which GPU of several each ran, counts, figures."""
    if change is not None:
        figures = [change(replace(part, figures=row)).figures for part, row in zip(units, figures, strict=True)]
    if any(unit.gpu for unit in units):
        section.columns.insert(0, Column("device"))
        section.rows = [[unit.gpu, *row] for unit, row in zip(units, section.rows, strict=True)]
    if counted and any(unit.count is not None for unit in units):
        section.columns.append(Column("×", numeric=True, key="count"))
        for row, unit in zip(section.rows, units, strict=True):
            row.append(Cell(str(unit.count or ""), unit.count))
    spreads = tuple(name for name in names if "_std" in name)
    # active energy first, where the total says how much
    secondary: tuple[str, ...] = ("energy_active_j",) if "energy_total_j" in names else ()
    # what a step costs is what is asked of ranges, before the time that one takes
    if section.id == "device" and _by_power(figures):
        secondary += ("power_difference_w", *_SECONDARY[1:], *spreads)
    else:
        secondary += ((EACH["time_s"],) if section.id == "range" else ()) + (*_SECONDARY, *spreads)
    add_figures(section, figures, names, marks, secondary)


def _by_power(figures: Sequence[dict[str, Estimate]]) -> bool:
    """True of devices whose mean powers say more than their levels: none is known, or no time is that of all."""
    times, levels = (
        [estimate.value for row in figures if (estimate := row.get(name, ABSENT)).value is not None]
        for name in ("time_s", "power_difference_w")
    )
    return not levels or (len(times) > 1 and max(times) > _UNEQUAL * min(times))


def _attributed(results: Parts, units: Sequence[Part]) -> tuple[list[Part], list[Part]]:
    """Parts, and kernels that are known by name and at most a traced time: a row of dashes each would say no more."""
    stated = [{name for name, estimate in unit.figures.items() if estimate.value is not None} for unit in units]
    there = [u for u, names in zip(units, stated, strict=True) if u.level != "kernel" or names - {*_SECONDARY}]
    ids = {unit.id for unit in there}
    return (there, [unit for unit in units if unit.id not in ids]) if there else (list(units), [])


def _unattributed(units: Sequence[Part], top: int | None) -> list[str]:
    """Kernels that no part accounts for: by name, those that ran longest first, and why."""
    short = short_names((unit.name or "?" for unit in units), _LISTED)
    launches, traced = Counter[str](), defaultdict[str, float](float)
    for unit in units:
        launches[short[unit.name or "?"]] += unit.count or 1
        traced[short[unit.name or "?"]] += unit.get("time_traced_s").value or 0.0
    codes = dict.fromkeys(estimate.reason for unit in units for estimate in unit.figures.values())
    why = [code for code in codes if code not in (None, "not_measured")]
    names = sorted(launches, key=lambda name: -traced[name])
    said = f" ({'; '.join(reasons.reason(code) for code in why)})" if why else ""
    times = [quantity(traced[name] or None, "s") for name in names[:top]]
    lines = [f"kernels not attributed: {len(names)} names{said}"]
    for name, time in zip(names, times, strict=False):
        indent = NBSP * (2 + max(map(len, times)) - len(time))
        lines.append(f"{indent}{time}{NBSP * 2}{launches[name]} × {name}")
    return lines + ([f"{NBSP * 2}and {len(names) - len(times)} more"] if len(names) > len(times) else [])


def above_limit(run: Run, table: Table) -> list[str]:
    """A remark where a row draws more than the GPU's limit."""
    limits = [device.power_limit_w for device in run.devices if device.power_limit_w and device.kind != "cpu"]
    places = [n for n, column in enumerate(table.columns) if column.key == "power_w"]
    ends = [getattr(row[n], "low", None) or 0.0 for row in table.rows for n in places]
    if not limits or max(ends, default=0.0) <= max(limits):
        return []
    most = f"power above the limit of {max(limits):g}{NBSP}W"
    return [f"{most}: the GPU holds its mean over many kernels below it; a short kernel may draw more"]


def layer_table(
    run: Run, results: Parts, sums: Sums, marks: Footnotes, *, brief: bool, most: int | None = None
) -> Table:
    """Layers under the modules around them; of a program, ranges and modules with enough of the energy.

    If ``brief`` equal ones are one row. Where there would be more rows than ``most``, small ones are listed together.
    """
    floors = (_LEAST if run.kind == "program" else (0.0, *_LEAST))[: None if most else 1]
    rows, least = layers.tree(run, results, sums, floors, most, cause=(_BRIEF if brief else _ALL).cause, brief=brief)
    labels = [[2 * NBSP * depth + printed(name)] for _, depth, name in rows]
    section = Table(TITLES["layer"], [Column("layer", long="middle")], labels, id="layer")
    if least:
        what = "Ranges and modules" if run.kind == "program" else TITLES["layer"]
        section.title, section.id = f"{what} of {100 * least:.0f}{NBSP}% and more", ""
        section.columns = [Column("part", long="middle")]
    figures = [{name: estimate for name, estimate in unit.figures.items() if name not in OWN} for unit, *_ in rows]
    names = ordered({name for row in figures for name in row})
    _complete(section, [unit for unit, *_ in rows], figures, names, marks, results.change, counted=False)
    return section


def _naming(run: Run, level: str, units: Sequence[Part]) -> tuple[list[Column], list[list[Any]]]:
    """The columns that say which part a row is, and their cells."""
    short = shortened(unit.name or "?" for unit in units if unit.level == "kernel")
    if level == "kernel" and any(unit.op for unit in units):
        # A kernel's name says little: one serves many operators, and operators differ by where they are.
        labels = _labels(units, short)
        columns = [_NAMED["operator"], replace(_NAMED["module"], wide=0)]
        columns += [replace(_NAMED["kernel"], wide=2), replace(_NAMED["shapes"], wide=4)]
        rows: list[list[Any]] = []
        for unit in units:
            kernel = _name(run, unit, short) if unit.level == "kernel" else ""
            first = _name(run, unit, short) if unit.level == "cause" else labels[unit.id]
            rows.append([first, unit.module or "", kernel, unit.shapes or ""])
        return columns, rows
    columns = [_NAMED.get("operator" if level == "op" else level, Column(level))]
    rows = [[_name(run, unit, short)] for unit in units]
    for key in ("op", "shapes", "module") if level != "device" else ():
        texts = [getattr(unit, key) or "" for unit in units]
        if any(text and text != unit.name for text, unit in zip(texts, units, strict=True)):
            columns.append(_NAMED[key])
            rows = [[*row, text] for row, text in zip(rows, texts, strict=True)]
    return columns, rows


def _labels(units: Sequence[Part], short: Mapping[str, Cell]) -> dict[int, str]:
    """Labels of operators by number: their name, with the kernel's where they launch several that differ."""
    kernels = [unit for unit in units if unit.level == "kernel" and unit.op]
    bases = {unit.id: short[unit.name or "?"].partition("<")[0] for unit in kernels}
    of_one = Counter(unit.parent for unit in kernels)
    alike = Counter((unit.parent, bases[unit.id]) for unit in kernels)
    labels = {}
    for unit in units:
        kernel = short[unit.name or "?"] if unit.level == "kernel" else ""
        label = str(unit.op or kernel or printed(unit.holds or unit.name)).removeprefix("aten.")
        if unit.id in bases and of_one[unit.parent] > 1:
            base = bases[unit.id]
            label = f"{label}: {base if alike[unit.parent, base] == 1 else kernel}"
        labels[unit.id] = label
    return labels


def _name(run: Run, unit: Part, short: Mapping[str, Cell]) -> str:
    """The name of a part as its level has it: kernels by their short names, phases with the tokens that they are of."""
    if unit.level == "device":
        return device_labels(run.devices).get(unit.module or "", unit.name or "?")
    if unit.level == "cause":
        return Cell(2 * NBSP + unit.name, full=f"{NO_KERNEL}: {unit.name}")
    if unit.level == "kernel":
        return short[unit.name or "?"]
    text = printed(unit.holds or unit.name)
    return f"{text} ({_OF_TOKENS[text]})" if unit.level == "phase" and text in _OF_TOKENS else text


def _contain(results: Parts, units: Sequence[Part]) -> bool:
    """True if one of these parts lies in another of its level."""
    levels = {unit.id: unit.level for unit in results.all()}
    return any(levels.get(unit.parent or 0) == unit.level for unit in units)


def _rest(results: Parts, units: Sequence[Part], names: Sequence[str]) -> str:
    """The sums of the rows that are left out, in words; only how many there are where they contain one another."""
    if _contain(results, units):
        return f"{len(units)} more"
    parts = []
    for name in names:
        values = [value for unit in units if (value := unit.get(name).value) is not None]
        if values:
            unknown = f" ({len(units) - len(values)} unknown)" if len(values) < len(units) else ""
            parts.append(f"{metric(name).short} {quantity(sum(values), metric(name).unit)}{unknown}")
    return f"{len(units)} more{', together ' if parts else ''}{', '.join(parts)}"
