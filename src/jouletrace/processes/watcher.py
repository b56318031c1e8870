"""Cleans up after a process that dies: ``python -m jouletrace.processes.watcher ORDER``.

Started by ``locks.Watch``, with a pipe from that process as its input. "done" in the pipe means that nothing is left
to do. The end of the pipe without it, or of the process, whatever has killed it, means that its temporary folders are
to be removed, and the GPU that it has changed is to be put back. The lock of the GPU is shared, so that it stays until
then: nobody finds a GPU half put back.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LOOK_S = 0.5
"""Between looks whether the holder lives: a fork of it may keep the pipe open."""

_PATIENCE_S = 60.0
"""Given to a GPU that can't be put back yet: what ran on it when its holder died needs time to end."""

_RETRY_S = 0.5
_STDIN = 0


def is_done(holder: int) -> bool:
    """Wait for the holder's last word; False if it ends without."""
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
    """Do the task of an order, as soon as that is possible; what was done, in words, None for nothing.

    Raises:
        JouletraceError: If it can't be done.
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
    """Wait, and clean up if there is anything to clean up."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the other process's affair; this one ends after it
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
    except Exception as error:  # whatever it is, somebody must hear of it
        _say(f"{died}, and it can't be done for it ({error}): run {order['by_hand']}")
        return 3
    finally:
        release(order["handle"])


def _say(text: str) -> None:
    """On the holder's stderr, and in the system's log, since nobody may look at the first any more."""
    from contextlib import suppress

    with suppress(OSError, ValueError):
        print(f"jouletrace: {' '.join(text.split())}", file=sys.stderr, flush=True)
    with suppress(ImportError):
        import syslog

        syslog.openlog("jouletrace", syslog.LOG_PID)
        syslog.syslog(syslog.LOG_WARNING, text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
