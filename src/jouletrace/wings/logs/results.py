"""Results that a tool states of whole runs: JSON, rows of CSV, or lines of text, by what ``tools.toml`` knows of it.

A tool's data has these keys in ``printed``:

- ``figures``: pattern of a key, those of objects within objects joined by ".", -> metric, and the unit of its number if
  that isn't the metric's. Numbers of several keys of a metric, as of several GPUs, are summed;
- ``name``: the keys that name one of several results;
- ``lines``: pattern of a line of text, with the key and the value in the groups ``k`` and ``v``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, Left, decode_text, read_head, read_text
from jouletrace.formats.importers.delimited import read_delimited
from jouletrace.formats.importers.stated import Stated, is_unread
from jouletrace.formats.importers.tools import KnownTool, tool_of
from jouletrace.formats.importers.units import NO_UNIT, decimal_sign, plain_number, unit
from jouletrace.formats.importers.units import number as printed_number
from jouletrace.run import MODEL_UNIT, Run

_DEEPEST = 5


def sniff(head: bytes) -> bool:
    """True if the beginning of a file is that of a tool's results."""
    return _tool(decode_text(head)) is not None


def read(path: Path, options: ImportOptions) -> Run:
    """Read the figures of each result: of a single one they are those of the whole.

    Raises:
        BadInputError: If no tool is known, none of its figures is there, or a time or rate is negative.
    """
    tool = _tool(decode_text(read_head(path)))
    if tool is None:
        raise BadInputError(f"{path}: not recognised as results of a tool")
    left = Left(path)
    results = list(_results(read_text(path, left), tool, left))
    stated = Stated(tool.name)
    for number, result in enumerate(results, start=1):
        figures, doubts = dict[str, float](), dict[str, str]()
        decimal = decimal_sign(value for value in result.values() if isinstance(value, str))
        for pattern, target in tool.printed["figures"].items():
            metric, _, printed = target.partition(" ")
            keys = [key for key in result if re.fullmatch(pattern, key)]
            values = [_number(result[key], decimal) for key in keys]
            read = [value for value in values if value is not None]
            left.add("not_a_number", "figures aren't numbers", len(values) - len(read), f"result {number}, {metric}")
            own = unit(str(result.get(f"{keys[0].partition('.')[0]}.unit", ""))) if keys else None
            of = own if own not in (None, NO_UNIT) else unit(printed)
            odd = [key for key, value in zip(keys, values, strict=True) if is_unread(metric, value) or (value or 0) < 0]
            if odd and not metric.startswith(("energy", "power")):
                raise BadInputError(f"{path}: result {number} states a negative {odd[0]!r}")
            if odd and any(read):
                doubts[metric] = "part_not_measured"
                left.add(doubts[metric], f"parts of {metric} are 0 or less: no total is known", len(odd), odd[0])
            if read and len(read) == len(values) and metric not in figures:
                figures[metric] = sum(read) * (of or NO_UNIT).factor
        name = " ".join(str(result[key]) for key in tool.printed.get("name", ()) if key in result)
        whose = MODEL_UNIT if len(results) == 1 else stated.unit("range", name or f"result {number}", count=1)
        for metric, value in figures.items():
            stated.add(whose, metric, value, 1, doubts.get(metric, ""))
    if not len(stated):
        raise BadInputError(f"{path}: {tool} without a single figure{left.first()}")
    run = stated.run(path, "results", options.device, {}, tool.name)
    left.warn(run)
    return run


def _tool(text: str) -> KnownTool | None:
    tool = tool_of(text)
    return tool if "figures" in tool.printed else None


def _results(text: str, tool: KnownTool, left: Left) -> Iterator[dict[str, Any]]:
    """Each result by its keys: an object of JSON, alone, in a list, on a line; a row of CSV; or the lines of a text.

    A text holds a result from each mark of its tool on.
    """
    if "lines" in tool.printed:
        starts = [mark.start() for mark in re.finditer(tool.mark, text, re.M)]
        for span in pairwise([*starts, len(text)]):
            lines = list(re.compile(tool.printed["lines"], re.M).finditer(text, *span))
            yield {line["k"]: line["v"] for line in reversed(lines)}
    elif text.lstrip()[:1] not in ("{", "["):
        table = read_delimited(text, left)
        yield from (dict(zip(table.header, row, strict=True)) for row in table.rows)
    else:
        try:
            whole = json.loads(text)
            yield from (_flat(one) for one in (whole if isinstance(whole, list) else [whole]))
        except (ValueError, RecursionError):
            for number, line in enumerate(text.split("\n"), start=1):
                try:
                    yield from [_flat(json.loads(line))] if line.strip() else []
                except (ValueError, RecursionError):
                    left.add("broken_rows", "lines are no JSON", place=f"line {number}")


def _flat(value: object, depth: int = 0) -> dict[str, Any]:
    """The values of an object of JSON, and of objects in it, by their keys joined by "."."""
    flat: dict[str, Any] = {}
    for key, own in value.items() if isinstance(value, dict) and depth < _DEEPEST else ():
        flat |= (
            {f"{key}.{name}": one for name, one in _flat(own, depth + 1).items()}
            if isinstance(own, dict)
            else {key: own}
        )
    return flat


def _number(value: object, decimal: str) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = printed_number(value, decimal) if isinstance(value, str) else plain_number(str(value))
    except ValueError:
        return None
    return found if found is None or math.isfinite(found) else None
