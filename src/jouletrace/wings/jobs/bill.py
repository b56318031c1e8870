"""Energy of jobs by the power record of their GPUs: of each job, of time without gpu, and sums by user, host and day.

The record of a GPU is cut where jobs begin or end, at midnight, and at its holes.
Each piece belongs to one job, to none, or to several, whose energy isn't divided: what each draws can't be known from
the power of the GPU. Energies of pieces are solved together, so that sums have the covariance of their parts, and all
sums are those of the same pieces: jobs, time without a job and time with several add up to the whole.
"""

from __future__ import annotations

import csv
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from jouletrace.analysis.budget import OFFSET_W, absolute_interval, gain_pct, unseen
from jouletrace.analysis.levels import idle_and_working_levels
from jouletrace.analysis.power import energies, readings
from jouletrace.arrays import Floats, Ints, Mask
from jouletrace.attribution.solve import Energies, apart
from jouletrace.attribution.spans import SpanEnergies, shown_ns
from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import UNIX, read_text
from jouletrace.formats.importers.delimited import delimiter_of
from jouletrace.formats.importers.stamps import read_stamps
from jouletrace.formats.importers.units import plain_number
from jouletrace.report.tariffs import J_PER_KWH
from jouletrace.run import DeviceInfo, Estimate, Run
from jouletrace.run.estimate import widened
from jouletrace.run.files import shown
from jouletrace.run.readings import Readings
from jouletrace.sensor.power_record import rated_w
from jouletrace.sensor.shares import Response
from jouletrace.stats.interval import Z95, total
from jouletrace.wings.jobs.clocks import Works, clock_difference_s
from jouletrace.wings.jobs.tables import ClusterJob

NO_JOB, SEVERAL, UNKNOWN = "no job", "several jobs", "jobs without a figure"
"""Owners of pieces that are of no single job; the last where jobs ran on that host whose GPUs aren't known."""

EDGE_S = 1.0
"""Seconds by which an edge of a job may be off: schedulers write whole seconds."""

LATE, HABIT = 0.7, 1 / 8
"""Half-widths of what a change between the two readings around an edge adds, in the product of their distance and their
difference. A load begins some time after its job does, and ends some time before it. Over all such times up to the
distance, and all phases of the readings, the error has a standard deviation of 0.35, and for one time, the habit of a
cluster, a mean of at most 1/8, which all edges have in common."""

_MOST = 300
"""Pieces that are solved together: the covariance of all takes memory as the square of their number."""

AT_REST = 0.25
"""A GPU is at rest, idle or with a context alone, below that share of the way from its level without work to that at
work."""

_NEVER = 2**62


@dataclass(frozen=True)
class Pieces:
    """The record of a GPU, cut where its owner changes.

    Attributes:
        device: The GPU.
        host: Its host.
        start_ns, end_ns: Shape (m,).
        owner: Number of the job of each piece, -1 for none, -2 for several, -3 for one on unknown GPUs; shape (m,).
        day: Of each piece, "2026-11-30"; length m.
        solved: Energies of the pieces.
        rest: Seconds of each piece in which the GPU was at rest, shape (m,); NaN if its levels aren't known.
        grams: Mean grams of CO2 equivalent per kWh in each piece, weighed by its readings, shape (m,).
        edge_w: Power at the start and the end of each piece, W, shape (m, 2).
        change_j: Distance of the readings around these in time, times their difference, J, shape (m, 2).
    """

    device: DeviceInfo
    host: str
    start_ns: Ints
    end_ns: Ints
    owner: Ints
    day: list[str]
    solved: SpanEnergies
    rest: Floats
    grams: Floats
    edge_w: Floats
    change_j: Floats

    @property
    def seconds(self) -> Floats:
        """Length of each piece in seconds, shape (m,)."""
        return np.asarray((self.end_ns - self.start_ns) / 1e9, np.float64)


@dataclass(frozen=True)
class Line:
    """A line of a bill.

    Attributes:
        what: Its name: of a job, a user, a host, a day, or "all".
        energy: J, of the time that is recorded.
        carbon: Grams of CO2 equivalent; null without an intensity.
        seconds: GPU seconds that are recorded.
        asked_s: GPU seconds of the job; of others those that are recorded.
        rest: Share of the recorded time at which the GPUs were at rest; None if unknown.
        gpus: Labels of the GPUs.
        job: The job; None of a sum.
        note: Why it has no energy; "" where it has some.
    """

    what: str
    energy: Estimate
    carbon: Estimate
    seconds: float
    asked_s: float
    rest: float | None
    gpus: tuple[str, ...] = ()
    job: ClusterJob | None = None
    note: str = ""

    @property
    def recorded(self) -> float:
        """Share of the time that is recorded."""
        return self.seconds / self.asked_s if self.asked_s else 0.0


@dataclass
class JobsBill:
    """Lines of the jobs, of users, hosts and days, and of what is no single job's; of the whole; and what to know.

    ``clocks`` are the seconds by which a host's clock seems to be ahead of that of the jobs, ``gain_pct`` the limit of
    the gain of the sensors, which is in the intervals of one that is ``absolute``; None if unknown.
    """

    jobs: list[Line]
    sums: dict[str, list[Line]]
    whole: Line
    holes_s: float = 0.0
    clocks: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    gain_pct: float | None = None
    absolute: bool = False

    def with_sensors(self) -> JobsBill:
        """The bill with gain and offset of the sensors in its intervals, if the gain is known: all at one limit."""
        if (gain := self.gain_pct) is None:
            return self

        def widened(line: Line) -> Line:
            joules, grams, offset_j = line.energy.value or 0.0, line.carbon.value or 0.0, OFFSET_W * line.seconds
            energy = absolute_interval(line.energy, unseen(joules, gain, offset_j))
            offset_g = offset_j * grams / joules if joules else 0.0
            return replace(line, energy=energy, carbon=absolute_interval(line.carbon, unseen(grams, gain, offset_g)))

        sums = {by: list(map(widened, lines)) for by, lines in self.sums.items()}
        return replace(self, jobs=list(map(widened, self.jobs)), sums=sums, whole=widened(self.whole), absolute=True)


@dataclass(frozen=True)
class Carbon:
    """Grams of CO2 equivalent per kWh from each time on, in ns, shape (h,); unknown before the first."""

    from_ns: Ints
    grams: Floats

    def at(self, time_ns: Ints) -> Floats:
        """That at some times, shape (n,); NaN where it is unknown."""
        latest = np.searchsorted(self.from_ns, time_ns, side="right") - 1
        return np.asarray(np.where(latest < 0, np.nan, self.grams[np.maximum(latest, 0)]), np.float64)


def bill(
    runs: Mapping[str, Run],
    jobs: Sequence[ClusterJob],
    zone: tzinfo = UTC,
    carbon: Carbon | None = None,
    ahead_s: Mapping[str, float] = MappingProxyType({}),
) -> JobsBill:
    """The bill of jobs on the GPUs of several hosts.

    Args:
        runs: The log of each host.
        jobs: By their start.
        zone: By which days begin.
        carbon: Grams of CO2 equivalent per kWh at a time; None if unknown.
        ahead_s: Seconds by which a host's clock is ahead of that of the jobs; 0 for others.
    """
    where = {host: _gpus(run) for host, run in runs.items()}
    claimed: dict[tuple[str, str], list[int]] = defaultdict(list)
    notes: dict[int, str] = {}
    unsure: dict[str, list[int]] = defaultdict(list)
    for number, job in enumerate(jobs):
        there, notes[number] = _of_job(job, where)
        for host, device in there:
            claimed[host, device.id].append(number)
        if not there and job.count != 0:
            for host in set(job.hosts or where).intersection(where):
                unsure[host].append(number)
    shared = {n for mine in claimed.values() for n in _overlapping(mine, jobs)}
    pieces, holes_s, differ = [], 0.0, dict[str, int]()
    for host, devices in where.items():
        shift_ns, works = round(1e9 * ahead_s.get(host, 0.0)), list[Works]()
        for device in devices:
            mine, others = (
                [(n, jobs[n].start_ns + shift_ns, (jobs[n].end_ns or _NEVER) + shift_ns) for n in some]
                for some in (claimed[host, device.id], unsure[host])
            )
            log = _log(runs[host], device)
            cut, lost_s = _cut(runs[host], log, device, host, mine, others, zone, carbon)
            pieces += cut
            holes_s += lost_s
            if log.below_w is not None:
                at_work = np.where(log.record.value < log.below_w, -1.0, 1.0)
                works.append(Works(log.record.time_ns, at_work, [(start, end) for _, start, end in mine]))
        if not unsure[host] and (difference_s := clock_difference_s(works)):
            differ[host] = difference_s
    lines = []
    counts = Counter(number for mine in claimed.values() for number in mine)
    for number, job in enumerate(jobs):
        lines.append(_job_line(number, job, counts[number], pieces, number in shared, notes[number]))
    sums = {
        "user": _sums(pieces, lambda gpu, k: _owner(int(gpu.owner[k]), jobs)),
        "host": _sums(pieces, lambda gpu, _: gpu.host),
        "day": _sums(pieces, lambda gpu, k: gpu.day[k]),
    }
    whole = _line("all", pieces, [np.ones(len(gpu.owner), bool) for gpu in pieces])
    gains = [gain_pct(run) for run in runs.values()]
    gain = max((limit for limit in gains if limit is not None), default=None) if None not in gains else None
    return JobsBill(lines, sums, whole, holes_s, differ, gain_pct=gain)


class _Log(NamedTuple):
    """The power record of a GPU, what a reading shows, and the watts below which it is at rest (``AT_REST``).

    The last is None if the log doesn't show two levels.
    """

    record: Readings
    response: Response
    below_w: float | None


def _log(run: Run, device: DeviceInfo) -> _Log:
    """That of one of ``_gpus``."""
    log = readings(run, device.id)
    assert log is not None
    levels = idle_and_working_levels(*log, None, rated_w(device.name))
    if levels.idle.value is None or levels.working.value is None:
        return _Log(*log, None)
    return _Log(*log, levels.idle.value + AT_REST * (levels.working.value - levels.idle.value))


def _overlapping(numbers: Sequence[int], jobs: Sequence[ClusterJob]) -> Iterator[int]:
    """Those of jobs of one GPU, by their start, that ran while another did."""
    for k, n in enumerate(numbers):
        for other in numbers[k + 1 :]:
            end_ns = jobs[n].end_ns
            if end_ns is not None and jobs[other].start_ns >= end_ns:
                break
            yield from (n, other)


def _gpus(run: Run) -> list[DeviceInfo]:
    """GPUs with readings; those without an index, as simulated ones, are numbered in their order."""
    gpus = [device for device in run.devices if device.kind != "cpu"]
    gpus = [replace(device, index=k) if device.index is None else device for k, device in enumerate(gpus)]
    return [device for device in gpus if readings(run, device.id) is not None]


def _owner(number: int, jobs: Sequence[ClusterJob]) -> str:
    """The user of a piece, or that it is of none, several or unknown jobs."""
    if number < 0:
        return (NO_JOB, SEVERAL, UNKNOWN)[-1 - number]
    user = jobs[number].user or "(unknown)"
    return f"user {user}" if user in (NO_JOB, SEVERAL, UNKNOWN, "all") else user


def _of_job(job: ClusterJob, where: Mapping[str, Sequence[DeviceInfo]]) -> tuple[list[tuple[str, DeviceInfo]], str]:
    """The GPUs of a job with their hosts, or none and why."""
    hosts = [host for host in job.hosts if host in where] or ([] if job.hosts else list(where))
    if job.hosts and len(job.hosts) > len(hosts):
        missing = [host for host in job.hosts if host not in where]
        return [], f"there is no log of {', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}"
    there = [(host, device) for host in hosts for device in where[host]]
    return _with_all(job, there) if job.gpus is None else _named(job.gpus, there, len(hosts))


def _with_all(job: ClusterJob, there: list[tuple[str, DeviceInfo]]) -> tuple[list[tuple[str, DeviceInfo]], str]:
    """All GPUs of its hosts, if a job without names had so many."""
    if job.count == 0:
        return [], "it had no GPU"
    if job.count is None or job.count == len(there):
        return there, ""
    return [], f"it had {job.count} of {len(there)} GPUs, and the table doesn't say which: add a column gpu_ids"


def _named(
    gpus: Sequence[str], there: list[tuple[str, DeviceInfo]], hosts: int
) -> tuple[list[tuple[str, DeviceInfo]], str]:
    """The GPUs of so many hosts that a job's cell names."""
    if not gpus:
        return [], "the table names no GPU of it"
    named = [(host, device) for host, device in there if device.id in gpus or str(device.index) in gpus]
    names = {name for _, device in named for name in (device.id, str(device.index))}
    if missing := [gpu for gpu in gpus if gpu not in names]:
        return [], f"the log lacks its GPU {', '.join(missing[:8])}"
    if len(named) > len(gpus) * hosts:
        return [], "several GPUs of its host have one index: name them by UUID"
    return named, ""


def _cut(
    run: Run,
    log: _Log,
    device: DeviceInfo,
    host: str,
    jobs: Sequence[tuple[int, int, int]],
    others: Sequence[tuple[int, int, int]],
    zone: tzinfo,
    carbon: Carbon | None,
) -> tuple[list[Pieces], float]:
    """The pieces of a GPU's record but those in holes, some hundred together, and the seconds of these.

    ``jobs`` had this GPU, ``others`` perhaps: number, start and end in ns of its clock.
    """
    record = log.record
    shown_from, shown_until = shown_ns(record, log.response).tolist()
    first, last = max(int(record.time_ns[0]), shown_from), min(int(record.time_ns[-1]), shown_until)
    spans, perhaps = ([(n, max(start, first), min(end, last)) for n, start, end in some] for some in (jobs, others))
    every = [edge for _, *edges in (*spans, *perhaps) for edge in edges]
    inner = [record.holes.ravel(), np.array(every, np.int64), _midnights(first, last, zone)]
    edges = np.unique(np.concatenate([[first, last], *inner]).astype(np.int64))
    edges = edges[(edges >= first) & (edges <= last)]
    start, end = edges[:-1], edges[1:]
    there = record.hole_seconds(start, end) < (end - start) / 2e9
    lost_s = float((end - start)[~there].sum() / 1e9)
    start, end = start[there], end[there]
    middle = start + (end - start) // 2
    owner = np.full(len(start), -1, np.int64)
    for n, a, b in spans:
        inside = slice(*np.searchsorted(middle, [a, b]))
        owner[inside] = np.where(owner[inside] == -1, n, -2)
    for _, a, b in perhaps:
        inside = slice(*np.searchsorted(middle, [a, b]))
        owner[inside] = np.where(owner[inside] == -1, -3, owner[inside])
    rest = _rest(record, start, end, log.below_w)
    grams = np.full(len(start), np.nan) if carbon is None else _weighed(record, start, end, carbon)
    days = [datetime.fromtimestamp(at / 1e9, zone).strftime("%Y-%m-%d") for at in middle.tolist()]
    both = np.stack([start, end], axis=1)
    at = np.clip(np.searchsorted(record.time_ns, both), 1, len(record) - 1)
    edge_w = np.maximum(record.value[at], record.value[at - 1])
    apart_s = np.where(np.isin(both, record.holes), 0.0, (record.time_ns[at] - record.time_ns[at - 1]) / 1e9)
    change_j = apart_s * np.abs(record.value[at] - record.value[at - 1])
    pieces = []
    for a in range(0, len(start), _MOST):
        some = slice(a, a + _MOST)
        beside = None if len(start) <= _MOST else both[max(a - 1, 0) : a + _MOST + 1]
        solved = _known(energies(run, device.id, start[some], end[some], beside), record, both[some])
        of_some = (start[some], end[some], owner[some], days[some], solved, rest[some], grams[some])
        pieces.append(Pieces(device, host, *of_some, edge_w[some], change_j[some]))
    return pieces, lost_s


def _known(solved: SpanEnergies, record: Readings, edges: Ints) -> SpanEnergies:
    """Energies of pieces, shape (m, 2), those that readings don't resolve from the power beside them.

    A piece between two readings, or with a few, has the mean of the line through them; half of how far they differ is
    its half-width.
    """
    lack = np.flatnonzero(~solved.has_energy)
    if not len(lack):
        return solved
    means, halves = [], []
    for start, end in edges[lack].tolist():
        a, b = np.searchsorted(record.time_ns, [start, end], side="right").tolist()
        near = slice(max(a - 1, 0), b + 1)
        times = np.unique(np.clip(record.time_ns[near], start, end))
        watts = np.interp(
            np.array([start, *times.tolist(), end]) - start, record.time_ns[near] - start, record.value[near]
        )
        seconds = (end - start) / 1e9
        means.append(float(watts.mean()) * seconds)
        halves.append(max(float(np.ptp(record.value[near])) / 2, 1.0) * seconds)
    alone = Energies(np.ones(1), np.array([means]), np.diag(np.square(np.array(halves) / Z95))[None])
    known = np.flatnonzero(solved.has_energy)
    parts = [(lack, alone)]
    if solved.energies is not None and len(known):
        parts.insert(0, (known, solved.energies.of(solved.number[known])))
    both = apart(parts)
    none: list[str | None] = [None] * len(edges)
    return SpanEnergies(both, np.arange(len(edges)), none, solved.flags, None, *both.interval())


def _weighed(record: Readings, start: Ints, end: Ints, carbon: Carbon) -> Floats:
    """Mean intensity of each piece, each reading weighed by its power; shape (m,)."""
    grams = carbon.at(record.time_ns)
    sums = [np.concatenate([[0.0], np.cumsum(values)]) for values in (record.value, record.value * grams)]
    a, b = (np.searchsorted(record.time_ns, edge) for edge in (start, end))
    joules, weighed = (values[b] - values[a] for values in sums)
    alone = carbon.at(start + (end - start) // 2)  # of a piece without a reading
    return np.asarray(np.where(joules > 0, weighed / np.where(joules > 0, joules, 1.0), alone), np.float64)


def _midnights(first_ns: int, last_ns: int, zone: tzinfo) -> Ints:
    """Starts of the days between two times, ns."""
    day = datetime.fromtimestamp(first_ns / 1e9, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    midnights = []
    while (at := int(day.timestamp()) * 10**9) < last_ns:
        midnights.append(at)
        day += timedelta(days=1)
    return np.array(midnights, np.int64)


def _rest(record: Readings, start: Ints, end: Ints, below_w: float | None) -> Floats:
    """Seconds of each piece in which readings show the GPU at rest, shape (m,); NaN where that isn't known."""
    if below_w is None:
        return np.full(len(start), np.nan)
    until = np.concatenate([[0], np.cumsum(record.value < below_w)])
    a, b = (np.searchsorted(record.time_ns, edge) for edge in (start, end))
    share = (until[b] - until[a]) / np.maximum(b - a, 1)
    return np.asarray(share * (end - start) / 1e9, np.float64)


def _job_line(number: int, job: ClusterJob, count: int, pieces: Sequence[Pieces], shared: bool, note: str) -> Line:
    """The line of a job, whose energy is that of its recorded time; null where another job ran meanwhile."""
    line = _line(job.name, pieces, [gpu.owner == number for gpu in pieces], edges=True)
    end_ns = job.end_ns or max((int(gpu.end_ns.max()) for gpu in pieces if len(gpu.end_ns)), default=job.start_ns)
    if shared:
        note = "another job ran on its GPUs meanwhile: their energy isn't divided"
    elif count and not line.seconds:
        note = "the log has no reading of its time"
    if shared:
        line = replace(line, seconds=0.0, rest=None)
    if note:
        nothing = Estimate.null("jobs_overlap" if shared else "outside_record" if count else "gpus_unknown", "jobs")
        line = replace(line, energy=nothing, carbon=nothing)
    return replace(line, job=job, asked_s=count * (end_ns - job.start_ns) / 1e9, note=note)


def _sums(pieces: Sequence[Pieces], name: Callable[[Pieces, int], str]) -> list[Line]:
    """A line for each name of pieces, by name; time that is no single job's is last."""
    names = [[name(gpu, k) for k in range(len(gpu.owner))] for gpu in pieces]
    every = sorted(
        {text for some in names for text in some}, key=lambda text: (text in (NO_JOB, SEVERAL, UNKNOWN), text)
    )
    return [
        _line(text, pieces, [np.array([other == text for other in some], bool) for some in names], edges=True)
        for text in every
    ]


def _line(what: str, pieces: Sequence[Pieces], chosen: Iterable[np.ndarray], edges: bool = False) -> Line:
    """The sum of some pieces, by a mask of those of each GPU."""
    energy, carbon, labels, rest = [], [], [], []
    seconds = habit_j = habit_g = 0.0
    for gpu, mask in zip(pieces, chosen, strict=True):
        if not mask.any():
            continue
        each = gpu.solved.estimate(mask.astype(float), 1, "jobs")
        grams = gpu.solved.estimate(np.where(mask, np.nan_to_num(gpu.grams), 0.0) / J_PER_KWH, 1, "jobs")
        if edges:
            off_w, late_j = _edges(gpu, mask)
            half_j = math.hypot(EDGE_S * float(np.linalg.norm(off_w)), LATE * float(np.linalg.norm(late_j)))
            grams_per_j = float(np.mean(gpu.grams[mask])) / J_PER_KWH
            each, grams = widened(each, half_j), widened(grams, half_j * grams_per_j)
            habit_j += HABIT * float(late_j.sum())
            habit_g += HABIT * float(late_j.sum()) * grams_per_j
        energy.append(replace(each, budget={}))
        carbon.append(grams if np.isfinite(gpu.grams[mask]).all() else Estimate.null("not_given", "jobs"))
        rest.append(float(gpu.rest[mask].sum()))
        seconds += float(gpu.seconds[mask].sum())
        labels.append(f"{gpu.host}:{gpu.device.index}" if gpu.host else str(gpu.device.index))
    none = Estimate.null("outside_record", "jobs")
    share = sum(rest) / seconds if seconds and np.isfinite(rest).all() else None
    return Line(
        what,
        widened(total(energy), habit_j) if energy else none,
        widened(total(carbon), habit_g) if carbon else none,
        seconds,
        seconds,
        share,
        tuple(dict.fromkeys(labels)),
    )


def _edges(gpu: Pieces, mask: Mask) -> tuple[Floats, Floats]:
    """``edge_w`` and ``change_j`` where a sum of pieces begins or ends and the owner changes, each of shape (e,)."""
    before, after = np.roll(mask, 1), np.roll(mask, -1)
    before[0] = after[-1] = True  # the ends of the record are no edges of a job
    at = np.stack([mask & ~before, mask & ~after], axis=1)
    return gpu.edge_w[at], gpu.change_j[at]


def hours_of(path: Path, time_zone: str | None = None) -> Carbon:
    """Carbon intensities of a table whose first two columns are times and g/kWh.

    Raises:
        BadInputError: If a row has neither.
    """
    lines = read_text(path).splitlines()
    delimiter = (delimiter_of(lines[0]) if lines else None) or ","
    rows = [row for row in csv.reader(lines, delimiter=delimiter) if len(row) > 1]
    stamps = read_stamps([row[0] for row in rows], time_zone)
    values: list[float | None] = []
    for k, row in enumerate(rows):
        try:
            value = plain_number(row[1])
        except ValueError:
            value = None
        if k and (value is None or not 0 <= value < math.inf):
            raise BadInputError(f"{shown(path)}: line {k + 1}: {row[1]!r} is no number of g/kWh")
        values.append(value)
    there = [k for k, value in enumerate(values) if value is not None and stamps.valid[k]]
    if not there or stamps.clock != UNIX:
        raise BadInputError(f"{shown(path)}: no row has a time and the g/kWh from then on")
    order = sorted(there, key=lambda k: int(stamps.time_ns[k]))
    return Carbon(stamps.time_ns[order], np.array([values[k] for k in order], np.float64))


def worked(runs: Mapping[str, Run], rest_s: float) -> list[ClusterJob]:
    """Jobs of logs without a table: where each GPU works, with rests of less than ``rest_s`` seconds in them."""
    jobs = []
    for host, run in runs.items():
        for device in _gpus(run):
            record, _, below_w = _log(run, device)
            if below_w is None:
                continue
            at = record.time_ns[record.value >= below_w]
            if not len(at):
                continue
            breaks = np.flatnonzero(np.diff(at) > rest_s * 1e9)
            half_ns = int(record.period_s * 0.5e9) if np.isfinite(record.period_s) else 0
            edges = zip(at[[0, *(breaks + 1)]].tolist(), at[[*breaks, len(at) - 1]].tolist(), strict=True)
            for k, (start, end) in enumerate(edges, 1):
                name, gpu = f"work {k} of GPU {device.index}", (str(device.index),)
                jobs.append(ClusterJob(name, "", "", (host,) if host else (), gpu, 1, start - half_ns, end + half_ns))
    return sorted(jobs, key=lambda job: job.start_ns)
