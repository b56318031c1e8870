"""Limits the memory that reading a file takes, whatever it contains: the system refuses larger allocations."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.run.limits import LARGE_BYTES, VARIABLE, stated_bytes

MOST_BYTES = 1 << 30
"""Memory of a fresh process while it reads files of up to ``LARGE_BYTES``; a process that already holds data may
take as much in addition."""

RATIO = MOST_BYTES // LARGE_BYTES
"""Memory over file size for larger files. Real traces take 2 to 6 times their size, logs 4 to 7 times."""

_LIBRARIES_BYTES = 192 << 20
"""Memory of a fresh process, and of libraries loaded while reading."""


@contextmanager
def bounded(paths: Sequence[Path]) -> Iterator[None]:
    """Limit the memory of this process while it reads these files; on Linux only.

    The kernel enforces the limit on the data segment of the whole process (``RLIMIT_DATA``); it is lifted at the end.
    It must begin before the first use of Arrow, whose default allocator reserves a gigabyte in advance.

    Raises:
        BadInputError: If reading requests more.
    """
    most = max(MOST_BYTES, RATIO * sum(map(_size, paths)), stated_bytes())
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each thread takes 40 MB once it is loaded: 2.5 GB on 64 cores
    before = _limit(most)
    try:
        yield
    except MemoryError:
        _set_back(before)  # the memory taken isn't free yet
        names = ", ".join(str(path) for path in paths[:3]) + (", ..." if len(paths) > 3 else "")
        raise BadInputError(
            f"{names}: reading takes more than {most / 2**30:.3g} GiB of memory (for a file that you trust, "
            f"{VARIABLE}=8 allows 8 GiB)"
        ) from None
    finally:
        _set_back(before)


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; 0 if they can't be read."""
    try:
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        return sum(file.stat().st_size for file in files)
    except (OSError, ValueError):
        return 0


def _limit(most: int) -> tuple[int, int] | None:
    """Limit the data of this process to its present size plus ``most`` less the libraries'; the earlier limit."""
    try:
        import resource

        with open("/proc/self/status") as status:
            data = int(re.findall(r"^VmData:\s+(\d+) kB", status.read(), re.MULTILINE)[0]) * 1024
    except (ImportError, OSError, IndexError):
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = data + max(most - _LIBRARIES_BYTES, 0)
    if any(limit != resource.RLIM_INFINITY and limit <= wanted for limit in (soft, hard)):
        return None
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    return soft, hard


def _set_back(before: tuple[int, int] | None) -> None:
    if before is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, before)
