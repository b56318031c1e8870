"""Driving Nsight Systems: its command, and the meaning of its failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from jouletrace.addons.toolchain.programs import Ended, Program
from jouletrace.errors import BrokenOffError

NSYS = Program(
    "nsys",
    ("/usr/local/cuda*/bin/nsys", "/opt/nvidia/nsight-systems/*/bin/nsys", "/opt/nvidia/nsight-systems-cli/*/bin/nsys"),
    "apt-get install nsight-systems-cli from NVIDIA's repository, or https://developer.nvidia.com/nsight-systems",
)

TRACE = "cuda,cudnn,cublas,osrt,nvtx"

_STEM = "nsys"


def command(nsys: str, target: Sequence[str], folder: Path, *, trace: str = TRACE, marked: bool = False) -> list[str]:
    """The command that traces a program into ``folder/nsys.nsys-rep`` and ``folder/nsys.sqlite``.

    Graphs are traced by node, since their kernels are hidden otherwise.

    Args:
        nsys: The program.
        target: Command to run under it.
        folder: Folder of its output.
        trace: What to trace, as for ``--trace``.
        marked: Trace only between ``cudaProfilerStart`` and ``cudaProfilerStop``.
    """
    options = [f"--trace={trace}", "--cuda-graph-trace=node", "--sample=none", "--export=sqlite"]
    options += [f"--output={folder / _STEM}", "--force-overwrite=true"]
    if marked:
        options += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    return [nsys, "profile", *options, *target]


def output(ended: Ended, folder: Path, export: Callable[[list[str]], Ended], nsys: str) -> Path:
    """The SQLite export that it wrote; converted from its report, where it wrote only that.

    nsys returns the exit code of the traced program, so an existing report takes precedence over the code.

    Args:
        ended: How nsys ended.
        folder: Folder of its output.
        export: Runs a command.
        nsys: The program.

    Raises:
        BrokenOffError: If it wrote neither.
    """
    place = folder / f"{_STEM}.sqlite"
    reports = sorted(folder.glob(f"{_STEM}.nsys-rep")) + sorted(folder.glob(f"{_STEM}.qdrep"))
    if not place.exists() and reports:
        options = ["--type=sqlite", "--force-overwrite=true", f"--output={place}"]
        ended = export([nsys, "export", *options, str(reports[0])])
    if not place.exists() or place.stat().st_size == 0:
        complaint = ended.last_complaint()
        what = f"ended with {ended.how()}" if ended.code else f"wrote no report to {folder}"
        raise BrokenOffError(f"nsys {what}{f': {complaint}' if complaint else ''}")
    return place
