"""``doctor --bundle``: what is needed to learn a GPU that we have not seen, as one Run for its owner to send."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from jouletrace.devices import open_device
from jouletrace.profiler.calibrate import record_pulses
from jouletrace.profiler.doctor import Diagnosis, diagnose
from jouletrace.profiler.progress import Progress
from jouletrace.run import DeviceInfo, Run, tables
from jouletrace.run.header import plain_fields, values_of
from jouletrace.run.measured import keep

SECONDS = 30.0
"""Length of the pulse train: sensors that mean over a second and update ten times in it see 15 pulses apart."""

_UUID = re.compile(r"(?:MIG-)?(?:GPU|MIG)-[0-9a-fA-F]{8}[\w/-]*")


def bundle(device_spec: str, place: Path, progress: Progress) -> Run:
    """Record a device's pulses and what ``doctor`` shows of it, without names of users, hosts, folders or processes.

    Nothing is fitted: the response of an unknown sensor may be none that is known. The Run is in ``place``, with the
    diagnosis in ``settings["doctor"]``.

    Raises:
        NotPossibleError: If the device has no power sensor that can be read, or can run no load.
        BrokenOffError: If it can't be saved.
    """
    device = open_device(device_spec)
    try:
        run = record_pulses(
            device, device_spec, seconds=SECONDS, seed=0, folder=None, command="", progress=progress
        ).run
    finally:
        device.close()
    run.devices = list(map(_nameless, run.devices))
    run.warnings = [warning for warning in run.warnings if warning.code != "other_processes"]
    run.environment, run.settings["doctor"] = {}, _stated(diagnose(device_spec))
    run = _numbered(run)
    keep(run, place)
    return run


def _numbered(run: Run) -> Run:
    """The Run with "gpu0", "gpu1", ... in place of UUIDs, which name a GPU for good."""
    numbers: dict[str, str] = {}

    def numbered(data: Any) -> Any:
        return json.loads(_UUID.sub(lambda uuid: numbers.setdefault(uuid[0], f"gpu{len(numbers)}"), json.dumps(data)))

    rows = {name: tables.from_rows(numbered(run.table(name).to_pylist()), name) for name in tables.TABLES}
    return Run(**values_of(numbered(plain_fields(run))), **rows)


def _nameless(info: DeviceInfo) -> DeviceInfo:
    """A device without what names it or its host."""
    return replace(info, serial=None, host="", pci_bus=None)


def _stated(diagnosis: Diagnosis) -> dict[str, Any]:
    """A diagnosis as JSON of nameless devices, each with the number of its processes."""
    nameless = [replace(there, info=_nameless(there.info)) for there in diagnosis.devices]
    facts = replace(diagnosis, devices=nameless).to_dict()
    for there in facts["devices"]:
        there["processes"] = len(there["processes"])
    return facts
