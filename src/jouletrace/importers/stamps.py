"""Times as logs write them, a whole column at a time: what one stamp leaves open, the others may settle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError
from jouletrace.importers.base import RELATIVE, UNIX

_NS = 1_000_000_000
_DAY_S = 86_400

_CLOCK = r"(?P<H>\d{1,2}):(?P<M>\d{2}):(?P<S>\d{2})(?:[.,](?P<f>\d{1,9})\d*)?"
_ZONE = r"\s*(?P<z>Z|UTC|GMT|[+-]\d{2}:?\d{2})?"
_MONTHS = {"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6} | {
    "jul": 7,
    "aug": 8,
    "sep": 9,
    "oct": 10,
    "nov": 11,
    "dec": 12,
}

_YEAR_FIRST = re.compile(rf"(?P<y>\d{{4}})[-/.]?(?P<a>\d{{2}})[-/.]?(?P<b>\d{{2}})[T\s-]+{_CLOCK}{_ZONE}$")
_YEAR_LAST = re.compile(rf"(?P<a>\d{{1,2}})(?P<sep>[-/.])(?P<b>\d{{1,2}})[-/.](?P<y>\d{{4}})[T,\s-]+{_CLOCK}{_ZONE}$")
_NAMED = re.compile(
    rf"(?:[A-Za-z]{{3}},?\s+)?(?P<m>[A-Za-z]{{3}})\s+(?P<b>\d{{1,2}})\s+{_CLOCK}\s+(?:[A-Z]{{3,4}}\s+)?(?P<y>\d{{4}})$"
)
_TIME_ONLY = re.compile(rf"{_CLOCK}$")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?$")

_EPOCH = ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000), (5e8, _NS))
"""From which size a number is ns, µs, ms or s since the epoch, and how many ns one of it is."""

_FIRST_YEAR, _LAST_YEAR = 1970, 2200
"""Of dates; 64 bits of nanoseconds reach to 2262."""

_RELATIVE_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": _NS, "": _NS}


@dataclass(frozen=True)
class Stamps:
    """The times of a column.

    Attributes:
        time_ns: Nanoseconds, shape (n,); 0 where invalid.
        valid: Which cells hold a time, shape (n,).
        clock: ``UNIX``, or ``RELATIVE`` where nothing says when time 0 was.
        resolution_s: Of the printed stamps.
        notes: What had to be assumed: warning code -> text.
    """

    time_ns: NDArray[np.int64]
    valid: NDArray[np.bool_]
    clock: str
    resolution_s: float
    notes: dict[str, str] = field(default_factory=dict)


def zone(name: str | None) -> tzinfo:
    """A time zone by its IANA name; UTC if there is none.

    Raises:
        BadInputError: If there is no such zone.
    """
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadInputError(f"unknown time zone {name!r}: give an IANA name such as Europe/Berlin") from None


def read_stamps(texts: Sequence[str], time_zone: str | None = None, unit: str = "") -> Stamps:
    """Read a column of times: dates with or without zone, times of day, or numbers.

    Numbers as large as today's time since the Unix epoch are that, in s, ms, µs or ns by their size;
    smaller ones count from some start. Times of day that fall back by hours have passed midnight.

    Args:
        texts: The cells, in the order in which they were written.
        time_zone: IANA zone of times without one; UTC if None, which is then noted.
        unit: Unit of numbers that count from some start ("ms"); seconds if empty.

    Raises:
        BadInputError: If there is no such zone.
    """
    local = zone(time_zone)
    plain = [" ".join(text.split()).strip("\"'") for text in texts]
    sample = next((text for text in plain if _kind(text)), "")
    kind = _kind(sample)
    if kind == "number":
        return _numbers(plain, unit)
    if kind == "time":
        return _times_of_day(plain)
    return _dates(plain, local, named=time_zone is not None)


def spread(time_ns: NDArray[np.int64], resolution_s: float) -> NDArray[np.int64]:
    """Rows that share a stamp, put evenly over the stretch that the stamp stands for; same shape.

    Stamps must come in order. A log that writes ten rows a second with stamps of whole seconds
    has, so, ten times and not one.
    """
    if len(time_ns) < 2:
        return time_ns
    starts = np.flatnonzero(np.append(True, np.diff(time_ns) != 0))
    size = np.diff(np.append(starts, len(time_ns)))
    place = np.arange(len(time_ns)) - np.repeat(starts, size)
    return np.asarray(time_ns + (place * round(resolution_s * _NS)) // np.repeat(size, size), np.int64)


def _kind(text: str) -> str:
    if _NUMBER.match(text):
        return "number" if not re.fullmatch(r"\d{8}", text) else ""
    if _TIME_ONLY.match(text):
        return "time"
    return "date" if any(form.match(text) for form in (_YEAR_FIRST, _YEAR_LAST, _NAMED)) else ""


def _numbers(texts: Sequence[str], unit: str) -> Stamps:
    valid = np.array([bool(_NUMBER.match(text)) for text in texts], bool)
    sizes = [abs(float(text.replace(",", "."))) for text, ok in zip(texts, valid, strict=True) if ok]
    # A zero among times since the epoch is what some tools write for "none".
    typical = float(np.median([size for size in sizes if size] or [0.0]))
    factor = next((ns for least, ns in _EPOCH if typical >= least), None)
    clock = UNIX if factor is not None else RELATIVE
    if factor is None:
        factor = _RELATIVE_NS.get(unit.strip().strip("[]()"), _NS)
    time = np.zeros(len(texts), np.int64)
    digits = 0
    for i in map(int, np.flatnonzero(valid)):
        try:
            time[i], decimals = _exact(texts[i], factor)
        except (OverflowError, ValueError):
            valid[i] = False
            continue
        valid[i] = clock == RELATIVE or time[i] != 0
        digits = max(digits, decimals)
    return Stamps(time, valid, clock, factor / _NS / 10**digits)


def _exact(text: str, factor: int) -> tuple[int, int]:
    """A decimal number times ``factor`` as an integer, and its number of decimals."""
    text = text.replace(",", ".")
    if "e" in text.lower():
        return round(float(text) * factor), 0
    whole, _, fraction = text.lstrip("+-").partition(".")
    value = int(whole or 0) * factor + int((fraction + "0" * 9)[:9] or 0) * factor // 10**9
    if value >= 2**62:
        raise OverflowError
    return (-value if text.startswith("-") else value), len(fraction)


def _times_of_day(texts: Sequence[str]) -> Stamps:
    time, valid = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    days, last, digits = 0, None, 0
    for i, text in enumerate(texts):
        found = _TIME_ONLY.match(text)
        seconds = _seconds_of_day(found) if found else None
        if found is None or seconds is None:
            continue
        if last is not None and seconds < last - _DAY_S / 2:
            days += 1
        last, digits = seconds, max(digits, len(found["f"] or ""))
        time[i], valid[i] = (days * _DAY_S + seconds) * _NS + _fraction_ns(found["f"]), True
    notes = {"no_date": "the stamps have no date: they are taken as seconds since midnight of some day"}
    return Stamps(time, valid, RELATIVE, 1 / 10**digits, notes)


def _dates(texts: Sequence[str], local: tzinfo, *, named: bool) -> Stamps:
    matches = [_YEAR_FIRST.match(t) or _YEAR_LAST.match(t) or _NAMED.match(t) for t in texts]
    notes: dict[str, str] = {}
    month_first = _month_first([m for m in matches if m and m.re is _YEAR_LAST], notes)
    time, valid = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    digits, assumed = 0, False
    for i, found in enumerate(matches):
        at = _instant(found, local, month_first) if found else None
        if found is None or at is None:
            continue
        time[i], valid[i] = at, True
        digits = max(digits, len(found["f"] or ""))
        assumed |= "z" not in found.re.groupindex or not found["z"]
    if assumed and not named:
        notes["time_zone_assumed"] = "the stamps have no time zone: UTC was assumed; say which with --time-zone"
    return Stamps(time, valid, UNIX, 1 / 10**digits, notes)


def _month_first(matches: Sequence[re.Match[str]], notes: dict[str, str]) -> bool:
    """Whether 04/12/2022 is in April, told from the days beyond the twelfth in the same column."""
    if not matches:
        return True
    if any(int(m["a"]) > 12 for m in matches):
        return False
    if any(int(m["b"]) > 12 for m in matches):
        return True
    first = matches[0]["sep"] == "/"
    if any(m["a"] != m["b"] for m in matches):
        order = "month first" if first else "day first"
        notes["date_order_assumed"] = (
            f"dates such as {matches[0].group()[:10]} leave their order open: {order} was assumed"
        )
    return first


def _instant(found: re.Match[str], local: tzinfo, month_first: bool) -> int | None:
    """Nanoseconds since the epoch; None if there is no such day or time."""
    seconds = _seconds_of_day(found)
    parts = found.groupdict()
    if seconds is None or not _FIRST_YEAR <= int(parts["y"]) <= _LAST_YEAR:
        return None
    if found.re is _NAMED:
        month, day = _MONTHS.get(parts["m"].lower(), 0), int(parts["b"])
    elif found.re is _YEAR_FIRST or month_first:
        month, day = int(parts["a"]), int(parts["b"])
    else:
        month, day = int(parts["b"]), int(parts["a"])
    stated = parts.get("z")
    try:
        midnight = datetime(int(parts["y"]), month, day, tzinfo=_stated_zone(stated) if stated else local)
        moment = midnight.replace(hour=seconds // 3600, minute=seconds // 60 % 60, second=seconds % 60)
        since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return (since.days * _DAY_S + since.seconds) * _NS + _fraction_ns(parts["f"])


def _stated_zone(text: str) -> tzinfo:
    if text[0] not in "+-":
        return UTC
    digits = text[1:].replace(":", "")
    shift = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(shift if text[0] == "+" else -shift)


def _seconds_of_day(found: re.Match[str]) -> int | None:
    hours, minutes, seconds = int(found["H"]), int(found["M"]), int(found["S"])
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    return hours * 3600 + minutes * 60 + seconds


def _fraction_ns(digits: str | None) -> int:
    return int((digits or "0").ljust(9, "0")[:9])
