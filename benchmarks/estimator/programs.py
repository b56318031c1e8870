"""How often intervals of rows, sums and spans of simulated programs hold, with a timeline and without.

    python benchmarks/estimator/programs.py OUT.jsonl [--groups eager short_fixed ...] [--seeds 8] [--first 500]
        [--seconds 10]
    python benchmarks/estimator/programs.py OUT.jsonl --table

Programs, GPUs and sensors are those of ``benchmarks/attribution/coverage.py``: powers, phase, rate and response of
the sensor, and how power varies inside of kernels and between them are hidden from the estimator. Ways: with the
samples' times by ``lock``; with the timeline alone; without one. The last two are judged with a response that is
exact, and 5 and 20 % too wide.
"""

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from jouletrace.attribution.activity import Kind, activity_of
from jouletrace.attribution.attempts import trusted
from jouletrace.attribution.attribute import attribute
from jouletrace.attribution.program import attribute_program
from jouletrace.attribution.rows import resolved
from jouletrace.sensor.kinds import HOPPER_SENSOR
from jouletrace.sensor.readout import on_grid
from jouletrace.sensor.shares import Response
from scenarios import draw

GROUPS = (
    "long_varied", "short_varied", "short_fixed", "short_excited", "eager", "cap", "drift", "overlap", "pauses",
    "large_fixed", "foreign_response",
)  # fmt: skip
SPANS_S = (0.02, 0.05, 0.2, 1.0)
EACH = 6
"""Spans of each length in a recording."""

WRONG = {"exact": 1.0, "5 % off": 1.05, "20 % off": 1.2}


def judged(group, seed, seconds):
    """Lines of one recording: way, what, truth, mean, low, high, and whether it is resolved."""
    _, recording, truth = draw(seed, group, seconds=seconds)
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

    def add(way, what, true, found, good):
        lines.append({"way": way, "what": what, "true": float(true), "found": [float(x) for x in found], "good": good})

    locked, asked = trusted(activity, HOPPER_SENSOR.searches(None), readings, len(recording.kind), 0)
    if not all(check.passed for check in asked):
        return [{"way": "refused", "why": [check.code for check in asked if not check.passed]}]
    sampled = locked.fit.observer
    rate = truth.sensor.rate_hz
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
        each = np.transpose(found.energies.interval(np.eye(len(names), found.energies.mean_j.shape[1])))
        for name, true, ends in zip(names, spans_j, each, strict=True):
            add(way, name, true, ends, True)
        ran = np.flatnonzero(found.seconds > 0)
        rows = np.eye(len(found.seconds))[ran]
        sums = (rng.random((6, len(ran))) < 0.5) @ rows
        for what, amounts in (("row", rows), ("half of the rows", sums), ("all rows", rows.sum(axis=0)[None])):
            good = resolved(found, amounts)
            ends = np.transpose(found.energies.interval(found.together(amounts)))
            for true, ok, one in zip(amounts @ truth.kind_j, good, ends, strict=True):
                add(way, what, true, one, bool(ok))
        lines.append({"way": way, "seconds": took})
    for name, by in WRONG.items():
        response = replace(nominal, rise_s=nominal.rise_s * by)
        found = attribute(readings.time_s, readings.value, spans[1:], response=response, bursts=spans[:1]).interval()
        for what, true, *ends in zip(names[1:], spans_j[1:], *found, strict=True):
            add(f"no timeline, {name}", what, true, ends, True)
    return lines


def table(path):
    """Print shares that hold and half-widths, by way and what."""
    cells = defaultdict(list)
    for line in map(json.loads, path.read_text().splitlines()):
        for one in line["lines"]:
            if "what" in one and one["true"] > 0:
                mean, low, high = one["found"]
                cell = (
                    low <= one["true"] <= high,
                    50 * (high - low) / max(abs(mean), 1e-9),
                    100 * (mean / one["true"] - 1),
                )
                for group in ("all", line["group"]):
                    cells[one["way"], one["what"], group].append(cell)
                    if one["what"] == "row" and one["good"]:
                        cells[one["way"], "resolved row", group].append(cell)
    for (way, what, group), found in sorted(cells.items()):
        held, half, off = np.array(found, float).T
        cell = f"{way:22s} {what:17s} {group:17s} n {len(held):5d}  hold {100 * held.mean():5.1f} %"
        print(f"{cell}  ± {np.median(half):6.2f} %  error (95 %) {np.quantile(np.abs(off), 0.95):7.2f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--groups", nargs="*", default=list(GROUPS))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        table(options.out)
        return
    with options.out.open("a") as out:
        for seed in range(options.first, options.first + options.seeds):
            for group in options.groups:
                line = {"group": group, "seed": seed, "lines": judged(group, seed, options.seconds)}
                out.write(json.dumps(line) + "\n")
                out.flush()


if __name__ == "__main__":
    main()
