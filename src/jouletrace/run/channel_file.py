"""A table of readings that stays in its file, of which a channel is read when it is asked for.

A week of eight GPUs has a hundred million means: what shows a Run, or computes its energy, needs few of them at a time.
"""

from __future__ import annotations

import io
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from threading import Lock
from typing import IO, BinaryIO, Self

import pyarrow as pa

from jouletrace.arrays import Floats, Ints
from jouletrace.errors import BadInputError
from jouletrace.run import tables
from jouletrace.run.files import chunks
from jouletrace.run.limits import Allowance, metadata_of

Check = Callable[[pa.Table, str], None]


class ChannelFile:
    """A Parquet file of which each row group holds one channel of one device; it stays open.

    Args:
        file: The file.
        name: Name of the table.
        where: What messages call the file.
        check: Refuses rows that violate an invariant, by a ``ValueError`` with one line.
        groups: Numbers of row groups by device and channel.

    Attributes:
        size: Bytes of the file.
        devices: Those that have rows.
    """

    def __init__(
        self, file: BinaryIO, name: str, where: str, check: Check, groups: Mapping[str, Mapping[str, list[int]]]
    ) -> None:
        if isinstance(file, io.BytesIO):
            self._file: BinaryIO = file
        else:
            handle = os.dup(file.fileno())
            weakref.finalize(self, os.close, handle)
            self._file = open(handle, "rb", closefd=False)  # noqa: SIM115
        self.name, self.size, self._where, self._groups = name, file.seek(0, os.SEEK_END), where, groups
        self._check = check
        self._rows: int = metadata_of(file).num_rows
        self._lock = Lock()  # readers have one position
        self.devices = list(groups)

    @classmethod
    def of(cls, file: BinaryIO, name: str, where: str, check: Check) -> Self | None:
        """The table in a file, with arguments of the class; None if a row group isn't of one channel.

        Raises:
            ValueError: If it is no Parquet file.
        """
        metadata = metadata_of(file)
        paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
        if not {"device", "channel"} <= set(paths):
            return None
        groups: dict[str, dict[str, list[int]]] = {}
        for number in range(metadata.num_row_groups):
            texts = [metadata.row_group(number).column(paths.index(name)).statistics for name in ("device", "channel")]
            if not all(text and text.has_min_max and text.min == text.max and not text.null_count for text in texts):
                return None
            device, channel = (text.min for text in texts)
            groups.setdefault(device, {}).setdefault(channel, []).append(number)
        return cls(file, name, where, check, groups)

    def __len__(self) -> int:
        return self._rows

    @cached_property
    def table(self) -> pa.Table:
        """All rows.

        Raises:
            BadInputError: If they can't be read, are more than is allowed, or one violates an invariant.
        """
        return self._read(None)

    def texts(self) -> set[str]:
        """All names of devices and channels."""
        return {*self._groups, *(channel for channels in self._groups.values() for channel in channels)}

    def has_several(self) -> bool:
        """True if there is more than one channel of one device."""
        return sum(map(len, self._groups.values())) > 1

    def channels(self, device: str | None) -> list[str]:
        """The channels of a device."""
        return list(self._groups.get(device or "", ()))

    def rows(self, device: str, channel: str) -> pa.Table:
        """The rows of one channel.

        Raises:
            BadInputError: Likewise.
        """
        groups = self._groups.get(device, {}).get(channel)
        return self._read(groups) if groups else tables.empty(self.name)

    def series(self, device: str | None, channel: str) -> tuple[Ints, Floats]:
        """Stamps and values of one channel; both empty if there is none.

        Raises:
            BadInputError: Likewise.
        """
        rows = self.rows(device or "", channel)
        return rows["time_ns"].to_numpy(), rows["value"].to_numpy()

    def chunks(self) -> Iterator[bytes]:
        """The file, in pieces."""
        with self._lock:
            self._file.seek(0)
            yield from chunks(self._file)

    def write_to(self, file: IO[bytes]) -> None:
        """Copy the file."""
        for chunk in self.chunks():
            file.write(chunk)

    def _read(self, groups: list[int] | None) -> pa.Table:
        with self._lock:
            try:
                table = tables.read(self._file, self.name, Allowance(self.size), groups)
                self._check(table, self.name)
            except ValueError as error:
                raise BadInputError(f"{self._where} is damaged: {error}") from None
        return table
