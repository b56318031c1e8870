"""The ranks of a program in several processes: this process's own, and the merge of their Runs."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace import analysis
from jouletrace.devices.cuda_order import cuda_uuids
from jouletrace.errors import BadInputError
from jouletrace.profiler.record.split import split_of_ranks
from jouletrace.run import Run, load, tables
from jouletrace.run.files import RUN_JSON
from jouletrace.run.forms import RankFacts, WorkloadFacts
from jouletrace.run.loading import load_header
from jouletrace.run.measured import mend
from jouletrace.run.places import check_free
from jouletrace.run.spans import spans_of
from jouletrace.run.store import save


@dataclass(frozen=True)
class Rank:
    """One process of a program that runs in several.

    Attributes:
        rank: Its number among all processes.
        world_size: Number of processes, at least two.
        local: Its number on this host; None if the launcher doesn't state it.
        restart: How often the launcher has restarted all processes.
    """

    rank: int
    world_size: int
    local: int | None = None
    restart: int = 0

    @property
    def name(self) -> str:
        """Name of its part of the Run."""
        return f"rank-{self.rank}" + (f"-restart-{self.restart}" if self.restart else "")

    def facts(self) -> WorkloadFacts:
        """The rank for ``Run.workload``."""
        return {"rank": self.rank, "world_size": self.world_size, "restart": self.restart}


def this_rank(environment: Mapping[str, str] | None = None) -> Rank | None:
    """The rank of this process; None if it runs alone."""
    given = os.environ if environment is None else environment
    rank, world = _number(given, "RANK"), _number(given, "WORLD_SIZE")
    if rank is None or world is None or world < 2 or rank >= world:
        return None
    return Rank(rank, world, _number(given, "LOCAL_RANK"), _number(given, "TORCHELASTIC_RESTART_COUNT") or 0)


def device_of(rank: Rank) -> str:
    """The spec of the device of a rank: the visible GPU with its local number, or the only visible GPU.

    Raises:
        BadInputError: If CUDA shows several GPUs, but none with that number.
    """
    uuids = cuda_uuids() or []
    if rank.local is None or not uuids:
        return "visible"
    if len(uuids) == 1:
        return uuids[0]
    if rank.local < len(uuids):
        return uuids[rank.local]
    raise BadInputError(f"record: LOCAL_RANK is {rank.local}, and CUDA shows {len(uuids)} GPUs: name device=")


def parts_of(whole: Path) -> Path:
    """The folder of the ranks' parts, next to or inside the place of the merged Run."""
    return whole.with_suffix(".ranks") if whole.suffix.lower() == ".zip" else whole


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else None


WAIT_S, ABSENT_S = 60.0, 5.0
"""Longest wait in seconds for ranks that continue after the first has ended, and for ranks without a part by then."""

_LOOK_EVERY_S = 0.2
_MOST_NAMED = 20
_MARKED = ("range", "iteration")
_OF_RANK: tuple[Literal["rank", "restart"], ...] = ("rank", "restart")
_OF_PROCESS: tuple[Literal["pid", "ended", "devices"], ...] = ("pid", "ended", "devices")


def merge_when_all_ended(whole: Path, rank: Rank, wait_s: float = WAIT_S) -> tuple[Run, Run | None]:
    """Merge the parts once all ranks have ended or died, or the wait is over; returns the Run and its split.

    Parts of an earlier start than that of the merging ``rank`` aren't awaited; ranks without a part get ``ABSENT_S``,
    others ``wait_s``.

    Raises:
        BadInputError: If the merged Run can't be written.
    """
    parts = parts_of(whole)
    since = time.monotonic()
    while (waited := time.monotonic() - since) < wait_s:
        going_on, absent = _others(parts, rank)
        if not going_on and (not absent or waited >= ABSENT_S):
            break
        time.sleep(_LOOK_EVERY_S)
    return _merged_at(whole)


def merge_ranks(place: Path | str) -> Run:
    """Merge the parts of all ranks in a folder (or next to a ".zip") into one Run, and save it there.

    Parts of ranks that died are merged as far as they had reached the disk; the Run's warnings name
    missing parts. All parts are kept.

    Raises:
        BadInputError: If there are no parts, none can be read, two have the same rank, or a complete merged Run
            exists.
    """
    return _merged_at(Path(place))[0]


def _merged_at(whole: Path) -> tuple[Run, Run | None]:
    parts = parts_of(whole)
    part_folders = sorted((p for p in parts.glob("rank-*") if (p / RUN_JSON).exists()), key=_order)
    if not part_folders:
        raise BadInputError(f"no parts of ranks in {parts}: they would be folders rank-0, rank-1, ...")
    zipped = whole.suffix.lower() == ".zip"
    if zipped:
        check_free(whole)
    elif (whole / RUN_JSON).exists() and load_header(whole).complete:
        raise BadInputError(f"{whole} holds the merged Run already")
    runs, lost = _loaded(part_folders)
    if other := next((of_rank.kind for of_rank in runs if of_rank.kind != "record"), None):
        raise BadInputError(f"{parts}: a Run of kind {other} is not a rank's part; jt.record records those")
    run = merged(runs, lost)
    last = {_order(part)[0]: part for part in part_folders}  # of several starts
    split = split_of_ranks(run, list(last.values()), whole)
    save(mend(run), whole, overwrite=not zipped)
    return run, split


def merged(runs: Sequence[Run], lost: Sequence[str] = ()) -> Run:
    """The merged and analysed Run of the ranks.

    Args:
        runs: The Run of each rank and of each of its restarts; they are consumed.
        lost: Messages about parts that couldn't be read.

    Raises:
        BadInputError: If there is none.
    """
    if not runs:
        raise BadInputError("no part of any rank can be read: " + "; ".join(lost))
    first = runs[0]
    world = first.workload.get("world_size") or len(runs)
    run = Run(
        kind="record",
        created_ns=min(of_rank_run.created_ns for of_rank_run in runs),
        command=first.command,
        workload=first.workload.copy(),
        settings=first.settings.copy(),
        versions=first.versions,
        environment=first.environment,
        clock_pairs=[
            pair for of_rank_run in runs for pair in of_rank_run.clock_pairs[:2] if len(of_rank_run.clock_pairs) >= 2
        ],
    )
    for of_rank in _OF_RANK:
        run.workload.pop(of_rank, None)
    for of_process in _OF_PROCESS:
        run.settings.pop(of_process, None)
    samples, spans, members = [], [], []
    next_id, recorded = 0, _Recorded()
    for of_rank_run in runs:
        name = _name(of_rank_run)
        samples.append(recorded.take(of_rank_run))
        table, next_id = _spans(of_rank_run, name, next_id)
        spans.append(table)
        device_ids = {device.id for device in run.devices}
        run.devices += [device for device in of_rank_run.devices if device.id not in device_ids]
        run.channels += [c for c in of_rank_run.channels if run.channel(c.device, c.name) is None]
        run.calibration = {**of_rank_run.calibration, **run.calibration}
        run.stored = {**of_rank_run.stored, **run.stored}
        for warning in of_rank_run.warnings:
            run.warn(warning.code, warning.message, f"{name}: {warning.where}" if warning.where else name)
        members.append(_facts(of_rank_run))
        for key, value in of_rank_run.recorder.items():
            run.recorder[key] = run.recorder.get(key, 0.0) + value
    marks = {name for of_rank_run in runs for name in of_rank_run.settings.get("not_synchronised", ())}
    run.settings["not_synchronised"] = sorted(marks)
    run.settings["ranks"] = members
    run.samples = tables.concat(samples, "samples")
    run.spans = tables.concat(spans, "spans")
    _say_what_is_missing(run, members, world, lost)
    return analysis.analyse(run)


def _loaded(parts: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """The Runs, and messages about unreadable parts.

    Raises:
        BadInputError: If two parts have the same rank, which would be counted twice.
    """
    runs, lost = [], []
    of_rank: dict[str, Path] = {}
    for part in parts:
        try:
            run = load(part)
        except BadInputError as error:
            lost.append(f"{part.name} ({error})")
            continue
        if not run.devices:
            lost.append(f"{part.name} (it doesn't state its device)")
            continue
        name = _name(run)
        if name in of_rank:
            raise BadInputError(f"{of_rank[name]} and {part} are both of {name}: remove one of them")
        of_rank[name] = part
        runs.append(run)
    return runs, lost


def _others(parts: Path, rank: Rank) -> tuple[int, int]:
    """The number of ranks that may still end normally, and the number of ranks without a part."""
    names = [replace(rank, rank=number).name for number in range(rank.world_size)]
    there = [parts / name for name in names if (parts / name).exists()]
    going_on = 0
    for part in there:
        try:
            header = load_header(part)
            going_on += not (header.settings.get("ended") or _dead(header))
        except BadInputError:
            going_on += 1  # just being created
    return going_on, rank.world_size - len(there)


def _dead(header: Run) -> bool:
    """True if its recording process is known to have ended."""
    pid = header.settings.get("pid")
    here = bool(header.devices) and header.devices[0].host in ("", socket.gethostname())
    if os.name != "posix" or not here or pid is None:  # elsewhere a signal 0 isn't harmless
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _name(run: Run) -> str:
    restart = run.workload.get("restart") or 0
    return f"rank {run.workload.get('rank', 0)}" + (f" (restart {restart})" if restart else "")


def _order(part: Path) -> tuple[int, str]:
    number = part.name.split("-")[1]
    return int(number) if number.isdecimal() else 0, part.name


def _facts(run: Run) -> RankFacts:
    """Facts about a rank for the merged Run."""
    return {
        "rank": run.workload.get("rank", 0),
        "restart": run.workload.get("restart") or 0,
        "name": _name(run),
        "devices": [device.id for device in run.devices],
        "host": run.devices[0].host if run.devices else "",
        "complete": run.complete,
    }


class _Recorded:
    """The intervals of each device's record that are merged already.

    Ranks may share a device, and restarts reuse it: a duplicated record would look like a sensor with
    twice the rate.
    """

    def __init__(self) -> None:
        self._stretches: dict[str, list[tuple[int, int]]] = {}

    def take(self, run: Run) -> pa.Table:
        """The samples of a rank that no earlier rank contains."""
        table = run.samples
        keep = np.ones(len(table), bool)
        times, devices = table["time_ns"].to_numpy(), np.array(table["device"].to_pylist(), dtype=object)
        for device in {channel.device for channel in run.channels}:  # with the host, which its ranks share
            mine = devices == device
            for since, until in self._stretches.get(device, []):
                keep &= ~(mine & (times >= since) & (times <= until))
            if (mine & keep).any():
                stretch = int(times[mine & keep].min()), int(times[mine & keep].max())
                self._stretches.setdefault(device, []).append(stretch)
        return table.filter(pa.array(keep))


def _spans(run: Run, name: str, next_id: int) -> tuple[pa.Table, int]:
    """Spans of a rank with unique ids, within a range of its name; and the next free id."""
    spans = run.spans
    ids = spans["id"].to_numpy().astype(np.int64)
    # Ids increase with the starts of ranges, on which the analysis relies; kernels have no ids from marks.
    root, first = next_id, next_id + 1
    _, order = np.unique(ids, return_inverse=True)
    places = {id: first + int(at) for id, at in zip(ids.tolist(), order.reshape(-1).tolist(), strict=True)}
    kinds = spans["kind"].to_pylist()
    parents = [
        places.get(parent) if parent is not None else (root if kind in _MARKED else None)
        for parent, kind in zip(spans["parent"].to_pylist(), kinds, strict=True)
    ]
    lanes = [f"{name}, {lane}" if lane else name for lane in spans["lane"].to_pylist()]
    for column, values in (("id", first + order.reshape(-1)), ("parent", parents), ("lane", lanes)):
        spans = tables.changed(spans, column, values)
    start, end = _edges(run)
    row: dict[str, object] = {"id": root, "kind": "range", "name": name, "lane": name}
    row |= {"device": run.devices[0].id, "start_ns": start, "end_ns": end}
    return tables.concat([tables.from_rows([row], "spans"), spans], "spans"), first + len(places)


def _edges(run: Run) -> tuple[int, int]:
    """Start and end of a rank's recording; for a cut-off one, up to its last data."""
    start, end = spans_of(run, "phase").named("monitor").edges_ns
    if len(start):
        return int(start[0]), int(end[0])
    ends = [pc.max(column).as_py() for column in (run.spans["end_ns"], run.samples["time_ns"]) if len(column)]
    return run.created_ns, max([run.created_ns, *ends])


def _say_what_is_missing(run: Run, members: Sequence[RankFacts], world: int, lost: Sequence[str]) -> None:
    there = {member["rank"] for member in members}
    missing = world - sum(rank < world for rank in there)
    if lost:
        run.warn("rank_lost", f"parts that can't be read: {'; '.join(lost)}")
    if missing:
        names = [str(rank) for rank in islice((rank for rank in range(world) if rank not in there), _MOST_NAMED)]
        more = f" and {missing - len(names)} more" if missing > len(names) else ""
        text = f"of {world} ranks, no part exists of rank {', '.join(names)}{more}: figures cover only the others"
        run.warn("rank_missing", text)
    cut = [member["name"] for member in members if not member["complete"]]
    if cut:
        run.warn("rank_incomplete", f"{', '.join(cut)} ended early: the data recorded so far is included")
    run.complete = not (lost or missing or cut)
