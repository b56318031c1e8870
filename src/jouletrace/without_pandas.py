"""Processes without pandas: pyarrow imports it with its first array, in half a second and more."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing typing takes longer than all that is done here
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


class _Hidden:
    """A finder of modules that finds no pandas."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used in this process", name=name)


def hide_pandas() -> None:
    """Let no later import find pandas, in a process of ours that runs no one else's code."""
    sys.meta_path.insert(0, _Hidden())


_in_pyarrow: list[str] = []


def hide_pandas_from_pyarrow() -> None:
    """Let pyarrow, which looks for pandas once, believe that there is none; other libraries find it."""
    import pyarrow as pa

    hide_pandas()
    try:
        pa.array([])
    finally:
        del sys.meta_path[0]
        _in_pyarrow.append("pandas")


def runs_ours_alone() -> bool:
    """True in a process that runs no one else's code, from which pandas is hidden."""
    return bool(_in_pyarrow)
