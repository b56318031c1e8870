"""Times of layers as exported by ``trtexec --exportProfile``."""

from __future__ import annotations

import json
import re
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, Left, decode_text, read_text
from jouletrace.formats.importers.numbers import plain_number
from jouletrace.formats.importers.stated import Stated
from jouletrace.run import MODEL_UNIT, Run

_PROFILE = re.compile(
    r'\{\s*"name"\s*:\s*"(?P<name>.*)"\s*,\s*"timeMs"\s*:\s*(?P<time>[^,}\s]+)\s*'
    r'(?:,\s*"averageMs"\s*:\s*(?P<average>[^,}\s]+)\s*)?(?:,\s*"medianMs"\s*:\s*(?P<median>[^,}\s]+)\s*)?'
    r'(?:,\s*"percentage"\s*:\s*(?P<share>[^,}\s]+)\s*)?\}'
)
_TIMES = (
    ("average", "time_s", 1e3),
    ("time", "time_total_s", 1e3),
    ("median", "time_median_s", 1e3),
    ("share", "share", 1e2),
)
"""Group of ``_PROFILE``, metric, and its units in an SI unit."""

LONGEST = 20_000
"""Longest line, in characters, that can be a layer."""

_COUNT = re.compile(r'\{\s*"count"\s*:\s*(\d{1,15})\s*\}')


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of such a file."""
    text = decode_text(head)
    return text.lstrip("\ufeff \t\r\n").startswith("[") and '"timeMs"' in text and '"averageMs"' in text


def read(path: Path, options: ImportOptions) -> Run:
    """Read a profile: every layer becomes a unit, its times become figures.

    Raises:
        BadInputError: If it holds no layer.
    """
    left = Left(path)
    text = read_text(path, left)
    stated = Stated("trtexec")
    if not _profile(text, stated, left):
        raise BadInputError(f"{path}: not one layer in it can be read{left.first()}")
    run = stated.run(path, "trtexec", options.device, {}, "profile")
    left.warn(run)
    return run


def _profile(text: str, stated: Stated, left: Left) -> int:
    """Times per layer, read by lines: layer names are not escaped, so that a JSON parser may fail on them."""
    counted = _COUNT.search(text)
    count = int(counted[1]) if counted else 0
    found, total = 0, 0.0
    for line, row in enumerate(text.split("\n"), start=1):
        if '"name"' not in row:
            if '"count"' not in row and row.strip("[], \t\r\ufeff"):
                left.add("broken_layers", "layers are damaged", place=f"line {line}")
            continue
        layer = _PROFILE.search(row) if len(row) < LONGEST else None
        times = {key: plain_number(cell) if cell else None for key, cell in layer.groupdict().items()} if layer else {}
        if layer is None or times["time"] is None:
            left.add("broken_layers", "layers are damaged", place=f"line {line}")
            continue
        average = times["average"]
        if average is None and count:
            average = times["average"] = times["time"] / count
        unit = stated.unit("layer", _unescaped(layer["name"]), count=1)
        for key, metric, per in _TIMES:
            value = times[key]
            stated.add(unit, metric, None if value is None else value / per, count)
        total += average or 0.0
        found += 1
    if found and count:
        stated.add(MODEL_UNIT, "time_s", total / 1e3, count)
    return found


def _unescaped(name: str) -> str:
    try:
        return str(json.loads(f'"{name}"', strict=False))
    except ValueError:
        return name
