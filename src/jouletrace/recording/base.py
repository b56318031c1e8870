"""The contract of both recorders: own process in real time, in process in virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from jouletrace.recording.stream import SampleStream
from jouletrace.run import ChannelInfo


@dataclass
class RecorderCost:
    """What recording itself cost.

    Attributes:
        cpu_s: CPU seconds of the recorder.
        wall_s: Seconds that it recorded.
        samples: Readings written.
    """

    cpu_s: float = 0.0
    wall_s: float = 0.0
    samples: int = 0


class Recorder(Protocol):
    """Polls every source of its devices at the source's pace and spools what they yield."""

    channels: list[ChannelInfo]
    """What is being recorded; known once started."""

    def start(self) -> None:
        """Begin; returns when the first poll of every source is done.

        Raises:
            RecorderDiedError: If it can't start.
        """

    def samples(self) -> pa.Table:
        """Everything recorded so far, as a ``samples`` table. Cheap enough to call every second."""

    def follow(self) -> SampleStream:
        """A reader of the same stream for somebody who takes what is new, and keeps what he wants of it."""

    def wait_until(self, time_ns: int, timeout_s: float = 5.0) -> bool:
        """Wait until the power record has passed ``time_ns``; False if it has not in time.

        Raises:
            RecorderDiedError: If the recorder is gone.
        """

    def check(self) -> None:
        """Raise ``RecorderDiedError`` if the recorder is gone; what it wrote stays on disk."""

    def stop(self) -> RecorderCost:
        """Take the sensor's tail, end, and say what recording cost. Safe to call twice."""
