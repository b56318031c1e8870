"""The result of a campaign, from its folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from jouletrace.campaign import sweep, tune
from jouletrace.campaign.limits import judged, parse_limits
from jouletrace.campaign.loop import RESULT
from jouletrace.errors import BadInputError
from jouletrace.report import sweep as sweep_report
from jouletrace.report import tune as tune_report
from jouletrace.run import load
from jouletrace.run.files import RUN_JSON, shown


def printed(folder: Path, form: str, *, colour: bool = False) -> tuple[str, Path] | None:
    """The result of a sweep or a tune as its command printed it, and where its Runs are; None if there is none.

    Raises:
        BadInputError: If it can't be read, or there is no such format.
    """
    path = folder / RESULT
    if not path.is_file():
        return None
    try:
        if (folder / sweep.SETTINGS).is_file():
            entries = _entries(json.loads(path.read_bytes()), folder)
            return sweep_report.render(entries, form, colour=colour), folder / sweep.POINTS
        if (folder / tune.CLAIM).is_file():
            found = tune_report.from_dict(json.loads(path.read_bytes()), folder)
            return tune_report.render(found, form, colour=colour), folder / tune.VISITS
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise BadInputError(f"{shown(path)} can't be read: {error}") from None
    return None


def _entries(stated: dict[str, Any], folder: Path) -> list[sweep_report.Entry]:
    """The points of a sweep, with the Runs that are in its folder."""
    entries = []
    for one in stated["points"]:
        place = folder.absolute() / sweep.POINTS / Path(one["run"]).name
        run = load(place) if (place / RUN_JSON).is_file() else None
        entry = sweep_report.Entry(one["point"], one["outcome"], one["reason"] or "", str(place), run)
        entries.append(replace(entry, read=one.get("read", {}), not_taken=one.get("not_in_force") or ""))
    return judged(entries, parse_limits(stated.get("limit")))
