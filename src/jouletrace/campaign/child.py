"""The process in which a campaign runs a workload: ``python -m jouletrace.campaign.child``.

CUDA shows it one GPU or one slice. It takes orders, JSON objects one per line, and answers in such lines:

    <- {"do": "profile", "workload": "vit-base", "settings": {...}, "folder": "run", "at_once": true}   saves a Run
    <- {"do": "libraries", "workload": "vit-base", "settings": {...}}   imports what it will need; touches no GPU
    <- {"do": "load", "workload": "vit-base", "options": {...}, "mode": "graph", "device": "cuda:0"}
    <- {"do": "run", "at_ns": ..., "seconds": 10}              what is loaded; without seconds until its input ends
    <- {"do": "outputs", "workload": "vit-base", "settings": [{...}, {...}]}   how far the outputs of these differ
    <- {"do": "memory"}
    -> {"is": "phase", "name": "warm-up", "seconds": 5.0}      progress
    -> {"is": "ready"}  <- {"at_ns": 1767225600000000000}      the common start of a profile, if it is "at_once"
    -> {"is": "done", ...}                                     with the result
    -> {"is": "failed", "reason": "out_of_memory", "text": "...", "code": 3}

It ends when its input ends.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from jouletrace.campaign.worker import INTERRUPTED, reason_of
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.execution.steps.trial import largest_difference, outputs_of
from jouletrace.known_secrets import hidden
from jouletrace.profiler.prepare import for_workload, load_libraries, prepare
from jouletrace.profiler.profile import profile_workload
from jouletrace.profiler.progress import Progress
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.recording.session import Session
from jouletrace.workloads import resolve

_SPIN_NS = 2_000_000
"""The last interval before a start is waited for in a busy loop: the scheduler may be late by more than that."""

_CHUNK_S = 0.25
"""Approximate length of the chunks, back to back, in which requests are timed."""


class Talk(Progress):
    """The connection to the parent, which knows the device and measures times itself."""

    def __init__(self, orders: IO[str], answers: IO[str]) -> None:
        self._orders = orders
        self._answers = answers

    def say(self, what: str, **more: Any) -> None:
        """Write a line."""
        print(json.dumps({"is": what, **more}), file=self._answers, flush=True)

    def order(self) -> dict[str, Any] | None:
        """The next line; None if the parent has closed its end."""
        line = self._orders.readline()
        found: dict[str, Any] | None = json.loads(line) if line else None
        return found

    def start_ns(self) -> int:
        """The common start, once this process is ready.

        Raises:
            KeyboardInterrupt: If the parent is gone.
        """
        self.say("ready")
        order = self.order()
        if order is None:
            raise KeyboardInterrupt
        return int(order["at_ns"])

    def ended(self) -> bool:
        """True if the parent has closed its end."""
        readable, _, _ = select.select([self._orders], [], [], 0)
        return bool(readable) and not self._orders.readline()

    def begin(self, phase: str, seconds: float, *, at_most: bool = False) -> None:
        """See ``profiler.progress.Progress``."""
        self.say("phase", name=phase, seconds=seconds)


class Doing:
    """Carries out orders, one after the other."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._step: Any = None

    def profile(self, order: dict[str, Any]) -> dict[str, Any]:
        """Save the Run of a workload in a folder."""

        def gate(session: Session) -> None:
            at_ns = self._talk.start_ns()
            if not session.clock.virtual:  # simulated GPUs have times of their own
                wait_until(at_ns)

        profile_workload(
            order["workload"],
            ProfileSettings(**order["settings"]),
            folder=Path(order["folder"]),
            command=order.get("command", ""),
            progress=self._talk,
            ready=gate if order.get("at_once") else None,
        )
        return {}

    def libraries(self, order: dict[str, Any]) -> dict[str, Any]:
        """Import what a workload needs; no GPU gets a context."""
        workload = resolve(order["workload"])
        settings = for_workload(workload, ProfileSettings(**order["settings"]))
        device = open_device(settings.device)
        try:
            load_libraries(workload, device, settings)
        finally:
            device.close()
        return {}

    def load(self, order: dict[str, Any]) -> dict[str, Any]:
        """Build a workload, in place of the one before; its samples per request."""
        from jouletrace.execution.steps import make_step
        from jouletrace.workloads import WorkloadOptions

        self.free()
        options: dict[str, Any] = order["options"]
        options = {name: tuple(one) if isinstance(one, list) else one for name, one in options.items()}
        built = resolve(order["workload"]).build(order["device"], WorkloadOptions(**options))
        self._step = make_step(built, order["device"], order["mode"])
        return {"items": built.items}

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run what is loaded: the latency of each request in seconds, and when the first began and the last ended."""
        if self._step is None:
            raise BadInputError("nothing is loaded")
        wait_until(int(order["at_ns"]))
        seconds = order.get("seconds")
        start_ns = time.time_ns()
        chunk = latencies = self._step.latencies(1).tolist()
        while not self._talk.ended() if seconds is None else time.time_ns() - start_ns < seconds * 1e9:
            chunk = self._step.latencies(max(1, round(_CHUNK_S / max(sum(chunk) / len(chunk), 1e-6)))).tolist()
            if seconds is not None:  # a load without an end has no use for them
                latencies += chunk
        return {"latency_s": latencies, "start_ns": start_ns, "end_ns": time.time_ns()}

    def outputs(self, order: dict[str, Any]) -> dict[str, Any]:
        """How far the outputs of each settings differ from the first's (``trial.largest_difference``).

        None with a reason of those that can't be computed.
        """
        self.free()
        first: list[Any] = []
        differ: list[float | None] = []
        why = ""
        for given in order["settings"]:
            try:
                outputs = _outputs(order["workload"], ProfileSettings(**given))
            except JouletraceError as error:
                if not differ:
                    raise
                why = " ".join(str(error).split())
                differ.append(None)
                continue
            if outputs is None:
                return {"differ": None, "why": "a simulated GPU computes no numbers"}
            first = first or outputs
            differ.append(largest_difference(first, outputs))
        return {"differ": differ, "why": why}

    def memory(self, _: dict[str, Any]) -> dict[str, Any]:
        """Device memory in use on what CUDA shows, by the driver, in bytes; None on a CPU."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available():
            return {"bytes": None}
        free, total = torch.cuda.mem_get_info()
        return {"bytes": int(total - free)}

    def free(self) -> None:
        """Free what is loaded."""
        if self._step is not None:
            self._step.close()
            self._step = None


def _outputs(workload: str, settings: ProfileSettings) -> list[Any] | None:
    """The outputs of an iteration; None where no numbers are computed."""
    device = open_device(settings.device)
    try:
        prepared = prepare(resolve(workload), device, settings)
        try:
            return outputs_of(prepared.built) if prepared.real else None
        finally:
            prepared.step.close()
    finally:
        device.close()


def wait_until(at_ns: int) -> None:
    """Wait for a time of the host's clock."""
    time.sleep(max(0, at_ns - _SPIN_NS - time.time_ns()) / 1e9)
    while time.time_ns() < at_ns:
        pass


def main(orders: IO[str], answers: IO[str]) -> int:
    """Carry out orders until there are no more; returns the exit code."""
    talk = Talk(orders, answers)
    doing = Doing(talk)
    known: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "profile": doing.profile,
        "libraries": doing.libraries,
        "load": doing.load,
        "run": doing.run,
        "outputs": doing.outputs,
        "memory": doing.memory,
    }
    try:
        while (order := talk.order()) is not None:
            try:
                if order.get("do") not in known:
                    raise BadInputError(f"unknown order {order.get('do')!r}")
                talk.say("done", **known[order["do"]](order))
            except Exception as error:  # a bug is an answer too, so that the other processes go on
                talk.say("failed", **_failure(error))
        doing.free()
    except KeyboardInterrupt:
        talk.say("failed", reason="interrupted", text="interrupted", code=INTERRUPTED)
        return INTERRUPTED
    return 0


def _failure(error: Exception) -> dict[str, Any]:
    if isinstance(error, JouletraceError):
        text, trace = " ".join(str(error).split()), ""
    else:
        text = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        trace = "".join(traceback.format_exception(error))
    code = getattr(error, "exit_code", 1)
    return {"reason": reason_of(error), "text": hidden(text), "code": code, "trace": hidden(trace)}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries and models is no answer to the parent
    sys.exit(main(sys.stdin, answers))
