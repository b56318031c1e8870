"""A module of ours in a process that ends when its parent does, however that ends.

    python -m jouletrace.processes.with_parent PARENT MODULE [ARGUMENT ...]

A parent that is killed can't end what it has started, which would keep the GPU for minutes. So the process asks for
its own end, before it imports anything: of Linux by ``prctl(2)``, elsewhere of a thread that watches.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_LOOK_S = 0.5
_CODE = 128 + 9
"""As of a process that was killed, by convention of shells."""


def end_with_parent(parent: int) -> None:
    """Have this process end at once when its parent does.

    Linux ends it when the *thread* ends that has started it; where that doesn't wait for the process, its end comes
    too soon.

    Args:
        parent: Process id of who has started this one; if it is gone already, this process ends now.
    """
    if not _told_the_kernel():
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(_CODE)


def _told_the_kernel() -> bool:
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        told: int = ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return False
    return told == 0


def _watch(parent: int) -> None:
    """Who is left by its parent gets another one."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(_CODE)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    del sys.argv[:2]  # what is left is the module, whose name `run_module` replaces, and its arguments
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
