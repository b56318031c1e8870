"""Puts the GPUs of a program into its Run: units, kernels, and facts about the recording of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from jouletrace import analysis
from jouletrace.profiler import calibrations
from jouletrace.profiler.program.gpus import Gpu, Waits
from jouletrace.profiler.program.timeline import MOST_KERNELS, Rows, rows_of
from jouletrace.run import MODEL_UNIT, Run, tables
from jouletrace.run.forms import Recording
from jouletrace.run.recording_names import RECORDINGS
from jouletrace.tracer.process_trace import Ints

MOST_OF_ALL = 4_000_000
"""Kernels in a Run; of many GPUs, each has fewer than ``MOST_KERNELS``."""

SHORT_GAP_S = 20e-6
"""Idle time between kernels up to this length lies between launches that the GPU has already received."""


SEEN_NS = 5_000
"""Clocks of host and GPU agree to this."""


def recorded(run: Run, gpus: Sequence[Gpu], waits: Waits) -> tuple[list[dict[str, object]], pa.Table]:
    """Rows of ``units`` and ``activity`` of a program; facts about the recording of each GPU are added to its Run.

    Where several GPUs are recorded, all of one lies below the unit of that device.
    """
    several = sum(device.kind != "cpu" for device in run.devices) > 1
    most = min(MOST_KERNELS, MOST_OF_ALL // len(gpus))
    units: list[dict[str, object]] = []
    activity, recordings = [], list[Recording]()
    for gpu, name in zip(gpus, _names(run, gpus), strict=True):
        top = MODEL_UNIT
        if several:
            top = len(units) + 1
            units.append({"id": top, "parent": MODEL_UNIT, "level": "device", "name": gpu.id, "module": gpu.id})
        rows = rows_of(gpu.parts, len(units) + 1, top, most)
        units += rows.units
        device = pa.DictionaryArray.from_arrays(np.zeros(len(rows.activity["unit"]), np.int32), [gpu.id])
        activity.append(tables.conform(pa.table({**rows.activity, "device": device}), "activity"))
        about = recording_facts(gpu, rows)
        if several:
            about["name"] = name
            if gpu.rank is not None and len(gpus) > 1:
                about |= {"last": waits.last.get(gpu.rank, 0), "collectives": waits.matched}
        recordings.append(about)
    run.workload[RECORDINGS] = recordings
    if len(gpus) > 1 and waits.matched < 0.5 * waits.collectives:
        text = f"{waits.collectives - waits.matched} of {waits.collectives} collectives couldn't be matched"
        run.warn("collectives_unmatched", f"{text} between ranks: waiting is in their communication")
    return units, tables.concat(activity, "activity")


def analyse_program(run: Run) -> None:
    """Compute the figures of a program; rates of sensors are recalled, and those that it determined are kept."""
    devices = [about["device"] for about in run.workload.get("recordings", ())]
    for device in devices:
        calibrations.recall_rate(run, device)
    analysis.analyse_recorded(run)
    tops = {row["module"]: row["id"] for row in run.units.to_pylist() if row["level"] == "device"}
    for device in devices:
        calibrations.remember_rate(run, device, tops.get(device, MODEL_UNIT))


def recording_facts(gpu: Gpu, rows: Rows) -> Recording:
    """Provenance of the rows of a GPU."""
    about: Recording = {
        "device": gpu.id,
        "iterations": 1,
        "iterations_by": None,
        "start_ns": rows.begin_ns,
        "end_ns": rows.end_ns,
        "unmatched": rows.unmatched,
        "first_ns": min(int(part.work.start_ns.min()) for part in gpu.parts),
        "dropped": gpu.dropped,
        "seconds": rows.seconds,
        "kernels": sum(len(part.work) for part in gpu.parts),
        "kernels_s": gpu.busy_s,
        "idle_by": _idle_by(rows.activity["start_ns"], rows.activity["end_ns"], gpu),
    }
    if gpu.rank is not None:
        about["rank"] = gpu.rank
    if gpu.unsampled:
        about["note"] = f"operators: {gpu.unsampled}"
    return about


def _names(run: Run, gpus: Sequence[Gpu]) -> list[str]:
    """Names of GPUs: by their rank, or by their place among the devices where they have none of their own."""
    ids, ranks = [device.id for device in run.devices], [gpu.rank for gpu in gpus]
    names = []
    for gpu in gpus:
        words = [] if gpu.rank is None else [f"rank-{gpu.rank}"]
        if gpu.rank is None or ranks.count(gpu.rank) > 1:
            words.append(f"gpu-{ids.index(gpu.id)}")
        names.append("-".join(words))
    return names


def _idle_by(start: Ints, end: Ints, gpu: Gpu) -> dict[str, float]:
    """Shares of the idle time by what the host did: loading data, launching, resuming after it waited for the GPU."""
    until = np.maximum.accumulate(end)[:-1]
    gap = np.maximum(start[1:] - until, 0)
    total = float(gap.sum())
    if total <= 0:
        return {}
    short = float(gap[gap <= SHORT_GAP_S * 1e9].sum())
    long = gap > SHORT_GAP_S * 1e9
    since, then = until[long], start[1:][long]
    spans = np.array(sorted(gpu.loads), np.int64).reshape(-1, 2)
    loading = _overlap(since, then, spans)
    # The host learns that the GPU is done just after its last kernel, and launches from then on.
    ends = gpu.syncs[:, 1]
    after = np.searchsorted(ends, then) > np.searchsorted(ends, since - SEEN_NS)
    waited = float((then - since)[after].sum()) - _overlap(since[after], then[after], spans)
    return {
        "data loading": loading / total,
        "between launches": short / total,
        "synchronisation": waited / total,
        "host": max(total - short - loading - waited, 0.0) / total,
    }


def _overlap(start: Ints, end: Ints, spans: Ints) -> float:
    """Length that intervals have in common with spans, both ascending; overlapping spans count once."""
    if not len(spans) or not len(start):
        return 0.0
    begin, until = spans[:, 0], np.maximum.accumulate(spans[:, 1])
    begin = np.maximum(begin, np.append(begin[0], until[:-1]))
    covered = np.append(0, np.cumsum(np.maximum(until - begin, 0)))
    edges, values = (
        np.column_stack([begin, np.maximum(until, begin)]).ravel(),
        np.column_stack([covered[:-1], covered[1:]]).ravel(),
    )
    return float((np.interp(end, edges, values) - np.interp(start, edges, values)).sum())
