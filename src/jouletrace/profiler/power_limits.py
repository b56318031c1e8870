"""Changing a GPU's power limit for a while: what it was is on disk first, and comes back however this ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jouletrace.devices import open_device
from jouletrace.devices.power_limit import PowerLimiter
from jouletrace.errors import BadInputError
from jouletrace.processes.locks import Hold, hold, journal_of
from jouletrace.profiler.board_store import cache_folder

CHANGE = "power_limit"
"""By this name it is in the journal."""


def open_limiter(device: str) -> PowerLimiter:
    """The power limit of a board.

    Raises:
        BadInputError: If there is no such device, or it has no limit of its own.
        NotPossibleError: If the driver is missing.
    """
    if device.startswith("sim:"):
        from jouletrace.simulator.boards.power_limit import SimulatedPowerLimit

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
        NotPossibleError: If another jouletrace changes this GPU, or the limit can't be set: what was written down
            is kept.
    """
    with hold(limiter.info, "bringing back the power limit of") as held:
        return _restore(held, limiter)


@contextmanager
def changing(limiter: PowerLimiter, device: str) -> Iterator[None]:
    """What is set on the GPU meanwhile is taken back at the end, after an exception, Ctrl-C and ``kill -9`` too.

    What an earlier run has left changed is taken back first.

    Args:
        limiter: The GPU's.
        device: What the user calls the GPU.

    Raises:
        NotPossibleError: If another jouletrace changes this GPU, or nothing can be written down.
        BadInputError: If what an earlier run has written down can't be read.
    """
    opens = device if limiter.info.simulated else limiter.info.id
    by_hand = f"jouletrace sweep --restore --device {device}"
    with hold(limiter.info, "changing the power limit of") as held:
        _restore(held, limiter)
        with held.watched("jouletrace.profiler.power_limits:put_back", by_hand, device=opens) as watch:
            held.note(CHANGE, {"before_w": limiter.limit_w()})
            try:
                yield
            finally:
                _restore(held, limiter)
                watch.done()


def put_back(held: Hold, device: str) -> str | None:
    """Bring back the limit of a GPU whose holder has died; for ``watcher``."""
    limiter = open_limiter(device)
    try:
        before = _restore(held, limiter)
    finally:
        limiter.close()
    return None if before is None else f"its power limit is {before:g} W again"


def _restore(held: Hold, limiter: PowerLimiter) -> float | None:
    entry = held.noted(CHANGE)
    if entry is None:
        return None
    try:
        before = float(entry["before_w"])
    except (KeyError, TypeError, ValueError):
        path = journal_of(limiter.info)
        raise BadInputError(f"the journal {path} holds no power limit; look at it, then remove it") from None
    if limiter.limit_w() != before:
        limiter.set_limit(before)
    held.forget(CHANGE)
    return before
