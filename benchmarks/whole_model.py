"""Whole-model figures on a real GPU: agreement, repeatability, and what measuring itself costs.

    python benchmarks/whole_model.py agreement repeats monitoring speed --device cuda:0 -o out.md

agreement   energy per iteration against an independent long loop between two steps of the board's
            energy counter, in the same process and on the same board: one sensor with itself
repeats     profiles one after the other on a warm die
monitoring  the same graph with the recorder running and held (SIGSTOP), paired and interleaved
speed       seconds of a whole profile by phase, and of ``jouletrace --help``
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from counter import PolledCounter, inner_bracket
from jouletrace.devices import open_device
from jouletrace.energy.interval import mean_estimate
from jouletrace.profiler.prepare import prepare, resolve
from jouletrace.profiler.profile import profile_workload
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.run import Run
from jouletrace.sampling import open_recorder

CASES = {
    "deit-b, batch 64, graph": {"batch": 64, "mode": "graph"},
    "deit-b, batch 1, graph": {"batch": 1, "mode": "graph"},
    "deit-b, batch 1, eager": {"batch": 1, "mode": "eager"},
}
WORKLOAD = "deit-b"
LOOP_S = 12.0
PAIRS = 40
PAIR_S = 0.4


def settings_of(case: str, device: str) -> ProfileSettings:
    return ProfileSettings(device=device, dtype="fp16", **CASES[case])


def profiled(case: str, device: str) -> Run:
    return profile_workload(WORKLOAD, settings_of(case, device))


def loop_by_counter(case: str, spec: str) -> float:
    """Joules per iteration of a long loop, by the counter alone: mean power times the loop's pace."""
    device = open_device(spec)
    prepared = prepare(resolve(WORKLOAD), device, settings_of(case, spec))
    step = prepared.step
    iteration_s = step.replay(50).seconds / 50
    step.replay(round(4 / iteration_s))
    n = round(LOOP_S / iteration_s)
    with PolledCounter(device.info.id, Path(tempfile.mkdtemp()) / "counter.npy") as counter:
        loop = step.replay(n)
    found = inner_bracket(counter.steps(), loop.start_ns + 500_000_000, loop.end_ns)
    assert found is not None, "the counter did not step"
    step.close()
    device.close()
    return found.energy_j / ((found.end_ns - found.start_ns) / 1e9) * loop.seconds / n


def agreement(device: str) -> list[str]:
    lines = ["| case | profile | loop by the counter | profile / loop |", "|---|---|---|---|"]
    for case in list(CASES)[:2]:
        before = loop_by_counter(case, device)
        ours = profiled(case, device).result("energy_total_j")
        after = loop_by_counter(case, device)
        loop = (before + after) / 2
        lines.append(
            f"| {case} | {ours.value * 1e3:.2f} ± {ours.half_width * 1e3:.2f} mJ "
            f"| {before * 1e3:.2f} and {after * 1e3:.2f} mJ (before, after) | {ours.value / loop:.4f} |"
        )
    return lines


def repeats(device: str, cases: list[str], n: int) -> list[str]:
    lines = ["| case | energies (mJ) | sd | range | interval's half-width, median |", "|---|---|---|---|---|"]
    for case in cases:
        profiled(case, device)  # warms the die
        runs = [profiled(case, device).result("energy_total_j") for _ in range(n)]
        values = np.array([run.value for run in runs])
        half = np.median([run.half_width / run.value for run in runs])
        sd, span = values.std(ddof=1) / values.mean(), np.ptp(values) / values.mean()
        lines.append(
            f"| {case} | {' '.join(f'{v * 1e3:.2f}' for v in values)} "
            f"| {100 * sd:.2f} % | {100 * span:.2f} % | {100 * half:.2f} % |"
        )
    return lines


def monitoring(spec: str) -> list[str]:
    """Slow-down of the graph by the recorder: pairs of stretches with it running and held."""
    case = "deit-b, batch 1, graph"
    device = open_device(spec)
    recorder = open_recorder([device], Path(tempfile.mkdtemp()))
    recorder.start()
    step = prepare(resolve(WORKLOAD), device, settings_of(case, spec)).step
    iteration_s = step.replay(200).seconds / 200
    step.replay(round(3 / iteration_s))
    n = round(PAIR_S / iteration_s)
    slower = []
    for pair in range(PAIRS):
        times = {}
        for held in (True, False) if pair % 2 else (False, True):
            os.kill(recorder.pid, signal.SIGSTOP if held else signal.SIGCONT)
            time.sleep(0.01)
            times[held] = step.replay(n).seconds
        slower.append(100 * (times[False] / times[True] - 1))
    os.kill(recorder.pid, signal.SIGCONT)
    cost = recorder.stop()
    found = mean_estimate(slower)
    device.close()
    return [
        f"{case}: {found.value:+.3f} % ({found.low:+.3f} to {found.high:+.3f} %, {PAIRS} pairs of {PAIR_S} s); "
        f"the recorder took {100 * cost.cpu_s / cost.wall_s:.2f} % of one core over {cost.wall_s:.0f} s."
    ]


def speed(device: str) -> list[str]:
    lines = []
    for case in CASES:
        start = time.perf_counter()
        run = profiled(case, device)
        took = time.perf_counter() - start
        spans = run.spans.to_pandas().query("kind == 'phase'")
        phases = ", ".join(
            f"{r.name_} {(r.end_ns - r.start_ns) / 1e9:.1f}"
            for r in spans.rename(columns={"name": "name_"}).itertuples()
        )
        measuring = (spans["end_ns"] - spans["start_ns"]).sum() / 1e9
        lines.append(f"- {case}: {measuring:.1f} s of measuring ({phases}); {took:.1f} s in all")
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "jouletrace", "--help"], check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    lines.append(f"- `jouletrace --help`: median {np.median(seconds):.2f} s, worst {max(seconds):.2f} s of 10")
    return lines


PARTS = {"agreement": agreement, "repeats": None, "monitoring": monitoring, "speed": speed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--cases", default="", help="repeats: only cases whose name holds this")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("-o", "--output")
    arguments = parser.parse_args()
    device = open_device(arguments.device)
    text = [f"Board: {device.info.name}, driver {device.info.driver}."]
    device.close()
    for part in arguments.parts:
        cases = [case for case in CASES if arguments.cases in case]
        found = PARTS[part](arguments.device) if PARTS[part] else repeats(arguments.device, cases, arguments.repeats)
        text += ["", f"## {part}", "", *found]
        print("\n".join(text[-12:]), flush=True)
    if arguments.output:
        Path(arguments.output).write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
