"""Which pods hold which recorded GPU, as time goes: an ``Observer`` of a monitor.

A pod holds a GPU from the first of consecutive answers of the kubelet that name it to the last. What the GPU took
between two answers that differ is of no pod in the counters here. The Run has spans of answers alone, from which
``kind`` states energies with the intervals that this leaves.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jouletrace.cli.output import say
from jouletrace.devices import open_devices
from jouletrace.errors import JouletraceError, NotPossibleError
from jouletrace.profiler.monitoring.watch import LiveWork, Reading
from jouletrace.recording.session import Session
from jouletrace.run.channels import POWER
from jouletrace.run.files import shown
from jouletrace.wings.pods.kubelet import DevicesHeld, Pod, allocatable, held

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
EVERY_S = 2.0
SPOOL_S = 60.0
"""Spans are written that often, so that a monitor that is killed loses no more."""

KEPT_S = 600.0
"""The counter of a pod that has ended is shown for so long, in which Prometheus reads it."""

LANE = "pods"
NO_POD = "no pod known"
"""Name of spans in which no pod held a GPU, as far as the kubelet knows."""

_MOST = 5
"""Devices and claims that a warning names."""

Pods = frozenset[Pod]


@dataclass
class _Gpu:
    """A GPU.

    Attributes:
        tick: Time in ns and energy in J at the last tick.
        waiting: Times and pods of answers that the power record hasn't reached. By those that it has:
        pods, since_ns, until_ns: Who holds the GPU, from when to when as far as no span says it.
        energy_j: Energy until the last answer.
        shares: Joules of each, and when an answer last named them, ns.
    """

    tick: tuple[int, float]
    waiting: deque[tuple[int, Pods]] = field(default_factory=deque)
    pods: Pods | None = None
    since_ns: int = 0
    until_ns: int = 0
    energy_j: float = 0.0
    shares: dict[Pods, tuple[float, int]] = field(default_factory=lambda: {Pods(): (0.0, 0)})


class PodWatch:
    """Asks from a thread; spans, labels and lines on stderr are made where the monitor calls it."""

    def __init__(self, socket: Path) -> None:
        self._socket, self._ending = socket, threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="kubelet", daemon=True)
        self._answers: deque[tuple[int, DevicesHeld]] = deque()
        self._problem = self._said = self._first_problem = ""
        self._given: set[str] | None = None
        self._named: dict[tuple[str, str], str] = {}

    def start(self, session: Session) -> None:
        """See ``profiler.monitoring.watch.Observer``."""
        self._session = session
        self._gpus = {device.info.id: _Gpu((session.clock.time_ns(), 0.0)) for device in session.devices}
        self._ids: dict[str, str | None] = {id: id for id in self._gpus}
        session.run.workload["pods"] = {"socket": str(self._socket), "every_s": EVERY_S}
        self._thread.start()

    def show(self, readings: list[Reading], work: LiveWork | None) -> None:
        """See ``profiler.monitoring.watch.Observer``."""
        self._take()
        for reading in readings:
            gpu = self._gpus[reading.device]
            if reading.energy_j is not None:
                self._reach(reading.device, gpu, reading.energy_ns, reading.energy_j)
            elif self._session.run.channel(reading.device, POWER) is None:  # else its first reading is to come
                self._reach(reading.device, gpu, self._now(), 0.0)
            reading.labels = _labelled(Pods() if self._problem else gpu.pods or Pods())
            each = gpu.shares.items() if reading.energy_j is not None else ()
            reading.energies = [(_labelled(pods), joules) for pods, (joules, _) in each]

    def finish(self) -> None:
        """See ``profiler.monitoring.watch.Observer``."""
        self._ending.set()
        self._thread.join(2 * EVERY_S)
        if self._thread.is_alive():  # an answer that takes longer is lost
            self._problem = f"no answer from {shown(self._socket)}"
        self._take()
        for id, gpu in self._gpus.items():
            for time_ns, _ in gpu.waiting.copy():
                self._reach(id, gpu, time_ns, gpu.tick[1])  # for the spans alone: the counters have been read
            self._write(id, gpu)
        if self._first_problem:
            self._session.run.warn("pods_unknown", f"the kubelet didn't always answer: {self._first_problem}")
        for wanted in dict.fromkeys(code for code, _ in self._named):
            texts = [text for (code, _), text in self._named.items() if code == wanted]
            more = [f"and {len(texts) - _MOST} more"] if len(texts) > _MOST else []
            self._session.run.warn(wanted, "; ".join([*texts[:_MOST], *more]))

    def _go_on(self) -> None:
        ended, wait_s, self._given = False, 0.0, allocatable(self._socket)
        while not ended:
            ended, before, wait_s = self._ending.wait(wait_s), self._now(), EVERY_S
            try:
                answer = held(self._socket)
            except OSError as error:
                self._problem = str(error)
            else:
                self._answers.append(((before + self._now()) // 2, answer))
                self._problem = ""

    def _now(self) -> int:
        return self._session.clock.time_ns()

    def _take(self) -> None:
        """Take the answers that have come; report once that they fail, and once that they come again."""
        given, self._given = self._given, None
        for id in () if given is None else sorted(self._gpus.keys() - {self._owner(other) for other in given}):
            self._name("pods_elsewhere", id, f"the kubelet doesn't give {id} to pods")
        while self._answers:
            time_ns, (pods, claims) = self._answers.popleft()
            holders: dict[str, set[Pod]] = {id: set() for id in self._gpus}
            for id, some in pods.items():
                if (owner := self._owner(id)) is not None:
                    holders[owner] |= some
                elif id.startswith(("GPU-", "MIG-")):  # else it is no GPU
                    self._name("pods_elsewhere", id, f"{'/'.join(min(some))} holds {id}, which isn't recorded")
            for claim, pod in claims.items():
                self._name("pods_claims", claim, f"{'/'.join(pod)} has the claim {claim}: its devices aren't resolved")
            for id, gpu in self._gpus.items():
                gpu.waiting.append((time_ns, Pods(holders[id])))
        if (problem := self._problem) != self._said:
            say(f"--pods: {problem}; asked again every {EVERY_S:g} s" if problem else "--pods: the kubelet answers")
            self._said, self._first_problem = problem, self._first_problem or problem

    def _reach(self, id: str, gpu: _Gpu, time_ns: int, joules: float) -> None:
        """Take the answers until a time, which the power record has reached."""
        while gpu.waiting and gpu.waiting[0][0] <= time_ns:
            at_ns, pods = gpu.waiting.popleft()
            energy_j = float(np.interp(at_ns, (gpu.tick[0], time_ns), (gpu.tick[1], joules)))
            owner = pods if pods == gpu.pods else Pods()
            gpu.shares[pods] = gpu.shares.get(pods, (0.0, 0))[0], at_ns
            gpu.shares[owner] = gpu.shares[owner][0] + energy_j - gpu.energy_j, at_ns
            gpu.energy_j = energy_j
            if pods == gpu.pods:
                gpu.until_ns = at_ns
            if pods != gpu.pods or at_ns - gpu.since_ns > SPOOL_S * 1e9:
                self._write(id, gpu)
                gpu.pods, gpu.since_ns, gpu.until_ns = pods, at_ns, at_ns
        gpu.tick, oldest_ns = (time_ns, joules), time_ns - KEPT_S * 1e9
        kept = (Pods(), gpu.pods)
        gpu.shares = {pods: share for pods, share in gpu.shares.items() if pods in kept or share[1] > oldest_ns}

    def _write(self, id: str, gpu: _Gpu) -> None:
        """Add the spans of those that held a GPU until the last answer."""
        for name in () if gpu.pods is None else sorted(map("/".join, gpu.pods)) or [NO_POD]:
            self._session.add_span("range", name, gpu.since_ns, gpu.until_ns, LANE, id)

    def _owner(self, id: str) -> str | None:
        """The recorded GPU of an id; of a MIG instance that isn't recorded itself its GPU; None for another."""
        if id not in self._ids:
            self._ids[id] = None
            if id.startswith("MIG-"):
                try:
                    (instance,) = open_devices([id])
                except JouletraceError:
                    return None
                instance.close()
                parent = str(instance.info.details.get("parent"))
                self._ids[id] = parent if parent in self._gpus else None
        return self._ids[id]

    def _name(self, code: str, id: str, text: str) -> None:
        """Report something once, and in a warning of the Run."""
        if (code, id) not in self._named:
            self._named[code, id] = text
            say(f"--pods: {text}")


def _labelled(pods: Pods) -> Mapping[str, str]:
    """Labels of those that hold a GPU, each a list in the same order; empty texts for none."""
    return {name: ",".join(getattr(pod, name) for pod in sorted(pods)) for name in Pod._fields}


def observe(where: str) -> PodWatch:
    """An observer by the kubelet at a socket; "" for the usual one.

    Raises:
        NotPossibleError: If gRPC isn't installed.
    """
    try:
        import grpc  # noqa: F401
        from google.protobuf import descriptor_pb2  # noqa: F401
    except ImportError:
        raise NotPossibleError("--pods needs gRPC: pip install 'jouletrace[pods]'") from None
    return PodWatch(Path(where or SOCKET))
