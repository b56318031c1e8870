"""A Perfetto trace: native protobuf, for https://ui.perfetto.dev and trace_processor.

Fields and their numbers are those of Perfetto's ``protos/perfetto/trace``. Every track is a separate
packet sequence with its own words and clock. Tracks are therefore written one after another, and a
packet names no track and holds only the nanoseconds since the previous packet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError
from jouletrace.formats.exporters import protobuf as pb
from jouletrace.formats.exporters.output import new_file
from jouletrace.formats.exporters.protobuf import ARG_NAMES, ARG_TEXTS, EVENT_CATEGORIES, EVENT_NAMES, Interned
from jouletrace.formats.exporters.timeline import notes, timeline_of
from jouletrace.formats.exporters.timeline.counters import Counter
from jouletrace.formats.exporters.timeline.slices import Batch, Slices
from jouletrace.formats.exporters.timeline.tracks import Track
from jouletrace.run import Estimate, Run

_PACKET = 1
_CLOCK_SNAPSHOT, _TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS = 6, 8, 10, 11, 12, 13
_TIMESTAMP_CLOCK, _DEFAULTS, _TRACK_DESCRIPTOR, _FIRST_ON_SEQUENCE = 58, 59, 60, 87
_CLEARED, _NEEDED = 1, 2
_REALTIME, _BOOTTIME, _INCREMENTAL = 1, 6, 64
_CATEGORY, _ARG, _TYPE, _NAME, _TRACK, _VALUE, _FLOW, _FLOW_END = 3, 4, 9, 10, 11, 44, 47, 48
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_EXPLICIT = 3
_SIZE_BYTES = 3
_BATCH = 1 << 15

_STAMPS = [pb.integer(_TIMESTAMP, number) for number in range(1 << 14)]
_HEADS = [pb.varint(_PACKET << 3 | 2) + pb.varint(number) for number in range(1 << 10)]


def write(run: Run, path: Path | str) -> Path:
    """Write a Run as a Perfetto trace, compressed if the name ends in ".gz".

    Times are nanoseconds since the Unix epoch, exactly.

    Raises:
        BadInputError: If the path exists already, can't be written, or a time lies
            before 1970, which the format can't represent.
    """
    with new_file(path) as file:
        timeline = timeline_of(run)
        if timeline.base_ns < 0:
            raise BadInputError("the Run has times before 1970, which a Perfetto trace can't hold")
        trace = _Trace(file, timeline.base_ns)
        for process in timeline.processes:
            trace.process(process.id, process.name)
        for line in timeline.lines:
            trace.counter(line)
        for track in timeline.tracks:
            trace.slices(timeline.slices, track)
        trace.notes(notes(run, timeline))
    return Path(path)


class _Trace:
    """A trace in the course of being written. The uuid of a track is its number, and also that of its sequence."""

    def __init__(self, file: BinaryIO, base_ns: int) -> None:
        self._file = file
        self._base_ns = base_ns
        self._count = 0

    def process(self, pid: int, name: str) -> None:
        """Add a process, before all tracks; its number is also the uuid of its track."""
        self._count = max(self._count, pid)
        descriptor = pb.message(3, pb.integer(1, pid), pb.text(6, name))
        self._descriptor(pid, descriptor + pb.integer(11, _EXPLICIT))

    def counter(self, line: Counter) -> None:
        """Add a counter with its unit."""
        unit = pb.integer(3, _SIZE_BYTES) if line.unit == "B" else pb.text(6, line.unit) if line.unit else b""
        sequence = self._sequence(line.name, line.process, pb.message(8, unit))
        head = sequence.fixed + pb.varint(_TRACK_EVENT << 3 | 2)
        head += pb.varint(len(pb.integer(_TYPE, _COUNTER) + pb.double(_VALUE, 0.0))) + pb.integer(_TYPE, _COUNTER)
        head += pb.double(_VALUE, 0.0)[:-8]
        for i in range(0, len(line.time_ns), _BATCH):
            values = line.value[i : i + _BATCH].astype("<f8").tobytes()
            bodies = [head + values[k : k + 8] for k in range(0, len(values), 8)]
            self._events(sequence, line.time_ns[i : i + _BATCH], bodies)

    def slices(self, slices: Slices, track: Track) -> None:
        """Add a track of spans, each with a begin and an end."""
        sequence = self._sequence(track.name, track.process)
        end = sequence.fixed + pb.message(_TRACK_EVENT, pb.integer(_TYPE, _END))
        pending = np.empty(0, np.int64)
        for batch in slices.batches(track, sequence.begin):
            self._interned(sequence)
            bodies = [*sequence.packed(batch), end]
            at, which, pending = _merged(pending, batch.start_ns, batch.end_ns)
            self._events(sequence, at, [bodies[k] for k in which.tolist()])
        self._events(sequence, pending, [end] * len(pending))

    def notes(self, found: list[tuple[str, str]]) -> None:
        """Add a track of instants: notes for the reader."""
        if not found:
            return
        sequence = self._sequence("Warnings", None)
        bodies = []
        for name, message in found:
            event = pb.integer(_TYPE, _INSTANT) + sequence.described(name, {"message": message})
            bodies.append(sequence.fixed + pb.message(_TRACK_EVENT, event))
        self._interned(sequence)
        self._events(sequence, np.full(len(found), self._base_ns), bodies)

    def _sequence(self, name: str, process: int | None, more: bytes = b"") -> _Sequence:
        """Begin a track: its descriptor, and a sequence with a clock that starts at the trace's base."""
        self._count += 1
        uuid = self._count
        parent = b"" if process is None else pb.integer(5, process) + pb.integer(12, uuid)
        own = pb.integer(_SEQUENCE, uuid)
        defaults = pb.message(_TRACK_EVENT, pb.integer(_TRACK, uuid)) + pb.integer(_TIMESTAMP_CLOCK, _INCREMENTAL)
        cleared = pb.integer(_FLAGS, _CLEARED) + pb.integer(_FIRST_ON_SEQUENCE, 1)
        self._packet(own, cleared, pb.message(_DEFAULTS, defaults))
        # The same moment for all tracks: the trace's own clock must not go back between tracks.
        clocks = [
            pb.message(1, pb.integer(1, clock), pb.integer(2, self._base_ns), pb.integer(3, clock == _INCREMENTAL))
            for clock in (_BOOTTIME, _REALTIME, _INCREMENTAL)
        ]
        self._packet(own, pb.message(_CLOCK_SNAPSHOT, *clocks))
        self._descriptor(uuid, pb.text(2, name) + parent + more)
        return _Sequence(own + pb.integer(_FLAGS, _NEEDED), self._base_ns)

    def _descriptor(self, uuid: int, fields: bytes) -> None:
        self._packet(pb.integer(_SEQUENCE, uuid), pb.message(_TRACK_DESCRIPTOR, pb.integer(1, uuid), fields))

    def _interned(self, sequence: _Sequence) -> None:
        new = sequence.words.take_new()
        if new:
            self._packet(sequence.fixed, pb.message(_INTERNED, new))

    def _packet(self, *fields: bytes) -> None:
        self._file.write(pb.message(_PACKET, *fields))

    def _events(self, sequence: _Sequence, at_ns: NDArray[np.int64], bodies: list[bytes]) -> None:
        """Write a packet per time, in increasing order."""
        if not len(at_ns):
            return
        waits = np.diff(at_ns, prepend=sequence.now_ns).tolist()
        sequence.now_ns = int(at_ns[-1])
        few, heads, some = _STAMPS, _HEADS, len(_HEADS)
        packets = []
        for wait, body in zip(waits, bodies, strict=True):
            stamp = few[wait] if wait < 16384 else pb.integer(_TIMESTAMP, wait)
            size = len(stamp) + len(body)
            packets.append((heads[size] if size < some else b"\x0a" + pb.varint(size)) + stamp + body)
        self._file.write(b"".join(packets))


class _Sequence:
    """The state of a packet sequence.

    Attributes:
        fixed: Beginning of every packet: the sequence's number, and that it needs the state.
        now_ns: Time of its last packet.
        words: Words with assigned numbers.
    """

    def __init__(self, fixed: bytes, now_ns: int) -> None:
        self.fixed = fixed
        self.now_ns = now_ns
        self.words = Interned()

    def begin(self, name: str, kind: str, args: Mapping[str, object]) -> bytes:
        """The event that begins a span, without its arrows."""
        category = pb.integer(_CATEGORY, self.words.number(EVENT_CATEGORIES, kind))
        return pb.integer(_TYPE, _BEGIN) + category + self.described(name, args)

    def described(self, name: str, args: Mapping[str, object]) -> bytes:
        """Name and args as fields of an event."""
        called = pb.integer(_NAME, self.words.number(EVENT_NAMES, name))
        return called + b"".join(self._arg(key, value) for key, value in _short(args).items())

    def packed(self, batch: Batch[bytes]) -> Iterator[bytes]:
        """The fields after the stamp in the packet that begins each span of a batch."""
        made: dict[bytes, bytes] = {}
        for i, (event, into) in enumerate(zip(batch.body, batch.into.tolist(), strict=True)):
            if into or i in batch.out:
                flows = b"".join(pb.fixed64(_FLOW, number) for number in batch.out.get(i, ()))
                flows += pb.fixed64(_FLOW_END, into) if into else b""
                yield self.fixed + pb.message(_TRACK_EVENT, event, flows)
                continue
            body = made.get(event)
            if body is None:
                body = made[event] = self.fixed + pb.message(_TRACK_EVENT, event)
            yield body

    def _arg(self, key: str, value: object) -> bytes:
        name = pb.integer(1, self.words.number(ARG_NAMES, key))
        if isinstance(value, int):
            return pb.message(_ARG, name, pb.integer(4, value))
        if isinstance(value, float):
            return pb.message(_ARG, name, pb.double(5, value))
        return pb.message(_ARG, name, pb.integer(17, self.words.number(ARG_TEXTS, _plain(value))))


def _merged(
    pending_ns: NDArray[np.int64], start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Begins of a batch, and the ends up to its last begin, of earlier spans too, in the order of nesting.

    Gives their times, increasing; for each the position of the span that begins, -1 for an end; and the ends that
    are pending then.
    """
    place = np.arange(len(start_ns))
    pointlike = end_ns == start_ns
    lasting = np.sort(np.concatenate([pending_ns, end_ns[~pointlike]]))
    due = np.searchsorted(lasting, start_ns[-1], "right")
    time = np.concatenate([lasting[:due], start_ns, start_ns[pointlike]])
    which = np.concatenate([np.full(due, -1), place, np.full(int(pointlike.sum()), -1)])
    # At equal times, open spans end first, then spans begin, and spans of zero length end at once.
    rank = np.concatenate([np.full(due, -1), 2 * place, 2 * place[pointlike] + 1])
    order = np.lexsort((rank, time))
    return time[order], which[order], lasting[due:]


def _short(args: Mapping[str, object]) -> dict[str, object]:
    """Args in fewer fields, each of which adds some bytes to every span.

    All energies form one text for reading, not for sums; shared memory is part of the block's text.
    """
    short = {key: value for key, value in args.items() if not isinstance(value, Estimate)}
    if "block" in short and "shared_bytes" in short:
        short["block"] = f"{_plain(short['block'])}; {_plain(short.pop('shared_bytes'))} B shared"
    energies = {key: value for key, value in args.items() if isinstance(value, Estimate)}
    if energies:
        kinds = (
            f"{key.removeprefix('energy_').removesuffix('_j')} {_stated(value)}" for key, value in energies.items()
        )
        short["energy_j"] = " | ".join(kinds)
    return short


def _stated(energy: Estimate) -> str:
    """Value, interval, method and flags of an energy in joules; or why the value is missing."""
    if energy.value is None:
        words = [f"none: {energy.reason}", energy.method]
    else:
        interval = f" [{energy.low:.6g}, {energy.high:.6g}]" if energy.low is not None else ""
        words = [f"{energy.value:.6g}{interval}", f"{energy.method}, n {energy.n}" if energy.n else energy.method]
    return "; ".join(filter(None, [*words, ", ".join(energy.flags)]))


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_plain, value))
    return "none" if value is None else str(value)
