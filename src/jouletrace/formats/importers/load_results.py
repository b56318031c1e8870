"""Requests that load generators recorded, as a load of a Run: common to their importers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import Left, new_run
from jouletrace.run import Run, tables
from jouletrace.run.forms import Load, Serving
from jouletrace.run.names import cut
from jouletrace.run.sound import sound_rows

_MOST = 1 << 31

Row = dict[str, Any]
"""A row of ``requests``, without the level."""


def load_run(path: Path, form: str, clock: str, levels: Sequence[tuple[Load, list[Row]]], left: Left) -> Run:
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
    run.created_ns = int(run.requests["sent_ns"].to_numpy().min())
    left.warn(run)
    return run


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
