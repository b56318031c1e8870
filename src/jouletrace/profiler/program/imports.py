"""Something done right after a module was imported, before its importer goes on."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class AfterImport(MetaPathFinder):
    """Calls ``then`` after each of some modules was imported, from ``with`` to its end.

    Args:
        names: Full names of the modules.
        then: What to do.
    """

    def __init__(self, names: Collection[str], then: Callable[[], None]) -> None:
        self._names, self._then, self._looking = frozenset(names), then, False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders give, with a loader that calls ``then``."""
        if fullname not in self._names or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            run: Any = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                spec._initializing = False  # type: ignore[attr-defined]  # it is complete, which ``then`` may ask
                self._then()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def __enter__(self) -> AfterImport:
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
