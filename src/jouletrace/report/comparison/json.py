"""A comparison as one JSON object: every row, whatever is listed elsewhere."""

from __future__ import annotations

import json

from jouletrace.report.comparison.data import Comparison
from jouletrace.run.header import jsonable


def render(found: Comparison, *, top: int = 10) -> str:
    """All rows; ``top`` is for people."""
    return json.dumps(jsonable(found.to_dict()), indent=2, allow_nan=False) + "\n"
