"""``trace``: a workload or a command under nsys or ncu, with the power measured meanwhile, as one Run."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from jouletrace.devices import open_device
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.processes.children import python_path
from jouletrace.profiler.prepare import check, prepare
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import Run
from jouletrace.run.forms import WorkloadFacts
from jouletrace.wings.toolchain import loop, nsight
from jouletrace.wings.toolchain.vendor_run import ToolRecording
from jouletrace.workloads import resolve
from jouletrace.workloads.base import Workload

TOOLS = {"nsys": nsight.NSYS, "ncu": nsight.NCU}


@dataclass(frozen=True)
class TraceSettings:
    """Options of a trace.

    Attributes:
        tool: One of ``TOOLS``.
        iterations: Number of traced iterations of a workload.
        sections: Sections that ncu measures.
        launches: Largest number of launches that ncu measures; None for all.
        skip: Number of earlier launches that ncu skips.
        trace: What nsys traces.
        limit_s: Seconds after which the tool is ended.

    Raises:
        BadInputError: If an option is invalid.
    """

    tool: str
    iterations: int = 1
    sections: tuple[str, ...] = nsight.SECTIONS
    launches: int | None = None
    skip: int = 0
    trace: str = nsight.TRACED
    limit_s: float = 600.0

    def __post_init__(self) -> None:
        if self.tool not in TOOLS:
            raise BadInputError(f"--with {self.tool}: must be one of {', '.join(TOOLS)}")
        for option, value, least in (
            ("--iterations", self.iterations, 1),
            ("--launch-count", self.launches, 1),
            ("--launch-skip", self.skip, 0),
        ):
            if value is not None and value < least:
                raise BadInputError(f"{option} {value}: must be at least {least}")
        if not 0 < self.limit_s < math.inf:
            raise BadInputError(f"--time-limit {self.limit_s:g}: must be more than 0 s")
        if self.tool != "ncu" and (self.launches is not None or self.skip or self.sections != nsight.SECTIONS):
            raise BadInputError(f"--section, --launch-count and --launch-skip apply to ncu, not to {self.tool}")


def what(arguments: Sequence[str]) -> Workload | list[str]:
    """The workload or the command that the arguments name.

    Raises:
        BadInputError: If they name neither.
    """
    if not arguments:
        raise BadInputError("trace: name a workload, or write -- COMMAND")
    refused = ""
    if len(arguments) == 1:
        try:
            return resolve(arguments[0])
        except BadInputError as error:
            refused = str(error)
    if shutil.which(arguments[0]) is None:
        why = "it is not executable" if Path(arguments[0]).exists() else "no such program"
        raise BadInputError(refused or f"cannot run {arguments[0]!r}: {why}")
    return list(arguments)


def trace(
    target: Workload | list[str],
    how: TraceSettings,
    settings: ProfileSettings,
    folder: Path,
    *,
    typed: str = "",
    say: Callable[[str], None] = lambda text: None,
) -> Run:
    """Run the result of ``what`` under a tool, and make one Run of its output and the recorded power.

    Under ncu a workload runs twice: here, for a timeline, and then under ncu, whose counters are assigned to the
    kernels of that timeline. The tool's files go to the Run's folder; ``say`` is called with the exact command before
    it runs.

    Raises:
        BadInputError: If the tool fails, or writes nothing.
        NotPossibleError: If it isn't installed, isn't permitted, or doesn't end in time; or no kernel can be traced.
    """
    program = TOOLS[how.tool].find()
    with closing(open_device(settings.device)) as device:
        if device.clock.virtual:
            raise BadInputError(f"{device.spec}: {how.tool} traces only real devices")
        named: WorkloadFacts = {"name": " ".join(target) if isinstance(target, list) else target.name}
        facts = {"tool": how.tool, "sections": list(how.sections), "trace": how.trace, "iterations": how.iterations}
        recording = ToolRecording(
            device,
            folder,
            typed=typed,
            workload=named,
            settings={**settings.to_dict(), "tracing": facts},
            limit_s=how.limit_s,
            say=say,
        )
        with recording:
            before: list[str] = []
            marked = False
            if not isinstance(target, list):
                check(device, settings)
                cpu = device.info.kind == "cpu"
                here = replace(settings, device="cpu" if cpu else device.info.id)
                if how.tool == "ncu":
                    if cpu:
                        raise NotPossibleError(f"ncu measures kernels of NVIDIA GPUs only ({device.info.name})")
                    prepared = prepare(target, device, here)
                    with closing(prepared.step):
                        recording.session.run.workload |= {**prepared.built.facts, "mode": here.mode}
                        loop.add_timeline(recording.session, prepared.step, how.iterations)
                before = ["env", f"PYTHONPATH={python_path()}"]  # so that it imports this jouletrace from any folder
                target, marked = loop.command(target.name, here, how.iterations), not cpu
            recording.idle()
            place = _under_tool(recording, [*before, program], how, target, marked)
            recording.idle()
            return recording.finish({place: how.tool})


def _under_tool(
    recording: ToolRecording, program: list[str], how: TraceSettings, target: list[str], marked: bool
) -> Path:
    """Run a command under the tool; returns the file with the tool's output."""
    folder = recording.folder
    if how.tool == "nsys":
        options = nsight.nsys_options(folder, how.trace, marked)
        ended = recording.run([*program, *options, *target], "nsys.log")
        return nsight.nsys_output(program[-1], ended, folder, lambda line: recording.run(line, "nsys-export.log"))
    options = nsight.ncu_options(folder, how.sections, how.launches, how.skip, marked)
    return nsight.ncu_output(recording.run([*program, *options, *target], "ncu.log"), folder)
