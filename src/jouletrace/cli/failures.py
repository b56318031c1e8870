"""Maps the failures of a command to one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress

from jouletrace.errors import BadInputError, JouletraceError

INTERRUPTED = 130

_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.ENXIO)
"""Error numbers of failed writes to stdout; errors of named files carry their file name."""


def exit_code(error: BaseException) -> int | None:
    """Print the error and return the exit code; None for an unexpected exception, which keeps its traceback."""
    if isinstance(error, JouletraceError):
        complain(str(error))
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        complain("interrupted")
        return INTERRUPTED
    if isinstance(error, SystemExit) and isinstance(error.code, str):  # raised by the workload, with a message
        complain(error.code)
        return BadInputError.exit_code
    if isinstance(error, (BrokenPipeError, SystemExit)):  # rich converts the first into the second
        _drop_output()  # the reader has closed the pipe (`| head`)
        return 0
    if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT:
        _drop_output()
        complain(f"cannot write the output: {error.strerror}")
        return BadInputError.exit_code
    return None


def complain(text: str) -> None:
    """Print one line on stderr if possible; control characters from servers or files are escaped."""
    from jouletrace.report.document import printable

    with suppress(OSError):
        print(f"jouletrace: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)


def _drop_output() -> None:
    """Discard the rest of stdout's buffer; otherwise Python would fail again at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
