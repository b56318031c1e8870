"""Temporary changes of a GPU's power limit: the earlier limit is on disk first, and is always restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Protocol

from jouletrace.devices import open_device
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.processes.locks import Hold, hold, journal_of
from jouletrace.run import DeviceInfo
from jouletrace.run.files import cache_folder

CHANGE = "power_limit"
"""Name of the change in the journal."""


class PowerLimiter(Protocol):
    """The power limit of one GPU, in watts; ``NotPossibleError`` if it can't be read or set."""

    info: DeviceInfo

    def limit_w(self) -> float:
        """The limit in force."""

    def set_limit(self, watts: float) -> None:
        """Set the limit for all users of the GPU."""

    def spec(self, device: str) -> str:
        """The spec that opens ``device`` in a new process at the limit in force."""

    def close(self) -> None:
        """Release the driver's library; the limit stays."""


def check_limit(info: DeviceInfo, watts: float) -> None:
    """Refuse a limit that the GPU doesn't allow.

    Raises:
        BadInputError: If the limit is outside the permitted range, which the message states.
        NotPossibleError: If the GPU has no adjustable limit.
    """
    low, high = info.power_limits_w.get("min"), info.power_limits_w.get("max")
    if low is None or high is None:
        raise NotPossibleError(f"{info.name} has no adjustable power limit")
    if not low <= watts <= high:
        raise BadInputError(f"--power-limit {watts:g}: {info.name} allows {low:g} to {high:g} W")


def open_limiter(device: str) -> PowerLimiter:
    """The power limit of a GPU.

    Raises:
        BadInputError: If there is no such device, or it has no separate power limit.
        NotPossibleError: If the driver is missing.
    """
    if device.startswith("sim:"):
        from jouletrace.simulator.boards.device import SimulatedPowerLimit

        name = "".join(c if c.isalnum() else "_" for c in device.partition("?")[0])
        return SimulatedPowerLimit(device, cache_folder() / f"{name}-power-limit-state.json")
    with closing(open_device(device)) as opened:
        info = opened.info
    if info.kind != "gpu":
        raise BadInputError(f"--power-limit on {device}: only a whole GPU has a power limit")
    from jouletrace.devices.nvml.identity import NvmlPowerLimit

    return NvmlPowerLimit(info.id)


def restore_limit(device: str) -> float | None:
    """Restore the limit that a killed sweep has left changed; returns the limit in watts, or None if none was left.

    Raises:
        BadInputError: If the journal can't be read.
        NotPossibleError: If another jouletrace changes this GPU, or the limit can't be set: the journal is kept.
    """
    with closing(open_limiter(device)) as limiter, hold(limiter.info, "restoring the power limit of") as held:
        return _restore(held, limiter)


@contextmanager
def changing(limiter: PowerLimiter, device: str) -> Iterator[None]:
    """Restore the GPU's power limit at the end of the context, also after an exception, Ctrl-C and ``kill -9``.

    A change that an earlier run has left is undone first. ``device`` is the user's name for the GPU.

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
    with closing(open_limiter(device)) as limiter:
        before = _restore(held, limiter)
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
