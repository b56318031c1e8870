"""Attribution to kernels with sensors that average, on simulated recordings whose powers and sensors are hidden.

    python benchmarks/attribution/averaging.py [--seconds 30] [--seeds 5] [--programs short_excited large_fixed]

Prints a row of a table for each sensor and program: recordings with rows (others failed a check and have no figures),
operators in rows of their own of all that ran, rows of the table that have figures, the share of these whose
interval holds the energy that was drawn, and the median half-width.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from jouletrace.analysis.kernel_times import by_operator
from jouletrace.analysis.rules import doubt
from jouletrace.attribution.activity import Kind, activity_of
from jouletrace.attribution.checks import checks
from jouletrace.attribution.lock import lock
from jouletrace.sensor.models import Means
from jouletrace.sensor.readout import on_grid

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from coverage import drawn_by

from energy_tables import energy_table
from scenarios import draw, simulate
from simulated_power import Board
from simulated_programs import lay_out, repeated_in_place, transformer_graph_like
from simulated_sensors import WindowSensor

HELD_STEPS = {"repeats held 0.4 s": 300, "repeats held 2 s": 1500}
"""Steps of about 1.3 ms for which a draw of the repeated operator holds; separate programs."""

SENSORS = {
    "25 of 100 ms": (WindowSensor.part_time, Means(25e-3), 0.1),
    "20 of 20 ms": (WindowSensor.boxcar, Means(20e-3), 0.02),
    "1 s each 100 ms": (WindowSensor.average, Means(1.0), 0.1),
}


def record(name, program, seed, seconds):
    """Readings, activity, and what was drawn."""
    make, sensor, period_s = SENSORS[name]
    rng = np.random.default_rng([seed, 99])
    if program in HELD_STEPS:
        plan = repeated_in_place(rng, transformer_graph_like(rng, seconds), hold=HELD_STEPS[program])
        scene = lay_out(plan, seconds)
        board = Board.draw(rng, len(scene.kinds), seconds)
        _, recording, truth = simulate(rng, scene, board, make(rng))
    else:
        _, recording, truth = draw(seed, program, seconds=seconds, sensor=make(rng))
    readings = on_grid(recording.rows[:, 0] * 1000, recording.rows[:, 1] / 1e3, period_s)
    kinds = [Kind(*of) for of in zip(recording.names, recording.operators, recording.modules, strict=True)]
    activity = activity_of(recording.start_ns, recording.end_ns, recording.kind, kinds, readings.origin_ns)
    return sensor, readings, activity, recording, truth


def one(name, program, seed, seconds):
    """Whether it is believed, why, (names, true, value, low, high) of rows with figures, and how many things ran."""
    sensor, readings, activity, recording, truth = record(name, program, seed, seconds)
    found = lock(activity, sensor, readings)
    asked = checks(found, readings)
    made = [
        (row.names, drawn_by(truth, recording, row.names), row.energy.value, row.energy.low, row.energy.high)
        for row in energy_table(found.fit, by_operator)
        if row.energy.value is not None
    ]
    things = len({operator for operator, second in zip(recording.operators, truth.kind_s, strict=True) if second}) + 1
    return all(check.passed for check in asked), doubt(asked), made, things, found


def survey(name, program, seeds, seconds, verbose):
    """A row of the table."""
    believed, alone, things, table = 0, 0, 0, []
    for seed in seeds:
        passed, says, made, count, found = one(name, program, seed, seconds)
        believed, things = believed + passed, things + count
        if passed:
            alone += sum(len(names) == 1 for names, *_ in made)
            table += made
        if verbose:
            place = found.fit.observer.delay_s, found.fit.observer.stretch
            print(f"   {seed}: {says}; {place}, left {found.fit.residual_rms_w:.2f} W")
            for names, true, value, low, _ in made:
                off = (value - true) / (value - low)
                print(f"      {value:9.2f} ± {value - low:7.2f} J of {true:9.2f} {off:+.2f} {names}")
    if not table:
        print(f"| {name} | {program} | {seconds:.0f} | {believed} of {len(seeds)} | – | – | – | – |", flush=True)
        return
    true, value, low, high = (np.array([row[i] for row in table]) for i in range(1, 5))
    holds = np.mean((low <= true) & (true <= high))
    width = 100 * np.median((value - low) / np.abs(value))
    print(
        f"| {name} | {program} | {seconds:.0f} | {believed} of {len(seeds)} | {alone} of {things} | {len(table)} "
        f"| {holds:.3f} | {width:.1f} % |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--programs", nargs="*", default=["short_fixed", "long_varied", "short_excited", *HELD_STEPS])
    parser.add_argument("--sensors", nargs="*", default=list(SENSORS))
    parser.add_argument("-v", action="store_true")
    options = parser.parse_args()
    print("| sensor | program | s | believed | alone | rows | hold | half-width |\n|---|---|---|---|---|---|---|---|")
    for name in options.sensors:
        for program in options.programs:
            survey(name, program, range(options.first, options.first + options.seeds), options.seconds, options.v)


if __name__ == "__main__":
    main()
