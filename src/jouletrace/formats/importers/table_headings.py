"""The meaning of a table's columns: by the user's mapping, or by common names of headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import units
from jouletrace.formats.importers.stated_units import looks_like_unit, read_heading, words
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

_NUMBERED = re.compile(
    r"\b(?:gpu|device|dev|outlet|socket|psu|node|ch|channel)[ _#-]*(\d{1,4})(?![\d.]|[ _-]?(?:v(?:dc|hpwr|\d|\b)|pin))",
    re.I,
)
"""A device's number in a heading; that of a plug's pins (8-pin) or volts (12VHPWR) is none."""
_POWER = re.compile(r"power|watt|\bpwr\b|^p$|\bdraw\b", re.I)
_ENERGY = re.compile(r"energy|joule", re.I)
_AGAIN = re.compile(r"\.\d{1,2}$")
"""The ending that pandas appends to the second of two equal headings."""

_NO_POWER = re.compile(
    r"\b(reasons?|slow ?down|brake|throttl\w*|cap|capping|capped|limit\w*|states?|modes?|status|management|factor|"
    r"violations?|supported|enabled|good|score|efficiency|sav(e|er|ing)|policy|source|profile|cycles?|on|off|tdp)\b",
    re.I,
)
"""Words of states and limits of power, whose column is no power unless it states a unit."""

_START, _END = re.compile(r"^(start|begin)", re.I), re.compile(r"^(end|stop|finish|duration)", re.I)
"""Headings of a table whose rows are intervals: an energy there is that of its row, and no counter."""

_POWERS = ("", "power", "watts", "watt", "pwr", "powerdraw", "draw", "p", "powerusage")
_ENERGIES = ("", "energy", "joules", "joule", "energycounter", "totalenergy", "energyconsumption", "energyconsumed")


_USUAL = (units.UNITS["W"], units.UNITS["J"], units.UNITS["C"])
"""Units of a mapping that a heading or a cell overrules by its own."""


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
class TableColumns:
    """The meaning of a table's columns.

    Attributes:
        time: The time of a row; None if no column has it.
        device: Columns that identify the device of a row, each with its property: its host, its number, ...
        maybe_device: Columns with such names that the user's mapping leaves out.
        values: Columns of readings.
        unknown: Headers without a known meaning.
        unclear: Those of them that may be power, each with its unit, which is unknown here.
    """

    time: Times | None = None
    device: list[tuple[str, int]] = field(default_factory=list)
    maybe_device: list[tuple[str, int]] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    unclear: list[tuple[str, str]] = field(default_factory=list)


def find_columns(header: Sequence[str], mapping: Mapping[str, str], path: Path, *, more: bool = False) -> TableColumns:
    """The meaning of each column of the table in ``path``.

    ``mapping`` is the user's: target -> column. Targets are "time", with the unit of numbers as a suffix ("time_ms";
    two columns are joined by "+"), "device", or a channel with the unit of the cells as its suffix ("power_w",
    "power_mw"), followed by ":1" for the second of several devices in one row. Other columns are recognised by their
    names; devices only if the mapping omits times or readings. With ``more`` further readings are, too: the mapping
    is a tool's own.

    Raises:
        BadInputError: If a column of the mapping is missing or there twice, a target has no unit, a heading states
            one that is unknown, or two columns are the power of one device.
    """
    guessed = _guessed(header)
    found = _mapped(header, mapping, guessed, path, more=more) if mapping else guessed
    _without_twins(found, header, path)
    return found


def _mapped(
    header: Sequence[str], mapping: Mapping[str, str], guessed: TableColumns, path: Path, *, more: bool
) -> TableColumns:
    found = TableColumns()
    used: set[int] = set()
    for target, wanted in mapping.items():
        parts = [wanted] if wanted in header or "+" not in wanted else wanted.split("+")
        places = [_place(header, name, path) for name in parts]
        used.update(places)
        base, _, device = target.partition(":")
        bare = base == "power" and header[places[0]].isdecimal()  # of a table without headings
        name, unit, kind = read_heading("power_w" if bare else base)
        heading = read_heading(header[places[0]])
        if name == "time" and (not unit if kind is None else kind.si == "s"):
            found.time = Times(tuple(places), unit or heading.unit)
        elif base == "device":
            found.device = [(role_of(header[place]) or NUMBER, place) for place in places]
        elif kind is None or kind.si == "s":
            wrong = f"{path}: --map {target}={wanted}: a target is time_s (or _ms, _us, _ns), device"
            raise BadInputError(f"{wrong}, or a channel followed by its unit, such as power_w or power_mw")
        else:
            if kind in _USUAL and heading.known is not None and heading.known.si == kind.si:
                kind = heading.known  # the heading's own statement of its unit
            elif kind in _USUAL and heading.known is None and looks_like_unit(heading.unit):
                raise BadInputError(f"{path}: {_unclear(header[places[0]], heading.unit)}")
            found.values.append(Value(places[0], _channel(name, kind), kind, device, stated=not bare))
    if more and found.values:
        taken = {(value.channel, value.device) for value in found.values}
        of = {value.device for value in found.values}
        others = (value for value in guessed.values if value.column not in used and value.device in of)
        found.values += [
            value for value in others if (value.channel, value.device) not in taken and value.unit.si != "J"
        ]
    _fill(found, guessed, used)
    used |= {place for _, place in found.device} | {value.column for value in found.values}
    used.update(found.time.places if found.time is not None else ())
    found.unknown = [name for i, name in enumerate(header) if i not in used]
    found.unclear = [one for one in guessed.unclear if one[0] in found.unknown]
    return found


def _without_twins(found: TableColumns, header: Sequence[str], path: Path) -> None:
    """Keep one column for each channel of a device.

    Raises:
        BadInputError: If two are its power or energy: there's no choosing.
    """
    first: dict[tuple[str, str], Value] = {}
    for value in found.values:
        there = first.setdefault((value.channel, value.device), value)
        if there is value:
            continue
        if value.unit.si in ("W", "J"):
            one, two = there.column + 1, value.column + 1
            target = value.channel
            both = (
                f"columns {one} ({header[one - 1]!r}) and {two} ({header[two - 1]!r}) are both {target} of one device"
            )
            way = f"--map {target}={one}; of two devices, --map {target}:0={one} --map {target}:1={two}"
            raise BadInputError(f"{path}: {both}: choose one, {way}")
        found.unknown.append(header[value.column])
    found.values = list(first.values())


def ask_for_unit(found: TableColumns, path: Path) -> None:
    """Ask for the unit of a power, where a table has no other.

    Raises:
        BadInputError: If the only powers are in units that are unknown here.
    """
    if found.unclear and not any(value.unit.si == "W" for value in found.values):
        raise BadInputError(f"{path}: which column is the power? {_unclear(*found.unclear[0])}")


def _unclear(heading: str, unit: str) -> str:
    known = "W, mW, kW, kilowatts, ..."
    way = f"give --map power_mw={heading} or power_kw={heading} if it is in that"
    return f"{heading!r} states {unit!r}, which is no unit that is known here ({known}): {way}, else convert it"


def _fill(found: TableColumns, guessed: TableColumns, used: set[int]) -> None:
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
    for these, name in ((list(header), wanted), (names, wanted.strip().lower())):
        if these.count(name) > 1:
            places = " and ".join(str(i) for i, one in enumerate(these, start=1) if one == name)
            raise BadInputError(f"{path}: columns {places} are both {wanted!r}: give the number of one in its place")
        if name in these:
            return these.index(name)
    if wanted.isascii() and wanted.isdecimal() and 1 <= int(wanted[:6]) <= len(names):
        return int(wanted) - 1
    shown = ", ".join(name or f"({i})" for i, name in enumerate(header, start=1))
    raise BadInputError(f"{path}: no column {wanted!r}; the columns are {shown[:200]}")


def _guessed(header: Sequence[str]) -> TableColumns:
    found = TableColumns()
    dates: list[int] = []
    clocks: list[tuple[int, str]] = []
    for i, text in enumerate(header):
        base = _AGAIN.sub("", text)
        name, unit, kind = read_heading(base if base in header else text)
        plain = words(name)
        role = role_of(text)
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
            if unit and kind is None and (_POWER.search(text) or looks_like_unit(unit)):
                found.unclear.append((text, unit))
    if any(map(_START.match, header)) and any(map(_END.match, header)):
        found.unknown += [header[value.column] for value in found.values if value.unit.si == "J"]
        found.values = [value for value in found.values if value.unit.si != "J"]
    if clocks:  # a date and a time of day form one time; the first of several complete times is used
        found.time = Times((*dates, clocks[0][0]), clocks[0][1])
    elif dates:
        found.time = Times((dates[0],))
    return found


def quantities(names: Iterable[str]) -> set[str]:
    """Units of the quantities that names of metrics or columns state ("W", "J"); "" of any that states none."""
    found = (_value(0, words(heading.name), heading.unit, heading.known) for heading in map(read_heading, names))
    return {value.unit.si if value else "" for value in found}


def is_time_heading(heading: str) -> bool:
    """True if a heading is that of a time."""
    return _TIME.match(words(read_heading(heading).name)) is not None


def role_of(heading: str) -> str | None:
    """The property of a device that a column states, by its name."""
    return next((role for role, form in _DEVICE.items() if form.match(words(heading))), None)


def _value(column: int, plain: str, unit: str, kind: Unit | None) -> Value | None:
    """A column of readings, if its name or its unit identifies the quantity."""
    stated = kind is not None
    if kind is None and not unit and not _NO_POWER.search(plain):
        kind = units.UNITS["W"] if _POWER.search(plain) else units.UNITS["J"] if _ENERGY.search(plain) else None
    if kind is None or kind.si in ("1", "s") or kind is units.NO_UNIT:
        return None
    numbered = _NUMBERED.search(plain)
    name = (plain[: numbered.start()] + plain[numbered.end() :]) if numbered else plain
    if kind.si == "W" and re.sub(r"[^a-z]", "", name.lower()) in _POWERS:
        name = "power"
    elif kind.si == "J" and re.sub(r"[^a-z]", "", name.lower()) in _ENERGIES:
        name = "energy counter"
    return Value(column, _channel(name, kind), kind, numbered[1] if numbered else "", stated)


def _channel(name: str, kind: Unit) -> str:
    plain = re.sub(r"\W+", "_", name.strip().lower()).strip("_") or "reading"
    return plain if plain.endswith(kind.suffix) else plain + kind.suffix
