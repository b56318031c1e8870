"""Runs with timelines, for the tests of traces: kernels, launches, operators, counters, odd names."""

from __future__ import annotations

import numpy as np

from jouletrace.run import ChannelInfo, Estimate, Run, tables
from make_runs import GPU, ODD, START, e, gpu, power_channel, result

OTHER = GPU[:-1] + "6"
NASTY = 'a\x00b\x1b[31m</script><!-- "quoted" \\ \u2028 \U0001f525 \n é'
SCRIPT = "</script><script>alert(1)</script>"


def span(id: int, kind: str, name: str, start: int, end: int, **more: object) -> dict[str, object]:
    return {"id": id, "kind": kind, "name": name, "start_ns": START + start, "end_ns": START + end, **more}


def spans() -> list[dict[str, object]]:
    stream, thread = {"device": GPU, "lane": "7"}, {"lane": "thread 1"}
    sizes = {"grid_x": 96, "grid_y": 8, "grid_z": 1, "block_x": 256, "block_y": 1, "block_z": 1}
    sizes |= {"registers": 168, "shared_static_bytes": 16, "shared_dynamic_bytes": 49_152}
    return [
        span(1, "kernel", "gemm", 1_001, 2_003, unit=2, correlation=11, **stream, **sizes),
        span(2, "kernel", "softmax", 2_003, 2_500, unit=3, correlation=12, **stream),
        span(3, "kernel", NASTY, 2_400, 2_450, correlation=12, **stream),  # overlaps the one before
        span(4, "memcpy", "Memcpy HtoD", 3_000, 3_001, bytes=4096, **stream),
        span(5, "kernel", "gemm", 1_500, 2_500, device=GPU, lane="13", unit=2),
        span(6, "kernel", "gemm", 1_500, 2_500, device=OTHER, lane="7", correlation=11),
        span(10, "op", "aten::addmm", 0, 1_000, **thread),
        span(11, "op", "aten::mm", 0, 900, **thread),
        span(12, "op", "aten::empty", 900, 900, **thread),
        span(13, "op", "aten::view", 1_000, 1_000, **thread),
        span(14, "op", "aten::view", 1_000, 1_200, **thread),
        span(15, "op", ODD, 1_100, 1_300, **thread),  # neither in the one before nor after it
        span(20, "launch", "cudaLaunchKernel", 100, 150, correlation=11, device=GPU, **thread),
        span(21, "launch", "cudaLaunchKernel", 120, 160, correlation=11, device=OTHER, lane="thread 2"),
        span(22, "launch", "cudaGraphLaunch", 200, 260, correlation=12, **thread),
        span(23, "launch", "cudaLaunchKernel", 5_000, 5_100, correlation=77, **thread),
        span(30, "phase", "energy", -10, 6_000, device=GPU, lane="profile"),
        span(31, "iteration", "iteration", 0, 2_600, device=GPU, lane="latency"),
        span(32, "layer", "encoder.layer.0", 0, 2_600, device=GPU, unit=1),
        span(33, "range", SCRIPT, 5, 50),
        span(34, "range", "emoji \U0001f525", 5, 50),
        span(35, "novelty", "of a newer version", 5, 50),
        span(36, "run", "process", -20, 7_000, lane="4711"),
    ]


def timeline_run() -> Run:
    """Two GPUs; figures of three units, one of them null; counters of two kernels."""
    units: list[dict[str, object]] = [
        {"id": 0, "level": "model", "name": "deit-base"},
        {"id": 1, "parent": 0, "level": "layer", "name": "encoder.layer.0"},
        {"id": 2, "parent": 1, "level": "kernel", "name": "gemm", "op": "aten::addmm", "module": "encoder.layer.0.mlp"},
        {"id": 3, "parent": 1, "level": "kernel", "name": "softmax"},
    ]
    figures = [
        result(1, "energy_total_j", e(0.5, 0.01, method="removal")),
        result(2, "energy_total_j", e(0.25, 0.005, method="removal"), "split,capped"),
        result(2, "energy_active_j", e(0.2, 0.006, method="removal")),
        result(2, "time_s", e(1e-6, 1e-8)),
        result(3, "energy_total_j", Estimate.null("too_short", "removal")),
    ]
    counted = [
        (1, "Memory Throughput", "GPU Speed Of Light Throughput", 41.5, "%"),
        (1, "Memory Throughput", "Memory Workload Analysis", 1.2e12, "B/s"),
        (1, "Compute (SM) [%]", "GPU Speed Of Light Throughput", 80.0, "%"),
        (1, "Theoretical Occupancy", "Occupancy", 50.0, "%"),
        (1, "Achieved Occupancy", "Occupancy", 43.75, "%"),
        (1, "Duration", "A", 1.0, "s"),
        (1, "Duration", "B", 2.0, "s"),
        (2, "Memory Throughput", "GPU Speed Of Light Throughput", 10.0, "%"),
        (2, "Achieved Occupancy", "Occupancy", None, "%"),
        (5, "achieved_occupancy", None, 0.25, "1"),
        (999, "Memory Throughput", None, 1.0, "%"),
    ]
    readings = [(i * 20_000_000, "power_w", 100.0 + 10 * i) for i in range(10)]
    readings += [(5, "temperature_c", 45.0), (105, "temperature_c", float("nan")), (50, "temperature_c", 46.0)]
    readings += [(7, "clock_sm_mhz", 1980.0), (7, "memory_used_bytes", 2.0**33), (7, "novel_w", 1.5)]
    run = Run(
        kind="import",
        created_ns=START,
        command="jouletrace import kernels.csv",
        devices=[gpu(), gpu(id=OTHER, index=1)],
        channels=[power_channel(), ChannelInfo(GPU, "novel_w", "W", "somewhere")],
    )
    run.spans = tables.from_rows(spans(), "spans")
    run.units = tables.from_rows(units, "units")
    run.results = tables.from_rows(figures, "results")
    names = ("span", "metric", "section", "value", "value_unit")
    run.counters = tables.from_rows([dict(zip(names, row, strict=True)) for row in counted], "counters")
    rows = [{"time_ns": START + at, "device": GPU, "channel": name, "value": value} for at, name, value in readings]
    run.samples = tables.from_rows(rows, "samples")
    run.warn("clock_stepped", NASTY, "host")
    return run


def random_run(n: int, seed: int) -> Run:
    """Spans that overlap in every way on a few lanes, some without a length or an end, launches among them."""
    rng = np.random.default_rng(seed)
    kinds = ["kernel", "op", "range", "launch", "layer"]
    rows: list[dict[str, object]] = []
    for i in range(n):
        start, kind = int(rng.integers(0, 40 * n)), str(rng.choice(kinds))
        length = int(rng.choice([0, rng.integers(0, 20), rng.integers(0, 2000)]))
        row = span(i, kind, f"{kind} {i % 17}", start, start + length, lane=str(rng.integers(0, 3)))
        row |= {"device": GPU if rng.random() < 0.7 else None, "correlation": int(rng.integers(0, n))}
        if kind == "kernel":
            row |= {"registers": int(rng.integers(0, 255)), "unit": int(rng.integers(0, 5))}
        rows.append(row)
    return Run(kind="import", devices=[gpu()], spans=tables.from_rows(rows, "spans"))
