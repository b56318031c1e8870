"""The recorder in real time: a separate process polls the sensors and writes the stream that this side reads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from jouletrace.errors import RecorderDiedError
from jouletrace.recording.base import RecorderCost
from jouletrace.recording.collector import TAIL_S, fresh_part
from jouletrace.recording.link import WorkerLink
from jouletrace.recording.stream import SampleStream
from jouletrace.recording.worker import Config
from jouletrace.run import ChannelInfo

_START_S = 60.0
_END_S = 10.0
_ASK_EVERY_S = 0.05


class ProcessRecorder:
    """Starts the worker, reads its stream, and raises an error when the worker has died.

    Args:
        specs: The devices that the worker opens (``Device.spec``).
        spool: Folder of the ``samples`` stream.
        factory: "module:function" that opens a spec in the worker.
        power_s: As in ``Collector``.
    """

    def __init__(
        self, specs: Sequence[str], spool: Path, factory: str = Config.factory, power_s: float | None = None
    ) -> None:
        self.channels: list[ChannelInfo] = []
        self._specs = list(specs)
        self._spool = Path(spool).absolute()
        self._factory = factory
        self._power_s = power_s
        self._link: WorkerLink | None = None
        self._stream: SampleStream | None = None
        self._path: Path | None = None
        self._lock = threading.Lock()
        self._problems: list[str] = []
        self._cost: RecorderCost | None = None
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None before the start."""
        return self._link.pid if self._link is not None else None

    def start(self) -> None:
        """Start the worker; returns after it has polled every source once.

        Raises:
            RecorderDiedError: If it can't start, with the message of the worker.
        """
        part = fresh_part(self._spool)
        config = Config(self._specs, str(self._spool), part, os.getpid(), self._factory, self._power_s)
        self._link = link = WorkerLink(config)
        try:
            ready = self._await_ready(link)
        except BaseException:
            self._stopped = True
            link.kill()
            link.close()
            raise
        self.channels = [ChannelInfo.from_dict(channel) for channel in ready["channels"]]
        self._path = Path(ready["path"])
        self._stream = SampleStream(self._path, self.channels)

    def samples(self) -> pa.Table:
        """All readings that the worker has written, as a ``samples`` table; also after its end.

        Raises:
            RecorderDiedError: If it was never started.
        """
        with self._lock:
            return self._started()[1].table()

    def follow(self) -> SampleStream:
        """A second reader of the stream, for a caller that consumes new batches.

        Raises:
            RecorderDiedError: If it was never started.
        """
        if self._path is None:
            raise RecorderDiedError("the recorder was not started")
        return SampleStream(self._path, self.channels)

    def wait_until(self, time_ns: int, timeout_s: float = 5.0) -> bool:
        """Wait until the power record has passed ``time_ns``; False after ``timeout_s``.

        False at once if no power record exists.

        Raises:
            RecorderDiedError: If the recorder has ended or a sensor has failed.
        """
        link, stream = self._started()
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                reached = stream.power_until()
            if reached is None or reached >= time_ns:
                return reached is not None
            self.check()
            if self._stopped or time.monotonic() >= deadline:
                return False
            # The end of the record lies in the driver; without a request it arrives up to a second later.
            link.ask_for_power()
            time.sleep(_ASK_EVERY_S)

    def check(self) -> None:
        """Raise ``RecorderDiedError`` if the worker has died or a sensor has failed; the data stays on disk."""
        if self._link is None:
            return
        with self._lock:
            if not self._stopped:
                death = self._link.death()
                self._listen(self._link)
                if death is not None:
                    self._note_death(death)
            self._raise_problems()

    def stop(self) -> RecorderCost:
        """Let the worker record the sensor's tail and end.

        Raises:
            RecorderDiedError: At the first call, if it had died or a sensor had failed before.
        """
        with self._lock:
            link = self._link
            if self._stopped or link is None:
                return self._cost or RecorderCost()
            self._stopped = True
            death = link.death()
            ended_well = link.end(_END_S + TAIL_S)
            self._listen(link)
            if death is not None or not ended_well or self._cost is None:
                self._note_death(death or link.death() or "it sent no final report")
            link.close()
            self._raise_problems()
            return self._cost or RecorderCost()

    def _await_ready(self, link: WorkerLink) -> dict[str, Any]:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            link.await_event(0.5)
            death = link.death()  # checked before the events are read, so that no last event is missed
            for event in self._listen(link):
                if event["event"] == "ready":
                    return event
            if death is not None:
                raise RecorderDiedError("the recorder can't start: " + ("; ".join(self._problems) or death))
        raise RecorderDiedError(f"the recorder can't start: it was not ready in {_START_S:g} s")

    def _listen(self, link: WorkerLink) -> list[dict[str, Any]]:
        events = link.events()
        for event in events:
            if event["event"] in ("failed", "source_failed"):
                self._problems.append(event["message"])
            elif event["event"] == "done":
                self._cost = RecorderCost(event["cpu_s"], event["wall_s"], event["samples"])
                if event["terminated"]:
                    self._note_death("it received SIGTERM")
        return events

    def _note_death(self, how: str) -> None:
        if not self._problems:
            kept = f"the data written so far is kept in {self._spool}"
            self._problems.append(f"the recorder ended before the recording did ({how}); {kept}")

    def _raise_problems(self) -> None:
        if self._problems:
            raise RecorderDiedError("; ".join(self._problems))

    def _started(self) -> tuple[WorkerLink, SampleStream]:
        if self._link is None or self._stream is None:
            raise RecorderDiedError("the recorder was not started")
        return self._link, self._stream
