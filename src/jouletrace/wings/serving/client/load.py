"""Loads: arrival processes, lengths of prompts and answers, and their levels."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.option import number as to_number
from jouletrace.run.files import open_regular

ARRIVALS = ("poisson", "constant", "bursts")
MOST_REQUESTS, MOST_TOKENS, MOST_TRACE_BYTES = 5_000_000, 10_000_000, 1 << 30
_MOST_RATE = 1e5
_COLUMNS = ("arrival_s", "input_tokens", "output_tokens")


@dataclass(frozen=True)
class Lengths:
    """Tokens of a prompt or an answer: uniform over whole numbers from ``low`` to ``high``."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str, option: str) -> Lengths:
        """From ``N`` or ``LOW:HIGH``.

        Raises:
            BadInputError: If it is anything else, or not between 1 and ten million.
        """
        match = re.fullmatch(r"([0-9]{1,9})(?::([0-9]{1,9}))?", text.strip())
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= low <= high <= MOST_TOKENS:
            raise BadInputError(f"{option} {text}: write N or LOW:HIGH, tokens from 1 on, such as 512 or 128:1024")
        return cls(low, high)

    @property
    def mean(self) -> float:
        """Of many."""
        return (self.low + self.high) / 2

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """So many lengths."""
        found: list[int] = rng.integers(self.low, self.high, count, endpoint=True).tolist()
        return found


@dataclass(frozen=True)
class PlannedRequest:
    """A request: when it is due, seconds from the start of its level, and its lengths in tokens."""

    at_s: float
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class OfferedLoad:
    """One load.

    Attributes:
        name: As printed and as given to the option ("4/s", "16 at once").
        kind: "open" (sent at set times whatever else happens) or "closed" (so many at once).
        arrivals: One of ``ARRIVALS``, "trace" or "closed".
        rate_per_s: Offered requests per second; None in a closed loop.
        concurrency: Requests at once; None in an open loop.
        seconds: Length of the time in which requests are sent.
        requests: All of an open loop in order of time; of a closed loop lengths to draw from, in turn.
        mean_tokens: Means of what lengths of prompts and answers are drawn from; None if they aren't drawn.
    """

    name: str
    kind: str
    arrivals: str
    rate_per_s: float | None
    concurrency: int | None
    seconds: float
    requests: Sequence[PlannedRequest]
    mean_tokens: tuple[float, float] | None = None


@dataclass(frozen=True)
class BenchSettings:
    """The requests to send.

    Attributes:
        url: The server; on a simulated GPU also a workload, whose server is simulated.
        levels: The loads, in order.
        model: Name of the model; "" for the only one that is served.
        api: "completions", "chat" or "auto".
        slo_s: Limits in seconds by name: "ttft", "tpot", "e2e".
        timeout_s: Seconds within which an answer must end.
        pause_s: Seconds without requests before, between and after levels, in which idle power is seen.
        seed: Of arrivals and lengths.
        steps: The log that the server writes of its scheduler's steps; None without.
    """

    url: str
    levels: Sequence[OfferedLoad]
    model: str = ""
    api: str = "auto"
    slo_s: dict[str, float] = field(default_factory=dict)
    timeout_s: float = 120.0
    pause_s: float = 5.0
    seed: int = 0
    steps: Path | None = None


def arrival_times(kind: str, rate_per_s: float, seconds: float, burst: int, rng: np.random.Generator) -> list[float]:
    """Times of arrivals in [0, seconds).

    Args:
        kind: "poisson": independent of each other; "constant": equally spaced; "bursts": ``burst`` at the same moment,
            bursts equally spaced.
        rate_per_s: Mean rate.
        seconds: How long.
        burst: Requests of a burst.
        rng: The source of chance.
    """
    if kind == "poisson":
        most = int(rate_per_s * seconds + 10 * math.sqrt(rate_per_s * seconds) + 20)
        times = np.cumsum(rng.exponential(1 / rate_per_s, most))
    else:
        size = burst if kind == "bursts" else 1
        count = math.ceil(rate_per_s * seconds / size - 1e-9)
        times = np.repeat(np.arange(count) * size / rate_per_s, size)
    found: list[float] = times[times < seconds].tolist()
    return found


def open_levels(
    rates: Sequence[float], kind: str, seconds: float, burst: int, lengths: tuple[Lengths, Lengths], seed: int
) -> list[OfferedLoad]:
    """A level for each rate, with its own random numbers.

    Raises:
        BadInputError: If a level has no request, or too many.
    """
    found = []
    for number, rate in enumerate(rates):
        rng = np.random.default_rng((seed, number))
        if rate * seconds > MOST_REQUESTS:
            raise BadInputError(f"{rate:g} requests/s for {seconds:g} s: more than {MOST_REQUESTS} requests")
        times = arrival_times(kind, rate, seconds, burst, rng)
        if not times:
            raise BadInputError(f"{rate:g} requests/s for {seconds:g} s: not a single request; lengthen --duration")
        sizes = zip(times, lengths[0].draw(len(times), rng), lengths[1].draw(len(times), rng), strict=True)
        requests = [PlannedRequest(*one) for one in sizes]
        means = lengths[0].mean, lengths[1].mean
        found.append(OfferedLoad(f"{rate:g}/s", "open", kind, rate, None, seconds, requests, means))
    return found


def closed_levels(
    concurrencies: Sequence[int],
    seconds: float,
    lengths: tuple[Lengths, Lengths],
    seed: int,
    requests: Sequence[PlannedRequest] | None = None,
) -> list[OfferedLoad]:
    """A level for each number of requests at once, with drawn lengths or those of ``requests`` in turn."""
    found = []
    for number, count in enumerate(concurrencies):
        planned = requests
        if not planned:
            rng = np.random.default_rng((seed, number))
            sizes = zip(lengths[0].draw(4096, rng), lengths[1].draw(4096, rng), strict=True)
            planned = [PlannedRequest(0.0, *one) for one in sizes]
        found.append(OfferedLoad(f"{count} at once", "closed", "closed", None, count, seconds, planned))
    return found


def load_levels(
    rate: str | None,
    concurrency: str | None,
    trace: Path | None,
    arrivals: str,
    seconds: float,
    lengths: tuple[str, str],
    seed: int,
) -> list[OfferedLoad]:
    """The loads in the order of their options.

    Raises:
        BadInputError: If there is none, or one is wrong.
    """
    kind, _, size = arrivals.partition(":")
    if kind not in ARRIVALS or (size != "" and kind != "bursts") or not re.fullmatch("[1-9][0-9]*", size or "8"):
        raise BadInputError(f"--arrivals {arrivals}: must be poisson, constant or bursts:N, N requests at once")
    sizes = Lengths.parse(lengths[0], "--input-tokens"), Lengths.parse(lengths[1], "--output-tokens")
    found: list[OfferedLoad] = []
    traced = None if trace is None else trace_level(trace)
    if rate is not None:
        found += open_levels(_numbers(rate, "--rate"), kind, seconds, int(size or 8), sizes, seed)
    if concurrency is not None:
        counts = _numbers(concurrency, "--concurrency")
        if any(count != int(count) for count in counts):
            raise BadInputError(f"--concurrency {concurrency}: write whole numbers, as 1,4,16")
        of_trace = None if traced is None else traced.requests
        found += closed_levels([int(count) for count in counts], seconds, sizes, seed, of_trace)
    elif traced is not None:
        found.append(traced)
    if not found:
        raise BadInputError("bench: give --rate 1,2,4 (open loop), --concurrency 1,4,16 (closed loop) or --trace FILE")
    return found


def _numbers(text: str, option: str) -> list[float]:
    try:
        found = [to_number(one) for one in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < one <= _MOST_RATE for one in found) or len(set(found)) < len(found):
        raise BadInputError(f"{option} {text}: write different numbers above 0, as 1,2,4, of at most {_MOST_RATE:g}")
    return found


def trace_level(path: Path) -> OfferedLoad:
    """The level of a trace: CSV or JSON lines with ``arrival_s``, ``input_tokens``, ``output_tokens``.

    Raises:
        BadInputError: If it can't be read, or a row isn't sound; the line is named.
    """
    try:
        with open_regular(path) as file:
            text = file.read(MOST_TRACE_BYTES + 1).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise BadInputError(f"--trace {path}: {getattr(error, 'strerror', None) or error}") from None
    if len(text) > MOST_TRACE_BYTES:
        raise BadInputError(f"--trace {path}: larger than {MOST_TRACE_BYTES >> 30} GiB")
    requests = sorted((_planned(row, path, line) for line, row in _rows(text, path)), key=lambda one: one.at_s)
    if not requests:
        raise BadInputError(f"--trace {path}: it has no request")
    first = requests[0].at_s
    requests = [PlannedRequest(one.at_s - first, one.input_tokens, one.output_tokens) for one in requests]
    seconds = max(requests[-1].at_s * len(requests) / max(len(requests) - 1, 1), 1e-3)
    return OfferedLoad(path.name, "open", "trace", len(requests) / seconds, None, seconds, requests)


def _rows(text: str, path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Numbers of lines with their rows."""
    if text.lstrip()[:1] != "{":
        reader = csv.DictReader(io.StringIO(text))
        missing = set(_COLUMNS) - set(reader.fieldnames or ())
        if missing:
            raise BadInputError(
                f"--trace {path}: it has no column {sorted(missing)[0]}; it needs {', '.join(_COLUMNS)}"
            )
        return [(reader.line_num, row) for row in reader]
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise BadInputError(f"--trace {path}: line {number} is no JSON object")
            found.append((number, row))
    return found


def _planned(row: dict[str, Any], path: Path, line: int) -> PlannedRequest:
    try:
        at_s, *tokens = (float(row[name]) for name in _COLUMNS)
        sound = 0 <= at_s < 1e7 and all(1 <= one <= MOST_TOKENS and one == int(one) for one in tokens)
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        stated = ", ".join(f"{name} {row.get(name)!r}" for name in _COLUMNS)
        raise BadInputError(
            f"--trace {path}: line {line}: {stated[:120]}: needs seconds from 0 on, and tokens from 1 on"
        )
    return PlannedRequest(at_s, int(tokens[0]), int(tokens[1]))
