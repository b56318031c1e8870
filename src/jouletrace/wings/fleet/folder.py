"""The results of a fleet: a folder of Runs.

    fleet.json                     the settings
    NODE/UUID/repeat-0003.zip      the Run of a repeat, for ``jouletrace show``
    NODE/UUID/repeat-0003.failed   why there is none

Two hosts write different files, so any number of hosts can share a folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jouletrace.campaign.cluster import Files
from jouletrace.campaign.loop import claim_at, claimed
from jouletrace.errors import BadInputError
from jouletrace.run import Run, load, save
from jouletrace.run.files import write_whole
from jouletrace.run.measured import mend
from jouletrace.run.places import file_mode
from jouletrace.wings.fleet.plan import FleetGpu, FleetSettings, Key, Task

ABOUT = "fleet.json"
SCHEMA = 2

_FREE = ("repeats", "limit_s")
"""Settings in which a resumed fleet may differ from its first run."""


class Folder:
    """The results of one fleet."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).absolute()

    @contextmanager
    def held(self, settings: FleetSettings, command: str, gpus: Iterable[FleetGpu]) -> Iterator[None]:
        """Hold the folder, as ``campaign.loop.claimed`` does."""
        known = (self.about() or {}).get("gpus", [])
        boards = {(one["node"], one["id"]): one for one in [*known, *map(asdict, gpus)]}
        about: dict[str, Any] = {
            "format": "jouletrace-fleet",
            "schema": SCHEMA,
            "command": command,
            "gpus": list(boards.values()),
        }
        with claimed(self.root / ABOUT, "fleet", asdict(settings), free=_FREE, **about):
            yield

    def about(self) -> dict[str, Any] | None:
        """The content that ``held`` wrote; None without it.

        Raises:
            BadInputError: If it can't be read.
        """
        path = self.root / ABOUT
        found = claim_at(path)
        if found is None:
            return None
        if found.get("format") != "jouletrace-fleet":
            raise BadInputError(f"{path} does not describe a fleet")
        if found.get("schema") != SCHEMA:
            raise BadInputError(f"{path} was written by another version of jouletrace")
        gpus = found.get("gpus")
        if not isinstance(gpus, list) or not all(
            isinstance(gpu, dict) and gpu.keys() >= {"node", "id"} for gpu in gpus
        ):
            raise BadInputError(f"{path} is damaged: it lacks settings that fleet run writes")
        return found

    def add(self, task: Task, run: Run) -> None:
        """Store the Run of a task.

        Raises:
            BadInputError: If it can't be written.
        """
        save(mend(run), self._place(task, "zip"), overwrite=True)

    def receive(self, files: Files) -> None:
        """Store the Runs of the folder of another host.

        Raises:
            BadInputError: If one can't be written.
        """
        for name, content in files.items():
            self._write(self.root / name, content)

    def succeed(self, task: Task) -> None:
        """Forget why a task had no result, now that it has one."""
        self._place(task, "failed").unlink(missing_ok=True)

    def fail(self, task: Task, reason: str, text: str) -> None:
        """Store the reason for a task's missing result."""
        self._place(task, "zip").unlink(missing_ok=True)
        note = {"node": task.gpu.node, "gpu": task.gpu.id, "repeat": task.repeat, "reason": reason, "text": text}
        self._write(self._place(task, "failed"), json.dumps(note, indent=1).encode())

    def failures(self) -> list[dict[str, Any]]:
        """Missing results and their reasons; an unreadable note is omitted, since the result is missing anyway."""
        notes = []
        for path in sorted(self.root.glob("*/*/repeat-*.failed")):
            with suppress(OSError, ValueError):
                note = json.loads(path.read_bytes())
                if isinstance(note, dict) and note.keys() >= {"node", "gpu", "repeat", "reason", "text"}:
                    notes.append(note)
        return notes

    def runs(self) -> tuple[dict[Path, Run], list[str]]:
        """Every Run by its file, and a line for each file that can't be read or doesn't belong there."""
        found: dict[Path, Run] = {}
        damaged = []
        for path in sorted(self.root.glob("*/*/*.zip")):
            try:
                run = load(path)
                if self._place(_task_of(run), "zip") != path:
                    raise BadInputError(f"{path} is the Run of another GPU or repeat")
                found[path] = run
            except BadInputError as error:
                damaged.append(f"{error}: left out")
        return found, damaged

    def done(self) -> set[Key]:
        """All complete results; a file that can't be read, or belongs to another GPU, is measured again."""
        return {_task_of(run).key for run in self.runs()[0].values()}

    def _place(self, task: Task, ending: str) -> Path:
        node, gpu = quote(task.gpu.node, safe="-_."), quote(task.gpu.id, safe="-_.")
        return self.root / node / gpu / f"repeat-{task.repeat:04d}.{ending}"

    def _write(self, path: Path, content: bytes) -> None:
        try:
            write_whole(path, content, mode=file_mode())
        except OSError as error:
            raise BadInputError(f"cannot write {path}: {error.strerror or error}") from None


def _task_of(run: Run) -> Task:
    own = run.settings.get("fleet", {})
    gpu = run.devices[0].id if run.devices else ""
    return Task(FleetGpu(own.get("node", ""), gpu, 0, gpu), own.get("repeat", -1))
