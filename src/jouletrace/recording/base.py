"""The contract of both recorders: a separate process in real time, in-process in virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from jouletrace.recording.collector import SampleStream
from jouletrace.run import ChannelInfo


@dataclass
class RecorderCost:
    """The cost of recording.

    Attributes:
        cpu_s: CPU seconds of the recorder.
        wall_s: Duration of the recording in seconds.
        samples: Readings written.
    """

    cpu_s: float = 0.0
    wall_s: float = 0.0
    samples: int = 0


class Recorder(Protocol):
    """Polls every source of its devices at the source's interval and spools the readings."""

    channels: list[ChannelInfo]
    """The recorded channels; known after ``start``."""

    def start(self) -> None:
        """Start recording; returns after the first poll of every source.

        Raises:
            RecorderDiedError: If it can't start.
        """

    def samples(self) -> pa.Table:
        """All readings so far, as a ``samples`` table. Cheap enough to call every second."""

    def follow(self) -> SampleStream:
        """A second reader of the stream, for a caller that consumes new batches."""

    def wait_until(self, time_ns: int, timeout_s: float = 5.0) -> bool:
        """Wait until the power record has passed ``time_ns``; False after ``timeout_s``.

        Raises:
            RecorderDiedError: If the recorder has ended.
        """

    def check(self) -> None:
        """Raise ``RecorderDiedError`` if the recorder has ended; its data stays on disk."""

    def stop(self) -> RecorderCost:
        """Record the sensor's tail and stop; returns the cost of recording. Safe to call twice."""
