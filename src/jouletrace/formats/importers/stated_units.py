"""The unit that the heading of a column states, however it is written."""

from __future__ import annotations

import re
from typing import NamedTuple

from jouletrace.formats.importers import units
from jouletrace.formats.importers.units import NO_UNIT, Unit

_QUANTITY = re.compile(r"power|watt|joule|energy|\bpwr\b|\bdraw\b|^p\b", re.I)
_BRACKETS = re.compile(r"[(\[]\s*([^)\]]{1,40}?)\s*[)\]]")
_LAST = re.compile(r"[A-Za-zµμ%°]+$")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_PREFIXES = "yocto|zepto|atto|femto|pico|nano|micro|milli|centi|deci|de[ck]a|hecto|kilo|mega|giga|tera|peta|exa"
_WORD = r"[A-Za-z]*(?:watt(?!age|meter)|joule(?!trace))[A-Za-z]*"
_SPOKEN = re.compile(rf"(?:\b(?:{_PREFIXES})[\s_-]+)?{_WORD}(?:[\s_-]+(?:hours?|hrs?|h|seconds?|secs?)\b)?", re.I)
"""A unit of power or energy in words, with its prefix and a unit of time behind it."""

_SYMBOL = re.compile(r"(?<![A-Za-z])(?:[a-zµμ]{0,2}|[MGT])(?:W|J|Wh)(?![A-Za-z])")
_OTHER = re.compile(
    rf"(da|[a-zµμ])?[wj]|k?va|k?var|hp|btu|dbm?|ps|({_PREFIXES}|[a-zµμ]{{0,2}})[\s_-]*(watt|joule).*", re.I
)
"""Texts that are a unit at the end of a heading, whether it is known here or not."""

_QUALIFIER = re.compile(
    r"(avg|average|mean|max|min|peak|inst|instant|instantaneous|raw|total|sum|all|gpus?|cpus?|dev|device|board|card|"
    r"package|pkg|socket|node|host|rack|server|system|chassis|module|core|dram|hbm|mem|memory|soc|psu|outlet|pdu|phase|"
    r"channel|ch|in|out|input|output|rail|line|plug|ac|dc|rms|active|real|true|wall|mains?|nvml|nvidia|smi|amd|rapl|bmc|"
    r"ipmi|meter|estimated|smoothed|filtered|of|and|the|[a-ik-vyz])?\d{0,4}|\d{1,4}v",
    re.I,
)
"""Words of brackets that state which power it is, and no unit."""

_LONGEST = 200
"""Characters of a heading that may state a unit."""

_PER = re.compile(
    r"(?:\bper|_per|s\s*/|\b(?:perf|tok|token|image|img|sample|it|flop|op)\s*/|[(\[][^)\]]*/)[\s_]*$", re.I
)
_PER_SOMETHING = re.compile(r"[\s_]*(?:per(?![a-z])|/)", re.I)


class Heading(NamedTuple):
    """A heading without its unit.

    Attributes:
        name: What remains.
        unit: The text of the unit; "" if none is stated.
        known: The unit; None if it is unknown here, or none is stated.
    """

    name: str
    unit: str = ""
    known: Unit | None = None


def read_heading(text: str) -> Heading:
    """The parts of a heading: "Power (mW)", "Power mW", "power_mw" and "powerMilliwatts" are all power, in mW."""
    header = text.strip()
    if len(header) > _LONGEST:
        return Heading(header)
    return _in_brackets(header) or _in_words(header) or _at_the_end(header) or _within(header) or Heading(header)


def words(name: str) -> str:
    """A heading in words: "gpu_id", "gpuId" and "GPU-ID" are equal."""
    return " ".join(re.sub(r"[_.-]", " ", _CAMEL.sub(" ", name.replace("SoC", "Soc"))).split())


def looks_like_unit(text: str) -> bool:
    """True if a text is a unit, known here or not: "MW", "hW", "kVA", "hectowatts"."""
    return _OTHER.fullmatch(text) is not None or _SYMBOL.search(text) is not None


def _qualifies(text: str) -> bool:
    return any(map(str.isalnum, text)) and all(map(_QUALIFIER.fullmatch, re.split(r"[\s_.,:#-]+", text)))


def _in_brackets(header: str) -> Heading | None:
    there = list(_BRACKETS.finditer(header))
    found = next((one for one in there if units.unit(one[1]) not in (None, NO_UNIT)), None)
    if found is None:
        power = _QUANTITY.search(header) is not None
        there = [one for one in there if (power or looks_like_unit(one[1])) and not _qualifies(one[1])]
        found = there[0] if there else None
    if found is None:
        return None
    name = f"{header[: found.start()].strip()} {header[found.end() :].strip()}".strip()
    return Heading(name, found[1], units.unit(found[1]))


def _in_words(header: str) -> Heading | None:
    """A unit of power or energy in words, in any place."""
    there = []
    for found in _SPOKEN.finditer(header):
        start, text = found.start(), found.group()
        if units.unit(_joined(text)) is None:
            start, text = _behind_a_capital(text, start)
        there.append(_without(header, start, found.end(), _joined(text)))
    return next((one for one in there if one.known is not None), there[-1] if there else None)


def _at_the_end(header: str) -> Heading | None:
    """A unit as the last word: behind a space, an underscore, or a capital of its own."""
    found = _LAST.search(header)
    if found is None:
        return None
    start, text = found.start(), found.group()
    if units.unit(text) is None and not looks_like_unit(text):
        start, text = _behind_a_capital(text, start)
        if text[:1] in ("W", "J") and header[start - 1] in "kmunhdc":  # "powerkW" is no power in watts
            return Heading(header, found.group())
    if units.unit(text) is None and not looks_like_unit(text):
        return None
    if not start and not _SYMBOL.fullmatch(text):
        return None
    if start and len(text) == 1 and text not in "WwJjsS" and header[start - 1] != "_":
        return None  # "Phase A" isn't in amperes
    return _without(header, start, len(header), text)


def _within(header: str) -> Heading | None:
    """A symbol of power or energy in another place: "power_kW_total"."""
    found = _SYMBOL.search(header)
    return found and _without(header, found.start(), found.end(), found.group())


def _behind_a_capital(text: str, start: int) -> tuple[int, str]:
    """The last word of "powerMw" without its capital, and its start; a prefix belongs to its unit."""
    cuts = [0, *(found.start() for found in _CAMEL.finditer(text))]
    if len(cuts) > 1 and (cuts[-1] - cuts[-2] == 1 or re.fullmatch(_PREFIXES, text[cuts[-2] : cuts[-1]], re.I)):
        cuts.pop()
    if len(cuts) == 1:
        return start, text
    last = text[cuts[-1] :]
    return start + cuts[-1], last if last.isupper() else last[:1].lower() + last[1:]


def _joined(text: str) -> str:
    return re.sub(r"[\s_-]+", "", text)


def _without(header: str, start: int, end: int, text: str) -> Heading:
    """The heading without a unit; a ratio to that unit ("tokens_per_watt") is in none that is known."""
    if _PER.search(header[:start]):
        return Heading(header, f"per {text}")
    if _PER_SOMETHING.match(header[end:]):
        return Heading(header, f"{text} per ...")
    name = f"{header[:start].rstrip(' _.,/-')} {header[end:].strip()}".strip()
    return Heading(name, text, units.unit(text))
