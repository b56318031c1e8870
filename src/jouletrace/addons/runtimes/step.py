"""Iterations in a runtime: sequential, or in several concurrent streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.addons.runtimes.engine import Engine
from jouletrace.errors import BrokenOffError
from jouletrace.execution.steps.base import Interval, NodeTimes
from jouletrace.run.scratch import Scratch


class RuntimeStep:
    """A model called in a runtime; see ``Step``.

    Attributes:
        mode: Name of the runtime.
        streams: Number of concurrent iterations.
    """

    def __init__(self, engine: Engine, streams: int = 1, folder: Scratch | None = None) -> None:
        """Run a bound engine.

        Args:
            engine: The model in its runtime.
            streams: Number of streams for which it was bound.
            folder: Folder of its file; removed at the end.
        """
        self._folder = folder
        self.mode = engine.name
        self.streams = streams
        self._engine = engine
        self._next = 0
        self._pool = ThreadPoolExecutor(streams, "jouletrace-stream") if streams > 1 else None

    def replay(self, n: int) -> Interval:
        """See ``Step.replay``."""
        numbers = self._advance(n)
        start = time.time_ns()
        if self._pool is None:
            infer = self._engine.infer
            try:
                for number in numbers:
                    infer(0, number)
            except Exception as error:
                raise _broken(self._engine, error) from error
        else:
            self._in_streams(numbers, self._engine.infer)
        return Interval(start, time.time_ns())

    def latencies(self, n: int) -> NDArray[np.float64]:
        """Seconds of each call by the monotonic clock, shape (n,); with several streams, by their starts."""
        numbers = self._advance(n)
        if self._pool is None:
            stamps = np.empty(n + 1, dtype=np.int64)
            infer, first = self._engine.infer, numbers[0]
            try:
                stamps[0] = time.perf_counter_ns()
                for i in range(n):
                    infer(0, first + i)
                    stamps[i + 1] = time.perf_counter_ns()
            except Exception as error:
                raise _broken(self._engine, error) from error
            return np.diff(stamps) / 1e9
        taken = np.empty(n, dtype=np.int64)

        def timed(stream: int, number: int) -> None:
            start = time.perf_counter_ns()
            self._engine.infer(stream, number)
            taken[number - numbers[0]] = time.perf_counter_ns() - start

        self._in_streams(numbers, timed)
        return taken / 1e9

    def node_times(self, n: int) -> NodeTimes:
        """See ``KnowsNodes``."""
        return self._engine.node_times(n)

    def describe(self) -> dict[str, Any]:
        """See ``Engine.describe``."""
        return {"mode": self.mode, **self._engine.describe()}

    def close(self) -> None:
        """Release the model."""
        if self._pool is not None:
            self._pool.shutdown()
        self._engine.close()
        if self._folder is not None:
            self._folder.remove()

    def _advance(self, n: int) -> range:
        """Numbers of the next iterations; input sets also rotate across calls."""
        first = self._next
        self._next += n
        return range(first, first + n)

    def _in_streams(self, numbers: range, call: Callable[[int, int], None]) -> None:
        """Run iterations in streams, each of which takes the next number once it is free; returns when all are done."""
        shared = iter(numbers)
        assert self._pool is not None
        workers = [self._pool.submit(_work, stream, shared, call) for stream in range(self.streams)]
        try:
            for worker in workers:
                worker.result()
        except Exception as error:
            raise _broken(self._engine, error) from error


def _work(stream: int, numbers: Iterator[int], call: Callable[[int, int], None]) -> None:
    for number in numbers:
        call(stream, number)


def _broken(engine: Engine, error: Exception) -> BrokenOffError:
    return BrokenOffError(f"{engine.name} failed in the middle of a pass: {' '.join(str(error).split())[:300]}")
