"""Work on one host: processes that measure its GPUs at once or in turn, and noise alongside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jouletrace.addons.fleet.plan import FleetGpu, FleetSettings, Task
from jouletrace.addons.fleet.process import Child, Hear, listen
from jouletrace.errors import BadInputError
from jouletrace.processes.locks import Watch
from jouletrace.run.scratch import Scratch

HEAD_START_S = 0.2
"""Time from the readiness of all processes to their common start, within which every process must receive its order."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a task.

    Attributes:
        task: The task.
        reason: Code of the failure; "" for a success.
        text: The failure in a sentence.
    """

    task: Task
    reason: str = ""
    text: str = ""


Note = Callable[[Outcome], None]
"""Receives each outcome at once."""


class Node:
    """The host of a fleet.

    Args:
        settings: The settings of the fleet.
        gpus: Its GPUs: those that are measured, and others on which noise may run.
        store: Folder of the results.
        command: The command line, for the record.
    """

    def __init__(self, settings: FleetSettings, gpus: Sequence[FleetGpu], store: str, command: str = "") -> None:
        self._settings = settings
        self._gpus = gpus
        self._store = store
        self._command = command

    def at_once(self, group: Sequence[Task], note: Note, hear: Hear) -> None:
        """Carry out tasks that run together.

        Args:
            group: The tasks.
            note: Called with each outcome.
            hear: Called with the children's reports of progress.

        Raises:
            BadInputError: If their recordings don't fit on the disk.
        """
        try:
            scratch = Scratch()
        except OSError as error:
            raise BadInputError(f"no temporary folder on {group[0].gpu.node}: {error.strerror}") from None
        with scratch, Watch():  # in our process, since a child that is killed leaves its recording
            self._in_folder(group, str(scratch.path), note, hear)

    def _in_folder(self, group: Sequence[Task], scratch: str, note: Note, hear: Hear) -> None:
        noises: list[Child] = []
        children: list[Child] = []
        try:
            self._make_noise(noises, hear)
            silent = next((one for one in noises if one.over), None)
            if silent is not None:
                for task in group:
                    note(Outcome(task, "no_noise", f"noise on {silent.gpu} failed: {silent.said.get('text')}"))
                return
            for task in group:
                children.append(Child(task.gpu, self._order(task, scratch)))
            limit_s = self._settings.limit_s
            listen(children, ("ready",), limit_s, hear)
            at_ns = time.time_ns() + round(HEAD_START_S * 1e9)
            for child in children:
                child.tell({"at_ns": at_ns})
            listen(children, ("done",), limit_s, hear)
            for task, child in zip(group, children, strict=True):
                note(_outcome(task, child, noises))
        finally:
            for child in children:
                if not child.over:
                    child.interrupt()
            for child in [*noises, *children]:
                child.stop()
            for child in [*noises, *children]:
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
