"""Polls sources and spools their readings, for both recorders; reads the growing stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from jouletrace.devices.base import Device, Samples, Source
from jouletrace.errors import JouletraceError, RecorderDiedError
from jouletrace.run import ChannelInfo, tables
from jouletrace.run.channels import POWER
from jouletrace.run.lazily import compute as pc
from jouletrace.run.seconds import NS, of_seconds
from jouletrace.run.spool import SpoolWriter, read_part


class SampleStream:
    """The complete batches of a growing stream as one table.

    The file stays open, so that its content can be read after the folder was removed.

    Args:
        path: The stream; it must exist.
        channels: All channels that occur in it.
        kept_s: Age of the first batch from which on ``table`` has none; None for never.

    Attributes:
        is_whole: Whether the last ``table`` had all that was written.
    """

    def __init__(self, path: Path, channels: list[ChannelInfo], kept_s: float | None = None) -> None:
        self.path = path
        self.is_whole = True
        self._kept_ns = None if kept_s is None else int(kept_s * 1e9)
        self._first_ns: int | None = None
        self._next: Path | None = None
        self._file: BinaryIO = path.open("rb")
        self._offset = 0
        self._schema: pa.Schema | None = None
        self._known = channels
        self._batches: list[pa.RecordBatch] = []
        self._last_power: dict[str, int] = {c.device: 0 for c in channels if c.name == POWER}

    def table(self) -> pa.Table:
        """All complete batches so far, as a ``samples`` table."""
        self._catch_up()
        return pa.Table.from_batches(self._batches, schema=tables.SAMPLES)

    def take(self) -> pa.Table:
        """The batches since the last call, which are then dropped: for recordings of any length."""
        fresh = self.table()
        self._batches = []
        return fresh

    def power_until(self) -> int | None:
        """The stamp that every device's power record has reached; None if there is no such record."""
        self._catch_up()
        return min(self._last_power.values(), default=None)

    def _catch_up(self) -> None:
        while True:
            self._file.seek(self._offset)
            try:
                message = pa.ipc.read_message(self._file)
            except (EOFError, pa.ArrowInvalid, OSError):
                # the end, or a batch that is still being written; a part that has a next one was complete before that
                if self._next is not None:
                    self.close()
                    self.path, self._file, self._next = self._next, self._next.open("rb"), None
                    self._offset, self._schema = 0, None
                elif (later := self._later()) is None:
                    return
                else:
                    self._next = later
                continue
            self._offset = self._file.tell()
            if self._schema is None:
                self._schema = pa.ipc.read_schema(message)
            else:
                self._take(pa.ipc.read_record_batch(message, self._schema))

    def _later(self) -> Path | None:
        """The next part of a recording that is thinned."""
        if not self.path.name.startswith("recent."):
            return None
        return min((path for path in self.path.parent.glob("recent.*") if path.name > self.path.name), default=None)

    # One dictionary for all batches, so that Arrow never has to unify dictionaries. An array imports pandas: not before
    # there are samples.
    @cached_property
    def _devices(self) -> pa.Array:
        return pa.array(sorted({c.device for c in self._known}), pa.string())

    @cached_property
    def _channels(self) -> pa.Array:
        return pa.array(sorted({c.name for c in self._known}), pa.string())

    def _take(self, batch: pa.RecordBatch) -> None:
        # copies, so that no column keeps the message alive, most of which are texts
        columns = {name: pa.concat_arrays([batch.column(name)]) for name in ("time_ns", "value")}
        columns["device"] = _encoded(batch.column("device"), self._devices)
        columns["channel"] = _encoded(batch.column("channel"), self._channels)
        whole = pa.RecordBatch.from_arrays([columns[f.name] for f in tables.SAMPLES], schema=tables.SAMPLES)
        if self._kept_ns is not None:
            ends = pc.min_max(batch.column("time_ns")).as_py()
            self._first_ns = ends["min"] if self._first_ns is None else self._first_ns
            if ends["max"] is not None and self._first_ns is not None and ends["max"] > self._first_ns + self._kept_ns:
                self.is_whole, self._batches = False, []
        if self.is_whole:
            self._batches.append(whole)
        power = batch.filter(pc.equal(batch.column("channel"), POWER))
        for device in self._last_power:
            newest = pc.max(power.filter(pc.equal(power.column("device"), device)).column("time_ns")).as_py()
            if newest is not None:
                self._last_power[device] = max(self._last_power[device], newest)

    def close(self) -> None:
        """Close the file; the batches stay."""
        self._file.close()


def _encoded(column: pa.Array, dictionary: pa.Array) -> pa.DictionaryArray:
    indices = pc.index_in(column, value_set=dictionary).cast(pa.int32())
    return pa.DictionaryArray.from_arrays(indices, dictionary)


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
        kept_s: Age in seconds from which on readings are replaced by means of seconds; None for never. What is newer
            are files of a sixtieth of it, of the table ``recent``.

    Raises:
        RecorderDiedError: If the stream can't be written.

    Attributes:
        sources: The sources to poll; a failed source is removed.
        channels: Their channels.
        failures: One line per failed source.
        samples: Readings written so far.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        spool: Path,
        part: str,
        power_s: float | None = None,
        kept_s: float | None = None,
    ) -> None:
        self.sources: list[Source] = []
        self.channels: list[ChannelInfo] = []
        self.failures: list[str] = []
        self.samples = 0
        self._pending: list[tuple[str, Samples]] = []
        seen: set[tuple[str, str]] = set()
        for source in (source for device in devices for source in device.sources()):
            keys = {(channel.device, channel.name) for channel in source.channels}
            if keys and keys <= seen:
                continue
            seen |= keys
            if power_s is not None and any(_stands_still(channel) for channel in source.channels):
                source.interval_s = min(source.interval_s, power_s)
            self.sources.append(source)
            self.channels.extend(source.channels)
        self._thinner = Thinner(spool, kept_s) if kept_s is not None else None
        with written_to(spool):
            self._writer = self._thinner.next() if self._thinner else SpoolWriter(spool, "samples", part)
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
        time_ns = np.concatenate([samples.time_ns for _, samples in pending])
        columns = {
            "time_ns": time_ns,
            "device": [device for device, samples in pending for _ in samples.time_ns],
            "channel": [samples.channel for _, samples in pending for _ in samples.time_ns],
            "value": np.concatenate([samples.value for _, samples in pending]),
        }
        with written_to(self.path):
            self._writer.append(columns)
            if self._thinner is not None and self._thinner.is_due(int(time_ns.max())):
                self._writer.close()
                self._writer = self._thinner.next()
        self.samples += sum(len(samples.time_ns) for _, samples in pending)

    def close(self) -> None:
        """Write the remaining readings and end the stream.

        Raises:
            RecorderDiedError: If they can't be written.
        """
        self.flush()
        with written_to(self.path):
            self._writer.close()
            if self._thinner is not None:
                self._thinner.close()


_PARTS, _SHORTEST_NS = 60, 4 * NS
_MOST_BYTES = 1 << 26
"""Size of a file of means from which on another begins: each is in memory as it is read."""


class Thinner:
    """Parts of ``recent``, the oldest of which become means of seconds and their extremes.

    A part is removed when all of its seconds are on disk as means: once the part after it has been thinned, too.

    Args:
        spool: Folder of the parts.
        kept_s: As in ``Collector``.
    """

    def __init__(self, spool: Path, kept_s: float) -> None:
        self._spool, self._kept_ns = spool, int(kept_s * 1e9)
        self._part_ns = max(self._kept_ns // _PARTS, _SHORTEST_NS)
        self._parts: deque[tuple[Path, int]] = deque()
        self._path: Path | None = None
        self._before: tuple[Path, pa.Table] | None = None
        self._number = self._begun_ns = self._until_ns = 0
        self._writers: dict[str, SpoolWriter] = {}

    def is_due(self, newest_ns: int) -> bool:
        """True if the part that is written has its length; ``newest_ns`` is its newest stamp."""
        self._begun_ns = self._begun_ns or newest_ns
        if newest_ns < self._begun_ns + self._part_ns or self._path is None:
            return False
        self._parts.append((self._path, newest_ns))
        self._begun_ns = newest_ns
        return True

    def next(self) -> SpoolWriter:
        """The next part, once those that are old enough have been thinned.

        Raises:
            OSError: If it can't be written.
        """
        while self._parts and self._parts[0][1] <= self._begun_ns - self._kept_ns:
            self._thin(*self._parts.popleft())
        writer = SpoolWriter(self._spool, "recent", f"{self._number:06d}")
        self._path, self._number = writer.path, self._number + 1
        return writer

    def _thin(self, path: Path, newest_ns: int) -> None:
        readings = read_part(path, "recent")
        both = readings if self._before is None else tables.concat([self._before[1], readings], "recent")
        until_ns = (newest_ns - self._part_ns // 2) // NS * NS  # stamps come late by less
        means, extremes = of_seconds(both, self._until_ns, until_ns)
        for name, rows in (("extremes", extremes), ("samples", means)):  # after a kill, means say what is there
            writer = self._writers.get(name)
            if writer is None or writer.path.stat().st_size > _MOST_BYTES:
                self.close(name)
                writer = self._writers[name] = SpoolWriter(self._spool, name, f"{self._number:06d}")
            writer.append(
                {column: rows[column].to_pylist() for column in ("device", "channel")}
                | {
                    column: rows[column].to_numpy()
                    for column in rows.column_names
                    if column not in ("device", "channel")
                }
            )
        if self._before is not None:
            self._before[0].unlink(missing_ok=True)
        self._before, self._until_ns = (path, readings), until_ns

    def close(self, *names: str) -> None:
        """End the streams of means, or those of some tables."""
        for name in names or tuple(self._writers):
            if name in self._writers:
                self._writers.pop(name).close()


def _stands_still(channel: ChannelInfo) -> bool:
    """True if a channel is a power whose updates only polling can detect."""
    return channel.name in ("power_instant_w", "power_average_w") or (
        channel.name == POWER and channel.gapless is False
    )


@contextmanager
def written_to(path: Path) -> Iterator[None]:
    """Turn an error of writing to a place into one line.

    Raises:
        RecorderDiedError: With the place and the reason.
    """
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
