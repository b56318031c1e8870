"""Requests that load generators recorded, as a load of a Run: common to their importers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import Left, new_run
from jouletrace.run import Run, tables
from jouletrace.run.forms import LoadFacts, Serving
from jouletrace.run.names import cut
from jouletrace.run.sound import sound_rows
from jouletrace.wings.serving.analysis.streams import add_streams, stream_of

_MOST, _LONGEST_NS = 1 << 31, 1e15

Row = dict[str, Any]
"""A row of ``requests``, without the level; ``after_ns`` is when each of its chunks arrived, after it was sent."""


def load_run(path: Path, form: str, clock: str, levels: Sequence[tuple[LoadFacts, list[Row]]], left: Left) -> Run:
    """A Run of loads with their requests.

    Raises:
        BadInputError: If there is no sound request.
    """
    run = new_run(path, form, clock)
    rows = [{**row, "level": k} for k, (_, some) in enumerate(levels) for row in some]
    try:
        table = tables.from_rows(rows, "requests")
    except (ValueError, TypeError, OverflowError) as error:
        raise BadInputError(f"{path}: a request holds no number where one belongs ({error})") from None
    run.requests = sound_rows(table, "requests")
    left.add("unsound_requests", "requests end before they begin", len(table) - len(run.requests))
    if not len(run.requests):
        raise BadInputError(f"{path}: no request with times{left.first()}")
    run.workload["serving"] = Serving(levels=[load for load, _ in levels])
    if len(table) == len(run.requests):  # the steps that some answers show aren't those of all
        answered = [row for row in rows if row["status"] == "ok"]
        streams = [one for row in answered if (one := stream_of(row, row.get("after_ns", ()))) is not None]
        if len(streams) == len(answered):
            add_streams(run, streams)
    run.created_ns = int(run.requests["sent_ns"].to_numpy().min())
    left.warn(run)
    return run


def arrivals(first_ns: float, intervals: Any, unit_ns: float) -> Floats:
    """Times of chunks, shape (n + 1,), ns, from that of the first and n intervals; none if one is no time.

    Args:
        first_ns: When the first one arrived.
        intervals: What a file has as the list of intervals.
        unit_ns: Their unit.
    """
    try:
        with np.errstate(over="ignore"):  # what isn't finite is no time
            found = np.cumsum(np.append(first_ns, unit_ns * np.array([*(intervals or ())], np.float64)))
    except (TypeError, ValueError, OverflowError):
        return np.empty(0)
    in_order = np.isfinite(found).all() and np.all(np.diff(found) >= 0)
    return found if in_order and 0 <= found[-1] < _LONGEST_NS else np.empty(0)


def whole(value: object) -> int | None:
    """A count as an integer; None for anything else."""
    number = amount(value)
    return None if number is None else round(number)


def amount(value: object) -> float | None:
    """A non-negative number below 1e15, in the value's own unit; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e15 else None  # compared first: no float holds a longer integer


def number_of(value: object) -> int | None:
    """How many requests or GPUs there are, an integer from 1 on; None for anything else, numbers as text included."""
    return value if type(value) is int and 1 <= value <= _MOST else None


def label(value: object) -> str:
    """A text as a part of a name, cut; "" for anything else."""
    return cut(value) if isinstance(value, str) else ""
