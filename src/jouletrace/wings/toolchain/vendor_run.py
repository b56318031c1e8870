"""Power recorded while another vendor's program runs, and that program's output, as one Run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jouletrace import analysis
from jouletrace.devices.base import Device
from jouletrace.errors import BadInputError, BrokenOffError
from jouletrace.formats.importers import read_file
from jouletrace.formats.importers.base import UNIX, ImportOptions
from jouletrace.formats.importers.merge import merge
from jouletrace.profiler.passes import power_channel
from jouletrace.recording.session import Session
from jouletrace.run import Run
from jouletrace.run.forms import Imported, Settings, WorkloadFacts
from jouletrace.run.measured import keep
from jouletrace.wings.toolchain import tools

_IDLE_S = 2.0
"""Time recorded before and after a program, so that the record has an idle level."""

_RECORDED = "the power recorded meanwhile"
_ANONYMOUS = "imported:"


class ToolRecording:
    """A device recorded while programs run; used as a context.

    The Run and the programs' files go to ``folder``, also if the current folder changes. Programs are ended after
    ``limit_s`` seconds; ``say`` is called with each command before it runs. The rest is for the Run.
    """

    def __init__(
        self,
        device: Device,
        folder: Path,
        *,
        typed: str = "",
        workload: WorkloadFacts | None = None,
        settings: Settings | None = None,
        limit_s: float = 600.0,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.folder = folder.absolute()
        self._commands: list[str] = []
        self._limit_s, self._say = limit_s, say
        self.session = Session("monitor", [device], folder=folder, command=typed, workload=workload, settings=settings)

    def __enter__(self) -> ToolRecording:
        self.session.__enter__()
        self._start_ns = self.session.clock.time_ns()
        return self

    def __exit__(self, *error: Any) -> None:
        self.session.__exit__(*error)

    def run(self, command: Sequence[str], log: str) -> tools.Ended:
        """Run a program, with its output in a file of the folder, and mark a phase with its name.

        Raises:
            BadInputError: If it can't be started.
            TimedOutError: If it didn't end in time; the recording and the program's output are kept.
            RecorderDiedError: If recording ended by itself.
        """
        self._commands.append(shlex.join(command))
        self.session.run.settings["commands"] = self._commands
        self.session.save_header()
        self._say(f"running: {self._commands[-1]}")
        with self.session.phase(Path(log).stem):
            return tools.run(command, self.folder / log, self._limit_s, self.session.recorder.check)

    def idle(self) -> None:
        """Wait for the idle level, if the device has a power sensor."""
        if power_channel(self.session) is not None:
            with self.session.phase("idle"):
                self.session.clock.sleep(_IDLE_S)

    def finish(self, files: Mapping[Path, str], amend: Callable[[Run], None] = lambda run: None) -> Run:
        """End the recording, read the programs' files, given with their formats, and save all as one Run in the folder.

        A file that identifies its only device by number means the recorded one. ``amend`` is called with the merged Run
        before its figures are computed.

        Raises:
            BrokenOffError: If nothing in a file is usable.
        """
        session = self.session
        session.add_span("phase", "monitor", self._start_ns, session.clock.time_ns(), "monitor")
        recorded = session.finish(complete=False)  # not complete before the output is read too
        try:
            found = [read_file(path, ImportOptions(format=form)) for path, form in files.items()]
        except BadInputError as error:
            raise BrokenOffError(str(error)) from error  # the recording and the file are worth keeping
        device = recorded.devices[0]
        for one in found:
            if len(one.devices) == 1 and one.devices[0].id.startswith(_ANONYMOUS) and device.index is not None:
                one.devices[0].index, one.devices[0].name = device.index, device.name
        about: Imported = {"path": _RECORDED, "format": "jouletrace", "clock": UNIX, "aligned": ""}
        recorded.settings = {**recorded.settings, "imported": [about]}
        run = merge([recorded, *found], [_RECORDED, *map(str, files)], ImportOptions())
        run.id, run.command, run.created_ns = recorded.id, recorded.command, recorded.created_ns
        run.kind, run.complete = "import", True
        amend(run)
        run = analysis.analyse(run)
        keep(run, self.folder, taken=True)
        return run
