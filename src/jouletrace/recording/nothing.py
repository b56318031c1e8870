"""The recorder of devices that have nothing to read, such as a CPU without readable counters: it takes no process."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

from jouletrace.errors import RecorderDiedError
from jouletrace.recording.base import RecorderCost
from jouletrace.recording.collector import Collector, SampleStream, fresh_part
from jouletrace.run import ChannelInfo


class NothingToRecord:
    """Leaves an empty stream.

    Args:
        spool: Folder of the ``samples`` stream.
    """

    def __init__(self, spool: Path) -> None:
        self.channels: list[ChannelInfo] = []
        self._spool = spool
        self._path: Path | None = None
        self._stream: SampleStream | None = None
        self._start_ns = 0
        self._cost: RecorderCost | None = None

    def start(self) -> None:
        """Write the stream.

        Raises:
            RecorderDiedError: If the spool can't be written.
        """
        collector = Collector([], self._spool, fresh_part(self._spool))
        collector.close()
        self._path, self._start_ns = collector.path, time.monotonic_ns()
        self._stream = self.follow()

    def samples(self) -> pa.Table:
        """An empty ``samples`` table.

        Raises:
            RecorderDiedError: If it was never started.
        """
        if self._stream is None:
            raise RecorderDiedError("the recorder was not started")
        return self._stream.table()

    def follow(self) -> SampleStream:
        """A reader of the stream.

        Raises:
            RecorderDiedError: If it was never started.
        """
        if self._path is None:
            raise RecorderDiedError("the recorder was not started")
        return SampleStream(self._path, self.channels)

    def wait_until(self, time_ns: int, timeout_s: float = 5.0) -> bool:
        """False at once: no power record exists."""
        return False

    def check(self) -> None:
        """Nothing can have failed."""

    def stop(self) -> RecorderCost:
        """The cost of recording: none."""
        if self._cost is None:
            self._cost = RecorderCost(0.0, (time.monotonic_ns() - self._start_ns) / 1e9, 0)
        return self._cost
