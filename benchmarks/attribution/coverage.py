"""How often intervals hold, on simulated recordings whose powers and sensors are hidden from the estimator.

    python benchmarks/attribution/coverage.py record OUT.jsonl [--groups eager short_fixed=80 ...] [--seeds 20]
        [--first 100] [--seconds 10] [--jobs 12] [--minutes 9]
    python benchmarks/attribution/coverage.py table OUT.jsonl ... [-v]

``record`` simulates and analyses recordings, each in a process of one thread, and appends one line of JSON for each.
Recordings that the file contains already are not repeated, so a run that was stopped can be continued. ``table`` prints
one row per group from such files. A lock is false if the rate is off by more than 0.6 Hz, or the samples by more than
a tenth of a period, although its evidence suffices; it is unflagged if no other check refuses the recording.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import json
import multiprocessing
import resource
import signal
import time
from collections import Counter
from dataclasses import replace

import numpy as np

from jouletrace.analysis.kernel_times import by_operator
from jouletrace.analysis.rules import doubt
from jouletrace.attribution.activity import Kind, activity_of
from jouletrace.attribution.attempts import trusted
from jouletrace.errors import JouletraceError
from jouletrace.sensor.kinds import HOPPER_SENSOR
from jouletrace.sensor.readout import on_grid
from jouletrace.simulator.sensors import SamplingSensor

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from energy_tables import IDLE, energy_table
from scenarios import GROUPS, draw, simulate
from simulated_power import Board
from simulated_programs import draw_kinds, eager_vit_like, fixed_order, lay_out

OFF_HZ, OFF_PERIODS = 0.6, 0.1
"""Errors of rate and samples beyond which a lock is false."""

FAR_HZ = ((1155.0, 1195.0), (1265.0, 1305.0))
"""Rates of the group ``far_rate``: outside of the usual range, within the wider one."""


def near_locked(seed, seconds):
    """Steps that slip past the samples by 0.3 to 4 samples in the recording, besides the drift of the sample clock."""
    rng = np.random.default_rng([seed, 101])
    sensor = SamplingSensor.draw(rng, seconds)
    kinds = draw_kinds(rng, 8, 10e3, 100e3)
    samples = int(rng.integers(1, 11))
    slip = rng.choice([-1, 1]) * np.exp(rng.uniform(np.log(0.3), np.log(4))) / (seconds * sensor.rate_hz)
    period = samples * 1e9 / sensor.rate_hz * (1 + slip)
    kinds = replace(kinds, duration_ns=kinds.duration_ns * 0.9 * period / kinds.duration_ns.sum())
    scene = lay_out(fixed_order(rng, seconds, kinds, sync_ns=0), seconds, every_ns=period)
    return simulate(rng, scene, Board.draw(rng, len(kinds), seconds), sensor)


def far_rate(seed, seconds):
    """Long kernels in varied order, on a GPU whose sample rate is outside of the usual range."""
    rng = np.random.default_rng([seed, 102])
    rate = float(rng.uniform(*FAR_HZ[int(rng.integers(2))]))
    return draw(seed, "long_varied", seconds, replace(SamplingSensor.draw(rng, seconds), rate_hz=rate))


def sparse(seed, seconds):
    """A small model at batch 1, launched kernel by kernel: 1 to 40 us each, which draw 30 to 200 W above idle.

    They run for 2 to 6 % of the time, so that readings scatter by 0.5 to 2 W.
    """
    rng = np.random.default_rng([seed, 103])
    plan = eager_vit_like(rng, seconds, busy=float(rng.uniform(0.08, 0.2)))
    small = replace(plan.kinds, power_w=124.0 + 0.25 * (plan.kinds.power_w - 124.0))
    scene = lay_out(replace(plan, kinds=small, duration_ns=0.25 * plan.duration_ns), seconds)
    return simulate(rng, scene, Board.draw(rng, len(scene.kinds), seconds), SamplingSensor.draw(rng, seconds))


OWN = {"near_locked": near_locked, "far_rate": far_rate, "sparse": sparse}
ALL = (*GROUPS, *OWN)
BAD = ("one_kind", "locked_period", "foreign_load")
"""Groups that no estimator can resolve: they must be refused."""


def drawn_by(truth, recording, names):
    """Energy of the operators or kernels that a row is of, J."""
    if names == (IDLE,):
        begin, finish = int(recording.start_ns[0]), int(recording.end_ns.max())
        span = truth.power.energy_j(np.array([begin, finish], float) - truth.clock_offset_ns - truth.power.begin_ns)
        return float(span[1] - span[0] - np.sum(truth.kind_j))
    labels = [operator or name for operator, name in zip(recording.operators, recording.names, strict=True)]
    return float(sum(truth.kind_j[k] for k, label in enumerate(labels) if label in names))


def analysed(recording):
    """Lock and checks of a recording, as for a GPU that was never recorded before."""
    readings = on_grid(recording.rows[:, 0] * 1000, recording.rows[:, 1] / 1e3)
    kinds = [Kind(*of) for of in zip(recording.names, recording.operators, recording.modules, strict=True)]
    activity = activity_of(recording.start_ns, recording.end_ns, recording.kind, kinds, readings.origin_ns)
    return readings, *trusted(activity, HOPPER_SENSOR.searches(None), readings, len(recording.kind), 0)


def phase_off(truth, readings, track):
    """Distance of the track from the nearest true samples, in periods: the 90 % quantile."""
    true = truth.sensor.instants_ns(truth.power.length_ns)
    true = (true + truth.power.begin_ns + truth.clock_offset_ns - readings.origin_ns) / 1e9
    at = track.instants()
    number = np.interp(at, true, np.arange(len(true)))
    off = (number - np.rint(number))[(at > true[0]) & (at < true[-1])]
    return float(np.quantile(np.abs(off), 0.9))


def one(group, seed, seconds):
    """The line of one recording."""
    begun = time.process_time()
    _, recording, truth = OWN[group](seed, seconds) if group in OWN else draw(seed, group, seconds=seconds)
    line = {"group": group, "seed": seed, "seconds": seconds, "true_hz": truth.sensor.rate_hz}
    simulated = time.process_time()
    try:
        readings, locked, asked = analysed(recording)
    except JouletraceError as error:
        return {**line, "trusted": False, "says": str(error), "rows": []}
    fit, found = locked.fit, locked.search
    used = time.process_time()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    made = [row for row in energy_table(fit, by_operator) if row.energy.value is not None]
    return {
        **line,
        "trusted": all(check.passed for check in asked),
        "failed": [check.code for check in asked if not check.passed],
        "says": doubt(asked),
        "kernels": len(recording.kind),
        "rate_hz": found.rate_hz,
        "evidence": round(found.evidence, 1),
        "phase_off": round(phase_off(truth, readings, fit.observer.track), 4),
        "averages": fit.observer.sensor.averages,
        "residual_w": round(fit.residual_rms_w, 3),
        "simulation_s": round(simulated - begun, 2),
        "analysis_s": round(used - simulated, 2),
        "memory_gb": round(memory, 2),
        "rows": [
            [drawn_by(truth, recording, row.names), row.energy.value, row.energy.half_width, list(row.names)]
            for row in made
        ],
    }


def contained(path):
    """Recordings that a file contains; a line that was cut off is removed."""
    if not path.exists():
        return set()
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return {(line["group"], line["seed"], line["seconds"]) for line in map(json.loads, whole.splitlines())}


def planned(options):
    """Recordings to make: all groups grow evenly, so that a run that is stopped has some of each."""
    tasks = []
    for asked in options.groups:
        group, _, count = asked.partition("=")
        if group not in ALL:
            raise SystemExit(f"--groups: {group} isn't a group; use {', '.join(ALL)}")
        seeds = int(count or options.seeds)
        tasks += [(i / seeds, group, options.first + i, options.seconds) for i in range(seeds)]
    return [task[1:] for task in sorted(tasks, key=lambda task: task[0])]


def quietly():
    """A worker: low priority, and Ctrl-C is its parent's."""
    os.nice(10)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def line_of(task):
    """``one`` of a task; a fault of the analysis is a line too, so that it doesn't end the others."""
    try:
        return one(*task)
    except Exception as error:
        return {**dict(zip(("group", "seed", "seconds"), task, strict=True)), "trusted": False, "rows": []} | {
            "failed": ["fault"],
            "says": f"{type(error).__name__}: {error}",
        }


def record(options):
    """Append the missing lines, for at most so many minutes."""
    until = time.monotonic() + 60 * options.minutes
    there = contained(options.out)
    tasks = [task for task in planned(options) if task not in there]
    print(f"{len(tasks)} recordings to make, {len(there)} in the file", flush=True)
    done = 0
    # terminated at the end of the block, whether all is done or not
    with multiprocessing.get_context("spawn").Pool(options.jobs, quietly) as pool, options.out.open("a") as out:
        made = pool.imap_unordered(line_of, tasks)
        for _ in tasks:
            try:
                line = made.next(max(until - time.monotonic(), 0.01))
            except multiprocessing.TimeoutError:
                print(f"time is over; {len(tasks) - done} recordings are left", flush=True)
                return
            out.write(json.dumps(line) + "\n")
            out.flush()
            done += 1
    print(f"{done} recordings made", flush=True)


def false_lock(line):
    """Whether its evidence suffices but its rate or its samples are wrong."""
    if "rate_hz" not in line or "sample_rate" in line["failed"]:
        return False
    return abs(line["rate_hz"] - line["true_hz"]) > OFF_HZ or line["phase_off"] > OFF_PERIODS


def figures(lines):
    """The cells of a row: of one group, or of all."""
    trusted = [line for line in lines if line["trusted"]]
    false = [line for line in lines if false_lock(line)]
    cells = [f"{len(trusted)} of {len(lines)}", f"{len(false)} ({sum(line['trusted'] for line in false)})"]
    table = np.array([row[:3] for line in trusted for row in line["rows"]], float).reshape(-1, 3)
    if not len(table):
        return [*cells, "0", *["–"] * 5]
    true, value, half = table.T
    held = np.abs(value - true) <= half
    each = [[abs(row[1] - row[0]) <= row[2] for row in line["rows"]] for line in trusted]
    # rows of a recording are correlated
    scatter = np.sqrt(sum((sum(one) - held.mean() * len(one)) ** 2 for one in each)) / len(held)
    z = 1.96 * (value - true) / half
    return [
        *cells,
        str(len(held)),
        f"{held.mean():.3f} ± {1.96 * scatter:.3f}",
        f"{np.std(z):.2f}",
        f"{np.mean(z):+.2f}",
        f"{100 * np.median(half / np.abs(value)):.1f} %",
        f"{np.median([line['analysis_s'] for line in lines if 'analysis_s' in line]):.1f} s",
    ]


def table(options):
    """Print the table of some files."""
    lines = [json.loads(text) for path in options.files for text in path.read_text().splitlines()]
    print("| group | trusted | false locks (unflagged) | rows | hold | z, sd | z, mean | half-width ", end="")
    print("| analysis |\n|---|---|---|---|---|---|---|---|---|")
    groups = [group for group in ALL if any(line["group"] == group for line in lines)]
    for group in groups:
        print("|", " | ".join([group, *figures([line for line in lines if line["group"] == group])]), "|")
    good = [line for line in lines if line["group"] not in BAD]
    print("|", " | ".join(["all that can be resolved", *figures(good)]), "|")
    for group in groups:
        refused = [line for line in lines if line["group"] == group and not line["trusted"]]
        reasons = Counter(line["failed"][0] if line.get("failed") else line["says"] for line in refused)
        if refused:
            print(f"refused, {group}:", ", ".join(f"{count} {reason}" for reason, count in reasons.most_common()))
    for line in lines if options.v else []:
        describe(line)


def describe(line):
    """One recording, and each of its rows whose interval misses."""
    what = f"{line['group']} {line['seed']}"
    if "rate_hz" not in line:
        print(f"   {what}: {line['says']}")
        return
    print(
        f"   {what}: rate {line['rate_hz']:.2f} of {line['true_hz']:.2f} Hz, samples off by {line['phase_off']:.3f}, "
        f"evidence {line['evidence']:.0f}, left {line['residual_w']:.1f} W, average {line['averages']}; {line['says']}"
    )
    for true, value, half, names in line["rows"]:
        if abs(value - true) > half:
            z = 1.96 * (value - true) / half
            print(f"      {value:9.2f} J ± {100 * half / abs(value):.1f} % of {true:9.2f}: z {z:+.1f} {names[0][:40]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(required=True)
    make = modes.add_parser("record")
    make.add_argument("out", type=Path)
    make.add_argument("--groups", nargs="*", default=list(ALL), help="names, or NAME=SEEDS")
    make.add_argument("--seeds", type=int, default=10)
    make.add_argument("--first", type=int, default=100)
    make.add_argument("--seconds", type=float, default=10.0)
    make.add_argument("--jobs", type=int, default=1)
    make.add_argument("--minutes", type=float, default=1e6)
    make.set_defaults(run=record)
    show = modes.add_parser("table")
    show.add_argument("files", type=Path, nargs="+")
    show.add_argument("-v", action="store_true")
    show.set_defaults(run=table)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
