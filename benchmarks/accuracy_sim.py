"""Window energies against truth on simulated boards: mean error, tails, coverage, width.

Each board is drawn at random within its preset, calibrated as a real one would be, and loaded
with windows of random length (30 ms to 10 s), power, phase and temperature. Estimation sees what
``calibrate`` found and the record, nothing else. Truth is the energy that the window's load caused.

    python benchmarks/accuracy_sim.py                      # all presets, 2000 cases, three seeds
    python benchmarks/accuracy_sim.py --presets h100-80 --cases 400 --seeds 1
"""

import argparse
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jouletrace.analysis.power import power_record, response_of
from jouletrace.devices import open_device
from jouletrace.energy.repeated import repeated_energy
from jouletrace.energy.windows import window_energy
from jouletrace.profiler.calibrate import calibrate
from jouletrace.profiler.session import Session

GAPLESS = ("v100", "h100-80", "h200-141")
SAMPLED = ("a100-40", "a100-80")
UNMODELLED = ("exponential", "drifting", "dropping")
WINDOWS_A_BOARD = 100
LEAST_S = {"v100": 0.06, "h100-80": 0.04, "h200-141": 0.04, "a100-40": 2.0, "a100-80": 2.0}
BUCKETS = ((0.03, 0.2), (0.2, 1.0), (1.0, 10.0))


@dataclass
class Cases:
    """Outcomes of windows: durations, relative errors, half-widths, coverage, flags."""

    seconds: list[float] = field(default_factory=list)
    error: list[float] = field(default_factory=list)
    half: list[float] = field(default_factory=list)
    covered: list[bool] = field(default_factory=list)
    flagged: list[bool] = field(default_factory=list)
    null: list[bool] = field(default_factory=list)

    def add(self, seconds, truth, value, low, high, flags) -> None:
        null = value is None or not np.isfinite(value)
        self.seconds.append(seconds)
        self.null.append(null)
        self.error.append(np.nan if null else value / truth - 1)
        self.half.append(np.nan if null else (high - low) / 2 / truth)
        self.covered.append(not null and low <= truth <= high)
        self.flagged.append("unmodelled" in flags)


def one_board(preset: str, seed: int, n: int, longest_s: float, options: str, cases: Cases) -> None:
    """Calibrate one board and load it with ``n`` windows."""
    spec = f"sim:{preset}?seed={seed}{options}"
    calibration = calibrate(spec, seed=seed)
    device = open_device(f"{spec}&run=1")
    rng = np.random.default_rng([seed, n])
    least_s = 0.03 if preset not in SAMPLED else 1.0
    cap = device.info.power_limit_w or 300.0
    session = Session("measure", [device])
    spans = []
    with session:
        device.board.load(0.6 * cap, float(rng.uniform(0.5, 20)))  # some boards are warm, some cold
        session.clock.sleep(1.0)
        for _ in range(n):
            seconds = float(np.exp(rng.uniform(np.log(least_s), np.log(longest_s))))
            spans.append(device.board.load(float(rng.uniform(0.3, 0.95)) * cap, seconds))
            session.clock.sleep(float(rng.uniform(0.02, 1.0)))
        session.clock.sleep(1.0)
        run = session.finish()
    found = next(c for c in calibration.channels if c.name == "power_w")
    for channel in run.channels:
        if channel.name == "power_w":
            channel.response, channel.gapless, channel.period_s = found.response, found.gapless, found.period_s
    record, response = power_record(run, device.info.id)
    start, end = np.array(spans).T
    ours = window_energy(record, response, start, end)
    for i, (a, b) in enumerate(spans):
        truth = device.truth.caused_energy_j(int(a), int(b))
        value = ours.energy_j[i] if ours.reason[i] is None else None
        cases.add((b - a) / 1e9, truth, value, ours.low_j[i], ours.high_j[i], ours.flags[i])
    device.close()


def one_repeated(preset: str, seed: int, cases: Cases) -> None:
    """25 ms of load repeated under a sensor that sees a quarter of the time."""
    spec = f"sim:{preset}?seed={seed}"
    calibration = calibrate(spec, seed=seed)
    channel = next(c for c in calibration.channels if c.name == "power_w")
    device = open_device(f"{spec}&run=2")
    rng = np.random.default_rng(seed)
    session = Session("measure", [device])
    spans = []
    watts = float(rng.uniform(0.4, 0.95)) * (device.info.power_limit_w or 300.0)
    with session:
        device.board.load(watts, 3.0)
        session.clock.sleep(1.0)
        for _ in range(int(rng.integers(10, 60))):
            spans.append(device.board.load(watts, 0.025))
            session.clock.sleep(float(rng.uniform(0.02, 0.1)))
        session.clock.sleep(1.0)
        run = session.finish()
    for c in run.channels:
        if c.name == "power_w":
            c.response, c.gapless, c.period_s = channel.response, channel.gapless, channel.period_s
    record, _ = power_record(run, device.info.id)
    start, end = np.array(spans).T
    estimate = repeated_energy(record, response_of(channel), start, end)[0]
    truth = np.mean([device.truth.caused_energy_j(int(a), int(b)) for a, b in spans])
    cases.add(0.025, truth, estimate.value, estimate.low, estimate.high, ())
    device.close()


def rows(name: str, cases: Cases, least_s: float) -> list[str]:
    seconds, error, half = (np.array(x) for x in (cases.seconds, cases.error, cases.half))
    covered, flagged, null = (np.array(x, bool) for x in (cases.covered, cases.flagged, cases.null))
    lines = []
    buckets = [b for b in BUCKETS if ((seconds >= b[0]) & (seconds < b[1])).any()] or [(0.0, 1.0)]
    for low, high in [*buckets, (0.0, 99.0)] if len(buckets) > 1 else buckets:
        mine = (seconds >= low) & (seconds < high)
        good = mine & ~null
        if not good.any():
            continue
        label = f"{low:g}–{high:g} s" if high < 99 else "all"
        rmse = np.sqrt(np.mean(error[good] ** 2))
        missed = good & ~covered
        lines.append(
            f"| {name} | {label} | {mine.sum()} | {100 * np.mean(error[good]):+.2f} "
            f"| {100 * np.quantile(np.abs(error[good]), 0.99):.2f} | {100 * np.mean(covered[good]):.1f} "
            f"| {np.median(half[good]) / rmse:.2f} | {(mine & null & (seconds >= least_s)).sum()} "
            f"| {100 * np.mean(flagged[good]):.0f} | "
            + (f"{100 * np.mean(flagged[missed]):.0f}" if missed.any() else "–")
            + " |"
        )
    return lines


HEAD = [
    "| board | window | n | mean error % | 99th percentile % | covered % | median half-width / RMSE "
    "| nulls | flagged unmodelled % | of those missed flagged % |",
    "|---|---|---|---|---|---|---|---|---|---|",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="*", default=[*GAPLESS, *SAMPLED])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--unmodelled", type=int, default=400, help="cases for each sensor that fits no model")
    parser.add_argument("-o", "--output")
    arguments = parser.parse_args()
    os.environ["JOULETRACE_CACHE"] = tempfile.mkdtemp()
    text = list(HEAD)
    print("\n".join(text), flush=True)
    began = time.time()

    def put(lines: list[str]) -> None:
        text.extend(lines)
        print("\n".join(lines), flush=True)

    for seed in arguments.seeds:
        for preset in arguments.presets:
            cases = Cases()
            for board in range(arguments.cases // WINDOWS_A_BOARD):
                one_board(preset, 1000 * seed + board, WINDOWS_A_BOARD, 10.0, "", cases)
            put(rows(f"{preset}, seed {seed}", cases, LEAST_S[preset]))
            if preset in SAMPLED:
                repeated = Cases()
                for board in range(arguments.cases // WINDOWS_A_BOARD * 5):
                    one_repeated(preset, 1000 * seed + board, repeated)
                put(rows(f"{preset}, 25 ms repeated, seed {seed}", repeated, 0.0))
        for sensor in UNMODELLED:
            cases = Cases()
            for board in range(arguments.unmodelled // WINDOWS_A_BOARD):
                one_board("h100-80", 1000 * seed + board, WINDOWS_A_BOARD, 3.0, f"&sensor={sensor}", cases)
            put(rows(f"h100-80, {sensor} sensor, seed {seed}", cases, 0.04))
    print(f"({time.time() - began:.0f} s)")
    if arguments.output:
        Path(arguments.output).write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
