"""Words of a Perfetto sequence, each written once and then called by a number."""

from __future__ import annotations

from jouletrace.formats.exporters import protobuf as pb

EVENT_CATEGORIES, EVENT_NAMES, ARG_NAMES, ARG_TEXTS = 1, 2, 3, 29
"""Fields of InternedData: its tables of words."""


class Interned:
    """The words of one packet sequence."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, str], int] = {}
        self._used = dict.fromkeys((EVENT_CATEGORIES, EVENT_NAMES, ARG_NAMES, ARG_TEXTS), 0)
        self._new: list[bytes] = []

    def number(self, table: int, word: str) -> int:
        """The number of a word, from 1; a new word waits to be written."""
        found = self._numbers.get((table, word))
        if found is None:
            found = self._used[table] = self._used[table] + 1
            self._numbers[table, word] = found
            self._new.append(pb.message(table, pb.integer(1, found), pb.text(2, word)))
        return found

    def take_new(self) -> bytes:
        """The words since the last call, as fields of InternedData."""
        new = b"".join(self._new)
        self._new.clear()
        return new
