"""The entry point: maps every outcome to an exit code.

0 done, 1 a check failed, 2 usage error or bad input, 3 not possible here, 120 stdout can't be written, 130 interrupted.

It imports almost nothing, so that it can handle Ctrl-C before the commands are imported.
"""

from __future__ import annotations

import gc
import os
import sys

from jouletrace.import_path import ours_first

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_WRONG_USE, _INTERRUPTED = 2, 130

_OURS_ALONE = ("compare", "doctor", "export", "import", "merge", "monitor", "report", "run", "show", "verify")
"""Commands that run no one else's code in this process: nothing in it needs pandas."""


def main() -> NoReturn:
    """Run the command line and exit."""
    ours_first()
    try:
        import signal

        from jouletrace.cli.encoding import print_any_text
        from jouletrace.cli.failures import CLOSED, complain, drop_output
        from jouletrace.processes import termination
        from jouletrace.without_pandas import hide_pandas

        if sys.argv[1:] and sys.argv[1] in _OURS_ALONE:
            hide_pandas()
        termination.command_begins()
        signal.signal(signal.SIGTERM, termination.terminated)
        hangup = getattr(signal, "SIGHUP", None)  # a dropped connection; ignored under nohup
        if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:
            signal.signal(hangup, termination.terminated)
        if not _have_output() and sys.argv[1:2] not in (["run"], ["monitor"]):  # their program runs nevertheless
            complain(CLOSED)
            sys.exit(_WRONG_USE)
        print_any_text()
    except KeyboardInterrupt:
        print("jouletrace: interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    code = run(sys.argv[1:])
    termination.command_is_over()
    try:
        sys.stderr.flush()
    except (OSError, ValueError):  # what can't be said there is no failure of the command
        drop_output(sys.stderr)
    gc.disable()
    gc.freeze()  # as it ends, Python looks for garbage among all objects: 1 to 2 s with torch
    sys.exit(code)


def _have_output() -> bool:
    """True if stdout is open; closed streams become /dev/null, since the next opened file would get their number."""
    closed = sys.stdout is None
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # for as long as the process lives
    return not closed


def run(arguments: list[str]) -> int:
    """Run the command line; returns the exit code. Unexpected exceptions keep their traceback."""
    from jouletrace.cli.failures import exit_code
    from jouletrace.processes import termination

    try:
        from jouletrace.cli.app import invoke
        from jouletrace.known_secrets import take_arguments

        take_arguments(arguments)
        code = invoke(arguments)
        sys.stdout.flush()
    except BaseException as error:
        termination.command_is_over()
        failed = exit_code(error)
        if failed is None:
            raise
        return failed
    return code
