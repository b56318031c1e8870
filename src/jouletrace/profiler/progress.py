"""Saying what is being measured, and how long it will still take."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """What the orchestration tells whoever watches; the command line draws it."""

    def begin(self, phase: str, seconds: float) -> None:
        """A phase starts that will take about ``seconds``."""

    def advance(self, seconds: float, note: str = "") -> None:
        """So many more seconds of the phase are done."""


class Silent:
    """Progress for library use: says nothing."""

    def begin(self, phase: str, seconds: float) -> None:
        """Ignore."""

    def advance(self, seconds: float, note: str = "") -> None:
        """Ignore."""
