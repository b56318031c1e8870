"""``doctor``: what can be measured on this machine, by which sensor, how well, and what is missing."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import util
from typing import Any

from jouletrace.devices import list_devices, open_device
from jouletrace.devices.base import Capability, Process
from jouletrace.devices.host import HostMeters
from jouletrace.devices.nvml.vendor import no_gpu_reason
from jouletrace.devices.rapl import CpuHost
from jouletrace.errors import JouletraceError
from jouletrace.recording import board_store
from jouletrace.recording.calibrations import stored_calibration
from jouletrace.recording.environment import version_of, versions
from jouletrace.run import DeviceInfo
from jouletrace.run.forms import Facts
from jouletrace.wing import registered

LIBRARIES = {
    "torch": "built-in models and your own models (pip install 'jouletrace[torch]')",
    "transformers": "built-in models (pip install 'jouletrace[torch]')",
    "plotly": "reports (pip install 'jouletrace[report]')",
}


@dataclass
class DeviceDiagnosis:
    """The measurable quantities and the state of one device.

    Attributes:
        info: Its identity and limits.
        capabilities: What can be measured, and what can't, with the reason.
        processes: The processes that use it now.
        calibrated_days_ago: Age of its stored calibration in days; None if there is none for this driver.
        calibration: The calibrated response by channel.
        remembered: What other commands have stored about it for ``doctor``, by name: its "text", and how many
            "days_ago" it was measured.
        problem: Why it couldn't be opened; "" if it was.
    """

    info: DeviceInfo
    capabilities: list[Capability] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    calibrated_days_ago: float | None = None
    calibration: dict[str, Facts] = field(default_factory=dict)
    remembered: dict[str, Facts] = field(default_factory=dict)
    problem: str = ""


@dataclass
class Diagnosis:
    """The measurements that are possible on this machine.

    Attributes:
        devices: One entry per device.
        no_gpu: Why no NVIDIA GPU can be read; None if one can, or if another device was requested.
        versions: Installed versions.
        extras: Libraries and tools by name: version or path, or their purpose and how to install them.
    """

    devices: list[DeviceDiagnosis]
    no_gpu: str | None
    versions: dict[str, str]
    extras: dict[str, dict[str, str | bool]]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def diagnose(device: str | None = None) -> Diagnosis:
    """Inspect every device (or one), reading each sensor once; changes nothing.

    Raises:
        BadInputError, NotPossibleError: If the requested device doesn't exist.
    """
    if device is not None:
        opened = open_device(device)
        specs, reason = [(opened.info, opened.spec)], None
        opened.close()
    else:
        reason = no_gpu_reason()
        specs = [(info, info.id) for info in list_devices()]
    return Diagnosis([_diagnose(info, spec) for info, spec in specs], reason, versions(), _extras())


def _diagnose(info: DeviceInfo, spec: str) -> DeviceDiagnosis:
    try:
        device = open_device(spec)
    except JouletraceError as error:
        return DeviceDiagnosis(info, problem=str(error))
    try:
        of_host = HostMeters().capabilities() if spec == CpuHost.spec else []
        diagnosis = DeviceDiagnosis(device.info, [*device.capabilities(), *of_host], device.processes())
        calibration = stored_calibration(device)
        if calibration is not None:
            diagnosis.calibrated_days_ago = _days_ago(calibration)
            diagnosis.calibration = calibration.get("channels", {})
        for name, fact in board_store.recall(device.info.id).items():
            if isinstance(fact, dict) and isinstance(fact.get("text"), str):
                diagnosis.remembered[name] = {**fact, "days_ago": _days_ago(fact)}
        return diagnosis
    finally:
        device.close()


def _days_ago(fact: Mapping[str, Any]) -> float:
    return (time.time_ns() - int(fact.get("time_ns", 0))) / 86_400e9


def _is_there(library: str) -> bool:
    """True if a library is installed; an import hook may refuse to look for it."""
    try:
        return util.find_spec(library) is not None
    except (ImportError, ValueError):
        return False


def _extras() -> dict[str, dict[str, str | bool]]:
    libraries: dict[str, dict[str, str | bool]] = {}
    for name, serves in registered("libraries", LIBRARIES).items():
        here = _is_there(name)
        note = version_of(name) or "of unknown version" if here else f"not installed; for {serves}"
        libraries[name] = {"available": here, "note": note}
    for name, serves in registered("tools").items():
        path = shutil.which(name)
        libraries[name] = {"available": path is not None, "note": path or f"not on the PATH; for {serves}"}
    return libraries
