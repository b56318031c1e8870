"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jouletrace.errors import BadInputError

DEVICE_HELP = 'auto, cuda:N, a GPU or MIG UUID, cpu, or sim:NAME for a simulated board ("sim:h100").'

Device = Annotated[str, typer.Option("--device", "-d", help=DEVICE_HELP)]
Json = Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")]
Format = Annotated[str, typer.Option("--format", "-f", help="table, json, csv, markdown or latex.")]
Detail = Annotated[str, typer.Option("--detail", help="model, phase, layer or kernel.")]
Top = Annotated[int | None, typer.Option("--top", min=1, help="Only the N rows with the most energy.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Where the Run goes: a folder, or a .zip. [default: under runs/]")
]


def parse_percent(text: str, option: str) -> float:
    """A share: "1%" or "0.01" give 0.01.

    Raises:
        BadInputError: If it is neither.
    """
    try:
        return float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise BadInputError(f"{option} {text!r}: write a percentage such as 1%") from None


def parse_pairs(pairs: list[str], option: str) -> dict[str, str]:
    """``["a=1", "b=2"]`` as a dictionary.

    Raises:
        BadInputError: If one has no "=".
    """
    found = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise BadInputError(f"{option} {pair!r}: write KEY=VALUE")
        found[key] = value
    return found
