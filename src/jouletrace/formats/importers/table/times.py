"""The times of a table. Their unit is stated or queried, since a wrong one changes all energies by factors of 1000."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import RELATIVE, ImportOptions
from jouletrace.formats.importers.delimited import Delimited
from jouletrace.formats.importers.stamps import Stamps, read_stamps
from jouletrace.formats.importers.table.headings import Times

_DAY_NS = 86_400 * 10**9
"""Rows with a larger distance, and longer spans, must be in another unit."""

_IN_WORDS = {"ms": "milliseconds", "us": "microseconds"}


def read_times(path: Path, table: Delimited, times: Mapping[str, Times], options: ImportOptions) -> dict[str, Stamps]:
    """Read columns of times that share one clock.

    Args:
        path: Path of the file, for errors.
        table: Its rows.
        times: Times by role: "time", or "start" and "end".
        options: Time zone of stamps without one.

    Raises:
        BadInputError: If the unit of numbers that don't count from 1970 isn't stated, or one column counts
            from 1970 and another doesn't.
    """
    cells = {name: [" ".join(row[i] for i in one.places) for row in table.rows] for name, one in times.items()}
    stated = {one.unit for one in times.values()}
    if len(stated) == 1:  # one column may resolve another's ambiguity; row by row, in order of time
        found = read_stamps(
            [cell for row in zip(*cells.values(), strict=True) for cell in row], options.time_zone, *stated
        )
        by_name = {
            name: replace(found, time_ns=found.time_ns[k :: len(cells)], valid=found.valid[k :: len(cells)])
            for k, name in enumerate(cells)
        }
    else:
        by_name = {name: read_stamps(cells[name], options.time_zone, one.unit) for name, one in times.items()}
    _check_unit(path, table.header, times, by_name)
    if len({stamps.clock for stamps in by_name.values()}) > 1:
        names = " and ".join(f"{table.header[one.places[0]]!r}" for one in times.values())
        raise BadInputError(f"{path}: {names} do not count from the same time: are their units right?")
    return by_name


def _check_unit(path: Path, header: Sequence[str], times: Mapping[str, Times], found: Mapping[str, Stamps]) -> None:
    assumed = {name: stamps.assumed_unit for name, stamps in found.items() if stamps.assumed_unit}
    if not assumed:
        return
    named = {name: header[times[name].places[0]] for name in assumed}
    relative = any(found[name].clock == RELATIVE for name in assumed)
    if relative or _too_far_apart(found):
        say = " ".join(f"--map {name}_s={column}" for name, column in named.items())
        columns = " and ".join(repr(column) for column in named.values())
        others = ", ".join(f"{next(iter(named))}_{unit}" for unit in ("ms", "us", "ns"))
        raise BadInputError(f"{path}: the unit of {columns} isn't stated: give {say} (or {others})")
    for name, unit in assumed.items():
        if unit in _IN_WORDS:
            text = f"{named[name]!r} is taken for {_IN_WORDS[unit]} since 1970, by the size of its numbers"
            found[name].notes["time_unit_assumed"] = f"{text}: if that is wrong, give --map {name}_ns={named[name]}"


def _too_far_apart(found: Mapping[str, Stamps]) -> bool:
    """Whether rows would be days apart, or spans last days."""
    edges = list(found.values())
    valid = np.logical_and.reduce([one.valid for one in edges])
    times = [one.time_ns[valid] for one in edges]
    apart = times[1] - times[0] if len(times) > 1 else np.diff(np.sort(times[0]))
    apart = apart[apart > 0]
    return bool(len(apart)) and float(np.median(apart)) > _DAY_NS
