"""Figures of a whole program: its energy, and where it went by the regression on its kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jouletrace.analysis.figures import Figures
from jouletrace.analysis.power import no_power_reason, power_record, window_estimate, window_sources
from jouletrace.run import MODEL_UNIT, DeviceInfo, Estimate, Run
from jouletrace.run.forms import PartOfGpu
from jouletrace.run.recording_names import RECORDING, has_recording
from jouletrace.stats.interval import ratio, total

OF_PART = "the Run of this GPU"
"""Method of figures that come from there."""

BEFORE = "before the first kernel"
"""Name of the unit for the time in which the program imports, reads and sets up."""


def add_program(run: Run, figures: Figures) -> None:
    """Add the figures of the program, of its devices where there are several, and of its parts."""
    name = str(run.workload.get("name", "program"))
    figures.unit(MODEL_UNIT, "model", name, count=1)
    edges = run.spans.filter(np.array([kind == "phase" for kind in run.spans["kind"].to_pylist()], bool)).to_pylist()
    span = next((row for row in edges if row["name"] == "program"), None)
    if span is None:
        return
    begin, end = int(span["start_ns"]), int(span["end_ns"])
    seconds = (end - begin) / 1e9
    gpus = [device for device in run.devices if device.kind != "cpu"] or run.devices
    whole = [_energy(run, device.id, begin, end) for device in gpus]
    energy = whole[0] if len(whole) == 1 else total(whole)
    figures.add(MODEL_UNIT, "iteration_time_s", Estimate(seconds, None, None, 1, "clock"))
    figures.add(MODEL_UNIT, "energy_total_j", energy)
    figures.add(MODEL_UNIT, "power_w", energy.scaled(1 / seconds))
    figures.sources[MODEL_UNIT, "energy_total_j"] = lambda: window_sources(
        run, [device.id for device in gpus], begin, end
    )
    if has_recording(run):
        _add_parts(run, figures, begin, end)
    if len(gpus) > 1:
        for device, own in zip(gpus, whole, strict=True):
            _add_device(run, figures, device, own, seconds)
        _add_closure(run, figures, gpus, whole)
    for device in run.devices if gpus is not run.devices else ():
        if device.kind == "cpu":  # beside the GPUs, and in no sum
            unit = figures.unit(figures.last_unit() + 1, "device", device.name, MODEL_UNIT, module=device.id)
            _add_row(figures, unit, seconds, _energy(run, device.id, begin, end), None)


def _add_device(run: Run, figures: Figures, device: DeviceInfo, energy: Estimate, seconds: float) -> None:
    """Add one of several GPUs, with the parts that its own Run has."""
    stated = next((one for one in run.workload.get("gpus", ()) if one["device"] == device.id), None)
    name = device.name if stated is None else f"{stated['name']}: {device.name}"
    unit = figures.unit(figures.last_unit() + 1, "device", name, MODEL_UNIT, module=device.id)
    whole = figures.get(MODEL_UNIT, "energy_total_j").value
    _add_row(figures, unit, seconds, energy, whole)
    if stated is None:
        return
    for part in stated["parts"]:
        shown = f"{stated['name']}: {part['name']}"
        row = figures.unit(figures.last_unit() + 1, "phase", shown, unit, count=1)
        _add_row(figures, row, part["time_s"], _stated(part), whole)


def _stated(part: PartOfGpu) -> Estimate:
    value, half = part["energy_j"], part["half_width_j"]
    if value is None or half is None:
        return Estimate.null(part["reason"] or "not_resolved", OF_PART)
    return Estimate(value, value - half, value + half, 1, OF_PART)


def _add_row(figures: Figures, unit: int, seconds: float | None, energy: Estimate, whole: float | None) -> None:
    time = Estimate.null("no_value", "trace") if seconds is None else Estimate(seconds, None, None, 1, "trace")
    figures.add(unit, "time_s", time)
    figures.add(unit, "energy_total_j", energy)
    if seconds:
        figures.add(unit, "power_w", energy.scaled(1 / seconds))
    if whole:
        figures.add(unit, "share", energy.scaled(1 / whole))


def _add_closure(run: Run, figures: Figures, devices: Sequence[DeviceInfo], energies: Sequence[Estimate]) -> None:
    """Add how the parts of all GPUs make the whole of these."""
    gpus = {gpu["device"]: gpu for gpu in run.workload.get("gpus", ())}
    wholes = [energy for device, energy in zip(devices, energies, strict=True) if device.id in gpus]
    parts = [_stated(part) for gpu in gpus.values() for part in gpu["parts"]]
    if parts:
        figures.add(MODEL_UNIT, "closure_kernels", ratio(total(parts), total(wholes), OF_PART), ["traced_whole"])


def _add_parts(run: Run, figures: Figures, begin_ns: int, end_ns: int) -> None:
    """Add what ran from the first kernel on, and what was before it, when the GPU without a context draws less."""
    from jouletrace.analysis.parts import parts_of  # scipy takes a second to import

    about = run.workload[RECORDING]
    first_ns = about.get("first_ns", about["start_ns"])
    found = parts_of(run, figures)
    device = found.times.device
    whole = window_estimate(run, device, first_ns, end_ns)
    found.add(scaled=False, whole=whole, whole_s=(end_ns - first_ns) / 1e9)
    before = _energy(run, device, begin_ns, first_ns)
    unit = figures.unit(figures.last_unit() + 1, "op", BEFORE, MODEL_UNIT, count=1)
    _add_row(figures, unit, (first_ns - begin_ns) / 1e9, before, figures.get(MODEL_UNIT, "energy_total_j").value)


def _energy(run: Run, device: str, begin_ns: int, end_ns: int) -> Estimate:
    """Energy of a device while the program ran, J."""
    if power_record(run, device) is None:
        return Estimate.null(no_power_reason(run, device), "record")
    return window_estimate(run, device, begin_ns, end_ns)
