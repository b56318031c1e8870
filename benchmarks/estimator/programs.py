"""How often intervals of rows, sums and spans of simulated programs hold, with a timeline and without.

    python benchmarks/estimator/programs.py OUT.jsonl [--groups eager short_fixed ...] [--seeds 8] [--first 500]
        [--seconds 10]
    python benchmarks/estimator/programs.py OUT.jsonl --table

Powers, phase, rate and response of the sensor, and how power varies inside of kernels and between them are hidden from
the estimator. Ways: with the
samples' times by ``lock``; with the timeline alone; without one. The last two are judged with a response that is
exact, and 5 and 20 % too wide. With the samples' times ranges are judged, too: kernels that start within some time, or
in some of the steps. A lock is false if the rate is off by more than 0.6 Hz, or the samples by more than a
tenth of a period; it is unflagged if the recording passes all checks.
"""

import json
import os
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from jouletrace.analysis.kernel_powers import IDLE_W, RecordedKernels, powers_of_kinds
from jouletrace.attribution.activity import Kind, activity_of
from jouletrace.attribution.attribute import attribute
from jouletrace.attribution.checks import resolved, trusted
from jouletrace.attribution.program import attribute_program
from jouletrace.run import tables
from jouletrace.run.division import Division
from jouletrace.sensor.kinds import HOPPER_SENSOR
from jouletrace.sensor.readout import on_grid
from jouletrace.sensor.shares import Response
from jouletrace.simulator.sensors import SamplingSensor
from judging import Judged, options
from scenarios import GROUPS as DRAWN
from scenarios import draw, simulate
from simulated_power import Board
from simulated_programs import draw_kinds, eager_vit_like, fixed_order, lay_out

GROUPS = (
    "long_varied", "short_varied", "short_fixed", "short_excited", "eager", "cap", "drift", "overlap", "pauses",
    "large_fixed", "foreign_response",
)  # fmt: skip
SPANS_S = (0.02, 0.05, 0.2, 1.0)
EACH = 6
"""Spans of each length in a recording."""

RANGES_S, STEPS = (0.002, *SPANS_S), (0.01, 0.5)
"""Lengths of ranges, of each ``EACH``, and shares of the steps of those that recur, besides thirds and 80 %."""

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
ALL = (*DRAWN, *OWN)
BAD = ("one_kind", "locked_period", "foreign_load")
"""Groups that no estimator can resolve: they must be refused."""


def phase_off(truth, readings, track):
    """Distance of the track from the nearest true samples, in periods: the 90 % quantile."""
    true = truth.sensor.instants_ns(truth.power.length_ns)
    true = (true + truth.power.begin_ns + truth.clock_offset_ns - readings.origin_ns) / 1e9
    at = track.instants()
    number = np.interp(at, true, np.arange(len(true)))
    off = (number - np.rint(number))[(at > true[0]) & (at < true[-1])]
    return float(np.quantile(np.abs(off), 0.9))


WRONG = {"exact": 1.0, "5 % off": 1.05, "20 % off": 1.2}


def ranges_of(seed, recording, truth):
    """Ranges of a recording: names, which kernels are in them, and their energies, J."""
    rng, kernel_j = np.random.default_rng([seed, 78]), truth.drawn.kernel_j[truth.traced]
    begun_s = (recording.start_ns - recording.start_ns[0]) / 1e9
    last_s, step = begun_s[-1], rng.random(recording.iteration.max() + 1)[recording.iteration]
    spans = [
        (f"range of {length:g} s", rng.uniform(0.3, last_s - length - 0.1), length)
        for length in np.repeat(RANGES_S, EACH)
    ]
    spans += [("third", share * last_s, last_s / 3) for share in (0, 1 / 3, 2 / 3)] + [
        ("last 80 %", 0.2 * last_s, last_s)
    ]
    each = [(name, (begun_s >= at) & (begun_s < at + length)) for name, at, length in spans]
    each += [(f"{share:g} of the steps", step < share) for share in STEPS]
    return [(name, mine, float(kernel_j[mine].sum())) for name, mine in each if mine.any()]


def by_parts(rows, locked, readings, recording, ranges):
    """Ends of the energies of ranges as a Run states them: by the powers of kinds, J, shape (3, ranges)."""
    fit, length_s, kinds = locked.fit, (recording.end_ns - recording.start_ns) / 1e9, len(recording.names)
    total_s = np.bincount(recording.kind, length_s, kinds)
    recorded = RecordedKernels(fit.activity, readings, Response.sampled(fit.observer.sensor, 0.02, 1230.0), IDLE_W, fit)
    powers, numbers = powers_of_kinds(recorded, rows, total_s, 1120.0)
    table = tables.from_rows([{"kind": numbers[kind], "seconds": total_s[kind]} for kind in numbers], "divided")
    division, ends = Division("", powers, "", table), []
    for _, mine, _ in ranges:
        seconds_s = np.bincount(recording.kind[mine], length_s[mine], kinds)
        energy = division.energy(np.append(seconds_s[list(numbers)], [0.0, 0.0]), remainder=True)
        ends.append((energy.value, energy.low, energy.high))
    return np.transpose(ends)


def rows_of(group, seed, seconds):
    """Lines of one recording: way, what, truth, mean, low, high, and whether it is resolved."""
    _, recording, truth = OWN[group](seed, seconds) if group in OWN else draw(seed, group, seconds=seconds)
    readings = on_grid(recording.rows[:, 0] * 1000, recording.rows[:, 1] / 1e3)
    kinds = [Kind(*of) for of in zip(recording.names, recording.operators, recording.modules, strict=True)]
    activity = activity_of(recording.start_ns, recording.end_ns, recording.kind, kinds, readings.origin_ns)
    offset = readings.origin_ns - truth.clock_offset_ns - truth.power.begin_ns
    rng = np.random.default_rng([seed, 77])
    begin, end = activity.begin_s + 0.3, activity.finish_s - 0.1
    starts = [rng.uniform(begin, end - length, EACH) for length in SPANS_S]
    spans = np.concatenate([np.stack([a, a + length], 1) for a, length in zip(starts, SPANS_S, strict=True)])
    spans = np.vstack([[[activity.begin_s, activity.finish_s]], spans])
    upto = truth.power.energy_j(spans * 1e9 + offset)
    spans_j = upto[:, 1] - upto[:, 0]
    names = ["whole", *(f"{length:g} s" for length in SPANS_S for _ in range(EACH))]
    lines = []

    def add(way, names, truth, ends, good=None):
        good = np.ones(len(names), bool) if good is None else good
        for what, true, of, ok in zip(names, truth, np.transpose(ends), good, strict=True):
            lines.append({"way": way, "what": what, "true": float(true), "found": of.tolist(), "good": bool(ok)})

    locked, asked = trusted(activity, HOPPER_SENSOR.searches(None), readings, len(recording.kind), 0)
    sampled, rate = locked.fit.observer, truth.sensor.rate_hz
    off = abs(locked.search.rate_hz - rate) > OFF_HZ or phase_off(truth, readings, sampled.track) > OFF_PERIODS
    failed = [check.code for check in asked if not check.passed]
    if failed:
        return [{"way": "refused", "why": failed, "false": bool(off and "sample_rate" not in failed)}]
    lines.append({"way": "trusted", "false": bool(off)})
    ways = [("samples known", Response.sampled(sampled.sensor, 0.02, sampled.track.rate_hz), sampled)]
    nominal = replace(Response.sampled(HOPPER_SENSOR, 0.02, rate), width_sd=0.02)
    ways += [(f"timeline, {name}", replace(nominal, rise_s=nominal.rise_s * by), None) for name, by in WRONG.items()]
    for way, response, observer in ways:
        moment = readings.time_s - response.delay_s
        inside = (moment > activity.begin_s) & (moment < activity.finish_s)
        begun = time.process_time()
        found = attribute_program(
            readings.time_s[inside], readings.value[inside], spans, activity, response=response, sampled=observer
        )
        took = time.process_time() - begun
        add(way, names, spans_j, found.energies.interval(np.eye(len(names), found.energies.mean_j.shape[1])))
        ran = np.flatnonzero(found.seconds > 0)
        rows = np.eye(len(found.seconds))[ran]
        sums = (rng.random((6, len(ran))) < 0.5) @ rows
        for what, amounts in (("row", rows), ("half of the rows", sums), ("all rows", rows.sum(axis=0)[None])):
            ends = found.energies.interval(found.together(amounts))
            add(way, len(amounts) * [what], amounts @ truth.kind_j, ends, resolved(found, amounts))
        lines.append({"way": way, "seconds": took})
        if observer:
            ranges = ranges_of(seed, recording, truth)
            ends = by_parts(found, locked, readings, recording, ranges)
            add(way, [name for name, *_ in ranges], [joules for *_, joules in ranges], ends)
    for name, by in WRONG.items():
        response = replace(nominal, rise_s=nominal.rise_s * by)
        found = attribute(readings.time_s, readings.value, spans[1:], response=response, bursts=spans[:1])
        add(f"no timeline, {name}", names[1:], spans_j[1:], found.interval())
    return lines


def table(path):
    """Print locks by group; shares that hold and half-widths, by way and what."""
    cells, locks = defaultdict(list), defaultdict(list)
    for line in map(json.loads, path.read_text().splitlines()):
        locks[line["group"]] += [one for one in line["lines"] if "false" in one]
        for one in line["lines"]:
            if "what" in one and one["true"] > 0:
                for group in ("all", line["group"]):
                    cells[one["way"], one["what"], group].append((*one["found"], one["true"]))
                    if one["what"] == "row" and one["good"]:
                        cells[one["way"], "resolved row", group].append((*one["found"], one["true"]))
    for group, each in locks.items():
        trusted_of = [one for one in each if one["way"] == "trusted"]
        false, unflagged = (sum(one["false"] for one in some) for some in (each, trusted_of))
        print(f"{group:17s} trusted {len(trusted_of)} of {len(each)}, false locks {false}, unflagged {unflagged}")
    for (way, what, group), rows in sorted(cells.items()):
        found = Judged(*np.transpose(rows))
        half = 50 * np.median((found.high - found.low) / np.maximum(np.abs(found.value), 1e-9))
        cell = f"{way:22s} {what:17s} {group:17s} n {found.n:5d}  hold {100 * found.held.mean():5.1f} %"
        print(f"{cell}  ± {half:6.2f} %  error (95 %) {100 * np.quantile(np.abs(found.error), 0.95):7.2f} %")


def main():
    parser = options(__doc__, groups=list(GROUPS), seeds=8, first=500, seconds=10.0)
    parser.add_argument("out", type=Path)
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        table(asked.out)
        return
    with asked.out.open("a") as out:
        for seed in range(asked.first, asked.first + asked.seeds):
            for group in asked.groups:
                line = {"group": group, "seed": seed, "lines": rows_of(group, seed, asked.seconds)}
                print(json.dumps(line), file=out, flush=True)


if __name__ == "__main__":
    main()
