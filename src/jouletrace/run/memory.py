"""How much memory reading files may take, whatever is in them: the system refuses what goes beyond."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.run.limits import LARGE_BYTES, VARIABLE, stated_bytes

MOST_BYTES = 1 << 30
"""Memory of a fresh process while it reads files of up to ``LARGE_BYTES``; one that holds much already may take
as much more."""

RATIO = MOST_BYTES // LARGE_BYTES
"""Of larger files, over their bytes. Real traces come to 2 to 6 times, logs to 4 to 7."""

_LIBRARIES_BYTES = 192 << 20
"""What a fresh process holds, and what is loaded meanwhile and isn't data."""


@contextmanager
def bounded(paths: Sequence[Path]) -> Iterator[None]:
    """Let what reads these files take so much memory, and no more; on Linux, elsewhere nothing is limited.

    The limit is the kernel's, of data of the whole process, and is taken back at the end. It has to begin before
    Arrow is first used, whose usual allocator asks for a gigabyte in advance.

    Raises:
        BadInputError: If more is asked for.
    """
    most = max(MOST_BYTES, RATIO * sum(map(_size, paths)), stated_bytes())
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    before = _limit(most)
    try:
        yield
    except MemoryError:
        _set_back(before)  # nothing that it took is free yet
        names = ", ".join(str(path) for path in paths[:3]) + (", ..." if len(paths) > 3 else "")
        raise BadInputError(
            f"{names}: reading takes more than {most / 2**30:.3g} GiB of memory (where the file is to be trusted, "
            f"{VARIABLE}=8 allows for 8 GiB)"
        ) from None
    finally:
        _set_back(before)


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; 0 of what can't be looked at."""
    try:
        files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
        return sum(one.stat().st_size for one in files)
    except (OSError, ValueError):
        return 0


def _limit(most: int) -> tuple[int, int] | None:
    """Limit the data of this process so that it takes ``most`` bytes, less the libraries'; what the limit was."""
    try:
        import resource

        with open("/proc/self/status") as status:
            data = int(re.findall(r"^VmData:\s+(\d+) kB", status.read(), re.MULTILINE)[0]) * 1024
    except (ImportError, OSError, IndexError):
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = data + max(most - _LIBRARIES_BYTES, 0)
    if any(one != resource.RLIM_INFINITY and one <= wanted for one in (soft, hard)):
        return None
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    return soft, hard


def _set_back(before: tuple[int, int] | None) -> None:
    if before is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, before)
