"""The driver's own power record, a ring of samples that is gapless where the GPU keeps a good one; its energy counter.

On an H100 the ring holds 119 readings 20 ms apart, 2.4 s in all, and one call per second reads everything. What a
reading is of, momentary samples and their recursive average, is in ``sensor.kinds``. Other GPUs keep other data there,
so the contents of the ring are checked before they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jouletrace.arrays import Ints
from jouletrace.devices.base import Clock, Samples, one_sample
from jouletrace.devices.nvml.api import NothingNew, Nvml, Unavailable
from jouletrace.errors import NotPossibleError
from jouletrace.run import ChannelInfo
from jouletrace.run.channels import GAIN_PCT, POWER
from jouletrace.sensor.kinds import KINDS, PowerField

RING_CALL = "nvmlDeviceGetSamples(NVML_TOTAL_POWER_SAMPLES)"
INTERVAL_S = 1.0
"""Less than half of the ring, so that one late call loses nothing."""

_SET_US = 10_000
"""The driver stamps by the host's clock, which has been set if it moves so far against ours."""

_TOTAL_POWER_SAMPLES = 0
_MIN_SAMPLES = 10
_MAX_PERIOD_S = 0.05
_MAX_AGE_S = 1.0
_REFILL_S = 0.4
_MAX_FAILURES = 3


@dataclass(frozen=True)
class RingCheck:
    """Properties of the ring's contents.

    Attributes:
        usable: Whether it is a gapless record fine enough to compute energy from.
        period_s: Median spacing of its stamps; None with fewer than two samples.
        span_s: Seconds from its oldest to its newest sample.
        unbroken: Number of samples since the last hole.
        reason: Why it isn't usable, or "".
    """

    usable: bool
    period_s: float | None = None
    span_s: float = 0.0
    unbroken: int = 0
    reason: str = ""


class RingRecord:
    """The ring as a source: each poll returns the samples since the last poll.

    The first poll returns the ring's contents, up to 2.4 s from before the start. Stamps are those of ``clock``, also
    after the host's was set.
    """

    interval_s = INTERVAL_S

    def __init__(
        self, nvml: Nvml, handle: Any, device: str, period_s: float | None, behind: tuple[str, PowerField], clock: Clock
    ) -> None:
        sensor, kind = behind
        window_s = period_s if KINDS[sensor].sampler else kind.window_s
        self.channels: tuple[ChannelInfo, ...] = (
            ChannelInfo(
                device=device,
                name=POWER,
                unit="W",
                source=RING_CALL,
                sensor=sensor,
                period_s=period_s,
                window_s=window_s,
                sampling_s=kind.sampling_s,
                gapless=(window_s or 0.0) >= 0.9 * (period_s or 0.0),
                gain_pct=kind.gain_pct,
            ),
        )
        self._nvml = nvml
        self._handle = handle
        self._device = device
        self._clock = clock
        self._last_us = self._until_us = self._ahead_us = 0
        self._failures = 0

    def poll(self) -> list[Samples]:
        """Samples since the last poll.

        Raises:
            NotPossibleError: If the GPU is gone, or three polls in succession fail (the ring has
                overrun by then).
        """
        ahead_us = self._clock.ahead_ns() // 1000
        ahead_us = self._ahead_us if abs(ahead_us - self._ahead_us) < _SET_US else ahead_us
        after_us = min(self._last_us, self._last_us + ahead_us - self._ahead_us)
        try:
            new = self._nvml.samples(self._handle, _TOTAL_POWER_SAMPLES, max(after_us, 0))
        except NothingNew:
            new = []
        except Unavailable as error:
            self._failures += 1
            if self._failures >= _MAX_FAILURES:
                raise NotPossibleError(f"the power record of {self._device} can't be read any more: {error}") from None
            return []
        self._failures = 0
        if not new:
            return []
        self._last_us = new[-1][0]
        stamps = np.array([stamp for stamp, _ in new], dtype=np.int64)
        watts = np.array([milliwatts for _, milliwatts in new]) / 1e3
        latest_us = self._clock.time_ns() // 1000 + round(1e6 * _MAX_AGE_S)
        ours = stamps - ahead_us
        if ahead_us != self._ahead_us:  # it was set before some of these samples
            ours = np.where((self._until_us < ours) & (ours < latest_us), ours, stamps - self._ahead_us)
            kept = (self._until_us < ours) & (ours < latest_us)
            ours, watts, self._ahead_us = ours[kept], watts[kept], ahead_us
        self._until_us = int(ours[-1]) if len(ours) else self._until_us
        return [Samples(POWER, ours * 1000, watts)]


def check_ring(nvml: Nvml, handle: Any, clock: Clock) -> RingCheck:
    """Check the present contents of the ring.

    A ring that has only begun to fill (the driver starts it with its first client) is checked again
    after a moment.

    Raises:
        NotPossibleError: If the GPU is gone.
    """

    def look() -> RingCheck:
        try:
            samples = nvml.samples(handle, _TOTAL_POWER_SAMPLES, 0)
        except NothingNew:
            return RingCheck(False, reason="the driver's ring of power samples is empty")
        except Unavailable as error:
            return RingCheck(False, reason=str(error))
        now_us = (clock.time_ns() + clock.ahead_ns()) // 1000  # the driver's clock
        return judge(np.array([stamp for stamp, _ in samples], dtype=np.int64), now_us)

    check = look()
    if not check.usable and 2 <= check.unbroken < _MIN_SAMPLES:
        clock.sleep(_REFILL_S)
        check = look()
    return check


def judge(stamps_us: Ints, now_us: int) -> RingCheck:
    """True if stamps are those of a gapless record: dense, without holes and up to date.

    Args:
        stamps_us: Stamps in the ring, ascending, shape (n,), in µs since the epoch.
        now_us: The time at which they were read.
    """
    if len(stamps_us) < 2:
        return RingCheck(False, reason=f"the driver's ring holds {len(stamps_us)} power samples")
    steps_s = np.diff(stamps_us) / 1e6
    period_s = round(float(np.median(steps_s)), 3)
    span_s = float(stamps_us[-1] - stamps_us[0]) / 1e6
    holes = np.flatnonzero(steps_s > max(3 * period_s, _MAX_PERIOD_S))
    unbroken = len(stamps_us) - (int(holes[-1]) + 1 if len(holes) else 0)
    age_s = (now_us - int(stamps_us[-1])) / 1e6
    reason = ""
    if period_s >= _MAX_PERIOD_S:
        reason = f"the samples in the driver's ring are {period_s * 1e3:.0f} ms apart"
    elif abs(age_s) > _MAX_AGE_S:
        reason = f"the newest sample in the driver's ring is {age_s:.1f} s old"
    elif unbroken < _MIN_SAMPLES:
        reason = f"the driver's ring has only {unbroken} samples since its last hole"
    return RingCheck(not reason, period_s, span_s, unbroken, reason)


COUNTER_CALL = "nvmlDeviceGetTotalEnergyConsumption"

_REST_S = 5.0
_LOCATE_S = 0.025
_LOCATE_READS = 10
_READ_S = 0.02
"""Reads that took longer, and twice as long as the fastest, lie anywhere in that time: the host was busy."""


def read_counter(nvml: Nvml, handle: Any) -> float:
    """Joules since the driver was loaded.

    Raises:
        Unavailable, NotPossibleError: As ``Nvml.call``.
    """
    return float(nvml.call(COUNTER_CALL, handle)) / 1e3


class EnergyCounter:
    """Reads the counter in short bursts, each until the counter steps, with pauses of seconds in between.

    A reading at an unknown point between two steps is off by up to 100 ms of power. Two readings 25 ms apart on
    both sides of a step bound the time at which the counter took its value. More frequent reads aren't worth their
    cost: a read keeps a core busy for 3 ms. ``interval_s`` contains the pause and changes after each poll. A poll
    before the end of a pause (at the end of a recording) begins a burst too.
    """

    def __init__(self, nvml: Nvml, handle: Any, device: str, clock: Clock) -> None:
        self.interval_s = _LOCATE_S
        self.channels: tuple[ChannelInfo, ...] = (
            ChannelInfo(
                device=device,
                name="energy_counter_j",
                unit="J",
                source=COUNTER_CALL,
                period_s=0.1,
                window_s=0.0,
                gapless=True,
                gain_pct=GAIN_PCT,
            ),
        )
        self._nvml = nvml
        self._handle = handle
        self._clock = clock
        self._previous: float | None = None
        self._reads = 0
        self._fastest_ns = 2**63

    def poll(self) -> list[Samples]:
        """One reading; none if the host was too busy to say when it was.

        Raises:
            NotPossibleError: If the GPU is gone.
        """
        before = self._clock.time_ns()
        try:
            value = read_counter(self._nvml, self._handle)
        except Unavailable:
            return []
        after = self._clock.time_ns()
        self._fastest_ns = min(self._fastest_ns, after - before)
        late = after - before > max(_READ_S * 1e9, 2 * self._fastest_ns)
        stepped = not late and self._previous is not None and value != self._previous
        self._reads += 1
        if stepped or self._reads >= _LOCATE_READS:
            self.interval_s, self._previous, self._reads = _REST_S, None, 0
        else:
            self.interval_s, self._previous = _LOCATE_S, self._previous if late else value
        return [] if late else [one_sample("energy_counter_j", (before + after) // 2, value)]
