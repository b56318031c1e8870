"""Facts of a Run that reports state beside its parts, computed once a print."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow.compute as pc

from jouletrace.analysis.advice import Advice, advice_of
from jouletrace.analysis.budget import OFFSET_W, absolute, gain_pct, meters_of
from jouletrace.analysis.checks import Outcomes, doubts, endings, others, outcomes
from jouletrace.analysis.conditions import Conditions, first
from jouletrace.analysis.iterations import per_iteration
from jouletrace.analysis.latency import block_means, distribution, latencies_s, percentiles, stated_latency
from jouletrace.analysis.monitor import MAY_COUNT_TWICE, RECORD_SHORTER, RECORDS_APART
from jouletrace.arrays import Floats
from jouletrace.attribution.outcome import HOLES
from jouletrace.run import Estimate, Run, RunWarning
from jouletrace.run.estimate import widened
from jouletrace.run.metrics import PROGRAM_TIME
from jouletrace.run.parts import ABSENT, Parts
from jouletrace.sensor.gain import gain_of
from jouletrace.stats.interval import Z95, total

_FIRST = ("energy_total_j", "energy_per_inference_j", "energy_per_request_j")
"""Figures that may be stated first."""

_TOGETHER = ("energy_total_j", "power_w", "time_s")
"""Figures of devices that a recording has of all of them together."""


class Untouched(NamedTuple):
    """The windows in which a workload ran with nothing attached: how many, their iterations and seconds in all."""

    windows: int
    iterations: int
    seconds: float


@dataclass(frozen=True)
class Facts:
    """Facts of a Run that reports state beside its parts."""

    checks: Outcomes  # of its checks
    conditions: Conditions  # clocks, temperature, throttling and limit while energy was measured, on the first GPU
    conditions_of: Mapping[str, Conditions]  # the same of each GPU by its id
    ended: list[RunWarning]  # those that say that it ended early; empty of a whole Run
    warnings: list[RunWarning]  # all others
    seconds: Floats  # of each iteration that was timed one by one, shape (n,)
    latency: Mapping[str, float | None]  # their distribution in milliseconds (``latency.distribution``)
    percentiles: Mapping[str, Estimate]  # of it in seconds (``latency.percentiles``)
    blocks: Mapping[str, float | None]  # the same of means of blocks (``latency.block_means``)
    untouched: Untouched  # what the energy of an iteration is the mean of
    advice: Sequence[Advice]  # the largest first
    gain: float  # relative gain error that the sensors state; 0 where none does
    of_known: Mapping[str, Estimate]  # energy and power of the devices that have one, and their longest time
    of_devices: Mapping[str, Estimate]  # the same of all; null where a device has none, in time where theirs differ
    inference_s: Estimate  # seconds of an inference as given, stated or timed; null where no energy of one follows
    host_s: tuple[float, float] | None  # shortest and longest iteration among the windows, where the host limits
    doubted: frozenset[str]  # names of loads whose figures are not valid
    # Half-widths with gain and offset of the sensors, in J, of the figures that may be stated first, by id and metric;
    # ``together`` counts as the whole's
    absolute_j: Mapping[tuple[int, str], float | None]
    # limits of gain, %, and offset, W (0: a meter corrected both), if printed intervals have them
    sensor: tuple[float, float] | None = None
    printed: Facts | None = None  # the same with these in all intervals

    @property
    def together(self) -> Estimate:
        """Energy of the devices that have one, in J; null without any."""
        return self.of_known[_FIRST[0]]

    def of_whole(self, parts: Parts) -> dict[str, Estimate]:
        """Figures of the whole; where it has none, those of all devices together."""
        there = {name: figure for name, figure in parts.whole.figures.items() if figure.value is not None}
        return {**parts.whole.figures, **self.of_devices, **there}


def _absolute_j(run: Run, parts: Parts, together: Estimate) -> Mapping[tuple[int, str], float | None]:
    whole, gain = parts.whole, gain_pct(run)
    rows = [(whole, name) for name in _FIRST] + [(load, _FIRST[2]) for load in parts.units("load")]
    absolute_of = {(part.id, name): absolute(run, part, name, part.get(name), gain) for part, name in rows}
    devices = parts.units("device")
    for device in devices if len(devices) > 1 or whole.get(_FIRST[0]).value is None else ():
        absolute_of[device.id, _FIRST[0]] = absolute(run, device, _FIRST[0], device.get(_FIRST[0]))
    if whole.get(_FIRST[0]).value is None and together.value is not None:
        all_of_them = replace(whole, figures={PROGRAM_TIME: of_known(run, parts, "time_s")})
        absolute_of[whole.id, _FIRST[0]] = absolute(run, all_of_them, _FIRST[0], together, gain)
    return absolute_of


def of_devices(run: Run, parts: Parts, metric: str) -> Estimate:
    """Energy or power of all devices, in J or W, or their time, a program's own, in s.

    Null where a device has no such figure, and in time where devices were watched for different ones.
    """
    lacking = [unit.get(metric) for unit in parts.units("device") if metric in unit.figures]
    together, missing = of_known(run, parts, metric), [figure for figure in lacking if figure.value is None]
    if metric == "time_s" and not {warning.code for warning in run.warnings}.isdisjoint(
        (RECORD_SHORTER, RECORDS_APART)
    ):
        return Estimate.null("times_differ", together.method)
    return missing[0] if missing and metric in _TOGETHER[:2] else together


def of_known(run: Run, parts: Parts, metric: str) -> Estimate:
    """Energy or power of all devices that have one, in J or W; their longest time, a program's own, in s; else null.

    There is no power of devices that were watched at different times, and no sum of what may be counted twice.
    """
    if run.kind == "program" and metric == "time_s":
        return parts.time
    units = [unit for unit in parts.units("device") if metric in unit.figures]
    figures = [unit.get(metric) for unit in units]
    stated = [figure for figure in figures if figure.value is not None]
    if metric not in _TOGETHER or not figures:
        return ABSENT
    if metric == "time_s":
        return max(stated, key=lambda figure: figure.value or 0.0, default=figures[0])
    if len(stated) > 1 and any(warning.code == MAY_COUNT_TWICE for warning in run.warnings):
        return Estimate.null(MAY_COUNT_TWICE, stated[0].method)
    if metric == "power_w" and any(warning.code == RECORDS_APART for warning in run.warnings):
        return Estimate.null("times_differ", stated[0].method if stated else "")
    energies = [unit.get(_FIRST[0]) for unit in units if unit.get(metric).value is not None]
    holes = [energy.budget.get(HOLES, 0.0) / energy.value if energy.value else 0.0 for energy in energies]
    return _together(stated, holes) if len(stated) > 1 else [*stated, *figures][0]


def _together(each: Sequence[Estimate], holes_of: Sequence[float]) -> Estimate:
    """Sum of devices: in holes their errors are alike, whose logger stopped for all of them; others are independent.

    ``holes_of`` are the standard uncertainties of holes, as shares of the energies.
    """
    holes = [share * (figure.value or 0.0) for share, figure in zip(holes_of, each, strict=True)]
    whole, most, more = total(each), sum(holes), sum(holes) ** 2 - sum(hole**2 for hole in holes)
    budget = {cause: most if cause == HOLES else u for cause, u in whole.budget.items()}
    return replace(widened(whole, Z95 * math.sqrt(max(more, 0.0))), budget=budget)


def _with_sensor(run: Run, parts: Parts, facts: Facts) -> Facts:
    change = parts.change
    if change is None or (gain := gain_pct(run)) is None:
        return facts
    of_all = {PROGRAM_TIME: facts.of_known["time_s"], "power_w": facts.of_known["power_w"], **parts.whole.figures}

    def figures(some: Mapping[str, Estimate]) -> Mapping[str, Estimate]:
        wide = change(replace(parts.whole, figures={**of_all, **some})).figures
        return {name: wide[name] for name in some}

    advice = [replace(rule, energy=figures({"energy_saved_j": rule.energy})["energy_saved_j"]) for rule in facts.advice]
    there, every = figures(facts.of_known), figures(facts.of_devices)
    facts = replace(facts, sensor=(gain, 0.0 if meters_of(run, run.devices) else OFFSET_W))
    return replace(facts, printed=replace(facts, of_known=there, of_devices=every, advice=advice, absolute_j={}))


def facts_of(run: Run, parts: Parts) -> Facts:
    """The facts of a Run, whose figures ``parts`` holds."""
    checks = outcomes(run, parts)
    windows = run.windows.filter(pc.equal(run.windows["variant"], "untouched"))
    ns = pc.sum(pc.subtract(windows["end_ns"], windows["start_ns"])).as_py() or 0
    together = {metric: of_known(run, parts, metric) for metric in _TOGETHER}
    times, _ = per_iteration(run, "time_s")
    facts = Facts(
        checks,
        first(checks.conditions),
        checks.conditions,
        endings(run),
        others(run),
        latencies_s(run),
        distribution(run),
        percentiles(run),
        block_means(run, run.settings.get("block") or 100),
        Untouched(len(windows), pc.sum(windows["replays"]).as_py() or 0, ns / 1e9),
        advice_of(run, parts, checks),
        gain_of(run, unstated_pct=0.0) or 0.0,
        together,
        {metric: of_devices(run, parts, metric) for metric in _TOGETHER},
        stated_latency(run) if "energy_per_inference_j" in parts.whole.figures else ABSENT,
        (float(times.min()), float(times.max())) if parts.get("energy_work_j").value is not None else None,
        frozenset(load.name for load in parts.units("load") if doubts(run, load.name)),
        _absolute_j(run, parts, together[_FIRST[0]]),
    )
    return _with_sensor(run, parts, facts)
