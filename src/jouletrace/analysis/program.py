"""Figures of a whole program: its energy, and where it went by the regression on its kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jouletrace.analysis.kernel_times import recorded_units
from jouletrace.analysis.power import window_estimate
from jouletrace.run import MODEL_UNIT, DeviceInfo, Estimate, Run
from jouletrace.run.figures import Figures
from jouletrace.run.forms import RecordingFacts
from jouletrace.run.metrics import PROGRAM_TIME
from jouletrace.run.recording_names import BEFORE, has_recording
from jouletrace.stats.interval import ratio, total


def add_program(run: Run, figures: Figures) -> None:
    """Add the figures of the program, of its devices where there are several, and of its parts."""
    recordings = run.workload.get("recordings", [])
    name = str(run.workload.get("name", "program"))
    figures.model(name)
    edges = run.spans.filter(np.array([kind == "phase" for kind in run.spans["kind"].to_pylist()], bool)).to_pylist()
    span = next((row for row in edges if row["name"] == "program"), None)
    if span is None:
        return
    begin, end = int(span["start_ns"]), int(span["end_ns"])
    seconds = (end - begin) / 1e9
    gpus = [device for device in run.devices if device.kind != "cpu"] or run.devices
    whole = [window_estimate(run, device.id, begin, end) for device in gpus]
    energy = whole[0] if len(whole) == 1 else total(whole)
    figures.add(MODEL_UNIT, PROGRAM_TIME, Estimate(seconds, None, None, 1, "clock"))
    figures.add_energy(MODEL_UNIT, energy, seconds)
    if (steps := run.workload.get("steps")) and steps["calls"] > 1:
        figures.add(MODEL_UNIT, "energy_per_step_j", replace(energy, budget={}).scaled(1 / steps["calls"]))
    known = {row["module"]: row["id"] for row in run.units.to_pylist() if row["level"] == "device"}
    figures.units.after(known.values())
    for rows in recorded_units(run).values():
        figures.units.keep(rows.values())

    def add_device(device: DeviceInfo, name: str, own: Estimate, whole: float | None) -> None:
        unit = figures.units.add("device", name, id=known.get(device.id), module=device.id)
        figures.add(unit, "time_s", Estimate(seconds, None, None, 1, "trace"))
        figures.add_energy(unit, own, seconds, whole)

    if len(gpus) > 1:
        names = {one["device"]: f"{one['name']}: " for one in recordings if "name" in one}
        for device, own in zip(gpus, whole, strict=True):
            add_device(device, f"{names.get(device.id, '')}{device.name}", own, energy.value)
    found = [_add_parts(run, figures, about, begin, end) for about in recordings] if has_recording(run) else []
    if len(gpus) > 1 and found:
        traced = {about.get("device") for about in recordings}
        for device, own in zip(gpus, whole, strict=True):
            if device.id not in traced and own.value and energy.value:
                share = 100 * own.value / energy.value
                run.warn("kernels_not_recorded", f"no kernels were recorded of {share:.0f} % of the energy", device.id)
        parts, wholes = (total(side) for side in zip(*found, strict=True))
        figures.add(MODEL_UNIT, "closure_kernels", ratio(parts, wholes, found[0][0].method), ["traced_whole"])
    for device in run.devices if gpus is not run.devices else ():
        if device.kind == "cpu":  # beside the GPUs, and in no sum
            add_device(device, device.name, window_estimate(run, device.id, begin, end), None)
    if any("start_ns" not in one for one in recordings):  # an old Run without kernels: its phases are what is known
        phases = {row["id"]: row for row in run.units.to_pylist() if row["level"] == "phase"}
        figures.units.keep(phases.values())
        figures.keep_results(row for row in run.results.to_pylist() if row["unit"] in (MODEL_UNIT, *phases))


def _add_parts(
    run: Run, figures: Figures, about: RecordingFacts, begin_ns: int, end_ns: int
) -> tuple[Estimate, Estimate]:
    """Add what ran on a GPU from its first kernel on, and what was before it, when it draws less without a context.

    Returns:
        Energy of all parts from the first kernel on, and of the whole of that time, J.
    """
    from jouletrace.analysis.parts import recorded_of  # scipy takes a second to import

    first_ns = about.get("first_ns", about["start_ns"])
    found = recorded_of(run, figures, about)
    whole = window_estimate(run, found.times.device, first_ns, end_ns)
    parts = found.add(scaled=False, whole=whole, whole_s=(end_ns - first_ns) / 1e9)
    before, seconds = window_estimate(run, found.times.device, begin_ns, first_ns), (first_ns - begin_ns) / 1e9
    unit = figures.units.add("op", BEFORE, found.top, count=1)
    figures.add(unit, "time_s", Estimate(seconds, None, None, 1, "trace"))
    figures.add_energy(unit, before, seconds, figures.get(MODEL_UNIT, "energy_total_j").value)
    return parts, whole
