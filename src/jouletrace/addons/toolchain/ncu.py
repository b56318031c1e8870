"""Driving Nsight Compute: its command, and the meaning of its failures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jouletrace.addons.toolchain.programs import Ended, Program
from jouletrace.errors import BrokenOffError, NotPossibleError

NCU = Program(
    "ncu",
    ("/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu"),
    "it comes with the CUDA toolkit, or from https://developer.nvidia.com/nsight-compute",
)

SECTIONS = ("LaunchStats", "Occupancy", "SpeedOfLight", "ComputeWorkloadAnalysis")
"""Default sections to measure."""

OUTPUT = "ncu.csv"

_DENIED = ("ERR_NVGPUCTRPERM", "does not have permission to access NVIDIA GPU Performance Counters")
_TAKEN = "driver resource was unavailable"
_NO_KERNELS = "No kernels were profiled"


def command(
    ncu: str,
    target: Sequence[str],
    folder: Path,
    *,
    sections: Sequence[str] = SECTIONS,
    launches: int | None = None,
    skip: int = 0,
    marked: bool = False,
) -> list[str]:
    """The command that measures the launches of a program into ``folder/ncu.csv``.

    Clocks stay unlocked, as in the accompanying timeline; numbers are in base units, so that
    no unit has to be guessed.

    Args:
        ncu: The program.
        target: Command to run under it.
        folder: Folder of its output.
        sections: Names of sections; "full" and other sets are written "set:full".
        launches: Largest number of measured launches; None for all.
        skip: Number of earlier launches to skip.
        marked: Measure only between ``cudaProfilerStart`` and ``cudaProfilerStop``.
    """
    options = ["--csv", "--page", "details", "--print-units", "base", "--log-file", str(folder / OUTPUT)]
    options += ["--clock-control", "none", "--target-processes", "all"]
    for section in sections:
        options += ["--set", section[4:]] if section.startswith("set:") else ["--section", section]
    if launches is not None:
        options += ["--launch-count", str(launches)]
    if skip:
        options += ["--launch-skip", str(skip)]
    if marked:
        options += ["--profile-from-start", "off"]
    return [ncu, *options, *target]


def output(ended: Ended, folder: Path) -> Path:
    """The file with its output.

    Raises:
        NotPossibleError: If it lacks permission, or another program holds the counters; the message states a remedy.
        BrokenOffError: If it failed otherwise, or wrote nothing.
    """
    place = folder / OUTPUT
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
    if '"Kernel Name"' not in written:
        if _NO_KERNELS in said:
            raise BrokenOffError(f"ncu: the program launched no kernel to measure ({_NO_KERNELS})")
        complaint = (Ended(0, written, 0, 0).last_complaint() if "==ERROR==" in written else "") or (
            ended.last_complaint()
        )
        if ended.code:
            raise BrokenOffError(f"ncu ended with {ended.how()}: {complaint or 'it printed nothing'}")
        raise BrokenOffError(f"ncu wrote no launch to {place}{f': {complaint}' if complaint else ''}")
    return place
