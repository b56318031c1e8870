"""Traces of PyTorch's profiler (Kineto) as Chrome JSON, in all dialects since torch 1.8, also compressed."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.arrays import Ints, Mask
from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import RELATIVE, UNIX, ImportOptions, Left, about, new_run, read_bytes
from jouletrace.formats.importers.columns import Coded, block, known, launch_shape
from jouletrace.formats.importers.joins import Calls, enclosing, match, parents_of_work
from jouletrace.run import DeviceInfo, Run, tables
from jouletrace.run.forms import stated_facts
from jouletrace.run.sound import MOST_NS
from jouletrace.wings.traces.impossible import clear_impossible_times, earliest_ns
from jouletrace.wings.traces.kineto.events import DETAILS, DEVICE_WORK, NO_ID, UNSTATED, Events, integer
from jouletrace.wings.traces.kineto.json import read_trace

_SINCE_EPOCH_NS = 9e17
"""Stamps above this (1998) are Unix time; others count from the boot of the machine."""

_VERSIONS = ("cuda_runtime_version", "cuda_driver_version", "cupti_version", "roctracer_version", "hip_runtime_version")
_FACTS = ("schemaVersion", "host_name", "trace_id", "record_shapes", "with_stack", "profile_memory")
_MOST_GPUS = 4096
"""Numbers of devices are smaller."""

_CONTAINERS = ("op", "range", "iteration")


def sniff(head: bytes) -> bool:
    """True if it is a Kineto trace, or another Chrome trace whose events have the same form."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start == b"{":
        return any(key in head for key in (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"'))
    return start == b"[" and b'"ph"' in head and b'"ts"' in head


def read(path: Path, options: ImportOptions) -> Run:
    """Read a trace: kernels, copies, runtime calls, operators, ranges and iterations become spans.

    Raises:
        BadInputError: If it holds no readable event with a duration.
    """
    left = Left(path)
    header, events = read_trace(read_bytes(path, left), left)
    if len(events) == 0:
        raise BadInputError(f"{path}: no event with a duration could be read{left.first()}")
    start, end = _times(events, header, path)
    unix = bool(np.median(start) > _SINCE_EPOCH_NS)
    run = new_run(path, "kineto", UNIX if unix else RELATIVE)
    about(run)["events"] = {" ".join(filter(None, key)): n for key, n in sorted(events.counts.items())}
    left.add("instants", "instants and counters (memory events among them) were left out", _instants(events))
    properties = _properties(header)
    _place(events, set(properties))
    _add_spans(run, events, start, end)
    clear_impossible_times(run, left, int(start[0]) - events.start[0])
    run.devices = _devices(events, properties, options)
    run.created_ns = earliest_ns(run) if unix else path.stat().st_mtime_ns
    _add_facts(run, header)
    left.warn(run)
    return run


def _times(events: Events, header: dict[str, Any], path: Path) -> tuple[Ints, Ints]:
    base = header.get("baseTimeNanoseconds", 0)
    if isinstance(base, str) and base.isascii() and base.isdigit():
        base = int(base)
    if not isinstance(base, int) or not 0 <= base < 1 << 62:
        raise BadInputError(f"{path}: baseTimeNanoseconds {str(base)[:40]!r} isn't a time")
    start = np.frombuffer(events.start, np.int64)
    start = start + base
    if np.median(start) > MOST_NS - (1 << 50):
        raise BadInputError(f"{path}: times beyond the year 2189")
    return start, start + np.minimum(np.frombuffer(events.duration, np.int64), np.iinfo(np.int64).max - start)


def _instants(events: Events) -> int:
    """Events without a duration whose content isn't kept, except names, arrows and marks of the recording."""
    return sum(n for (ph, category), n in events.counts.items() if ph == "C" or (ph in "iI" and category))


def _add_spans(run: Run, events: Events, start: Ints, end: Ints) -> None:
    """The ``spans`` table in order of start, with its joins; ``settings`` receives their results."""
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    kind, name, lane, correlation, external, device = (
        np.frombuffer(column, column.typecode)[order]
        for column in (events.kind, events.name, events.lane, events.correlation, events.external, events.device)
    )
    kinds = list(events.kinds)
    is_a = {k: kind == events.kinds.get(k, -1) for k in (*_CONTAINERS, "launch", "kernel", "memcpy")}
    work = is_a["kernel"] | is_a["memcpy"]
    host = np.array([not stream for _, _, stream in events.lanes])[lane]
    container = host & np.logical_or.reduce([is_a[k] for k in _CONTAINERS])
    slack_ns = 1000 if events.whole_us else 0
    parent = enclosing(lane, start, end, container, slack_ns)
    parent[~host] = -1
    launch = is_a["launch"]
    refused = _parents_by_id(parent, launch, container & is_a["op"], external, start, end, slack_ns)
    keys = correlation[launch].astype(np.int64)
    calls = Calls(np.where(keys > 0, keys, -1), start[launch], end[launch], parent[launch])
    joins = about(run)["joins"] = {"refused_external_ids": refused}
    parent[work] = parents_of_work(correlation[work].astype(np.int64), calls, joins)
    details = _details(events)[order]
    texts, device_names = _lanes(events), sorted(set(device[device >= 0].tolist()))
    run.spans = block(
        "spans",
        len(start),
        id=np.arange(len(start)),
        parent=known(parent),
        kind=Coded(kind, kinds),
        name=Coded(name, list(events.names)),
        device=Coded(
            np.where(device < 0, -1, np.searchsorted(device_names, device)), [f"imported:{n}" for n in device_names]
        ),
        lane=Coded(lane, texts),
        start_ns=start,
        end_ns=end,
        correlation=known(correlation, least=1),
        **launch_shape(details[:, :6].T),
        registers=known(details[:, 6], most=(1 << 31) - 1),
        bytes=known(details[:, 7]),
        graph_node=known(details[:, 8], least=1),
    )


def _details(events: Events) -> Ints:
    """Launch shape and further details of all events, -1 where unknown, shape (n, ``DETAILS``)."""
    details = np.full((len(events), DETAILS), -1, np.int64)
    details[np.frombuffer(events.work, np.int64)] = np.frombuffer(events.details, np.int64).reshape(-1, DETAILS)
    return details


def _parents_by_id(parent: Ints, launch: Mask, op: Mask, external: Ints, start: Ints, end: Ints, slack_ns: int) -> int:
    """Give launches that no span of their thread encloses the operator of their external id.

    Several dialects number operators and launches separately, so a match is accepted
    only if the launch lies within the operator in time; returns the number of rejected matches.
    """
    rows, ops = np.flatnonzero(launch & (external >= 0)), np.flatnonzero(op)
    found = match(external[rows].astype(np.int64), external[ops].astype(np.int64))
    rows, ops = rows[found >= 0], ops[found[found >= 0]]
    sound = (start[ops] <= start[rows]) & (end[rows] <= end[ops] + slack_ns)
    free = sound & (parent[rows] < 0)
    parent[rows[free]] = ops[free]
    return int((~sound).sum())


def _lanes(events: Events) -> list[str]:
    """Names of lanes: streams for work on a device, else threads; with their process where there are several."""
    processes = {pid for pid, tid, stream in events.lanes if tid and pid.isdigit()}
    owners = [pid for pid, _, _ in events.lanes]
    lane, device = (np.frombuffer(column, np.int32) for column in (events.lane, events.device))
    owned = {(number, owners[place]) for place, number in _pairs(lane, device, device >= 0)}
    shared = len(owned) > len({device for device, _ in owned})
    texts = []
    for pid, tid, stream in events.lanes:
        text = f"stream {stream}" if stream else f"thread {tid}" if tid.lstrip("-").isdigit() else tid
        if shared if stream else len(processes) > 1 or not pid.isdigit():
            text = f"process {pid} {text}"
        texts.append(text)
    return texts


def _place(events: Events, described: set[int]) -> None:
    """Give devices to events that state none: those of the work of their process, else the one of its number.

    Kineto's process of a device is the device's number; who merges traces moves it, and then it is no device's.
    """
    lane, device = (np.frombuffer(column, np.int32) for column in (events.lane, events.device))
    kind = np.frombuffer(events.kind, np.int8)
    work = np.isin(kind, [events.kinds[one] for one in DEVICE_WORK if one in events.kinds])
    owners = [pid for pid, _, _ in events.lanes]
    stated: dict[str, set[int]] = {}
    for place, number in _pairs(lane, device, work & (device >= 0)):
        stated.setdefault(owners[place], set()).add(number)
    known = described.union(*stated.values())
    found = device.copy()
    for place in np.unique(lane[device == UNSTATED]).tolist():
        mine, number = stated.get(owners[place], set()), integer(owners[place])
        rows = (lane == place) & (device == UNSTATED)
        found[rows] = min(mine) if len(mine) == 1 else number if number in known else NO_ID
        if not mine and 0 <= number < _MOST_GPUS:
            found[rows & (work | (not known))] = number
    events.device = array("i", found.tobytes())


def _pairs(lane: NDArray[np.int32], device: NDArray[np.int32], which: Mask) -> list[tuple[int, int]]:
    """The distinct pairs of lane and device among some events on devices."""
    both, _ = tables.distinct((lane[which].astype(np.int64) << 32) + device[which])
    return [divmod(one, 1 << 32) for one in both.tolist()]


def _properties(header: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The properties that the header states of each device, by its number."""
    listed = [one for key in ("deviceProperties", "computeProperties") for one in header.get(key) or []]
    return {one["id"]: one for one in listed if isinstance(one, dict) and isinstance(one.get("id"), int)}


def _devices(events: Events, properties: dict[int, dict[str, Any]], options: ImportOptions) -> list[DeviceInfo]:
    """The devices with work."""
    devices = []
    for number in sorted(set(events.device) - {NO_ID}):
        about = properties.get(number, {})
        memory = about.get("totalGlobalMem")
        devices.append(
            DeviceInfo(
                id=f"imported:{number}",
                name=options.device or str(about.get("name") or f"device {number}"),
                index=number,
                memory_bytes=memory if isinstance(memory, int) else None,
                details={key: value for key, value in about.items() if key not in ("id", "name", "totalGlobalMem")},
            )
        )
    return devices


def _add_facts(run: Run, header: dict[str, Any]) -> None:
    run.workload |= stated_facts({key: header[key] for key in _FACTS if isinstance(header.get(key), str | int)})
    shared = header.get("distributedInfo")
    if isinstance(shared, dict):
        ranks = ("backend", "rank", "world_size")
        run.workload |= stated_facts({key: shared[key] for key in ranks if shared.get(key) is not None})
    run.versions |= {key.removesuffix("_version"): str(header[key]) for key in _VERSIONS if key in header}
