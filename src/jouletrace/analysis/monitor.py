"""Figures of a recording of whatever ran: levels, mean power and energy of each device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow.compute as pc

from jouletrace.analysis.aliasing import of_steps
from jouletrace.analysis.counter import add_by_counter
from jouletrace.analysis.imported_recording import seconds_text
from jouletrace.analysis.levels import idle_and_working_levels
from jouletrace.analysis.power import TOO_SHORT, energies, no_power_reason, power_record, readings, too_short
from jouletrace.arrays import Floats
from jouletrace.attribution.spans import BLIND, shown_ns, span_energies
from jouletrace.run import DeviceInfo, Estimate, Run, device_labels
from jouletrace.run.channels import POWER
from jouletrace.run.estimate import widened
from jouletrace.run.figures import Figures
from jouletrace.run.model import held
from jouletrace.run.readings import IMPLAUSIBLE, Readings
from jouletrace.run.spans import spans_of
from jouletrace.sensor.power_record import printed_step, rated_w, spliced
from jouletrace.sensor.shares import Response
from jouletrace.stats.interval import Z95

_DOUBTS = ("interval_assumed", "power_implausible")
"""Warnings of an import that its energy is flagged with."""

_LEAST = 3
"""Readings of a log from which on it shows whether time is missing between two."""

_ENDS = 0.01
"""Share of a log from which on it is stated that its ends are left out."""

_LACKING = 0.01
"""Share of the time from which on it is stated that a device's record lacks it."""

_COMMON = 0.5
"""Share of the shortest of the devices' times in which all were watched, from which on they have a power together."""

RECORD_SHORTER: Final = "record_shorter"
RECORDS_APART: Final = "records_apart"
"""Codes of the warning: devices were watched for different times, or at different ones."""

MAY_COUNT_TWICE: Final = "may_count_twice"
"""Code of the warning: a meter may see what another device draws."""

_ROUNDING = "rounding of the readings"
"""Source of the uncertainty of an energy: those of a steady level are all off by the same."""

_LEVELS = ("power_idle_w", "power_working_w", "power_difference_w")


def add_devices(run: Run, figures: Figures) -> None:
    """Add a unit a device below the whole recording."""
    figures.model(run.workload.get("name", "recording"))
    add_each(run, figures, run.devices)


def add_each(run: Run, figures: Figures, devices: Sequence[DeviceInfo]) -> dict[str, int]:
    """Add a unit for each of some devices, and warn where one was watched for a shorter time; their ids by device."""
    labels, watched = device_labels(run.devices), dict[str, tuple[int, int]]()
    units = {info.id: figures.units.add("device", labels[info.id], module=info.id) for info in devices}
    for device, unit in units.items():
        record_and_response, missing = readings(run, device), _why_missing(run, device)
        if record_and_response is not None and not missing:
            watched[labels[device]] = _add_device(run, figures, unit, device, *record_and_response)
            continue
        for metric in _LEVELS:
            figures.add(unit, metric, Estimate.null(missing, "record"))
        edges = _recorded(run, device)
        if not add_by_counter(run, figures, unit, device, edges):
            seconds = (edges[1] - edges[0]) / 1e9 if edges else 0.0
            time = Estimate(seconds, seconds, seconds, 1, "clock") if seconds else Estimate.null(missing, "record")
            for metric in ("power_w", "energy_total_j"):
                figures.add(unit, metric, Estimate.null(missing, "record"))
            figures.add(unit, "time_s", time)
    there = [unit for unit in units.values() if figures.get(unit, "energy_total_j").value is not None]
    covered = {figures.units.rows[unit]["name"]: figures.get(unit, "time_s").value or 0.0 for unit in there}
    if len(covered) > 1:
        _warn_of_shorter(run, covered, watched)
    return units


def _add_device(
    run: Run, figures: Figures, unit: int, device: str, record: Readings, response: Response
) -> tuple[int, int]:
    """Add a device's levels, mean power and energy as figures of ``unit``; returns from when to when it was watched."""
    rated = next((rated_w(info.name) for info in run.devices if info.id == device), None)
    levels = idle_and_working_levels(record, response, _used_pct(run, device, record), rated)
    if levels.resting:
        lower, upper = levels.resting
        text = f"the power rests at {lower:.3g} W and at {upper:.3g} W: idle is the lower level"
        run.warn("idle_levels", text, device)
    rounding = Z95 * printed_step(record.value) / math.sqrt(12)
    each = (levels.idle, rounding), (levels.working, rounding), (levels.difference, math.sqrt(2) * rounding)
    for metric, (level, half) in zip(_LEVELS, each, strict=True):
        figures.add(unit, metric, widened(level, half), record.flags)
    start, end = watched(run, device, record, response)
    _warn_of_ends(run, device, record, end - start)
    energy, seconds = _energy(run, device, record, response, start, end)
    lost = energy.value is None and energy.reason != TOO_SHORT
    if lost and add_by_counter(run, figures, unit, device, _recorded(run, device)):
        return start, end
    figures.add(unit, "time_s", Estimate(seconds, seconds, seconds, len(record), "record"))
    if energy.value is not None:
        # A log without times: its energy is right only as far as its rows are as far apart as was assumed.
        # And power that no GPU draws is right only if the unit is.
        others = {other.id for other in run.devices} - {device}
        assumed = [code for code in _DOUBTS if any(w.code == code and w.where not in others for w in run.warnings)]
        energy = replace(energy, flags=(*energy.flags, *assumed, *of_steps(run, device, seconds)))
    figures.add_energy(unit, energy, seconds)
    return start, end


def _used_pct(run: Run, device: str, record: Readings) -> Floats | None:
    """Utilisation that was read last at each reading of power, the first at those before, in percent; None without."""
    stamps, used = run.series(device, "utilization_gpu_pct")
    order = np.argsort(stamps, kind="stable")
    last = np.searchsorted(stamps[order], record.time_ns, side="right") - 1
    return used[order][np.maximum(last, 0)] if len(stamps) else None


def _why_missing(run: Run, device: str) -> str:
    """Why a device's power record supports no figure; "" where it may."""
    power = power_record(run, device)
    if power is None:
        return no_power_reason(run, device)
    if len(power[0]) < (_LEAST if run.kind == "import" else 2):
        none = IMPLAUSIBLE if len(power[0].implausible_ns) else "no_samples"
        return "too_few_values" if run.kind == "import" and len(power[0]) else none
    return "" if power[0].value.any() else "power_all_zero"


def _warn_of_shorter(run: Run, seconds: Mapping[str, float], watched: Mapping[str, tuple[int, int]]) -> None:
    """Say which devices' energies lack a part of the time in which any was watched, and how much.

    ``seconds`` are those that each energy is of. Devices that are read in turn start up to one reading apart.
    """
    edges = np.array(list(watched.values()), dtype=np.int64).reshape(-1, 2)
    whole = float(edges[:, 1].max() - edges[:, 0].min()) / 1e9 if len(edges) else 0.0
    apart = max((channel.period_s or 0.0 for channel in run.channels if channel.name == POWER), default=0.0)
    longest, lacking = max(seconds.values()), dict[str, float]()
    for label, own_s in seconds.items():
        start, end = watched.get(label, (0, round(1e9 * own_s)))
        beside = whole - (end - start) / 1e9
        lacking[label] = max(longest - own_s, beside if beside > apart else 0.0)
    said = [
        f"{seconds_text(lacking_s)} of {label}"
        for label, lacking_s in lacking.items()
        if lacking_s > _LACKING * longest
    ]
    if said:
        text = f"of {seconds_text(max(longest, whole))} the power records lack {', '.join(said)}"
        common_s = float(edges[:, 1].min() - edges[:, 0].max()) / 1e9 if len(edges) == len(seconds) else longest
        apart_in_time = common_s < _COMMON * min(seconds.values())
        why = ", and no power is of all, which were watched at different times" if apart_in_time else ""
        run.warn(RECORDS_APART if apart_in_time else RECORD_SHORTER, f"{text}: energies are of what each covers{why}")


def _energy(
    run: Run, device: str, record: Readings, response: Response, start: int, end: int
) -> tuple[Estimate, float]:
    """Energy from ``start`` to ``end`` in joules, and the seconds that it is of.

    Where holes are too long to be bridged it is that of the time between them: one lost hour must not cost the night.
    There is none between readings of which each is alone.
    """
    span, seconds = energies(run, device, [start], [end], bursts_ns=[]), (end - start) / 1e9
    method = "record" if sensor_known(run, device) else "samples"
    flags = tuple("holes_bridged" if code == "hole_in_record" else code for code in span.flags[0])
    if span.reason[0] == "hole_in_record" and record.issues.get("hole", 0) < len(record) - 1:
        whole, edges = spliced(record, [start, end])
        # an end within the last hole lies behind all that the one reading after it speaks of
        edges = np.minimum(edges, whole.time_ns[-1] - int((response.delay_s + response.middle_s) * 1e9))
        span = span_energies(whole, response, edges[:1], edges[1:], bursts_ns=[])
        seconds = float(np.diff(edges)[0]) / 1e9
        flags = (*(code for code in flags if code != "holes_bridged"), "covered_alone")
    energy = span.estimate(n=len(record), method=method)
    if energy.value is not None and too_short(response.period_s, start, end):
        energy = Estimate.null(TOO_SHORT, method)
    fails = any(warning.code == "power_zero" and warning.where == device for warning in run.warnings)
    if energy.value is None or (fails and np.mean(record.value == 0) > BLIND):
        # it is all that there is, however long
        slow = run.kind == "import" and energy.reason == TOO_SHORT
        why = "power_zero" if fails else "too_uncertain" if slow else energy.reason
        return Estimate.null(why or "unknown", method), (end - start) / 1e9
    if method != "record":
        flags = tuple(code for code in flags if code != "nominal_response")  # none is assumed
    rounding_j = seconds * printed_step(record.value) / math.sqrt(12)
    energy = replace(energy, flags=flags, budget={**energy.budget, _ROUNDING: rounding_j})
    return widened(energy, Z95 * rounding_j), seconds


def sensor_known(run: Run, device: str) -> bool:
    """False for a log of a meter of which nothing is known but what it read."""
    channel = run.channel(device, POWER)
    return run.kind != "import" or channel is None or bool(channel.sensor)


def watched(run: Run, device: str, record: Readings, response: Response) -> tuple[int, int]:
    """From when to when the device was watched, in ns, as far as the record speaks for it.

    A driver's record may reach back to before the recording; that helps the levels, and counts in
    no energy. All of an imported log counts: its readings speak of the time that lies the sensor's delay before them.
    """
    delay_ns = int((response.delay_s + response.middle_s) * 1e9)
    start, end = int(record.time_ns[0]) - delay_ns, int(record.time_ns[-1]) - delay_ns
    if len(held(run, "recent")):  # means of seconds leave out nothing
        start, end = shown_ns(record, response).tolist()
    recorded = _recorded(run, device)
    if recorded is None:  # cut off before its end: all that there is
        return start if run.kind == "import" else max(start, run.created_ns), end
    start = max(start, recorded[0])
    return start, max(start, min(end, recorded[1]))


def _recorded(run: Run, device: str) -> tuple[int, int] | None:
    """Start and end of a device's recording in ns; None of a log, and of a recording that was cut off."""
    starts, ends = spans_of(run, "phase").named("monitor").on(device).edges_ns
    return (int(starts.min()), int(ends.max())) if len(starts) else None


def _warn_of_ends(run: Run, device: str, record: Readings, watched_ns: int) -> None:
    """State how much of an imported log is in no figure: polls faster than the sensor have ends of unknown age.

    Where rows at its start or end have other readings of the device and no power, these are in none either.
    """
    if run.kind != "import":
        return
    stamps, _ = run.series(device, POWER)
    logged_ns = int(np.ptp(stamps))
    every = run.samples.filter(pc.equal(run.samples["device"], device))["time_ns"].to_numpy()
    beyond_ns = max(int(stamps.min() - every.min()), 0) + max(int(every.max() - stamps.max()), 0)
    if beyond_ns > max(_ENDS * np.ptp(every), 2e9 * record.period_s):
        without, rows = (seconds_text(ns / 1e9) for ns in (beyond_ns, np.ptp(every)))
        text = f"of {rows}, rows of {without} at the ends have other readings and no power: they are in no figure"
        run.warn("ends_without_power", text, device)
    if logged_ns - watched_ns > _ENDS * logged_ns:
        cut, whole, period = (
            seconds_text(ns / 1e9) for ns in (logged_ns - watched_ns, logged_ns, 1e9 * record.period_s)
        )
        text = f"{cut} of {whole}, at its ends, is in no figure: the sensor has a new reading every {period}"
        run.warn("ends_left_out", text, device)
