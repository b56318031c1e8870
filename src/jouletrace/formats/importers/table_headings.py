"""The meaning of a table's columns: by the user's mapping, or by common names of headers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import units
from jouletrace.formats.importers.units import Unit

_TIME = re.compile(
    r"^(date ?time|(time ?)?stamp|time|date|t|ts|epoch|unix(time| ?time ?stamp)?|elapsed( ?time)?|"
    r"(sample|clock) ?time)$",
    re.I,
)
HOST, UUID, NUMBER, INSTANCE = "host", "uuid", "number", "instance"
_DEVICE = {
    HOST: re.compile(r"^(host|host ?name|node|node ?(id|name)|server|machine|cabinet|rack)$", re.I),
    UUID: re.compile(r"^((gpu|device) ?)?uuid$", re.I),
    NUMBER: re.compile(r"^(gpu|gpu ?(id|index)|device|device ?(id|name)|index|outlet|socket|psu)$", re.I),
    INSTANCE: re.compile(r"^((mig|gpu|gi) ?(instance|profile|device)( ?id)?|mig|gi ?id|gpu ?i ?(id|profile))$", re.I),
}
"""Properties of a row's device that columns state; all columns of a table are used together."""

_NUMBERED = re.compile(r"\b(?:gpu|device|dev|outlet|socket|psu|node|ch|channel)[ _#-]*(\d{1,4})(?![\d.])", re.I)
_POWER = re.compile(r"power|watt|\bpwr\b|^p$|\bdraw\b", re.I)
_ENERGY = re.compile(r"energy|joule", re.I)
_POWERS = ("", "power", "watts", "watt", "pwr", "powerdraw", "draw", "p", "powerusage")

_BRACKETS = re.compile(r"[(\[]\s*([^)\]]{1,14}?)\s*[)\]]")
_UNKNOWN_UNIT = re.compile(r"[A-Za-zµμ]?[WJ]")
"""A bracketed text that is an unknown unit: "MW"."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])")
_LAST = re.compile(r"^(.*[^\s_.,/-])[\s_.,/-]+([A-Za-zµμ%]+)$")
_UNIT_NAMES = {name.lower(): name for name in units.UNITS if "/" not in name}
_BESIDE_SPACE = 2
"""A unit of fewer letters needs an underscore before it, since "Phase A" isn't in amperes; W, J and s don't."""


@dataclass(frozen=True)
class Times:
    """The columns that together form the time of a row (a date, a time of day), and the stated unit of numbers."""

    places: tuple[int, ...]
    unit: str = ""


@dataclass(frozen=True)
class Value:
    """A column of readings.

    Attributes:
        column: Its index.
        channel: Name of its channel.
        unit: Unit of its cells, where they have none of their own.
        device: Its device, where one row holds several; "" otherwise.
        stated: Whether the heading or the user states the unit.
    """

    column: int
    channel: str
    unit: Unit
    device: str = ""
    stated: bool = True


@dataclass
class Columns:
    """The meaning of a table's columns.

    Attributes:
        time: The time of a row; None if no column has it.
        device: Columns that identify the device of a row, each with its property: its host, its number, ...
        maybe_device: Columns with such names that the user's mapping leaves out.
        values: Columns of readings.
        unknown: Headers without a known meaning.
    """

    time: Times | None = None
    device: list[tuple[str, int]] = field(default_factory=list)
    maybe_device: list[tuple[str, int]] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def find_columns(header: Sequence[str], mapping: Mapping[str, str], path: Path) -> Columns:
    """The meaning of each column of the table in ``path``.

    ``mapping`` is the user's: target -> column. Targets are "time", with the unit of numbers as a suffix ("time_ms";
    two columns are joined by "+"), "device", or a channel with the unit of the cells as its suffix ("power_w",
    "power_mw"), followed by ":1" for the second of several devices in one row. Other columns are recognised by their
    names; devices only if the mapping omits times or readings.

    Raises:
        BadInputError: If a column of the mapping is missing, or a target has no unit.
    """
    guessed = _guessed(header)
    if not mapping:
        return guessed
    found = Columns()
    used: set[int] = set()
    for target, wanted in mapping.items():
        parts = [wanted] if wanted in header or "+" not in wanted else wanted.split("+")
        places = [_place(header, name, path) for name in parts]
        used.update(places)
        base, _, device = target.partition(":")
        name, unit = _suffix(base)
        kind = units.unit(unit) if unit else None
        printed = _printed_unit(header[places[0]])[1]
        if name == "time" and (not unit if kind is None else kind.si == "s"):
            found.time = Times(tuple(places), unit or printed)
        elif base == "device":
            found.device = [(_role(header[place]) or NUMBER, place) for place in places]
        elif kind is None or kind.si == "s":
            wrong = f"{path}: --map {target}={wanted}: a target is time_s (or _ms, _us, _ns), device"
            raise BadInputError(f"{wrong}, or a channel followed by its unit, such as power_w or power_mw")
        else:
            cells = units.unit(printed) if unit in ("W", "J", "C") else None
            if cells is not None and cells.si == kind.si:  # the header's own statement of its unit
                kind = cells
            found.values.append(Value(places[0], _channel(name, kind), kind, device))
    _fill(found, guessed, used)
    used |= {place for _, place in found.device} | {value.column for value in found.values}
    used.update(found.time.places if found.time is not None else ())
    found.unknown = [name for i, name in enumerate(header) if i not in used]
    return found


def _fill(found: Columns, guessed: Columns, used: set[int]) -> None:
    """Add the meanings that the mapping omits, by the names of columns outside the mapping."""
    devices = [(role, place) for role, place in guessed.device if place not in used]
    whole = found.time is not None and bool(found.values)
    if found.time is None and guessed.time is not None and not used & set(guessed.time.places):
        found.time = guessed.time
    if not found.values:
        found.values = [value for value in guessed.values if value.column not in used]
    if not found.device and not any(value.device for value in found.values):
        # A column "GPU" may hold the power of one: users who name time and power would name devices too.
        found.device, found.maybe_device = ([], devices) if whole else (devices, [])


def _place(header: Sequence[str], wanted: str, path: Path) -> int:
    names = [name.strip().lower() for name in header]
    if wanted.strip().lower() in names:
        return names.index(wanted.strip().lower())
    if wanted.isdecimal() and 1 <= int(wanted[:6]) <= len(names):
        return int(wanted) - 1
    shown = ", ".join(name or f"({i})" for i, name in enumerate(header, start=1))
    raise BadInputError(f"{path}: no column {wanted!r}; the columns are {shown[:200]}")


def _guessed(header: Sequence[str]) -> Columns:
    found = Columns()
    dates: list[int] = []
    clocks: list[tuple[int, str]] = []
    for i, text in enumerate(header):
        name, unit = _printed_unit(text)
        plain = _plain(name)
        kind = units.unit(unit) if unit else None
        role = _role(text)
        if _TIME.match(plain) and (not unit or (kind is not None and kind.si == "s")):
            if text.strip().lower() == "date":
                dates.append(i)
            else:
                clocks.append((i, unit))
        elif role is not None and (role == HOST or role not in [one for one, _ in found.device]):
            found.device.append((role, i))
        elif (value := _value(i, plain, unit, kind)) is not None:
            found.values.append(value)
        else:
            found.unknown.append(text)
    if clocks:  # a date and a time of day form one time; the first of several complete times is used
        found.time = Times((*dates, clocks[0][0]), clocks[0][1])
    elif dates:
        found.time = Times((dates[0],))
    return found


def _role(heading: str) -> str | None:
    """The property of a device that a column states, by its name."""
    return next((role for role, form in _DEVICE.items() if form.match(_plain(heading))), None)


def _value(column: int, plain: str, unit: str, kind: Unit | None) -> Value | None:
    """A column of readings, if its name or its unit identifies the quantity."""
    stated = kind is not None
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
    return Value(column, _channel(name, kind), kind, numbered[1] if numbered else "", stated)


def _plain(name: str) -> str:
    """A heading as words: "gpu_id", "gpuId" and "GPU-ID" are equal."""
    return " ".join(re.sub(r"[_.-]", " ", _CAMEL.sub(" ", name)).split())


def _printed_unit(header: str) -> tuple[str, str]:
    """The two parts of a header: "Power (mW)", "Power mW" and "power_mw" are all power, in mW."""
    for found in _BRACKETS.finditer(header):
        if units.unit(found[1]) is not None or _UNKNOWN_UNIT.fullmatch(found[1]):
            return f"{header[: found.start()].strip()} {header[found.end() :].strip()}".strip(), found[1]
    return _suffix(header.strip())


def _suffix(name: str) -> tuple[str, str]:
    found = _LAST.match(_CAMEL.sub(" ", name))
    if not found or found[2].lower() not in _UNIT_NAMES:
        return name, ""
    unit = _UNIT_NAMES[found[2].lower()]
    underscored = name[: -len(found[2])].endswith("_")
    if not underscored and len(unit) < _BESIDE_SPACE and unit not in ("W", "J", "s"):
        return name, ""
    return found[1], unit


def _channel(name: str, kind: Unit) -> str:
    plain = re.sub(r"\W+", "_", name.strip().lower()).strip("_") or "reading"
    return plain if plain.endswith(kind.suffix) else plain + kind.suffix
