"""NVIDIA's profilers: the commands of Nsight Systems and Nsight Compute, their files, and what their failures mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from jouletrace.errors import BrokenOffError, NotPossibleError
from jouletrace.wings.toolchain.tools import Ended, Tool

NSYS = Tool(
    "nsys",
    ("/usr/local/cuda*/bin/nsys", "/opt/nvidia/nsight-systems/*/bin/nsys", "/opt/nvidia/nsight-systems-cli/*/bin/nsys"),
    "apt-get install nsight-systems-cli from NVIDIA's repository, or https://developer.nvidia.com/nsight-systems",
)
NCU = Tool(
    "ncu",
    ("/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu"),
    "it comes with the CUDA toolkit, or from https://developer.nvidia.com/nsight-compute",
)

TRACED = "cuda,cudnn,cublas,osrt,nvtx"
"""APIs that nsys traces by default."""

SECTIONS = ("LaunchStats", "Occupancy", "SpeedOfLight", "ComputeWorkloadAnalysis")
"""Sections that ncu measures by default."""

_NSYS_STEM, _NCU_FILE = "nsys", "ncu.csv"
_DENIED = ("ERR_NVGPUCTRPERM", "does not have permission to access NVIDIA GPU Performance Counters")
_TAKEN = "driver resource was unavailable"
_NO_KERNELS = "No kernels were profiled"


def nsys_options(folder: Path, traced: str, marked: bool) -> list[str]:
    """Options that trace a program into ``folder/nsys.nsys-rep`` and ``folder/nsys.sqlite``.

    Graphs are traced by node, since their kernels are hidden otherwise. With ``marked`` it traces only between
    ``cudaProfilerStart`` and ``cudaProfilerStop``.
    """
    options = [f"--trace={traced}", "--cuda-graph-trace=node", "--sample=none", "--export=sqlite"]
    options += [f"--output={folder / _NSYS_STEM}", "--force-overwrite=true"]
    if marked:
        options += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    return ["profile", *options]


def nsys_output(nsys: str, ended: Ended, folder: Path, export: Callable[[list[str]], Ended]) -> Path:
    """The SQLite export that nsys wrote; converted by a run of ``export`` from its report, if it wrote only that.

    nsys returns the exit code of the traced program, so an existing report takes precedence over the code.

    Raises:
        BrokenOffError: If it wrote neither.
    """
    place = folder / f"{_NSYS_STEM}.sqlite"
    reports = sorted(folder.glob(f"{_NSYS_STEM}.nsys-rep")) + sorted(folder.glob(f"{_NSYS_STEM}.qdrep"))
    if not place.exists() and reports:
        options = ["--type=sqlite", "--force-overwrite=true", f"--output={place}"]
        ended = export([nsys, "export", *options, str(reports[0])])
    if not place.exists() or place.stat().st_size == 0:
        complaint = ended.last_complaint()
        what = f"ended with {ended.how()}" if ended.code else f"wrote no report to {folder}"
        raise BrokenOffError(f"nsys {what}{f': {complaint}' if complaint else ''}")
    return place


def ncu_options(folder: Path, sections: Sequence[str], launches: int | None, skip: int, marked: bool) -> list[str]:
    """Options that measure a program's launches into ``folder/ncu.csv``: at most ``launches``, after ``skip`` others.

    Sections are names; "full" and other sets are written "set:full". Clocks stay unlocked, as in the accompanying
    timeline; numbers are in base units, so that no unit has to be guessed. ``marked`` as for nsys.
    """
    options = ["--csv", "--page", "details", "--print-units", "base", "--log-file", str(folder / _NCU_FILE)]
    options += ["--clock-control", "none", "--target-processes", "all"]
    for section in sections:
        options += ["--set", section[4:]] if section.startswith("set:") else ["--section", section]
    if launches is not None:
        options += ["--launch-count", str(launches)]
    if skip:
        options += ["--launch-skip", str(skip)]
    if marked:
        options += ["--profile-from-start", "off"]
    return options


def ncu_output(ended: Ended, folder: Path) -> Path:
    """The file with the counters that ncu wrote.

    Raises:
        NotPossibleError: If it lacks permission, or another program holds the counters; the message states a remedy.
        BrokenOffError: If it failed otherwise, or wrote nothing.
    """
    place = folder / _NCU_FILE
    written = place.read_text(errors="replace") if place.is_file() else ""
    said = ended.output + written
    if any(sign in said for sign in _DENIED):
        raise NotPossibleError(
            "ncu may not read this GPU's performance counters (ERR_NVGPUCTRPERM): run as root, or let all users: "
            "'options nvidia NVreg_RestrictProfilingToAdminUsers=0' in /etc/modprobe.d and reload the driver "
            "(in a container: --cap-add SYS_ADMIN); see https://developer.nvidia.com/ERR_NVGPUCTRPERM"
        )
    if _TAKEN in said:
        raise NotPossibleError(
            "ncu can't have this GPU's performance counters: another program holds them (DCGM: dcgmi profile --pause)"
        )
    if '"Kernel Name"' in written:
        return place
    if _NO_KERNELS in said:
        raise BrokenOffError(f"ncu: the program launched no kernel to measure ({_NO_KERNELS})")
    own = Ended(0, written, 0, 0).last_complaint() if "==ERROR==" in written else ""
    complaint = own or ended.last_complaint()
    if ended.code:
        raise BrokenOffError(f"ncu ended with {ended.how()}: {complaint or 'it printed nothing'}")
    raise BrokenOffError(f"ncu wrote no launch to {place}{f': {complaint}' if complaint else ''}")
