"""Runs for tests: built by hand, with exact joules, the same every time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from jouletrace.run import MODEL_UNIT, ChannelInfo, DeviceInfo, Estimate, Run, tables
from jouletrace.run.division import Division, Powers, tables_of

GPU = "GPU-11111111-2222-3333-4444-555555555555"
START = 1_763_676_000_123_456_789
"""An odd nanosecond: a float64 can't hold it."""

SECOND = 1_000_000_000


def result(unit: int, metric: str, estimate: Estimate, flags: str | None = None) -> dict[str, object]:
    return {"unit": unit, "metric": metric, **estimate.to_dict(), "flags": flags}


def e(value: float, half: float, n: int = 12, method: str = "windows") -> Estimate:
    return Estimate(value, value - half, value + half, n, method)


def gpu(**changes: object) -> DeviceInfo:
    facts: dict[str, object] = {
        "id": GPU,
        "name": "NVIDIA H100 80GB HBM3",
        "host": "node-7",
        "index": 0,
        "serial": "1650522000000",
        "pci_bus": "00000000:19:00.0",
        "vbios": "96.00.89.00.01",
        "ecc": True,
        "driver": "580.159.04",
        "power_limit_w": 700.0,
        "power_limits_w": {"min": 200.0, "max": 700.0, "default": 700.0},
        "memory_bytes": 85_520_809_984,
        "persistence": True,
    }
    return DeviceInfo(**{**facts, **changes})  # type: ignore[arg-type]


def power_channel(device: str = GPU, **changes: object) -> ChannelInfo:
    facts: dict[str, object] = {
        "device": device,
        "name": "power_w",
        "unit": "W",
        "source": "nvmlDeviceGetSamples(NVML_TOTAL_POWER_SAMPLES)",
        "period_s": 0.02,
        "window_s": 0.025,
        "delay_s": 0.0,
        "gapless": True,
        "gain_pct": 5.0,
        "origin": "calibrated",
    }
    return ChannelInfo(**{**facts, **changes})  # type: ignore[arg-type]


def phases(latency_s: float, n: int) -> list[dict[str, object]]:
    """Phases of a profile and its timed iterations: latencies of ``latency_s`` and 1 % more in turn."""
    rows: list[dict[str, object]] = []

    def span(kind: str, name: str, lane: str, start_s: float, end_s: float) -> None:
        edges = {"start_ns": START + round(start_s * SECOND), "end_ns": START + round(end_s * SECOND)}
        rows.append({"id": len(rows), "kind": kind, "name": name, "device": GPU, "lane": lane, **edges})

    names = ("deep idle", "warm-up", "context idle before", "latency", "energy", "context idle after")
    for i, name in enumerate(names):
        span("phase", name, "profile", 2 * i, 2 * i + 2)
    at = 6.0
    for i in range(n):
        took = latency_s * (1.0 if i % 2 == 0 else 1.01)
        span("iteration", "iteration", "latency", at, at + took)
        at += took
    return rows


def samples() -> list[dict[str, object]]:
    """Twelve seconds of readings: 72 W deep idle, 124 W context idle, 690 W in the energy phase."""
    rows: list[dict[str, object]] = []
    watts = (72.0, 690.0, 124.0, 500.0, 690.0, 126.0)
    for i in range(600):
        at = START + i * 20_000_000
        rows.append({"time_ns": at, "device": GPU, "channel": "power_w", "value": watts[i // 100]})
        if i % 5 == 0:
            busy = 8 <= i / 50 < 10
            readings = {
                "clock_sm_mhz": 1500.0 + i % 10 * 10 if busy else 1980.0,
                "clock_memory_mhz": 2619.0,
                "temperature_c": 45.0 + i / 60,
                "throttle_bits": 4.0 if busy and i % 25 else 1.0,
            }
            rows += [{"time_ns": at, "device": GPU, "channel": name, "value": v} for name, v in readings.items()]
    return rows


def windows(n: int, replays: int, energy_j: float, time_s: float) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for i in range(n):
        start = START + round((8 + i * time_s) * SECOND)
        facts: dict[str, object] = {"variant": "untouched", "multiplicity": 1.0, "block": 0, "order": i}
        edges = {"start_ns": start, "end_ns": start + round(time_s * SECOND)}
        rows.append({**facts, **edges, "replays": replays, "energy_j": energy_j * replays, "time_s": time_s})
    return rows


def profile_run(*, kernels: int = 0, batch: int = 64, scale: float = 1.0, name: str = "deit-base") -> Run:
    """A profile of DeiT-B on an H100, every model figure there; with ``kernels`` layers and kernels too."""
    latency, energy = 0.006712 * scale, 4.652 * scale
    figures = [
        result(0, "latency_s", Estimate(latency, latency * 0.9994, latency * 1.0006, 200, "median")),
        result(0, "throughput_per_s", e(batch / latency, 5.0, 200, "median")),
        result(0, "power_w", e(693.1, 0.9)),
        result(0, "energy_total_j", e(energy, 0.021 * scale)),
        result(0, "energy_active_over_context_idle_j", e(energy - 125.0 * latency, 0.022 * scale)),
        result(0, "energy_active_over_deep_idle_j", e(energy - 72.0 * latency, 0.021 * scale), "stored"),
        result(0, "baseline_context_idle_w", e(125.0, 0.8, 2)),
        result(0, "baseline_deep_idle_w", e(72.0, 0.4, 1), "stored"),
        result(0, "counter_ratio", e(1.0002, 0.003, 3, "counter")),
    ]
    units: list[dict[str, object]] = [{"id": MODEL_UNIT, "level": "model", "name": name}]
    if kernels:
        figures += [
            result(0, "closure_layers", e(0.998, 0.006)),
            result(0, "closure_kernels", e(1.003, 0.011)),
            result(0, "perturbation", e(1.0004, 0.0012)),
        ]
        for i in range(kernels):
            layer, kernel, share = 1 + 2 * i, 2 + 2 * i, 1 / kernels
            units.append({"id": layer, "parent": 0, "level": "layer", "name": f"encoder.layer.{i}", "count": 1})
            units.append(
                {
                    "id": kernel,
                    "parent": layer,
                    "level": "kernel",
                    "name": f"sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize{i}",
                    "op": "aten::addmm",
                    "shapes": f"f16[12608,768] f16[768,{768 + i}]",
                    "module": f"encoder.layer.{i}.mlp",
                    "count": 1 + i,
                }
            )
            for unit, flags in ((layer, None), (kernel, "split" if i % 2 else None)):
                weight = share * (1 + (i - (kernels - 1) / 2) / kernels)
                figures += [
                    result(unit, "time_s", e(latency * weight, latency * weight / 200, method="removal"), flags),
                    result(unit, "energy_total_j", e(energy * weight, energy * weight / 100, method="removal"), flags),
                    result(unit, "energy_active_j", e(energy * weight * 0.8, energy * weight / 90, method="removal")),
                    result(unit, "share", e(weight, weight / 100, method="removal"), flags),
                ]
        units.append({"id": 900, "parent": 0, "level": "kernel", "name": "gaps", "count": 1})
        figures.append(result(900, "time_s", e(latency / 500, latency / 5000, method="removal")))
        figures.append(result(900, "energy_total_j", Estimate.null("too_short", "removal")))
    run = Run(
        kind="profile",
        created_ns=START,
        command="jouletrace profile deit-b --batch 64 --mode graph",
        workload={"name": name, "task": "infer", "batch": batch, "dtype": "fp16", "mode": "graph"},
        settings={"block": 50, "l2": "warm", "target_ci": 0.01},
        devices=[gpu()],
        channels=[
            power_channel(),
            ChannelInfo(GPU, "clock_sm_mhz", "MHz", "nvmlDeviceGetClockInfo", 0.1),
            ChannelInfo(GPU, "temperature_c", "Cel", "nvmlDeviceGetTemperature", 0.1),
        ],
        versions={"jouletrace": "0.1.0", "python": "3.12.3", "torch": "2.11.0"},
        environment={"CUDA_VISIBLE_DEVICES": "0"},
        clock_pairs=[{"time_ns": START, "monotonic_ns": 5}, {"time_ns": START + 12 * SECOND, "monotonic_ns": 12}],
        recorder={"cpu_s": 0.1, "wall_s": 12.0, "samples": 1080},
    )
    run.workload["weights"] = "random, seed 0"
    run.samples = tables.from_rows(samples(), "samples")
    run.spans = tables.from_rows(phases(latency, 200), "spans")
    run.units = tables.from_rows(units, "units")
    run.windows = tables.from_rows(windows(12, 100, energy, 100 * latency / scale), "windows")
    run.results = tables.from_rows(figures, "results")
    if kernels:
        counted = {"span": 1, "metric": "Memory Throughput", "section": "GPU Speed Of Light Throughput"}
        run.counters = tables.from_rows([{**counted, "value": 41.5, "value_unit": "%"}], "counters")
        ran = [{"start_ns": START + 20_000 * i, "end_ns": START + 20_000 * i + 9_000, "unit": 1} for i in range(20)]
        run.activity = tables.from_rows([{**row, "site": None, "copy": False} for row in ran], "activity")
        run.waveform = tables.from_rows(waveform_rows(), "waveform")
        run.requests = tables.from_rows(request_rows(), "requests")
        run.steps = tables.from_rows(step_rows(), "steps")
        divide(run, [2 + 2 * i for i in range(kernels)])
    return run


def thinned(run: Run) -> Run:
    """The Run with a last hour and extremes of seconds, as a long recording has them."""
    run.recent = run.samples.slice(0, 3)
    rows = [{"time_ns": START + SECOND, "device": GPU, "channel": "power_w", "low": 80.5, "high": 690.25}]
    run.extremes = tables.from_rows(rows, "extremes")
    return run


def divide(run: Run, units: list[int]) -> None:
    """Give a Run a division: kernels of two kinds at 500 and 300 W, which share an error of 3 W."""
    root = np.array([[5.0, 0.0, 0.0], [3.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
    of_each = {"own": np.ones(3), "overlapped": np.zeros(3), "most_w": np.full(3, 800.0), "prior_w": np.full(3, 300.0)}
    powers = Powers(
        watts=np.array([500.0, 300.0, 100.0]), **of_each, tracing_w=np.zeros(3),
        varies_w=np.zeros(3), scatter_w=np.zeros(3), readings=77, coverage=2.0, root=root,
        causes={"noise of the readings": 0.25 * np.eye(3), "drift": np.eye(3)}, gained=0.05 * np.eye(3),
    )  # fmt: skip
    rows = [
        {"device": GPU, "unit": unit, "kind": i % 2, "seconds": run.result("time_s", unit).value}
        for i, unit in enumerate(units)
    ]
    for name, table in tables_of(Division(GPU, powers, "not_resolved", tables.from_rows(rows, "divided"))).items():
        setattr(run, name, table)


def step_rows() -> list[dict[str, object]]:
    """Five steps of a scheduler, of which the first reads a prompt."""
    times = [{"start_ns": START + 20_000 * i, "end_ns": START + 20_000 * i + 15_000} for i in range(5)]
    counts = {"new_tokens": 0, "prefilling": 0, "decoding": 1, "context_tokens": 100, "traced_j": 0.01}
    return [
        {**row, **counts, **({"new_tokens": 100, "prefilling": 1} if i == 0 else {})} for i, row in enumerate(times)
    ]


def request_rows() -> list[dict[str, object]]:
    """Five requests, of which the fourth failed before its first token."""
    rows: list[dict[str, object]] = []
    for i in range(5):
        sent = START + 100_000 * i
        times = {"scheduled_ns": sent, "sent_ns": sent, "first_ns": sent + 20_000, "last_ns": sent + 90_000}
        state = (
            {"status": "failed", "error": "HTTP 503", "first_ns": None} if i == 3 else {"status": "ok", "error": None}
        )
        counts = {"input_tokens": 100, "output_tokens": 8 + i, "chunks": 8 + i}
        rows.append({"id": i, "level": 0, **times, **counts, **state, "energy_j": 0.5, "billed": 1.0})
    return rows


def waveform_rows() -> list[dict[str, object]]:
    """Eight bins around the kernels of the activity, of which nothing is known of the third."""
    rows: list[dict[str, object]] = []
    for i in range(8):
        edges = {"start_ns": START + 50_000 * i, "end_ns": START + 50_000 * (i + 1)}
        watts = 400.0 + 50 * i
        known = {"power_w": watts, "low_w": watts - 20, "high_w": watts + 20} if i != 2 else {}
        rows.append({**edges, **known})
    return rows


def simulated_run() -> Run:
    """The same on a simulated GPU."""
    run = profile_run()
    run.devices = [gpu(id="sim:h100-80", name="H100 80GB", simulated=True, driver=None, host="")]
    run.channels = [power_channel("sim:h100-80", source="simulated power record", origin="exact", gain_pct=None)]
    return run


def cpu_run() -> Run:
    """A profile on a CPU whose power can't be read."""
    run = profile_run()
    note = "CPU energy can't be read: its counters are for root only; run `sudo chmod -R a+r /sys/class/powercap`"
    run.devices = [DeviceInfo("cpu", "Intel Xeon Platinum 8480C", "cpu", details={"no_power_note": note})]
    run.channels = []
    run.samples, run.windows = tables.empty("samples"), tables.empty("windows")
    reason = "no_power_sensor"
    missing = ["power_w", "energy_total_j", "energy_active_over_context_idle_j", "energy_active_over_deep_idle_j"]
    missing += ["baseline_context_idle_w", "baseline_deep_idle_w"]
    rows = [row for row in run.results.to_pylist() if row["metric"] in ("latency_s", "throughput_per_s")]
    run.results = tables.from_rows(rows + [result(0, metric, Estimate.null(reason)) for metric in missing], "results")
    return run


def monitor_run() -> Run:
    """Two GPUs watched for a minute."""
    units: list[dict[str, object]] = [{"id": 0, "level": "model", "name": "recording"}]
    figures: list[dict[str, object]] = []
    devices = [gpu(), gpu(id=GPU[:-1] + "6", index=1)]
    for i, device in enumerate(devices):
        units.append({"id": i + 1, "parent": 0, "level": "device", "name": device.name, "module": device.id})
        power = {"power_idle_w": 72.0 + i, "power_working_w": 400.0, "power_difference_w": 328.0 - i, "power_w": 236.0}
        figures += [result(i + 1, metric, e(value, 0.7, 50, "samples")) for metric, value in power.items()]
        figures.append(result(i + 1, "energy_total_j", e(236.0 * 60, 12.0, 1, "record")))
        figures.append(result(i + 1, "time_s", Estimate(60.0, n=1, method="record")))
    figures[0] = result(1, "power_idle_w", Estimate.null("always_busy"))
    return Run(
        kind="monitor",
        created_ns=START,
        command="jouletrace monitor",
        devices=devices,
        channels=[power_channel(device.id) for device in devices],
        units=tables.from_rows(units, "units"),
        results=tables.from_rows(figures, "results"),
    )


def all_runs() -> dict[str, Run]:
    """Runs of every kind by name, from nothing at all to everything there is."""
    return {
        "empty": Run(),
        "full": profile_run(kernels=4),
        "profile": profile_run(),
        "simulated": simulated_run(),
        "cpu": cpu_run(),
        "monitor": monitor_run(),
        "incomplete": Run(kind="measure", complete=False, devices=[gpu()]),
        "odd_names": odd_run(),
    }


ODD = 'a|b & "c" <d> \\e_{f}$ #g% ~h^\n[red]i[/red] `j` *k* é中𝛼\u200b=1+2'


def odd_run() -> Run:
    """Every name holds what some format would trip over."""
    run = profile_run(kernels=2, name=ODD)
    run.devices = [gpu(name=ODD)]
    run.warn("odd", ODD, ODD)
    rows = run.units.to_pylist()
    for row in rows:
        row["name"] = f"{ODD}{row['id']}"
        row["module"] = ODD
    run.units = tables.from_rows(rows, "units")
    return run


def random_table(name: str, rows: int, seed: int) -> list[dict[str, object]]:
    """Rows with random content for any table, some cells null."""
    rng = np.random.default_rng(seed)
    found: list[dict[str, object]] = []
    for _ in range(rows):
        row: dict[str, object] = {}
        for field in tables.TABLES[name]:
            kind = str(field.type)
            if rng.random() < 0.2 and field.name not in tables.REQUIRED[name]:
                continue
            if "list" in kind:
                row[field.name] = [int(v) for v in rng.integers(1, 1024, 3)]
            elif "string" in kind:
                row[field.name] = str(rng.choice([ODD, "", "x", "gemm"]))
            elif kind == "bool":
                row[field.name] = bool(rng.integers(0, 2))
            elif kind == "double":
                row[field.name] = float(rng.normal() * 10.0 ** rng.integers(-9, 9))
            elif kind == "int64":
                row[field.name] = int(rng.integers(0, 2**62))
            else:
                row[field.name] = int(rng.integers(0, 2**30))
        if name == "waveform":  # bins side by side, each power in its interval
            power = float(rng.uniform(0, 500))
            row = {"start_ns": len(found), "end_ns": len(found) + 1}
            row |= {"power_w": power, "low_w": power - 1, "high_w": power + 1} if rng.random() < 0.8 else {}
        if name in tables.SOLVED:  # a kernel of unknown power on each of many GPUs, half of which have idle power
            place = len(found)
            row |= {field.name: abs(float(rng.normal())) for field in tables.TABLES[name] if field.type == pa.float64()}
            row |= {"unit": place, "site": place if "site" in row else None, "readings": 5}
            row |= {"device": f"x{place // 2 if name == 'errors' else place}", "kind": 0 if name == "powers" else None}
            row |= {"matrix": ("m", "gained")[place % 2], "value": float(rng.integers(0, 1000))}
        if name == "steps":  # one after another
            row |= {"start_ns": 2 * len(found), "end_ns": 2 * len(found) + 1, "prefilling": 1}
        if name == "requests":  # their times are in order
            first = row.get("first_ns")
            row["sent_ns"] = int(rng.integers(0, 2**60))
            row["last_ns"] = row["sent_ns"] + int(rng.integers(0, 2**60))
            if first is not None:
                row["first_ns"] = (row["sent_ns"] + row["last_ns"]) // 2
        if name == "units":  # a tree: each lies within one that came before, if within any
            row["id"] = len(found)
            row |= {column: 1 + abs(float(rng.normal())) for column in ("flops", "bytes") if column in row}
            if not found:
                row.pop("parent", None)
            elif "parent" in row:
                row["parent"] = int(rng.integers(0, len(found)))
        found.append(row)
    return found[: rows // 2] if name == "powers" else found  # which has two errors a row
