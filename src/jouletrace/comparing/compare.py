"""``compare``: two sides, each one Run or several Runs of one thing; and verdicts on their differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jouletrace.comparing.by_path import matched
from jouletrace.comparing.checks import evaluate, parse
from jouletrace.comparing.pairs import (
    ALPHA,
    BETTER,
    DIFFERENT,
    HIGHER,
    INCONCLUSIVE,
    LENGTH,
    LOAD,
    LOWER,
    ONE_RUN,
    SAME,
    WORSE,
    ComparedRow,
    Comparison,
    Note,
    SideMetric,
)
from jouletrace.comparing.setup import differences, response, warnings
from jouletrace.comparing.sides import (
    WATCHED_METRICS,
    Runs,
    in_common,
    metrics_of,
    open_runs,
    same_thing,
    sensor_gain,
    side_of,
)
from jouletrace.comparing.source import Side
from jouletrace.comparing.spread import solve
from jouletrace.comparing.why import why
from jouletrace.errors import BadInputError
from jouletrace.run import Estimate, Run, load
from jouletrace.run.estimate import widened
from jouletrace.run.files import RUN_JSON
from jouletrace.run.loading import REPEATS, lost_repeats
from jouletrace.run.names import with_article
from jouletrace.run.parts import ABSENT, STORED_SCATTER, Part
from jouletrace.sensor.gain import shown
from jouletrace.stats.contrast import Contrast
from jouletrace.stats.interval import Z95
from jouletrace.stats.several import holm
from jouletrace.wing import kind_of

MARGIN = 0.01
"""Default relative difference below which two sides count as equal."""

MOST = 8
"""Largest number of comparisons: more Runs are a sweep, for which a comparison with the first means little."""

WORK = "energy_work_j"
"""Compared where both sides have it: where its host doesn't limit, a side has none."""

OF_NO_COUNT = ("latency_s", "time_to_first_token_s", "power_w", "energy_per_token_j")
"""Metrics per iteration or token, which don't depend on the samples in an iteration, and metrics without a count."""


OF_PARTS = ("no_parts", "other_parts", "few_parts_in_common")
"""Notes that parts hardly match, which says nothing where the difference is divided by what does the same."""


def compare(
    a: Runs, b: Runs, margin: float = MARGIN, *, fail_if: str | Sequence[str] = (), alpha: float = ALPHA
) -> Comparison:
    """The differences between two sides, with intervals and verdicts that hold over all rows together.

    Args:
        a: Runs of the first thing: a Run or the path of one, or several in a list, whose spread and that of ``b`` the
            differences are compared with.
        b: Runs of the second thing.
        margin: Relative difference below which two sides count as equal.
        fail_if: A check such as "energy>5%", or several, as of ``jouletrace compare --fail-if``; ``checks`` has their
            outcomes.
        alpha: Probability of at least one false alarm among all verdicts, and among all checks: of one of several
            comparisons, its share.

    Returns:
        The comparison; print it, or read ``verdicts``, ``rows`` or ``to_pandas()``.

    Raises:
        BadInputError: If a Run is missing or damaged, the sides have nothing in common, one of them isn't runs of one
            thing, or a check is malformed or selects no row, or the margin isn't between 0 and 1.
    """
    if not 0 < margin < 1:
        raise BadInputError(f"--margin {margin:g}: must lie between 0 and 100 %")
    checks = [parse(text) for text in ([fail_if] if isinstance(fail_if, str) else fail_if)]
    (side_a, notes_a), (side_b, notes_b) = side_of("A", open_runs(a)), side_of("B", open_runs(b))
    watched = side_a.watched and side_b.watched
    if side_a.run.kind != side_b.run.kind and not watched:
        which = [f"{with_article(side.run.kind)} ({side.runs[0]})" for side in (side_a, side_b)]
        raise BadInputError(f"A is {which[0]}, B {which[1]}: they can't be compared")
    notes, scale = differences(side_a, side_b)
    gain = sensor_gain(side_a, side_b)
    wholes = [[source.whole for source in side.sources] for side in (side_a, side_b)]
    rows = _rows("model", wholes, scale)
    pairs, side_a, side_b = matched(side_a, side_b)
    for matched_pair in pairs:
        rows += _rows(matched_pair.level, matched_pair.parts, scale, matched_pair.flags)
    if not any(row.measured for row in rows):
        where = " and ".join(", ".join(side.runs) for side in (side_a, side_b))
        loads = [[listed.name for listed in side.only if listed.level == LOAD] for side in (side_a, side_b)]
        if all(loads):
            names = " and ".join(map(", ".join, loads))
            raise BadInputError(f"no load of A has the name of a load of B ({names}): send the same to both ({where})")
        raise BadInputError(f"A and B have no figure in common, so there is nothing to compare ({where})")
    rows = solve(rows, gain or 0.0, recorded=side_a.run.kind in ("profile", "program"))
    if side_a.count == side_b.count == 1 and (kind := kind_of(side_a.run.workload)) is not None:
        rows = kind.paired(rows, side_a.run, side_b.run)
    if watched and not (side_a.timed and side_b.timed):
        rows = [replace(row, contrast=None, reason=LENGTH) if row.metric == "time_s" else row for row in rows]
    rows = judge(rows, margin, "one_run", scale, alpha)
    gathered = _wholes(side_a, side_b)
    comparison = Comparison(
        a=side_a,
        b=side_b,
        rows=rows,
        method=_method(side_a, side_b, rows),
        notes=[*notes, *_on_parts(len(pairs), side_a, side_b), *notes_a, *notes_b],
        warnings=[*in_common(side_a, side_b), *warnings(side_a, side_b)],
        margin=margin,
        alpha=alpha,
        gain=gain,
        runs=[*(source.run for side in (side_a, side_b) for source in side.sources), *gathered.values()],
        doubts=[*_lost(gathered), *_doubts(side_a, side_b)],
    )
    comparison.checks = evaluate(checks, comparison)
    if not comparison.same:
        comparison.why, more = why(side_a, side_b, comparison.whole, scale, gain or 0.0, margin)
        matched_all = comparison.why is not None and comparison.why.kernels
        comparison.notes = [*(note for note in comparison.notes if not (matched_all and note.code in OF_PARTS)), *more]
    return comparison


def _rows(
    level: str,
    sides: Sequence[Sequence[Part | None]],
    scale: tuple[float, float],
    flags: tuple[str, ...] = (),
) -> list[ComparedRow]:
    """A row per metric of one part, from its figures in each run of A and of B.

    ``scale`` makes the sides refer to the same work; ``flags`` say how the part differs between them.
    """
    of_b = next(part for part in sides[1] if part is not None)
    rows = []
    for metric in metrics_of(level, of_b):
        factors = (1.0, 1.0) if metric in OF_NO_COUNT else scale
        a, b = (
            SideMetric(tuple(_figure(part, metric).scaled(factor) for part in side))
            for side, factor in zip(sides, factors, strict=True)
        )
        rows.append(ComparedRow(level, of_b, metric, (a, b), flags))
    return [row for row in rows if row.stated and (row.measured or row.metric != WORK)]


def _figure(part: Part | None, metric: str) -> Estimate:
    """A figure of a part, its interval widened by the chance within the run where that is stated apart."""
    if part is None:
        return ABSENT
    figure, chance = part.get(metric), part.get(f"{metric.removesuffix('_j')}_error_pct")
    return figure if chance.value is None else widened(figure, Z95 * chance.value / 100 * abs(figure.value or 0.0))


def _on_parts(pairs: int, a: Side, b: Side) -> list[Note]:
    """Remarks on the lists of parts, where they hardly match."""
    if not pairs and bool(a.only) != bool(b.only):
        return [Note("no_parts", ("B" if a.only else "A",))]
    if not pairs and a.only:
        return [Note("other_parts")]
    return [Note("few_parts_in_common")] if len(a.only) + len(b.only) > pairs else []


def _wholes(*sides: Side) -> dict[Path, Run]:
    """Each Run of several processes as a whole, which may show more than those, by its folder."""
    places = dict.fromkeys(Path(path).parent for side in sides for path in side.runs)
    wholes = [path.parent for path in places if path.name == REPEATS and (path.parent / RUN_JSON).is_file()]
    return {path: load(path) for path in wholes}


def _lost(wholes: Mapping[Path, Run]) -> list[Note]:
    """Notes on processes whose Runs are gone."""
    lost = {path: tuple(lost_repeats(run, path)) for path, run in wholes.items()}
    return [Note("repeat_lost", (str(path), names)) for path, names in lost.items() if names]


def _doubts(*sides: Side) -> list[Note]:
    """Notes on what makes a comparison doubtful: sensors calibrated in some Runs, other workloads and GPUs."""
    notes = []
    origins = {response(source.run) for side in sides for source in side.sources if not source.watched} - {None}
    if len(origins) > 1:
        notes.append(Note("calibration_differs"))
    names = [{(source.run.workload.get("name"), source.run.kind) for source in side.sources} for side in sides]
    gpus = [{device.name for device in side.boards.values()} for side in sides]
    if not names[0] & names[1] and all(gpus) and not gpus[0] & gpus[1]:
        imported = any(kind == "import" for side in names for _, kind in side)
        notes.append(Note("gpus_and_workloads_differ", (imported,)))
    return notes


def _method(a: Side, b: Side, rows: Sequence[ComparedRow]) -> Note:
    """How the differences came about."""
    if a.count + b.count > 2:
        return Note("runs", (a.count, b.count))
    if a.run.kind == "bench":
        return Note("loads")
    return Note("stored_scatter" if any(STORED_SCATTER in row.flags for row in rows) else "single_runs")


def judge(
    rows: Sequence[ComparedRow], margin: float, unknown: str, scale: tuple[float, float], permitted: float = ALPHA
) -> list[ComparedRow]:
    """The rows with verdicts.

    Half of the permitted error is for the model's figures, and half is shared evenly by the levels of parts;
    within each, rows are corrected by Holm's procedure.

    Args:
        rows: The rows to judge, with their contrasts.
        margin: Relative difference below which two sides count as equal.
        unknown: Reason for rows without a contrast.
        scale: Factors of figures of iterations, which hold other numbers of samples if these differ.
        permitted: Probability of at least one false alarm.
    """
    neutral = _neutral(rows, scale)
    parts = {row.level for row in rows} - {"model"}
    alphas = {
        **dict.fromkeys(parts, permitted / 2 / max(len(parts), 1)),
        "model": permitted / 2 if parts else permitted,
    }
    tests: dict[int, tuple[bool, float]] = {}
    for level, alpha in alphas.items():
        p = {i: row.contrast.p() for i, row in enumerate(rows) if row.level == level and row.contrast is not None}
        tests |= zip(p, holm(list(p.values()), alpha), strict=True)
    return [
        _judged(row, *tests.get(i, (False, alphas[row.level])), margin, unknown, neutral) for i, row in enumerate(rows)
    ]


def _neutral(rows: Sequence[ComparedRow], scale: tuple[float, float]) -> tuple[str, ...]:
    """Metrics of which less isn't necessarily better.

    That is power; latency of iterations that hold other numbers of samples; and anything of devices that were watched,
    whatever they did, of which the whole has a time.
    """
    if any(row.level == "model" and row.metric == "time_s" for row in rows):
        return WATCHED_METRICS
    return ("power_w",) if scale[0] == scale[1] else ("power_w", "latency_s")


def _judged(
    row: ComparedRow, rejected: bool, alpha: float, margin: float, unknown: str, neutral: Sequence[str]
) -> ComparedRow:
    row = replace(row, alpha=alpha)
    if row.contrast is None:
        reason = row.reason or unknown if row.measured else row.a.reason or row.b.reason
        return replace(row, verdict=INCONCLUSIVE, reason=reason)
    verdict, reason = _verdict(row.metric in neutral, row.contrast, row.change, rejected, margin)
    if (reason == "spread_between_runs" and STORED_SCATTER in row.flags) or (reason and ONE_RUN in row.flags):
        reason = ONE_RUN
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


def against_first(runs: Sequence[Sequence[tuple[Run, str]]]) -> tuple[list[Comparison], list[Note]]:
    """Comparisons of the first of several Runs with each other one; Runs of one thing form one side, if things differ.

    Args:
        runs: For each named Run, the independent runs in it (see ``sides.open_runs``).

    Returns:
        The comparisons, and notes on those that could not be made and why.
    """
    sides = _sides(runs)
    comparisons: list[Comparison] = []
    notes: list[Note] = []
    for other in sides[1 : MOST + 1]:
        try:
            comparisons.append(compare(sides[0], other))
        except BadInputError as error:
            notes.append(Note("not_compared", (tuple(Path(path).name for _, path in other), str(error))))
    if len(sides) > MOST + 1:
        notes.append(Note("more_not_compared", (len(sides) - MOST - 1,)))
    return comparisons, notes


def _sides(runs: Sequence[Sequence[tuple[Run, str]]]) -> list[list[tuple[Run, str]]]:
    """Sides of the comparisons: Runs of one thing on one GPU form a side; if all are, each forms its own side."""
    sides: list[list[tuple[Run, str]]] = []
    for each in runs:
        alike = next((side for side in sides if same_thing(side[0][0], each[0][0])), None)
        if alike is None:
            sides.append(list(each))
        else:
            alike.extend(each)
    return sides if len(sides) > 1 else [list(each) for each in runs]
