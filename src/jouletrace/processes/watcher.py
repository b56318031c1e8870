"""Cleans up after a process that dies: ``python -m jouletrace.processes.watcher ORDER``.

``locks.Watch`` starts it with a pipe as its input. "done" in the pipe means that nothing is left to do. If the pipe
or the process ends without "done", the watcher removes the temporary folders and restores the GPU that the process
has changed. The watcher shares the lock of the GPU, so that no other process sees a half-restored GPU.
"""

from __future__ import annotations

from jouletrace.import_path import ours_first

if __name__ == "__main__":
    ours_first()

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LOOK_S = 0.5
"""Seconds between checks that the holder lives: a fork of it may keep the pipe open."""

_PATIENCE_S = 60.0
"""Seconds to retry the restore: the work that ran on the GPU when its holder died needs time to end."""

_RETRY_S = 0.5
_STDIN = 0


def is_done(holder: int) -> bool:
    """Wait for "done" from the holder; False if it ends without."""
    said = b""
    while True:
        gone = os.getppid() != holder
        if select.select([_STDIN], [], [], 0 if gone else _LOOK_S)[0]:
            data = os.read(_STDIN, 64)
            said += data
            if said == b"done" or not data:
                return said == b"done"
        elif gone:
            return False


def put_back(order: dict[str, Any]) -> str | None:
    """Run the task of an order as soon as that is possible; returns a description of its effect, None without effect.

    Raises:
        JouletraceError: If the task fails.
    """
    from importlib import import_module

    from jouletrace.errors import NotPossibleError
    from jouletrace.processes.locks import Hold, say_who
    from jouletrace.run import DeviceInfo

    gpu = DeviceInfo.from_dict(order["gpu"])
    say_who(order["handle"], f"putting {gpu.id} back for process {order['holder']}, which has died")
    module, _, function = order["task"].partition(":")
    task = getattr(import_module(module), function)
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            done: str | None = task(Hold(gpu, order["handle"]), **order["facts"])
            return done
        except NotPossibleError:
            if time.monotonic() >= end:
                raise
            time.sleep(_RETRY_S)


def main(text: str) -> int:
    """Wait for the end of the holder, and clean up if necessary."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # meant for the other process; this one ends after it
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    import json

    order = json.loads(text)
    if is_done(order["holder"]):
        return 0
    from jouletrace.run.scratch import remove_left_behind

    code = _put_back_and_say(order) if "gpu" in order else 0
    remove_left_behind()
    return code


def _put_back_and_say(order: dict[str, Any]) -> int:
    from jouletrace.processes.locks import release

    died = f"process {order['holder']} ended without putting {order['gpu']['id']} back"
    try:
        done = put_back(order)
        if done is not None:
            _say(f"{died}: {done}")
        return 0
    except Exception as error:  # every failure must be reported
        _say(f"{died}, and the watcher can't restore it ({error}): run {order['by_hand']}")
        return 3
    finally:
        release(order["handle"])


def _say(text: str) -> None:
    """Report on the holder's stderr and in the system log, since the terminal may be closed by now."""
    from contextlib import suppress

    with suppress(OSError, ValueError):
        print(f"jouletrace: {' '.join(text.split())}", file=sys.stderr, flush=True)
    with suppress(ImportError):
        import syslog

        syslog.openlog("jouletrace", syslog.LOG_PID)
        syslog.syslog(syslog.LOG_WARNING, text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
