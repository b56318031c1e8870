"""Chrome's trace event JSON, which chrome://tracing, Perfetto and TensorBoard open.

Source: "Trace Event Format", Google. Stamps are decimal microseconds since ``baseTimeNanoseconds``,
to the nanosecond.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from jouletrace.formats.exporters.output import new_file
from jouletrace.formats.exporters.timeline import Timeline, notes, timeline_of
from jouletrace.formats.exporters.timeline.counters import Counter
from jouletrace.formats.exporters.timeline.tracks import Track
from jouletrace.run import Estimate, Run
from jouletrace.run.header import jsonable

_LINES = 1 << 13


def write(run: Run, path: Path | str) -> Path:
    """Write a Run as Chrome JSON, compressed if the name ends in ".gz".

    Raises:
        BadInputError: If the path exists already, or can't be written.
    """
    with new_file(path) as file:
        timeline = timeline_of(run)
        _Trace(file, timeline).write(run)
    return Path(path)


class _Trace:
    """A trace in the course of being written."""

    def __init__(self, file: BinaryIO, timeline: Timeline) -> None:
        self._file = file
        self._timeline = timeline
        self._base = timeline.base_ns
        self._first = True

    def write(self, run: Run) -> None:
        """Write the whole trace."""
        facts = {"format": "jouletrace", "simulated": run.simulated, "command": run.command, "workload": run.workload}
        facts |= {"devices": [device.to_dict() for device in run.devices], "versions": run.versions}
        facts |= {"warnings": [warning.to_dict() for warning in run.warnings], "leftOut": self._timeline.left_out}
        head = {"displayTimeUnit": "ns", "baseTimeNanoseconds": self._base, "otherData": jsonable(facts)}
        self._file.write(_json(head)[:-1].encode() + b',"traceEvents":[')
        self._events(self._names())
        for line in self._timeline.lines:
            self._events(self._counter(line))
        for tid, track in enumerate(self._timeline.tracks, start=1):
            self._events(self._slices(tid, track))
        self._events(self._notes(notes(run, self._timeline)))
        self._file.write(b"\n]}\n")

    def _events(self, events: Iterable[str]) -> None:
        lines: list[str] = []
        for event in events:
            lines.append(event)
            if len(lines) == _LINES:
                self._put(lines)
        self._put(lines)

    def _put(self, lines: list[str]) -> None:
        if lines:
            self._file.write((("\n" if self._first else ",\n") + ",\n".join(lines)).encode())
            self._first = False
            lines.clear()

    def _names(self) -> Iterator[str]:
        for process in self._timeline.processes:
            where = {"ph": "M", "pid": process.id}
            yield _json({**where, "name": "process_name", "args": {"name": process.name}})
            yield _json({**where, "name": "process_sort_index", "args": {"sort_index": process.id}})
        for tid, track in enumerate(self._timeline.tracks, start=1):
            where = {"ph": "M", "pid": track.process, "tid": tid}
            yield _json({**where, "name": "thread_name", "args": {"name": track.name}})
            yield _json({**where, "name": "thread_sort_index", "args": {"sort_index": tid}})

    def _counter(self, line: Counter) -> Iterator[str]:
        name = _json(f"{line.name} ({line.unit})" if line.unit else line.name)
        head, tail = f'{{"ph":"C","pid":{line.process},"name":{name},"ts":', f',"args":{{{name}:'
        for at, value in zip(self._since_base(line.time_ns), line.value.tolist(), strict=True):
            yield f"{head}{at // 1000}.{at % 1000:03d}{tail}{value!r}}}}}"

    def _slices(self, tid: int, track: Track) -> Iterator[str]:
        where = f'"pid":{track.process},"tid":{tid}'
        arrow = f'{where},"cat":"arrow","name":"launch","id":'
        for batch in self._timeline.slices.batches(track, _described):
            took = (batch.end_ns - batch.start_ns).tolist()
            starts = self._since_base(batch.start_ns)
            into = batch.into.tolist()
            for i, (at, length, body) in enumerate(zip(starts, took, batch.body, strict=True)):
                stamp = f"{at // 1000}.{at % 1000:03d}"
                yield f'{{"ph":"X","ts":{stamp},"dur":{length // 1000}.{length % 1000:03d},{where},{body}}}'
                for number in batch.out.get(i, ()):
                    yield f'{{"ph":"s","ts":{stamp},{arrow}{number}}}'
                if into[i]:
                    yield f'{{"ph":"f","bp":"e","ts":{stamp},{arrow}{into[i]}}}'

    def _notes(self, found: list[tuple[str, str]]) -> Iterator[str]:
        for name, message in found:
            yield _json({"ph": "i", "s": "g", "ts": 0, "pid": 1, "tid": 0, "name": name, "args": {"message": message}})

    def _since_base(self, time_ns: NDArray[np.int64]) -> list[int]:
        since: list[int] = (time_ns - self._base).tolist()
        return since


def _described(name: str, kind: str, args: Mapping[str, object]) -> str:
    """Name, category and args as members of an event."""
    plain = {
        key: {**value.to_dict(), "flags": value.flags} if isinstance(value, Estimate) else value
        for key, value in args.items()
    }
    return f'"name":{_json(name)},"cat":{_json(kind)},"args":{_json(jsonable(plain))}'


def _json(value: object) -> str:
    """JSON in ASCII without any character that would end a script or a string."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("</", "<\\/")
