"""How often intervals hold, on simulated recordings whose powers and sensors are hidden from the estimator.

    python benchmarks/attribution/coverage.py [--seconds 15] [--seeds 10] [--groups long_varied short_excited ...]

Prints, for each group: recordings, locks that are false (the rate is off by more than 0.5 Hz, or the phase by more
than a tenth of a period, and the checks don't say so), rows of operators, the share of them whose interval holds the
energy that was drawn, the median half-width and the median error.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time

import numpy as np

from jouletrace.attribution.activity import Kind, activity_of
from jouletrace.attribution.checks import checks, verdict
from jouletrace.attribution.lock import lock
from jouletrace.attribution.rows import IDLE, by_operator, rows
from jouletrace.errors import JouletraceError
from jouletrace.sensor.kinds.hopper import HOPPER_SENSOR
from jouletrace.sensor.readout import on_grid

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from scenarios import GROUPS, draw


def drawn_by(truth, recording, names):
    """Energy of the operators or kernels that a row is of, J."""
    if names == (IDLE,):
        begin, finish = int(recording.start_ns[0]), int(recording.end_ns.max())
        span = truth.power.energy_j(np.array([begin, finish], float) - truth.clock_offset_ns - truth.power.begin_ns)
        return float(span[1] - span[0] - np.sum(truth.kind_j))
    labels = [operator or name for operator, name in zip(recording.operators, recording.names, strict=True)]
    return float(sum(truth.kind_j[k] for k, label in enumerate(labels) if label in names))


def one(group, seed, seconds):
    """Rows (truth, value, low, high, relative half-width, bound), whether it passed, and whether its lock is true."""
    _, recording, truth = draw(seed, group, seconds=seconds)
    readings = on_grid(recording.rows[:, 0] * 1000, recording.rows[:, 1] / 1e3)
    kinds = [Kind(*of) for of in zip(recording.names, recording.operators, recording.modules, strict=True)]
    activity = activity_of(recording.start_ns, recording.end_ns, recording.kind, kinds, readings.origin_ns)
    begun = time.process_time()
    found = lock(activity, HOPPER_SENSOR, readings)
    asked = checks(found, readings)
    seconds_used = time.process_time() - begun
    made = []
    for row in rows(found.fit, by_operator):
        if row.energy.value is not None:
            made.append(
                (
                    drawn_by(truth, recording, row.names),
                    row.energy.value,
                    row.energy.low,
                    row.energy.high,
                    row.relative,
                    row.bound / abs(row.energy.value),
                    row.names,
                )
            )
    true_rate = truth.sensor.rate_hz if hasattr(truth.sensor, "rate_hz") else float("nan")
    return made, all(check.passed for check in asked), found, true_rate, seconds_used, verdict(asked)


def survey(group, seeds, seconds, verbose):
    """One group: a line of figures, and with ``verbose`` each recording and each row that is missed."""
    table, passed, false, unflagged, used = [], 0, 0, 0, []
    for seed in seeds:
        try:
            made, trusted, found, rate, cpu, says = one(group, seed, seconds)
        except JouletraceError as error:
            print(f"   {group} {seed}: {error}")
            continue
        used.append(cpu)
        wrong = abs(found.search.rate_hz - rate) > 0.6
        false, unflagged, passed = false + wrong, unflagged + (wrong and trusted), passed + trusted
        table += made if trusted else []
        if verbose:
            describe(f"{group} {seed}", made, found, rate, cpu, says)
    if not table:
        print(f"{group:18s} passed {passed} of {len(seeds)}; no rows", flush=True)
        return
    true, value, low, high, relative, bound = (np.array([row[i] for row in table], float) for i in range(6))
    z = (value - true) / ((high - low) / 3.92)
    print(
        f"{group:18s} passed {passed} of {len(seeds)}, false {false}, unflagged {unflagged}; {len(true)} rows, "
        f"hold {np.mean((low <= true) & (true <= high)):.3f}, z sd {np.std(z):.2f} mean {np.mean(z):+.2f}, "
        f"half-width {100 * np.median(relative):.1f} % ({np.median(relative / bound):.2f} of the bound), "
        f"error {100 * np.median(np.abs(value / true - 1)):.1f} %, {np.median(used):.1f} s",
        flush=True,
    )


def describe(what, made, found, rate, cpu, says):
    """One recording, and each of its rows whose interval misses."""
    held = np.mean([low <= true <= high for true, _, low, high, *_ in made]) if made else np.nan
    print(
        f"   {what}: rate {found.search.rate_hz:.2f} of {rate:.2f} Hz, evidence {found.search.evidence:.0f}, "
        f"left {found.fit.residual_rms_w:.1f} W, rows {len(made)} hold {held:.2f}, {cpu:.1f} s; {says}",
        flush=True,
    )
    for true, value, low, high, relative, _, names in made:
        if not low <= true <= high:
            z = 1.96 * (value - true) / (value - low)
            print(f"      {value:9.2f} J ± {100 * relative:.1f} % of {true:9.2f}: z {z:+.1f} {names[0][:40]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--groups", nargs="*", default=list(GROUPS))
    parser.add_argument("-v", action="store_true")
    options = parser.parse_args()
    for group in options.groups:
        survey(group, range(options.first, options.first + options.seeds), options.seconds, options.v)


if __name__ == "__main__":
    main()
