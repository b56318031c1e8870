"""What a board was before it was divided, on disk before anything is changed: what ``restore`` goes back to."""

from __future__ import annotations

import json
import os
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jouletrace.errors import BadInputError
from jouletrace.mig.layout import Layout
from jouletrace.profiler.board_store import board_file
from jouletrace.profiler.journal import locked_journal, write_journal

VERSION = 1


@dataclass(frozen=True)
class Entry:
    """What is written down.

    Attributes:
        board: Id of the board.
        device: What the user called it.
        before: What it was before jouletrace first changed it.
        target: What it is to become.
        time_ns: When that began, since the Unix epoch.
        pid: Who did it.
    """

    board: str
    device: str
    before: Layout
    target: Layout
    time_ns: int
    pid: int


def path_of(board: str) -> Path:
    """Where the journal of a board is."""
    return board_file(board, "-mig-journal.json")


def write(board: str, device: str, before: Layout, target: Layout) -> Entry:
    """Write it down, on the disk when this returns. An older entry's ``before`` is kept.

    Raises:
        NotPossibleError: If it can't be written: then nothing may be changed.
    """
    older = read(board)
    entry = Entry(board, device, older.before if older else before, target, time.time_ns(), os.getpid())
    path = path_of(board)
    data: dict[str, Any] = {
        "version": VERSION,
        "board": entry.board,
        "device": entry.device,
        "before": entry.before.to_dict(),
        "target": entry.target.to_dict(),
        "time_ns": entry.time_ns,
        "pid": entry.pid,
    }
    write_journal(path, data)
    return entry


def read(board: str) -> Entry | None:
    """What was written down; None if nothing was.

    Raises:
        BadInputError: If it can't be read: whoever overwrote it would lose the old layout.
    """
    path = path_of(board)
    try:
        data = json.loads(path.read_text())
        if data["version"] != VERSION:
            raise ValueError(f"version {data['version']}")
        before, target = Layout.from_dict(data["before"]), Layout.from_dict(data["target"])
        return Entry(str(data["board"]), str(data["device"]), before, target, int(data["time_ns"]), int(data["pid"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"the MIG journal {path} can't be read ({error}); look at it, then remove it") from None


def forget(board: str) -> None:
    """The board is as it was: nothing to go back to."""
    with suppress(FileNotFoundError):
        path_of(board).unlink()


def locked(board: str) -> AbstractContextManager[None]:
    """Nobody else divides this board meanwhile; ends with the process, however that ends.

    Raises:
        NotPossibleError: If somebody does.
    """
    return locked_journal(path_of(board), f"dividing {board}")
