"""JSON for other programs: the object of ``report.contract``, or a list of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from jouletrace.report.contract import to_json_object
from jouletrace.run import Run


def render(run: Run, *, detail: str = "model", top: int | None = None) -> str:
    """One Run as one JSON object. It holds all that the Run does, whatever ``detail``."""
    return json.dumps(to_json_object(run, top=top), indent=2, allow_nan=False) + "\n"


def render_many(runs: Sequence[Run], *, detail: str = "model", top: int | None = None) -> str:
    """Several Runs as a JSON array of objects."""
    return json.dumps([to_json_object(run, top=top) for run in runs], indent=2, allow_nan=False) + "\n"
