"""Common part of both recorders: polls sources, collects their readings and spools them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from jouletrace.devices.base import Device, Samples, Source
from jouletrace.errors import JouletraceError, RecorderDiedError
from jouletrace.run import ChannelInfo
from jouletrace.run.channels import POWER
from jouletrace.run.spool import SpoolWriter

TAIL_S = 0.3
"""Seconds that recording continues after the request to stop.

The last power of the GPU reaches the record with the delay of the sensor's response (about 80 ms on an H100), and the
record must include one more step of the energy counter (100 ms).
"""


class Collector:
    """Sources of devices, and the stream of their readings.

    Two MIG instances of one GPU list the sources of the GPU twice; each channel is recorded once.

    Args:
        devices: The devices to poll.
        spool: Folder of the stream.
        part: Part of the table (see ``SpoolWriter``).
        power_s: Longest interval in seconds between polls of a power that is constant between updates; None for
            the source's own interval.

    Raises:
        RecorderDiedError: If the stream can't be written.

    Attributes:
        sources: The sources to poll; a failed source is removed.
        channels: Their channels.
        failures: One line per failed source.
        samples: Readings written so far.
    """

    def __init__(self, devices: Sequence[Device], spool: Path, part: str, power_s: float | None = None) -> None:
        self.sources: list[Source] = []
        self.channels: list[ChannelInfo] = []
        self.failures: list[str] = []
        self.samples = 0
        self._pending: list[tuple[str, Samples]] = []
        known: set[tuple[str, str]] = set()
        for source in (source for device in devices for source in device.sources()):
            keys = {(channel.device, channel.name) for channel in source.channels}
            if keys and keys <= known:
                continue
            known |= keys
            if power_s is not None and any(_stands_still(channel) for channel in source.channels):
                source.interval_s = min(source.interval_s, power_s)
            self.sources.append(source)
            self.channels.extend(source.channels)
        with _written_to(spool):
            self._writer = SpoolWriter(spool, "samples", part)
        self.path = self._writer.path

    def poll(self, source: Source) -> None:
        """Poll one source; a source that fails permanently is removed, and the others continue."""
        try:
            batch = source.poll()
        except JouletraceError as error:
            names = ", ".join(channel.name for channel in source.channels)
            self.failures.append(f"recording of {names} of {source.channels[0].device} ended: {error}")
            self.sources.remove(source)
            return
        device = {channel.name: channel.device for channel in source.channels}
        self._pending.extend((device[samples.channel], samples) for samples in batch)

    def poll_power(self) -> None:
        """Poll every source of a power record."""
        for source in list(self.sources):
            if any(channel.name == POWER for channel in source.channels):
                self.poll(source)

    def poll_all(self) -> None:
        """Poll every source."""
        for source in list(self.sources):
            self.poll(source)

    def flush(self) -> None:
        """Write the collected readings as one batch.

        Raises:
            RecorderDiedError: If they can't be written.
        """
        pending, self._pending = self._pending, []
        if not pending:
            return
        stamps = np.concatenate([samples.time_ns for _, samples in pending])
        devices: list[str] = []
        channels: list[str] = []
        for device, samples in pending:
            devices += [device] * len(samples.time_ns)
            channels += [samples.channel] * len(samples.time_ns)
        value = np.concatenate([samples.value for _, samples in pending])
        with _written_to(self.path):
            self._writer.append({"time_ns": stamps, "device": devices, "channel": channels, "value": value})
        self.samples += len(stamps)

    def close(self) -> None:
        """Write the remaining readings and end the stream.

        Raises:
            RecorderDiedError: If they can't be written.
        """
        self.flush()
        with _written_to(self.path):
            self._writer.close()


def _stands_still(channel: ChannelInfo) -> bool:
    """Whether a channel is a power whose updates only polling can detect."""
    return channel.name in ("power_instant_w", "power_average_w") or (
        channel.name == POWER and channel.gapless is False
    )


@contextmanager
def _written_to(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RecorderDiedError(f"the recording can't be written to {path}: {error.strerror or error}") from None


def fresh_part(spool: Path) -> str:
    """An unused name for a part of ``samples``; later recordings sort after earlier ones."""
    n = 0
    while (spool / f"samples.{n:04d}.arrows").exists():
        n += 1
    return f"{n:04d}"
