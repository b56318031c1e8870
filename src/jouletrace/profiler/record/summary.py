"""What a recording says of itself at its end, in a dozen lines."""

from __future__ import annotations

from jouletrace.analysis.recording import IDLE_NAME
from jouletrace.analysis.spans import phase_edges
from jouletrace.report.document import printable
from jouletrace.report.program import verdict
from jouletrace.report.results import Results
from jouletrace.report.scale import NBSP, figure, quantity
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.names import short_names
from jouletrace.stats.interval import total

ROWS, WIDTH = 6, 40
"""Most rows, and characters of their names."""


def summary(run: Run, split: Run | None) -> str:
    """The whole, and with a split what took most of it."""
    name = str(run.workload.get("name", "recording"))
    mark = "SIMULATED " if run.simulated else ""
    if split is None:
        time_s, energy = whole(run)
        joules = figure(energy, "J") if energy.value is not None else f"energy unknown: {energy.reason}"
        lines = [f"{mark}{name}: {quantity(time_s, 's')}, {joules}"]
    else:
        results = Results(split)
        lines = [f"{mark}{name}: {line}" if i == 0 else line for i, line in enumerate(verdict(split, results))]
        lines += _gpus(split) if split.workload.get("gpus") else _kernels(results)
    return "\n".join(printable(line.replace(NBSP, " ")) for line in lines)


def totals(run: Run, split: Run | None) -> dict[str, float]:
    """The totals for a trainer's log: energy, mean power, and the energy of each top-level range, idle or phase."""
    time_s, energy = whole(run)
    found = {"energy_j": energy.value, "power_w": energy.value / time_s if energy.value and time_s else None}
    for name, value in _parts(split).items() if split is not None else ():
        found[f"energy_{name.replace(' ', '_')}_j"] = value
    return {name: value for name, value in found.items() if value is not None}


def whole(run: Run) -> tuple[float | None, Estimate]:
    """How long was recorded in seconds, and the energy of all devices in joules."""
    start, end = phase_edges(run, "monitor")
    time_s = float(end.max() - start.min()) / 1e9 if len(start) else None
    return time_s, total([run.result("energy_total_j", number) for number in range(1, len(run.devices) + 1)])


def _parts(split: Run) -> dict[str, float]:
    """Joules of what the energy of a split went to, at its top level."""
    joules: dict[str, float] = {}
    for gpu in split.workload.get("gpus", ()):
        for part in gpu["parts"]:
            joules[part["name"]] = joules.get(part["name"], 0.0) + (part["energy_j"] or 0.0)
    if joules:
        return joules
    results = Results(split)
    tops = [unit for unit in results.units("layer") if unit["parent"] == MODEL_UNIT]
    for unit in [*tops, *(unit for unit in results.units("op") if unit["name"] == IDLE_NAME)]:
        energy = results.get("energy_total_j", unit["id"]).value
        if energy is not None:
            joules[str(unit["name"])] = energy
    return joules


def _kernels(results: Results) -> list[str]:
    """The kernels, or operators whose kernels share a row, with the most energy."""
    rows = [(results.get("energy_total_j", unit["id"]), unit) for unit in results.units("kernel")]
    rows = sorted((row for row in rows if row[0].value), key=lambda row: -(row[0].value or 0.0))[:ROWS]
    short = short_names((unit["name"] or "?" for _, unit in rows), WIDTH)
    lines = []
    for energy, unit in rows:
        share, time = results.get("share", unit["id"]).value, results.get("time_s", unit["id"]).value
        name = short[unit["name"] or "?"]
        lines.append(f"  {name:{WIDTH}} {100 * (share or 0):4.0f} %  {figure(energy, 'J')}, {quantity(time, 's')}")
    return lines


def _gpus(split: Run) -> list[str]:
    """What each GPU spent its energy on."""
    gpus = split.workload.get("gpus", [])
    lines = []
    for gpu in gpus[:ROWS]:
        parts = sorted(gpu["parts"], key=lambda part: -(part["energy_j"] or 0.0))
        named = [f"{part['name']} {quantity(part['energy_j'], 'J')}" for part in parts if part["energy_j"]]
        lines.append(f"  {gpu['name']}: {', '.join(named) or 'no energies'}")
    return lines + ([f"  and {len(gpus) - ROWS} more"] if len(gpus) > ROWS else [])
