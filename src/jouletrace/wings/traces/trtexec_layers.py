"""Times of layers by ``trtexec``: the JSON of ``--exportProfile``, and the table of ``--dumpProfile`` in a log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from jouletrace.formats.importers.base import Left
from jouletrace.formats.importers.stated import Stated
from jouletrace.formats.importers.units import plain_number
from jouletrace.run import MODEL_UNIT

_METRICS = {
    "averageMs": ("time_s", 1e3),
    "timeMs": ("time_total_s", 1e3),
    "medianMs": ("time_median_s", 1e3),
    "percentage": ("share", 1e2),
}
"""Metric of each figure of a layer, and the figure's units in an SI unit."""

_NAME = re.compile(r'\{\s*"name"\s*:\s*"(.*?)"\s*,\s*(?="timeMs"\s*:)', re.DOTALL)
_NEXT = re.compile(r'\}(?:\s*,)?\s*(?=\{\s*"\w+"\s*:)')

_TABLE = re.compile(r"=== Profile \((\d{1,15}) iterations ?\) ===")
"""The line above a table of layers, which states how often the network ran."""

_COLUMNS = (
    ("medianMs", re.compile(r"Median(?: Time)? ?\(ms\)")),
    ("averageMs", re.compile(r"Avg\.(?: Time)? ?\(ms\)")),
    ("timeMs", re.compile(r"Time ?\(ms\)")),
    ("percentage", re.compile(r"Time ?(?:\(%\)|%)")),
    ("name", re.compile(r"Layer")),
)
"""Headings of the table in all versions; each is taken out of the line before the next is looked for."""

_WHOLE, _OTHER = "Total", ("===", "&&&&")
_ROUNDING_MS = 0.006
"""Layers' total times are printed to 0.01 ms."""


def is_profile(head: str) -> bool:
    """True if the beginning of a file is that of a profile."""
    listed = head.lstrip("\ufeff \t\r\n").startswith("[")
    return listed and '"timeMs"' in head and ('"averageMs"' in head or '"percentage"' in head)


def read_profile(text: str, stated: Stated, left: Left) -> int:
    """Add the layers of a profile; returns their number.

    Old versions don't escape names: where the list isn't JSON its entries are read one by one.
    """
    entries: Iterable[tuple[Callable[[], str], Any]]
    try:
        whole = json.loads(text.lstrip("\ufeff"), strict=False)
        listed = whole if isinstance(whole, list) else [whole]
        entries = ((partial("entry {}".format, k), entry) for k, entry in enumerate(listed, start=1))
    except (ValueError, RecursionError):
        entries = _entries(text)
    layers: list[Mapping[str, Any]] = []
    count = 0
    for place, entry in entries:
        times = [entry.get("timeMs"), entry.get("name")] if isinstance(entry, dict) else []
        if isinstance(entry, dict) and set(entry) == {"count"} and _figure(entry["count"]) is not None:
            count = int(entry["count"])
        elif not times or not isinstance(times[1], str) or _figure(times[0]) is None:
            left.add("broken_layers", "layers are damaged", place=place)
        else:
            layers.append(entry)
    _add(stated, layers, count)
    return len(layers)


def _figure(value: object) -> float | None:
    """A figure of a layer; None for anything else."""
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        return None
    figure = plain_number(str(value))
    return figure if figure is not None and figure >= 0 else None


def _entries(text: str) -> Iterable[tuple[Callable[[], str], Any]]:
    """Place and content of each entry of a list that isn't JSON; None for one that can't be read."""
    decode = json.JSONDecoder(strict=False).raw_decode
    at = text.find("{")
    while at >= 0:
        found = _NEXT.search(text, at)
        until = found.end() if found else len(text)
        own = text[at:until]
        if name := _NAME.match(own):
            own = f'{{"name": {json.dumps(_unescaped(name[1]))}, {own[name.end() :]}'
        try:
            entry, end = decode(own)
            rest = own[end:].strip("[], \t\r\n")
        except (ValueError, RecursionError):
            entry, rest = None, ""
        place = partial(_line, text, at)
        yield place, entry
        if rest:
            yield place, None
        at = until if found else -1


def _line(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}"


def _unescaped(name: str) -> str:
    try:
        return str(json.loads(f'"{name}"', strict=False))
    except ValueError:
        return name


def _add(stated: Stated, layers: Sequence[Mapping[str, Any]], count: int, *, whole: bool = True) -> None:
    """Add layers with their times, each a mean over ``count`` runs, and with ``whole`` the sum of these means."""
    total = 0.0
    for layer in layers:
        figures = {key: _figure(layer.get(key)) for key in _METRICS}
        time = figures["timeMs"]
        if figures["averageMs"] is None and count and time is not None:
            figures["averageMs"] = time / count
        unit = stated.unit("layer", str(layer["name"]), count=1)
        for key, (metric, per) in _METRICS.items():
            value = figures[key]
            stated.add(unit, metric, None if value is None else value / per, count)
        total += figures["averageMs"] or 0.0
    if count and layers and whole:
        stated.add(MODEL_UNIT, "time_s", total / 1e3, count)


def take_layers(text: str, tables: list[LayerTable]) -> bool:
    """Take a line of a log, without its stamp, into its last table or a new one; False if it is of none."""
    if began := _TABLE.search(text):
        tables.append(LayerTable(int(began[1])))
    return began is not None or (bool(tables) and tables[-1].take(text))


class LayerTable:
    """A table of ``--dumpProfile`` in a log, over ``count`` runs."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._columns: list[str] = []
        self._layers: list[dict[str, str]] = []
        self._ended = False

    def take(self, text: str) -> bool:
        """As ``take_layers``, of a line below the one above the table."""
        if self._ended or not text:
            return False
        if not self._columns:
            self._columns = _columns(text)
            self._ended = not {"name", "timeMs"} <= set(self._columns)
            return not self._ended
        cells = self._row(text)
        self._ended = text.startswith(_OTHER) if cells is None else cells["name"] == _WHOLE
        if cells is not None:
            self._layers.append(cells)
        return cells is not None

    def _row(self, text: str) -> dict[str, str] | None:
        """The cells of a row: a name, which may hold spaces, and numbers before or after it; None for another line."""
        numbers = len(self._columns) - 1
        last = self._columns[-1] == "name"
        cells = text.split(None, numbers) if last else text.rsplit(None, numbers)
        if len(cells) != len(self._columns):
            return None
        found = dict(zip(self._columns, (cell.strip() for cell in cells), strict=True))
        figures = [value for key, value in found.items() if key != "name"]
        return found if all(plain_number(value) is not None for value in figures) else None

    def add(self, stated: Stated, left: Left) -> None:
        """Add the layers; those that are missing from the table's own total are counted."""
        if not self._columns or not self._layers:
            left.add("broken_layers", "tables of layers (--dumpProfile) can't be read")
            return
        layers = [row for row in self._layers if row["name"] != _WHOLE]
        total = [float(row["timeMs"]) for row in self._layers if row["name"] == _WHOLE]
        known = sum(float(layer["timeMs"]) for layer in layers)
        whole = bool(total) and abs(total[0] - known) < _ROUNDING_MS * (len(layers) + 1)
        _add(stated, layers, self._count, whole=whole)
        if not whole:
            left.add("layers_missing", "tables of layers (--dumpProfile) lack rows: they don't add up to their total")


def _columns(header: str) -> list[str]:
    """Keys of the columns, by the headings of a table's first line, in their order."""
    found: list[tuple[int, str]] = []
    for key, heading in _COLUMNS:
        if there := heading.search(header):
            found.append((there.start(), key))
            header = header[: there.start()] + " " * len(there[0]) + header[there.end() :]
    return [key for _, key in sorted(found)]
