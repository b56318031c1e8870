"""The parts of the output of ``nvprof``, each under its own header, between lines of messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from jouletrace.formats.importers import units
from jouletrace.formats.importers.delimited import rejoined, split_row
from jouletrace.formats.importers.numbers import plain_number

COMMAND = re.compile(r"^=+\d*=+ (?:NVPROF is profiling process \d+, command|Profiling application): (.+)$", re.M)

_KINDS = (
    ("summary", re.compile(r"^\W*(Type\W+)?Time\(%\)\W+Time\W+Calls\W")),
    ("metrics", re.compile(r"^\W*(Device\W+Kernel\W+)?Invocations\W+(Metric|Event) Name")),
    ("trace", re.compile(r"^\W*Start\W+Duration\W")),
)
_MESSAGE = re.compile(r"^=+\d*=+ ")


@dataclass
class Section:
    """A header and the lines under it.

    Attributes:
        kind: "summary", "metrics" or "trace".
        header: The header's line.
        title: The message above it ("Profiling result:", "API calls:").
        csv: Whether cells are separated by commas.
        lines: Line number and text of each line under it.
    """

    kind: str
    header: str
    title: str
    csv: bool
    lines: list[tuple[int, str]] = field(default_factory=list)

    def rows(self, *forms: re.Pattern[str]) -> Iterator[tuple[int, str, dict[str, str] | None]]:
        """Line, text and cells of each row, by the names of the columns in lower case; None for other lines.

        Cells of CSV get their unit from the row of units; those of text are the groups of the first of ``forms``
        that matches.
        """
        if not self.csv:
            for line, text in self.lines:
                found = next(filter(None, (form.match(text) for form in forms)), None)
                yield line, text, {key: cell or "" for key, cell in found.groupdict().items()} if found else None
            return
        names = [name.strip().lower() for name in split_row(self.header) or []]
        kernel = next((names.index(name) for name in ("name", "kernel") if name in names), None)
        stated = [""] * len(names)
        for line, text in self.lines:
            cells = [cell.strip() for cell in rejoined(split_row(text) or [], len(names), kernel)]
            if not cells or len(cells) != len(names):
                yield line, text, None
            elif _is_units(cells):
                stated = cells
            else:
                yield line, text, dict(zip(names, map(_with_unit, cells, stated), strict=True))


def sections(text: str) -> Iterator[Section]:
    """The sections of a file, in order."""
    section: Section | None = None
    title = ""
    for number, line in enumerate(text.split("\n"), start=1):
        row = line.rstrip("\r")
        kind = next((name for name, header in _KINDS if header.match(row)), None)
        if _MESSAGE.match(row):
            title = _MESSAGE.sub("", row).strip()
            if section is not None and title.lower().startswith(
                ("warning", "error", "profiling app", "nvprof is", "some kernel")
            ):
                continue  # between the rows of a section
            if section is not None:
                yield section
            section = None
        elif kind is not None:
            if section is not None:
                yield section
            section = Section(kind, row, title, row.count(",") >= 3)
        elif section is not None and row.strip():
            section.lines.append((number, row))
    if section is not None:
        yield section


def _is_units(cells: list[str]) -> bool:
    """Whether a row of a table holds the units of its columns."""
    filled = [cell for cell in cells if cell]
    return bool(filled) and all(units.unit(cell.partition("/")[0]) or units.unit(cell) for cell in filled)


def _with_unit(cell: str, unit: str) -> str:
    """A cell with the unit of its column; for "295702/300000", the draw and the limit, both get it."""
    if not unit or not cell:
        return cell
    if "/" in cell:
        return "/".join(f"{part}{unit.partition('/')[0]}" for part in cell.split("/"))
    return cell if units.split(cell)[1] else f"{cell}{unit}"


def seconds(cell: str) -> float | None:
    """A time such as "1.6670us", or a number; None if it is neither."""
    return quantity(cell, "s")


def quantity(cell: str, wanted: str, usual: str = "") -> float | None:
    """A printed quantity in the SI unit ``wanted``; None if it isn't a number or is of another kind.

    ``usual`` is the unit of a number without one.
    """
    digits, own = units.split(cell)
    found = units.unit(own or usual)
    if found is None or found.si not in (wanted, "1"):
        return None
    value = plain_number(digits)
    return None if value is None else value * found.factor
