"""Makes Runs of what ``record.py`` recorded, analyses them as ``profile`` does, and prints a line for each.

    python benchmarks/attribution/as_run.py FOLDER NAME... [--seconds S] [--context NS] [-o FOLDER]

A line: kernels, share of them that no operator call matches, rows of operators with an interval of at most 10 % and
their share of the active energy, energy of the parts over that of the untraced iterations beside them, W that are left.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from any_model import figures

from jouletrace.analysis import analyse
from jouletrace.execution.steps.base import Interval
from jouletrace.execution.torch_traceables import in_launch_order
from jouletrace.execution.traceable import Call, Excitation, Listing, MatchedTrace, Variant, match
from jouletrace.profiler.detail.kernel_recording import rows_of
from jouletrace.run import MODEL_UNIT, ChannelInfo, DeviceInfo, Run, tables
from jouletrace.run.recording_names import RECORDINGS
from jouletrace.run.store import save
from jouletrace.tracing.trace import Trace

GPU = "GPU-recorded"

BATCH = {"deit64": ("deit-base", 64), "deit1": ("deit-base", 1), "bertl": ("bert-large", 8), "gpt2": ("gpt2", 4),
         "convnext": ("convnext-tiny", 32), "qwen": ("qwen2, 12 layers", 4)}  # fmt: skip
"""Model and samples of an iteration of each section."""


def section(folder, name):
    """Header, kernels and power of a section."""
    with np.load(folder / f"{name}.npz") as file:
        raw = {key: lzma.decompress(file[key].tobytes()) for key in file.files}
    meta = json.loads(raw.pop("meta"))
    gap, length = (np.frombuffer(raw[key], np.int32).astype(np.int64) for key in ("gap", "duration"))
    end = meta["first"] + np.cumsum(gap + length)
    name_of, stream = (np.frombuffer(raw[key], np.int16).astype(np.int64) for key in ("name", "stream"))
    trace = Trace.of(
        meta["names"],
        "cupti",
        dropped=meta["dropped"],
        name=name_of,
        start_ns=end - length,
        end_ns=end,
        stream=stream,
        kind=np.where(np.isin(name_of, [i for i, n in enumerate(meta["names"]) if n in ("memcpy", "memset")]), 1, 0),
    )
    return meta, trace


def listing_of(meta):
    """Operator calls as they were listed before the recording."""
    names = list(meta["names"])
    calls = [
        Call(
            row["op"],
            row["shapes"],
            row["module"],
            "",
            "forward",
            tuple(names.index(kernel) for kernel in row["kernels"]),
            sum(row["ns"]) / 1e9,
            row["repeatable"],
            number,
        )
        for number, row in enumerate(meta["ops"])
    ]
    return Listing(calls, names)


def windows_of(start, end, iterations, parts=8):
    """Untraced iterations cut into windows, as they ran back to back."""
    each = iterations // parts
    edges = start + np.arange(parts + 1) * each * (end - start) / iterations
    return [
        {"variant": "untouched", "multiplicity": 1.0, "block": 0, "order": i, "replays": each,
         "start_ns": int(edges[i]), "end_ns": int(edges[i + 1])}
        for i in range(parts)
    ]  # fmt: skip


def samples_of(folder, start_ns, end_ns, others):
    """Readings of power, clock and temperature from start to end and in other spans."""
    rows, conditions = np.load(folder / "rows.npy"), np.load(folder / "conditions.npy")
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    rows = rows[np.append(True, np.diff(rows[:, 0]) > 0)]
    series = [
        ("power_w", rows[:, 0] * 1000, rows[:, 1] / 1e3),
        ("clock_sm_mhz", conditions[:, 0], conditions[:, 1].astype(float)),
        ("temperature_c", conditions[:, 0], conditions[:, 2].astype(float)),
        ("throttle_bits", conditions[:, 0], conditions[:, 3].astype(float)),
    ]
    tables_ = []
    for channel, time_ns, value in series:
        near = np.zeros(len(time_ns), bool)
        for since, until in [(start_ns, end_ns), *others]:
            near |= (time_ns > since) & (time_ns < until)
        count = int(near.sum())
        columns = {
            "time_ns": time_ns[near],
            "device": [GPU] * count,
            "channel": [channel] * count,
            "value": value[near],
        }
        tables_.append(tables.conform(pa.table(columns), "samples"))
    return pa.concat_tables(tables_).unify_dictionaries()


def run_of(folder, name, seconds, context_ns=None):
    """A Run of the repeated part of a section, and of the untraced iterations before it.

    ``context_ns`` is when the CUDA context was made: before it lies deep idle, after it context idle.
    """
    base, _ = section(folder, f"{name}_base")
    meta, trace = section(folder, f"{name}_rep0")
    begin = meta["marks"][0]
    some = trace.take(np.flatnonzero(trace.start_ns < begin + seconds * 1e9))
    listing = listing_of(meta)
    variants = [Variant(((place, times),) * (place >= 0)) for place, times in meta["variants"]]
    log = [variants[i] for i in meta["log"]]
    ordered = in_launch_order(some)
    matched = match(listing.codes(ordered), listing.calls, log)
    iterations = int(matched.iteration.max()) + 1
    interval = Interval(begin, int(some.end_ns.max()))
    traced = MatchedTrace(ordered, matched, iterations, interval)
    kept = rows_of(listing, traced, Excitation(0.0, seconds, tuple(variants)), MODEL_UNIT + 1)
    model, batch = BATCH.get(name, (name, 1))
    facts = {"name": model, "task": "infer", "batch": batch, "mode": meta["mode"], "dtype": "fp16", "items": batch}
    facts["weights"] = "random"
    power = ChannelInfo(GPU, "power_w", "W", "nvmlDeviceGetSamples(NVML_TOTAL_POWER_SAMPLES)", period_s=0.02,
                        window_s=0.025, gapless=True)  # fmt: skip
    units = {"clock_sm_mhz": "MHz", "temperature_c": "Cel", "throttle_bits": ""}
    others = [ChannelInfo(GPU, channel, unit, "NVML", period_s=0.05) for channel, unit in units.items()]
    run = Run(
        kind="profile",
        command=f"recorded by benchmarks/attribution/record.py {name}",
        workload={**facts, RECORDINGS: [kept.about]},
        settings={"detail": "kernel"},
        devices=[DeviceInfo(id=GPU, name="NVIDIA H200", kind="gpu", power_limit_w=700.0)],
        channels=[power, *others],
    )
    count, start, end = base["plain"]
    idle = []
    if context_ns is not None:
        idle = [("deep idle", context_ns - 1_200_000_000, context_ns),
                ("context idle before", context_ns + 500_000_000, context_ns + 2_000_000_000)]  # fmt: skip
    run.created_ns = int(start)
    around = [(since - 200_000_000, until + 200_000_000) for _, since, until in idle]
    run.samples = samples_of(folder, start - 1_000_000_000, interval.end_ns + 1_000_000_000, around)
    found = windows_of(start, end, count)
    run.windows = tables.from_rows(found, "windows")
    phases = [*idle, ("energy", start, end), ("tracing", interval.start_ns, interval.end_ns)]
    run.spans = tables.from_rows(
        [{"id": i, "kind": "phase", "name": n, "device": GPU, "lane": "profile", "start_ns": a, "end_ns": b}
         for i, (n, a, b) in enumerate(phases)], "spans")  # fmt: skip
    run.units = tables.from_rows(kept.units, "units")
    run.activity = tables.conform(pa.table(kept.activity), "activity")
    return run


def line(name, run, cpu_s):
    """What the Run says, in a row of a table."""
    row = figures(run)
    head = f"| {name} | {row['kernels']} | {row['unmatched']:.2%} |"
    if row["closure"] is None:
        return f"{head} {'; '.join(w.message for w in run.warnings if w.code == 'not_attributed')} |"
    return (
        f"{head} {row['fine_rows']} of {row['rows']} | {row['fine_share']:.0%} | {row['closure']:.4f} "
        f"± {row['closure_half_width'] or 0:.4f} | {row['residual_w']:.1f} W | {cpu_s:.0f} s |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--context", type=int, help="when the context was made, ns since the Unix epoch")
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    print("| recording | kernels | unmatched | rows ± 10 % | of active energy | parts / whole | left | analysis |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in asked.names:
        run = run_of(asked.folder, name, asked.seconds, asked.context)
        began = time.process_time()
        analyse(run)
        print(line(name, run, time.process_time() - began), flush=True)
        if asked.output:
            save(run, asked.output / f"{name}.zip", overwrite=True)


if __name__ == "__main__":
    main()
