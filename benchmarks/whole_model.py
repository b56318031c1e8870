"""Whole-model figures on a real GPU: agreement, repeatability, and what measuring itself costs.

    python benchmarks/whole_model.py agreement repeats monitoring gpm speed --device cuda:0 -o out.md

agreement   energy per iteration against an independent long loop between two steps of the GPU's
            energy counter, in the same process and on the same GPU: one sensor with itself
repeats     profiles one after the other on a warm die
monitoring  the same graph with the recorder running and held (SIGSTOP), paired and interleaved
gpm         the same with a recorder that reads GPM counters too, against one that doesn't
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
from jouletrace.devices.base import Device
from jouletrace.devices.nvml.gpu import GPM_SWITCH
from jouletrace.profiler.prepare import prepare
from jouletrace.profiler.profile import profile_workload
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.recording import Recorder, open_recorder
from jouletrace.run import Estimate, Run
from jouletrace.stats.interval import mean_estimate
from jouletrace.workloads import resolve

CASES = {
    "deit-b, batch 64, graph": {"batch": 64, "mode": "graph"},
    "deit-b, batch 1, graph": {"batch": 1, "mode": "graph"},
    "deit-b, batch 1, eager": {"batch": 1, "mode": "eager"},
}
WORKLOAD = "deit-b"
LOOP_S = 12.0
MONITORED = "deit-b, batch 1, graph"
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
        runs = []
        for _ in range(n):
            runs.append(profiled(case, device).result("energy_total_j"))
            print(f"{case}: {runs[-1].value * 1e3:.2f} ± {runs[-1].half_width * 1e3:.2f} mJ", flush=True)
        values = np.array([run.value for run in runs])
        half = np.median([run.half_width / run.value for run in runs])
        sd, span = values.std(ddof=1) / values.mean(), np.ptp(values) / values.mean()
        lines.append(
            f"| {case} | {' '.join(f'{v * 1e3:.2f}' for v in values)} "
            f"| {100 * sd:.2f} % | {100 * span:.2f} % | {100 * half:.2f} % |"
        )
    return lines


def monitoring(spec: str) -> list[str]:
    """Slow-down of the graph by the recorder."""
    device = open_device(spec)
    recorder = started(device)
    found = slow_down(device, spec, recorder)
    cost = recorder.stop()
    device.close()
    return [
        f"{said(found)}; the recorder took {100 * cost.cpu_s / cost.wall_s:.2f} % of one core over {cost.wall_s:.0f} s."
    ]


def gpm(spec: str) -> list[str]:
    """Slow-down of the graph by reading GPM counters: a recorder with them against one without, each held in turn.

    Effects of the counters on the GPU between readings, once they were requested, are in both.
    """
    device = open_device(spec)
    counting = started(device)
    os.environ[GPM_SWITCH] = "0"
    plain = started(device)
    del os.environ[GPM_SWITCH]
    names = [channel.name for channel in counting.channels if channel.source == "nvmlGpmMetricsGet"]
    found = slow_down(device, spec, counting, plain) if names else None
    costs = [recorder.stop() for recorder in (plain, counting)]
    device.close()
    if found is None:
        return ["This GPU has no GPM counters."]
    without, with_them = (f"{100 * cost.cpu_s / cost.wall_s:.2f} %" for cost in costs)
    return [
        f"{said(found)}; the recorders took {with_them} of one core with GPM, {without} without ({', '.join(names)})."
    ]


def started(device: Device) -> Recorder:
    recorder = open_recorder([device], Path(tempfile.mkdtemp()))
    recorder.start()
    return recorder


def slow_down(device: Device, spec: str, recorder: Recorder, other: Recorder | None = None) -> Estimate:
    """Per cent that the graph takes longer while a recorder runs and another one, if any, is held, over the reverse.

    Pairs of segments in direct succession, in alternating order.
    """
    step = prepare(resolve(WORKLOAD), device, settings_of(MONITORED, spec)).step
    iteration_s = step.replay(200).seconds / 200
    step.replay(round(3 / iteration_s))
    n = round(PAIR_S / iteration_s)
    slower = []
    for pair in range(PAIRS):
        times = {}
        for running in (False, True) if pair % 2 else (True, False):
            hold(recorder, not running)
            if other is not None:
                hold(other, running)
            time.sleep(0.01)
            times[running] = step.replay(n).seconds
        slower.append(100 * (times[True] / times[False] - 1))
    for one in (recorder, other):
        if one is not None:
            hold(one, False)
    step.close()
    return mean_estimate(slower)


def hold(recorder: Recorder, held: bool) -> None:
    os.kill(recorder.pid, signal.SIGSTOP if held else signal.SIGCONT)


def said(found: Estimate) -> str:
    return f"{MONITORED}: {found.value:+.3f} % ({found.low:+.3f} to {found.high:+.3f} %, {PAIRS} pairs of {PAIR_S} s)"


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


PARTS = {"agreement": agreement, "repeats": None, "monitoring": monitoring, "gpm": gpm, "speed": speed}


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
