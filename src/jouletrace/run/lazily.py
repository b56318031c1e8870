"""Modules of pyarrow that take as long to import as pyarrow itself, each imported where it is first used.

A recorder writes streams and needs none of them.
"""

from __future__ import annotations

__all__ = ["compute", "parquet"]

from importlib import import_module
from typing import TYPE_CHECKING, Any


class _Module:
    """A module that is imported once something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)  # looked up without this method from now on
        return value


if TYPE_CHECKING:
    from pyarrow import compute, parquet
else:
    compute, parquet = _Module("pyarrow.compute"), _Module("pyarrow.parquet")
