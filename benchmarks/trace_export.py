"""How fast, how large and with how much memory a Run is written as a trace.

``python benchmarks/trace_export.py [KERNELS]`` makes a Run of so many kernels, each with its launch
and its args (grid, block, registers, shared memory, energy of its unit), operators around the
launches and an hour's share of power readings, and writes it as a Chrome trace. CPU seconds are those
of the process, so that a busy machine changes little.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from jouletrace.formats import exporters
from jouletrace.run import ChannelInfo, DeviceInfo, Estimate, Run, tables

START = 1_795_000_000_000_000_000
GPU = "GPU-11111111-2222-3333-4444-555555555555"
UNITS = 150
MIXES = ("kernels only", "kernels, launches, arrows, operators")


def words(values: list[str], codes: np.ndarray) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(values))


def make_run(kernels: int, *, host: bool) -> Run:
    """Kernels one after another on a stream, in iterations of 150, as a transformer's."""
    rng = np.random.default_rng(1)
    unit = np.arange(kernels) % UNITS
    length = rng.integers(1_500, 12_000, UNITS)[unit] + rng.integers(-50, 50, kernels)
    start = START + np.cumsum(length + rng.integers(300, 900, kernels)) - length
    sizes = [rng.choice(choices, UNITS)[unit] for choices in ([64, 128, 768, 3072], [1, 8], [128, 256], [32, 168, 255])]
    columns = {
        "id": pa.array(np.arange(kernels)),
        "kind": words(["kernel"], np.zeros(kernels)),
        "name": words([f"sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_{i}" for i in range(40)], unit % 40),
        "device": words([GPU], np.zeros(kernels)),
        "lane": words(["7"], np.zeros(kernels)),
        "start_ns": pa.array(start),
        "end_ns": pa.array(start + length),
        "unit": pa.array(unit + 1),
        "grid_x": pa.array(sizes[0].astype(np.int32)),
        "grid_y": pa.array(sizes[1].astype(np.int32)),
        "grid_z": pa.array(np.ones(kernels, np.int32)),
        "block_x": pa.array(sizes[2].astype(np.int32)),
        "block_y": pa.array(np.ones(kernels, np.int32)),
        "block_z": pa.array(np.ones(kernels, np.int32)),
        "registers": pa.array(sizes[3].astype(np.int32)),
        "shared_static_bytes": pa.array(np.zeros(kernels, np.int32)),
        "shared_dynamic_bytes": pa.array(np.full(kernels, 49_152, np.int32)),
    }
    if host:
        columns["correlation"] = pa.array(np.arange(kernels))
    spans = tables.conform(pa.table(columns), "spans")
    if host:
        spans = pa.concat_tables([spans, *host_side(kernels, start, unit)]).unify_dictionaries().combine_chunks()
    figures, units = [], []
    for i in range(1, UNITS + 1):
        value = float(rng.uniform(0.001, 0.05))
        units.append({"id": i, "level": "kernel", "name": f"kernel {i}", "op": "aten::addmm", "module": f"layer.{i}"})
        for metric, part in (("energy_total_j", 1.0), ("energy_active_j", 0.8)):
            e = Estimate(value * part, value * part * 0.99, value * part * 1.01, 12, "removal")
            figures.append({"unit": i, "metric": metric, **e.to_dict(), "flags": "split" if i % 9 == 0 else None})
    stamps = np.arange(START, int(start[-1]), 20_000_000)
    samples = {
        "time_ns": stamps,
        "device": words([GPU], np.zeros(len(stamps))),
        "channel": words(["power_w"], np.zeros(len(stamps))),
        "value": rng.uniform(120, 700, len(stamps)),
    }
    return Run(
        kind="import",
        devices=[DeviceInfo(GPU, "NVIDIA H100 80GB HBM3")],
        channels=[ChannelInfo(GPU, "power_w", "W", "nvmlDeviceGetSamples", 0.02, gapless=True)],
        spans=spans,
        units=tables.from_rows(units, "units"),
        results=tables.from_rows(figures, "results"),
        samples=tables.conform(pa.table(samples), "samples"),
    )


def host_side(kernels: int, start: np.ndarray, unit: np.ndarray) -> list[pa.Table]:
    """A launch before each kernel, inside an operator."""
    found = []
    for number, (kind, before, took) in enumerate((("launch", 4_000, 1_000), ("op", 4_500, 1_700)), start=1):
        columns = {
            "id": pa.array(np.arange(kernels) + number * kernels),
            "kind": words([kind], np.zeros(kernels)),
            "name": words(["cudaLaunchKernel"], np.zeros(kernels))
            if kind == "launch"
            else words([f"aten::op{i}" for i in range(25)], unit % 25),
            "lane": words(["4711"], np.zeros(kernels)),
            "start_ns": pa.array(start - before),
            "end_ns": pa.array(start - before + took),
        }
        if kind == "launch":
            columns["correlation"] = pa.array(np.arange(kernels))
        found.append(tables.conform(pa.table(columns), "spans"))
    return found


class Peak:
    """Peak of the process's resident memory while a block runs, above what it was before, in bytes."""

    def __enter__(self) -> Peak:
        self.before = self.bytes = self._now()
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._watch.join()

    @staticmethod
    def _now() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def _look(self) -> None:
        while not self._done.wait(0.01):
            self.bytes = max(self.bytes, self._now())

    @property
    def above(self) -> int:
        return self.bytes - self.before


def main(kernels: int = 1_000_000) -> None:
    with tempfile.TemporaryDirectory() as folder:  # what is imported, is imported now
        exporters.export(make_run(1000, host=True), "chrome", Path(folder) / "trace")
    print("| Run | spans | CPU s | wall s | spans/s | B/span | memory above the Run's (MB) | B/span |")
    print("|---|---|---|---|---|---|---|---|")
    for mix in MIXES:
        run = make_run(kernels, host=mix != MIXES[0])
        n = len(run.spans)
        with tempfile.TemporaryDirectory() as folder, Peak() as peak:
            cpu, wall = time.process_time(), time.perf_counter()
            path = exporters.export(run, "chrome", Path(folder) / "trace")
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            size = path.stat().st_size
        cells = [mix, f"{n:,}", f"{cpu:.1f}", f"{wall:.1f}", f"{n / cpu:,.0f}", f"{size / n:.1f}"]
        print("|", " | ".join([*cells, f"{peak.above / 1e6:.0f}", f"{peak.above / n:.0f}"]), "|", flush=True)


if __name__ == "__main__":
    main(*(int(arg) for arg in sys.argv[1:]))
