"""Which column of a table is what: by the user's mapping, or by what headers are usually called."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.importers import units
from jouletrace.importers.units import Unit

_TIME = re.compile(
    r"^(date ?time|time ?stamp|time|date|t|ts|epoch|unix(time| ?time ?stamp)?|elapsed( ?time)?|(sample|clock) ?time)$",
    re.I,
)
_DEVICE = re.compile(
    r"^(gpu|gpu[ _]?(id|index|uuid)|device|device[ _]?(id|name)|index|uuid|outlet|socket|psu|host|hostname|node)$",
    re.I,
)
_NUMBERED = re.compile(r"\b(?:gpu|device|dev|outlet|socket|psu|node|ch|channel)[ _#-]*(\d{1,4})(?![\d.])", re.I)
_POWER = re.compile(r"power|watt|\bpwr\b|^p$|\bdraw\b", re.I)
_ENERGY = re.compile(r"energy|joule", re.I)
_START = re.compile(r"^(start|begin)([ _]?(time|timestamp|ts|s|ns|us|ms))?$", re.I)
_END = re.compile(r"^(end|stop)([ _]?(time|timestamp|ts|s|ns|us|ms))?$", re.I)
_NAME = re.compile(r"^(name|layer|layer[ _]?name|kernel|kernel[ _]?name|op|operator|label|phase|range)$", re.I)
_BRACKETS = re.compile(r"[(\[]\s*([^)\]]{1,12}?)\s*[)\]]\s*$")
_SUFFIX = re.compile(r"^(.*)_(mw|kw|w|mj|kj|j|wh|kwh|c|pct|mhz|ns|us|ms|s|v|mv|a|ma|bytes|mib|mb)$", re.I)
_SUFFIX_UNITS = {"mw": "mW", "kw": "kW", "mj": "mJ", "kj": "kJ", "wh": "Wh", "kwh": "kWh", "ma": "mA", "mv": "mV"}
_SUFFIX_UNITS |= {
    "mib": "MiB",
    "mb": "MB",
    "bytes": "B",
    "w": "W",
    "j": "J",
    "c": "C",
    "v": "V",
    "a": "A",
    "mhz": "MHz",
}
_POWERS = ("", "power", "watts", "watt", "pwr", "powerdraw", "draw", "p", "powerusage")


@dataclass(frozen=True)
class Value:
    """A column of readings.

    Attributes:
        column: Its index.
        channel: Name of the channel that it becomes.
        unit: Unit of its cells, where they have none of their own.
        device: Which device it is of, where one row holds several; "" otherwise.
    """

    column: int
    channel: str
    unit: Unit
    device: str = ""


@dataclass
class Columns:
    """The meaning of a table's columns.

    Attributes:
        time: Indices of the columns that together are the time, in order (a date, a time of day).
        time_unit: Unit of numeric times, "" if unknown.
        device: Index of the column that says which device a row is of.
        values: Columns of readings.
        start, end, name: Indices of what makes rows spans, not readings.
        unknown: Headers that mean nothing here.
    """

    time: list[int] = field(default_factory=list)
    time_unit: str = ""
    device: int | None = None
    values: list[Value] = field(default_factory=list)
    start: int | None = None
    end: int | None = None
    name: int | None = None
    unknown: list[str] = field(default_factory=list)


def find_columns(header: Sequence[str], mapping: Mapping[str, str], path: Path) -> Columns:
    """What each column is.

    Args:
        header: Names of the columns.
        mapping: Target -> column, as given by the user; empty to go by the names alone. Targets are
            "time" (or "time_ms", ...; two columns are joined by "+"), "device", "start", "end",
            "name", or a channel with the unit of the cells as its suffix ("power_w", "power_mw"),
            with ":1" behind it for the second of several devices in one row.
        path: Named in errors.

    Raises:
        BadInputError: If a column of the mapping isn't there, or a target has no unit.
    """
    return _mapped(header, mapping, path) if mapping else _guessed(header)


def _mapped(header: Sequence[str], mapping: Mapping[str, str], path: Path) -> Columns:
    found = Columns()
    used: set[int] = set()
    for target, wanted in mapping.items():
        places = [_place(header, name, path) for name in _joined(header, wanted)]
        used.update(places)
        base, _, device = target.partition(":")
        name, unit = _suffix(base)
        if name == "time":
            found.time, found.time_unit = places, unit
        elif base in ("device", "start", "end", "name"):
            setattr(found, base, places[0])
        elif not unit or (kind := units.unit(unit)) is None:
            wrong = f"{path}: --map {target}={wanted}: a target is time, device, start, end, name"
            raise BadInputError(f"{wrong}, or a channel with its unit behind it such as power_w or power_mw")
        else:
            cells = units.unit(_printed_unit(header[places[0]])[1]) if unit in ("W", "J", "C") else None
            if cells is not None and cells.si == kind.si:  # the header's own word on its unit
                kind = cells
            found.values.append(Value(places[0], _channel(name, kind), kind, device))
    found.unknown = [name for i, name in enumerate(header) if i not in used]
    return found


def _joined(header: Sequence[str], wanted: str) -> list[str]:
    return [wanted] if wanted in header or "+" not in wanted else wanted.split("+")


def _place(header: Sequence[str], wanted: str, path: Path) -> int:
    names = [name.strip().lower() for name in header]
    if wanted.strip().lower() in names:
        return names.index(wanted.strip().lower())
    if wanted.isdecimal() and 1 <= int(wanted[:6]) <= len(names):
        return int(wanted) - 1
    shown = ", ".join(name or f"({i})" for i, name in enumerate(header, start=1))
    raise BadInputError(f"{path}: no column {wanted!r}; there are {shown[:200]}")


def _guessed(header: Sequence[str]) -> Columns:
    found = Columns()
    for i, text in enumerate(header):
        name, unit = _printed_unit(text)
        plain = name.replace("_", " ").strip()
        kind = units.unit(unit) if unit else None
        if _TIME.match(plain) and (kind is None or kind.si == "s"):
            found.time.append(i)
            found.time_unit = found.time_unit or unit
        elif _START.match(name.strip()):
            found.start = i
        elif _END.match(name.strip()):
            found.end = i
        elif _DEVICE.match(name.strip()) and found.device is None:
            found.device = i
        elif _NAME.match(name.strip()) and found.name is None:
            found.name = i
        elif (value := _value(i, plain, unit, kind)) is not None:
            found.values.append(value)
        else:
            found.unknown.append(text)
    if len(found.time) > 1:  # a date and a time of day are one time; of several whole times the first counts
        dates = [i for i in found.time if header[i].strip().lower() == "date"]
        clocks = [i for i in found.time if i not in dates]
        found.time = [*dates, *clocks[:1]] if dates and clocks else found.time[:1]
    return found


def _value(column: int, plain: str, unit: str, kind: Unit | None) -> Value | None:
    """A column of readings, if its name or its unit says of what."""
    if kind is None and not unit:
        kind = units.UNITS["W"] if _POWER.search(plain) else units.UNITS["J"] if _ENERGY.search(plain) else None
    if kind is None or kind.si in ("1", "s") or kind is units.NO_UNIT:
        return None
    numbered = _NUMBERED.search(plain)
    name = (plain[: numbered.start()] + plain[numbered.end() :]) if numbered else plain
    if kind.si == "W" and re.sub(r"[^a-z]", "", name.lower()) in _POWERS:
        name = "power"
    elif kind.si == "J":
        name = "energy counter"
    return Value(column, _channel(name, kind), kind, numbered[1] if numbered else "")


def _printed_unit(header: str) -> tuple[str, str]:
    """A header in two: "Power (mW)" and "power_mw" are both power, in mW."""
    found = _BRACKETS.search(header)
    if found and units.unit(found[1]) is not None:
        return header[: found.start()].strip(), found[1]
    return _suffix(header.strip())


def _suffix(name: str) -> tuple[str, str]:
    found = _SUFFIX.match(name)
    if not found:
        return name, ""
    suffix = found[2].lower()
    return found[1], _SUFFIX_UNITS.get(suffix, suffix)


def _channel(name: str, kind: Unit) -> str:
    plain = re.sub(r"\W+", "_", name.strip().lower()).strip("_") or "reading"
    return plain if plain.endswith(kind.suffix) else plain + kind.suffix
