"""Running a fleet: the GPUs of this host, all checks before any measurement, and the missing results."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from jouletrace.addons.fleet.folder import Folder, Key
from jouletrace.addons.fleet.gpus import ALL, busy, find_gpus
from jouletrace.addons.fleet.node import Node, Outcome
from jouletrace.addons.fleet.plan import FleetGpu, FleetSettings, Task, rounds
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.processes.locks import alone_in
from jouletrace.profiler.prepare import check_has_phases, resolve
from jouletrace.workloads.kernels import AUTO, GEMMS, whole


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
    """The GPUs of this host.

    Attributes:
        gpus: The GPUs to measure.
        others: Others, on which noise may run.
        excluded: GPUs that can't be measured, by id, and why.
    """

    gpus: list[FleetGpu]
    others: list[FleetGpu]
    excluded: dict[str, str]


@dataclass(frozen=True)
class Summary:
    """Summary of a fleet run.

    Attributes:
        wanted: Number of requested results.
        before: Number of those that existed already.
        measured: Number of new results.
        failed: Tasks without a result.
    """

    wanted: int
    before: int
    measured: int
    failed: tuple[Outcome, ...]


def open_host(settings: FleetSettings, device: str = "auto", gpus: str = ALL, *, allow_busy: bool = False) -> Host:
    """Locate the GPUs and refuse impossible requests.

    Args:
        settings: The requested settings.
        device: "auto", "cpu" or "sim:NAME".
        gpus: "all", numbers or UUIDs; for simulated GPUs, their number.
        allow_busy: Also measure GPUs that other processes use.

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
    _check_noise(settings, [*measured, *others])
    users = {} if allow_busy or measured[0].simulated else busy([*measured, *others])
    for noise in settings.noise:
        for gpu in filter(noise.on, [*measured, *others]):
            if gpu.id in users:
                raise NotPossibleError(f"--noise {noise}: {users[gpu.id]}; --allow-busy starts it nevertheless")
    if all(gpu.id in users for gpu in measured):
        named = "; ".join(users[gpu.id] for gpu in measured)
        raise NotPossibleError(f"{named}; --allow-busy measures them nevertheless")
    return Host(measured, others, users)


def _check_noise(settings: FleetSettings, gpus: list[FleetGpu]) -> None:
    """Refuse noise that would run nowhere, or on GPUs that it can't affect."""
    for noise in settings.noise:
        if any(gpu.simulated for gpu in gpus):
            raise BadInputError(f"--noise {noise}: noise has no effect on simulated GPUs")
        there = {gpu.index for gpu in gpus}
        missing = [place for place in noise.gpus if place not in there]
        if missing:
            raise BadInputError(f"--noise {noise}: {gpus[0].node} has no GPU {missing[0]}; it has {sorted(there)}")


def run_fleet(
    settings: FleetSettings, host: Host, folder: Folder, *, command: str = "", watch: Watch | None = None
) -> Summary:
    """Measure the missing results.

    Args:
        settings: The settings of the fleet.
        host: Its GPUs.
        folder: Destination of the results; a second run into it resumes.
        command: The command line, for the record.
        watch: The observer.

    Returns:
        The summary; the folder contains the failures too.

    Raises:
        BadInputError: If the place holds another fleet's results, or can't be written.
        NotPossibleError: If no result could be measured, or another fleet on this host writes there.
    """
    watch = watch or Watch()
    with alone_in(folder.root, "running a fleet"):
        folder.begin(settings, command, host.gpus)
        asked_for = {(gpu.node, gpu.id, n) for gpu in host.gpus for n in range(settings.repeats)}
        there = folder.done() & asked_for
        watch.begin(len(asked_for), len(there))
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
    return _summary(asked_for, there, outcomes)


_THEIRS = ("bad_input", "disk_full")
"""Reasons that the user can resolve."""


def _summary(asked_for: set[Key], there: set[Key], outcomes: Sequence[Outcome]) -> Summary:
    failed = tuple(one for one in outcomes if one.reason)
    if outcomes and len(failed) == len(outcomes) and not there:
        reasons = list(dict.fromkeys(one.text for one in failed))
        kind = BadInputError if all(one.reason in _THEIRS for one in failed) else NotPossibleError
        raise kind(f"none of {len(asked_for)} results could be measured: {'; '.join(reasons[:3])}")
    new = {(one.task.gpu.node, one.task.gpu.id, one.task.repeat) for one in outcomes if not one.reason}
    return Summary(len(asked_for), len(there), len(new - there), failed)


def todo_of(settings: FleetSettings, gpus: Sequence[FleetGpu], there: Container[Key]) -> list[list[Task]]:
    """The missing results, in random order: groups of tasks that run at once, and are measured again together."""
    groups = [group for repeat in range(settings.repeats) for group in rounds(gpus, settings, repeat)]
    return [group for group in groups if any((t.gpu.node, t.gpu.id, t.repeat) not in there for t in group)]
