"""Running a fleet: the missing results, the engine that measures them, and the outcomes."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from jouletrace.addons.fleet.dataset import Dataset, Key
from jouletrace.addons.fleet.node import Node, Note, Outcome
from jouletrace.addons.fleet.plan import FleetGpu, FleetSettings, Task, rounds
from jouletrace.addons.fleet.process import Hear
from jouletrace.errors import BadInputError, NotPossibleError

Todo = dict[str, list[list[Task]]]
"""By host: groups of tasks that run at once, one group after the other."""


class Watch(Protocol):
    """An observer; the command line displays it."""

    def begin(self, total: int, done: int) -> None:
        """Start with the number of requested results, and of those that exist already."""

    def hear(self, gpu: FleetGpu, message: dict[str, Any]) -> None:
        """Receive a process's report of its progress."""

    def outcome(self, found: Outcome) -> None:
        """Receive the outcome of a task."""


class Unwatched:
    """The observer that does nothing."""

    def begin(self, total: int, done: int) -> None:
        """Ignore."""

    def hear(self, gpu: FleetGpu, message: dict[str, Any]) -> None:
        """Ignore."""

    def outcome(self, found: Outcome) -> None:
        """Ignore."""


_THEIRS = ("bad_input", "disk_full", "elsewhere")
"""Reasons that the user can resolve."""

Work = Callable[[Todo, Note, Hear], None]
"""An engine: carries out the tasks, and reports each outcome."""


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


def run_fleet(
    settings: FleetSettings,
    gpus: Sequence[FleetGpu],
    dataset: Dataset,
    work: Work,
    *,
    command: str = "",
    excluded: dict[str, str] | None = None,
    watch: Watch | None = None,
) -> Summary:
    """Measure the missing results.

    Args:
        settings: The settings of the fleet.
        gpus: The GPUs to measure.
        dataset: Destination of the results; a second run into it resumes.
        work: The engine.
        command: The command line, for the record.
        excluded: GPUs that can't be measured, by id, and why: they are noted as failed.
        watch: The observer.

    Returns:
        The summary; the dataset contains the failures too.

    Raises:
        BadInputError: If the place holds another fleet's results, or can't be written.
        NotPossibleError: If no result could be measured, or another fleet on this host writes there.
    """
    if not gpus:
        raise NotPossibleError("no GPU to measure")
    with dataset.store.alone("running a fleet"):
        return _run(settings, gpus, dataset, work, command, excluded or {}, watch or Unwatched())


def _run(
    settings: FleetSettings,
    gpus: Sequence[FleetGpu],
    dataset: Dataset,
    work: Work,
    command: str,
    excluded: dict[str, str],
    watch: Watch,
) -> Summary:
    dataset.begin(settings, command, [asdict(gpu) for gpu in gpus])
    wanted = len(gpus) * settings.repeats
    asked_for = {(gpu.node, gpu.id, n) for gpu in gpus for n in range(settings.repeats)}
    there = dataset.done({gpu.id for gpu in gpus}) & asked_for
    watch.begin(wanted, len(there))
    outcomes: list[Outcome] = []

    def note(found: Outcome) -> None:
        outcomes.append(found)
        if found.reason:
            dataset.fail(found.task, found.reason, found.text)
        watch.outcome(found)

    for gpu in gpus:
        for repeat in range(settings.repeats if gpu.id in excluded else 0):
            if (gpu.node, gpu.id, repeat) not in there:
                note(Outcome(Task(gpu, repeat), "busy", excluded[gpu.id]))
    free = [gpu for gpu in gpus if gpu.id not in excluded]
    todo = todo_of(settings, free, there)
    if todo:
        work(todo, note, watch.hear)
        outcomes = _found(outcomes, dataset, {gpu.id for gpu in free})
    failed = tuple(one for one in outcomes if one.reason)
    if outcomes and len(failed) == len(outcomes) and not there:
        reasons = list(dict.fromkeys(one.text for one in failed))
        kind = BadInputError if all(one.reason in _THEIRS for one in failed) else NotPossibleError
        raise kind(f"none of {wanted} results could be measured: {'; '.join(reasons[:3])}")
    new = {(one.task.gpu.node, one.task.gpu.id, one.task.repeat) for one in outcomes if not one.reason}
    return Summary(wanted, len(there), len(new - there), failed)


def _found(outcomes: Sequence[Outcome], dataset: Dataset, gpus: set[str]) -> list[Outcome]:
    """The outcomes; a result that is missing after all was stored elsewhere, by another host."""
    there = dataset.done(gpus)
    text = f"its result is not in {dataset.store.root}: name a place that all hosts share"
    found = []
    for one in outcomes:
        key = one.task.gpu.node, one.task.gpu.id, one.task.repeat
        if not one.reason and key not in there:
            one = Outcome(one.task, "elsewhere", text)  # noqa: PLW2901
            dataset.fail(one.task, one.reason, text)
        found.append(one)
    return found


def todo_of(settings: FleetSettings, gpus: Sequence[FleetGpu], there: Container[Key]) -> Todo:
    """The missing results, in random order. GPUs that run together are measured together again."""
    found: Todo = {}
    for node in dict.fromkeys(gpu.node for gpu in gpus):
        own = [gpu for gpu in gpus if gpu.node == node]
        groups = [group for repeat in range(settings.repeats) for group in rounds(own, settings, repeat)]
        missing = [group for group in groups if any((node, t.gpu.id, t.repeat) not in there for t in group)]
        if missing:
            found[node] = missing
    return found


def local(
    settings: FleetSettings, gpus: Sequence[FleetGpu], others: Sequence[FleetGpu], store: str, command: str = ""
) -> Work:
    """The engine for this host. Simulated hosts run in turn."""

    def work(todo: Todo, note: Note, hear: Hear) -> None:
        for name, groups in todo.items():
            node = Node(settings, [gpu for gpu in [*gpus, *others] if gpu.node == name], store, command)
            for group in groups:
                node.at_once(group, note, hear)

    return work
