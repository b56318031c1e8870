"""The frame of a Kineto trace: the members beside its events, and the iteration over events."""

from __future__ import annotations

import gc
import re
from json import JSONDecodeError, JSONDecoder
from typing import Any

from jouletrace.formats.importers.base import Left
from jouletrace.formats.importers.kineto.batch import take_chunks
from jouletrace.formats.importers.kineto.events import Events

_SCAN = JSONDecoder(strict=False, parse_float=str).raw_decode
_SPACE = re.compile(r"[\s,]*").match
_KEY = re.compile(r'[\s,]*"((?:[^"\\]|\\.)*)"\s*:\s*').match

_WINDOW = 2 << 20
_MARGIN = 64 << 10
"""Text is read through a window that moves on this far before its end. No event may be larger than the margin."""

_PATIENCE = 20
"""Multiple of its own length up to which a file may be read in vain before it counts as damaged."""


class Frame:
    """A trace: ``header`` holds the keys beside ``traceEvents``, ``events`` the rest.

    Text is decoded as Latin-1, in which every byte is one character, so that positions are bytes. The
    few distinct texts that are kept are restored by ``as_utf8``.
    """

    def __init__(self, data: bytes, left: Left) -> None:
        self.header: dict[str, Any] = {}
        self._data = data
        self._left = left
        self.events = Events(left, self._line)
        collecting = gc.isenabled()
        gc.disable()  # events are millions of objects without cycles: searching those takes a tenth of the time
        try:
            self._read()
            self.events.flush()
        finally:
            if collecting:
                gc.enable()

    def _read(self) -> None:
        start = _skip(self._text(0, 4096), 0) if self._data[:3] != b"\xef\xbb\xbf" else 3
        start += _skip(self._text(start, start + 4096), 0)
        opening = self._data[start : start + 1]
        if opening == b"[":
            self._read_events(start + 1)
            return
        at: int | None = start + 1
        while at is not None:
            at = self._read_member(at)

    def _read_member(self, at: int) -> int | None:
        """Read one key with its value; returns where it ends, None at the end of the object."""
        key = _KEY(self._text(at, at + 4096))
        if key is None:
            if self._text(at, at + 4096).strip(" \t\r\n,")[:1] != "}":
                self._cut_off(at)
            return None
        at += key.end()
        if key[1] == "traceEvents" and self._data[at : at + 1] == b"[":
            return self._read_events(at + 1)
        size = _MARGIN
        while True:
            try:
                value, end = _SCAN(self._text(at, at + size), 0)
            except (ValueError, RecursionError):
                if at + size >= len(self._data):
                    return self._skip_member(at)
                size *= 4
            else:
                self.header[key[1]] = value
                return at + int(end)

    def _skip_member(self, at: int) -> int | None:
        """Skip a damaged value beside the events: continue at the events, if they are still to come."""
        found = re.compile(rb'"traceEvents"\s*:\s*\[').search(self._data, at)
        self._left.add("unreadable_header", "values beside the events aren't JSON", 1, lambda: self._line(at))
        return self._read_events(found.end()) if found else None

    def _read_events(self, at: int) -> int | None:
        """Read all events of the list; returns where it ends, None if the file ends before."""
        budget = _PATIENCE * (len(self._data) + _WINDOW)
        while True:
            at, reach = take_chunks(self.events, self._data, at)
            text = self._text(at, at + _WINDOW)
            last = at + len(text) >= len(self._data)
            stop = min(reach - at, len(text) if last else len(text) - _MARGIN)
            i = 0
            while (i := _skip(text, i)) < stop:
                if text[i] == "]":
                    return at + i + 1
                try:
                    i = self.events.take(text, i, at)
                    continue
                except (ValueError, RecursionError) as error:
                    budget -= max(1, _failed_at(error) - i)
                following = self.events.repair(text, i, at)
                if budget < 0 or (following is None and (last or i == 0)):
                    self._cut_off(at + i)
                    return None
                if following is None:  # perhaps only the window ends here
                    break
                i = following
            if last and i >= len(text):
                self._cut_off(len(self._data))
                return None
            at += i

    def _cut_off(self, at: int) -> None:
        self._left.add("cut_off", "place where the file breaks off; the rest is lost", 1, self._line(at))

    def _text(self, start: int, end: int) -> str:
        return self._data[start:end].decode("latin-1")

    def _line(self, at: int) -> str:
        return f"line {self._data.count(10, 0, at) + 1}"


def _failed_at(error: Exception) -> int:
    """Position at which the parser failed, in characters of the window."""
    return error.pos if isinstance(error, JSONDecodeError) else 0


def _skip(text: str, at: int) -> int:
    """Start of the next element after spaces and commas."""
    found = _SPACE(text, at)
    return found.end() if found else at
