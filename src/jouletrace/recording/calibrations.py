"""Stored calibrations of GPUs, and their use in Runs."""

from __future__ import annotations

from typing import NamedTuple

from jouletrace.devices.base import Device
from jouletrace.recording import board_store
from jouletrace.run import MODEL_UNIT, DeviceInfo, Run
from jouletrace.run.channels import ENERGY_COUNTER, POWER
from jouletrace.run.forms import Calibration, StoredLevel, StoredScatter
from jouletrace.run.recording_names import SAMPLE_RATE

KEY = "calibration"

_OF_SENSOR = (POWER, "power_average_w", "power_instant_w", ENERGY_COUNTER)
"""Channels of a GPU's one power sensor."""


class RecordedBoard(NamedTuple):
    """A GPU that a Run is of."""

    info: DeviceInfo
    spec: str


def stored_calibration(device: Device | RecordedBoard) -> Calibration | None:
    """The calibration of this GPU under this driver: "time_ns", "driver", "channels"; None if there is none."""
    stored = board_store.recall_as(Calibration, _board(device), KEY)
    return stored if stored is not None and stored.get("driver") == device.info.driver else None


def store_calibration(device: Device | RecordedBoard, calibration: Calibration) -> bool:
    """Store a calibration for later runs; False if it can't be written.

    That against a meter stays in force until the next. A new one makes earlier levels void: they are on another scale.
    """
    before = stored_calibration(device) or Calibration()
    kept = {"meter": before["meter"]} if "meter" in before else {}
    stored = {**kept, **calibration, "driver": device.info.driver}
    if "meter" in calibration and not board_store.remember(device.info.id, deep_idle=None, power_step=None):
        return False
    return board_store.remember(_board(device), **{KEY: stored})


def _board(device: Device | RecordedBoard) -> str:
    """Key of a GPU: its id, and for a simulated GPU also the requested sensor."""
    if not device.info.simulated:
        return device.info.id
    asked = device.spec.partition("?")[2].split("&")
    sensor = sorted(part for part in asked if part.startswith(("sensor=", "gain=", "reads=", "offset=")))
    return "-".join([device.info.id, *sensor])


def attach(run: Run, device: Device) -> None:
    """Add the GPU's stored calibration to a Run, if there is one."""
    if (calibration := stored_calibration(device)) is not None:
        apply(run, device.info.id, calibration)


def apply(run: Run, device: str, calibration: Calibration) -> None:
    """Add a calibration to a Run; the parameters measured on this GPU replace the nominal ones of its ``channels``."""
    run.calibration[device] = calibration
    for channel in run.channels:
        response = calibration.get("channels", {}).get(channel.name)
        if channel.device == device and response:
            channel.period_s = response["period_s"]
            channel.window_s = response["window_s"]
            channel.delay_s = response["delay_s"]
            channel.gapless = response["gapless"]
            channel.origin = "calibrated"
            channel.response = response
        if channel.device == device and channel.name in _OF_SENSOR and (meter := calibration.get("meter")):
            channel.gain, channel.offset_w, channel.gain_pct = meter["gain"], meter["offset_w"], meter["gain_pct"]


SCATTER: StoredScatter = {"sd_pct": 0.20, "runs": 10, "source": "DeiT-B, batch 1, as a CUDA graph on an H100"}
"""Between runs of a real GPU: the larger of two sets of ten (docs/results/whole-model-h100.md)."""

SIMULATED_SCATTER: StoredScatter = {"sd_pct": 0.30, "runs": 10, "source": "simulated GPUs"}
"""Between runs of simulated ones, whose presets vary them more (benchmarks/measurands.py)."""


def state_scatter(run: Run, device: Device) -> None:
    """Store in a Run how its workload may scatter between runs, which it can't show itself."""
    if device.info.kind == "gpu":
        run.stored["between_runs"] = SIMULATED_SCATTER if device.info.simulated else SCATTER


def recall_rate(run: Run, device: str) -> None:
    """Store the sample rate of a GPU's sensor, as an earlier recording determined it, in a Run."""
    if stored := board_store.recall_as(StoredLevel, device, SAMPLE_RATE):
        run.stored[SAMPLE_RATE] = {**run.stored.get(SAMPLE_RATE, {}), device: stored}


def remember_rate(run: Run, device: str, unit: int = MODEL_UNIT) -> None:
    """Keep the sample rate that a Run determined: it reduces the search of the next recording to a third."""
    rate = run.result(SAMPLE_RATE, unit)
    if rate.value is not None:
        board_store.remember(device, **{SAMPLE_RATE: {**rate.to_dict(), "time_ns": run.created_ns}})
