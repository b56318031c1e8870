"""The verdict of a Run: what it took, in lines that stand alone."""

from __future__ import annotations

import math

import pyarrow.compute as pc

from jouletrace.analysis.facts import Facts
from jouletrace.report import program
from jouletrace.report.columns import rate
from jouletrace.report.facts import SEPARATOR, counted_devices, power_channels, sensor_line
from jouletrace.report.headline import headline
from jouletrace.report.kinds import worded
from jouletrace.report.tariffs import J_PER_KWH, LEAST_KWH, kwh
from jouletrace.run import Estimate, Run
from jouletrace.run.estimate import STATED
from jouletrace.run.forms import LENT, AgainstMeter, BestRates, Calibration
from jouletrace.run.parts import WORKLOAD, Part, Parts
from jouletrace.run.recording_names import recording_of
from jouletrace.wing import lacking
from jouletrace.words import reasons
from jouletrace.words.scale import NBSP, figure, number, quantity, unit_for

_CAPPED = 0.05
"""Share of the time at the power cap from which the verdict says so."""

_ALWAYS = 0.995
"""Share of the time that reads as all of it."""

_MOST_LEVELS = 1
"""Devices whose idle and working levels are stated one by one."""

_PAIR = 2
"""Devices whose times are both stated."""


def verdict(run: Run, results: Parts, run_facts: Facts) -> list[str]:
    """The energy, power and time of a Run, and what shaped them."""
    if (kind := worded(run, results)) is not None:
        return kind.verdict(run, results, run_facts, _absolute(run, results, run_facts))
    if wing := lacking(run.workload, LENT):
        return [f"needs the wing {wing}, which is missing: its figures are as stored (-v), without verdict and price"]
    if run.kind in ("program", "measure"):
        return program.verdict(run, results, run_facts)
    if run.kind == "calibrate":
        lines = [f"{channel.name}: {sensor_line(channel)}" for channel in power_channels(run)]
        lines += [f"best rates: {', '.join(map(rate, best))}" for best in map(_best, run.calibration.values()) if best]
        lines += [_against(each["meter"]) for each in run.calibration.values() if "meter" in each]
        stored = bool(run.calibration) and not any(warning.code == "not_stored" for warning in run.warnings)
        return [*lines, *(["stored: all later measurements of this GPU use it"] if stored else [])]
    stated = results.whole.figures.keys() & {"energy_total_j", "latency_s"}
    if stated and not (run.kind == "record" and results.units("device")):
        return _iterations(run, results, run_facts)
    return _watched(run, results, run_facts)


def _against(meter: AgainstMeter) -> str:
    """Gain and offset of a sensor with their intervals, and what they are by."""
    (offset, both), (_, gain) = meter["covariance"]
    correlation = both / math.sqrt(gain * offset) if gain * offset > 0 else 0.0
    read = [level[0] for level in meter["levels"]]
    accuracy = f"{meter['accuracy_pct']:g}{NBSP}%" + (
        f" + {meter['accuracy_w']:g}{NBSP}W" if meter["accuracy_w"] else ""
    )
    return SEPARATOR.join(
        (
            f"against {meter['meter']}: gain {meter['gain']:.4f} ± {meter['gain_half']:.4f}",
            f"offset {meter['offset_w']:+.2f} ± {meter['offset_half_w']:.2f}{NBSP}W",
            f"correlation {correlation:.2f}",
            f"levels {min(read):.0f} to {max(read):.0f}{NBSP}W",
            f"its clock {round(meter['shift_s'], 1) + 0.0:+.1f}{NBSP}s",
            f"power ±{NBSP}{meter['gain_pct']:.2g}{NBSP}% with the meter's ±{NBSP}{accuracy}",
        )
    )


def _best(calibration: Calibration) -> list[Estimate]:
    """The best rates of a GPU, by number format, then of copies."""
    rates = calibration.get("rates", BestRates())
    best = [Estimate(rate, method=name) for name, rate in rates.get("flops_per_s", {}).items()]
    return best + ([Estimate(rates["bytes_per_s"], method="copy")] if "bytes_per_s" in rates else [])


def gain_line(run: Run, results: Parts, run_facts: Facts) -> list[str]:
    """The measurand of an energy's ±, and what it leaves out: "± 0.0005 %" alone would read as that of a meter.

    In a comparison of two sides on one GPU the gain cancels.
    """
    figures = (item for part in (results.whole, *results.all()) for item in part.figures.items())
    energies = [estimate for name, estimate in figures if name.startswith("energy") and estimate.half_width]
    of = {results.measurand(estimate) for estimate in energies}
    if not of or run.kind in ("ab", "calibrate"):
        return []
    if words := beyond_readings(run_facts):
        return [f"± is of {_measurand(of)}, {words}"]
    first = headline(run, results, run_facts)
    if first is not None and first.beside:
        shown = run.kind != "measure" and any(energy.method != "counter" for energy in energies)  # with a budget
        beyond = f"absolute: with the sensor's gain and offset{' (show --budget)' if shown else ''}"
    elif run.simulated:
        return []
    elif run_facts.gain:
        beyond = f"the sensor's gain, ±{NBSP}{100 * run_facts.gain:g}{NBSP}%, is not in it"
    else:
        beyond = "the sensor's gain is not known, and not in it"
    return [f"± is of {_measurand(of)}; {beyond}"]


def beyond_readings(run_facts: Facts) -> str:
    """State what intervals have in them beside what readings leave open; "" where that is nothing."""
    if run_facts.sensor is None:
        return ""
    gain, offset_w = run_facts.sensor
    if not offset_w:
        return "with what the calibration against a meter leaves open"
    return f"with the sensor's gain, ±{NBSP}{gain:g}{NBSP}%, and offset, ±{NBSP}{offset_w:g}{NBSP}W"


def _measurand(of: set[str]) -> str:
    if len(of) > 1:
        return "this workload on this GPU, that of parts of this run"
    return "this workload on this GPU" if WORKLOAD in of else "this run"


def _absolute(run: Run, results: Parts, run_facts: Facts) -> str:
    """The absolute uncertainty behind the figure that is stated first: " (± 5.7 % absolute)"; "" without one."""
    first = headline(run, results, run_facts)
    return "" if first is None else first.behind


def _timed(time: Estimate) -> str:
    """A time with its interval, or as it was given."""
    return quantity(time.value, "s") if time.half_width is None else figure(time, "s")


def _iterations(run: Run, results: Parts, run_facts: Facts) -> list[str]:
    """The cost of an iteration: energy, also per sample or token; power, time; how much of it is idle power."""
    energy, power = results.get("energy_total_j"), results.get("power_w")
    time = results.time
    time = time if time.value else results.get("latency_s")
    whole = run.kind == "import" and not recording_of(run).get("iterations_by")
    inference = results.get("energy_per_inference_j")
    if energy.value is None and inference.value is not None:
        return [_inference(run, results, run_facts, inference), *_watched(run, results, run_facts)]
    if whole and energy.method.startswith(STATED):
        return [_stated_by_tool(results, energy), *_watched(run, results, run_facts)]
    if energy.value is None:
        claimed = run.kind != "import" or "energy_total_j" in results.whole.figures
        why = f"; {reasons.no_energy(energy.reason)}" if energy.reason and claimed else ""
        each = "" if whole else " per iteration"
        stated = _stated_beside(results) if whole else ""
        return [f"{_timed(time)}{each}{stated}{why}"] if time.value is not None else _watched(run, results, run_facts)
    if whole:
        joules = f"{figure(energy, 'J')}{_behind(run, results, run_facts, energy)}"
        return [f"{joules} in {_timed(time)}, {figure(power, 'W')} on average"]
    host = _of_host(results, run_facts, time)
    beside = [figure(power, "W")] if power.value is not None else []
    beside += [] if host else [_timed(time)]
    absolute = _absolute(run, results, run_facts)
    joules = f"{host}{figure(energy, 'J')} per iteration{' here' if host else ''}{absolute}"
    lines = [f"{joules}: {', '.join([*_of_each(run, results), *beside])}"]
    return [*lines, *_shares(run, results, run_facts, energy)]


def _stated_by_tool(results: Parts, energy: Estimate) -> str:
    """The energy that another tool states, or why it is unknown, with the time that it covers."""
    seconds = results.get("time_s").value
    lasted = "" if seconds is None else quantity(seconds, "s")
    if energy.value is None:
        return "; ".join(filter(None, [lasted, reasons.no_energy(energy.reason, whose=f" {energy.method}")]))
    return f"{figure(energy, 'J')}{f' in {lasted}' if lasted else ''}, {energy.method}"


def _stated_beside(results: Parts) -> str:
    """The largest latencies and the rate that a file states: ", p99 41.30 ms, 31.84 queries/s"."""
    rate, most = results.get("queries_per_s").value, results.get("latency_p99_s")
    said = [f"p99 {_timed(most)}"] if most.value is not None else []
    said += [] if rate is None else [f"{quantity(rate, '1')} queries/s"]
    return "".join(f", {text}" for text in said)


def _of_host(results: Parts, run_facts: Facts, time: Estimate) -> str:
    """Work and what the host's time adds, before the energy that they sum up to; "" where the host doesn't limit."""
    work, idle = results.get("energy_work_j"), results.get("power_idle_at_work_w")
    if run_facts.host_s is None or time.value is None:
        return ""
    scale = unit_for([time.value], "s")
    ends = f"{NBSP}to{NBSP}".join(number(end / scale.factor, 2) for end in run_facts.host_s)
    host = f"{figure(idle, 'W')} × {quantity(time.value, 's')} of this host ({ends})"
    return f"{figure(work, 'J')} of work + {host} = "


def _of_each(run: Run, results: Parts) -> list[str]:
    """Energy per sample or per token."""
    token = results.get("energy_per_token_j")
    if token.value is not None:
        return [f"{figure(token, 'J')} per new token"]
    items = run.workload.get("items") or 1
    return [f"{figure(results.get('energy_total_j').scaled(1 / items), 'J')} per sample"] if items > 1 else []


def _shares(run: Run, results: Parts, run_facts: Facts, energy: Estimate) -> list[str]:
    """How much of the energy is active, and what of it is context idle; whether the power cap held it."""
    active, idle = results.get("energy_active_over_context_idle_j").value, results.get("baseline_context_idle_w")
    parts = []
    if active is not None and energy.value and idle.value is not None:
        share = round(100 * active / energy.value)
        drawn = f"{100 - share}{NBSP}% is context idle ({figure(idle, 'W')})"
        parts.append(f"{share}{NBSP}% of it active, {drawn}" if 0 < share < 100 else drawn)
    held = [conditions["throttle_reasons"] or {} for conditions in run_facts.conditions_of.values()]
    capped = min((throttled.get("sw_power_cap", 0.0) for throttled in held), default=0.0)
    if capped >= _CAPPED:
        limit = run.devices[0].power_limit_w
        watts = "" if limit is None else f" ({limit:g}{NBSP}W)"
        long = "all the time" if capped > _ALWAYS else f"{100 * capped:.0f}{NBSP}% of the time"
        parts.append(f"at the power cap{watts} {long}")
    return ["; ".join(parts)] if parts else []


def _watched(run: Run, results: Parts, run_facts: Facts) -> list[str]:
    """The consumption of devices over the time that they were watched: energy, power, time, levels, work."""
    units = results.units("device")
    if not units:
        return _of_timeline(run, results)
    energies = [unit.get("energy_total_j") for unit in units]
    there = [estimate for estimate in energies if estimate.value is not None]
    times = [time for unit in units if (time := unit.get("time_s").value) is not None]
    if not there:
        watched = [quantity(max(times), "s")] if times else []
        return ["; ".join([*watched, reasons.no_energy(*(estimate.reason for estimate in energies))])]
    unequal = run_facts.of_devices["time_s"].reason == "times_differ"
    longest, shortest = (quantity(edge(times, default=0.0), "s") for edge in (max, min))
    lasted = f"{shortest}{NBSP}to{NBSP}{longest}" if unequal and shortest != longest else longest
    if unequal and len(times) == len(units) == _PAIR:
        lasted = " and ".join(quantity(time, "s") for time in times)
    power = run_facts.of_known["power_w"]
    together = " together" if len(there) > 1 and power.reason != "times_differ" else ""
    of = "" if len(units) == 1 else f", {counted_devices(results)}{together}"
    parts = [str(part) for device in run.devices if (part := device.details.get("power_of")) is not None]
    of += f", of {', '.join(dict.fromkeys(parts))} alone" if parts else ""
    of += f" on {len(parts)} of them" if 0 < len(parts) < len(units) else ""
    of += ", by the energy counter" if any("counter_alone" in estimate.flags for estimate in energies) else ""
    of += (", each over its own time" if together else " at different times") if unequal else ""
    joules = f"{figure(run_facts.together, 'J')}{_behind(run, results, run_facts, run_facts.together)}"
    drawn = f", {figure(power, 'W')} on average" if power.value is not None else ""
    lines = [f"{joules} in {lasted}{drawn}{of}"]
    if len(there) > 1 and run_facts.together.value is None:
        lines = [f"{lasted}; {reasons.no_energy(run_facts.together.reason)}"]
    lines += _levels(run, results, units[0]) if len(units) <= _MOST_LEVELS else []
    lines += _without_levels(units) if run.kind == "monitor" else []
    work = results.get("energy_per_work_j")
    if work.value is not None:
        counted = quantity(results.get("work_done").value, "1")
        lines.append(f"{figure(work, 'J')} per unit of work, {counted} of {run.settings.get('per') or 'it'} counted")
    inference = results.get("energy_per_inference_j")
    if inference.value is not None and "latency_s" not in results.whole.figures:  # else it stands before
        lines.insert(0, _inference(run, results, run_facts, inference))
    elif inference.value is None and "latency_s" in run.settings:
        lines.append(f"no energy per inference: {reasons.reason(inference.reason)}")
    return lines


def _of_timeline(run: Run, results: Parts) -> list[str]:
    """The time of a timeline and how much of it some GPU worked; of counters alone how many launches have them."""
    time, busy = results.get("time_s"), results.get("time_busy_s")
    if time.value and busy.value is not None:
        share = number(100 * busy.value / time.value, 3)
        calls = f"{busy.n} kernels and copies" if (busy.n or 0) > 1 else "1 kernel or copy"
        return [f"{quantity(time.value, 's')}, busy {share}{NBSP}% of it ({quantity(busy.value, 's')}): {calls}"]
    if time.value is not None and not time.method.startswith(STATED):
        return [f"{quantity(time.value, 's')}; no kernel or copy in it"]
    kernels = results.units("kernel")
    counted = pc.count_distinct(run.counters["metric"].cast("string")).as_py()
    if not kernels or not counted:
        return []
    launches = sum(unit.count or 1 for unit in kernels)
    those = "1 kernel" if len(kernels) == 1 else f"{len(kernels)} kernels"
    return [f"counters of {launches} launches of {those}; export --format csv has all {counted} of a launch"]


def _inference(run: Run, results: Parts, run_facts: Facts, inference: Estimate) -> str:
    """Energy of an inference by the levels of a log and a latency, with what it follows from."""
    levels = [unit.get("power_difference_w") for unit in results.units("device")]
    above = "".join(f"{figure(level, 'W')} above idle in " for level in levels if level.value is not None)
    absolute = _absolute(run, results, run_facts)
    return f"{figure(inference, 'J')} per inference{absolute}: {above}{_timed(run_facts.inference_s)}"


def _behind(run: Run, results: Parts, run_facts: Facts, energy: Estimate) -> str:
    """A remark on an energy, in parentheses: in kWh where it is worth paying for; the absolute uncertainty."""
    first = headline(run, results, run_facts)
    said = [kwh(energy.value)] if (energy.value or 0.0) >= LEAST_KWH * J_PER_KWH else []
    said += [first.beside] if first is not None and first.figure == energy and first.beside else []
    return f" ({', '.join(said)})" if said else ""


def _levels(run: Run, results: Parts, unit: Part) -> list[str]:
    """Idle and working power of a device, where there were two levels; whether it was used, where that is known."""
    idle, working = unit.get("power_idle_w"), unit.get("power_working_w")
    devices = [device for device in run.devices if device.id == unit.module]
    used = devices[0].details.get("processes") if devices else None
    context = "" if used is None else f"{'a' if used else 'no'} CUDA context at start and end"
    if idle.value is None or working.value is None:
        return [context] if context else []
    said = f"{figure(idle, 'W')} idle{f' ({context})' if context else ''}, {figure(working, 'W')} at work"
    twice = [
        warning.message for warning in run.warnings if warning.code == "idle_levels" and warning.where == unit.module
    ]
    return [said, *twice]


def _without_levels(units: list[Part]) -> list[str]:
    """Why devices have no idle and working level."""
    why: dict[str, list[str]] = {}
    for unit in units:
        level = unit.get("power_idle_w")
        if level.value is None:
            why.setdefault(reasons.reason(level.reason), []).append(str(unit.name))
    lines = []
    for reason, names in why.items():
        whose = f" of {', '.join(names)}" if len(names) < len(units) else ""
        lines.append(f"no idle and working level{whose}: {reason}")
    return lines
