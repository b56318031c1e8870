"""Collective loads: the first GPU's process leads, and the processes of the others follow it call by call.

A profile decides during the run how often to repeat. If every process decided for itself, one would wait forever for
a sum that the others never begin. Therefore the leader profiles as usual and announces each call in advance, and the
others make the same calls. At the end the leader reports the times of its passes, for which every process has its own
recording.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from jouletrace.addons.fleet.plan import CALLS_PORT
from jouletrace.analysis.latency import latencies_s
from jouletrace.analysis.power import tail_s
from jouletrace.devices import open_device
from jouletrace.errors import NotPossibleError
from jouletrace.profiler import calibrations, passes
from jouletrace.profiler.backends.torch import torch_device_of
from jouletrace.profiler.profile import finish
from jouletrace.profiler.progress import Progress
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.recording.session import Session
from jouletrace.run import Run
from jouletrace.run.channels import POWER
from jouletrace.workloads.base import Built, Workload
from jouletrace.workloads.options import WorkloadOptions

_END = b"end"
_WAIT = timedelta(seconds=300)
_READ = timedelta(seconds=20)


def role() -> str:
    """The role of this process: "leader", "follower", or "" for a single process."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return ""
    return "leader" if os.environ["RANK"] == "0" else "follower"


class Led:
    """A workload whose calls are announced; implements ``workloads.base.Workload``.

    Args:
        workload: A collective one.

    Attributes:
        name: Name of the workload.
    """

    def __init__(self, workload: Workload) -> None:
        self.name = workload.name
        self._workload = workload
        self._announced = 0
        self._store: Any = None

    def build(self, device: str, options: WorkloadOptions) -> Built:
        """See ``Workload.build``; the others follow from now on."""
        self._store = _open_store(leads=True)
        built = self._workload.build(device, options)

        def call(i: int) -> Any:
            self._announce(str(i).encode())
            return built.call(i)

        return replace(built, call=call)

    def end(self, run: Run) -> None:
        """Release the others, and send them the times of the passes."""
        if self._store is None:
            return
        phases = [span for span in run.spans.to_pylist() if span["kind"] == "phase"]
        columns = ("variant", "multiplicity", "block", "replays", "start_ns", "end_ns")
        told = {
            "phases": [[span["name"], span["start_ns"], span["end_ns"]] for span in phases],
            "windows": [{name: row[name] for name in columns} for row in run.windows.to_pylist()],
            "latencies_s": latencies_s(run).tolist(),
        }
        self._store.set("told", json.dumps(told).encode())
        self._announce(_END)
        # this process holds the times, so it must not end before the others have read them
        with suppress(RuntimeError):
            self._store.wait([f"read{rank}" for rank in range(1, int(os.environ["WORLD_SIZE"]))], _READ)

    def _announce(self, what: bytes) -> None:
        self._store.set(f"call{self._announced}", what)
        self._announced += 1


def follow(
    workload: Workload,
    settings: ProfileSettings,
    folder: Path,
    command: str,
    progress: Progress,
    ready: Callable[[Session], None],
) -> Run:
    """Make the calls that the leader announces, and record this process's own GPU meanwhile.

    Returns:
        The analysed Run, with the leader's times, since all GPUs wait for one another, and this GPU's power.

    Raises:
        NotPossibleError: If the leader has ended.
    """
    device = open_device(settings.device)
    try:
        session = Session("profile", [device], folder=folder, command=command, settings=settings.to_dict())
        with session:
            calibrations.attach(session.run, device)
            passes.deep_idle(session, device, settings, progress)
            store = _open_store(leads=False)
            options = WorkloadOptions(dtype=settings.dtype, seed=settings.seed, config=settings.config)
            built = workload.build(torch_device_of(device), options)
            session.run.workload = {**built.facts, "mode": settings.mode, "items": built.items}
            session.save_header()
            ready(session)
            _obey(store, built)
            _copy(session, json.loads(store.get("told")))
            store.set(f"read{os.environ['RANK']}", b"yes")
            power = next((one for one in session.recorder.channels if one.name == POWER), None)
            if power is not None:
                session.recorder.wait_until(device.clock.time_ns() + int(tail_s(power) * 1e9))
            run = session.finish()
    finally:
        device.close()
    return finish(run, folder)


def _obey(store: Any, built: Built) -> None:
    number = 0
    while True:
        try:
            what = store.get(f"call{number}")
        except RuntimeError as error:
            raise NotPossibleError(
                f"the leader of {built.facts['name']} has ended: {str(error).splitlines()[0]}"
            ) from None
        if what == _END:
            return
        built.call(int(what))
        number += 1


def _copy(session: Session, told: dict[str, Any]) -> None:
    """Phases, windows and iterations of the leader, assigned to this GPU."""
    for name, start_ns, end_ns in told["phases"]:
        if name not in ("deep idle", "warm-up"):
            session.add_span("phase", name, start_ns, end_ns, "profile")
        if name == "latency" and told["latencies_s"]:
            session.add_iterations(start_ns, np.array(told["latencies_s"]), "latency")
    for window in told["windows"]:
        session.add_window(**window)


def _open_store(*, leads: bool) -> Any:
    """The store in which calls are announced."""
    import torch.distributed

    dist: Any = torch.distributed  # partly unexported
    host, port = os.environ["MASTER_ADDR"], int(os.environ[CALLS_PORT])
    try:
        return dist.TCPStore(host, port, is_master=leads, timeout=_WAIT, wait_for_workers=False)
    except RuntimeError as error:
        raise NotPossibleError(f"the processes could not form a group: {str(error).splitlines()[0]}") from None
