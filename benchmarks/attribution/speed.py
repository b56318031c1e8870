"""How long an analysis of a simulated recording takes: 60 s of an eager model, about 1 M kernels.

    python benchmarks/attribution/speed.py [--seconds 60] [--blind]

Prints kernels, seconds on the clock and of the processor for the timeline, lock and fit, checks and rows, and the
most memory. One thread, as in ``analysis``; the sample rate is known to 2 Hz, or with ``--blind`` looked for from
1200 to 1260 Hz.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

from jouletrace.analysis.kernel_times import by_operator
from jouletrace.analysis.rules import doubt
from jouletrace.attribution.activity import Kind, activity_of
from jouletrace.attribution.checks import checks
from jouletrace.attribution.lock import lock
from jouletrace.sensor.kinds import HOPPER_SENSOR
from jouletrace.sensor.readout import on_grid

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from energy_tables import energy_table
from scenarios import draw


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--blind", action="store_true")
    options = parser.parse_args()
    _, recording, truth = draw(1, "eager", seconds=options.seconds)
    kinds = [Kind(*of) for of in zip(recording.names, recording.operators, recording.modules, strict=True)]
    rate = truth.sensor.rate_hz
    sensor = HOPPER_SENSOR if options.blind else replace(HOPPER_SENSOR, rates_hz=(rate - 2, rate + 2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    marks = [(time.perf_counter(), time.process_time())]

    def mark(what):
        marks.append((time.perf_counter(), time.process_time()))
        wall, used = (now - then for now, then in zip(marks[-1], marks[-2], strict=True))
        print(f"{what:16s} {wall:6.2f} s on the clock, {used:6.2f} s of processor")

    readings = on_grid(recording.rows[:, 0] * 1000, recording.rows[:, 1] / 1e3)
    activity = activity_of(recording.start_ns, recording.end_ns, recording.kind, kinds, readings.origin_ns)
    mark("timeline")
    found = lock(activity, sensor, readings)
    mark("lock and fit")
    asked = checks(found, readings)
    mark("checks")
    energy_table(found.fit, by_operator)
    mark("rows")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, used = (now - then for now, then in zip(marks[-1], marks[0], strict=True))
    print(f"{len(recording.kind)} kernels: {wall:.1f} s, {used:.1f} s of processor; {doubt(asked)}")
    print(f"most memory {most / 1e6:.2f} GB, {before / 1e6:.2f} of it by the simulation")


if __name__ == "__main__":
    main()
