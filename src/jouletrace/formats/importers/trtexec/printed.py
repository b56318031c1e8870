"""The table of layers that ``trtexec --dumpProfile`` prints into its log, in the forms of several versions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jouletrace.formats.importers.base import Left
from jouletrace.formats.importers.numbers import plain_number
from jouletrace.formats.importers.stated import Stated
from jouletrace.run import MODEL_UNIT

BEGINS = r"=== Profile \((?P<count>\d{1,15}) iterations ?\) ==="

_BEGINS = re.compile(BEGINS)
_COLUMNS = ("time", "average", "median", "share")
LONGEST = 20_000
"""Longest line, in characters, that can be a layer."""


class PrintedProfile:
    """Lines in the course of reading; those of the table become layers with their times.

    TensorRT 10 prints names last, earlier versions first; versions before 8.4 print no medians.
    """

    def __init__(self, stated: Stated, left: Left) -> None:
        self._stated = stated
        self._left = left
        self._count: int | None = None
        self._row: re.Pattern[str] | None = None

    def take(self, text: str, place: str) -> bool:
        """Read a line, without the log's prefix; returns whether it belongs to the table."""
        if begins := _BEGINS.match(text):
            self._count, self._row = int(begins["count"]), None
            return True
        if self._count is None:
            return False
        if self._row is None:
            if "Time" in text and "Layer" in text:
                self._row = _form(text)
            else:
                self._count = None
            return self._row is not None
        return self._layer(text, place, self._row, self._count)

    def _layer(self, text: str, place: str, row: re.Pattern[str], count: int) -> bool:
        found = row.match(text) if len(text) < LONGEST else None
        if not text or text.startswith("=== "):
            self._count = None
            return not text
        times = {key: plain_number(text) for key, text in found.groupdict().items()} if found else {}
        if found is None or times["time"] is None or times["average"] is None:
            self._left.add("broken_layers", "layers are damaged", place=place)
            return True
        if found["name"] == "Total":
            self._count = None
            self._stated.add(MODEL_UNIT, "time_s", times["average"] / 1e3, count)
            return True
        add_layer(self._stated, found["name"], times, count)
        return True


def add_layer(stated: Stated, name: str, times: Mapping[str, float | None], count: int) -> None:
    """Add a layer with its times in ms and its share in %, as far as known; ``count`` is the number of iterations."""
    unit = stated.unit("layer", name, count=1)
    for key, metric, per in (
        ("average", "time_s", 1e3),
        ("time", "time_total_s", 1e3),
        ("median", "time_median_s", 1e3),
        ("share", "share", 1e2),
    ):
        value = times.get(key)
        stated.add(unit, metric, None if value is None else value / per, count)


def _form(header: str) -> re.Pattern[str]:
    """The pattern of rows under a header: names may end in numbers, so the number of figures matters."""
    columns = [name for name in _COLUMNS if name != "median" or "Median" in header]
    figures = r"\s+".join(rf"(?P<{name}>[\d.]+)" for name in columns)
    if header.startswith("Layer"):
        return re.compile(rf"^(?P<name>\S.*?)\s+{figures}$")
    return re.compile(rf"^{figures}\s+(?P<name>\S.*)$")
