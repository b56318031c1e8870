"""A program of two ranks, each on a simulated GPU of its own, with the powers of all its kernels known."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from jouletrace.profiler.record import split
from jouletrace.profiler.record.ranks import merge_ranks
from jouletrace.recording import board_store
from jouletrace.run import ChannelInfo, DeviceInfo, Run, tables
from jouletrace.run.channels import POWER
from jouletrace.run.recording_names import SAMPLE_RATE
from jouletrace.simulator.sensors import SamplingSensor
from jouletrace.tracer.process_trace import Launched, ProcessTrace
from scenarios import draw, simulate
from simulated_power import Board
from simulated_programs import Kinds, Plan, lay_out

SUM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"
"""The kernel of the last kind on each GPU, which moves data between them."""


def record(place, seeds=(1, 2), group="pauses", seconds=6.0):
    """Merge the parts of two ranks into a Run at a place; returns the truth of each rank by the id of its GPU."""
    return _merged(place, [draw(seed, group, seconds) for seed in seeds])


def record_straggler(place, seconds=6.0):
    """The same of two ranks that sum up in every step, to which the second always comes last, by 0.3 to 1.5 ms.

    While the first waits, its GPU draws a power of its own: the kind 2 of its truth.
    """
    rng = np.random.default_rng(3)
    count = int(seconds / 0.002)
    own, late, together, gap = (1e6 * rng.uniform(*ms, count) for ms in ((0.4, 2), (0.3, 1.5), (0.3, 1.2), (0.1, 0.9)))
    none = np.full(count, 2.0)  # ns, which rounding keeps
    steps = (
        [(0, gap, own), (2, none, late), (1, none, together)],
        [(0, gap, own + late), (1, none, together)],
    )
    kinds = Kinds(("gemm", "sum", "wait"), ("mm", "sum", "wait"), 3 * ("train",), np.ones(3), np.array(STRAGGLER_W))
    drawn = []
    for step in steps:
        kind, gaps, lengths = zip(*step, strict=True)
        place_of = np.repeat(np.arange(count), len(step))
        columns = (np.stack(one, axis=1).ravel() for one in (gaps, lengths))
        plan = Plan(kinds, np.tile(kind, count), np.arange(len(place_of)), place_of, *columns)
        board = replace(Board.draw(rng, 3, seconds), regimes=((0.0, 1.0),))
        scene, recorded, truth = simulate(rng, lay_out(plan, seconds), board, SamplingSensor.draw(rng, seconds))
        drawn.append((scene, _as_launched(recorded), truth))
    return _merged(place, drawn)


STRAGGLER_W = (520.0, 310.0, 210.0)
"""Powers of products, sums and waiting."""


def _as_launched(recorded):
    """The recording with one kernel a sum, which begins with its waiting."""
    start = recorded.start_ns.copy()
    after = np.flatnonzero(recorded.kind == 2) + 1
    start[after] = start[after - 1]
    kept = recorded.kind != 2
    columns = {name: getattr(recorded, name)[kept] for name in ("end_ns", "stream", "kind", "iteration")}
    names = {name: getattr(recorded, name)[:2] for name in ("names", "operators", "modules")}
    return replace(recorded, start_ns=start[kept], **columns, **names)


def _merged(place, drawn):
    truths = {}
    for rank, (scene, recorded, truth) in enumerate(drawn):
        device = f"GPU-{rank}"
        truths[device] = truth
        board_store.remember(device, **{SAMPLE_RATE: {"value": truth.sensor.rate_hz}})
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
    labels = [("", ""), *zip(recorded.operators, recorded.modules, strict=True)]
    label = np.where(recorded.kind == last, 0, recorded.kind + 1)
    known = {"labels": labels, "label": label, "sampled": zeros == 0, "paths": [(), ("train",)], "path": zeros + 1}
    work = Launched.from_columns(names, recorded.kind, recorded.start_ns, recorded.end_ns, **known)
    return ProcessTrace(100 + rank, "train.py", rank, [device], work, [(scene.begin_ns, scene.finish_ns)])
