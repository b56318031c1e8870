"""Why B takes another energy than A, in words: the first lines of a comparison, and the table of causes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from jouletrace.comparing.causes import COUNT, ON_BOTH, POWER, REST, TIME, WAITING, WHOLE, Cause, Why
from jouletrace.comparing.matching import FUSED, GONE, IDLE, NEW, REPLACED
from jouletrace.report.table import Cell, Column, Table
from jouletrace.run import Estimate
from jouletrace.run.names import short_name
from jouletrace.run.recording_names import IN_NO_PART
from jouletrace.run.roles import OTHER
from jouletrace.words.reasons import printed
from jouletrace.words.scale import NBSP, PERCENT, PrintedUnit, cell, decimals, fixed, number, unit_for

_WAYS = {
    COUNT: ("more often", "less often"),
    TIME: ("longer", "shorter"),
    POWER: ("at more power", "at less power"),
    WAITING: ("longer", "shorter"),
    WHOLE: ("more", "less"),
}
"""Words for a term by its sign."""

_TELLING = 0.2
"""Share of a change from which on a term of it is named; those against it aren't."""

_PLURAL = {
    "product": "products",
    "norm": "norms",
    "convolution": "convolutions",
    "activation": "activations",
    "embedding": "embeddings",
    "collective": "collectives",
    "copy": "copies",
    "reduction": "reductions",
    "sort": "sorts",
    "elementwise": "elementwise kernels",
    "optimizer": "optimizer steps",
    OTHER: "other kernels",
}
_NAMED = 3
"""Roles of a side that a line names."""

NO_KERNEL, NOT_SEEN, BELOW_MARGIN = "no kernel running", "no difference seen", "below the margin"

_DIGITS = 3
"""Significant digits of joules without an interval."""

_WORDS = 3
"""Words of a module's path that a table shows."""


def lines(why: Why) -> list[str]:
    """The line of the largest causes and what they leave: "+1.42 J: +1.86 attention replaced by ...; rest −0.44"."""
    if not why.first:
        return []
    unit, whole = unit_of(why), why.whole.value or 0.0
    places = decimals(
        max(abs(value) for value in (whole, *(cause.value for cause in why.first))) / unit.factor, _DIGITS
    )
    first, rest, *values = (
        _with_sign(fixed(value / unit.factor, places))
        for value in (whole, why.others, *(value.value for value in why.first))
    )
    said = (f"{value} {_said(cause)}{_casts(why, cause)}" for value, cause in zip(values, why.first, strict=True))
    return [f"{first}{NBSP}{unit.name}: {'; '.join(said)}; rest {rest}", *_of_work(why, unit)]


def _of_work(why: Why, unit: PrintedUnit) -> list[str]:
    """A line on all kernels of single runs of programs: "kernels alone: 3.73 → 7.75 kJ, +107.6 ± 4.1 %"."""
    if why.work is None or not why.work.energy[0].value:
        return []
    before, after = (number((energy.value or 0.0) / unit.factor, _DIGITS) for energy in why.work.energy)
    share = _with_sign(cell(why.work.change.scaled(1 / why.work.energy[0].value), PERCENT))
    return [f"kernels alone: {before} → {after}{NBSP}{unit.name}, {share}{NBSP}%"]


def table(why: Why, top: int) -> Table:
    """The causes by joules of difference, equal layers as one, and what all leave of the whole."""
    unit, changed = unit_of(why), [row for row in why.rows if row.value]
    terms = {"count": (COUNT,), "time": (TIME, WAITING), "power": (POWER,)}
    terms = {name: keys for name, keys in terms.items() if any(key in row.terms for row in changed for key in keys)}
    columns = [
        Column("cause", long="middle"),
        Column("module", long="start"),
        Column("B − A", numeric=True, key="change", unit=unit),
        Column("how", key="how"),
        *(Column(name, numeric=True, key=name.lower(), unit=unit, wide=1) for name in ("A", "B")),
        *(Column(name, numeric=True, key=name, unit=unit, wide=2) for name in terms),
    ]
    section = Table("Why", columns, apart=True, id="why")
    for row in changed[:top]:
        kernels = dict.fromkeys(leaf.kernel for leaf in (*row.a, *row.b) if leaf.kernel)
        section.rows.append(
            [
                Cell(printed(_what(row)), full=", ".join(kernels)),
                Cell(_place(row.module), full=row.module),
                Cell(_with_sign(cell(row.change, unit)), row.change.value, row.change.low, row.change.high),
                _ways(row),
                *(Cell(cell(Estimate(energy.value), unit), energy.value) for energy in row.energy),
                *(_term(row, names, unit) for names in terms.values()),
            ]
        )
    if rest := changed[top:]:
        total = _number(sum(row.value for row in rest), unit)
        section.notes.append(f"{len(rest)} more: {total}{NBSP}{unit.name} together")
    return section


def texts(cause: Cause) -> tuple[str, str, str]:
    """A cause in a chart: its name, its joules, and the lines of its tip."""
    unit = unit_for([cause.value], "J")
    joules = f"{_with_sign(cell(cause.change, unit))}{NBSP}{unit.name}"
    sides = (
        f"{name} {cell(Estimate(energy.value), unit)}{NBSP}{unit.name}"
        for name, energy in zip("AB", cause.energy, strict=True)
    )
    kernels = dict.fromkeys(short_name(leaf.kernel) for leaf in (*cause.a, *cause.b) if leaf.kernel)
    module = [printed(cause.module)] if cause.module else []
    lines = [printed(_what(cause)), *module, *sides, joules, _ways(cause)]
    return printed(_what(cause)), joules, "\n".join([*lines, *map(printed, list(kernels)[:_WORDS])])


def to_dict(why: Why | None) -> dict[str, Any] | None:
    """The causes as JSON has them, energies in J."""
    if why is None:
        return None
    return {
        "change_j": why.whole.to_dict(),
        "stated": why.stated,
        "first": [_dict(row) for row in why.first],
        "others_j": why.others,
        "work": None if why.work is None else _dict(why.work),
        "rows": [_dict(row) for row in why.rows],
    }


def _dict(row: Cause) -> dict[str, Any]:
    return {
        "how": row.how,
        "what": _what(row),
        "module": row.module,
        "ops": list(row.ops),
        "roles_a": list(row.roles[0]),
        "roles_b": list(row.roles[1]),
        "kernels_a": sorted({leaf.kernel for leaf in row.a if leaf.kernel}),
        "kernels_b": sorted({leaf.kernel for leaf in row.b if leaf.kernel}),
        "count_a": sum(leaf.count for leaf in row.a),
        "count_b": sum(leaf.count for leaf in row.b),
        "time_a_s": sum(leaf.seconds for leaf in row.a),
        "time_b_s": sum(leaf.seconds for leaf in row.b),
        "a_j": row.energy[0].value,
        "b_j": row.energy[1].value,
        "change_j": row.change.to_dict(),
        "terms_j": row.terms,
        "certain": row.certain,
    }


def unit_of(why: Why) -> PrintedUnit:
    """The unit of its energies: that of the larger side."""
    return unit_for([max(why.of_a, why.of_a + (why.whole.value or 0.0))], "J")


def _number(value: float, unit: PrintedUnit) -> str:
    return _with_sign(number(value / unit.factor, _DIGITS))


def _with_sign(text: str) -> str:
    """A number as text, with + in front of a positive one."""
    return text if text.startswith("−") or not text.partition(" ")[0].strip("0.") else f"+{text}"


def _term(row: Cause, names: Sequence[str], unit: PrintedUnit) -> Cell:
    value = next((row.terms[name] for name in names if name in row.terms), None)
    return Cell("" if value is None else _number(value, unit), value)


def _said(cause: Cause) -> str:
    """A cause in words: "attention replaced by fp32 products, softmax, copies"; "norms shorter"."""
    if cause.how == REPLACED:
        return " replaced by ".join(map(_roles, cause.roles))
    return f"{_what(cause)} {_ways(cause)}"


def _casts(why: Why, cause: Cause) -> str:
    """Of copies that grew, the number format of other work that B has more of and A has hardly: they cast to it."""
    if cause.role != "copy" or cause.value <= 0:
        return ""
    of_a, of_b = defaultdict[str, float](float), defaultdict[str, float](float)
    for row in why.rows:
        for leaves, joules in ((row.a, of_a), (row.b, of_b)):
            for leaf in leaves:
                if leaf.format and leaf.role != "copy":
                    joules[leaf.format] += leaf.joules
    form = max(of_b, key=lambda form: of_b[form] - of_a[form], default="")
    grew = of_b[form] - of_a[form] > _TELLING * cause.value and of_a[form] < _TELLING * of_b[form]
    return f", beside work in {form}" if grew else ""


def _place(module: str) -> str:
    return printed(".".join(module.split(".")[-_WORDS:])) if module else ""


def _ways(cause: Cause) -> str:
    """How a cause changed: "replaced", "fused, shorter", "longer, at less power"; or that this isn't certain."""
    if not cause.certain:
        return NOT_SEEN if abs(cause.value) <= (cause.change.half_width or 0.0) else BELOW_MARGIN
    if cause.how in (REPLACED, NEW, GONE):
        return cause.how
    telling = [name for name, value in cause.terms.items() if value / cause.value > _TELLING]
    ways = [_WAYS[name][cause.terms[name] < 0] for name in telling]
    return ", ".join([*(["fused"] if cause.how == FUSED else []), *ways])


def _what(cause: Cause) -> str:
    """What a cause is of: its roles, on both sides where they differ, or the name of what no kernel takes."""
    if cause.how == REST:
        return IN_NO_PART
    if cause.how == IDLE:
        return cause.leaves[0].op or NO_KERNEL
    if cause.how == ON_BOTH:
        return "kernels on both sides"
    of_a, of_b = map(_roles, cause.roles)
    if cause.how == REPLACED:
        return f"{of_a} → {of_b}"
    return of_a or of_b if cause.how in (FUSED, NEW, GONE) else _role(cause)


def _role(cause: Cause) -> str:
    """The role of a cause that has it on both sides, with its format or formats where each side has one."""
    forms = [{leaf.format for leaf in side if leaf.role == cause.role} - {""} for side in (cause.a, cause.b)]
    role, one_each = _PLURAL.get(cause.role, short_name(cause.role)), [len(each) == 1 for each in forms if each]
    if not one_each or not all(one_each):
        return role
    before, after = (next(iter(each), "") for each in forms)
    return f"{before or after} {role}" if not before or not after or before == after else f"{role} {before} → {after}"


def _roles(names: Sequence[str]) -> str:
    """Roles in the plural, the first ones, with each format where it changes."""
    said: list[str] = []
    before = ""
    for name in names[:_NAMED]:
        form, _, role = name.rpartition(" ")
        role = _PLURAL.get(role, short_name(role))
        said.append(role if form == before else f"{form} {role}".strip())
        before = form or before
    return ", ".join(dict.fromkeys(said)) + (", …" if len(names) > _NAMED else "")
