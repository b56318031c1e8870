"""Runs with a power record made by hand: levels that are known exactly, each reading the mean of its 20 ms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from jouletrace.formats.importers.power_sensor import polled_response
from jouletrace.run import ChannelInfo, DeviceInfo, Run, tables
from jouletrace.run.channels import POWER
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.kinds import sensor_behind

DEVICE = "GPU-by-hand"
START = 1_763_676_000_123_456_789
SECOND = 1_000_000_000


EXACT = StepResponse(0.02, window_s=0.02, noise_w=0.3, origin="exact").to_dict()


def ns(seconds: float) -> int:
    """A time after the start of the record."""
    return START + round(seconds * SECOND)


def channel(name: str = POWER, device: str = DEVICE, **changes: object) -> ChannelInfo:
    facts: dict[str, object] = {"period_s": 0.02, "gapless": True, "response": EXACT if name == POWER else {}}
    return ChannelInfo(device, name, name.rsplit("_", 1)[1].upper(), f"by hand: {name}", **{**facts, **changes})  # type: ignore[arg-type]


def readings(
    watts: float | Callable[[np.ndarray], np.ndarray],
    seconds: float,
    *,
    name: str = POWER,
    device: str = DEVICE,
    period_s: float = 0.02,
    noise: float = 0.0,
    without: Sequence[tuple[float, float]] = (),
) -> list[dict[str, object]]:
    """Rows of ``samples``: ``watts`` (a level, or a function of seconds) every ``period_s``.

    A reading speaks for the period before it: edges belong on whole periods.
    """
    at = np.arange(0.0, seconds + period_s / 2, period_s)
    values = np.broadcast_to(watts(at - period_s / 2) if callable(watts) else watts, at.shape)
    values = values + noise * np.random.default_rng(1).standard_normal(len(at))
    kept = [not any(since < t < until for since, until in without) for t in at]
    return [
        {"time_ns": ns(t), "device": device, "channel": name, "value": float(value)}
        for t, value, keep in zip(at, values, kept, strict=True)
        if keep
    ]


def windows(
    edges: Sequence[tuple[float, float]], *, replays: int = 10, variant: str = "untouched", block: int = 0
) -> list[dict[str, object]]:
    """Rows of ``windows`` with these starts and ends in seconds."""
    return [
        {
            "variant": variant,
            "multiplicity": 1.0,
            "block": block,
            "order": i,
            "replays": replays,
            "start_ns": ns(start),
            "end_ns": ns(end),
        }
        for i, (start, end) in enumerate(edges)
    ]


def phases(*named: tuple[str, float, float]) -> list[dict[str, object]]:
    """Rows of ``spans``: phases with their starts and ends in seconds."""
    return [
        {"id": i, "kind": "phase", "name": name, "device": DEVICE, "lane": "x", "start_ns": ns(a), "end_ns": ns(b)}
        for i, (name, a, b) in enumerate(named)
    ]


def iterations(n: int, seconds: float, start: float = 0.0) -> list[dict[str, object]]:
    """Rows of ``spans``: iterations of the latency pass, end to end."""
    return [
        {
            "id": 1000 + i,
            "kind": "iteration",
            "name": "iteration",
            "device": DEVICE,
            "lane": "latency",
            "start_ns": ns(start + i * seconds),
            "end_ns": ns(start + (i + 1) * seconds),
        }
        for i in range(n)
    ]


def make_run(
    samples: list[dict[str, object]],
    *,
    spans: list[dict[str, object]] | None = None,
    window_rows: list[dict[str, object]] | None = None,
    channels: list[ChannelInfo] | None = None,
    **fields: object,
) -> Run:
    """A Run of them."""
    run = Run(
        created_ns=START,
        devices=[DeviceInfo(DEVICE, "GPU by hand", power_limit_w=700.0)],
        channels=[channel()] if channels is None else channels,
        **fields,  # type: ignore[arg-type]
    )
    run.samples = tables.from_rows(samples, "samples")
    run.spans = tables.from_rows(spans or [], "spans")
    run.windows = tables.from_rows(window_rows or [], "windows")
    return run


_LOGGED = [POWER, "energy_counter_j", "temperature_c", "clock_sm_mhz", "clock_memory_mhz", "utilization_gpu_pct"]


def log_of_gpus(devices: int, rows: int, channels: int = 1) -> Run:
    """An imported log with a row each second of every GPU in turn, as ``nvidia-smi`` writes it; ``rows`` in all."""
    ids, names = [f"GPU-{number:04d}" for number in range(devices)], _LOGGED[:channels]
    each = rows // devices // channels
    stamps = np.repeat(START + np.arange(each) * SECOND, devices * channels)
    owner = np.tile(np.repeat(np.arange(devices), channels), each).astype(np.int32)
    which = np.tile(np.arange(channels), each * devices).astype(np.int32)
    noise = np.random.default_rng(1).normal(0, 2, len(stamps))
    columns = {
        "time_ns": stamps,
        "device": pa.DictionaryArray.from_arrays(owner, ids),
        "channel": pa.DictionaryArray.from_arrays(which, names),
        "value": np.round(300 + 50 * (stamps // (60 * SECOND) % 2) + noise, 2),
    }
    response = polled_response(sensor_behind("usage", "NVIDIA H100 80GB HBM3")[1], 1.0, 1e-3, 0.01, 300.0).to_dict()
    facts = {name: {"response": response} if name == POWER else {} for name in names}
    return Run(
        kind="import",
        created_ns=START,
        samples=pa.table(columns),
        devices=[DeviceInfo(id, "a GPU", power_limit_w=700.0) for id in ids],
        channels=[ChannelInfo(id, name, "", "log", 1.0, **facts[name]) for id in ids for name in names],  # type: ignore[arg-type]
    )
