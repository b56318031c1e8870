"""Running a fleet: all checks before any measurement, processes on the GPUs of this host, and the missing results."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jouletrace.addons.fleet.folder import Folder
from jouletrace.addons.fleet.plan import ALL, FleetGpu, FleetSettings, Key, Task, busy, find_gpus, rounds
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.processes import children, locks
from jouletrace.profiler.prepare import check_has_phases
from jouletrace.run.scratch import Scratch
from jouletrace.workloads import resolve
from jouletrace.workloads.kernels import AUTO, GEMMS, whole

MODULE = "jouletrace.addons.fleet.child"

HEAD_START_S = 0.2
"""Time from the readiness of all processes to their common start, within which every process must receive its order."""

_THEIRS = ("bad_input", "disk_full")
"""Reasons that the user can resolve."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a task: a code and a sentence for its failure, "" for a success."""

    task: Task
    reason: str = ""
    text: str = ""


Note = Callable[[Outcome], None]
"""Receives each outcome at once."""

Hear = Callable[[FleetGpu, dict[str, Any]], None]
"""Receives a child's reports of progress."""


class Watch:
    """An observer that does nothing; the command line's one displays the progress."""

    def begin(self, total: int, done: int) -> None:
        """Start with the number of requested results, and of those that exist already."""

    def hear(self, gpu: FleetGpu, message: dict[str, Any]) -> None:
        """Receive a process's report of its progress."""

    def outcome(self, found: Outcome) -> None:
        """Receive the outcome of a task."""


@dataclass(frozen=True)
class Host:
    """The GPUs of this host: to measure, others on which noise may run, and why GPUs (by id) can't be measured."""

    gpus: list[FleetGpu]
    others: list[FleetGpu]
    excluded: dict[str, str]


@dataclass(frozen=True)
class Summary:
    """Numbers of requested results, of those that existed already, and of new ones; and the tasks without a result."""

    wanted: int
    before: int
    measured: int
    failed: tuple[Outcome, ...]


def open_host(settings: FleetSettings, device: str = "auto", gpus: str = ALL, *, allow_busy: bool = False) -> Host:
    """Locate the GPUs and refuse impossible requests; ``device`` and ``gpus`` as for ``find_gpus``.

    Raises:
        BadInputError: If the request makes no sense here.
        NotPossibleError: If no GPU is available.
    """
    check_has_phases(resolve(settings.workload), settings.profile)
    for noise in settings.noise:
        resolve(noise.workload)
    for key, text in settings.profile.config.items():
        if settings.workload in (*GEMMS, "memcpy") and key in ("size", "iterations"):
            if text == AUTO and settings.workload in GEMMS:
                advice = f"all GPUs must run the same size; find it by profile {settings.workload} --config size=auto"
                raise BadInputError(f"--config size=auto: {advice}")
            whole(settings.workload, key, text)
    measured, others = find_gpus(device, gpus)
    present = [*measured, *others]
    for noise in settings.noise:
        if any(gpu.simulated for gpu in present):
            raise BadInputError(f"--noise {noise}: noise has no effect on simulated GPUs")
        there = {gpu.index for gpu in present}
        missing = [place for place in noise.gpus if place not in there]
        if missing:
            raise BadInputError(f"--noise {noise}: {present[0].node} has no GPU {missing[0]}; it has {sorted(there)}")
    users = {} if allow_busy or measured[0].simulated else busy(present)
    for noise in settings.noise:
        for gpu in filter(noise.on, present):
            if gpu.id in users:
                raise NotPossibleError(f"--noise {noise}: {users[gpu.id]}; --allow-busy starts it nevertheless")
    if all(gpu.id in users for gpu in measured):
        named = "; ".join(users[gpu.id] for gpu in measured)
        raise NotPossibleError(f"{named}; --allow-busy measures them nevertheless")
    return Host(measured, others, users)


def run_fleet(
    settings: FleetSettings, host: Host, folder: Folder, *, command: str = "", watch: Watch | None = None
) -> Summary:
    """Measure the missing results of a folder, which a second run into it resumes; failures are stored there too.

    Raises:
        BadInputError: If the place holds another fleet's results, or can't be written.
        NotPossibleError: If no result could be measured, or another fleet on this host writes there.
    """
    watch = watch or Watch()
    with locks.alone_in(folder.root, "running a fleet"):
        folder.begin(settings, command, host.gpus)
        wanted = {(gpu.node, gpu.id, n) for gpu in host.gpus for n in range(settings.repeats)}
        there = folder.done() & wanted
        watch.begin(len(wanted), len(there))
        outcomes: list[Outcome] = []

        def note(found: Outcome) -> None:
            outcomes.append(found)
            if found.reason:
                folder.fail(found.task, found.reason, found.text)
            watch.outcome(found)

        for gpu in host.gpus:
            for repeat in range(settings.repeats if gpu.id in host.excluded else 0):
                if (gpu.node, gpu.id, repeat) not in there:
                    note(Outcome(Task(gpu, repeat), "busy", host.excluded[gpu.id]))
        node = Node(settings, [*host.gpus, *host.others], str(folder.root), command)
        for group in todo_of(settings, [gpu for gpu in host.gpus if gpu.id not in host.excluded], there):
            node.at_once(group, note, watch.hear)
    failed = tuple(one for one in outcomes if one.reason)
    if outcomes and len(failed) == len(outcomes) and not there:
        reasons = list(dict.fromkeys(one.text for one in failed))
        kind = BadInputError if all(one.reason in _THEIRS for one in failed) else NotPossibleError
        raise kind(f"none of {len(wanted)} results could be measured: {'; '.join(reasons[:3])}")
    new = {one.task.key for one in outcomes if not one.reason}
    return Summary(len(wanted), len(there), len(new - there), failed)


def todo_of(settings: FleetSettings, gpus: Sequence[FleetGpu], there: Container[Key]) -> list[list[Task]]:
    """The missing results, in random order: groups of tasks that run at once, and are measured again together."""
    groups = [group for repeat in range(settings.repeats) for group in rounds(gpus, settings, repeat)]
    return [group for group in groups if any(task.key not in there for task in group)]


class Node:
    """The host of a fleet: GPUs to measure, and others on which noise may run. Results go to the folder ``store``."""

    def __init__(self, settings: FleetSettings, gpus: Sequence[FleetGpu], store: str, command: str = "") -> None:
        self._settings = settings
        self._gpus = gpus
        self._store = store
        self._command = command

    def at_once(self, group: Sequence[Task], note: Note, hear: Hear) -> None:
        """Carry out tasks that run together; ``note`` receives each outcome, ``hear`` the reports of progress.

        Raises:
            BadInputError: If their recordings don't fit on the disk.
        """
        try:
            scratch = Scratch()
        except OSError as error:
            raise BadInputError(f"no temporary folder on {group[0].gpu.node}: {error.strerror}") from None
        noises: list[Child] = []
        measuring: list[Child] = []
        with scratch, locks.Watch():  # in our process, since a child that is killed leaves its recording
            try:
                self._make_noise(noises, hear)
                silent = next((one for one in noises if one.over), None)
                if silent is not None:
                    for task in group:
                        note(Outcome(task, "no_noise", f"noise on {silent.gpu} failed: {silent.said.get('text')}"))
                    return
                for task in group:
                    measuring.append(Child(task.gpu, self._order(task, str(scratch.path))))
                limit_s = self._settings.limit_s
                listen(measuring, ("ready",), limit_s, hear)
                at_ns = time.time_ns() + round(HEAD_START_S * 1e9)
                for child in measuring:
                    child.tell({"at_ns": at_ns})
                listen(measuring, ("done",), limit_s, hear)
                for task, child in zip(group, measuring, strict=True):
                    note(_outcome(task, child, noises))
            finally:
                for child in measuring:
                    if not child.over:
                        child.interrupt()
                for child in [*noises, *measuring]:
                    child.stop()
                for child in [*noises, *measuring]:
                    child.close()

    def _make_noise(self, made: list[Child], hear: Hear) -> None:
        """Start noise on every requested GPU; it runs when this returns."""
        profile = asdict(self._settings.noise_profile)
        for noise in self._settings.noise:
            for gpu in filter(noise.on, self._gpus):
                order = {"workload": noise.workload, "profile": profile, "device": gpu.device}
                made.append(Child(gpu, {"noise": order}))
        listen(made, ("ready",), self._settings.limit_s, hear)
        for child in made:
            child.tell({"at_ns": time.time_ns()})

    def _order(self, task: Task, scratch: str) -> dict[str, Any]:
        places = {"store": self._store, "scratch": scratch, "command": self._command}
        return {"measure": {**asdict(task), "settings": asdict(self._settings), **places}}


def _outcome(task: Task, child: Child, noises: Sequence[Child]) -> Outcome:
    if child.said.get("is") != "done":
        return Outcome(task, str(child.said.get("reason", "failed")), str(child.said.get("text", "")))
    ended = next((noise for noise in noises if not noise.alive), None)
    if ended is not None:
        return Outcome(task, "no_noise", f"noise on {ended.gpu} ended before the measurement did")
    return Outcome(task)


class Child(children.Child):
    """One ``jouletrace.addons.fleet.child``, to which CUDA shows one GPU.

    ``said`` is its last message other than progress; {} before the first.
    """

    def __init__(self, gpu: FleetGpu, order: Mapping[str, Any]) -> None:
        # this GPU only, by UUID, whatever the order
        super().__init__(MODULE, {"CUDA_VISIBLE_DEVICES": gpu.id} if gpu.id.startswith("GPU-") else {})
        self.gpu = gpu
        self.said: dict[str, Any] = {}
        self.tell(order)

    @property
    def over(self) -> bool:
        """True if it has sent its last message."""
        return self.said.get("is") in ("done", "failed")

    def hear(self) -> list[dict[str, Any]]:
        """See ``processes.children.Child``; its end counts as a message too."""
        heard = super().hear()
        if heard is None:
            if not self.over:
                text = f"the process on {self.gpu} {self.how_it_ended()}"
                self.said = {"is": "failed", "reason": "vanished", "text": text}
            return [self.said]
        for message in heard:
            if message.get("is") != "phase":
                self.said = message
        return heard


def listen(children: Sequence[Child], until: tuple[str, ...], limit_s: float, hear: Hear) -> None:
    """Wait until every child has sent one of ``until``, or is over; one that takes over ``limit_s`` has failed."""
    end = time.monotonic() + limit_s
    waiting = [child for child in children if not child.over and child.said.get("is") not in until]
    with selectors.DefaultSelector() as selector:
        for child in waiting:
            selector.register(child.output, selectors.EVENT_READ, child)
        while waiting:
            ready = selector.select(max(0.0, end - time.monotonic()))
            for key, _ in ready:
                heard: Child = key.data
                for message in heard.hear():
                    hear(heard.gpu, message)
                if heard.over or heard.said.get("is") in until:
                    selector.unregister(heard.output)
                    waiting.remove(heard)
            if not ready and waiting:
                for late in waiting:
                    text = f"{late.gpu}: no result after {limit_s:g} s"
                    late.said = {"is": "failed", "reason": "timed_out", "text": text}
                    late.close(now=True)
                    hear(late.gpu, late.said)
                return
