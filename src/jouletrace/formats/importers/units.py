"""Units as tools print them, and the SI units of a Run."""

from __future__ import annotations

import re
from typing import NamedTuple


class Unit(NamedTuple):
    """The meaning of a printed unit.

    Attributes:
        si: Unit of the converted value ("W", "Cel", "B/s", "%", "1").
        factor: Factor for a printed number.
        suffix: Suffix of the names of channels or metrics in this unit.
    """

    si: str
    factor: float
    suffix: str


NO_UNIT = Unit("1", 1.0, "")

_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_SMALL = {"m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9}

UNITS: dict[str, Unit] = {
    "C": Unit("Cel", 1.0, "_c"),
    "°C": Unit("Cel", 1.0, "_c"),
    "%": Unit("%", 1.0, "_pct"),
    "pct": Unit("%", 1.0, "_pct"),
    "KHz": Unit("MHz", 1e-3, "_mhz"),
    "kHz": Unit("MHz", 1e-3, "_mhz"),
    "MHz": Unit("MHz", 1.0, "_mhz"),
    "GHz": Unit("MHz", 1e3, "_mhz"),
    "Wh": Unit("J", 3600.0, "_j"),
    "kWh": Unit("J", 3.6e6, "_j"),
}
"""Units by their printed form. Clocks stay in MHz, as in all channels."""

for _letter, _suffix in (("W", "_w"), ("J", "_j"), ("V", "_v"), ("A", "_a"), ("s", "_s")):
    for _prefix, _factor in {"": 1.0, **_SMALL}.items():
        UNITS[_prefix + _letter] = Unit(_letter, _factor, _suffix)
for _words, _symbol in (("watt watts", "W"), ("joule joules", "J"), ("second seconds sec secs", "s")):
    for _word in _words.split():
        for _name, _prefix in (("", ""), ("milli", "m"), ("micro", "u"), ("nano", "n")):
            UNITS[_name + _word] = UNITS[_prefix + _symbol]
UNITS |= {"millis": UNITS["ms"], "msec": UNITS["ms"], "micros": UNITS["us"], "usec": UNITS["us"], "nsec": UNITS["ns"]}
UNITS |= {"kW": Unit("W", 1e3, "_w"), "kJ": Unit("J", 1e3, "_j"), "min": Unit("s", 60.0, "_s")}
UNITS |= {"kilowatts": UNITS["kW"], "kilojoules": UNITS["kJ"], "celsius": UNITS["C"], "percent": UNITS["%"]}
for _prefix, _factor in {**_PREFIXES, **_BINARY}.items():
    UNITS[_prefix + "B"] = Unit("B", _factor, "_bytes")
    UNITS[_prefix + "B/s"] = Unit("B/s", _factor, "_bytes_per_s")

_LONGEST = 100
"""Length of the longest cell that can be a number with its unit."""

_NUMBER_AND_UNIT = re.compile(
    r"\s*(?P<number>[+-]?[\d.,'\u2019\u00a0\u202f ]*\d(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\d\s].*?)?\s*$"
)


def unit(text: str) -> Unit | None:
    """A printed unit; None if it is unknown. An empty text is "no unit"."""
    name = text.strip().strip("[]()")
    if name.lower() in ("", "-", "1"):
        return NO_UNIT
    known = UNITS.get(name)
    if known is None:
        known = next((u for key, u in UNITS.items() if _alike(key, name)), None)
        if known is None and name in ("w", "j", "c", "v", "a"):
            known = UNITS[name.upper()]
    return known


def _alike(known: str, name: str) -> bool:
    """Whether a unit was spelt with other case; "MW" isn't taken for "mW"."""
    return len(known) > 1 and known.lower() == name.lower() and not (known[0] == "m" and name[0] == "M")


def split(cell: str) -> tuple[str, str]:
    """The two parts of a cell: "21.76 W" is the number "21.76" and the unit "W". Other text stays whole."""
    found = _NUMBER_AND_UNIT.match(cell) if len(cell) <= _LONGEST else None
    return (found["number"], found["unit"] or "") if found else (cell, "")
