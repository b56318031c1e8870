"""Linear algebra in one thread: matrices here are small, and threads that wait for each other take most of the time.

On two busy cores an analysis takes four times the processor's time with them, and the time is the workload's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any

try:
    from threadpoolctl import ThreadpoolController
except ImportError:  # figures are the same without it
    ThreadpoolController = None


class _OneThread(ContextDecorator):
    """Limits the BLAS of this process to one thread while the main thread is inside, however often.

    Other threads leave it as it is: OpenBLAS takes neither the limit nor its end from them.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._controller: Any = None
        self._restore: Callable[[], None] = lambda: None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._inside += 1
            if self._inside == 1 and ThreadpoolController is not None:
                if self._controller is None:
                    import scipy.linalg  # noqa: F401  # has a BLAS of its own; a controller knows what is loaded

                    self._controller = ThreadpoolController()
                self._restore = self._controller.limit(limits=1, user_api="blas").restore_original_limits

    def __exit__(self, *error: object) -> None:
        if threading.current_thread() is threading.main_thread():
            self._inside -= 1
            if self._inside == 0:
                self._restore()


one_thread = _OneThread()
"""To be used as a decorator, or in a with statement."""
