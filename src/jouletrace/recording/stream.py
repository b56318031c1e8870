"""Reads a growing stream of ``samples``, each batch once."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.run import ChannelInfo, tables
from jouletrace.run.channels import POWER


class SampleStream:
    """The complete batches of a growing stream as one table.

    The file stays open, so that its content can be read after the folder was removed.

    Args:
        path: The stream; it must exist.
        channels: All channels that occur in it.
    """

    def __init__(self, path: Path, channels: list[ChannelInfo]) -> None:
        self._file: BinaryIO = path.open("rb")
        self._offset = 0
        self._schema: pa.Schema | None = None
        # One dictionary for all batches, so that Arrow never has to unify dictionaries.
        self._devices = pa.array(sorted({c.device for c in channels}), pa.string())
        self._channels = pa.array(sorted({c.name for c in channels}), pa.string())
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
                return  # the end, or a batch that is still being written
            self._offset = self._file.tell()
            if self._schema is None:
                self._schema = pa.ipc.read_schema(message)
            else:
                self._take(pa.ipc.read_record_batch(message, self._schema))

    def _take(self, batch: pa.RecordBatch) -> None:
        columns = {name: batch.column(name) for name in batch.schema.names}
        columns["device"] = _encoded(columns["device"], self._devices)
        columns["channel"] = _encoded(columns["channel"], self._channels)
        whole = pa.RecordBatch.from_arrays([columns[f.name] for f in tables.SAMPLES], schema=tables.SAMPLES)
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
