"""A table of readings that stays in its file, of which a channel is read when it is asked for.

A week of eight GPUs has a hundred million means: what shows a Run, or computes its energy, needs few of them at a time.
"""

from __future__ import annotations

import io
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import IO, Any, BinaryIO, Self

import pyarrow as pa

from jouletrace.arrays import Floats, Ints
from jouletrace.errors import BadInputError
from jouletrace.run import tables
from jouletrace.run.files import chunks
from jouletrace.run.limits import VARIABLE, Allowance, TooLargeError, metadata_of

Check = Callable[[pa.Table, str], None]


class _Positioned(io.RawIOBase):
    """A file by its handle, with a position of its own: that of a handle is shared by all threads and forks."""

    def __init__(self, handle: int) -> None:
        self._handle, self._at = handle, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        from_at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: os.fstat(self._handle).st_size}
        self._at = from_at[whence] + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = os.pread(self._handle, len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class ChannelFile:
    """A Parquet file of which each row group holds one channel of one device; it stays open.

    Threads and forks may read it at once. A copy of it, and one in another process, holds the file in memory.

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
        self.name, self.size, self._where, self._groups = name, file.seek(0, os.SEEK_END), where, groups
        self._check, self._rows = check, int(metadata_of(file).num_rows)
        self._handle: int | None = None
        if isinstance(file, io.BytesIO) or not hasattr(os, "pread"):  # Windows replaces no file that is open
            file.seek(0)
            self._data = file.read()
        else:
            self._handle = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._handle)
            self._state = _state(self._handle)
        self.devices = list(groups)

    @classmethod
    def of(cls, file: BinaryIO, name: str, where: str, check: Check) -> Self | None:
        """The table in a file, with arguments of the class; None if a row group isn't of one channel.

        Raises:
            ValueError: If it is no Parquet file.
            OSError: If no more files can be opened.
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
            if not (isinstance(device, str) and isinstance(channel, str)):
                return None
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
        if not groups:
            return tables.empty(self.name)
        rows = self._read(groups)
        if [rows[column].unique().to_pylist() for column in ("device", "channel")] != [[device], [channel]]:
            raise BadInputError(f"{self._where} is damaged: rows that it states for {channel} of {device} are others")
        return rows

    def series(self, device: str | None, channel: str) -> tuple[Ints, Floats]:
        """Stamps and values of one channel; both empty if there is none.

        Raises:
            BadInputError: Likewise.
        """
        rows = self.rows(device or "", channel)
        return rows["time_ns"].to_numpy(), rows["value"].to_numpy()

    def chunks(self) -> Iterator[bytes]:
        """The file, in pieces.

        Raises:
            BadInputError: If it can't be read, or isn't what was opened any more.
        """
        try:
            with self._opened() as file:
                yield from chunks(file)
            self._check_state()
        except OSError as error:
            raise BadInputError(f"cannot read {self._where}: {error.strerror or error}") from None

    def write_to(self, file: IO[bytes]) -> None:
        """Copy the file.

        Raises:
            BadInputError: Likewise.
        """
        for chunk in self.chunks():
            file.write(chunk)

    def __reduce__(self) -> tuple[Any, ...]:
        data = io.BytesIO(b"".join(self.chunks()))
        return type(self), (data, self.name, self._where, self._check, self._groups)

    def _opened(self) -> BinaryIO:
        if self._handle is None:
            return io.BytesIO(self._data)
        self._check_state()
        return io.BufferedReader(_Positioned(self._handle))

    def _check_state(self) -> None:
        if self._handle is not None and _state(self._handle) != self._state:
            raise BadInputError(f"{self._where} was written to since it was opened: open the Run again")

    def _read(self, groups: list[int] | None) -> pa.Table:
        try:
            with self._opened() as file:
                table = tables.read(file, self.name, Allowance(self.size), groups)
            self._check(table, self.name)
        except TooLargeError:
            less = f"run.series(device, channel) reads one channel, and {VARIABLE}=8 allows 8 GiB"
            raise BadInputError(f"{self._where} has {self._rows} rows, more than are read at once: {less}") from None
        except ValueError as error:
            raise BadInputError(f"{self._where} is damaged: {error}") from None
        return table


def _state(handle: int) -> tuple[int, int]:
    """Size of a file, and when it was written last."""
    state = os.fstat(handle)
    return state.st_size, state.st_mtime_ns
