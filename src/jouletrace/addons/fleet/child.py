"""The process that measures one GPU once, or loads it as noise: ``python -m jouletrace.addons.fleet.child``.

CUDA shows it this GPU only. It reads JSON objects, one per line, and writes such lines:

    <- {"measure": {...}} or {"noise": {...}}
    -> {"is": "phase", "name": "warm-up", "seconds": 5.0}     for every step of progress
    -> {"is": "ready"}
    <- {"at_ns": 1767225600000000000}                         common start of all processes
    -> {"is": "done"} or {"is": "failed", "reason": "out_of_memory", "text": "..."}

It ends when its input ends; noise is ended in this way.
"""

from __future__ import annotations

import errno
import json
import os
import select
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow.compute as pc

from jouletrace.addons.fleet.folder import Folder
from jouletrace.addons.fleet.plan import FleetGpu, FleetSettings, Task
from jouletrace.devices import open_device
from jouletrace.devices.base import Clock, Device
from jouletrace.errors import BadInputError, JouletraceError, NotPossibleError
from jouletrace.profiler import board_store
from jouletrace.profiler.passes import LEAST_PERIODS, LEAST_WINDOW_S
from jouletrace.profiler.prepare import prepare
from jouletrace.profiler.profile import profile_workload
from jouletrace.profiler.progress import Progress
from jouletrace.profiler.repeats import numbered
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.recording.session import Session
from jouletrace.run import Run
from jouletrace.run.channels import POWER
from jouletrace.run.forms import Fleet
from jouletrace.workloads import resolve

_SPIN_NS = 2_000_000
"""The last interval before the start is waited for in a busy loop: the scheduler may be late by more than that."""

_CHUNK_S = 0.1

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error codes of a full disk; most errors reach us as text."""

_LOST = ("GPU is lost", "fallen off the bus", "uncorrectable ECC error")
"""Texts with which the driver and CUDA report a lost GPU."""

_PHASE = "latency"
"""The phase that begins with the step: a rest precedes it, and it starts with the full load."""

_REST_S, _EARLY_S, _WHOLE_S = 0.5, 0.4, 1.0
_SLOWEST_S = 0.05
"""Longest update period of a record that resolves a step."""

_LEAST_READINGS = 5
_RISEN = 0.9


class Talk(Progress):
    """The connection to the parent, which knows the device and measures times itself."""

    def __init__(self, orders: IO[str], answers: IO[str]) -> None:
        self._orders = orders
        self._answers = answers

    def say(self, what: str, **more: Any) -> None:
        """Write a line."""
        print(json.dumps({"is": what, **more}), file=self._answers, flush=True)

    def order(self) -> dict[str, Any]:
        """The next line.

        Raises:
            KeyboardInterrupt: If the parent is gone.
        """
        line = self._orders.readline()
        if not line:
            raise KeyboardInterrupt
        found: dict[str, Any] = json.loads(line)
        return found

    def ended(self) -> bool:
        """True if the parent has closed its end."""
        readable, _, _ = select.select([self._orders], [], [], 0)
        return bool(readable) and not self._orders.readline()

    def begin(self, phase: str, seconds: float, *, at_most: bool = False) -> None:
        """See ``profiler.progress.Progress``."""
        self.say("phase", name=phase, seconds=seconds)


def measure(order: dict[str, Any], talk: Talk) -> None:
    """Measure a task and store the result."""
    settings = FleetSettings.from_dict(order["settings"])
    task = Task(FleetGpu(**order["gpu"]), order["repeat"], order["order"])
    with closing(open_device(task.gpu.device)) as device:
        how = _fixed_length(settings, device)
    own: Fleet = {
        "node": task.gpu.node,
        "repeat": task.repeat,
        "order": task.order,
        "placement": settings.placement,
        "noise": [str(noise) for noise in settings.noise],
        "noise_here": any(noise.on(task.gpu) for noise in settings.noise),
    }

    def gate(session: Session) -> None:
        session.run.settings["fleet"] = own
        talk.say("ready")
        own["at_ns"] = at_ns = int(talk.order()["at_ns"])
        wait_until(at_ns, session.clock)

    run = profile_workload(
        settings.workload,
        numbered(replace(how, device=task.gpu.device), task.repeat + 1),
        folder=Path(order["scratch"]) / str(task.gpu.index),
        command=order["command"],
        progress=talk,
        ready=gate,
    )
    if not run.devices[0].host:
        run.devices[0].host = task.gpu.node
    step = power_step(run)
    if step["step_settled_w"] is not None:  # for ``doctor``, which applies no load
        facts = {**step, "load": run.workload.get("name", ""), "time_ns": time.time_ns()}
        board_store.remember(run.devices[0].id, power_step=facts)
    Folder(order["store"]).add(task, run)


def noise(order: dict[str, Any], talk: Talk) -> None:
    """Run a load until the parent closes its end."""
    settings = replace(ProfileSettings(**order["profile"]), device=order["device"])
    with (
        closing(open_device(settings.device)) as device,
        closing(prepare(resolve(order["workload"]), device, settings).step) as step,
    ):
        iteration_s = max(step.replay(1).seconds, 1e-7)
        talk.say("ready")
        wait_until(int(talk.order()["at_ns"]), device.clock)
        while not talk.ended():
            n = max(1, round(_CHUNK_S / iteration_s))
            iteration_s = max(step.replay(n).seconds / n, 1e-7)


def wait_until(at_ns: int, clock: Clock) -> None:
    """Wait for a time on the host's clock; returns at once for a simulated GPU with its own time."""
    if clock.virtual:
        return
    clock.sleep((at_ns - _SPIN_NS - clock.time_ns()) / 1e9)
    while clock.time_ns() < at_ns:
        pass


def _fixed_length(settings: FleetSettings, device: Device) -> ProfileSettings:
    """Options of a profile whose energy pass has the same length on every GPU, whatever its spread."""
    channels = [channel for source in device.sources() for channel in source.channels]
    period_s = next((channel.period_s or 0.0 for channel in channels if channel.name == POWER), 0.0)
    window_s = min(max(LEAST_WINDOW_S, LEAST_PERIODS * period_s), settings.seconds / 2)
    return replace(
        settings.profile,
        window_s=window_s,
        first_stage=max(2, int(settings.seconds / window_s)),
        max_time_s=settings.seconds,
        latency_s=min(settings.profile.latency_s, settings.seconds / 2),
        target_ci=0.99,  # the length is fixed, whatever the interval
    )


def power_step(run: Run) -> dict[str, float | None]:
    """The response of a GPU's power to the begin of a profile's load; all None where it can't be resolved.

    Under a power cap the load starts at once and the governor responds about 100 ms later: until then the GPU draws
    more than its limit. All values are measured through the sensor, so rise and return include its lag.

    ``step_rest_w`` and ``step_settled_w`` are medians before, and from 0.4 s on; ``step_peak_w`` is the maximum in
    between, None if it may be noise; ``step_rise_s`` ends at 90 % of the rise, ``step_return_s`` where the power is
    back at the settled level after a peak; both count from the begin of the load.
    """
    names = ("step_rest_w", "step_settled_w", "step_peak_w", "step_rise_s", "step_return_s")
    nothing: dict[str, float | None] = dict.fromkeys(names)
    wanted = pc.and_(pc.equal(run.spans["kind"], "phase"), pc.equal(run.spans["name"], _PHASE))
    phases = run.spans.filter(wanted).to_pylist()
    device = run.devices[0].id
    channel = run.channel(device, POWER)
    if not phases or channel is None or (channel.period_s or 1.0) > _SLOWEST_S:
        return nothing
    start, end = phases[0]["start_ns"], phases[0]["end_ns"]
    stamps, watts = run.series(device, POWER)
    order = np.argsort(stamps, kind="stable")
    at, power = (stamps[order] - start) / 1e9, watts[order]
    length_s = min((end - start) / 1e9, _WHOLE_S)
    rest = power[(at > -_REST_S) & (at <= 0)]
    settled = power[(at >= _EARLY_S) & (at <= length_s)]
    if len(rest) < _LEAST_READINGS or len(settled) < _LEAST_READINGS:
        return nothing
    low, high = float(np.median(rest)), float(np.median(settled))
    early = (at > 0) & (at < _EARLY_S)
    if not early.any() or high <= low:
        return nothing
    then, drawn = at[early], power[early]
    risen = drawn >= low + _RISEN * (high - low)
    found = nothing | {"step_rest_w": low, "step_settled_w": high}
    found["step_rise_s"] = float(then[risen][0]) if risen.any() else None
    top = int(drawn.argmax())
    # with so many readings, the maximum of noise lies within three and a half standard deviations
    if drawn[top] > high + 3.5 * float(np.std(settled)):
        found["step_peak_w"] = float(drawn[top])
        back = drawn[top:] <= high
        found["step_return_s"] = float(then[top:][back][0]) if back.any() else None
    return found


def reason_of(error: BaseException) -> str:
    """A short code for the cause of a failed task."""
    text = str(error)
    if isinstance(error, JouletraceError | OSError) and any(os.strerror(code) in text for code in _FULL):
        return "disk_full"
    if any(words in text for words in _LOST):
        return "lost_gpu"
    if isinstance(error, JouletraceError):
        if "out of memory" in text.lower():
            return "out_of_memory"
        return {NotPossibleError: "not_possible", BadInputError: "bad_input"}.get(type(error), "failed")
    return "failed"


def main(orders: IO[str], answers: IO[str]) -> int:
    """Carry out the order."""
    talk = Talk(orders, answers)
    try:
        order = talk.order()
        if "measure" in order:
            measure(order["measure"], talk)
        else:
            noise(order["noise"], talk)
        talk.say("done")
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # a bug is reported like any failure, so that the other GPUs go on
        lines = str(error).splitlines() or [type(error).__name__]
        text = lines[0] if isinstance(error, JouletraceError) else f"{type(error).__name__}: {lines[0]}"
        talk.say("failed", reason=reason_of(error), text=text)
        if not isinstance(error, JouletraceError | OSError):
            raise
        return 1
    return 0


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries and models is no answer to the parent
    sys.exit(main(sys.stdin, answers))
