"""Chrome's trace event JSON, which chrome://tracing, Perfetto and TensorBoard open.

Source: "Trace Event Format", Google. Stamps are decimal microseconds since ``baseTimeNanoseconds``,
to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.exporters.output import new_file
from jouletrace.formats.exporters.timeline.counters import CounterTrack, counters_of
from jouletrace.formats.exporters.timeline.slices import Slices, as_json
from jouletrace.formats.exporters.timeline.tracks import Track, TrackGroup, drawn_spans, processes_of, tracks_of
from jouletrace.run import Run
from jouletrace.run.header import jsonable

_LINES = 1 << 13


def write(run: Run, path: Path | str) -> Path:
    """Write a Run as Chrome JSON, compressed if the name ends in ".gz".

    Raises:
        BadInputError: If the path exists already, can't be written, or if times of the Run lie so far apart that 64
            bits of nanoseconds can't hold the distance.
    """
    with new_file(path) as file:
        head, events = _trace(run)
        file.write(f'{head[:-1]},"traceEvents":['.encode())
        between = "\n"
        while lines := list(islice(events, _LINES)):
            file.write((between + ",\n".join(lines)).encode())
            between = ",\n"
        file.write(b"\n]}\n")
    return Path(path)


def _trace(run: Run) -> tuple[str, Iterator[str]]:
    """Facts about a trace, as a JSON object, and its events, each as JSON."""
    spans, processes = drawn_spans(run), processes_of(run)
    lines = [line for line in counters_of(run, spans, processes) if len(line.time_ns) or line.left_out]
    tracks = list(tracks_of(spans, processes))
    times = [time for time in (spans.start_ns, spans.end_ns, *(line.time_ns for line in lines)) if len(time)]
    base_ns = min((int(time.min()) for time in times), default=run.created_ns)
    if max((int(time.max()) for time in times), default=base_ns) - base_ns >= 1 << 63:
        raise BadInputError("the Run has times that lie more than 292 years apart")
    slices = Slices(run, spans, base_ns)
    left_out = {
        "spans without a start": run.spans["start_ns"].null_count,
        "readings that are not numbers": sum(line.left_out for line in lines),
        "arrows from launches that can't be distinguished": slices.ambiguous,
    }
    left_out = {reason: count for reason, count in left_out.items() if count}
    facts = {"format": "jouletrace", "simulated": run.simulated, "command": run.command, "workload": run.workload}
    facts |= {"devices": [device.to_dict() for device in run.devices], "versions": run.versions}
    facts |= {"warnings": [warning.to_dict() for warning in run.warnings], "leftOut": left_out}
    head = {"displayTimeUnit": "ns", "baseTimeNanoseconds": base_ns, "otherData": jsonable(facts)}
    events = chain(
        _names(processes, lines, tracks),
        chain.from_iterable(_values(line, base_ns) for line in lines),
        chain.from_iterable(slices.events(tid, track) for tid, track in enumerate(tracks, start=1)),
        _notes(run, left_out),
    )
    return as_json(head), events


def _names(processes: dict[str | None, TrackGroup], lines: list[CounterTrack], tracks: list[Track]) -> Iterator[str]:
    """Names and order of the devices, of the host if it has something, and of the tracks."""
    used = {line.process for line in lines} | {track.process.id for track in tracks}
    shown = [process for device, process in processes.items() if process.id in used or device is not None]
    named = [("process", {"pid": process.id}, process.id, process.name) for process in shown]
    for tid, track in enumerate(tracks, start=1):
        named.append(("thread", {"pid": track.process.id, "tid": tid}, tid, track.name))
    for what, where, place, name in named:
        yield as_json({"ph": "M", **where, "name": f"{what}_name", "args": {"name": name}})
        yield as_json({"ph": "M", **where, "name": f"{what}_sort_index", "args": {"sort_index": place}})


def _values(line: CounterTrack, base_ns: int) -> Iterator[str]:
    name = as_json(line.name)
    head, tail = f'{{"ph":"C","pid":{line.process},"name":{name},"ts":', f',"args":{{{name}:'
    for at, value in zip((line.time_ns - base_ns).tolist(), line.value.tolist(), strict=True):
        yield f"{head}{at // 1000}.{at % 1000:03d}{tail}{value!r}}}}}"


def _notes(run: Run, left_out: dict[str, int]) -> Iterator[str]:
    """The Run's warnings and the items left out, as global marks."""
    found = [(one.code, f"{one.message} ({one.where})" if one.where else one.message) for one in run.warnings]
    found += [("left_out", f"{count} {reason}") for reason, count in left_out.items()]
    for name, message in found:
        yield as_json({"ph": "i", "s": "g", "ts": 0, "pid": 1, "tid": 0, "name": name, "args": {"message": message}})
