"""Functions of torch that are replaced while a program is traced.

They show when it starts CUDA, when its own profiler runs, and when it waits for data.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

MODULES = ("torch.cuda", "torch.autograd.profiler", "torch.utils.data.dataloader")
"""Whose functions are replaced."""


class Wrapped:
    """The replaced functions; ``look`` replaces those of modules that the program has imported since.

    Args:
        begin: Called before torch starts CUDA.
        hold, release: Called before torch's profiler takes CUPTI, and after it is done: it takes our records otherwise.
        waited: Receives start and end of each wait for torch's data loader, ns.
    """

    def __init__(
        self,
        begin: Callable[[], None],
        hold: Callable[[], None],
        release: Callable[[], None],
        waited: Callable[[int, int], None],
    ) -> None:
        self._begin, self._hold, self._release, self._waited = begin, hold, release, waited
        self._undo: list[Callable[[], None]] = []

    def look(self) -> None:
        """Replace what isn't yet."""
        torch = sys.modules.get("torch")
        if torch is not None and "torch.cuda" in sys.modules and hasattr(torch, "_C"):
            self._put(torch._C, "_cuda_init", _calling(before=self._begin))
        profiler = sys.modules.get("torch.autograd.profiler")
        if hasattr(profiler, "_disable_profiler"):
            for name in ("_prepare_profiler", "_enable_profiler"):
                self._put(profiler, name, _calling(before=self._hold))
            self._put(profiler, "_disable_profiler", _calling(after=self._release))
        loader = sys.modules.get("torch.utils.data.dataloader")
        if (kind := getattr(loader, "_BaseDataLoaderIter", None)) is not None:
            self._put(kind, "__next__", self._timed)

    def undo(self) -> None:
        """Put the originals back."""
        for undo in reversed(self._undo):
            undo()
        self._undo = []

    def _put(self, owner: Any, name: str, made: Callable[[Any], Any]) -> None:
        """Replace a function by ``made`` of it, once."""
        original = getattr(owner, name, None)
        if original is None or getattr(original, "_jouletrace", False):
            return
        new = made(original)
        new._jouletrace = True
        setattr(owner, name, new)
        self._undo.append(lambda: setattr(owner, name, original))

    def _timed(self, original: Any) -> Any:
        def timed(*args: Any) -> Any:
            begin = time.time_ns()
            try:
                return original(*args)
            finally:
                self._waited(begin, time.time_ns())

        return timed


def _calling(before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None) -> Any:
    """What makes of a function one that also calls these."""

    def made(original: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            before()
            try:
                return original(*args, **options)
            finally:
                after()

        return call

    return made
