"""Temporary changes of a GPU's power limit: the earlier limit is on disk first, and is always restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from jouletrace.devices import open_device
from jouletrace.devices.nvml.gpu import NvmlGpu
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.processes.locks import Hold, hold, journal_of
from jouletrace.run import DeviceInfo

CHANGE = "power_limit"
"""Name of the change in the journal."""


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


def open_limiter(device: str) -> NvmlGpu:
    """The GPU whose power limit is to change.

    Raises:
        BadInputError: If there is no such device, or it has no separate power limit.
        NotPossibleError: If the driver is missing.
    """
    opened = open_device(device)
    if isinstance(opened, NvmlGpu) and opened.info.kind == "gpu":
        return opened
    opened.close()
    raise BadInputError(f"--power-limit on {device}: only a whole GPU has a power limit")


def restore_limit(device: str) -> float | None:
    """Restore the limit that a killed sweep has left changed; returns the limit in watts, or None if none was left.

    Raises:
        BadInputError: If the journal can't be read.
        NotPossibleError: If another jouletrace changes this GPU, or the limit can't be set: the journal is kept.
    """
    with closing(open_limiter(device)) as limiter, hold(limiter.info, "restoring the power limit of") as held:
        return _restore(held, limiter)


@contextmanager
def changing(limiter: NvmlGpu, device: str) -> Iterator[None]:
    """Restore the GPU's power limit at the end of the context, also after an exception, Ctrl-C and ``kill -9``.

    A change that an earlier run has left is undone first. ``device`` is the user's name for the GPU.

    Raises:
        NotPossibleError: If another jouletrace changes this GPU, or the journal can't be written.
        BadInputError: If the journal of an earlier run can't be read.
    """
    by_hand = f"jouletrace sweep --restore --device {device}"
    with hold(limiter.info, "changing the power limit of") as held:
        _restore(held, limiter)
        with held.watched("jouletrace.profiler.power_limits:put_back", by_hand, device=limiter.spec) as watch:
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


def _restore(held: Hold, limiter: NvmlGpu) -> float | None:
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
