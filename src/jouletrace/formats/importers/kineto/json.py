"""The frame of a Kineto trace: what stands beside its events, and the walk from event to event."""

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
"""Text is looked at through a window that moves on before an event may reach out of it; none may be larger."""

_PATIENCE = 20
"""How many times its own length a file may be read in vain before it is given up as damaged."""


class Frame:
    """A trace, read: ``header`` holds the keys beside ``traceEvents``, ``events`` the rest.

    Text is decoded as Latin-1, in which every byte is one character, so that places are bytes; the
    few distinct texts that are kept are put right by ``as_utf8``.
    """

    def __init__(self, data: bytes, left: Left) -> None:
        self.header: dict[str, Any] = {}
        self._data = data
        self._left = left
        self.events = Events(left, self._line)
        collecting = gc.isenabled()
        gc.disable()  # events are millions of objects without cycles: looking for some takes a tenth of the time
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
        """One key with its value; returns where it ends, None at the end of all."""
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
        """A value beside the events is damaged: go on at the events, if they are yet to come."""
        found = re.compile(rb'"traceEvents"\s*:\s*\[').search(self._data, at)
        self._left.add("unreadable_header", "values beside the events are no JSON", 1, lambda: self._line(at))
        return self._read_events(found.end()) if found else None

    def _read_events(self, at: int) -> int | None:
        """All events of the list; returns where it ends, None if the file ends before."""
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
        self._left.add("cut_off", "place where the file breaks off; what was to follow is lost", 1, self._line(at))

    def _text(self, start: int, end: int) -> str:
        return self._data[start:end].decode("latin-1")

    def _line(self, at: int) -> str:
        return f"line {self._data.count(10, 0, at) + 1}"


def _failed_at(error: Exception) -> int:
    """How far the parser came before it failed, in characters of the window."""
    return error.pos if isinstance(error, JSONDecodeError) else 0


def _skip(text: str, at: int) -> int:
    """Where the next thing starts after spaces and commas."""
    found = _SPACE(text, at)
    return found.end() if found else at
