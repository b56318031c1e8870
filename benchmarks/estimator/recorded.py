"""Bursts of real recordings that have a truth by the energy counter: the present code and the new estimator.

    python benchmarks/estimator/recorded.py -o FILE.json

Truth as in ``benchmarks/bursts.py``: the counter from one of its own steps to another around the burst, less idle
power, by the counter too, for the rest. ``runs/bursts-h200.zip`` has 88 bursts of an encoder at the power limit;
``tests/data/h100_copies.npz`` has pulses of copies, of which those with pauses long enough for that are taken.
"""

import argparse
import json
import sys
from pathlib import Path

import library
import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "support"))
from bursts import true_energies
from counter import steps_of
from energy_tables import Rows
from gpu_recordings import load as recording
from jouletrace.analysis.power import power_record
from jouletrace.attribution.attempts import attempts
from jouletrace.attribution.program import attribute_program
from jouletrace.run import load
from jouletrace.run.readings import Readings
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.counter import find_steps
from jouletrace.sensor.kinds import HOPPER_SENSOR, KINDS
from jouletrace.sensor.power_record import clean
from jouletrace.sensor.shares import Response as Shown
from jouletrace.sensor.stamps import find_grid
from jouletrace.sensor.windows.energy import window_energy

ROOT = Path(__file__).resolve().parents[2]
RISE_S = -1 / (1222.5 * np.log(15 / 16))
"""Of a GPU whose sample rate isn't known; the estimator takes it to be known to 2 %."""

CHAIN = "chain-shuffled-h100"
"""Eight large operators in random order: two seconds and more of a record with its timeline, in ``tests/data``."""

ALONE_W = {"sgemm": 680, "cumsum": 555, "norm": 535, "mul": 505, "softmax": 690, "gelu": 720, "conv": 712}
"""Power of each looped alone on that GPU, by the counter, without pauses; the fp16 product would be capped."""

OPERATORS = {
    "f32f32_f32f32": "sgemm",
    "nvjet": "hgemm",
    "fprop": "conv",
    "Nhwc": "conv",
    "Nchw": "conv",
    "SoftMax": "softmax",
    "layer_norm": "norm",
    "scan_inner": "cumsum",
    "AUnary": "mul",
    "Gelu": "gelu",
}


def operator_of(name: str) -> str:
    """The operator whose kernel has this name."""
    return next((operator for part, operator in OPERATORS.items() if part in name), "others")


def operators() -> list[dict]:
    """Power of each operator by the kernel timeline: the present regression, the new estimator, and alone."""
    found = recording(CHAIN)
    names = [operator_of(kind.name) for kind in found.kinds]
    used, activity = sorted(set(names)), found.activity
    groups = np.array([[name == one for name in names] for one in used], float)
    fit = next(iter(attempts(activity, HOPPER_SENSOR, found.readings))).fit
    observer = fit.observer
    response = Shown.sampled(observer.sensor, 0.02, observer.track.rate_hz)
    moment_s = found.readings.time_s - response.delay_s
    ran = (moment_s > activity.begin_s) & (moment_s < activity.finish_s)
    new = {}
    for name, sampled in (("library", None), ("samples known", observer)):
        program = attribute_program(
            found.readings.time_s[ran], found.readings.value[ran], [], activity, response=response, sampled=sampled
        )
        ends = program.energies.interval(program.together(groups))
        new[name] = [one / (groups @ program.seconds) for one in ends]
    rows = Rows(fit, lambda one: operator_of(one.name))
    table = []
    for i, name in enumerate(used):
        old = rows.row([name]).power
        row = {"operator": name, "alone_w": ALONE_W.get(name), "today": {"watts": old.value, "half_w": old.half_width}}
        for way, (mean, low, high) in new.items():
            row[way] = {"watts": mean[i], "half_w": (high[i] - low[i]) / 2}
        table.append(row)
    return table


def encoder() -> tuple:
    """Record, response, bursts, truth and its standard deviation: DeiT-B on an H200."""
    place = ROOT / "docs" / "results" / "runs" / "bursts-h200.zip"
    run = load(place)
    found = power_record(run, run.devices[0].id)
    assert found is not None
    rows = run.spans.to_pandas().query("lane == 'burst'").sort_values("start_ns")
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    steps = steps_of(place.with_name("bursts-h200-counter.npz"))
    return *found, start, end, *true_energies(steps, start, end)


def copies() -> tuple:
    """The same of pulses of copies on an H100."""
    with np.load(ROOT / "tests" / "data" / "h100_copies.npz") as data:
        record = clean(data["stamp_us"] * 1000, data["milliwatt"] / 1e3, 0.02)
        edges = data["edge_ns"]
        steps = find_steps(data["energy_counter_j_ns"], data["energy_counter_j"])
    start, end = edges[::2], edges[1::2]
    start = start[: len(end)]
    return record, KINDS["hopper"].response, start, end, *true_energies(steps, start, end)


def judged(record: Readings, response: StepResponse, start: np.ndarray, end: np.ndarray) -> dict:
    """Means, low and high ends of the bursts, by the present code and the new, shape (3, bursts) each."""
    old = window_energy(record, response, start, end)
    grid = find_grid(record.time_ns, 0.02)
    times = record.seconds(record.time_ns[0]) + np.maximum.accumulate(grid.taken(2))
    known = {"rise_s": RISE_S, "delay_s": 0.0034}
    spans = np.stack([record.seconds(start), record.seconds(end)], axis=1)
    new = []
    for a, b in spans:
        near = (times > a - 1.0) & (times < b + 0.4)
        found = library.estimate(times[near], record.value[near], [(a, b)], times_sd_s=grid.unsure_s[near], **known)
        new.append([one[0] for one in found[:3]])
    near = (times > spans.min() - 1.0) & (times < spans.max() + 0.4)
    together = library.estimate(times[near], record.value[near], spans, times_sd_s=grid.unsure_s[near], **known)
    return {
        "today": np.array([old.energy_j, old.low_j, old.high_j]),
        "library": np.array(new).T,
        "library, all in one solve": np.array(together[:3]),
    }


def table(name: str, recording: tuple) -> list[dict]:
    """Rows by the bursts' length."""
    record, response, start, end, truth, sd = recording
    found = judged(record, response, start, end)
    seconds, rows = (end - start) / 1e9, []
    for low, high in ((0.0, 0.04), (0.04, 0.1), (0.1, 0.3), (0.3, 0.7), (0.7, 1.5), (1.5, 5.0)):
        mine = (seconds >= low) & (seconds < high) & np.isfinite(truth)
        if not mine.any():
            continue
        row = {"recording": name, "seconds": float(np.median(seconds[mine])), "n": int(mine.sum())}
        row["truth_pct"] = float(100 * np.median(1.96 * sd[mine] / truth[mine]))
        for method, (mean, least, most) in found.items():
            given = mine & np.isfinite(mean)
            error = 100 * (mean / truth - 1)[given]
            # An interval may miss the truth by as much as that itself isn't known.
            half = (most - least)[given] / 2
            wide = np.hypot(half, 1.96 * sd[given])
            row[method] = {
                "n": int(given.sum()),
                "hold": int(((least <= truth) & (truth <= most))[given].sum()),
                "hold_with_truth": int((np.abs((most + least)[given] / 2 - truth[given]) <= wide).sum()),
                "half_pct": float(100 * np.median(half / truth[given])),
                "bias_pct": float(error.mean()),
                "rms_pct": float(np.sqrt((error**2).mean())),
            }
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", help="write the rows here, as JSON")
    arguments = parser.parse_args()
    rows = [*table("encoder, H200", encoder()), *table("copies, H100", copies())]
    rows += operators()
    for row in rows:
        print(json.dumps(row))
    if arguments.output:
        Path(arguments.output).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
