"""A counter of real work that a server exposes to Prometheus; the energy of a recording is divided by it.

Such a counter is monotonic: tokens generated, requests answered. A separate thread reads it during the recording.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import urlsplit

from jouletrace.devices.base import Clock
from jouletrace.errors import BadInputError
from jouletrace.prometheus import families, metric_names
from jouletrace.run import ChannelInfo
from jouletrace.run.channels import CHANNEL_UNITS, MOST_WORK, WORK, WORK_READ, WORK_RESETS
from jouletrace.web import fetch

TIMEOUT_S = 5.0
"""A read that takes longer, in seconds, is abandoned."""

FASTEST_S = 0.2
"""Least seconds between reads."""

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABELS = r"\{((?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\}"
_METRIC = re.compile(rf"({_NAME})\s*(?:{_LABELS})?")
_LABEL = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*\"((?:[^\"\\]|\\.)*)\"\s*,?\s*")
_THAT_COUNT = ("_count", "_bucket", "_sum")
"""Monotonic parts of a histogram or summary."""


@dataclass(frozen=True, slots=True)
class WorkReading:
    """A counter at one time.

    Attributes:
        time_ns: Middle of the read, in nanoseconds since the Unix epoch.
        took_s: Duration of the read in seconds: the count belongs to an unknown time within it.
        done: Units of work counted since the first reading.
        resets: Number of observed restarts of the counter so far.
    """

    time_ns: int
    took_s: float
    done: float
    resets: int


@dataclass(frozen=True)
class CounterTarget:
    """A metric of a page.

    Attributes:
        url: The page.
        metric: Its name.
        labels: Selects the series that have all of these labels.
    """

    url: str
    metric: str
    labels: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> CounterTarget:
        """From ``URL#metric`` or ``URL#metric{label="value",...}``.

        Raises:
            BadInputError: If it is anything else.
        """
        url, _, rest = text.partition("#")
        if not rest:
            raise BadInputError(f"--per {text!r}: write URL#metric, such as http://127.0.0.1:8000/metrics#tokens_total")
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError as error:
            raise BadInputError(f"--per {text!r}: {error}") from None
        if parts.scheme not in ("http", "https") or not host or re.search(r"\s", url):
            raise BadInputError(f"--per {text!r}: {url!r} is not an http:// or https:// address")
        if parts.username is not None:
            raise BadInputError(f"--per: a password in an address would end up in the Run: leave it out ({host})")
        match = _METRIC.fullmatch(rest.strip())
        if match is None or _LABEL.sub("", match[2] or "").strip():
            raise BadInputError(f'--per {text!r}: {rest!r} is not a metric; write name or name{{label="value"}}')
        return cls(url, match[1], dict(_LABEL.findall(match[2] or "")))

    def __str__(self) -> str:
        labels = ",".join(f'{key}="{value}"' for key, value in self.labels.items())
        return f"{self.url}#{self.metric}" + (f"{{{labels}}}" if labels else "")


class CounterTally:
    """Sums the growth of several series of one counter across their resets.

    A series below its last value has restarted from zero, as ``increase()`` of Prometheus assumes: work between its
    last reading and the reset is lost, and the reset is counted. A series that appears later began at zero, one that
    disappears may return, and one that is NaN at first counts from its first number.

    Attributes:
        done: Growth of all series.
        resets: Number of restarts of a series.
    """

    def __init__(self) -> None:
        self.done, self.resets = 0.0, 0
        self._last: dict[str, float] | None = None

    def add(self, values: Mapping[str, float]) -> None:
        """Add one reading: values by series. Counting begins at the first one."""
        if self._last is None:
            self._last = dict(values)
            return
        for name, value in values.items():
            last = self._last.get(name, 0.0 if math.isfinite(value) else math.nan)
            if not math.isfinite(value):
                self._last.setdefault(name, last)
                continue
            if value < last:
                self.resets, last = self.resets + 1, 0.0
            self.done += 0.0 if math.isnan(last) else value - last
            self._last[name] = value


@dataclass
class PageMetric:
    """One metric of a page in Prometheus' text format, or OpenMetrics.

    Attributes:
        kind: "counter", "gauge", ... as declared; "" if undeclared.
        values: Values of the selected series, by their labels as text.
        unselected: Number of series with other labels.
        names: All names with values on the page, for suggestions after a misspelling.
    """

    kind: str = ""
    values: dict[str, float] = field(default_factory=dict)
    unselected: int = 0
    names: set[str] = field(default_factory=set)

    @property
    def declared(self) -> bool:
        """True if the page declares it as a counter."""
        return self.kind == "counter"

    def why_not(self, target: CounterTarget) -> str | None:
        """Why it can't be counted by; None if it can."""
        if self.kind not in ("", "untyped", "unknown", "counter"):
            return f"{target.metric} is a {self.kind}, not a counter"
        if self.values or (self.declared and not self.unselected):
            return None  # a declared metric without series has counted nothing yet
        if self.unselected:
            return f"no series of {target.metric} has these labels ({self.unselected} have others)"
        near = get_close_matches(target.metric, sorted(self.names), 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return f"the page has no metric {target.metric}{hint}" if self.names else "the page isn't in Prometheus' format"


def find(text: str, target: CounterTarget) -> PageMetric:
    """The series of a metric on a page; none if the page isn't in Prometheus' format."""
    metric = PageMetric(names=metric_names(text))
    part = next((end for end in (*_THAT_COUNT, "_total") if target.metric.endswith(end)), "")
    for family in families(text, [target.metric.removesuffix(part)]):
        names = {family.name, *([f"{family.name}_total"] if family.type == "counter" else [])}
        if target.metric in names:
            metric.kind = metric.kind or family.type
        for sample in family.samples:
            if sample.name != target.metric:
                continue
            counts = family.type in ("histogram", "summary") and sample.name.removeprefix(family.name) in _THAT_COUNT
            metric.kind = "counter" if counts else metric.kind or family.type
            if all(sample.labels.get(key, "") == value for key, value in target.labels.items()):
                metric.values[",".join(f"{key}={sample.labels[key]}" for key in sorted(sample.labels))] = sample.value
            else:
                metric.unselected += 1
    return metric


class WorkCounter:
    """Reads a counter every ``every_s`` seconds; never blocks the recording.

    Failed reads (server down, slow, or with an invalid answer) are retried throughout the recording.

    Attributes:
        source: The target as text, for the Run.
        unit: Unit of work: the metric's name.
    """

    def __init__(self, target: CounterTarget, every_s: float = 1.0, timeout_s: float = TIMEOUT_S) -> None:
        self.source, self.unit = str(target), target.metric
        self._target, self._every_s, self._timeout_s = target, every_s, timeout_s
        self._tally = CounterTally()
        self._lock = threading.Lock()
        self._readings: list[WorkReading] = []
        self._problem: str | None = None
        self._last_failure = ""
        self._answers = self._failures = 0
        self._untyped = False
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, clock: Clock) -> None:
        """Read once, so that a misspelt name is reported at once, then repeatedly from a thread.

        Raises:
            BadInputError: If the server answers without such a metric, or the metric isn't a counter.
        """
        refused = self._ask(clock)
        if refused is not None:
            raise BadInputError(f"--per {self.source}: {refused}")
        self._thread = threading.Thread(target=self._go_on, args=(clock,), name="work-counter", daemon=True)
        self._thread.start()

    def take(self) -> list[WorkReading]:
        """Readings since the last call, oldest first."""
        with self._lock:
            fresh, self._readings = self._readings, []
        return fresh

    def problem(self) -> str | None:
        """Why the last read failed, in one line; None if it didn't."""
        return self._problem

    def stop(self) -> list[WorkReading]:
        """Read once more, within the timeout, and stop; readings since ``take``. Safe to call twice."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(2 * self._timeout_s + 1)
            self._thread = None
        return self.take()

    def warnings(self) -> list[tuple[str, str]]:
        """Codes and messages for ``Run.warnings``. Call it after ``stop``."""
        texts = []
        if not self._answers:
            texts.append(("work_never_read", f"the counter of work was never read: {self._last_failure}"))
        elif self._failures:
            tries = self._answers + self._failures
            message = f"{self._failures} of {tries} reads of the counter failed: {self._last_failure}"
            texts.append(("work_not_read", message))
        if self._untyped:
            texts.append(("work_untyped", f"the server doesn't declare {self.unit} as a counter; it was used as one"))
        if self._tally.resets:
            message = f"the counter of work restarted ({self._tally.resets} times): work just before isn't counted"
            texts.append(("work_reset", message))
        return texts

    def _go_on(self, clock: Clock) -> None:
        while not self._ending.wait(self._every_s):
            self._fail(self._ask(clock))
        failures = self._failures
        self._fail(self._ask(clock))
        if self._answers:  # a server that ends with the recording doesn't count as failed
            self._failures = failures

    def _ask(self, clock: Clock) -> str | None:
        """Read once; returns why the answer isn't a counter, else None. A missing answer is recorded as a failure."""
        before, began = clock.time_ns(), time.monotonic()
        try:
            text = fetch(self._target.url, self._timeout_s)
        except OSError as error:
            self._fail(str(error))
            return None
        took_s = time.monotonic() - began
        metric = find(text, self._target)
        refused = metric.why_not(self._target)
        if refused is not None:
            return refused
        counts = {series: value if 0 <= value <= MOST_WORK else math.nan for series, value in metric.values.items()}
        if counts and all(map(math.isnan, counts.values())):
            self._fail(f"{self._target.metric} is {next(iter(metric.values.values())):g}, which is not a count")
            return None
        with self._lock:
            self._problem = None
            self._answers += 1
            self._untyped |= not metric.declared
            self._tally.add(counts)
            middle = before + round(took_s * 5e8)
            self._readings.append(WorkReading(middle, took_s, self._tally.done, self._tally.resets))
        return None

    def _fail(self, why: str | None) -> None:
        if why is not None:
            with self._lock:
                self._failures += 1
                self._problem = self._last_failure = why


def channels(device: str, counter: WorkCounter) -> list[ChannelInfo]:
    """The channels of a counter, under the Run's first device."""
    source = f"{counter.source} ({counter.unit})"
    return [ChannelInfo(device, name, CHANNEL_UNITS[name][0], source) for name in (WORK, WORK_RESETS, WORK_READ)]


def sample_rows(device: str, readings: list[WorkReading]) -> list[dict[str, object]]:
    """Rows of ``samples`` for readings of a counter."""
    return [
        {"time_ns": r.time_ns, "device": device, "channel": channel, "value": float(value)}
        for r in readings
        for channel, value in ((WORK, r.done), (WORK_RESETS, r.resets), (WORK_READ, r.took_s))
    ]
