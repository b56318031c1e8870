"""The verdict of a program: what it took, and the largest causes."""

from __future__ import annotations

from jouletrace.report.reasons import reason
from jouletrace.report.results import printed
from jouletrace.report.scale import NBSP, figure, quantity
from jouletrace.run import MODEL_UNIT, Run
from jouletrace.run.forms import Recording
from jouletrace.run.names import short_names
from jouletrace.run.parts import Part, Parts, idle_by
from jouletrace.run.recording_names import IDLE_NAME, RECORDING, WAITING

_MOST = 3


def verdict(run: Run, results: Parts) -> list[str]:
    """Two lines and more: energy, power and time; the largest causes; of several GPUs, who waits for whom."""
    energy, power = results.get("energy_total_j"), results.get("power_w")
    time = quantity(results.get("iteration_time_s").value, "s")
    if energy.value is None:
        lines = [f"{time}; energy unknown: {reason(energy.reason or 'not_measured')}"]
    else:
        lines = [f"{figure(energy, 'J')} in {time}, {figure(power, 'W')} on average"]
    hosts = {device.id for device in run.devices if device.kind == "cpu"}
    beside = [unit for unit in results.units("device") if unit.module in hosts]
    if beside:
        costs = (f"{unit.name} {figure(unit.get('energy_total_j'), 'J')}" for unit in beside)
        lines.append("beside it, " + ", ".join(costs))
    if causes := _causes(run, results):
        lines.append("mostly " + ", ".join(causes))
    return lines + _of_ranks(run)


def energy_by_part(run: Run) -> dict[str, float]:
    """Joules of what the energy of several GPUs together went to, by name; empty with one GPU."""
    joules: dict[str, float] = {}
    for part in (part for gpu in run.workload.get("gpus", ()) for part in gpu["parts"]):
        joules[part["name"]] = joules.get(part["name"], 0.0) + (part["energy_j"] or 0.0)
    return joules


def _of_ranks(run: Run) -> list[str]:
    """Which rank the others wait for, and where the parts of each GPU are."""
    gpus = run.workload.get("gpus", [])
    ranked = [gpu for gpu in gpus if gpu.get("collectives")]
    lines = []
    if len(ranked) > 1:
        last = max(ranked, key=lambda gpu: gpu["last"])
        parts = [part for gpu in ranked if gpu is not last for part in gpu["parts"]]
        waits = [part["time_s"] or 0.0 for part in parts if part["name"] == WAITING]
        share = 100 * last["last"] / last["collectives"]
        lines.append(
            f"{last['name']} comes last in {share:.0f}{NBSP}% of {last['collectives']} collectives; "
            f"the others wait {quantity(sum(waits) / (len(ranked) - 1), 's')} in total"
            f"{', on average' if len(ranked) > 2 else ''}"
        )
    if gpus:
        names = ", ".join(gpu["name"] for gpu in gpus)
        lines.append(f"a Run of each GPU: {names}, in the folder of this Run, or beside its zip in NAME.ranks")
    return lines


def _causes(run: Run, results: Parts) -> list[str]:
    """The ranges or modules, or else operators, and the time without a kernel with the largest shares of the energy."""
    if run.workload.get("gpus"):
        return _causes_of_all(run, results)
    tops = [unit for unit in results.units("layer") if unit.parent == MODEL_UNIT]
    parts = tops if len(tops) > 1 else [unit for unit in results.units("kernel") if unit.name != IDLE_NAME]
    idle = [unit for unit in results.units("op") if unit.name == IDLE_NAME]
    shares = [(unit.get("share").value or 0.0, unit) for unit in [*parts, *idle]]
    best = [(share, unit) for share, unit in sorted(shares, key=lambda one: -one[0])[:_MOST] if share > 0]
    short = short_names((unit.name or "?" for _, unit in best), 40)
    names = [printed(short[unit.name or "?"]) for _, unit in best]
    return [
        f"{name} {100 * share:.0f}{NBSP}%{_of_idle(run, unit)}" for name, (share, unit) in zip(names, best, strict=True)
    ]


def _causes_of_all(run: Run, results: Parts) -> list[str]:
    """What all GPUs together spent the largest shares of the energy on."""
    whole = results.get("energy_total_j").value
    best = sorted(energy_by_part(run).items(), key=lambda one: -one[1])[:_MOST] if whole else []
    return [f"{printed(name)} {100 * energy / (whole or 1):.0f}{NBSP}%" for name, energy in best if energy > 0]


def _of_idle(run: Run, unit: Part) -> str:
    """The largest cause of the time without a kernel, behind its share."""
    by = idle_by(run)
    if unit.name != IDLE_NAME or not by:
        return ""
    cause = max(by, key=lambda one: by[one])
    return f" ({100 * by[cause]:.0f}{NBSP}% of it {cause})"


def matched(run: Run) -> str | None:
    """How many kernels have an operator, in words; None if none was looked for."""
    unmatched = run.workload.get(RECORDING, Recording()).get("unmatched")
    return None if unmatched is None else f"{100 * (1 - unmatched):.1f}{NBSP}% of the kernels have an operator"
