"""The layout of a Run in trace viewers: processes, tracks of spans, counters, notes."""

from __future__ import annotations

from dataclasses import dataclass

from jouletrace.errors import BadInputError
from jouletrace.formats.exporters.timeline.counters import Counter, counters_of
from jouletrace.formats.exporters.timeline.slices import Slices
from jouletrace.formats.exporters.timeline.tracks import Process, Track, processes_of, spans_of, tracks_of
from jouletrace.run import Run


@dataclass(frozen=True)
class Timeline:
    """The content of both trace formats.

    Attributes:
        processes: The host, and the devices with content.
        lines: Counters, process by process.
        tracks: Tracks of spans, process by process.
        slices: The spans themselves.
        base_ns: The earliest time, since the Unix epoch.
        left_out: Number of items that can't be drawn, by reason.
    """

    processes: list[Process]
    lines: list[Counter]
    tracks: list[Track]
    slices: Slices
    base_ns: int
    left_out: dict[str, int]


def timeline_of(run: Run) -> Timeline:
    """Lay out a Run.

    Raises:
        BadInputError: If its times lie so far apart that 64 bits of nanoseconds can't hold the distance.
    """
    spans = spans_of(run)
    processes = processes_of(run)
    lines = [line for line in counters_of(run, spans, processes) if len(line.time_ns) or line.left_out]
    tracks = list(tracks_of(spans, processes))
    slices = Slices(run, spans)
    used = {line.process for line in lines} | {track.process for track in tracks}
    left_out = {
        "spans without a start": int((~spans.drawn).sum()),
        "readings that are not numbers": sum(line.left_out for line in lines),
        "arrows from launches that can't be distinguished": slices.arrows.ambiguous,
    }
    edges = [
        *(int(line.time_ns[i]) for line in lines if len(line.time_ns) for i in (0, -1)),
        *(int(spans.start_ns[track.rows[0]]) for track in tracks),
    ]
    latest = max([*edges, int(spans.end_ns.max(initial=0))])
    if latest - min(edges, default=0) >= 1 << 63:
        raise BadInputError("the Run has times that lie more than 292 years apart")
    return Timeline(
        [process for process in processes if process.id in used or process.device is not None],
        lines,
        tracks,
        slices,
        min(edges, default=run.created_ns),
        {reason: count for reason, count in left_out.items() if count},
    )


def notes(run: Run, timeline: Timeline) -> list[tuple[str, str]]:
    """Notes for the reader: the Run's warnings and the items left out, each a name and a sentence."""
    found = [
        (warning.code, f"{warning.message} ({warning.where})" if warning.where else warning.message)
        for warning in run.warnings
    ]
    return [*found, *(("left_out", f"{count} {reason}") for reason, count in timeline.left_out.items())]
