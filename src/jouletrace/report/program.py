"""The verdict of a program: what it took, the largest causes, and whether to trust them."""

from __future__ import annotations

from jouletrace.analysis.recording import IDLE_NAME, RECORDING, WAITING
from jouletrace.report.results import Results
from jouletrace.report.scale import figure, quantity
from jouletrace.run import MODEL_UNIT, Run
from jouletrace.run.forms import Recording
from jouletrace.run.names import short_names
from jouletrace.run.tables import UnitRow

_MOST = 3

_CAUSES = {
    "data loading": "waiting for the data loader",
    "between launches": "between launches",
    "synchronisation": "after the host had waited for the GPU",
    "host": "waiting for the host",
}


def verdict(run: Run, results: Results) -> list[str]:
    """Three lines: energy, power and time; the largest causes; trust."""
    energy, power = results.get("energy_total_j"), results.get("power_w")
    time = quantity(results.get("iteration_time_s").value, "s")
    if energy.value is None:
        lines = [f"{time}; energy unknown: {energy.reason or 'not measured'}"]
    else:
        lines = [f"{figure(energy, 'J')} in {time}, {figure(power, 'W')} on average"]
    hosts = {device.id for device in run.devices if device.kind == "cpu"}
    beside = [unit for unit in results.units("device") if unit["module"] in hosts]
    if beside:
        costs = (f"{unit['name']} {figure(results.get('energy_total_j', unit['id']), 'J')}" for unit in beside)
        lines.append("beside it, " + ", ".join(costs))
    if causes := _causes(run, results):
        lines.append("mostly " + ", ".join(causes))
    lines += _of_ranks(run)
    return [*lines, _trust(run, results)]


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
            f"{last['name']} comes last in {share:.0f} % of {last['collectives']} collectives; "
            f"the others wait for {quantity(sum(waits) / (len(ranked) - 1), 's')} on average"
        )
    if gpus:
        lines.append(f"each GPU by its parts: {', '.join(gpu['name'] for gpu in gpus)} in the folder of this Run")
    return lines


def _causes(run: Run, results: Results) -> list[str]:
    """The ranges or modules, or else operators, and idle with the largest shares of the energy."""
    if run.workload.get("gpus"):
        return _causes_of_all(run, results)
    tops = [unit for unit in results.units("layer") if unit["parent"] == MODEL_UNIT]
    parts = tops if len(tops) > 1 else [unit for unit in results.units("kernel") if unit["name"] != IDLE_NAME]
    idle = [unit for unit in results.units("op") if unit["name"] == IDLE_NAME]
    shares = [(results.get("share", unit["id"]).value or 0.0, unit) for unit in [*parts, *idle]]
    best = [(share, unit) for share, unit in sorted(shares, key=lambda one: -one[0])[:_MOST] if share > 0]
    short = short_names((unit["name"] or "?" for _, unit in best), 40)
    return [f"{short[unit['name'] or '?']} {100 * share:.0f} %{_of_idle(run, unit)}" for share, unit in best]


def _causes_of_all(run: Run, results: Results) -> list[str]:
    """What all GPUs together spent the largest shares of the energy on."""
    joules: dict[str, float] = {}
    for part in (part for gpu in run.workload.get("gpus", ()) for part in gpu["parts"]):
        joules[part["name"]] = joules.get(part["name"], 0.0) + (part["energy_j"] or 0.0)
    whole = results.get("energy_total_j").value
    best = sorted(joules.items(), key=lambda one: -one[1])[:_MOST] if whole else []
    return [f"{name} {100 * energy / (whole or 1):.0f} %" for name, energy in best if energy > 0]


def _of_idle(run: Run, unit: UnitRow) -> str:
    """The largest cause of idle time, behind its share."""
    by = run.workload.get(RECORDING, Recording()).get("idle_by", {})
    if unit["name"] != IDLE_NAME or not by:
        return ""
    cause = max(by, key=lambda one: by[one])
    return f" ({100 * by[cause]:.0f} % of it {_CAUSES[cause]})"


def _trust(run: Run, results: Results) -> str:
    """Whether energies of parts can be trusted, and why."""
    closure, left = results.get("closure_kernels"), results.get("residual_w")
    if closure.value is None:
        why = next((w.message for w in run.warnings if w.code in ("not_attributed", "not_traced")), "no kernels")
        return f"parts: no energies ({why})"
    unmatched = run.workload.get(RECORDING, Recording()).get("unmatched")
    named = "" if unmatched is None else f", {100 * (1 - unmatched):.1f} % of the kernels have an operator"
    return f"trust: parts are {figure(closure, '')} of the whole, residual {quantity(left.value, 'W')}{named}"
