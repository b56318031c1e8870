"""Running a fleet: what is still to do, on which engine, and what became of it."""

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
"""By host: tasks that run at once, one group after the other."""


class Watch(Protocol):
    """Who looks on; the command line draws it."""

    def begin(self, total: int, done: int) -> None:
        """So many results are wanted, so many there already."""

    def hear(self, gpu: FleetGpu, message: dict[str, Any]) -> None:
        """What a process says of its progress."""

    def outcome(self, found: Outcome) -> None:
        """What became of a task."""


class Unwatched:
    """Nobody looks on."""

    def begin(self, total: int, done: int) -> None:
        """Ignore."""

    def hear(self, gpu: FleetGpu, message: dict[str, Any]) -> None:
        """Ignore."""

    def outcome(self, found: Outcome) -> None:
        """Ignore."""


_THEIRS = ("bad_input", "disk_full", "elsewhere")
"""Reasons that are for the user to mend."""

Work = Callable[[Todo, Note, Hear], None]
"""An engine: does what is to do, and tells each outcome."""


@dataclass(frozen=True)
class Summary:
    """How a fleet run went.

    Attributes:
        wanted: Results that were asked for.
        before: Of these, those that were there already.
        measured: Those that are new.
        failed: What has none.
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
    """Measure what isn't there yet.

    Args:
        settings: What to do.
        gpus: Where.
        dataset: Where results go; a second run into it resumes.
        work: The engine.
        command: For the record.
        excluded: GPUs that can't be measured, by id, and why: they are noted as failed.
        watch: Who looks on.

    Returns:
        How it went; failures are in the dataset too.

    Raises:
        BadInputError: If the place holds another fleet's results, or can't be written.
        NotPossibleError: If not one result could be had, or another fleet on this host writes there.
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
        raise kind(f"not one of {wanted} results could be had: {'; '.join(reasons[:3])}")
    new = {(one.task.gpu.node, one.task.gpu.id, one.task.repeat) for one in outcomes if not one.reason}
    return Summary(wanted, len(there), len(new - there), failed)


def _found(outcomes: Sequence[Outcome], dataset: Dataset, gpus: set[str]) -> list[Outcome]:
    """The outcomes; a result that isn't there after all has been put elsewhere, by another host."""
    there = dataset.done(gpus)
    text = f"its result is not in {dataset.store.root}: give a place that all hosts share"
    found = []
    for one in outcomes:
        key = one.task.gpu.node, one.task.gpu.id, one.task.repeat
        if not one.reason and key not in there:
            one = Outcome(one.task, "elsewhere", text)  # noqa: PLW2901
            dataset.fail(one.task, one.reason, text)
        found.append(one)
    return found


def todo_of(settings: FleetSettings, gpus: Sequence[FleetGpu], there: Container[Key]) -> Todo:
    """What is missing, in random order. GPUs that run together are measured together again."""
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
    """The engine for this host. Simulated hosts take turns."""

    def work(todo: Todo, note: Note, hear: Hear) -> None:
        for name, groups in todo.items():
            node = Node(settings, [gpu for gpu in [*gpus, *others] if gpu.node == name], store, command)
            for group in groups:
                node.at_once(group, note, hear)

    return work
