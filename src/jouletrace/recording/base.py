"""The contract of both recorders: a separate process in real time, in-process in virtual time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from jouletrace.errors import RecorderDiedError
from jouletrace.recording.collector import SampleStream
from jouletrace.run import ChannelInfo


@dataclass
class RecorderCost:
    """The cost of recording: CPU seconds of the recorder, its duration in seconds, and the readings written."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    samples: int = 0


class Recorder(ABC):
    """Polls every source of its devices at the source's interval and spools the readings.

    Args:
        spool: Folder of the ``samples`` stream.
        kept_s: As in ``Collector``; of a longer recording readings are to be had by ``follow`` and ``fresh`` alone.

    Attributes:
        channels: The recorded channels; known after ``start``.
        since_ns: Time of the first poll; known after ``start``.
    """

    def __init__(self, spool: Path, kept_s: float | None = None) -> None:
        self.channels: list[ChannelInfo] = []
        self.since_ns = 0
        self._spool = Path(spool).absolute()
        self._kept_s = kept_s
        self._stream: SampleStream | None = None
        self._fresh: SampleStream | None = None
        self._cost: RecorderCost | None = None

    @abstractmethod
    def start(self) -> None:
        """Start recording; returns after the first poll of every source.

        Raises:
            RecorderDiedError: If it can't start.
        """

    def samples(self) -> pa.Table:
        """All readings so far, as a ``samples`` table, also after the end. Cheap enough to call every second.

        Raises:
            RecorderDiedError: If it was never started.
        """
        return self._started().table()

    def is_whole(self) -> bool:
        """True if the last ``samples`` had all readings."""
        return self._stream is None or self._stream.is_whole

    def fresh(self) -> pa.Table:
        """Readings since the last call, as a ``samples`` table.

        Raises:
            RecorderDiedError: If it was never started.
        """
        if self._fresh is None:
            self._fresh = self.follow()
        return self._fresh.take()

    def follow(self) -> SampleStream:
        """A second reader of the stream, for a caller that consumes new batches.

        Raises:
            RecorderDiedError: If it was never started.
        """
        return SampleStream(self._started().path, self.channels)

    @abstractmethod
    def wait_until(self, time_ns: int, timeout_s: float = 5.0) -> bool:
        """Wait until the power record has passed ``time_ns``; False after ``timeout_s``, or without a power record.

        With a timeout of 0 it only asks for the record, which arrives some ten milliseconds later.

        Raises:
            RecorderDiedError: If the recorder has ended or a sensor has failed.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise ``RecorderDiedError`` if the recorder has ended or a sensor has failed; the data stays on disk."""

    @abstractmethod
    def stop(self) -> RecorderCost:
        """Record the sensor's tail and stop; returns the cost of recording. Safe to call twice.

        Raises:
            RecorderDiedError: At the first call, if it had died or a sensor had failed before.
        """

    def _read(self, path: Path, channels: list[ChannelInfo]) -> None:
        """Follow the stream that has been started."""
        self.channels = channels
        self._stream = SampleStream(path, channels, self._kept_s)

    def _started(self) -> SampleStream:
        if self._stream is None:
            raise RecorderDiedError("the recorder was not started")
        return self._stream
