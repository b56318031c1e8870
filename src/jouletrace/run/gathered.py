"""Readings of a spool; those of a long recording channel by channel, in memory that doesn't grow with its length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from jouletrace.run import tables
from jouletrace.run.channel_file import ChannelFile
from jouletrace.run.model import Run, put
from jouletrace.run.scratch import Scratch
from jouletrace.run.seconds import NS, Columns, of_channel, rows_of
from jouletrace.run.sound import check, sound_rows
from jouletrace.run.spool import pieces

READINGS = ("samples", "recent", "extremes")
"""Tables of readings."""

LARGE_BYTES = 256 << 20
"""Bytes of readings in a spool from which on they stay in files: three million, four hours of one GPU."""

_Named = tuple[str, str]
"""Device and channel."""


def gather(run: Run, spool: Path, into: Path | None = None) -> None:
    """Give a Run the readings of a spool: in memory, or those of a long recording in files that are made in a folder.

    Those of ``recent`` that aren't thinned yet complete ``samples`` and ``extremes``; of a recording that isn't thinned
    ``samples`` holds all readings.

    Raises:
        BadInputError: If a file of the spool is too large, or doesn't hold its table.
        OSError: If the files can't be written; nothing of them is left.
    """

    def rows(name: str) -> Iterator[pa.Table]:
        return sound_parts(run, pieces(spool, name), name, str(spool.parent))

    thinned = all(any(spool.glob(pattern)) for pattern in ("samples.[0-9]*", "recent.*"))
    if not thinned and not is_large(spool):
        run.samples = tables.concat((*rows("recent"), *rows("samples")), "samples")
        return
    with ExitStack() as stack:
        parent = into or stack.enter_context(Scratch()).path
        folder = Path(stack.enter_context(TemporaryDirectory(dir=parent, ignore_cleanup_errors=True)))
        # A recorder that still runs removes from ``recent`` what it has written to the others before.
        parts = {name: _Split(rows(name), name, folder) for name in ("recent", "samples", "extremes")}
        paths = {name: folder / f"{name}.parquet" for name in READINGS}
        _put_together(parts, paths, simulated=run.simulated)
        for name, path in paths.items():
            with path.open("rb") as file:
                put(run, name, ChannelFile.of(file, name, f"{spool}/{name}", check) or tables.read(file, name))


def is_large(spool: Path) -> bool:
    """True if the readings of a spool are too many to be held in memory."""
    return sum(path.stat().st_size for path in spool.glob("samples.*")) > LARGE_BYTES


def sound_parts(run: Run, parts: Iterable[pa.Table], name: str, where: str) -> Iterator[pa.Table]:
    """Parts of a table of a spool without the rows that are damaged, which a warning counts."""
    lost = 0
    for part in parts:
        whole = sound_rows(part, name)
        lost += len(part) - len(whole)
        yield whole
    if lost:
        run.warn("rows_left_out", f"{lost} rows of {name} were damaged and were left out", where)


class _Split:
    """The rows of a table by device and channel, each in a file of plain numbers.

    Attributes:
        newest_ns: The newest stamp of each.
    """

    def __init__(self, rows: Iterable[pa.Table], name: str, folder: Path) -> None:
        columns = [field.name for field in tables.TABLES[name] if field.name not in ("device", "channel")]
        self._type = np.dtype([(column, np.int64 if column == "time_ns" else np.float64) for column in columns])
        self._stem = folder / name
        self._paths: dict[_Named, Path] = {}
        self.newest_ns: dict[_Named, int] = {}
        for piece in rows:
            (device, devices), (channel, channels) = (tables.decoded(piece[text]) for text in ("device", "channel"))
            numbers = np.empty(len(piece), self._type)
            for column in columns:
                numbers[column] = piece[column].to_numpy()
            pair = device * len(channels) + channel
            order = np.argsort(pair, kind="stable")
            for places in np.split(order, np.flatnonzero(np.diff(pair[order])) + 1) if len(order) else []:
                self._append((devices[device[places[0]]], channels[channel[places[0]]]), numbers[places])

    def _append(self, named: _Named, rows: Any) -> None:
        path = self._paths.setdefault(named, self._stem.with_suffix(f".{len(self._paths)}"))
        with path.open("ab") as file:
            file.write(rows.tobytes())  # ``tofile`` is silent about some bytes that don't fit on the disk
        self.newest_ns[named] = max(int(rows["time_ns"].max()), self.newest_ns.get(named, 0))

    def columns(self, named: _Named) -> Columns:
        """The numbers of one channel, by column."""
        path = self._paths.get(named)
        rows = np.fromfile(path, self._type) if path is not None else np.empty(0, self._type)
        return {column: rows[column] for column in self._type.names or ()}


def _put_together(split: Mapping[str, _Split], paths: Mapping[str, Path], *, simulated: bool) -> None:
    """Write the tables from their rows, channel by channel, completed by means of the seconds that aren't thinned."""
    newest = split["recent"].newest_ns
    until_ns = max(newest.values(), default=0) + NS
    recorded = {channel for _, channel in newest}
    reached = {n: -(-ns // NS) * NS for n, ns in split["samples"].newest_ns.items() if n[1] in recorded}
    thinned_ns = max(reached.values(), default=0)
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(tables.writer(path, name, simulated=simulated, by_channel=True))
            for name, path in paths.items()
        }
        for named in sorted({named for rows in split.values() for named in rows.newest_ns}):
            numbers = {name: rows.columns(named) for name, rows in split.items()}
            time_ns, value = (numbers["recent"][column] for column in ("time_ns", "value"))
            late = of_channel(named[1], time_ns, value, reached.get(named, 0), until_ns)
            fresh = time_ns > thinned_ns
            if named[1] in recorded:  # a recorder that is killed may have written extremes of seconds without means
                written = numbers["extremes"]["time_ns"] <= reached.get(named, 0)
                numbers["extremes"] = {column: values[written] for column, values in numbers["extremes"].items()}
            columns = {
                "recent": {"time_ns": time_ns[fresh], "value": value[fresh]},
                **{
                    name: _joined(numbers[name], more) for name, more in zip(("samples", "extremes"), late, strict=True)
                },
            }
            for name, each in columns.items():
                if len(each["time_ns"]):
                    rows = rows_of(name, named, each)
                    writers[name].write_table(tables.mark_simulated(rows) if simulated else rows)


def _joined(first: Columns, second: Columns) -> Columns:
    return {column: np.concatenate([values, second[column]]) for column, values in first.items()}
