"""``compare``: two sides, each one Run or several Runs of one thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jouletrace.compare.checks import Checked, evaluate, parse
from jouletrace.compare.entries import Entry, of_side
from jouletrace.compare.fit import differences, warnings
from jouletrace.compare.match import LEVELS, Key, Matched, Parts, match, parts_of
from jouletrace.compare.options import CompareOptions
from jouletrace.compare.sides import (
    MODEL_METRICS,
    PART_METRICS,
    Source,
    boards,
    check_one_thing,
    on_both_sides,
    repeated_by_seed,
    sensor_gain,
    sources,
)
from jouletrace.compare.table import judge, solve
from jouletrace.errors import BadInputError
from jouletrace.report.comparison.data import Comparison, Side
from jouletrace.report.facts import title
from jouletrace.run import Estimate, Run

Runs = Sequence[tuple[Run, str]]
"""Runs and their origins."""

_Sides = tuple[Sequence[Mapping[str, Estimate]], ...]
_OF_NO_COUNT = ("latency_s", "time_to_first_token_s", "power_w", "energy_per_token_j")
"""Metrics per iteration or token, which don't depend on the samples in an iteration, and metrics without a count."""


def compare(
    a: Runs, b: Runs, options: CompareOptions | None = None, *, history: Runs = (), fail_if: Sequence[str] = ()
) -> Comparison:
    """The differences between two sides, with intervals and verdicts that hold over all rows together.

    Args:
        a: Runs of the first thing. Differences are compared with their spread and that of ``b`` and
            ``history``.
        b: Runs of the second thing.
        options: How to compare.
        history: Earlier runs of A, which contribute to the spread between runs and to no mean.
        fail_if: Checks such as "energy>5%" (see ``compare.checks``).

    Raises:
        BadInputError: If the sides have nothing in common, one of them isn't runs of one thing, or a check is
            malformed or selects no row.
    """
    options = options or CompareOptions()
    checks = [parse(text) for text in fail_if]
    (side_a, notes_a), (side_b, notes_b) = sources(a, "A"), sources(b, "B")
    past, notes_past = sources(history, "the history") if history else ([], [])
    check_one_thing([side_a[0], *past], "A with its history")
    _check_kinds(side_a, side_b)
    notes, scale = differences(side_a, side_b)
    gain = sensor_gain(side_a, side_b)
    name = side_b[0].run.workload.get("name") or side_b[0].run.kind
    whole = tuple([source.model for source in side] for side in (side_a, side_b, past))
    entries = _entries(Key("model", name), MODEL_METRICS, whole, scale)
    levels = [level for level in LEVELS if options.detail in ("all", level)]
    parts_a, parts_b = parts_of(side_a, levels), parts_of(side_b, levels)
    matched = match(list(parts_a), list(parts_b), options.renames)
    parts_past = parts_of(past, levels)
    for key_a, key_b, flags in matched.pairs:
        of_key = (parts_a[key_a], parts_b[key_b], parts_past.get(key_a, [{}] * len(past)))
        entries += _entries(key_b, PART_METRICS, of_key, scale, flags)
    if not any(entry.measured for entry in entries):
        where = " and ".join(", ".join(source.place for source in side) for side in (side_a, side_b))
        raise BadInputError(f"A and B have no figure in common, so there is nothing to compare ({where})")
    known = solve(entries, options, gain)
    rows = judge(entries, known, options)
    checked = evaluate(checks, [Checked(*one) for one in zip(entries, rows, known, strict=True)], options.alpha)
    return Comparison(
        a=_side("A", side_a),
        b=_side("B", side_b),
        rows=rows,
        unmatched_a=[(key.level, _said(key)) for key in matched.only_a],
        unmatched_b=[(key.level, _said(key)) for key in matched.only_b],
        notes=[*notes, *_on_parts(matched, parts_a, parts_b), *notes_a, *notes_b, *notes_past],
        warnings=[*on_both_sides(side_a, side_b), *repeated_by_seed(side_a, side_b), *warnings(side_a, side_b)],
        margin=options.margin,
        alpha=options.alpha,
        gain=gain,
        simulated=any(source.run.simulated for source in (*side_a, *side_b)),
        method=_method(side_a, side_b, past, options),
        checks=checked,
    )


def _check_kinds(a: Sequence[Source], b: Sequence[Source]) -> None:
    one, other = a[0].run.kind, b[0].run.kind
    if one != other:
        raise BadInputError(f"A is a {one} ({a[0].place}), B a {other} ({b[0].place}): they can't be compared")


def _entries(
    key: Key, metrics: Sequence[str], sides: _Sides, scale: tuple[float, float], flags: tuple[str, ...] = ()
) -> list[Entry]:
    """A row per metric of one unit.

    Args:
        key: The unit, as in B.
        metrics: The metrics.
        sides: Figures by metric for each run of A, of B and of the history.
        scale: Factors for the figures of A and of B, which make them refer to the same work.
        flags: How the unit differs between the sides.
    """
    found = []
    for metric in metrics:
        each = (1.0, 1.0) if metric in _OF_NO_COUNT else scale
        a, b, past = (of_side([run.get(metric) for run in side]) for side in sides)
        entry = Entry(key, metric, a.scaled(each[0]), b.scaled(each[1]), past.scaled(each[0]), flags)
        if entry.stated:
            found.append(entry)
    return found


def _on_parts(matched: Matched, a: Parts, b: Parts) -> list[str]:
    """Remarks on the lists of parts, where they hardly match."""
    if bool(a) != bool(b):
        return [f"{'B' if a else 'A'} lists no parts: only figures of the whole are compared"]
    if a and not matched.pairs:
        return ["no part of A is a part of B: the list of parts has changed completely (see --map)"]
    if len(matched.only_a) + len(matched.only_b) > len(matched.pairs):
        return ["more parts belong to one side only than to both: sums over parts can't be compared with each other"]
    return []


def _side(name: str, found: Sequence[Source]) -> Side:
    devices = tuple(f"{device.name} ({device.id})" for device in boards(found).values())
    return Side(name, title(found[0].run), tuple(source.place for source in found), devices, len(found))


def _said(key: Key) -> str:
    place = f" in {key.module}" if key.module and key.module != key.name else ""
    return f"{key.name or key.op}{place}{f' ({key.shapes})' if key.shapes else ''}"


def _method(a: Sequence[Source], b: Sequence[Source], past: Sequence[Source], options: CompareOptions) -> str:
    if options.between is not None:
        spread = f"a spread between runs stated as {100 * options.between:g} %, or that of the runs where it is larger"
    elif len(a) + len(b) > 2 or past:
        spread = "the spread between runs" + (f", {len(past)} earlier ones among them" if past else "")
    else:
        return "Differences of single runs: the spread between runs is unknown, so chance can't be assessed."
    return (
        f"Differences of means over {len(a)} and {len(b)} runs, compared with {spread}; intervals and verdicts hold "
        f"with {100 * (1 - options.alpha):g} % over all rows together (half of the error is for the model's figures, "
        "half is shared by the levels of parts, by Holm within each)."
    )
