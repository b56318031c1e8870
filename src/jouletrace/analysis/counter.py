"""The energy counter of a device: a witness of its power record, and the figure where it is alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.figures import Figures
from jouletrace.analysis.power import energies, most_w, power_record
from jouletrace.run import Estimate, Run
from jouletrace.run.channels import ENERGY_COUNTER
from jouletrace.run.readings import Readings
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.counter import (
    CounterReads,
    find_steps,
    gained,
    printed_step_j,
    record_over_counter,
    sound_reads,
)
from jouletrace.sensor.power_record import integrate

TOLERANCE = 0.05
"""Relative difference up to which a record and its counter agree; on recorded H100s and H200s it is below 0.015."""

_LONGEST_STEP_S = 2.0
"""A GPU's counter that is read for longer has stepped."""

ALONE = "counter_alone"
"""Flag of figures that the counter gives."""


def counter_ratio(run: Run, device: str) -> Estimate:
    """Energy of the record over that of the GPU's counter: one sensor's agreement with itself.

    Over the longest segment without a hole: between runs in separate processes nothing is recorded.
    """
    found = power_record(run, device)
    stamps, joules = run.series(device, ENERGY_COUNTER)
    if found is None or len(stamps) < 2:
        return Estimate.null("no_counter", "counter")
    inside = _longest(found[0], stamps)
    return record_over_counter(*found, find_steps(stamps[inside], joules[inside], most_w=most_w(run, device)))


def add_by_counter(run: Run, figures: Figures, unit: int, device: str) -> bool:
    """Add energy, power and time by a device's counter alone as figures of ``unit``; False without a counter."""
    if run.channel(device, ENERGY_COUNTER) is None:
        return False
    reads = _reads(run, device)
    energy, seconds = gained(reads)
    flags = [ALONE, *(["covered_alone"] if len(reads.resets) else [])]
    figures.add(unit, "time_s", Estimate(seconds, seconds, seconds, len(reads), "counter"))
    figures.add_energy(unit, replace(energy, flags=tuple(flags)), seconds)
    return True


def warn_of_counter(run: Run, device: str) -> None:
    """Warn where a device's counter contradicts its power record, stood still, fell or jumped."""
    if run.channel(device, ENERGY_COUNTER) is None:
        return
    reads, found = _reads(run, device), power_record(run, device)
    if found is not None and run.kind != "import":  # beyond a hole another process may have begun at zero
        stamps, joules = run.series(device, ENERGY_COUNTER)
        inside = _longest(found[0], stamps)
        reads = sound_reads(stamps[inside], joules[inside], most_w=most_w(run, device))
    if not reads.counts:
        text = f"what may be an energy counter falls {reads.falls} times: it is none, and isn't used"
        run.warn("not_a_counter", text, device)
        return
    if len(reads.resets):
        run.warn("counter_reset", _reset_text(reads), device)
    if left_out := reads.issues.get("implausible"):
        run.warn("counter_implausible", f"{left_out} reads of the energy counter were no counts and left out", device)
    if found is not None and len(found[0]) > 1 and found[0].value.any():
        _compare(run, device, *found, reads)


def _compare(run: Run, device: str, record: Readings, response: StepResponse, reads: CounterReads) -> None:
    """Warn where the counter stood still or gained another energy than the record has."""
    still_s, still_j = _stood_still(record, reads)
    if still_s > _LONGEST_STEP_S:
        text = f"the energy counter stood still for {still_s:.3g} s in which the power record has {still_j:.0f} J"
        run.warn("counter_stuck", f"{text}: one of the two is wrong", device)
        return
    ratio = counter_ratio(run, device)
    if ratio.value is None or ratio.half_width is None:
        return
    off = abs(ratio.value - 1)
    if off <= max(TOLERANCE, ratio.half_width):
        return
    if off > np.hypot(ratio.half_width, ratio.value * _uncertainty(run, device, record, response)):
        text = f"the power record has {ratio.value:.3g} times the energy that the energy counter gained"
        run.warn("counter_differs", f"{text}: one of the two is wrong", device)


def _stood_still(record: Readings, reads: CounterReads) -> tuple[float, float]:
    """For how long a counter that should have moved did not, in s, and what the record has meanwhile, in J; else 0."""
    if len(reads) < 2:
        return 0.0, 0.0
    change = np.diff(reads.energy_j)
    moved = np.flatnonzero(change)
    edges = reads.time_ns[np.stack([np.append(0, moved + 1), np.append(moved, len(reads) - 1)])]
    edges = np.clip(edges, record.time_ns[0], record.time_ns[-1])
    drawn = integrate(record.time_ns, record.value, *edges)
    longest = int(np.argmax(drawn))
    plain = np.delete(change, reads.resets - 1)
    step_j = max(printed_step_j(reads.energy_j), float(plain.max(initial=0.0)))
    whole = float(integrate(record.time_ns, record.value, record.time_ns[:1], record.time_ns[-1:])[0])
    if drawn[longest] <= max(2 * step_j, TOLERANCE * whole):
        return 0.0, 0.0
    return float(edges[1, longest] - edges[0, longest]) / 1e9, float(drawn[longest])


def _uncertainty(run: Run, device: str, record: Readings, response: StepResponse) -> float:
    """Relative half-width of the record's own energy: readings far apart may have missed what the counter counted."""
    # Readings speak of the time that lies the sensor's delay before them.
    segment = record.time_ns[_longest(record, record.time_ns)] - round(1e9 * response.delay_s)
    found = energies(run, device, segment[:1], segment[-1:]).estimate()
    return np.inf if found.value is None or found.half_width is None else found.half_width / found.value


def _reads(run: Run, device: str) -> CounterReads:
    return sound_reads(*run.series(device, ENERGY_COUNTER), most_w=most_w(run, device))


def _longest(record: Readings, stamps: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True where a stamp lies in the longest segment of a record without a hole."""
    if not len(record) or not len(record.holes):
        return np.ones(len(stamps), bool)
    begin = np.append(record.time_ns[0], record.holes[:, 1])
    end = np.append(record.holes[:, 0], record.time_ns[-1])
    longest = int(np.argmax(end - begin))
    return np.asarray((stamps >= begin[longest]) & (stamps <= end[longest]))


def _reset_text(reads: CounterReads) -> str:
    """The text that says how often a counter fell or jumped, and where first."""
    first = int(reads.resets[0])
    before, after = reads.energy_j[first - 1], reads.energy_j[first]
    how, why = ("fell", "it was reset, or wrapped") if after < before else ("jumped", "more than can have been drawn")
    after_s = (reads.time_ns[first] - reads.time_ns[0]) / 1e9
    many = f" {len(reads.resets)} times, first" if len(reads.resets) > 1 else ""
    return f"the energy counter {how}{many} from {before:.6g} to {after:.6g} J after {after_s:.3g} s: {why}"
