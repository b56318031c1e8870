"""Which pods hold which recorded GPU, as time goes: an ``Observer`` of a monitor.

Pods hold a GPU from the first of consecutive answers of the kubelet that name them to the last. What the GPU took
between two answers that differ is of no pod in the counters here. The Run has spans of answers alone, from which
``kind`` states energies with the intervals that this leaves.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jouletrace.cli.output import say
from jouletrace.devices import open_devices
from jouletrace.errors import JouletraceError, NotPossibleError
from jouletrace.profiler.monitoring.watch import LiveWork, Reading
from jouletrace.recording.session import Session
from jouletrace.run.channels import POWER
from jouletrace.wings.pods.kubelet import CLAIM, TIMEOUT_S, Pod, held

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
"""Devices of others that are named: each pod may have a claim of its own."""

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
        self._answers: deque[tuple[int, dict[str, set[Pod]]]] = deque()
        self._problem = self._said = ""
        self._others: set[str] = set()

    def start(self, session: Session) -> None:
        """See ``profiler.monitoring.watch.Observer``."""
        self._session = session
        self._gpus = {device.info.id: _Gpu((session.clock.time_ns(), 0.0)) for device in session.devices}
        self._owners: dict[str, str | None] = {id: id for id in self._gpus}
        session.run.workload["pods"] = {"socket": str(self._socket), "every_s": EVERY_S}
        self._thread.start()

    def show(self, readings: list[Reading], work: LiveWork | None) -> None:
        """See ``profiler.monitoring.watch.Observer``."""
        self._take()
        for reading in readings:
            gpu = self._gpus[reading.device]
            if reading.energy_j is not None:
                self._reach(reading.device, gpu, reading.energy_ns, reading.energy_j)
                reading.energies = [(_labelled(pods), joules) for pods, (joules, _) in gpu.shares.items()]
            elif self._session.run.channel(reading.device, POWER) is None:  # else its first reading is to come
                self._reach(reading.device, gpu, self._session.clock.time_ns(), 0.0)
            reading.labels = _labelled(Pods() if self._problem else gpu.pods or Pods())

    def finish(self) -> None:
        """See ``profiler.monitoring.watch.Observer``."""
        self._ending.set()
        self._thread.join(2 * TIMEOUT_S)
        self._take()
        for id, gpu in self._gpus.items():
            for time_ns, _ in gpu.waiting.copy():
                self._reach(id, gpu, time_ns, gpu.tick[1])  # for the spans alone: the counters have been read
            self._write(id, gpu)

    def _go_on(self) -> None:
        """Ask until the monitor ends, and then once more, unless the last answer failed."""
        wait_s, ended = 0.0, False
        while not ended:
            ended, wait_s = self._ending.wait(wait_s), EVERY_S
            if ended and self._problem:
                break
            before = self._session.clock.time_ns()
            try:
                answer = held(self._socket)
            except OSError as error:
                self._problem = str(error)
            else:
                self._answers.append(((before + self._session.clock.time_ns()) // 2, answer))
                self._problem = ""

    def _take(self) -> None:
        """Take the answers that have come; report once that they fail, and once that they come again."""
        while self._answers:
            time_ns, answer = self._answers.popleft()
            holders: dict[str, set[Pod]] = {id: set() for id in self._gpus}
            for id, pods in answer.items():
                if (owner := self._owner(id)) is not None:
                    holders[owner] |= pods
                elif id.startswith(("GPU-", "MIG-", CLAIM)):  # else it is no GPU
                    self._name_other(id, min(pods))
            for id, gpu in self._gpus.items():
                gpu.waiting.append((time_ns, Pods(holders[id])))
        if (problem := self._problem) != self._said:
            say(f"--pods: {problem}; asked again every {EVERY_S:g} s" if problem else "--pods: the kubelet answers")
            if problem and all(warning.code != "pods_unknown" for warning in self._session.run.warnings):
                self._session.run.warn("pods_unknown", f"the kubelet didn't always answer: {problem}")
            self._said = problem

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
        """Add the span of those that held a GPU until the last answer."""
        if gpu.pods is not None:
            name = " + ".join(sorted(map("/".join, gpu.pods))) or NO_POD
            self._session.add_span("range", name, gpu.since_ns, gpu.until_ns, LANE, id)

    def _owner(self, id: str) -> str | None:
        """The recorded GPU of an id; of a MIG instance that isn't recorded itself its GPU; None for another."""
        if id not in self._owners:
            self._owners[id] = None
            if id.startswith("MIG-"):
                try:
                    (instance,) = open_devices([id])
                except JouletraceError:
                    return None
                instance.close()
                parent = str(instance.info.details.get("parent"))
                self._owners[id] = parent if parent in self._gpus else None
        return self._owners[id]

    def _name_other(self, id: str, pod: Pod) -> None:
        """Report once that a pod holds what isn't recorded, and in a warning of the Run."""
        if id not in self._others and len(self._others) < _MOST:
            self._others.add(id)
            text = f"{'/'.join(pod)} holds {id}, which names no recorded GPU"
            self._session.run.warn("pods_elsewhere", text)
            say(f"--pods: {text}")


def _labelled(pods: Pods) -> dict[str, str]:
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
