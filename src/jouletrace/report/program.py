"""The verdict of a program: what it took, and the largest causes."""

from __future__ import annotations

from jouletrace.analysis.facts import Facts
from jouletrace.report.headline import headline
from jouletrace.run import Run
from jouletrace.run.names import short_names
from jouletrace.run.parts import Part, Parts, idle_by, of_time
from jouletrace.run.recording_names import IDLE_NAME, WAITING
from jouletrace.words.reasons import no_energy, printed
from jouletrace.words.scale import NBSP, figure, quantity

_MOST, _LEAST = 3, 0.005
"""Causes that are named, and the least share of one: below it "0 %" would be printed."""


def verdict(run: Run, results: Parts, run_facts: Facts) -> list[str]:
    """Two lines and more: energy, power and time; the largest causes; of several GPUs, who waits for whom."""
    energy, power = results.get("energy_total_j"), results.get("power_w")
    time = quantity(results.time.value, "s")
    if energy.value is None:
        lines = [f"{time}; {no_energy(energy.reason or 'not_measured')}"]
    else:
        absolute = first.behind if (first := headline(run, results, run_facts)) else ""
        lines = [f"{figure(energy, 'J')}{absolute} in {time}, {figure(power, 'W')} on average"]
    each, steps = results.get("energy_per_step_j"), run.workload.get("steps")
    if each.value is not None and steps:
        calls = f"{steps['calls']} step{'s' if steps['calls'] != 1 else ''}"
        lines.append(f"{calls} of {printed(steps['module'])}, {figure(each, 'J')} each")
    timed, causes = _causes(run, results)
    if causes:
        lines.append(f"mostly{' (of the time)' if timed else ''} {', '.join(causes)}")
    return lines + _of_ranks(run, results)


def _of_ranks(run: Run, results: Parts) -> list[str]:
    """A line on the rank that comes last most often, and on the one that waits longest, with the energy it takes."""
    ranked = [recording for recording in run.workload.get("recordings", ()) if recording.get("collectives")]
    if len(ranked) < 2:
        return []
    last = max(ranked, key=lambda recording: recording["last"])
    line = f"{last['name']} comes last in {100 * last['last'] / last['collectives']:.0f}{NBSP}% of "
    line += f"{last['collectives']} collectives"
    waits = [unit for unit in results.units("phase") if unit.name == WAITING]
    if not waits:
        return [line]
    longest = max(waits, key=lambda unit: unit.get("time_s").value or 0.0)
    line += f"; {longest.gpu} waits longest, {quantity(longest.get('time_s').value, 's')} in all"
    energy = longest.get("energy_total_j")
    return [line if energy.value is None else f"{line}, which takes {figure(energy, 'J')}"]


def _causes(run: Run, results: Parts) -> tuple[bool, list[str]]:
    """The phases, ranges or modules, or else operators, and the time without a kernel with most of the energy.

    Where those with an energy have less than half of it, the first is true, and they are those with most of the time.
    """
    parts = results.main()
    parts += [unit for unit in results.outside() if unit not in parts]
    if len({unit.name for unit in parts if unit.level in ("phase", "layer")}) < 2:
        parts = results.units("kernel")
    values = [unit.get("share").value or 0.0 for unit in parts]
    timed, whole_s = any(of_time(part.figures) for part in results.all()), results.time.value
    if not timed and whole_s and sum(values) < 0.5:
        timed, values = True, [(unit.get("time_s").value or 0.0) / whole_s for unit in parts]
    shares: dict[object, float] = {}
    units: dict[object, Part] = {}
    for unit, share in zip(parts, values, strict=True):
        key = unit.name if results.gpus else unit.id  # what all GPUs did is one cause
        shares[key] = shares.get(key, 0.0) + share
        units[key] = unit
    best = [
        (share, units[key])
        for key, share in sorted(shares.items(), key=lambda pair: -pair[1])[:_MOST]
        if share >= _LEAST
    ]
    short = short_names((unit.holds or unit.name or "?" for _, unit in best), 40)
    names = [printed(short[unit.holds or unit.name or "?"]) for _, unit in best]
    return timed, [
        f"{name} {100 * share:.0f}{NBSP}%{_of_idle(run, unit)}" for name, (share, unit) in zip(names, best, strict=True)
    ]


def _of_idle(run: Run, unit: Part) -> str:
    """The largest cause of the time without a kernel, behind its share."""
    recordings = run.workload.get("recordings", [])
    by = idle_by(recordings[0]) if len(recordings) == 1 else {}
    if unit.name != IDLE_NAME or not by:
        return ""
    cause = max(by, key=lambda name: by[name])
    return f" ({100 * by[cause]:.0f}{NBSP}% of it {cause})"


def matched(run: Run) -> str | None:
    """How many kernels have an operator, in words; None if none was looked for."""
    recordings = run.workload.get("recordings", ())
    matches = [
        (share, recording.get("kernels", 1))
        for recording in recordings
        if (share := recording.get("unmatched")) is not None
    ]
    if not matches:
        return None
    unmatched = sum(share * kernels for share, kernels in matches) / max(sum(kernels for _, kernels in matches), 1)
    return f"{100 * (1 - unmatched):.1f}{NBSP}% of the kernels have an operator"
