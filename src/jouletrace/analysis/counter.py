"""The energy counter of a device: a witness of its power record, and the figure where it is alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.power import TOO_SHORT, energies, most_w, power_record, too_short
from jouletrace.run import Estimate, Run
from jouletrace.run.channels import ENERGY_COUNTER
from jouletrace.run.figures import Figures
from jouletrace.run.readings import Readings
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.counter import CounterReads, gained, printed_step_j, record_over_counter, sound_reads
from jouletrace.sensor.power_record import HOLE_PERIODS, cumulative_energy, integrate

TOLERANCE = 0.05
"""Relative difference up to which a record and its counter agree; on recorded H100s and H200s it is below 0.015."""

_LONGEST_STEP_S, _UPDATES = 2.0, 3.0
"""A GPU's counter that is read for longer has stepped, or for so many times of its usual distance between steps."""

_SURE = 2.0
"""Half-widths of 95 % from which on a record and its counter differ: one alone would doubt one sound record of 20."""

_LEAST_W = 2.0
"""No GPU that is on draws less."""

_LONG_UPDATES, _CAUGHT_UP = 10.0, 0.5
"""After a stall of so many usual steps a counter has counted so much of the mean power before it, or has lost it."""

ALONE = "counter_alone"
"""Flag of figures that the counter gives."""


def counter_ratio(run: Run, device: str) -> Estimate:
    """Energy of the record over that of the GPU's counter: one sensor's agreement with itself.

    Over the longest segment without a hole: between runs in separate processes nothing is recorded.
    """
    power = power_record(run, device)
    if power is None or len(run.series(device, ENERGY_COUNTER)[0]) < 2:
        return Estimate.null("no_counter", "counter")
    return record_over_counter(*power, _reads(run, device, power[0]))


def add_by_counter(
    run: Run, figures: Figures, unit: int, device: str, within_ns: tuple[int, int] | None = None
) -> bool:
    """Add energy, power and time by a device's counter alone as figures of ``unit``; False without a counter.

    Of its reads those count that lie in the recording, where its edges ``within_ns`` are known: it reads on for a while
    after it. Where they give no energy, the time is that of the recording.
    """
    channel = run.channel(device, ENERGY_COUNTER)
    if channel is None:
        return False
    reads = _reads(run, device, within_ns=within_ns)
    energy, seconds = gained(reads)
    if within_ns is not None and too_short(channel.period_s or 0.0, *within_ns):
        energy = Estimate.null(TOO_SHORT, "counter")
    if within_ns is not None and energy.value is None:
        seconds = (within_ns[1] - within_ns[0]) / 1e9
    apart, whole = np.diff(reads.time_ns), np.ptp(reads.time_ns) if len(reads) else 0
    gaps = apart > np.maximum(HOLE_PERIODS * np.median(apart), TOLERANCE * whole) if len(apart) else apart > 0
    if run.kind == "import" and len(reads) == 2:
        text = "the energy is that between two reads of the energy counter: whether it always counted can't be seen"
        run.warn("sparse_readings", f"{text}; log it more often", device)
    codes = {ALONE: True, "covered_alone": len(reads.resets) > 0, "holes_bridged": bool(gaps.any())}
    figures.add(unit, "time_s", Estimate(seconds, seconds, seconds, len(reads), "counter"))
    figures.add_energy(unit, replace(energy, flags=tuple(code for code, holds in codes.items() if holds)), seconds)
    return True


def warn_of_counter(run: Run, device: str) -> None:
    """Warn where a device's counter contradicts its power record, or what a GPU can draw; where it fell or jumped."""
    if run.channel(device, ENERGY_COUNTER) is None:
        return
    power = power_record(run, device)
    # beyond a hole another process may have begun at zero
    reads = _reads(run, device, None if power is None or run.kind == "import" else power[0])
    if not reads.counts:
        text = f"what may be an energy counter falls {reads.falls} times: it is none, and isn't used"
        run.warn("not_a_counter", text, device)
        return
    if len(reads.resets):
        run.warn("counter_reset", _reset_text(reads), device)
    if left := reads.left_out:
        run.warn("counter_implausible", f"{left} reads of the energy counter were no counts and left out", device)
    there = power if power is not None and len(power[0]) > 1 and power[0].value.any() else None
    still_s, still_j = _stood_still(None if there is None else there[0], reads)
    is_gpu, (energy, seconds) = any(info.id == device and info.kind != "meter" for info in run.devices), gained(reads)
    if still_s and (there or is_gpu):
        drawn = f"in which the power record has {still_j:.0f} J: one of the two is wrong"
        drawn = drawn if there else "in which a GPU that is on draws more than it counted"
        run.warn("counter_stuck", f"the energy counter stood still for {still_s:.3g} s {drawn}", device)
    elif not there and is_gpu and energy.value is not None and energy.value / seconds < _LEAST_W:
        text = f"the energy counter gained {energy.value / seconds:.2g} W on average"
        run.warn("counter_stuck", f"{text}, and a GPU that is on draws more", device)
    elif there:
        _compare(run, device, *there)


def _compare(run: Run, device: str, record: Readings, response: StepResponse) -> None:
    """Warn where the counter gained another energy than the record has."""
    ratio = counter_ratio(run, device)
    if ratio.value is None or ratio.half_width is None:
        return
    off = abs(ratio.value - 1)
    if off <= max(TOLERANCE, _SURE * ratio.half_width):
        return
    # Readings far apart may have missed what the counter counted. They speak of the time the sensor's delay before them
    start, end = _longest(record) - round(1e9 * response.delay_s)
    by_power = energies(run, device, [start], [end]).estimate()
    sd = np.inf if by_power.value is None or by_power.half_width is None else by_power.half_width / by_power.value
    if off > _SURE * np.hypot(ratio.half_width, ratio.value * sd):
        text = f"the power record has {ratio.value:.3g} times the energy that the energy counter gained"
        run.warn("counter_differs", f"{text}: one of the two is wrong", device)


def _stood_still(record: Readings | None, reads: CounterReads) -> tuple[float, float]:
    """For how long a counter that should have moved did not, in s, and what was drawn meanwhile, in J; else 0.

    Without a record that is the least that a GPU draws or, in a long stall, half of the mean power before it.
    """
    if len(reads) < 2:
        return 0.0, 0.0
    moved = np.flatnonzero(np.diff(reads.energy_j))
    edges = reads.time_ns[np.stack([np.append(0, moved + 1), np.append(moved, len(reads) - 1)])]
    least_j = 2 * printed_step_j(reads.energy_j)
    caught = np.append(np.diff(reads.energy_j)[moved], 0.0)  # late, but not lost
    if record is None:
        still_s = np.diff(edges, axis=0)[0] / 1e9
        before_s = (edges[0] - edges[0, 0]) / 1e9
        before_j = np.append(0.0, np.cumsum(np.where(np.isin(moved + 1, reads.resets), 0.0, caught[:-1])))
        long = still_s > _LONG_UPDATES * np.median(still_s)
        long &= np.median(caught) > least_j  # coarse steps are rare at low power
        mean_w = before_j / np.maximum(before_s, 1e-9)
        drawn = np.maximum(_LEAST_W, long * _CAUGHT_UP * mean_w) * still_s
    else:
        edges = np.clip(edges, *record.time_ns[[0, -1]])
        drawn = integrate(record.time_ns, record.value, *edges)
        least_j = max(least_j, TOLERANCE * float(np.diff(cumulative_energy(record.time_ns, record.value)[[0, -1]])[0]))
    still_s = np.diff(edges, axis=0)[0] / 1e9
    usual_s = float(np.median(still_s[:-1])) if len(moved) else 0.0
    stuck = (still_s > max(_LONGEST_STEP_S, _UPDATES * usual_s)) & (drawn - caught > least_j)
    longest = int(np.argmax(drawn * stuck))
    return float((still_s * stuck)[longest]), float(drawn[longest])


def _reads(
    run: Run, device: str, record: Readings | None = None, within_ns: tuple[int, int] | None = None
) -> CounterReads:
    """Reads of a device's counter: those within edges, or in the longest segment without a hole of a record."""
    time, joules = run.series(device, ENERGY_COUNTER)
    if record is not None and len(record.holes):
        within_ns = tuple(_longest(record).tolist())
    if within_ns is not None:
        start, end = within_ns
        time, joules = (some[(time >= start) & (time <= end)] for some in (time, joules))
    return replace(sound_reads(time, joules, most_w=most_w(run, device)), channel=run.channel(device, ENERGY_COUNTER))


def _longest(record: Readings) -> NDArray[np.int64]:
    """Start and end of the longest segment of a record without a hole."""
    edges = np.sort(np.append(record.time_ns[[0, -1]], record.holes)).reshape(-1, 2)
    return np.asarray(edges[np.argmax(edges[:, 1] - edges[:, 0])])


def _reset_text(reads: CounterReads) -> str:
    """The text that says how often a counter fell or jumped, and where first."""
    first = int(reads.resets[0])
    before, after = reads.energy_j[first - 1], reads.energy_j[first]
    how, why = ("fell", "it was reset, or wrapped") if after < before else ("jumped", "more than can have been drawn")
    after_s = (reads.time_ns[first] - reads.time_ns[0]) / 1e9
    many = f" {len(reads.resets)} times, first" if len(reads.resets) > 1 else ""
    return f"the energy counter {how}{many} from {before:.6g} to {after:.6g} J after {after_s:.3g} s: {why}"
