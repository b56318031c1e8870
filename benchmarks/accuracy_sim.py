"""Window energies against truth on simulated GPUs: mean error, tails, coverage, width.

Each GPU is drawn at random within its preset, calibrated as a real one would be, and loaded
with windows of random length (30 ms to 10 s), power, phase and temperature. Estimation uses
the result of ``calibrate`` and the record, nothing else. Truth is the energy that the window's load caused.

    python benchmarks/accuracy_sim.py --keep DIR           # all presets, 2000 cases, three seeds
    python benchmarks/accuracy_sim.py --presets h100-80 --cases 250 --seeds 1

With ``--keep`` what has been done already is taken from the folder.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.power import energies, readings
from jouletrace.attribution.short_spans import short_span_energies
from jouletrace.devices import open_device
from jouletrace.profiler.calibrate import calibrate
from jouletrace.recording.session import Session
from jouletrace.run import ChannelInfo, Run
from jouletrace.sensor.kinds import response_of
from judging import options

GAPLESS = ("v100", "h100-80", "h200-141")
SAMPLED = ("a100-40", "a100-80")
WINDOWS_A_BOARD = 125
REPEATED_A_BOARD = 10
LONGEST_S = 10.0
LEAST_S = {"v100": 0.06, "h100-80": 0.04, "h200-141": 0.04, "a100-40": 2.0, "a100-80": 2.0}
BUCKETS = ((0.03, 0.1), (0.1, 0.2), (0.2, 1.0), (1.0, 10.0))


def outcome(seconds, truth, value, low, high, flags) -> list[float]:
    """Of a window: seconds, relative error and half-width (NaN without a figure), and 1 if covered, if flagged."""
    if value is None or not np.isfinite(value):
        return [float(seconds), np.nan, np.nan, 0.0, float("unmodelled" in flags)]
    held = low <= truth <= high
    relative = value / truth - 1, (high - low) / 2 / truth
    return [float(one) for one in (seconds, *relative, held, "unmodelled" in flags)]


def one_board(preset: str, seed: int) -> dict:
    """Calibrate one GPU and load it with windows; a GPU whose sensor samples also runs repeated blocks.

    Outcomes of both, and "off", the errors of the calibration: period (relative), window, lag and mean delay (s), and
    "stated_delay", the standard error that was stated of the last.
    """
    spec = f"sim:{preset}?seed={seed}"
    calibration = calibrate(spec, seed=seed)
    found = next(c for c in calibration.channels if c.name == "power_w")
    outcomes, off = windows(spec, preset, seed, found)
    runs = range(2, 2 + REPEATED_A_BOARD) if preset in SAMPLED else ()
    return {"windows": outcomes, "off": off, "repeated": [repeated(f"{spec}&run={n}", [seed, n], found) for n in runs]}


def windows(spec: str, preset: str, seed: int, found: ChannelInfo) -> tuple[list, dict[str, float]]:
    """Outcomes of windows of random length, power and phase; errors of the calibration."""
    device = open_device(f"{spec}&run=1")
    rng = np.random.default_rng([seed, 100])
    least_s = 0.03 if preset not in SAMPLED else 1.0
    cap = device.info.power_limit_w or 300.0

    def drawn() -> Iterator[tuple[float, float]]:
        for _ in range(WINDOWS_A_BOARD):
            seconds = float(np.exp(rng.uniform(np.log(least_s), np.log(LONGEST_S))))
            yield float(rng.uniform(0.3, 0.95)) * cap, seconds

    warm = 0.6 * cap, float(rng.uniform(0.5, 20))  # some GPUs are warm, some cold
    run, start, end, truth = loaded(device, warm, drawn(), lambda: rng.uniform(0.02, 1.0), found)
    ours = energies(run, run.devices[0].id, start, end)
    assert ours is not None
    value = [joules if reason is None else None for joules, reason in zip(ours.energy_j, ours.reason, strict=True)]
    each = zip((end - start) / 1e9, truth, value, ours.low_j, ours.high_j, ours.flags, strict=True)
    p, response = device.truth.parameters(), response_of(found)
    of_board = (1 - p.slow_share) * p.fast_s + p.slow_share * p.slow_s
    # A reading that is polled is seen half a poll late on average.
    late = 0.0025 if preset in SAMPLED else 0.0
    off = {
        "period": response.period_s / p.record_period_s - 1,
        "window": response.window_s - p.record_window_s,
        "lag": response.lag_s - p.record_lag_s - late,
        "delay": response.delay_s - p.record_lag_s - p.record_window_s / 2 - p.record_rise_s - of_board - late,
        "stated_delay": response.uncertainty["delay_s"],
    }
    device.close()
    return [outcome(*one) for one in each], off


def repeated(spec: str, seed: list[int], found: ChannelInfo) -> list[float]:
    """25 ms of load repeated under a sensor that sees a quarter of the time."""
    device = open_device(spec)
    rng = np.random.default_rng(seed)
    watts = float(rng.uniform(0.4, 0.95)) * (device.info.power_limit_w or 300.0)
    loads = int(rng.integers(10, 60)) * [(watts, 0.025)]
    run, start, end, truth = loaded(device, (watts, 3.0), loads, lambda: rng.uniform(0.02, 0.1), found)
    estimate = short_span_energies(*readings(run, run.devices[0].id), start, end, np.zeros(len(start), np.int64))[0]
    device.close()
    return outcome(0.025, np.mean(truth), estimate.value, estimate.low, estimate.high, ())


def loaded(
    device: Any,
    warm: tuple[float, float],
    loads: Iterable[tuple[float, float]],
    pause_s: Callable[[], float],
    found: ChannelInfo,
) -> tuple[Run, NDArray[np.int64], NDArray[np.int64], list[float]]:
    """Loads (W, s) after one to warm up: the Run with the response from calibration, start, end and true joules."""
    spans = []
    with Session("measure", [device]) as session:
        device.board.load(*warm)
        session.clock.sleep(1.0)
        for watts, seconds in loads:
            spans.append(device.board.load(watts, seconds))
            session.clock.sleep(float(pause_s()))
        session.clock.sleep(1.0)
        run = session.finish()
    for channel in run.channels:
        if channel.name == "power_w":
            channel.response, channel.gapless, channel.period_s = found.response, found.gapless, found.period_s
    start, end = np.array(spans).T
    return run, start, end, [device.truth.caused_energy_j(int(a), int(b)) for a, b in spans]


def rows(name: str, outcomes: list, least_s: float) -> list[str]:
    """Lines of the table, by length of windows."""
    found = np.array(outcomes)
    seconds, null = found[:, 0], np.isnan(found[:, 1])
    buckets = [b for b in BUCKETS if ((seconds >= b[0]) & (seconds < b[1])).any()]
    lines = []
    for low, high in [*buckets, (0.0, 99.0)] if len(buckets) > 1 else buckets or [(0.0, 1.0)]:
        mine = (seconds >= low) & (seconds < high)
        if not (mine & ~null).any():
            continue
        _, error, half, covered, flagged = found[mine & ~null].T
        missed, whole = flagged[covered == 0], high == 99
        cells = [
            f"{low:g}–{high:g} s" if not whole else "all",
            mine.sum(),
            f"{100 * np.mean(error):+.2f}",
            f"{100 * np.quantile(np.abs(error), 0.99):.2f}",
            f"{100 * np.mean(covered):.1f}",
            "–" if whole else f"{np.median(half) / np.sqrt(np.mean(error**2)):.2f}",
            (mine & null & (seconds >= least_s)).sum(),
            f"{100 * np.mean(flagged):.0f}",
            f"{100 * np.mean(missed):.0f}" if len(missed) else "–",
        ]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return lines


def recovery(name: str, boards: list[dict]) -> str:
    """The worst errors of calibration among several GPUs, and the delay's error over the stated one."""
    off = {key: np.array([board["off"][key] for board in boards]) for key in boards[0]["off"]}
    worst = {key: np.abs(values).max() for key, values in off.items()}
    score = (off["delay"] - off["delay"].mean()) / off["stated_delay"]
    return (
        f"| {name} | {len(boards)} | {100 * worst['period']:.3f} | {1e3 * worst['window']:.2f} "
        f"| {1e3 * worst['lag']:.2f} | {1e3 * worst['delay']:.2f} | {np.sqrt(np.mean(score**2)):.2f} |"
    )


HEAD = [
    "| GPU | window | n | mean error % | 99th percentile % | covered % | median half-width / RMSE "
    "| nulls | flagged unmodelled % | of those missed flagged % |",
    "|---|---|---|---|---|---|---|---|---|---|",
]
RECOVERY_HEAD = [
    "| GPUs | n | period, worst error % | window, ms | lag, ms | mean delay, ms | delay: rms error / stated |",
    "|---|---|---|---|---|---|---|",
]


def main() -> None:
    parser = options(__doc__, presets=[*GAPLESS, *SAMPLED], cases=2000, seeds=[1, 2, 3])
    parser.add_argument("--keep", help="keep each GPU's outcome in this folder, and resume from there")
    arguments = parser.parse_args()
    os.environ["JOULETRACE_CACHE"] = tempfile.mkdtemp()
    keep = Path(arguments.keep or tempfile.mkdtemp())
    keep.mkdir(parents=True, exist_ok=True)
    began, each = time.time(), max(arguments.cases // WINDOWS_A_BOARD, 1)
    table, calibrations = list(HEAD), list(RECOVERY_HEAD)
    for preset in arguments.presets:
        boards = []
        for number in [1000 * seed + i for seed in arguments.seeds for i in range(each)]:
            file = keep / f"{preset}-{number}.json"
            if not file.exists():
                file.write_text(json.dumps(one_board(preset, number)))
            boards.append(json.loads(file.read_text()))
        table += rows(preset, [one for board in boards for one in board["windows"]], LEAST_S[preset])
        if preset in SAMPLED:
            blocks = [one for board in boards for one in board["repeated"]]
            table += rows(f"{preset}, 25 ms repeated", blocks, 0.0)
        calibrations.append(recovery(preset, boards))
        print(f"{preset}: {time.time() - began:.0f} s", flush=True)
    print("", *table, "", *calibrations, sep="\n")


if __name__ == "__main__":
    main()
