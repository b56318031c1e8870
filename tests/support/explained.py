"""Profiles with kernels whose powers are known, to compare and to explain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jouletrace.run import DeviceInfo, Run, tables
from jouletrace.run.division import RESPONSE, Division, Powers, tables_of
from make_runs import e, gpu, power_channel, result

ATTENTION = "pytorch_flash::flash_fwd_kernel<cutlass::bfloat16_t>"
PRODUCT = "nvjet_tst_128x256_64x4_2x1_v_bz_TNT"
PRODUCT_FP32 = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_ffma"
SOFTMAX = "softmax_warp_forward<float, float, float>"
COPY = "direct_copy_kernel_cuda"
NORM = "vectorized_layer_norm_kernel<c10::BFloat16>"


class Kernel(NamedTuple):
    """A kernel of one site: launches, seconds of all of them, and watts."""

    module: str
    op: str
    name: str
    count: int
    seconds: float
    watts: float
    shapes: str = ""


USUAL = (
    Kernel("model.layer.0.attention", "sdpa", ATTENTION, 1, 1e-3, 400.0),
    Kernel("model.layer.1.attention", "sdpa", ATTENTION, 1, 1e-3, 400.0),
    Kernel("model.layer.0.mlp", "addmm", PRODUCT, 1, 2e-3, 600.0),
    Kernel("model.layer.1.mlp", "addmm", PRODUCT, 1, 2e-3, 600.0),
    Kernel("model.norm", "native_layer_norm", NORM, 1, 1e-3, 300.0),
)


def explained(
    kernels: tuple[Kernel, ...] = USUAL,
    *,
    idle_s: float = 1e-3,
    idle_w: float = 100.0,
    error: float = 0.01,
    response: float = 0.0,
    within: float = 0.001,
    varies: float = 0.0,
    errors: np.random.Generator | None = None,
    device: DeviceInfo | None = None,
    kind: str = "profile",
    **workload: object,
) -> Run:
    """A Run whose kinds of kernels each have an error of their own, and one of the sensor's response.

    Args:
        kernels: What an iteration launches.
        idle_s: Its time without a kernel.
        idle_w: Power in that.
        error: Relative standard uncertainty of each power.
        response: Share of its variance that is the response of the sensor.
        within: Relative standard uncertainty of the whole.
        varies: Relative standard deviation of some kernels of a kind from the others, together, and of 1 s of each.
        errors: Draws the errors of powers, and of the whole; none are made if None.
        device: The GPU.
        kind: Of the Run.
        workload: Facts of the workload.
    """
    board = device or gpu()
    names = list(dict.fromkeys((one.op, one.name, one.watts) for one in kernels))
    count = len(names) + 1
    true = np.array([*(watts for *_, watts in names), idle_w])
    sd = error * true
    off, off_whole = (np.zeros(count), 0.0) if errors is None else (errors.normal(0, sd), errors.normal(0, within))
    of_each = {"own": np.ones(count), "overlapped": np.zeros(count), "most_w": np.full(count, 900.0)}
    causes = {"noise of the readings": (1 - response) * np.eye(count), RESPONSE: np.eye(count)}
    powers = Powers(
        watts=true + off, **of_each, prior_w=np.full(count, 300.0), tracing_w=np.zeros(count),
        varies_w=varies * true, scatter_w=varies * true, readings=100,
        coverage=1.96, root=np.diag(sd), causes=causes, gained=0.05 * np.eye(count),
    )  # fmt: skip
    units: list[dict[str, object]] = [{"id": 0, "level": "model", "name": "model"}]
    rows: list[dict[str, object]] = []
    for i, one in enumerate(kernels, start=1):
        about = {"op": one.op or None, "module": one.module or None, "shapes": one.shapes or None, "count": one.count}
        units.append({"id": i, "parent": 0, "level": "kernel", "name": one.name, **about})
        place = names.index((one.op, one.name, one.watts))
        rows.append({"device": board.id, "unit": i, "kind": place, "seconds": one.seconds})
    units.append({"id": 900, "parent": 0, "level": "op", "name": "idle", "count": 1})
    rows.append({"device": board.id, "unit": 900, "kind": count - 1, "seconds": idle_s})
    seconds = sum(one.seconds for one in kernels) + idle_s
    joules = sum(one.seconds * one.watts for one in kernels) + idle_s * idle_w
    figures = {"latency_s": seconds, "iteration_time_s": seconds, "power_w": joules / seconds, "energy_total_j": joules}
    stated = [result(0, "power_idle_at_work_w", e(idle_w, 0.01 * abs(idle_w)))]
    for name, value in figures.items():
        own = value * (1 + off_whole) if name in ("power_w", "energy_total_j") else value
        stated.append(result(0, name, e(own, 1.96 * within * value, 30), "between_runs_stored"))
    facts = {"name": "model", "task": "infer", "batch": 8, "items": 8, "dtype": "bf16", "mode": "eager", **workload}
    for i, one in enumerate(kernels, start=1):
        drawn = one.seconds * float(powers.watts[names.index((one.op, one.name, one.watts))])
        stated += [result(i, "time_s", e(one.seconds, 0.0)), result(i, "energy_total_j", e(drawn, 0.02 * drawn))]
    run = Run(kind=kind, workload=facts, devices=[board], channels=[power_channel(board.id)], created_ns=1)
    run.stored["between_runs"] = {"sd_pct": 0.2, "runs": 10, "source": "another GPU"}
    run.units, run.results = tables.from_rows(units, "units"), tables.from_rows(stated, "results")
    division = Division(board.id, powers, "not_resolved", tables.from_rows(rows, "divided"))
    for name, table in tables_of(division).items():
        setattr(run, name, table)
    return run
