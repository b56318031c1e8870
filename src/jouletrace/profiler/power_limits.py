"""Temporary changes of a GPU's power limit: the earlier limit is on disk first, and is always restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jouletrace.devices import open_device
from jouletrace.devices.power_limit import PowerLimiter
from jouletrace.errors import BadInputError
from jouletrace.processes.locks import Hold, hold, journal_of
from jouletrace.profiler.board_store import cache_folder

CHANGE = "power_limit"
"""Name of the change in the journal."""


def open_limiter(device: str) -> PowerLimiter:
    """The power limit of a GPU.

    Raises:
        BadInputError: If there is no such device, or it has no separate power limit.
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
        raise BadInputError(f"--power-limit on {device}: only a whole GPU has a power limit")
    from jouletrace.devices.nvml.power_limit import NvmlPowerLimit

    return NvmlPowerLimit(info.id)


def restore(limiter: PowerLimiter) -> float | None:
    """Restore the limit that a killed run has left changed; returns the limit in watts, or None if none was left.

    Raises:
        BadInputError: If the journal can't be read.
        NotPossibleError: If another jouletrace changes this GPU, or the limit can't be set: the journal is kept.
    """
    with hold(limiter.info, "restoring the power limit of") as held:
        return _restore(held, limiter)


@contextmanager
def changing(limiter: PowerLimiter, device: str) -> Iterator[None]:
    """Restore the GPU's power limit at the end of the context, also after an exception, Ctrl-C and ``kill -9``.

    A change that an earlier run has left is undone first.

    Args:
        limiter: The GPU's power limit.
        device: The user's name for the GPU.

    Raises:
        NotPossibleError: If another jouletrace changes this GPU, or the journal can't be written.
        BadInputError: If the journal of an earlier run can't be read.
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
    """Restore the limit of a GPU whose holder has died; for ``watcher``."""
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
        raise BadInputError(f"the journal {path} holds no power limit; inspect it, then remove it") from None
    if limiter.limit_w() != before:
        limiter.set_limit(before)
    held.forget(CHANGE)
    return before
