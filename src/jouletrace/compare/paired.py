"""Two workloads alternating on one GPU: differences within blocks, in which drift and gain cancel.

A block runs A B B A (or B A A B): a linear drift affects both alike.
Its figure is the logarithm of B over A, and blocks are independent of one another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from jouletrace.analysis.aliasing import FLAG, of_whole
from jouletrace.analysis.figures import Figures
from jouletrace.analysis.latency import latencies_s
from jouletrace.analysis.power import no_power_reason
from jouletrace.analysis.windows import fill, of_variant
from jouletrace.compare.checks import evaluate, parse
from jouletrace.compare.compare import MARGIN, NEUTRAL, judge
from jouletrace.compare.contrast import ALPHA, Contrast, Floats, Group
from jouletrace.compare.pairs import PER_SAMPLE, Comparison, Note, Row, Side
from jouletrace.run import MODEL_UNIT, Run
from jouletrace.run.forms import WorkloadFacts
from jouletrace.run.parts import Part
from jouletrace.stats.quantiles import student

SIDES: tuple[Literal["a", "b"], ...] = ("a", "b")
"""Variants of the windows, and suffixes of the lanes of timed iterations."""

LEAST_BLOCKS = 3
METRICS = ("latency_s", "iteration_time_s", "power_w", "energy_total_j")

_OPTIONS = {"batch": "batch {}", "seq_len": "{} tokens", "dtype": "{}", "mode": "{}"}
"""Options that may differ between the sides, and how a title says one."""


@dataclass(frozen=True)
class Blocks:
    """A metric in each block, for both sides, shapes (blocks,); NaN where it is missing."""

    a: Floats
    b: Floats

    @property
    def logs(self) -> Floats:
        """Logarithm of B over A of the blocks that have both."""
        known = np.isfinite(self.a) & np.isfinite(self.b) & (self.a > 0) & (self.b > 0)
        return np.asarray(np.log(self.b[known] / self.a[known]), np.float64)


def lane(side: str, block: int) -> str:
    """Lane of the timed iterations of a side in a block."""
    return f"latency {side} {block}"


def blocks_of(run: Run) -> dict[str, Blocks]:
    """The metrics of a Run of ``ab`` by block; computes its windows."""
    fill(run)
    numbers = sorted(set(run.windows["block"].to_pylist()))
    found: dict[str, list[Floats]] = {name: [] for name in METRICS}
    for side in SIDES:
        rows = of_variant(run, side)
        column = {name: rows[name].to_numpy().astype(np.float64) for name in ("block", "replays", "energy_j", "time_s")}
        values = {
            "iteration_time_s": column["time_s"] / column["replays"],
            "power_w": column["energy_j"] / column["time_s"],
            "energy_total_j": column["energy_j"] / column["replays"],
        }
        for name, value in values.items():
            found[name].append(np.array([_mean(value[column["block"] == number]) for number in numbers]))
        latencies = (latencies_s(run, lane(side, number)) for number in numbers)
        found["latency_s"].append(np.array([np.median(each) if len(each) else math.nan for each in latencies]))
    return {name: Blocks(*both) for name, both in found.items()}


def blocks_needed(run: Run, target: float) -> int:
    """Number of blocks that brings the intervals of time and energy to half-widths of ``target``, by Stein's method.

    Args:
        run: Run with the blocks of the first stage.
        target: Relative half-width.
    """
    found = blocks_of(run)
    most = 0
    for name in ("iteration_time_s", "energy_total_j"):
        logs = found[name].logs
        if len(logs) >= LEAST_BLOCKS:
            t = student(1 - ALPHA / len(METRICS) / 2, len(logs) - 1)
            most = max(most, math.ceil((t * float(logs.std(ddof=1)) / target) ** 2))
    return most


def paired(run: Run, fail_if: Sequence[str] = ()) -> Comparison:
    """The comparison within a Run of ``ab``, with the verdicts and checks of ``compare``.

    Args:
        run: The Run, which states the margin that it was measured for.
        fail_if: Checks (see ``compare.checks``).

    Raises:
        BadInputError: If a check is malformed or selects no row.
    """
    margin = run.settings.get("margin", MARGIN)
    blocks = blocks_of(run)
    scale = _per_sample(run)
    whole = Part(MODEL_UNIT, None, "model", run.workload.get("name") or "ab")
    device = run.devices[0].id
    aliased = dict.fromkeys(flag for side in SIDES for flag in of_whole(run, device, side))
    rows = []
    for metric, found in blocks.items():
        by = scale if metric in ("iteration_time_s", "energy_total_j") else (1.0, 1.0)
        scaled = Blocks(found.a * by[0], found.b * by[1])
        of_power = metric in ("power_w", "energy_total_j")
        reason, flags = (no_power_reason(run, device), tuple(aliased)) if of_power else ("not_measured", ())
        groups = [Group(values, np.full(len(values), np.nan), reason) for values in (scaled.a, scaled.b)]
        contrast = _contrast(scaled, run.settings.get("first_stage") or 0)
        rows.append(Row("model", whole, metric, (groups[0], groups[1]), flags, contrast))
    neutral = NEUTRAL if scale == (1.0, 1.0) else (*NEUTRAL, "latency_s")
    rows = judge(rows, margin, unknown="few_blocks", neutral=neutral)
    notes = [] if scale == (1.0, 1.0) else [Note(PER_SAMPLE)]
    named = zip("AB", _titles(run), strict=True)
    side_a, side_b = (Side(name, run, (title,), tuple(run.devices), 1, title) for name, title in named)
    return Comparison(
        side_a,
        side_b,
        rows,
        Note("blocks", (len(blocks["iteration_time_s"].logs),)),
        notes=notes if run.complete else [*notes, Note("ended_early")],
        warnings=[Note("warned", ("", (), warning.message)) for warning in run.warnings],
        margin=margin,
        simulated=run.simulated,
        runs=[run],
        checks=evaluate([parse(text) for text in fail_if], rows),
    )


def own_sides(run: Run) -> Comparison | None:
    """The figures of both sides within one Run, for Runs of ``ab``; None for others, and where nothing was measured."""
    return paired(run) if run.kind == "ab" and run.devices and len(run.windows) else None


def add_results(run: Run, comparison: Comparison) -> None:
    """Add the figures of both sides to a Run, so that ``show`` can print them."""
    results = Figures()
    results.unit(MODEL_UNIT, "model", run.workload.get("name") or "ab", count=1)
    for number, (side, title) in enumerate(zip(SIDES, _titles(run), strict=True), start=1):
        results.unit(number, "range", f"{side.upper()}: {title}", MODEL_UNIT, count=1)
        for row in comparison.rows:
            if row.metric != "latency_s":
                metric = "time_s" if row.metric == "iteration_time_s" else row.metric
                results.add(number, metric, getattr(row, side), [flag for flag in row.flags if flag == FLAG])
    run.results, run.units = results.results(), results.units()


def _contrast(blocks: Blocks, first_stage: int) -> Contrast | None:
    logs = blocks.logs
    if len(logs) < LEAST_BLOCKS:
        return None
    first = logs[:first_stage] if len(logs) > first_stage >= LEAST_BLOCKS else logs
    # As in ``stats.stopping``: the first stage's spread, unless the spread of all blocks is larger.
    error = max(float(first.std(ddof=1)), float(logs.std(ddof=1))) / math.sqrt(len(logs))
    a = float(np.nanmean(blocks.a))
    b = a * math.exp(float(logs.mean()))
    return Contrast(a, b, 0.0, (b * error) ** 2, float(len(first) - 1))


def _titles(run: Run) -> list[str]:
    """The title of each side: its workload, and its options where they differ, as they were resolved."""
    sides: Sequence[Mapping[str, object]] = _sides(run)
    full = [str(own.get("name") or side) for own, side in zip(sides, SIDES, strict=True)]
    short = [Path(name).name for name in full]  # for a file, without its folder, unless the folder differs
    names = short if (short[0] == short[1]) == (full[0] == full[1]) else full
    apart = {key: words for key, words in _OPTIONS.items() if sides[0].get(key) != sides[1].get(key)}
    return [
        " · ".join([name, *(words.format(own[key]) for key, words in apart.items() if own.get(key))])
        for name, own in zip(names, sides, strict=True)
    ]


def _sides(run: Run) -> tuple[WorkloadFacts, WorkloadFacts]:
    return run.workload.get("a", WorkloadFacts()), run.workload.get("b", WorkloadFacts())


def _per_sample(run: Run) -> tuple[float, float]:
    items = [own.get("items") or 1 for own in _sides(run)]
    return (1.0, 1.0) if items[0] == items[1] else (1 / items[0], 1 / items[1])


def _mean(values: Floats) -> float:
    """Mean of both windows of a block; without one of them drift would no longer cancel."""
    return float(values.mean()) if len(values) == 2 else math.nan
