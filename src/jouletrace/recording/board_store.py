"""Facts about a GPU that are kept between runs: its calibration, its deep idle power.

The user's cache folder holds one JSON file per GPU, named by UUID. A lost file costs only the time to measure again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from jouletrace.run.files import cache_folder, write_whole

T = TypeVar("T")


def board_file(device: str) -> Path:
    """The file of a GPU in the cache folder."""
    return cache_folder() / f"{''.join(c if c.isalnum() or c in '-_' else '_' for c in device)}.json"


def recall(device: str) -> dict[str, Any]:
    """All facts stored about a GPU; empty if there are none, or if the file can't be read."""
    try:
        stored = json.loads(board_file(device).read_text())
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def recall_as(form: type[T], device: str, name: str) -> T | None:
    """A fact stored about a GPU; None if there is none, or if it has another form."""
    stored: T | None = recall(device).get(name)
    try:
        msgspec.convert(stored, form)
    except msgspec.ValidationError:
        return None
    return stored


def remember(device: str, **facts: Any) -> bool:
    """Store facts about a GPU, replacing those of the same name, removing those that are None; False if it can't."""
    path = board_file(device)
    try:
        kept = {name: fact for name, fact in {**recall(device), **facts}.items() if fact is not None}
        write_whole(path, json.dumps(kept, indent=1).encode())
    except OSError:
        return False
    return True
