"""Dates and times of day as logs write them, and the order in which a column of local times is settled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, tzinfo
from typing import NamedTuple

import numpy as np

from jouletrace.arrays import Ints, Mask

NS = 1_000_000_000
DAY_S = 86_400

_SECONDS = r"(?P<seconds>:\d{2}(?:[.,](?P<f>\d{1,9})\d*)?)"
_HALF = r"(?:\s*(?P<half>[AaPp])\.?[Mm]\b\.?)"
_CLOCK = rf"(?P<clock>\d{{1,2}}:\d{{2}}){_SECONDS}?{_HALF}?"
_UNPADDED = r"(?P<clock>\d{1,2}:\d{1,2})(?P<seconds>:\d{1,2}\.(?P<f>\d{3}))"
"""The clock of HWiNFO, which pads milliseconds alone: beside a date with points no other format has it."""
_ZONE = r"\s*(?P<z>Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?(?P<letters>[A-Z]{3,5})?"
_WEEKDAY = r"(?:[A-Za-z]{3,9},?\s+)?"
_MONTH = r"(?P<m>[A-Za-z]{3,9})\.?"
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]

_DATES = (
    re.compile(rf"(?P<y>\d{{4}})[-/.]?(?P<m>\d{{2}})[-/.]?(?P<d>\d{{2}})[T\s_-]+{_CLOCK}{_ZONE}$"),
    re.compile(rf"(?P<y>\d{{4}})[-/.](?P<m>\d{{1,2}})[-/.](?P<d>\d{{1,2}})[T\s_-]+{_CLOCK}{_ZONE}$"),
    re.compile(
        rf"(?P<a>\d{{1,2}})(?P<sep>[-/.])(?P<b>\d{{1,2}})(?P=sep)(?P<y>\d{{4}}|(?<!-)\d{{2}})[T,\s-]+{_CLOCK}{_ZONE}$"
    ),
    re.compile(rf"(?P<a>\d{{1,2}})(?P<sep>\.)(?P<b>\d{{1,2}})\.(?P<y>\d{{4}}) {_UNPADDED}{_HALF}?{_ZONE}$"),
    re.compile(
        rf"{_WEEKDAY}{_MONTH}\s+(?P<d>\d{{1,2}})\s+{_CLOCK}\s+(?:(?P<z>UTC|GMT)\s+|(?P<letters>[A-Z]{{3,5}})\s+)?(?P<y>\d{{4}})$"
    ),
    re.compile(
        rf"{_WEEKDAY}(?P<d>\d{{1,2}})\s+{_MONTH}\s+{_CLOCK}\s+(?:(?P<z>UTC|GMT)\s+|(?P<letters>[A-Z]{{3,5}})\s+)?(?P<y>\d{{4}})$"
    ),
    re.compile(rf"{_WEEKDAY}{_MONTH}\s+(?P<d>\d{{1,2}}),?\s+(?P<y>\d{{4}})[,\s]+(?:at\s+)?{_CLOCK}{_ZONE}$"),
    re.compile(rf"{_WEEKDAY}(?P<d>\d{{1,2}})[-/.\s]+{_MONTH}[-/\s]+(?P<y>\d{{4}})[:,T\s-]+{_CLOCK}{_ZONE}$"),
)
"""The year first; the year last, after day and month in either order; a month by its name: the formats of ``date``, of
the United States, of e-mails and web servers."""

_OF_DAY = re.compile(rf"(?P<clock>\d{{1,2}}:\d{{2}})(?:{_SECONDS}{_HALF}?|{_HALF.replace('half', 'half2')})$")

_FIRST_YEAR, _LAST_YEAR = 1970, 2188
"""Times of a Run end in 2189 (``run.sound``)."""

_BACK_NS = 30 * NS
"""Rows of several devices may be out of order by less; a clock that falls by more has been set back."""

_MINUTE_S = 60.0
"""Resolution of stamps without seconds."""


class _Moment(NamedTuple):
    """A time in ns since the epoch, and the same in the second pass through the hour that occurs twice."""

    first: int
    second: int


class Dated(NamedTuple):
    """A column of dates as times.

    Attributes:
        time_ns: Nanoseconds since the epoch, or since midnight for times of day, shape (n,); 0 where invalid.
        valid: Which cells hold a time, shape (n,).
        resolution_s: Resolution of the printed stamps.
        notes: Assumptions: warning code -> text.
    """

    time_ns: Ints
    valid: Mask
    resolution_s: float
    notes: dict[str, str]


def is_date(text: str) -> bool:
    """True if a text is a date with a time of day."""
    return any(form.match(text) for form in _DATES)


def is_time_of_day(text: str) -> bool:
    """True if a text is a time of day with seconds, or with AM or PM."""
    return _OF_DAY.match(text) is not None


def read_times_of_day(texts: Sequence[str]) -> Dated:
    """Times since midnight; a fall by more than half a day means that midnight has passed."""
    time, valid = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    days, last = 0, 0
    found = [_OF_DAY.match(text) for text in texts]
    for i, match in enumerate(found):
        moment = _moment("1970-01-01", match, UTC) if match else None
        if moment is None:
            continue
        days += moment.first < last - DAY_S * NS // 2
        last = moment.first
        time[i], valid[i] = days * DAY_S * NS + last, True
    notes = {"no_date": "the stamps have no date: they are read as seconds since midnight of an unknown day"}
    return Dated(time, valid, _resolution_s([m for m, good in zip(found, valid, strict=True) if m and good]), notes)


def read_dates(texts: Sequence[str], local: tzinfo, *, named: bool) -> Dated:
    """Dates as times; those without a zone are in ``local``, which is noted unless the user ``named`` it."""
    matches = [next(filter(None, (form.match(text) for form in _DATES)), None) for text in texts]
    notes: dict[str, str] = {}
    month_first = _month_first([m for m in matches if m and "sep" in m.re.groupindex], notes)
    moments: list[_Moment | None] = [None] * len(texts)
    read: list[re.Match[str]] = []
    for i, found in enumerate(matches):
        moment = _moment(_day(found, month_first), found, local) if found else None
        if found is not None and moment is not None and _FIRST_YEAR <= _year(found) <= _LAST_YEAR:
            moments[i] = moment
            read.append(found)
    if not named and not all(found["z"] for found in read):
        notes["time_zone_assumed"] = "the stamps have no time zone: UTC was assumed; state the zone with --time-zone"
    return Dated(_settled(moments, notes), np.array([m is not None for m in moments], bool), _resolution_s(read), notes)


def _settled(moments: Sequence[_Moment | None], notes: dict[str, str]) -> Ints:
    """Each time in ns, 0 for None: in the hour that occurs twice the order of the rows states the pass.

    Where the clock falls within that hour, the second pass begins. An hour without a fall belongs to the row next to
    it: to that before it or, if this one is nearer, to that after it.
    """
    first = np.array([moment.first if moment else 0 for moment in moments], np.int64)
    second = np.array([moment.second if moment else 0 for moment in moments], np.int64)
    time, rows = first.copy(), [i for i, moment in enumerate(moments) if moment]
    places = [k for k, i in enumerate(rows) if second[i] != first[i]]
    for k in places:
        i = rows[k]
        if k and first[i] < time[rows[k - 1]] - _BACK_NS <= second[i]:
            time[i] = second[i]
    for stretch in _stretches(places):
        inside = rows[stretch[0] : stretch[-1] + 1]
        if np.any(time[inside] != first[inside]):
            continue
        to_before = first[inside[0]] - time[rows[stretch[0] - 1]] if stretch[0] else -1
        to_after = time[rows[stretch[-1] + 1]] - second[inside[-1]] if stretch[-1] + 1 < len(rows) else -1
        if to_after >= 0 and not 0 <= to_before <= to_after:
            time[inside] = second[inside]
        elif to_before < 0:
            notes["hour_assumed"] = "the hour occurs twice on that day: its first pass was assumed"
    return time


def _stretches(places: Sequence[int]) -> list[list[int]]:
    """Consecutive numbers, in groups."""
    groups: list[list[int]] = []
    for place in places:
        if groups and place == groups[-1][-1] + 1:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _month_first(matches: Sequence[re.Match[str]], notes: dict[str, str]) -> bool:
    """True if 04/12/2022 is in April, by the numbers above twelve in the same column, or the order without a hole."""
    if not matches:
        return False
    day_first, month_first = any(int(m["a"]) > 12 for m in matches), any(int(m["b"]) > 12 for m in matches)
    first = month_first if day_first or month_first else matches[0]["sep"] == "/"
    open_order = not day_first and not month_first and any(m["a"] != m["b"] for m in matches)
    if open_order and _without_hole(matches, not first) != _without_hole(matches, first):
        first, open_order = _without_hole(matches, True), False
    if open_order or len(matches[0]["y"]) == 2:
        example = matches[0].group().split(" ")[0].rstrip(",")[:10]
        order = "month first" if first else "day first"
        notes["date_order_assumed"] = f"dates such as {example} are ambiguous: {order} was assumed"
    return first


def _without_hole(matches: Sequence[re.Match[str]], month_first: bool) -> bool:
    """True if in that order of day and month the days follow each other, and none is missing."""
    try:
        days = sorted({date.fromisoformat(day).toordinal() for day in {_day(m, month_first) for m in matches}})
    except ValueError:
        return False
    return days[-1] - days[0] == len(days) - 1


def _year(found: re.Match[str]) -> int:
    return int(found["y"]) + (2000 if len(found["y"]) == 2 else 0)


def _day(found: re.Match[str], month_first: bool) -> str:
    """The day of a date in ISO form."""
    parts = found.groupdict()
    if "sep" in parts:
        month, day = (parts["a"], parts["b"]) if month_first else (parts["b"], parts["a"])
    else:
        month, day = parts["m"], parts["d"]
    if month[:3].lower() in _MONTHS:
        month = str(_MONTHS.index(month[:3].lower()) + 1)
    return f"{_year(found)}-{month.zfill(2)}-{day.zfill(2)}"


def _moment(day: str, found: re.Match[str], local: tzinfo) -> _Moment | None:
    """The moment of a time of day; None for an impossible day or time."""
    parts = found.groupdict()
    stated, half = parts.get("z") or "", parts["half"] or parts.get("half2")
    hour, minute = map(int, found["clock"].split(":"))
    if half and not 1 <= hour <= 12:
        return None
    hour = hour % 12 + 12 * (half in ("p", "P")) if half else hour
    seconds = int((parts["seconds"] or ":0")[1:3].rstrip("."))
    try:
        moment = datetime.fromisoformat(
            f"{day}T{hour:02d}:{minute:02d}:{seconds:02d}{'Z' if stated.isalpha() else stated}"
        )
        if moment.tzinfo is not None or local is UTC:
            passes = [moment if moment.tzinfo else moment.replace(tzinfo=UTC)]
        else:
            passes = [moment.replace(tzinfo=local, fold=fold) for fold in (0, 1)]
            if passes[0].utcoffset() < passes[1].utcoffset():  # type: ignore[operator]  # never None with a zone
                passes = passes[:1]  # an hour that the clock leaves out has no second pass
            named = [one for one in passes if one.tzname() == parts.get("letters")]
            passes = named if len(named) == 1 else passes
        fraction = int((parts["f"] or "0").ljust(9, "0"))
        since = [one - datetime(1970, 1, 1, tzinfo=UTC) for one in passes]
        return _Moment(*((since[k].days * DAY_S + since[k].seconds) * NS + fraction for k in (0, -1)))
    except (ValueError, OverflowError):
        return None


def _resolution_s(found: Sequence[re.Match[str]]) -> float:
    """Resolution of printed stamps: that of the finest."""
    if found and not any(match["seconds"] for match in found):
        return _MINUTE_S
    return float(10.0 ** -max((len(match["f"] or "") for match in found), default=0))
