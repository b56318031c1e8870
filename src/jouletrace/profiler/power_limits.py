"""Changing a board's power limit for a while: what it was is on disk first, and comes back however this ends."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jouletrace.devices import open_device
from jouletrace.devices.power_limit import PowerLimiter
from jouletrace.errors import BadInputError
from jouletrace.profiler.board_store import board_file, cache_folder
from jouletrace.profiler.journal import locked_journal, write_journal


def open_limiter(device: str) -> PowerLimiter:
    """The power limit of a board.

    Raises:
        BadInputError: If there is no such device, or it has no limit of its own.
        NotPossibleError: If the driver is missing.
    """
    if device.startswith("sim:"):
        from jouletrace.devices.simulated.power_limit import SimulatedPowerLimit

        name = "".join(c if c.isalnum() else "_" for c in device.partition("?")[0])
        return SimulatedPowerLimit(device, cache_folder() / f"{name}-power-limit-state.json")
    opened = open_device(device)
    try:
        info = opened.info
    finally:
        opened.close()
    if info.kind != "gpu":
        raise BadInputError(f"--power-limit on {device}: only a whole GPU has a power limit of its own")
    from jouletrace.devices.nvml.power_limit import NvmlPowerLimit

    return NvmlPowerLimit(info.id)


def restore(limiter: PowerLimiter) -> float | None:
    """Bring back the limit that a run that was killed has left changed; the limit, or None if there is none.

    Raises:
        BadInputError: If what was written down can't be read.
        NotPossibleError: If it can't be set; what was written down is kept.
    """
    before = _read(limiter.info.id)
    if before is None:
        return None
    limiter.set_limit(before)
    journal_of(limiter.info.id).unlink()
    return before


@contextmanager
def changing(limiter: PowerLimiter) -> Iterator[None]:
    """What is set on the board meanwhile is taken back at the end, after an exception and Ctrl-C too.

    After a crash ``restore`` does it: what the limit was is on the disk before this yields.

    Raises:
        NotPossibleError: If another jouletrace changes this board's limit, or nothing can be written down.
        BadInputError: If an earlier change has not been taken back.
    """
    board = limiter.info.id
    with locked_journal(journal_of(board), f"changing the power limit of {board}"):
        if _read(board) is not None:
            raise BadInputError(f"an earlier change of the power limit of {board} has not been taken back yet")
        before = limiter.limit_w()
        _write(board, before)
        try:
            yield
        finally:
            limiter.set_limit(before)
            journal_of(board).unlink(missing_ok=True)


def journal_of(board: str) -> Path:
    """Where what the limit was is written down."""
    return board_file(board, "-power-limit-journal.json")


def _read(board: str) -> float | None:
    path = journal_of(board)
    try:
        return float(json.loads(path.read_text())["before_w"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"the journal {path} can't be read ({error}); look at it, then remove it") from None


def _write(board: str, before_w: float) -> None:
    path = journal_of(board)
    data = {"board": board, "before_w": before_w, "time_ns": time.time_ns(), "pid": os.getpid()}
    write_journal(path, data)
