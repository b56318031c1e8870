"""Processes without pandas: pyarrow imports it with its first array, which takes as long as all other imports."""

from __future__ import annotations

import sys
import threading

TYPE_CHECKING = False  # importing typing takes longer than all that is done here
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


class _Hidden:
    """A finder of modules that finds no pandas, in one thread or in all (None)."""

    def __init__(self, thread: int | None) -> None:
        self._thread = thread

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == "pandas" and self._thread in (None, threading.get_ident()):
            raise ModuleNotFoundError("pandas is not used in this process", name=name)


def hide_pandas(thread: int | None = None) -> None:
    """Let no later import find pandas.

    For processes of ours that run no one else's code; for a thread where only it no longer does.
    """
    sys.meta_path.insert(0, _Hidden(thread))
