"""``compare``: two sides, each one Run or several Runs of one thing; and verdicts on their differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jouletrace.compare.by_path import Found, Matched, match, parts_of
from jouletrace.compare.checks import evaluate, parse
from jouletrace.compare.contrast import ALPHA, Contrast, Group
from jouletrace.compare.loads import pair
from jouletrace.compare.pairs import (
    BETTER,
    DIFFERENT,
    HIGHER,
    INCONCLUSIVE,
    LOAD,
    LOWER,
    SAME,
    WORSE,
    Comparison,
    Note,
    Row,
    Side,
)
from jouletrace.compare.setup import differences, response, warnings
from jouletrace.compare.sides import (
    REPEATS,
    WATCHED_METRICS,
    Source,
    boards,
    in_common,
    metrics_of,
    same_thing,
    sensor_gain,
    sources,
)
from jouletrace.compare.spread import solve
from jouletrace.errors import BadInputError
from jouletrace.run import Estimate, Run, load
from jouletrace.run.estimate import widened
from jouletrace.run.header import RUN_JSON
from jouletrace.run.names import with_article
from jouletrace.run.parts import ABSENT, STORED_SCATTER, Part
from jouletrace.sensor.gain import shown
from jouletrace.stats.interval import Z95
from jouletrace.stats.several import holm

Runs = Sequence[tuple[Run, str]]
"""Runs and their origins."""

MARGIN = 0.01
"""Default relative difference below which two sides count as equal."""

MOST = 8
"""Largest number of comparisons: more Runs are a sweep, for which a comparison with the first means little."""

NEUTRAL = ("power_w",)
"""Metrics of which less isn't necessarily better; nor is it of the latency of iterations that hold other numbers of
samples, and of anything where devices were watched, whatever they did."""

_OF_NO_COUNT = ("latency_s", "time_to_first_token_s", "power_w", "energy_per_token_j")
"""Metrics per iteration or token, which don't depend on the samples in an iteration, and metrics without a count."""


def compare(a: Runs, b: Runs, margin: float = MARGIN, *, fail_if: Sequence[str] = ()) -> Comparison:
    """The differences between two sides, with intervals and verdicts that hold over all rows together.

    Args:
        a: Runs of the first thing. Differences are compared with their spread and that of ``b``.
        b: Runs of the second thing.
        margin: Relative difference below which two sides count as equal.
        fail_if: Checks such as "energy>5%" (see ``compare.checks``).

    Raises:
        BadInputError: If the sides have nothing in common, one of them isn't runs of one thing, or a check is
            malformed or selects no row, or the margin isn't between 0 and 1.
    """
    if not 0 < margin < 1:
        raise BadInputError(f"--margin {margin:g}: must lie between 0 and 100 %")
    checks = [parse(text) for text in fail_if]
    (side_a, notes_a), (side_b, notes_b) = sources(a, "A"), sources(b, "B")
    kinds = [side[0].run.kind for side in (side_a, side_b)]
    watched = all(source.watched for source in (*side_a, *side_b))
    if kinds[0] != kinds[1] and not watched:
        places = [side[0].place for side in (side_a, side_b)]
        raise BadInputError(
            f"A is {with_article(kinds[0])} ({places[0]}), B {with_article(kinds[1])} ({places[1]}): "
            "they can't be compared"
        )
    notes, scale = differences(side_a, side_b)
    gain = sensor_gain(side_a, side_b)
    df = [min(source.scatter_df for source in side) for side in (side_a, side_b)]
    rows = _rows("model", [[source.whole for source in side] for side in (side_a, side_b)], scale, df=df)
    parts_a, parts_b = parts_of(side_a), parts_of(side_b)
    matched = match(parts_a, parts_b)
    for level, parts, flags in matched.pairs:
        rows += _rows(level, parts, scale, flags)
    if not any(row.measured for row in rows):
        where = " and ".join(", ".join(source.place for source in side) for side in (side_a, side_b))
        loads = [[path[-1].name for level, path, _ in parts if level == LOAD] for parts in (parts_a, parts_b)]
        if all(loads):
            names = " and ".join(map(", ".join, loads))
            raise BadInputError(f"no load of A has the name of a load of B ({names}): send the same to both ({where})")
        raise BadInputError(f"A and B have no figure in common, so there is nothing to compare ({where})")
    rows = solve(rows, gain, watched)
    if len(side_a) == len(side_b) == 1:
        rows = pair(rows, side_a[0].run, side_b[0].run)
    neutral = WATCHED_METRICS if watched else NEUTRAL if scale == (1.0, 1.0) else (*NEUTRAL, "latency_s")
    rows = judge(rows, margin, neutral=neutral)
    shared = in_common(side_a, side_b)
    return Comparison(
        a=_side("A", side_a),
        b=_side("B", side_b),
        rows=rows,
        method=_method(side_a, side_b, rows),
        unmatched_a=matched.only_a,
        unmatched_b=matched.only_b,
        notes=[*notes, *_on_parts(matched, parts_a, parts_b), *notes_a, *notes_b],
        warnings=[*shared, *warnings(side_a, side_b)],
        margin=margin,
        gain=gain,
        simulated=any(source.run.simulated for source in (*side_a, *side_b)),
        checks=evaluate(checks, rows),
        runs=_runs(side_a, side_b),
        doubts=_doubts(side_a, side_b),
        same=any(note.code == "same_run" for note in shared),
        programs=side_a[0].run.kind == "program",
    )


def _rows(
    level: str,
    sides: Sequence[Sequence[Part | None]],
    scale: tuple[float, float],
    flags: tuple[str, ...] = (),
    df: Sequence[float] = (math.inf, math.inf),
) -> list[Row]:
    """A row per metric of one part, from its figures in each run of A and of B.

    ``scale`` makes the sides refer to the same work; ``flags`` say how the part differs between them; ``df`` are the
    most degrees of freedom of an interval in each.
    """
    of_b = next(part for part in sides[1] if part is not None)
    found = []
    for metric in metrics_of(level):
        factors = (1.0, 1.0) if metric in _OF_NO_COUNT else scale
        a, b = (Group.of([_figure(part, metric) for part in sides[i]], factors[i], df[i]) for i in (0, 1))
        found.append(Row(level, of_b, metric, (a, b), flags))
    return [row for row in found if row.stated]


def _figure(part: Part | None, metric: str) -> Estimate:
    """A figure of a part, its interval widened by the chance within the run where that is stated apart."""
    if part is None:
        return ABSENT
    found, chance = part.get(metric), part.get(f"{metric.removesuffix('_j')}_error_pct")
    return found if chance.value is None else widened(found, Z95 * chance.value / 100 * abs(found.value or 0.0))


def _on_parts(matched: Matched, a: Found, b: Found) -> list[Note]:
    """Remarks on the lists of parts, where they hardly match."""
    if bool(a) != bool(b):
        return [Note("no_parts", ("B" if a else "A",))]
    if a and not matched.pairs:
        return [Note("other_parts")]
    if len(matched.only_a) + len(matched.only_b) > len(matched.pairs):
        return [Note("few_parts_in_common")]
    return []


def _side(name: str, found: Sequence[Source]) -> Side:
    places, devices = (source.place for source in found), boards(found).values()
    return Side(name, found[0].run, tuple(places), tuple(devices), len(found))


def _runs(*sides: Sequence[Source]) -> list[Run]:
    """Each Run, and each Run of several processes as a whole, which may show more."""
    places = dict.fromkeys(Path(source.place).parent for side in sides for source in side)
    wholes = [place.parent for place in places if place.name == REPEATS and (place.parent / RUN_JSON).is_file()]
    return [*(source.run for side in sides for source in side), *map(load, wholes)]


def _doubts(*sides: Sequence[Source]) -> list[Note]:
    found = []
    if len({response(source.run) for side in sides for source in side if not source.watched}) > 1:
        found.append(Note("calibration_differs"))
    names = [{(source.run.workload.get("name"), source.run.kind) for source in side} for side in sides]
    boards_of = [{device.name for source in side for device in source.run.devices} for side in sides]
    if not names[0] & names[1] and all(boards_of) and not boards_of[0] & boards_of[1]:
        imported = any(kind == "import" for side in names for _, kind in side)
        found.append(Note("gpus_and_workloads_differ", (imported,)))
    return found


def _method(a: Sequence[Source], b: Sequence[Source], rows: Sequence[Row]) -> Note:
    if len(a) + len(b) > 2:
        return Note("runs", (len(a), len(b)))
    if a[0].run.kind == "bench":
        return Note("loads")
    if a[0].watched and b[0].watched:
        return Note("records")
    return Note("stored_scatter" if any(STORED_SCATTER in row.flags for row in rows) else "single_runs")


def judge(rows: Sequence[Row], margin: float, unknown: str = "one_run", neutral: Sequence[str] = NEUTRAL) -> list[Row]:
    """The rows with verdicts.

    Half of the permitted error is for the model's figures, and half is shared evenly by the levels of parts;
    within each, rows are corrected by Holm's procedure.

    Args:
        rows: The rows to judge, with their contrasts.
        margin: Relative difference below which two sides count as equal.
        unknown: Reason for rows without a contrast.
        neutral: Metrics of which neither more nor less is better.
    """
    parts = {row.level for row in rows} - {"model"}
    alphas = {**dict.fromkeys(parts, ALPHA / 2 / max(len(parts), 1)), "model": ALPHA / 2 if parts else ALPHA}
    tests: dict[int, tuple[bool, float]] = {}
    for level, alpha in alphas.items():
        p = {i: row.contrast.p() for i, row in enumerate(rows) if row.level == level and row.contrast is not None}
        tests |= zip(p, holm(list(p.values()), alpha), strict=True)
    return [
        _judged(row, *tests.get(i, (False, alphas[row.level])), margin, unknown, neutral) for i, row in enumerate(rows)
    ]


def _judged(row: Row, rejected: bool, alpha: float, margin: float, unknown: str, neutral: Sequence[str]) -> Row:
    row = replace(row, alpha=alpha)
    if row.contrast is None:
        reason = unknown if row.measured else row.a.reason or row.b.reason
        return replace(row, verdict=INCONCLUSIVE, reason=reason)
    verdict, reason = _verdict(row.metric in neutral, row.contrast, row.change, rejected, margin)
    below = ("below_margin",) if verdict in DIFFERENT and _within(row.change, margin) else ()
    return replace(row, verdict=verdict, reason=reason, flags=(*row.flags, *below))


def _verdict(
    neutral: bool, contrast: Contrast, change: Estimate, rejected: bool, margin: float
) -> tuple[str, str | None]:
    """The verdict, and by code why it is inconclusive."""
    if rejected:
        if contrast.gain and not shown(change):
            return INCONCLUSIVE, "sensor_gain"
        less, more = (LOWER, HIGHER) if neutral else (BETTER, WORSE)
        return (more if contrast.b > contrast.a else less), None
    if _within(change, margin):
        return SAME, None
    return INCONCLUSIVE, "sensor_gain" if contrast.gain >= margin else "spread_between_runs"


def _within(change: Estimate, margin: float) -> bool:
    return change.low is not None and change.high is not None and -margin <= change.low and change.high <= margin


def against_first(runs: Sequence[Runs]) -> tuple[list[Comparison], list[Note]]:
    """Comparisons of the first of several Runs with each other one; Runs of one thing form one side, if things differ.

    Args:
        runs: For each named Run, the independent runs in it (see ``sides.open_runs``).

    Returns:
        The comparisons, and notes on those that could not be made and why.
    """
    sides = _sides(runs)
    found: list[Comparison] = []
    notes: list[Note] = []
    for other in sides[1 : MOST + 1]:
        try:
            found.append(compare(sides[0], other))
        except BadInputError as error:
            notes.append(Note("not_compared", (tuple(Path(place).name for _, place in other), str(error))))
    if len(sides) > MOST + 1:
        notes.append(Note("more_not_compared", (len(sides) - MOST - 1,)))
    return found, notes


def _sides(runs: Sequence[Runs]) -> list[list[tuple[Run, str]]]:
    """Sides of the comparisons: Runs of one thing on one GPU form a side; if all are, each forms its own side."""
    sides: list[list[tuple[Run, str]]] = []
    for each in runs:
        alike = next((side for side in sides if same_thing(side[0][0], each[0][0])), None)
        if alike is None:
            sides.append(list(each))
        else:
            alike.extend(each)
    return sides if len(sides) > 1 else [list(each) for each in runs]
