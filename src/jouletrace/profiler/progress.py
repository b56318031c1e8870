"""Progress reports: the current phase and its remaining time."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receiver of progress; the command line draws it."""

    def begin(self, phase: str, seconds: float) -> None:
        """Begin a phase that takes about ``seconds``."""

    def advance(self, seconds: float, note: str = "") -> None:
        """Add elapsed seconds to the phase."""


class Silent:
    """Progress for library use: prints nothing."""

    def begin(self, phase: str, seconds: float) -> None:
        """Ignore."""

    def advance(self, seconds: float, note: str = "") -> None:
        """Ignore."""
