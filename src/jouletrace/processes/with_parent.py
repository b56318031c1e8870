"""Runs a module in a process that ends when its parent ends, for whatever reason.

    python -m jouletrace.processes.with_parent PARENT MODULE [ARGUMENT ...]

A parent that is killed can't end its children, which would occupy the GPU for minutes. So the child arranges its own
end before it imports anything: on Linux by ``prctl(2)``, elsewhere by a thread that polls the parent's process id.
"""

from __future__ import annotations

from jouletrace.import_path import ours_first

if __name__ == "__main__":
    ours_first()

import os
import runpy
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_LOOK_S = 0.5
_CODE = 128 + 9
"""Exit code of a killed process, by convention of shells."""


def end_with_parent(parent: int) -> None:
    """Make this process end at once when its parent ends.

    Linux sends the signal when the *thread* that started the process ends. A thread that doesn't wait for the process
    therefore ends it too early.

    Args:
        parent: Process id of the parent; if it has ended already, this process ends now.
    """
    if not _signal_requested():
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it ended before the signal was requested
        os._exit(_CODE)


def _signal_requested() -> bool:
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        error: int = ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return False
    return error == 0


def _watch(parent: int) -> None:
    """Poll the parent's id: the system assigns another parent to an orphan."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(_CODE)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    # Its parent's way to end it early, which is ignored behind & in a script.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    del sys.argv[:2]  # leaves the module, whose name `run_module` replaces, and its arguments
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
