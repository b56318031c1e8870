"""Output after a program that may have closed or replaced ``sys.stdout`` and ``sys.stderr``."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any


class Streams:
    """Remembers where stdout and stderr go."""

    def __init__(self) -> None:
        self._kept = [(name, getattr(sys, name), _duplicate(getattr(sys, name))) for name in ("stdout", "stderr")]

    def restore(self) -> None:
        """Let both go there again."""
        self.flush()
        for name, stream, duplicate in self._kept:
            setattr(sys, name, stream if duplicate is None else _usable(stream, duplicate))

    def flush(self) -> None:
        """Write what the program has printed."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):
                stream.flush()


def _duplicate(stream: Any) -> Any:
    """Another stream to the same file, pipe or terminal; None for a stream in memory."""
    try:
        buffering = 1 if stream.line_buffering else -1
        return open(os.dup(stream.fileno()), "w", buffering, stream.encoding, stream.errors)
    except (AttributeError, OSError, ValueError):
        return None


def _usable(stream: Any, duplicate: Any) -> Any:
    """The stream, or its duplicate where the program has closed the stream."""
    try:
        there = os.fstat(duplicate.fileno())
    except OSError:  # the program has closed all that it didn't open
        return stream
    try:
        if os.path.samestat(os.fstat(stream.fileno()), there):
            duplicate.close()
            return stream
    except (OSError, ValueError):
        pass
    return duplicate
