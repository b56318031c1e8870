"""A GPU of another machine, by the page that ``jouletrace monitor --serve`` serves there.

The page holds the energy that the monitor has summed from the GPU's own record, and the time until which it has: its
differences are mean powers without gaps, however late a poll comes. The other machine's clock is compared with this
one's by round trips to the page, as NTP does; half of the shortest one bounds the error.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np

from jouletrace.devices.base import Capability, Clock, Process, RealClock, Samples, Source, Vendor, one_sample
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.prometheus import families
from jouletrace.run import ChannelInfo, DeviceInfo
from jouletrace.run.channels import CHANNEL_UNITS, GAIN_PCT, POWER
from jouletrace.web import fetch

TIMEOUT_S, PATIENCE_S = 5.0, 15.0
"""Of one answer, and of the page's next update when it is opened."""

ROUND_TRIPS = 20
_SLEW_S = 0.005
"""Clocks that time daemons keep may move by so much against each other."""

_ENERGY, _UNTIL, _NOW = "energy_joules_total", "energy_timestamp_seconds", "time_seconds"
_GAUGES = {
    "clock_sm_mhz": ("sm_clock_hertz", 1e-6),
    "temperature_c": ("temperature_celsius", 1.0),
    "throttle_bits": ("throttle_reasons", 1.0),
}


@dataclass(frozen=True)
class Scrape:
    """The page at one time.

    Attributes:
        values: By metric and UUID ("" for what belongs to no GPU).
        labels: Of each GPU, by UUID.
        before_ns, after_ns: On this machine's clock, around the answer.
    """

    values: Mapping[tuple[str, str], float]
    labels: Mapping[str, Mapping[str, str]]
    before_ns: int
    after_ns: int

    @property
    def offset_s(self) -> float:
        """The other clock minus this one's."""
        return self.values[_NOW, ""] - (self.before_ns + self.after_ns) / 2e9

    @property
    def error_s(self) -> float:
        """Bound of the offset's error."""
        return (self.after_ns - self.before_ns) / 2e9


def scrape(url: str) -> Scrape:
    """Read the page.

    Raises:
        NotPossibleError: If there is no answer, or it isn't the page of a monitor.
    """
    parts = urlsplit(url)
    before = time.time_ns()
    try:
        text = fetch(url if parts.path.strip("/") else parts._replace(path="/metrics").geturl(), TIMEOUT_S)
    except OSError as error:
        raise NotPossibleError(str(error)) from None
    after = time.time_ns()
    values: dict[tuple[str, str], float] = {}
    labels: dict[str, Mapping[str, str]] = {}
    for sample in (one for family in families(text, ["jouletrace_"]) for one in family.samples):
        uuid = sample.labels.get("uuid", "")
        values[sample.name.removeprefix("jouletrace_"), uuid] = sample.value
        if uuid:
            labels[uuid] = sample.labels
    if (_NOW, "") not in values:
        raise NotPossibleError(f"{url} is not a page of `jouletrace monitor --serve` of this version")
    return Scrape(values, labels, before, after)


def offset(url: str) -> tuple[float, float]:
    """The other clock minus this one's, and a bound of its error, in seconds, by the shortest of several round trips.

    Raises:
        NotPossibleError: As of ``scrape``.
    """
    best = min((scrape(url) for _ in range(ROUND_TRIPS)), key=lambda one: one.error_s)
    return best.offset_s, best.error_s


class RemoteGpu:
    """A GPU on the page of a monitor.

    Args:
        spec: URL of the page; ``URL#GPU`` with its index or the beginning of its UUID, if it has several.

    Raises:
        BadInputError: If the page has no such GPU.
        NotPossibleError: If the page can't be read, or isn't updated.
    """

    def __init__(self, spec: str) -> None:
        self.url, _, wanted = spec.partition("#")
        first = scrape(self.url)
        uuid = _chosen(first, wanted, self.url)
        labels = first.labels[uuid]
        self.clock: Clock = RealClock()
        self.spec = f"{self.url}#{uuid}"
        self.offset_s, self.offset_error_s = offset(self.url)
        self.info = DeviceInfo(
            id=uuid,
            name=labels.get("name", "GPU"),
            simulated=labels.get("simulated") == "true",
            host=urlsplit(self.url).hostname or "",
            index=int(labels["gpu"]) if labels.get("gpu", "").isdecimal() else None,
            power_limit_w=first.values.get(("power_limit_watts", uuid)),
            details={
                "remote": self.url,
                "clock_offset_s": self.offset_s,
                "clock_offset_error_s": self.offset_error_s,
            },
        )
        self._period_s: float | None = None

    def sources(self) -> list[Source]:
        """The page's energy as power, with clocks, temperature and throttling."""
        if self._period_s is None:
            self._period_s = self._observed_s()
        return [_PageSource(self, self._period_s)]

    def capabilities(self) -> list[Capability]:
        """One entry: energy by the page."""
        return [Capability("energy by a monitor on another machine", True, self.url, self._period_s)]

    def processes(self) -> list[Process]:
        """Empty: the page doesn't name them."""
        return []

    def close(self) -> None:
        """Nothing is held open."""

    def clock_moved(self) -> str:
        """A warning if the two clocks moved against each other since it was opened; "" if they didn't."""
        try:
            now_s, error_s = offset(self.url)
        except NotPossibleError as error:
            return f"the clocks could not be compared at the end: {error}"
        moved_s = now_s - self.offset_s
        if abs(moved_s) <= self.offset_error_s + error_s + _SLEW_S:
            return ""
        return f"the clock of {self.info.host} moved by {moved_s:+.3g} s against this one while recording"

    def _observed_s(self) -> float:
        """Seconds between updates of the page: the least of two, since a busy machine reads some of them too late."""
        stamps: list[float] = []
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            stamp = scrape(self.url).values.get((_UNTIL, self.info.id))
            if stamp is not None and stamp not in stamps:
                stamps.append(stamp)
                if len(stamps) == 3:
                    return max(min(stamps[1] - stamps[0], stamps[2] - stamps[1]), 1e-3)
            time.sleep(0.05)
        raise NotPossibleError(f"{self.url}: the energy of {self.info.id} did not change in {PATIENCE_S:g} s")


def _chosen(page: Scrape, wanted: str, url: str) -> str:
    """UUID of the wanted GPU."""
    there = [uuid for uuid in page.labels if (_ENERGY, uuid) in page.values and (_UNTIL, uuid) in page.values]
    names = ", ".join(f"{page.labels[uuid].get('gpu', '')} ({uuid})" for uuid in there) or "none with an energy yet"
    if not wanted:
        if len(there) == 1:
            return there[0]
        raise BadInputError(f"{url} has these GPUs: {names}; name the server's as {url}#GPU")
    found = [uuid for uuid in there if page.labels[uuid].get("gpu") == wanted or uuid.startswith(wanted)]
    if len(found) != 1:
        raise BadInputError(f"{url}: {wanted!r} matches {len(found)} of its GPUs; it has {names}")
    return found[0]


_LATE_S = 2.0
"""Longest time without an update that leaves no hole."""


class _PageSource:
    """Polls the page; a page that can't be read for a while leaves a hole, whose energy is in the next reading."""

    def __init__(self, gpu: RemoteGpu, period_s: float) -> None:
        self._gpu, self._period_s, self._last = gpu, period_s, (0.0, 0.0)
        self.interval_s = min(max(period_s / 2, 0.05), 1.0)

        def channel(name: str, **known: float | bool) -> ChannelInfo:
            return ChannelInfo(gpu.info.id, name, CHANNEL_UNITS[name][0], f"{gpu.url} of a monitor", **known)  # type: ignore[arg-type]

        power = channel(
            POWER, period_s=period_s, window_s=period_s, delay_s=period_s / 2, gapless=True, gain_pct=GAIN_PCT
        )
        self.channels = (power, *(channel(name, period_s=period_s) for name in _GAUGES))

    def poll(self) -> list[Samples]:
        """The mean power since the last update; nothing if there is none or the page can't be read."""
        try:
            page = scrape(self._gpu.url)
        except NotPossibleError:
            return []
        uuid = self._gpu.info.id
        joules, until = (page.values.get((name, uuid), math.nan) for name in (_ENERGY, _UNTIL))
        before_j, before = self._last
        if not (math.isfinite(joules) and until > before):
            return []
        self._last = joules, until
        stamp = round((until - self._gpu.offset_s) * 1e9)
        found = []
        if before and joules >= before_j:  # else the monitor was started again
            took = until - before
            # Updates that a busy machine read too late: their energy is known together.
            count = max(round(took / self._period_s), 1) if took <= _LATE_S else 1
            stamps = stamp - np.round(np.arange(count)[::-1] * (took / count * 1e9)).astype(np.int64)
            found.append(Samples(POWER, stamps, np.full(count, (joules - before_j) / took)))
        for channel, (name, factor) in _GAUGES.items():
            if math.isfinite(value := page.values.get((name, uuid), math.nan)):
                found.append(one_sample(channel, stamp, value * factor))
        return found


VENDOR = Vendor("http://HOST:PORT/metrics of a monitor", re.compile(r"https?://\S+"), RemoteGpu)
