"""A counter of work that a server exposes to Prometheus, read by a separate thread during the recording."""

from __future__ import annotations

import http.client
import math
import re
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from difflib import get_close_matches
from http.client import HTTPMessage
from ipaddress import ip_address
from typing import IO
from urllib.parse import urlsplit

from jouletrace.devices.base import Clock
from jouletrace.errors import BadInputError
from jouletrace.profiler.monitoring.work_counter import Tally, WorkReading
from jouletrace.profiler.monitoring.work_counter_text import Metric, find
from jouletrace.run.channels import MOST_WORK

TIMEOUT_S = 5.0
"""A read that takes longer, in seconds, is abandoned."""

_GRACE_S = 0.5
"""Additional seconds, so that the read itself can report its timeout."""

FASTEST_S = 0.2
"""Least seconds between reads."""

_LARGEST = 32 << 20
_CHUNK = 1 << 16
_TARGET = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?")
_SELECTOR = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*(?:\"([^\"]*)\"|([^\s\",=~!]+))\s*(?:,|$)")
_ACCEPT = "text/plain;version=0.0.4;q=1,*/*;q=0.1"


@dataclass(frozen=True)
class Target:
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
    def parse(cls, text: str) -> Target:
        """From ``URL#metric`` or ``URL#metric{label="value",...}``.

        Raises:
            BadInputError: If it is anything else.
        """
        url, separator, rest = text.partition("#")
        if not separator or not rest:
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
        match = _TARGET.fullmatch(rest.strip())
        if match is None:
            raise BadInputError(f'--per {text!r}: {rest!r} is not a metric; write name or name{{label="value"}}')
        return cls(url, match[1], _labels(match[2] or "", text))

    def __str__(self) -> str:
        labels = ",".join(f'{key}="{value}"' for key, value in self.labels.items())
        return f"{self.url}#{self.metric}" + (f"{{{labels}}}" if labels else "")


def _labels(text: str, whole: str) -> dict[str, str]:
    labels, at = {}, 0
    while text[at:].strip():
        match = _SELECTOR.match(text, at)
        if match is None:
            raise BadInputError(
                f'--per {whole!r}: can\'t read {text[at:].strip()!r}; select series by label="value" only'
            )
        labels[match[1]] = match[2] if match[2] is not None else match[3]
        at = match.end()
    return labels


class PrometheusCounter:
    """Reads a counter every ``every_s`` seconds; see ``work_counter.WorkCounter``.

    Failed reads (server down, slow, or with an invalid answer) are retried throughout the recording.
    """

    def __init__(self, target: Target, every_s: float = 1.0, timeout_s: float = TIMEOUT_S) -> None:
        self.source = str(target)
        self.unit = target.metric
        self._target, self._every_s, self._timeout_s = target, every_s, timeout_s
        self._tally = Tally()
        self._lock = threading.Lock()
        self._readings: list[WorkReading] = []
        self._problem: str | None = None
        self._answers = self._failures = 0
        self._untyped = False
        self._no_counts = 0
        self._last_failure = ""
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
        """Readings since the last call."""
        with self._lock:
            fresh, self._readings = self._readings, []
        return fresh

    def problem(self) -> str | None:
        """Why the last read failed."""
        return self._problem

    def stop(self) -> list[WorkReading]:
        """Read once more, within the timeout, and stop."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(2 * self._timeout_s + 1)
            self._thread = None
        return self.take()

    def warnings(self) -> list[tuple[str, str]]:
        """Warnings: failed reads, never read, resets, jumps, not declared as a counter."""
        found = []
        if not self._answers:
            found.append(("work_never_read", f"the counter of work was never read: {self._last_failure}"))
        elif self._failures:
            tries = self._answers + self._failures
            found.append(
                ("work_not_read", f"{self._failures} of {tries} reads of the counter failed: {self._last_failure}")
            )
        if self._no_counts:
            message = f"{self._no_counts} series of {self.unit} had invalid values at times (NaN, negative): left out"
            found.append(("work_no_count", message))
        if self._untyped:
            found.append(("work_untyped", f"the server doesn't declare {self.unit} as a counter; it was used as one"))
        if self._tally.resets:
            message = f"the counter of work restarted ({self._tally.resets} times): work just before isn't counted"
            found.append(("work_reset", message))
        if self._tally.glitches:
            message = f"the counter of work jumped and returned ({self._tally.glitches} times): the jumps were left out"
            found.append(("work_implausible", message))
        return found

    def _go_on(self, clock: Clock) -> None:
        due = time.monotonic() + self._every_s
        while not self._ending.wait(max(due - time.monotonic(), 0.0)):
            self._note(self._ask(clock))
            # After a slow answer the schedule restarts: missed reads are skipped.
            due = max(due + self._every_s, time.monotonic())
        failures = self._failures
        self._note(self._ask(clock))
        if self._answers:  # a server that ends with the recording doesn't count as failed
            self._failures = failures

    def _note(self, refused: str | None) -> None:
        if refused is not None:
            self._fail(refused)

    def _ask(self, clock: Clock) -> str | None:
        """Read once; returns why the answer isn't a counter, else None. A missing answer is recorded as a failure."""
        before, began = clock.time_ns(), time.monotonic()
        try:
            text = fetch(self._target.url, self._timeout_s)
        except OSError as error:
            self._fail(str(error))
            return None
        took_s = time.monotonic() - began
        metric = find(text, self._target.metric, self._target.labels)
        refused = _why_not(metric, self._target)
        if refused is not None:
            return refused
        counts = {series: value if 0 <= value <= MOST_WORK else math.nan for series, value in metric.values.items()}
        bad = [value for series, value in metric.values.items() if math.isnan(counts[series])]
        if bad and len(bad) == len(counts):
            self._fail(f"{self._target.metric} is {bad[0]:g}, which is not a count")
            return None
        self._no_counts = max(self._no_counts, len(bad))
        with self._lock:
            self._problem = None
            self._answers += 1
            self._untyped |= metric.counts is None
            self._tally.add(counts)
            middle = before + round(took_s * 5e8)
            self._readings.append(WorkReading(middle, took_s, self._tally.done, self._tally.resets))
        return None

    def _fail(self, why: str) -> None:
        with self._lock:
            self._failures += 1
            self._problem = self._last_failure = why


def _why_not(metric: Metric, target: Target) -> str | None:
    if metric.counts is False:
        return f"{target.metric} is a {metric.kind}, not a counter"
    if metric.values or (metric.declared and not metric.unselected):
        return None  # a declared metric without series has counted nothing yet
    if metric.unselected:
        return f"no series of {target.metric} has these labels ({metric.unselected} have others)"
    near = get_close_matches(target.metric, sorted(metric.names), 3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"the page has no metric {target.metric}{hint}" if metric.names else "the page is not in Prometheus' format"


def fetch(url: str, timeout_s: float) -> str:
    """The text of a page.

    A separate thread reads it: the socket timeout bounds neither name resolution nor slowly sent headers.

    Raises:
        OSError: With one line, if there is no answer within ``timeout_s``, or the page is too large.
    """
    found: list[str | OSError] = []

    def ask() -> None:
        try:
            found.append(_fetch(url, timeout_s))
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=ask, name="work-counter-read", daemon=True)
    thread.start()
    thread.join(timeout_s + _GRACE_S)
    answer = found[0] if found else OSError(f"{url} did not answer in {timeout_s:g} s")
    if isinstance(answer, OSError):
        raise answer
    return answer


def _fetch(url: str, timeout_s: float) -> str:
    deadline = time.monotonic() + timeout_s
    request = urllib.request.Request(url, headers={"Accept": _ACCEPT, "User-Agent": "jouletrace"})
    # A proxy from the environment would resolve loopback addresses on its own host.
    direct = [urllib.request.ProxyHandler({})] if _is_loopback(urlsplit(url).hostname or "") else []
    try:
        with urllib.request.build_opener(_SameServer, *direct).open(request, timeout=timeout_s) as answer:
            parts: list[bytes] = []
            size = 0
            # The socket timeout applies to each read: the deadline also bounds a server that sends slowly.
            while part := answer.read1(_CHUNK):
                parts.append(part)
                size += len(part)
                if size > _LARGEST:
                    raise OSError(f"{url} answers with more than {_LARGEST >> 20} MiB")
                if time.monotonic() > deadline:
                    raise TimeoutError
            if answer.length:  # a truncated number would look like a reset
                raise OSError(f"{url} closed the connection within its answer")
    except urllib.error.HTTPError as error:
        raise OSError(f"{url} answers {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        cause = error.reason
        if isinstance(cause, TimeoutError):
            raise OSError(f"{url} did not answer in {timeout_s:g} s") from None
        said = cause.strerror or str(cause) if isinstance(cause, OSError) else str(cause)
        raise OSError(f"{url} can't be reached: {said}") from None
    except TimeoutError:
        raise OSError(f"{url} did not answer in {timeout_s:g} s") from None
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"{url} does not speak HTTP ({type(error).__name__})") from None
    return b"".join(parts).decode("utf-8", "replace")


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Follows redirects within a server ("/metrics" to "/metrics/") and refuses redirects to other servers."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """The redirected request; called by urllib.

        Raises:
            OSError: If it leads to another server than the user named.
        """
        here, there = urlsplit(req.full_url), urlsplit(newurl)
        if (there.scheme, there.hostname, there.port) != (here.scheme, here.hostname, here.port):
            elsewhere = f"{there.scheme}://{there.netloc.rpartition('@')[2]}"
            raise OSError(
                f"{req.full_url} redirects to another server, {elsewhere}: if that is right, name it in --per"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
