"""Tables of jobs: what ``sacct`` prints, a CSV file with a row a job, or the log of MLPerf's LoadGen."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import UNIX, read_text
from jouletrace.formats.importers.delimited import delimiter_of
from jouletrace.formats.importers.stamps import read_stamps, zone_of
from jouletrace.run.files import shown

_MEANINGS = {
    **dict.fromkeys(("jobname", "name", "job"), "name"),
    **dict.fromkeys(("jobid", "job_id", "jobidraw", "id"), "id"),
    **dict.fromkeys(("user", "username", "owner"), "user"),
    **dict.fromkeys(("nodelist", "hosts", "host", "hostname", "nodes", "node"), "hosts"),
    **dict.fromkeys(("gpu_ids", "gpu_id", "gpu", "gpu_index", "gpu_uuid", "gpu_uuids", "uuid"), "gpus"),
    **dict.fromkeys(("gpu_count", "ngpus", "gpus_total", "alloctres", "reqtres", "allocgres"), "count"),
    "gpus": "gpus or count",
    **dict.fromkeys(("start", "starttime", "start_time", "started"), "start"),
    **dict.fromkeys(("end", "endtime", "end_time", "ended"), "end"),
}
"""Meaning of a column by its heading, in small letters."""

_RUNNING = ("unknown", "", "running", "none")
_NOT_STARTED = ("unknown", "", "none", "none assigned")
_IN_TRES = re.compile(r"gres/gpu(?::[\w.-]+)?=(\d+)|^gpu(?::[\w.-]+)?:(\d+)")
_MOST_GPUS, _MOST_HOSTS = 1_000, 65_536  # of a range; of hosts Slurm's own MAX_RANGE
_RANGE = re.compile(r"(\d{1,18})-(\d{1,18})")
_TIMED = re.compile(r'"key": *"power_(begin|end)", *"value": *"(\d\d)-(\d\d)-(\d{4}) ([\d:.]+)"')
"""What LoadGen logs where the run that counts begins and ends: month, day, year and local time."""

_NODES = re.compile(r"([^,\[\]]+(?:\[[^\]]*\][^,\[\]]*)*)(?:,|$)")


@dataclass(frozen=True)
class ClusterJob:
    """A row of the table.

    Attributes:
        name: Its name, else its id.
        id: As the scheduler gives it; "" if the table has none.
        user: "" if unknown.
        hosts: Where it ran; empty if the table doesn't say.
        gpus: Indices or UUIDs of its GPUs on each host; None if the table names none of any job.
        count: Number of its GPUs on all hosts; None if unknown.
        start_ns: When it began, since the Unix epoch.
        end_ns: When it ended; None while it runs.
    """

    name: str
    id: str
    user: str
    hosts: tuple[str, ...]
    gpus: tuple[str, ...] | None
    count: int | None
    start_ns: int
    end_ns: int | None


def read_jobs(path: Path, time_zone: str | None = None) -> tuple[list[ClusterJob], list[str]]:
    """The jobs of a table by their start, and notes on its times and on rows that were left out.

    Args:
        path: What ``sacct`` prints, with or without ``-P``, a CSV file, or ``mlperf_log_detail.txt``.
        time_zone: Of local times, an IANA name; None for UTC.

    Raises:
        BadInputError: If it can't be read, lacks a start or an end, or no row is a job that began.
    """
    header, rows = _table(read_text(path))
    columns = _columns(header, path)
    if "start" not in columns or "end" not in columns:
        raise BadInputError(
            f"{shown(path)}: a table of jobs has a start and an end (headings are {', '.join(header[:8])}): "
            f"sacct -P -o JobID,JobName,User,NodeList,AllocTRES,Start,End prints both"
        )
    cells = [(line, {what: row[n].strip() for what, n in columns.items()}) for line, row in rows]
    jobs, left, doubled = [], Counter[str](), list[str]()
    first: dict[str, int] = {}
    times = {what: _times([row[what] for _, row in cells], time_zone) for what in ("start", "end")}
    ids = {row.get("id", "") for _, row in cells}
    for k, (line, row) in enumerate(cells):
        start_ns, end_ns = times["start"][0][k], times["end"][0][k]
        why = ""
        if (step := row.get("id", "").rpartition("."))[1] and step[0] in ids:
            continue  # a step of a job, which is in its row
        if any(rows[k][1][len(header) :]):
            why = "has more cells than the table has headings"
        elif any(row.get(what, "").endswith("+") for what in ("hosts", "count")):
            why = "is cut short by sacct, which prints all with -P"
        elif row.get("count") and _count(row["count"]) is None:
            why = "has a number of GPUs that can't be read"
        elif row["start"].lower() in _NOT_STARTED:
            why = "had not started"
        elif start_ns is None or (end_ns is None and row["end"].lower() not in _RUNNING):
            why = "has a time that can't be read"
        elif end_ns is not None and end_ns <= start_ns:
            why = "ended before it began" if end_ns < start_ns else "took no time"
        if not why:
            assert start_ns is not None
            jobs.append(_job(row, start_ns, end_ns))
        who = " ".join(filter(None, (row.get("name"), row.get("id")))) or f"in line {line}"
        doubled += [f"the job {who}: its {what} {twice[k]}" for what, (_, twice) in times.items() if k in twice]
        left[why] += 1
        first.setdefault(why, line)
    notes = [
        f"{n} {'row' if n == 1 else 'rows'} left out: the job {why} (the first in line {first[why]})"
        for why, n in left.items()
        if why
    ] + doubled
    if not jobs:
        raise BadInputError(f"{shown(path)}: no row is a job that began{f' ({notes[0]})' if notes else ''}")
    return sorted(jobs, key=lambda job: job.start_ns), notes


def _times(texts: Sequence[str], time_zone: str | None) -> tuple[list[int | None], dict[int, str]]:
    """Times of a column in ns since the Unix epoch, None where there is none, and words on rows whose time is doubled.

    Rows of jobs aren't in the order of their times, which states the pass through a doubled hour in a log.
    """
    stamps = read_stamps(texts, time_zone)
    if stamps.clock != UNIX:
        return [None] * len(texts), {}
    valid = zip(stamps.time_ns.tolist(), stamps.valid.tolist(), strict=True)
    times: list[int | None] = [time_ns if there else None for time_ns, there in valid]
    twice: dict[int, str] = {}
    for k, time_ns in enumerate(times):
        if time_ns is None or time_zone is None:
            continue
        local = datetime.fromtimestamp(time_ns // 10**9, UTC).astimezone(zone_of(time_zone))
        if local.replace(fold=0).utcoffset() == local.replace(fold=1).utcoffset():
            continue
        alone = read_stamps(texts[k : k + 1], time_zone)
        if "hour_assumed" in alone.notes:
            times[k] = int(alone.time_ns[0])
            twice[k] = f"{local:%H:%M} occurs twice on {local:%Y-%m-%d}: the first was taken; let Slurm print UTC"
    return times, twice


def _table(text: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Headings, and the cells of each row with its line; of columns of fixed widths, as ``sacct`` prints without -P."""
    lines = text.splitlines()
    if text.lstrip().startswith(":::MLLOG"):
        return ["name", "start", "end"], _loadgen(lines)
    at = next((n for n, line in enumerate(lines[1:30], 1) if re.fullmatch(r"\s*-{2,}(\s+-{2,})*\s*", line)), None)
    if at is not None:
        spans = [match.span() for match in re.finditer(r"-+", lines[at])]
        return [lines[at - 1][a:b].strip() for a, b in spans], [
            (n, [line[a:b] for a, b in spans]) for n, line in enumerate(lines[at + 1 :], at + 2) if line.strip()
        ]
    delimiter = (delimiter_of(lines[0]) if lines else None) or ","
    # sacct quotes nothing
    split = [line.split("|") for line in lines] if delimiter == "|" else csv.reader(lines, delimiter=delimiter)
    rows = [(n, row) for n, row in enumerate(split, 1) if any(row)]
    if not rows:
        return [], []
    header = [cell.strip() for cell in rows[0][1]]
    return header, [(n, [*row, *[""] * (len(header) - len(row))]) for n, row in rows[1:]]


def _loadgen(lines: Sequence[str]) -> list[tuple[int, list[str]]]:
    """Runs that MLPerf's rules take the power of, as rows with their lines; of one that didn't end, no time."""
    runs: list[tuple[int, list[str]]] = []
    for n, line in enumerate(lines, 1):
        if at := _TIMED.search(line):
            time = f"{at[4]}-{at[2]}-{at[3]} {at[5]}"
            if at[1] == "begin":
                runs.append((n, ["MLPerf run", time, "never"]))
            elif runs:
                runs[-1][1][2] = time
        elif runs and '"result_validity", "value": "INVALID"' in line:
            runs[-1][1][0] = "MLPerf run, invalid"
    return runs


def _columns(header: Sequence[str], path: Path) -> dict[str, int]:
    """Place of each meaning; the first of several columns with one counts."""
    columns: dict[str, int] = {}
    for n, heading in enumerate(header):
        meaning = _MEANINGS.get(heading.strip().lower().replace(" ", "_"))
        if meaning == "gpus or count":
            raise BadInputError(
                f"{shown(path)}: the column {heading} may name GPUs or count them: call it gpu_ids or gpu_count"
            )
        if meaning is not None:
            columns.setdefault(meaning, n)
    return columns


def _job(row: dict[str, str], start_ns: int, end_ns: int | None) -> ClusterJob:
    gpus = tuple(dict.fromkeys(_listed(row["gpus"]))) if "gpus" in row else None
    return ClusterJob(
        row.get("name") or row.get("id") or "job",
        row.get("id", ""),
        row.get("user", ""),
        tuple(_hosts(row.get("hosts", ""))),
        gpus,
        _count(row["count"]) if row.get("count") else None if gpus is None else len(gpus),
        start_ns,
        end_ns,
    )


def _listed(text: str) -> Iterator[str]:
    """Names in a cell: "0,2", "0-3", "GPU-4f5e..."."""
    for part in re.split(r"[\s,;+]+", text.strip().strip("[]")):
        if match := _RANGE.fullmatch(part):
            yield from map(str, _range(match, _MOST_GPUS))
        elif part:
            yield part


def _count(text: str) -> int | None:
    """GPUs of "billing=8,gres/gpu=4" or "4"; None if it can't be read."""
    if text.isdigit():
        return int(text)
    match = _IN_TRES.search(text)
    return int(match[1] or match[2]) if match else 0 if "=" in text and "gpu" not in text else None


def _hosts(text: str) -> Iterator[str]:
    """Names of "node[01-03,07],login1"."""
    for match in _NODES.finditer(text.strip()):
        parts = re.split(r"\[([^\]]*)\]", match[1].strip())
        choices = [[part] if n % 2 == 0 else list(_numbered(part)) for n, part in enumerate(parts)]
        yield from ("".join(parts) for parts in product(*choices))


def _numbered(text: str) -> Iterator[str]:
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            yield part.strip()
        else:
            yield from (f"{n:0{len(match[1])}d}" for n in _range(match, _MOST_HOSTS))


def _range(match: re.Match[str], most: int) -> range:
    numbers = range(int(match[1]), int(match[2]) + 1)
    if len(numbers) > most:
        raise BadInputError(f"a table of jobs has a range of more than {most:,} GPUs or hosts: {match[0]}")
    return numbers
