"""Times in logs, read by whole columns: an ambiguous stamp may be resolved by the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import RELATIVE, UNIX

_NS = 1_000_000_000
_DAY_S = 86_400

_CLOCK = r"(?P<clock>\d{1,2}:\d{2}:\d{2})(?:[.,](?P<f>\d{1,9})\d*)?"
_ZONE = r"\s*(?P<z>Z|UTC|GMT|[+-]\d{2}:?\d{2})?"
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]

_DATES = (
    re.compile(rf"(?P<y>\d{{4}})[-/.]?(?P<m>\d{{2}})[-/.]?(?P<d>\d{{2}})[T\s-]+{_CLOCK}{_ZONE}$"),
    re.compile(rf"(?P<a>\d{{1,2}})(?P<sep>[-/.])(?P<b>\d{{1,2}})[-/.](?P<y>\d{{4}})[T,\s-]+{_CLOCK}{_ZONE}$"),
    re.compile(
        rf"(?:[A-Za-z]{{3}},?\s+)?(?P<m>[A-Za-z]{{3}})\s+(?P<d>\d{{1,2}})\s+{_CLOCK}\s+"
        r"(?:[A-Z]{3,4}\s+)?(?P<y>\d{4})(?P<z>)$"
    ),
)
"""The year first; the year last, after day and month in either order; the format of ``date``."""

_TIME_ONLY = re.compile(rf"{_CLOCK}$")
_NUMBER = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d{1,6})?)\s*(?P<unit>ns|us|µs|μs|ms|s|sec|min)?$"
)

_DAY = re.compile(r"(?:19|20|21)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])")

_SINCE_NS, _UNTIL_NS = 946_684_800 * _NS, 4_102_444_800 * _NS
"""Numbers that give a time between the years 2000 and 2100 count from 1970."""

_BY_SIZE = ("s", "ms", "us", "ns")

_FIRST_YEAR, _LAST_YEAR = 1970, 2188
"""Times of a Run end in 2189 (``run.sound``)."""

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
    """

    time_ns: NDArray[np.int64]
    valid: NDArray[np.bool_]
    clock: str
    resolution_s: float
    notes: dict[str, str] = field(default_factory=dict)
    assumed_unit: str = ""


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
    kind = next(filter(None, (_kind(text, unit) for text in plain)), "")
    if kind == "number":
        return _numbers(plain, unit)
    if kind == "time":
        return _times_of_day(plain)
    return _dates(plain, local, named=time_zone is not None)


def evenly(ticks: Sequence[int], interval_s: float, note: str) -> Stamps:
    """The times of rows without any: ``interval_s`` apart, as ``note`` states; a row's tick is its number there."""
    time = np.asarray(ticks, np.int64) * round(interval_s * _NS)
    return Stamps(time, np.ones(len(time), bool), RELATIVE, 0.0, {"interval_assumed": note})


def spread(time_ns: NDArray[np.int64], resolution_s: float) -> NDArray[np.int64]:
    """Rows that share a stamp, spaced evenly over the interval that the stamp represents; same shape.

    Stamps must be in order. A log with ten rows per second and stamps of whole seconds then has ten
    different times per second instead of one.
    """
    if len(time_ns) < 2:
        return time_ns
    starts = np.flatnonzero(np.append(True, np.diff(time_ns) != 0))
    size = np.diff(np.append(starts, len(time_ns)))
    place = np.arange(len(time_ns)) - np.repeat(starts, size)
    return np.asarray(time_ns + (place * round(resolution_s * _NS)) // np.repeat(size, size), np.int64)


def _kind(text: str, unit: str) -> str:
    if _NUMBER.match(text):
        return "number" if unit or not _DAY.fullmatch(text) else ""  # the day of a log without times of day
    if _TIME_ONLY.match(text):
        return "time"
    return "date" if any(form.match(text) for form in _DATES) else ""


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
        resolutions_s.append(factor / _NS / 10**digits)
    nonzero = np.abs(time[valid & (time != 0)])
    unix = bool(len(nonzero)) and _SINCE_NS <= float(np.median(nonzero)) < _UNTIL_NS
    if unix:
        valid &= time != 0  # some tools write 0 for a missing time
    notes = {}
    if assumed and not unix:
        notes["time_unit_assumed"] = "the unit of the times isn't stated: seconds were assumed"
    resolution_s = min(resolutions_s) if valid.any() else 1.0
    return Stamps(time, valid, UNIX if unix else RELATIVE, resolution_s, notes, assumed)


def _factor(unit: str) -> int | None:
    """Nanoseconds in a unit of time; None for other units and for none."""
    known = units.unit(unit)
    return round(known.factor * _NS) if known is not None and known.si == "s" else None


def _unit_by_size(numbers: Sequence[str]) -> str:
    """The unit in which numbers are times of this century; "s" without one."""
    sizes = [size for size in (abs(float(_decimal(text))) for text in numbers) if size]
    typical = float(np.median(sizes)) if sizes else 0.0
    return next((name for name in _BY_SIZE if _SINCE_NS <= typical * (_factor(name) or 1) < _UNTIL_NS), "s")


def _decimal(text: str) -> Decimal:
    return Decimal(text.replace(",", "."))


def _times_of_day(texts: Sequence[str]) -> Stamps:
    time, valid = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    days, last, digits = 0, 0, 0
    for i, text in enumerate(texts):
        found = _TIME_ONLY.match(text)
        since = _moment("1970-01-01", found, UTC) if found else None
        if found is None or since is None:
            continue
        days += since < last - _DAY_S * _NS // 2
        last, digits = since, max(digits, len(found["f"] or ""))
        time[i], valid[i] = days * _DAY_S * _NS + since, True
    notes = {"no_date": "the stamps have no date: they are read as seconds since midnight of an unknown day"}
    return Stamps(time, valid, RELATIVE, 1 / 10**digits, notes)


def _dates(texts: Sequence[str], local: tzinfo, *, named: bool) -> Stamps:
    matches = [next(filter(None, (form.match(text) for form in _DATES)), None) for text in texts]
    notes: dict[str, str] = {}
    month_first = _month_first([m for m in matches if m and "sep" in m.re.groupindex], notes)
    time, valid = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    digits, assumed = 0, False
    for i, found in enumerate(matches):
        at = _moment(_day(found, month_first), found, local) if found else None
        if found is None or at is None or not _FIRST_YEAR <= int(found["y"]) <= _LAST_YEAR:
            continue
        time[i], valid[i] = at, True
        digits = max(digits, len(found["f"] or ""))
        assumed |= not found["z"]
    if assumed and not named:
        notes["time_zone_assumed"] = "the stamps have no time zone: UTC was assumed; state the zone with --time-zone"
    return Stamps(time, valid, UNIX, 1 / 10**digits, notes)


def _month_first(matches: Sequence[re.Match[str]], notes: dict[str, str]) -> bool:
    """Whether 04/12/2022 is in April, by the numbers above twelve in the same column."""
    if not matches or any(int(m["a"]) > 12 for m in matches):
        return not matches
    if any(int(m["b"]) > 12 for m in matches):
        return True
    first = matches[0]["sep"] == "/"
    if any(m["a"] != m["b"] for m in matches):
        order = "month first" if first else "day first"
        example = matches[0].group()[:10]
        notes["date_order_assumed"] = f"dates such as {example} are ambiguous: {order} was assumed"
    return first


def _day(found: re.Match[str], month_first: bool) -> str:
    """The day of a date in ISO form."""
    parts = found.groupdict()
    if "sep" in parts:
        month, day = (parts["a"], parts["b"]) if month_first else (parts["b"], parts["a"])
    else:
        month, day = parts["m"], parts["d"]
    if month.lower() in _MONTHS:
        month = str(_MONTHS.index(month.lower()) + 1)
    return f"{parts['y']}-{month.zfill(2)}-{day.zfill(2)}"


def _moment(day: str, found: re.Match[str], local: tzinfo) -> int | None:
    """Nanoseconds since the epoch of a time of day; None for an impossible day or time."""
    stated = found.groupdict().get("z") or ""
    try:
        moment = datetime.fromisoformat(f"{day}T{found['clock'].zfill(8)}{'Z' if stated.isalpha() else stated}")
        moment = moment if moment.tzinfo else moment.replace(tzinfo=local)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return (since.days * _DAY_S + since.seconds) * _NS + int((found["f"] or "0").ljust(9, "0"))
