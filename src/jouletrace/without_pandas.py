"""Processes without pandas: pyarrow imports it with its first array, which takes as long as all other imports."""

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
