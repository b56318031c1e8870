"""The part of a log that the user keeps: ``--from`` and ``--to``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import pyarrow.compute as pc

from jouletrace.analysis.imported_recording import moment, seconds_text
from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import RELATIVE, UNIX, ImportOptions, about
from jouletrace.formats.importers.extent import TIMES, Extent, extent
from jouletrace.formats.importers.stamps import read_stamps, zone_of
from jouletrace.option import number
from jouletrace.run import Run

_DAY_NS = 86_400_000_000_000

_MISSED = 0.01
"""Share of the time asked for that may lie outside of a log without a remark: about the distance of its rows."""


@dataclass(frozen=True)
class _Edge:
    """An end of the part: its time in ns, and True of a time of day, which may be on several days of the log."""

    time_ns: int
    of_day: bool = False


def cut(runs: Sequence[Run], paths: Sequence[str], options: ImportOptions) -> None:
    """Keep the readings of logs between two times, and state which in each file's ``aligned``.

    The first Run has a warning of what of that time is outside of the log, and of other days that match.

    Raises:
        BadInputError: If a file has more than readings, a time can't be read, the end lies before the beginning, or
            no reading lies between.
    """
    asked = " ".join(
        f"--{n} {text}" for n, text in (("from", options.since), ("to", options.until)) if text is not None
    )
    if not asked:
        return
    for run, path in zip(runs, paths, strict=True):
        if run.kind != "import" or any(len(run.table(name)) for name in TIMES if name != "samples"):
            raise BadInputError(f"{asked}: cuts logs of power, and {path} has more than readings")
    clock = UNIX if any(about(run)["clock"] == UNIX for run in runs) else RELATIVE
    known = [(one.start_ns, one.end_ns) for one in map(extent, runs)]
    start_ns = min((start for start, _ in known if start is not None), default=0)
    end_ns = max((end for _, end in known if end is not None), default=0)
    whole = Extent(start_ns, end_ns)
    since = _edge(options.since, "--from", clock, whole, options)
    until = _edge(options.until, "--to", clock, whole, options, since)
    if since and until and (until.time_ns < since.time_ns or _swapped(since, until, whole)):
        raise BadInputError(f"{asked}: the end lies before the beginning; the log has {whole.said()}")
    kept = 0
    for run in runs:
        before = len(run.samples)
        for edge, within in ((since, pc.greater_equal), (until, pc.less_equal)):
            if edge is not None:
                run.samples = run.samples.filter(within(run.samples["time_ns"], edge.time_ns))
        kept += len(run.samples)
        about(run)["aligned"] += f"; {len(run.samples)} of {before} readings were kept ({asked})"
    if not kept:
        raise BadInputError(f"{asked}: no reading lies there; the log has {whole.said()}")
    for code, text in _remarks(since, until, start_ns, end_ns).items():
        runs[0].warn(code, f"{asked}: {text}")


def _swapped(since: _Edge, until: _Edge, whole: Extent) -> bool:
    """True of an end by time of day that the log has before the beginning, and none after."""
    end_ns, start_ns = whole.end_ns or 0, whole.start_ns or 0
    return until.of_day and until.time_ns > end_ns and start_ns <= until.time_ns - _DAY_NS < since.time_ns


def _remarks(since: _Edge | None, until: _Edge | None, start_ns: int, end_ns: int) -> dict[str, str]:
    """Warnings of what the user may not have meant: code -> text."""
    found: dict[str, str] = {}
    first_ns = since.time_ns if since else start_ns
    last_ns = until.time_ns if until else end_ns
    most_ns = _MISSED * (last_ns - first_ns)
    missed = [f"begins at {moment(start_ns)}"] if start_ns - first_ns > most_ns else []
    missed += [f"ends at {moment(end_ns)}"] if last_ns - end_ns > most_ns else []
    if missed:
        there = seconds_text((min(last_ns, end_ns) - max(first_ns, start_ns)) / 1e9)
        found["beyond_log"] = (
            f"the log {' and '.join(missed)}: {there} of {seconds_text((last_ns - first_ns) / 1e9)} are in it"
        )
    by_day = since or until
    others = (end_ns - by_day.time_ns) // _DAY_NS if by_day is not None and by_day.of_day else 0
    if others > 0 and by_day is not None:
        days = f"{others} later day{'s' if others > 1 else ''} of the log match{'es' * (others == 1)}, too"
        found["several_days"] = f"taken from {moment(first_ns)} to {moment(min(last_ns, end_ns))}; {days}"
    return found


def _edge(
    text: str | None, name: str, clock: str, whole: Extent, options: ImportOptions, after: _Edge | None = None
) -> _Edge | None:
    """A time on the clock of a log: with a date, a date alone, a time of day ("10:30"), or seconds since it begins.

    A date alone is its begin or, of "--to", its end, within the log. A time of day is the first since
    the log begins, or since ``after``.

    Raises:
        BadInputError: If it is none of these, or has a date where the log has none.
    """
    if text is None:
        return None
    start_ns, end_ns = whole.start_ns or 0, whole.end_ns or 0
    with suppress(ValueError, OverflowError):
        return _Edge(start_ns + round(number(text) * 1e9))  # of nan and inf one of these
    of_day = f"{text}:00" if text.count(":") == 1 and len(text) <= len("10:30") else text
    found = read_stamps([of_day if ":" in text else f"{text} 00:00:00"], options.time_zone)
    if not found.valid[0] or (found.clock == UNIX) > (clock == UNIX):
        raise BadInputError(
            f"{name} {text!r}: write a time as the log has it (2026-11-24 10:30), a date (2026-11-24), a time of day "
            "(10:30), or seconds since the log begins"
        )
    time_ns = int(found.time_ns[0])
    if found.clock == UNIX and ":" not in text:
        last_ns = time_ns + _DAY_NS - 1
        inside = time_ns <= end_ns and start_ns <= last_ns
        of_date_ns = min(last_ns, end_ns) if name == "--to" else max(time_ns, start_ns)
        return _Edge(of_date_ns if inside else time_ns)
    if found.clock == UNIX:
        return _Edge(time_ns)
    if clock == UNIX:
        day = datetime.fromtimestamp(start_ns / 1e9, zone_of(options.time_zone))
        time_ns += round(day.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()) * 10**9
    early_ns = (start_ns if after is None else after.time_ns) - time_ns
    return _Edge(time_ns + max(0, -(-early_ns // _DAY_NS)) * _DAY_NS, of_day=True)
