"""JSON for other programs: the object of ``report.contract``, or a list of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest

from jouletrace.report.comparison.data import Comparison
from jouletrace.report.contract import to_json_object
from jouletrace.run import Run


def render(run: Run, *, detail: str = "model", top: int | None = None, compared: Comparison | None = None) -> str:
    """One Run as one JSON object. It holds all that the Run does, whatever ``detail``."""
    return json.dumps(to_json_object(run, top=top, compared=compared), indent=2, allow_nan=False) + "\n"


def render_many(
    runs: Sequence[Run],
    *,
    detail: str = "model",
    top: int | None = None,
    compared: Sequence[Comparison | None] = (),
) -> str:
    """Several Runs as a JSON array of objects."""
    found = [to_json_object(run, top=top, compared=one) for run, one in zip_longest(runs, compared)]
    return json.dumps(found, indent=2, allow_nan=False) + "\n"
