"""How far ``profile --backend`` is from a bare loop and from OpenVINO's ``benchmark_app``, and what wrapping costs.

    python benchmarks/addons/runtimes.py [--rounds N] [--seconds S] [-o FILE]

All of it runs in one command, in turns, since other programs may use the machine. Every runtime has
one thread. "Wrapper" is our loop over a bare loop on the same loaded model, "bare loop" is over one
that a user would write, with its own session: they take turns every few milliseconds, and the
medians of all single latencies are compared. ``benchmark_app`` takes turns with us too, in a process of
its own; of it both the medians and the least latencies are compared.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import openvino

from jouletrace.addons.runtimes.backend import RuntimeStep
from jouletrace.addons.runtimes.engine import random_feeds
from jouletrace.addons.runtimes.export import export_onnx
from jouletrace.addons.runtimes.onnxruntime import OnnxRuntime
from jouletrace.addons.runtimes.openvino import OpenVino
from jouletrace.analysis.latency import median_of
from jouletrace.formats.importers import read_file
from jouletrace.formats.importers.base import ImportOptions
from jouletrace.workloads import resolve
from jouletrace.workloads.options import WorkloadOptions

IDS = {"bos_token_id": "1", "eos_token_id": "1", "n_head": "4"}
TINY = {**IDS, "n_layer": "2", "n_embd": "64", "vocab_size": "500", "n_positions": "64"}
SMALL = {**IDS, "n_layer": "2", "n_embd": "256", "vocab_size": "2000", "n_positions": "64"}
MODELS = {
    "GPT-2, 2 layers of 64, 32 tokens": ("gpt2-large", {"seq_len": 32, "config": TINY}),
    "GPT-2, 2 layers of 256, 64 tokens": ("gpt2-large", {"seq_len": 64, "config": SMALL}),
    "deit-tiny": ("deit-tiny", {}),
}
TURN_S = 0.005
"""Length of a turn: shorter than what a scheduler gives to others, so that all sides meet the same."""


def bare(call: Callable[[], object], n: int) -> np.ndarray:
    """Seconds of ``n`` calls in the plainest loop that times them singly."""
    stamps = np.empty(n + 1)
    stamps[0] = time.perf_counter()
    for i in range(n):
        call()
        stamps[i + 1] = time.perf_counter()
    return np.diff(stamps)


def bare_onnxruntime(path: Path, feed: dict) -> Callable[[], object]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feed)


def bare_openvino(path: Path, feed: dict) -> Callable[[], object]:
    core = openvino.Core()
    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(str(path)), "CPU", options).create_infer_request()
    for name, array in feed.items():
        request.set_tensor(name, openvino.Tensor(array, shared_memory=True))
    return lambda: request.infer(share_outputs=True)


def benchmark_app(path: Path, seconds: float) -> tuple[float, float]:
    """Median and least latency in seconds, read by our importer."""
    program = Path(sys.executable).with_name("benchmark_app")
    with tempfile.TemporaryDirectory() as folder:
        options = ["-m", path, "-d", "CPU", "-hint", "none", "-api", "sync", "-nireq", "1", "-nstreams", "1"]
        options += ["-nthreads", "1", "-infer_precision", "f32", "-t", str(max(1, round(seconds)))]
        options += ["-report_type", "no_counters", "-json_stats", "-report_folder", folder]
        subprocess.run([program, *map(str, options)], check=True, capture_output=True)
        (report,) = Path(folder).glob("*.json")
        run = read_file(report, ImportOptions(format="openvino"))
        return run.result("latency_s").value, run.result("latency_min_s").value


def in_turns(step: RuntimeStep, other: Callable[[], object], seconds: float, rounds: int) -> list[float]:
    """Our median latency over the other's, a round each."""
    n = max(1, round(TURN_S / float(np.median(bare(other, 20)))))
    ratios = []
    for _ in range(rounds):
        ours, others = [], []
        end = time.perf_counter() + 2 * seconds
        while time.perf_counter() < end:
            ours.append(step.latencies(n))
            others.append(bare(other, n))
        ratios.append(float(np.median(np.concatenate(ours)) / np.median(np.concatenate(others))))
    return ratios


def ratios_of(
    engine: OnnxRuntime | OpenVino, own: Callable[[], object], seconds: float, rounds: int, path: Path
) -> dict[str, list[float]]:
    """Ratios of our latency to each other one's, a round each; and our own in milliseconds."""
    step = RuntimeStep(engine)
    n = max(20, round(seconds / float(np.median(bare(own, 20)))))
    found = {
        "wrapper": in_turns(step, lambda: engine.infer(0, 0), seconds, rounds),
        "bare loop": in_turns(step, own, seconds, rounds),
        "app, median": [],
        "app, least": [],
        "ms": [1e3 * float(np.median(step.latencies(n))) for _ in range(rounds)],
    }
    for _ in range(rounds if isinstance(engine, OpenVino) else 0):
        before = step.latencies(n)
        median, least = benchmark_app(path, seconds)
        ours = np.concatenate([before, step.latencies(n)])
        found["app, median"].append(float(np.median(ours)) / median)
        found["app, least"].append(float(ours.min()) / least)
    return found


def cell(values: list[float]) -> str:
    """Median with its 95 % interval."""
    if not values:
        return "–"
    found = median_of(np.array(values))
    interval = f" ({found.low:.3f}–{found.high:.3f})" if found.low is not None else ""
    return f"{found.value:.3f}{interval}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("-o", "--output", type=Path, help="write the table here too")
    arguments = parser.parse_args()
    columns = ["wrapper", "bare loop", "app, median", "app, least"]
    head = ["model", "runtime", "latency (ms)", *columns]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    print("\n".join(lines), flush=True)
    for title, (name, options) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = export_onnx(resolve(name), WorkloadOptions(**options), Path(folder) / "model.onnx").path
            for kind, make in ((OnnxRuntime, bare_onnxruntime), (OpenVino, bare_openvino)):
                engine = kind(path, threads=1)
                feeds = random_feeds(engine.inputs, WorkloadOptions(), name)
                engine.bind(feeds)
                found = ratios_of(engine, make(path, dict(feeds[0])), arguments.seconds, arguments.rounds, path)
                ratios = [cell(found[column]) for column in columns]
                row = [title, engine.name, f"{np.median(found['ms']):.3g}", *ratios]
                lines.append("| " + " | ".join(row) + " |")
                print(lines[-1], flush=True)
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
