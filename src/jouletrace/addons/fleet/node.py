"""Work on one host: processes that measure its GPUs at once or in turn, and noise alongside them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jouletrace.addons.fleet.cooling import MARGIN_C
from jouletrace.addons.fleet.plan import CALLS_PORT, COLLECTIVE, FleetGpu, FleetSettings, Task
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
    """One host of a fleet.

    Args:
        settings: The settings of the fleet.
        gpus: Its GPUs: those that are measured, and others on which noise may run.
        store: Destination of the results.
        command: The command line, for the record.
        begun_c: Temperature of each GPU at first sight, by id.

    Attributes:
        begun_c: The same, with later additions.
        begun_c: The same, with what was learned since.
    """

    def __init__(
        self,
        settings: FleetSettings,
        gpus: Sequence[FleetGpu],
        store: str,
        command: str = "",
        begun_c: Mapping[str, float] | None = None,
    ) -> None:
        self._settings = settings
        self._gpus = gpus
        self._store = store
        self._command = command
        self.begun_c = dict(begun_c or {})

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
            noises = self._make_noise(hear)
            silent = next((one for one in noises if one.over), None)
            if silent is not None:
                for task in group:
                    note(Outcome(task, "no_noise", f"noise on {silent.gpu} failed: {silent.said.get('text')}"))
                return
            ranks = self._ranks(group)
            for task, own in zip(group, ranks, strict=True):
                children.append(Child(task.gpu, self._order(task, scratch), own))
            limit_s = self._settings.limit_s
            listen(children, ("ready",), limit_s + self._settings.cool_limit_s, hear)
            at_ns = time.time_ns() + round(HEAD_START_S * 1e9)
            for child in children:
                child.tell({"at_ns": at_ns})
            listen(children, ("done",), limit_s, hear)
            for task, child in zip(group, children, strict=True):
                note(self._outcome(task, child, noises))
        finally:
            for child in children:
                if not child.over:
                    child.interrupt()
            for child in [*noises, *children]:
                child.stop()
            for child in [*noises, *children]:
                child.close()

    def _make_noise(self, hear: Hear) -> list[Child]:
        """Start noise on every requested GPU; it runs when this returns."""
        profile = asdict(self._settings.noise_profile)
        made = [
            Child(gpu, {"noise": {"workload": noise.workload, "profile": profile, "device": gpu.device}})
            for noise in self._settings.noise
            for gpu in self._gpus
            if noise.on(gpu)
        ]
        listen(made, ("ready",), self._settings.limit_s, hear)
        for child in made:
            child.tell({"at_ns": time.time_ns()})
        return made

    def _outcome(self, task: Task, child: Child, noises: Sequence[Child]) -> Outcome:
        if child.said.get("is") != "done":
            return Outcome(task, str(child.said.get("reason", "failed")), str(child.said.get("text", "")))
        ended = next((noise for noise in noises if not noise.alive), None)
        if ended is not None:
            return Outcome(task, "no_noise", f"noise on {ended.gpu} ended before the measurement did")
        begun = child.said.get("begun_c")
        if begun is not None:
            self.begun_c.setdefault(task.gpu.id, float(begun))
        return Outcome(task)

    def _order(self, task: Task, scratch: str) -> dict[str, Any]:
        wanted = self._settings.cool_to_c
        if wanted is None and task.gpu.id in self.begun_c:
            wanted = self.begun_c[task.gpu.id] + MARGIN_C
        return {
            "measure": {
                "settings": self._settings.to_dict(),
                "gpu": asdict(task.gpu),
                "repeat": task.repeat,
                "order": task.order,
                "cool_to_c": wanted,
                "store": self._store,
                "scratch": scratch,
                "command": self._command,
            }
        }

    def _ranks(self, group: Sequence[Task]) -> list[dict[str, str]]:
        """Environment variables that connect the processes of a collective load, as ``torchrun`` sets them."""
        if self._settings.workload != COLLECTIVE:
            return [{} for _ in group]
        with socket.socket() as one, socket.socket() as other:
            for free in (one, other):
                free.bind(("127.0.0.1", 0))
            ports = {"MASTER_PORT": str(one.getsockname()[1]), CALLS_PORT: str(other.getsockname()[1])}
        common = {"WORLD_SIZE": str(len(group)), "MASTER_ADDR": "127.0.0.1", **ports}
        return [{"RANK": str(rank), **common} for rank in range(len(group))]
