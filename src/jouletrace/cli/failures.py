"""Maps the failures of a command to one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TextIO

from jouletrace.errors import BadInputError, JouletraceError, NotPossibleError
from jouletrace.option import GONE
from jouletrace.wing import ENTRY_POINTS

INTERRUPTED = 130
UNWRITTEN = 120
"""Python's own exit code where stdout can't be written."""

CLOSED = "standard output is closed: open it, or redirect it to /dev/null"

_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.ENXIO)
"""Error numbers of failed writes to stdout; errors of named files carry their file name."""

_KINDS = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a number",
    "bool_parsing": "true or false",
}
"""Expected kind of value, by pydantic's error code."""

_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
"""Key of the bound and its words, by pydantic's error code."""


_SWEPT = ("--batch", "--seq-len")
"""Options of which ``sweep`` takes several values, with commas."""


def exit_code(error: BaseException) -> int | None:
    """Print the error and return the exit code; None for an unexpected exception, which keeps its traceback."""
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        error = BadInputError(f"{str(error.filename)[:80]}…: the name is too long for a file")
    if isinstance(error, ModuleNotFoundError) and str(error.name).startswith(f"{ENTRY_POINTS}."):
        error = NotPossibleError(f"this needs the wing {str(error.name).split('.')[2]}, which isn't here")
    if isinstance(error, JouletraceError):
        complain(error.text)
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        complain("interrupted")
        return INTERRUPTED
    if isinstance(error, SystemExit) and isinstance(error.code, str):  # raised by the workload, with a message
        complain(error.code)
        return BadInputError.exit_code
    if isinstance(error, (BrokenPipeError, SystemExit)):  # rich converts the first into the second
        drop_output(sys.stdout)  # the reader has closed the pipe (`| head`)
        return 0
    if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT:
        drop_output(sys.stdout)
        complain(f"cannot write the output: {error.strerror}")
        return UNWRITTEN
    return None


def usage_error(error: Any) -> str:
    """The message for a usage error reported by typer.

    Newer versions of typer check values by pydantic, whose messages name neither the value nor the option. Messages
    of older versions, and of other errors, are unchanged.
    """
    param, cause = getattr(error, "param", None), error.__cause__
    asked = error.format_message()
    for gone, instead in GONE.items():
        group, _, name = gone.partition(" ")
        missing = name and asked == f"No such command {name!r}." and error.ctx.info_name == group
        if missing or gone == getattr(error, "option_name", None):
            return f"{gone} is gone: {instead}"
    if getattr(error.ctx, "info_name", None) == "compare" and "extra argument" in error.format_message():
        said = "several Runs of a side are joined by commas: compare A1,A2 B1,B2; show lists all in one table"
        return f"{error.format_message()}: {said}"
    if param is None or not callable(getattr(cause, "errors", None)):
        return str(error.format_message())
    problem: Mapping[str, Any] = cause.errors()[0]
    code, name = problem["type"], max(param.opts, key=len)
    if code in _BOUNDS:
        key, words = _BOUNDS[code]
        return f"{name} {problem['input']}: must be {words} {problem['ctx'][key]:g}"
    if code not in _KINDS:
        return str(error.format_message())
    allowed = _KINDS[code]
    for end, words in (("min", "at least"), ("max", "at most")):
        bound = getattr(param, end, None)
        if bound is not None:
            allowed += f", {words} {bound:g}"
    about = (getattr(param, "help", None) or "").partition(" [default")[0].rstrip(".")
    value = problem["input"] if str(problem["input"]).strip() else repr(problem["input"])
    several = "; jouletrace sweep takes several" if "," in str(value) and name in _SWEPT else ""
    return f"{name} {value}: must be {allowed}" + (f" ({about})" if about else "") + several


def complain(text: str) -> None:
    """Print one line on stderr if possible; control characters from servers or files are escaped."""
    from jouletrace.words.text import printable

    with suppress(OSError):
        print(f"jouletrace: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)


def drop_output(stream: TextIO) -> None:
    """Discard the rest of a stream's buffer; otherwise Python would fail again at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
