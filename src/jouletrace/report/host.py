"""Lines of the host beside GPUs: what it took, by what it was measured, and the sum with theirs."""

from __future__ import annotations

from jouletrace.run import Estimate, Run
from jouletrace.run.metrics import ENERGY_CPU, ENERGY_MEMORY, ENERGY_SERVER, GPUS_AND_HOST
from jouletrace.run.parts import Parts
from jouletrace.words import reasons
from jouletrace.words.scale import figure

_PARTS = {ENERGY_CPU: "CPU packages by RAPL", ENERGY_MEMORY: "memory by RAPL"}


def host_lines(run: Run, results: Parts) -> list[str]:
    """A line each of packages and memory, with the sum, and of the whole server; none of what wasn't recorded."""
    whole = results.whole.figures
    parts = {metric: name for metric, name in _PARTS.items() if metric in whole}
    if run.kind == "import" or not (parts or ENERGY_SERVER in whole):
        return []
    per = " per iteration" if run.kind == "profile" else ""
    lines = []
    if parts:
        said = ", ".join(f"{_stated(whole[metric])} ({name})" for metric, name in parts.items())
        gpus = "GPU" if len(run.devices) == 1 else "GPUs"
        together = f"; {figure(whole[GPUS_AND_HOST], 'J')} with the {gpus}" if GPUS_AND_HOST in whole else ""
        lines.append(f"host: {said}{together}{per}")
    if ENERGY_SERVER in whole:
        lines.append(
            f"whole server: {_stated(whole[ENERGY_SERVER])} (by its power meter: all of these are part of it){per}"
        )
    return lines


def _stated(energy: Estimate) -> str:
    return figure(energy, "J") if energy.reason is None else f"energy unknown, {reasons.reason(energy.reason)}"
