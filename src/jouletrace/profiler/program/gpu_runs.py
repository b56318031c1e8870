"""What the Run of a program states of a GPU, and the Runs of each of several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace import analysis
from jouletrace.analysis.program import BEFORE
from jouletrace.profiler import calibrations
from jouletrace.profiler.program.gpus import Gpu, Waits
from jouletrace.profiler.program.timeline import Rows, rows_of
from jouletrace.run import Run, tables
from jouletrace.run.forms import GpuOfProgram, PartOfGpu, Recording
from jouletrace.run.measured import mend
from jouletrace.run.recording_names import IDLE_NAME, RECORDING
from jouletrace.run.store import save
from jouletrace.tracing.log import Ints

SHORT_GAP_S = 20e-6
"""Idle time between kernels up to this length lies between launches that the GPU has already received."""


SEEN_NS = 5_000
"""Clocks of host and GPU agree to this."""


def recording_of(gpu: Gpu, rows: Rows) -> Recording:
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
        "idle_by": _idle_by(rows.activity["start_ns"], rows.activity["end_ns"], gpu),
    }
    if gpu.unsampled:
        about["note"] = f"operators: {gpu.unsampled}"
    return about


def add_apart(run: Run, gpus: Sequence[Gpu], waits: Waits, folder: Path | None) -> None:
    """Add what a Run states of each of several GPUs; the Run of each is saved in the folder."""
    ids = [device.id for device in run.devices]
    ranks = [gpu.rank for gpu in gpus]
    stated = []
    for gpu in gpus:
        words = [] if gpu.rank is None else [f"rank-{gpu.rank}"]
        if gpu.rank is None or ranks.count(gpu.rank) > 1:
            words.append(f"gpu-{ids.index(gpu.id)}")
        part = of_gpu(run, gpu, f"{run.workload.get('name', 'program')}, {' '.join(words).replace('-', ' ')}")
        if gpu.rank is not None:
            part.workload["rank"] = gpu.rank
        name = "-".join(words)
        if folder is not None:
            save(mend(part), folder / name)
        stated.append(_stated(part, gpu, waits, name))
    run.workload["gpus"] = stated
    if waits.matched < 0.5 * waits.collectives:
        text = f"{waits.collectives - waits.matched} of {waits.collectives} collectives couldn't be matched"
        run.warn("collectives_unmatched", f"{text} between ranks: waiting is in their communication")


def of_gpu(run: Run, gpu: Gpu, name: str) -> Run:
    """The analysed Run of one GPU of a program."""
    rows = rows_of(gpu.parts)
    part = Run(
        kind="program",
        created_ns=run.created_ns,
        command=run.command,
        workload={**run.workload, "name": name, RECORDING: recording_of(gpu, rows)},
        settings=run.settings.copy(),
        devices=[device for device in run.devices if device.id == gpu.id],
        channels=[channel for channel in run.channels if channel.device == gpu.id],
        calibration={id: one for id, one in run.calibration.items() if id == gpu.id},
        versions=run.versions,
        environment=run.environment,
        clock_pairs=run.clock_pairs,
        complete=run.complete,
        samples=run.samples.filter(pc.equal(run.samples["device"], gpu.id)),
        spans=run.spans,
        units=tables.from_rows(rows.units, "units"),
        activity=tables.conform(pa.table(rows.activity), "activity"),
    )
    calibrations.recall_rate(part, gpu.id)
    analysis.analyse_recorded(part)
    calibrations.remember_rate(part, gpu.id)
    return part


def _stated(part: Run, gpu: Gpu, waits: Waits, name: str) -> GpuOfProgram:
    """Phases of a GPU, its idle time, and what was before its first kernel."""
    shown = [
        unit
        for unit in part.units.to_pylist()
        if unit["level"] == "phase" or (unit["level"] == "op" and unit["name"] in (IDLE_NAME, BEFORE))
    ]
    rows: list[PartOfGpu] = []
    for unit in shown:
        energy, time = part.result("energy_total_j", unit["id"]), part.result("time_s", unit["id"])
        rows.append(
            {
                "name": unit["name"],
                "time_s": time.value,
                "energy_j": energy.value,
                "half_width_j": energy.half_width,
                "reason": energy.reason,
            }
        )
    found: GpuOfProgram = {"device": gpu.id, "name": name, "kernels_s": gpu.busy_s, "parts": rows}
    if gpu.rank is not None:
        found |= {"rank": gpu.rank, "last": waits.last.get(gpu.rank, 0), "collectives": waits.matched}
    return found


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
