"""What goes wrong in a command, turned into one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress

from jouletrace.errors import BadInputError, JouletraceError

INTERRUPTED = 130

_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.ENXIO)
"""How writing to stdout fails; files that are opened by name say their name too."""


def exit_code(error: BaseException) -> int | None:
    """Say what went wrong and return the exit code; None for a bug, which keeps its traceback."""
    if isinstance(error, JouletraceError):
        complain(str(error))
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        complain("interrupted")
        return INTERRUPTED
    if isinstance(error, SystemExit) and isinstance(error.code, str):  # the workload's own, which says why
        complain(error.code)
        return BadInputError.exit_code
    if isinstance(error, (BrokenPipeError, SystemExit)):  # rich makes the second of the first
        _drop_output()  # the reader has left (`| head`): nothing more to say
        return 0
    if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT:
        _drop_output()
        complain(f"cannot write the output: {error.strerror}")
        return BadInputError.exit_code
    return None


def complain(text: str) -> None:
    """One line on stderr, if that can be written; what a server or a file brings along can't steer the terminal."""
    from jouletrace.report.document import printable

    with suppress(OSError):
        print(f"jouletrace: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)


def _drop_output() -> None:
    """What is left in stdout's buffer goes nowhere, or Python would fail again when it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
