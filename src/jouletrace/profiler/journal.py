"""Writing down what a board was like before it is changed, so that even a crash leaves the way back."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from jouletrace.errors import NotPossibleError


def write_journal(path: Path, data: Mapping[str, object]) -> None:
    """Write it down, whole or not at all, and on the disk when this returns.

    Raises:
        NotPossibleError: If it can't be written: then nothing may be changed.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w") as file:
            json.dump(data, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise NotPossibleError(f"the journal {path} can't be written ({error.strerror}): nothing was changed") from None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
