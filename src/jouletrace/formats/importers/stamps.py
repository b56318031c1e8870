"""Times in logs, read by whole columns: an ambiguous stamp may be resolved by the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from decimal import Decimal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from jouletrace.arrays import Ints, Mask
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import RELATIVE, UNIX
from jouletrace.formats.importers.dates import (
    DAY_S,
    NS,
    Dated,
    is_date,
    is_time_of_day,
    read_dates,
    read_times_of_day,
)

_NUMBER = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d{1,6})?)\s*(?P<unit>ns|us|µs|μs|ms|s|sec|min)?$"
)

_DAY = re.compile(r"(?:19|20|21)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])")

_SINCE_NS, _UNTIL_NS = 946_684_800 * NS, 4_102_444_800 * NS
"""Numbers that give a time between the years 2000 and 2100 count from 1970."""

_BY_SIZE = ("s", "ms", "us", "ns")

FARTHEST_NS = 366 * DAY_S * NS
"""Neighbouring readings of one record aren't farther apart than a year."""

_FEW, _FEW_OF_ALL = 2, 0.1
"""More times than so many, and than such a share, that are years away are no strays, but another record."""

_SHORTEST, _LONGEST = 10, 40
"""Characters of a time since 1970 on a line of its own."""

_MOST_DIGITS = 9
"""Decimals beyond these have no meaning for a time."""


@dataclass(frozen=True)
class Stamps:
    """The times of a column.

    Attributes:
        time_ns: Nanoseconds, shape (n,); 0 where invalid.
        valid: Which cells hold a time, shape (n,).
        clock: ``UNIX``, or ``RELATIVE`` where the origin of the times isn't stated.
        resolution_s: Resolution of the printed stamps.
        notes: Assumptions: warning code -> text.
        assumed_unit: Unit of numbers where none is stated: by their size for those since the epoch,
            "s" for others; "" where it is stated, and for dates.
        strays: Number of times that are invalid since they are years from the others.
    """

    time_ns: Ints
    valid: Mask
    clock: str
    resolution_s: float
    notes: dict[str, str] = field(default_factory=dict)
    assumed_unit: str = ""
    strays: int = 0


def zone_of(name: str | None) -> tzinfo:
    """The zone of local times by its IANA name; UTC if None.

    Raises:
        BadInputError: If it is unknown.
    """
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadInputError(f"unknown time zone {name!r}: give an IANA name such as Europe/Berlin") from None


def read_stamps(texts: Sequence[str], time_zone: str | None = None, unit: str = "") -> Stamps:
    """Read a column of times, in the order in which they were written: dates, times of day, or numbers.

    Times without a zone are in ``time_zone`` (IANA); UTC if None, which is then noted. Numbers are in ``unit``
    ("ms"), if it is given; cells may state their own. Numbers that give a time of this century count from the Unix
    epoch, others from another origin. Where their unit isn't stated, it follows from their size in the first case
    and is seconds in the second. A fall by hours between times of day means that midnight has passed.

    Raises:
        BadInputError: If the zone is unknown.
    """
    local = zone_of(time_zone)
    plain = [" ".join(text.split()).strip("\"'") for text in texts]
    kinds = Counter(filter(None, (_kind(text, unit) for text in plain)))
    kind = max(kinds, key=lambda name: kinds[name], default="")
    if kind == "number":
        return _without_strays(_numbers(plain, unit))
    if kind == "time":
        return _of(read_times_of_day(plain), RELATIVE)
    return _without_strays(_of(read_dates(plain, local, named=time_zone is not None), UNIX))


def _of(dated: Dated, clock: str) -> Stamps:
    return Stamps(dated.time_ns, dated.valid, clock, dated.resolution_s, dated.notes)


def _without_strays(stamps: Stamps) -> Stamps:
    """The same without times outside of the century that half of them are in, and without few that are years away."""
    time, good = stamps.time_ns, stamps.valid.copy()
    within = good & (time >= _SINCE_NS) & (time < _UNTIL_NS)
    if stamps.clock == UNIX and 2 * within.sum() >= good.sum() > 0:
        good = within
    rows = np.flatnonzero(good)
    order = rows[np.argsort(time[rows], kind="stable")]
    parts = np.split(order, np.flatnonzero(np.diff(time[order].astype(np.float64)) > FARTHEST_NS) + 1)
    most = max(parts, key=len)
    few = len(order) - len(most)
    if 0 < few < len(most) and few <= max(_FEW, _FEW_OF_ALL * len(order)):
        good[:] = False
        good[most] = True
    strays = int(stamps.valid.sum() - good.sum())
    return replace(stamps, time_ns=np.where(good, time, 0), valid=good, strays=strays) if strays else stamps


def time_line(line: str) -> str:
    """The time in a line that holds nothing else, as ``date`` prints it between readings; "" of any other line."""
    text = " ".join(line.strip("#=-* \t").split())
    if is_date(text) or is_time_of_day(text):
        return text
    stamps = read_stamps([text], "UTC") if _SHORTEST <= len(text) <= _LONGEST and text[0].isdigit() else None
    return text if stamps is not None and stamps.valid[0] and stamps.clock == UNIX else ""


def evenly(ticks: Sequence[int], interval_s: float, note: str) -> Stamps:
    """The times of rows without any: ``interval_s`` apart, as ``note`` states; a row's tick is its number there."""
    time = np.asarray(ticks, np.int64) * round(interval_s * NS)
    return Stamps(time, np.ones(len(time), bool), RELATIVE, 0.0, {"interval_assumed": note})


def spread(time_ns: Ints, resolution_s: float) -> Ints:
    """Rows that share a stamp, spaced evenly over the interval that the stamp represents; same shape.

    Stamps must be in order. A log with ten rows per second and stamps of whole seconds then has ten
    different times per second instead of one.
    """
    if len(time_ns) < 2:
        return time_ns
    starts = np.flatnonzero(np.append(True, np.diff(time_ns) != 0))
    size = np.diff(np.append(starts, len(time_ns)))
    place = np.arange(len(time_ns)) - np.repeat(starts, size)
    return np.asarray(time_ns + (place * round(resolution_s * NS)) // np.repeat(size, size), np.int64)


def _kind(text: str, unit: str) -> str:
    if _NUMBER.match(text):
        return "number" if unit or not _DAY.fullmatch(text) else ""  # the day of a log without times of day
    if is_time_of_day(text):
        return "time"
    return "date" if is_date(text) else ""


def _numbers(texts: Sequence[str], unit: str) -> Stamps:
    found = [_NUMBER.match(text) for text in texts]
    assumed = ""
    if not unit and not any(match and match["unit"] for match in found):
        unit = assumed = _unit_by_size([match["number"] for match in found if match])
    time, valid = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    resolutions_s = []
    for i, match in enumerate(found):
        factor = _factor(match["unit"] or unit) if match else None
        value = _decimal(match["number"]) if match else Decimal(0)
        if match is None or factor is None or value.adjusted() > 30 or abs(value * factor) >= 2**62:
            continue
        time[i], valid[i] = int(value * factor), True
        digits = min(max(-int(value.as_tuple().exponent), 0), _MOST_DIGITS)
        resolutions_s.append(factor / NS / 10**digits)
    nonzero = np.abs(time[valid & (time != 0)])
    unix = bool(len(nonzero)) and _SINCE_NS <= _typical(nonzero) < _UNTIL_NS
    if unix:
        valid &= time != 0  # some tools write 0 for a missing time
    notes = {}
    if assumed and not unix:
        notes["time_unit_assumed"] = "the unit of the times isn't stated: seconds were assumed"
    resolution_s = min(resolutions_s) if valid.any() else 1.0
    return Stamps(time, valid, UNIX if unix else RELATIVE, resolution_s, notes, assumed)


def _typical(sizes: Sequence[float] | Ints) -> float:
    """The median; of an even number the upper one, since a mean of two may be neither since 1970 nor since a start."""
    return float(np.sort(np.asarray(sizes, np.float64))[len(sizes) // 2])


def _factor(unit: str) -> int | None:
    """Nanoseconds in a unit of time; None for other units and for none."""
    known = units.unit(unit)
    return round(known.factor * NS) if known is not None and known.si == "s" else None


def _unit_by_size(numbers: Sequence[str]) -> str:
    """The unit in which numbers are times of this century; "s" without one."""
    sizes = [size for size in (abs(float(_decimal(text))) for text in numbers) if size]
    typical = _typical(sizes) if sizes else 0.0
    return next((name for name in _BY_SIZE if _SINCE_NS <= typical * (_factor(name) or 1) < _UNTIL_NS), "s")


def _decimal(text: str) -> Decimal:
    return Decimal(text.replace(",", "."))
