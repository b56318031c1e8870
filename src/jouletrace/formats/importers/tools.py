"""Tools whose files are recognised by rows of data: what their columns mean, or what to log in place of them.

Each package that ``Wing.tables`` names has the rows of its tools in a file ``tools.toml``; the first that fits counts.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import HEAD_BYTES, decode_text
from jouletrace.wing import registered


@dataclass(frozen=True)
class KnownTool:
    r"""A row of data about a tool.

    Attributes:
        name: Its name.
        mark: Pattern by which the beginning of a file is recognised; "^" begins a line.
        what: What the file is; "a log of" the tool without it.
        instead: What to log or import in its place; "" if it is read.
        columns: Pattern of the heading of a column -> its target as of ``--map``, in which ``\1`` is the pattern's
            group; the first counts. What the group ``of`` names, such as a run, has its powers alone or is asked for.
        rows: Heading of a column -> pattern of its cells in rows that are read; others are left out.
        above: Whether the line above the headings is a part of them.
        ask: The mapping to give where ``columns`` name no time or power.
        printed: How values are printed, where the file is no table (of the reader of such files).
    """

    name: str
    mark: str
    what: str = ""
    instead: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, str] = field(default_factory=dict)
    above: bool = False
    ask: str = ""
    printed: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.what or f"a log of {self.name}"

    @property
    def asked(self) -> str:
        """One line that says whose table this is, and which mapping it needs."""
        return f"this is {self}: {self.ask}" if self.ask else ""

    def mapping(self, header: Sequence[str], path: Path) -> dict[str, str]:
        """The number of the column of each target.

        Raises:
            BadInputError: If several columns have a power, where one has it or each is of another whole.
        """
        fits: dict[str, list[tuple[str, str]]] = {}
        for pattern, target in self.columns.items():
            for number, name in enumerate(header, start=1):
                if match := re.fullmatch(pattern, name.strip()):
                    fits.setdefault(match.expand(target), []).append((str(number), match.groupdict().get("of") or ""))
        powers = {target: columns for target, columns in fits.items() if re.match(r"power_m?w\b", target)}
        wholes = {of: number for columns in powers.values() for number, of in columns}
        for target, columns in powers.items():
            numbers = [number for number, _ in columns] if len(columns) > 1 else list(wholes.values())
            if len(numbers) > 1:
                power = target.partition(":")[0]
                way = "choose one, --map {0}={1}, or of several devices --map {0}:0={1} --map {0}:1={2}"
                both = f"columns {' and '.join(numbers)} are powers in {self}: {way.format(power, *numbers)}"
                raise BadInputError(f"{path}: {both}")
        there = {"", *wholes}
        kept = {target: [n for n, of in columns if of in there or not powers] for target, columns in fits.items()}
        return {target: numbers[0] for target, numbers in kept.items() if numbers}


@cache
def tools() -> tuple[KnownTool, ...]:
    """The rows of all packages."""
    texts = (files(package).joinpath("tools.toml").read_text("utf-8") for package in registered("tables").values())
    return tuple(KnownTool(name, **facts) for text in texts for name, facts in tomllib.loads(text).items())


def tool_of(text: str) -> KnownTool:
    """The tool that wrote a file with this beginning; one without a name if no row knows it."""
    return next((tool for tool in tools() if re.search(tool.mark, text[:HEAD_BYTES], re.M)), KnownTool("", ""))


def advice(head: bytes) -> str:
    """One line that says which file this is and what to import in its place; "" of one that is read, or unknown."""
    tool = tool_of(decode_text(head))
    return f"this is {tool}, which isn't read: {tool.instead}" if tool.instead else ""
