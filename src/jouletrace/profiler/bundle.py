"""``doctor --bundle``: what is needed to learn a GPU that we have not seen, as one Run for its owner to send."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from jouletrace.devices import open_device
from jouletrace.profiler.calibrate import record_pulses
from jouletrace.profiler.doctor import Diagnosis, diagnose
from jouletrace.profiler.progress import Progress
from jouletrace.run import Run
from jouletrace.run.store import save

SECONDS = 30.0
"""Length of the pulse train: sensors that mean over a second and update ten times in it see 15 pulses apart."""


def bundle(device_spec: str, place: Path, progress: Progress) -> Run:
    """Record a device's pulses and what ``doctor`` shows of it, without names of users, hosts, folders or processes.

    Nothing is fitted: the response of an unknown sensor may be none that is known. The Run is in ``place``, with the
    diagnosis in ``settings["doctor"]``.

    Raises:
        NotPossibleError: If the device has no power sensor that can be read, or can run no load.
        BadInputError, BrokenOffError: If it can't be saved.
    """
    device = open_device(device_spec)
    try:
        _, run = record_pulses(device, device_spec, seconds=SECONDS, seed=0, folder=None, command="", progress=progress)
    finally:
        device.close()
    run.devices = [replace(info, serial=None, host="", pci_bus=None) for info in run.devices]
    run.warnings = [warning for warning in run.warnings if warning.code != "other_processes"]
    run.environment, run.settings["doctor"] = {}, _nameless(diagnose(device_spec))
    save(run, place)
    return run


def _nameless(diagnosis: Diagnosis) -> dict[str, Any]:
    """A diagnosis as JSON without what names a device or its host, and with the number of its processes."""
    facts = diagnosis.to_dict()
    for there in facts["devices"]:
        there["info"] |= {"serial": None, "host": "", "pci_bus": None}
        there["processes"] = len(there["processes"])
    return facts
