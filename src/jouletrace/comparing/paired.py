"""Two workloads alternating on one GPU: differences within blocks, in which drift and gain cancel.

A block runs A B B A (or B A A B): a linear drift affects both alike.
Its figure is the logarithm of B over A, and blocks are independent of one another.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from jouletrace.analysis.iterations import fill, of_variant
from jouletrace.analysis.latency import latencies_s
from jouletrace.analysis.power import no_power_reason
from jouletrace.arrays import Floats
from jouletrace.comparing.checks import evaluate, parse
from jouletrace.comparing.compare import MARGIN, OF_NO_COUNT, judge
from jouletrace.comparing.pairs import ALPHA, ComparedRow, Comparison, Note, SideMetric
from jouletrace.comparing.setup import scaled
from jouletrace.comparing.source import Side, SourceRun
from jouletrace.comparing.why import why
from jouletrace.run import MODEL_UNIT, Estimate, Run, tables
from jouletrace.run.figures import Figures
from jouletrace.run.forms import WorkloadFacts
from jouletrace.run.lazily import compute as pc
from jouletrace.run.model import draft_of
from jouletrace.run.parts import Part
from jouletrace.run.readings import ALIASED
from jouletrace.stats.contrast import Contrast
from jouletrace.stats.interval import mean_estimate
from jouletrace.stats.quantiles import student
from jouletrace.stats.stopping import two_stage_estimate

SIDES: tuple[Literal["a", "b"], ...] = ("a", "b")
"""Variants of the windows, and suffixes of the lanes of timed iterations."""

LEAST_BLOCKS = 3
METRICS = ("latency_s", "iteration_time_s", "power_w", "energy_total_j")

_OPTIONS = {"batch": "batch {}", "seq_len": "{} tokens", "dtype": "{}", "mode": "{}"}
"""Options that may differ between the sides, and how a title says one."""

_IN_NAMES = ("dtype", "mode")
"""Those in the name of a side's range, by which Runs of all versions are recognised."""


def lane(side: str, block: int) -> str:
    """Lane of the timed iterations of a side in a block."""
    return f"latency {side} {block}"


def blocks_of(run: Run) -> dict[str, list[Floats]]:
    """The metrics of a Run of ``ab`` in A and in B by block, NaN where one is missing, from its windows."""
    numbers = sorted(set(run.windows["block"].to_pylist()))
    values_of: dict[str, list[Floats]] = {name: [] for name in METRICS}
    for side in SIDES:
        rows = of_variant(run, side)
        column = {name: rows[name].to_numpy().astype(np.float64) for name in ("block", "replays", "energy_j", "time_s")}
        values = {
            "iteration_time_s": column["time_s"] / column["replays"],
            "power_w": column["energy_j"] / column["time_s"],
            "energy_total_j": column["energy_j"] / column["replays"],
        }
        for name, value in values.items():
            values_of[name].append(np.array([_mean(value[column["block"] == number]) for number in numbers]))
        latencies = (latencies_s(run, lane(side, number)) for number in numbers)
        values_of["latency_s"].append(np.array([np.median(each) if len(each) else math.nan for each in latencies]))
    return values_of


def _group(values: Floats, reason: str) -> SideMetric:
    """The values of a side; NaN is missing for the reason."""
    return SideMetric(
        tuple(Estimate.null(reason) if math.isnan(value) else Estimate(value) for value in values.tolist())
    )


def _logs(a: Floats, b: Floats) -> Floats:
    """Logarithm of B over A of the blocks that have both."""
    positive = np.isfinite(a) & np.isfinite(b) & (a > 0) & (b > 0)
    return np.asarray(np.log(b[positive] / a[positive]), np.float64)


def blocks_needed(run: Run, target: float) -> int:
    """Number of blocks that brings the intervals of time and energy to half-widths of ``target``, by Stein's method.

    Args:
        run: Run with the blocks of the first stage.
        target: Relative half-width.
    """
    fill(run)
    blocks = blocks_of(run)
    most = 0
    for name in ("iteration_time_s", "energy_total_j"):
        logs = _logs(*blocks[name])
        if len(logs) >= LEAST_BLOCKS:
            t = student(1 - ALPHA / len(METRICS) / 2, len(logs) - 1)
            most = max(most, math.ceil((t * float(logs.std(ddof=1)) / target) ** 2))
    return most


def paired(run: Run, fail_if: Sequence[str] = ()) -> Comparison:
    """The comparison within a Run of ``ab``, with the verdicts and checks of ``compare``.

    Args:
        run: The Run, which states the margin that it was measured for.
        fail_if: Checks (see ``comparing.checks``).

    Raises:
        BadInputError: If a check is malformed or selects no row.
    """
    margin = run.settings.get("margin", MARGIN)
    solved = fill(run)
    blocks = blocks_of(run)
    scale, notes = scaled(*_sides(run))
    whole = Part(MODEL_UNIT, None, "model", run.workload.get("name") or "ab")
    device = run.devices[0].id
    aliased = (ALIASED,) if any(ALIASED in load.flags for load in solved.values()) else ()
    rows = []
    for metric, both in blocks.items():
        of_power = metric in ("power_w", "energy_total_j")
        reason, flags = (no_power_reason(run, device), aliased) if of_power else ("not_measured", ())
        per = (1.0, 1.0) if metric in OF_NO_COUNT else scale
        a, b = (_group(factor * values, reason) for values, factor in zip(both, per, strict=True))
        contrast = _contrast(a.value, b.value, run.settings.get("first_stage") or 0)
        rows.append(ComparedRow("model", whole, metric, (a, b), flags, contrast))
    rows = judge(rows, margin, "few_blocks", scale)
    sides = [
        Side(name, (SourceRun(run, title, whole),), title)
        for name, title in zip("AB", _titles(run, _OPTIONS), strict=True)
    ]
    comparison = Comparison(
        sides[0],
        sides[1],
        rows,
        Note("blocks", (len(_logs(*blocks["iteration_time_s"])),)),
        notes=[*notes, *([] if run.complete else [Note("ended_early")])],
        warnings=[Note("warned", ("", (), warning.message)) for warning in run.warnings],
        margin=margin,
        runs=[run],
    )
    comparison.checks = evaluate([parse(text) for text in fail_if], comparison)
    recorded = [_recorded(run, side, number, blocks) for number, side in enumerate(SIDES)]
    if not comparison.same and recorded[0] is not None and recorded[1] is not None:
        comparison.why, more = why(recorded[0], recorded[1], comparison.whole, scale, 0.0, margin)
        comparison.notes = [*comparison.notes, *more]
    return comparison


def _recorded(run: Run, side: str, number: int, blocks: Mapping[str, Sequence[Floats]]) -> Side | None:
    """A side as a profile, with the energies of its recorded kernels and the whole of its windows; None without any."""
    facts = _sides(run)[number]
    if not (recordings := facts.get("recordings")):
        return None
    from jouletrace.analysis.parts import recorded_of  # scipy takes a second to come in

    about, draft, figures = recordings[0], draft_of(run), Figures()
    start, draft.kind, draft.workload = run.activity["start_ns"], "profile", facts
    draft.activity = run.activity.filter(
        pc.and_(pc.greater_equal(start, about["start_ns"]), pc.less(start, about["end_ns"]))
    )
    ids = {*draft.activity["unit"].to_pylist(), *draft.activity["site"].to_pylist(), MODEL_UNIT}
    rows = run.units.to_pylist()
    ids |= {row["parent"] for row in rows if row["id"] in ids}
    draft.units = tables.from_rows([row for row in rows if row["id"] in ids], "units")
    name, values = str(facts.get("name") or side), {name: both[number] for name, both in blocks.items()}
    figures.model(name)
    whole = {
        name: mean_estimate(each[np.isfinite(each)]) for name, each in values.items() if np.isfinite(each).sum() > 1
    }
    figures.add_each(MODEL_UNIT, whole)
    recorded_of(draft, figures).add(scaled=True)
    figures.become(draft)
    return Side(side.upper(), (SourceRun(draft, side, Part(MODEL_UNIT, None, "model", name, figures=whole)),))


def own_sides(run: Run) -> Comparison | None:
    """The figures of both sides within one Run, for Runs of ``ab``; None for others, and where nothing was measured."""
    return paired(run) if run.kind == "ab" and run.devices and len(run.windows) else None


def add_results(run: Run, comparison: Comparison) -> None:
    """Add the figures of both sides to a Run, so that ``show`` can print them."""
    results = Figures()
    results.model(run.workload.get("name") or "ab")
    results.units.keep(row for row in run.units.to_pylist() if row["level"] in ("op", "kernel", "site"))
    for side, title in zip(SIDES, _titles(run, _IN_NAMES), strict=True):
        unit = results.units.add("range", f"{side.upper()}: {title}", count=1)
        for row in comparison.rows:
            if row.metric != "latency_s":
                metric = "time_s" if row.metric == "iteration_time_s" else row.metric
                results.add(unit, metric, getattr(row, side), [flag for flag in row.flags if flag == ALIASED])
    results.become(run)


def _contrast(a: Floats, b: Floats, first_stage: int) -> Contrast | None:
    """The contrast of the mean block of B with that of A; None of too few blocks."""
    logs = _logs(a, b)
    if len(logs) < LEAST_BLOCKS:
        return None
    first = first_stage if len(logs) > first_stage >= LEAST_BLOCKS else len(logs)
    estimate = two_stage_estimate(logs, first)
    error = (estimate.half_width or 0.0) / student(0.975, first - 1)
    mean = float(np.nanmean(a))
    of_b = mean * math.exp(estimate.value or 0.0)
    return Contrast(mean, of_b, 0.0, (of_b * error) ** 2, float(first - 1))


def _titles(run: Run, options: Collection[str]) -> list[str]:
    """The title of each side: its workload, and which of the options differ, as they were resolved."""
    sides: Sequence[Mapping[str, object]] = _sides(run)
    full = [str(side_facts.get("name") or side) for side_facts, side in zip(sides, SIDES, strict=True)]
    short = [Path(name).name for name in full]  # for a file, without its folder, unless the folder differs
    names = short if (short[0] == short[1]) == (full[0] == full[1]) else full
    apart = {key: _OPTIONS[key] for key in options if sides[0].get(key) != sides[1].get(key)}
    return [
        " · ".join([name, *(words.format(side_facts[key]) for key, words in apart.items() if side_facts.get(key))])
        for name, side_facts in zip(names, sides, strict=True)
    ]


def _sides(run: Run) -> tuple[WorkloadFacts, WorkloadFacts]:
    return run.workload.get("a", WorkloadFacts()), run.workload.get("b", WorkloadFacts())


def _mean(values: Floats) -> float:
    """Mean of both windows of a block; without one of them drift would no longer cancel."""
    return float(values.mean()) if len(values) == 2 else math.nan
