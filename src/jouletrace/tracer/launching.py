"""The environment in which a program, and all that it starts, loads the native tracer."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from jouletrace.errors import NotPossibleError
from jouletrace.run.steady import OFFSET, offset_ns

FOLDER, OPERATORS, DUTY = "JOULETRACE_TRACE", "JOULETRACE_OPERATORS", "JOULETRACE_DUTY"
CUPTI = "JOULETRACE_CUPTI"
"""Folders with a libcupti, separated by colons, for programs that have none beside their CUDA."""

CUDA, NVTX = "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"


@dataclass(frozen=True)
class Duty:
    """The part of a program that is traced.

    Attributes:
        first_s: Length of the beginning, s.
        first_kernels: Largest number of kernels of the beginning.
        traced_s, every_s: From then on, so many seconds in so many.
        most_kernels: Kernels after which ``every_s`` doubles, and after twice as many again: they take space.
    """

    first_s: float = float("inf")
    first_kernels: int = 1_500_000
    traced_s: float = 5.0
    every_s: float = 60.0
    most_kernels: int = 4_000_000


def library() -> Path:
    """Path of the native library.

    Raises:
        NotPossibleError: If it isn't built.
    """
    path = Path(__file__).with_name("native.so")
    if not path.is_file():
        raise NotPossibleError("the tracer isn't built here: install a wheel of this platform, or a C compiler first")
    return path


def environment(folder: Path, *, operators: bool, duty: Duty, host: Path | None = None) -> dict[str, str]:
    """Variables that are added for a program.

    Args:
        folder: Where its processes write what they run; absolute, and open to this user alone.
        operators: Whether operators and modules are marked.
        duty: Which part is traced.
        host: Folder that each Python searches first, where no GPU loads the tracer; None for none.
    """
    parts = (duty.first_s, duty.first_kernels, duty.traced_s, duty.every_s, duty.most_kernels)
    asked = {FOLDER: str(folder), OPERATORS: str(int(operators)), DUTY: " ".join(f"{part:.17g}" for part in parts)}
    asked[OFFSET] = str(offset_ns())
    if host is not None:
        asked["PYTHONPATH"] = os.pathsep.join([str(host), *filter(None, [os.environ.get("PYTHONPATH")])])
    asked[CUPTI] = os.environ.get(CUPTI) or ":".join(_places_of_cupti())
    try:
        own = str(library())
    except NotPossibleError:
        return asked
    return asked | {name: own for name in (CUDA, NVTX) if not _taken(name)}


def obstacle() -> str:
    """Why no kernels will be traced; "" if nothing is in the way."""
    try:
        library()
    except NotPossibleError as error:
        return str(error)
    return f"{CUDA} is set to {_taken(CUDA)}, in place of the tracer" if _taken(CUDA) else ""


def ranges_obstacle() -> str:
    """Why no ranges of NVTX will be marked; "" if nothing is in the way."""
    return f"{NVTX} is set to {_taken(NVTX)}, which gets the ranges of NVTX: none is marked" if _taken(NVTX) else ""


def _places_of_cupti() -> list[str]:
    """Folders with a libcupti: those of our Python first, newer ones before older ones."""
    places = [(Path(folder), "nvidia/*/lib") for folder in sys.path if folder]
    places += [(Path("/usr/local"), name) for name in ("cuda*/extras/CUPTI/lib64", "cuda*/lib64")]
    found = [str(file.parent) for folder, name in places for file in sorted(folder.glob(f"{name}/libcupti.so.*"))[::-1]]
    return list(dict.fromkeys(found))


def _taken(name: str) -> str:
    """The library of the user's that the variable names; "" if it is free, or names ours."""
    value = os.environ.get(name, "")
    return "" if Path(value) == Path(__file__).with_name("native.so") else value
