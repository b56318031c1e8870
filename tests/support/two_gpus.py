"""A program of two ranks, each on a simulated GPU of its own, with the powers of all its kernels known."""

import numpy as np
import pyarrow as pa

from jouletrace.profiler.record import split
from jouletrace.profiler.record.ranks import merge_ranks
from jouletrace.recording import board_store
from jouletrace.run import ChannelInfo, DeviceInfo, Run, tables
from jouletrace.run.channels import POWER
from jouletrace.run.recording_names import SAMPLE_RATE
from jouletrace.tracer.process_trace import Launched, Owners, ProcessTrace
from scenarios import draw

SUM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"
"""The kernel of the last kind on each GPU, which moves data between them."""


def record(place, seeds=(1, 2), group="pauses", seconds=6.0):
    """Merge the parts of two ranks into a Run at a place; returns the truth of each rank by the id of its GPU."""
    truths = {}
    for rank, seed in enumerate(seeds):
        device = f"GPU-{rank}"
        scene, recorded, truths[device] = draw(seed, group, seconds)
        board_store.remember(device, **{SAMPLE_RATE: {"value": truths[device].sensor.rate_hz}})
        part(scene, recorded, rank, device).save(str(place / f"rank-{rank}"))
        split.leave([_traced(scene, recorded, rank, device)], place / f"rank-{rank}")
    merge_ranks(place)
    return truths


def part(scene, recorded, rank, device):
    """A rank's recording: the power of its GPU."""
    channel = ChannelInfo(
        device, POWER, "W", "simulated", sensor="hopper", period_s=0.02, window_s=0.003, gapless=True, gain_pct=5.0
    )
    info = DeviceInfo(device, "NVIDIA H100 by hand", index=rank, power_limit_w=2000.0)
    run = Run(kind="record", created_ns=scene.begin_ns, devices=[info], channels=[channel])
    run.workload = {"name": "train.py", "rank": rank, "world_size": 2, "restart": 0}
    rows = {"time_ns": recorded.rows[:, 0] * 1000, "value": recorded.rows[:, 1] / 1e3}
    named = {"device": [device] * len(recorded.rows), "channel": [POWER] * len(recorded.rows)}
    run.samples = tables.conform(pa.table({**rows, **named}), "samples")
    # the record ends with the scene: what the sensor shows of its last moments comes later
    edges = {"start_ns": scene.begin_ns + 100_000_000, "end_ns": scene.finish_ns - 100_000_000}
    spans = [{"id": i, "kind": "phase", "name": name} for i, name in enumerate(("monitor", split.SPAN))]
    run.spans = tables.from_rows([{**span, **edges, "device": device, "lane": "record"} for span in spans], "spans")
    return run


def _traced(scene, recorded, rank, device):
    """A rank's kernels: every kernel within a range, with its operator but for those between GPUs."""
    count, last = len(recorded.kind), len(recorded.names) - 1
    names, zeros = (*recorded.names[:last], SUM), np.zeros(count, np.int64)
    work = Launched.from_columns(names, recorded.kind, recorded.start_ns, recorded.end_ns)
    labels = [("", ""), *zip(recorded.operators, recorded.modules, strict=True)]
    label = np.where(recorded.kind == last, 0, recorded.kind + 1)
    unmarked = np.zeros(len(labels), np.int64)
    owners = Owners(labels, unmarked, label, np.ones(count, bool), zeros, [(), ("train",)], zeros + 1)
    return ProcessTrace(100 + rank, "train.py", rank, [device], work, owners, [(scene.begin_ns, scene.finish_ns)])
