"""Numbers and units as tools print them, and the SI units of a Run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from jouletrace.formats.importers.blanks import is_blank, is_blank_number

_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:([.,'\u2019\u00a0\u202f ])\d{3})+$")
_NUMERIC = re.compile(r"[+-]?[\d.,'\u2019\u00a0\u202f ]+(?:[eE][+-]?\d+)?$")
_SPACES = str.maketrans("", "", "'\u2019\u00a0\u202f ")

LARGEST = 1e30
"""Larger than any reading of a tool; products and squares of such numbers would be infinite."""


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
UNITS |= {"kW": Unit("W", 1e3, "_w"), "kJ": Unit("J", 1e3, "_j"), "min": Unit("s", 60.0, "_s")}
for _words, _symbol in (("watt watts", "W"), ("joule joules", "J"), ("second seconds sec secs", "s")):
    for _word in _words.split():
        for _name, _prefix in (("", ""), ("milli", "m"), ("micro", "u"), ("nano", "n")):
            UNITS[_name + _word] = UNITS[_prefix + _symbol]
        if _symbol != "s":
            UNITS["kilo" + _word] = UNITS["k" + _word] = UNITS["k" + _symbol]
            UNITS["m" + _word] = UNITS["m" + _symbol]
            UNITS["mega" + _word] = UNITS[_symbol]._replace(factor=1e6)
UNITS |= {"millis": UNITS["ms"], "msec": UNITS["ms"], "micros": UNITS["us"], "usec": UNITS["us"], "nsec": UNITS["ns"]}
UNITS |= {"celsius": UNITS["C"], "percent": UNITS["%"]}
for _word in ("watthour", "watthours"):
    UNITS |= {_word: UNITS["Wh"], "kilo" + _word: UNITS["kWh"]}
for _prefix, _factor in {**_PREFIXES, **_BINARY}.items():
    UNITS[_prefix + "B"] = Unit("B", _factor, "_bytes")
    UNITS[_prefix + "B/s"] = Unit("B/s", _factor, "_bytes_per_s")

_LONGEST = 100
"""Length of the longest cell that can be a number with its unit."""
_NUMBER_AND_UNIT = re.compile(
    r"\s*(?P<number>[+-]?[\d.,'\u2019\u00a0\u202f ]*\d(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\d\s].*?)?\s*$"
)


def decimal_sign(texts: Iterable[str]) -> str:
    """The decimal sign of the numbers of one file, "." or ",", determined from unambiguous ones.

    "0,5" and "1.234,5" imply a comma; "0.5" and "1,234.5" imply a point; "1,234" alone is ambiguous. The
    first unambiguous number decides; without one it is the point. Other texts are ignored.
    """
    for text in texts:
        if not _NUMERIC.match(text.strip()):
            continue
        if "," not in text:
            if text.count(".") == 1 and not _GROUPED.match(text.strip()):
                return "."
            continue
        if "." in text:
            return "," if text.rfind(",") > text.rfind(".") else "."
        if text.count(",") == 1 and not _GROUPED.match(text.strip()):
            return ","
    return "."


def number(text: str, decimal: str = ".") -> float | None:
    """A printed number, without its unit; None where the tool prints none, or a blank of its driver.

    The decimal sign is "." or ","; the other one separates thousands.

    Raises:
        ValueError: If it is another kind of text, or beyond ``LARGEST``.
    """
    plain = text.strip().translate(_SPACES)
    if is_blank(text):
        return None
    plain = plain.replace(".", "").replace(",", ".") if decimal == "," else plain.replace(",", "")
    value = plain_number(plain)
    if value is None:
        raise ValueError(f"not a number: {text[:40]!r}")
    return None if is_blank_number(value) else value


def gpu_number(text: str) -> int | None:
    """The number of a GPU, below ten thousand; None for any other text."""
    return int(text) if text.isdecimal() and len(text) < 5 else None


def plain_number(text: str) -> float | None:
    """A number in the format of programs; None for anything else, and beyond ``LARGEST``."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < LARGEST and "_" not in text else None  # float() accepts "1_000"


@lru_cache(maxsize=1024)
def unit(text: str) -> Unit | None:
    """A printed unit; None if it is unknown. An empty text is "no unit"."""
    name = re.sub(r"(?<=[A-Za-z])[ -](?=[A-Za-z])", "", text.strip().strip("[]()"))  # "kilo watts", "watt-hours"
    if name.lower() in ("", "-", "1"):
        return NO_UNIT
    known = UNITS.get(name)
    if known is None:
        known = next((u for key, u in UNITS.items() if _alike(key, name)), None)
        if known is None and name in ("w", "j", "c", "v", "a"):
            known = UNITS[name.upper()]
        elif known is None and name == "S":
            known = UNITS["s"]
    return known


def _alike(known: str, name: str) -> bool:
    """True if a unit was spelt with other case; "MW", which may be meant as "mW" or not, isn't taken for it."""
    if len(known) == 1 or known.lower() != name.lower():
        return False
    symbol = known[0] == "m" and known[1:] in ("W", "J", "watt", "watts", "joule", "joules")
    return not (symbol and name[0] == "M")


def reading_unit(printed: str, usual: Unit) -> Unit | None:
    """The unit of a reading whose cell or heading prints ``printed`` ("" for none) in a column of ``usual``.

    None if it is unknown, or of another quantity than the column's.
    """
    found = unit(printed) if printed else usual
    if found is NO_UNIT:
        return usual
    return found if found is not None and (usual is NO_UNIT or found.si == usual.si) else None


def split(cell: str) -> tuple[str, str]:
    """The two parts of a cell: "21.76 W" is the number "21.76" and the unit "W". Other text stays whole."""
    found = _NUMBER_AND_UNIT.match(cell) if len(cell) <= _LONGEST else None
    return (found["number"], found["unit"] or "") if found else (cell, "")


def quantity(cell: str, wanted: str, usual: str = "") -> float | None:
    """A printed quantity ("1.6670us") in the SI unit ``wanted``; None if it is no number or of another kind.

    ``usual`` is the unit of a number without one.
    """
    digits, own = split(cell)
    found = unit(own or usual)
    if found is None or found.si not in (wanted, "1"):
        return None
    value = plain_number(digits)
    return None if value is None or is_blank_number(value) else value * found.factor


def nanoseconds(cell: str) -> int | None:
    """A printed time in ns, exactly where it is a whole number of them: a float has no room for uptimes of 104 days."""
    digits, printed = split(cell)
    if printed == "ns" and digits.isdecimal() and len(digits) < 20:
        return int(digits)
    seconds = quantity(cell, "s")
    return None if seconds is None else round(seconds * 1e9)
