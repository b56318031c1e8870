"""Judge work, what an iteration costs a GPU beyond idle power over the host's time, on simulated host-bound programs.

    python benchmarks/estimator/work.py --n 200 -o FILE.json
    python benchmarks/estimator/work.py --n 50 "host and idle drift" "work by the wait"

A record has idle time before and after windows of iterations whose host is late by chance. ``sampled`` reads them.
Truth: what the kernels of a record drew beyond idle power, per iteration, and idle power when they ran.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import sampled
from judge import DELAY_S, on_grid
from loads import Burst, Floats

from jouletrace.attribution.attribute import attribute
from jouletrace.attribution.work import work
from jouletrace.sensor.shares import Response

REST_S, RECORD_S, WINDOW = 1.2, 12.0, 45
"""Idle time before and after, time of the windows without pauses, iterations of each."""

KERNELS, KINDS_OF = 48, 6
"""Kernels of an iteration and their kinds, in turn: as an eager model has them, far shorter than a sample."""


@dataclass(frozen=True)
class Case:
    """Programs that are judged together."""

    name: str
    scatter: float = 0.12  # of a window's host time, relative, standard deviation
    pauses: bool = False  # random ones, after each window
    drift: float = 0.0  # by which host times rise over the record, relative
    idle_w: float = 0.0  # by which idle power rises over the record, evenly
    relaxing_w: float = 0.0  # by which idle power rises with the first seconds of load, and stays
    by_wait: float = 0.0  # relative change of the work per relative change of the host's time
    excess_w: float = 0.0  # by which idle power is higher while the host works, standard deviation between records


CASES = [
    *(Case(f"scatter {s:.0%}", s) for s in (0.04, 0.12, 0.4)),
    *(Case(f"scatter {s:.0%}, pauses", s, pauses=True) for s in (0.04, 0.12, 0.4)),
    Case("host and idle drift", 0.02, drift=0.4, idle_w=2.0),
    Case("host and idle drift, pauses", 0.02, pauses=True, drift=0.4, idle_w=2.0),
    Case("idle differs after", relaxing_w=3.0),
    Case("idle differs after, pauses", pauses=True, relaxing_w=3.0),
    *(Case(f"idle {w:g} W higher at work", pauses=True, excess_w=w) for w in (0.3, 1.0)),
    Case("work by the wait", 0.2, by_wait=0.1),
    Case("work by the wait, pauses", 0.2, pauses=True, by_wait=0.1),
]


@dataclass(frozen=True)
class Program:
    """A record of a host-bound program and its truth."""

    burst: Burst
    spans_s: Floats  # windows, shape (w, 2), from the burst's start
    work_j: float  # per iteration


def program(case: Case, rng: np.random.Generator) -> Program:
    """Iterations of kernels, between which the GPU waits for the host."""
    host_s, kernel_s = rng.uniform(3.5e-3, 7e-3), rng.dirichlet(np.full(KERNELS, 4.0)) * rng.uniform(0.5e-3, 1.4e-3)
    watts, idle = np.tile(rng.uniform(100, 500, KINDS_OF), KERNELS // KINDS_OF), rng.uniform(115, 135)
    # In proportion to the host's, a window is late like its neighbours
    count = round(RECORD_S / host_s / WINDOW / (1 + 0.5 * case.pauses))
    pace = np.exp(case.scatter * sampled.ar1(rng, count, 0.35)) + case.drift * np.linspace(-0.5, 0.5, count)
    pace = np.repeat(np.maximum(pace, 0.6), WINDOW)
    each = pace * np.exp(0.05 * rng.standard_normal(len(pace)))
    wait_s = (host_s * each - kernel_s.sum())[:, None] * rng.dirichlet(np.full(KERNELS, 2.0), len(each))
    slow = np.repeat(1 + 0.01 * rng.standard_normal(count), WINDOW) * (1 + case.by_wait * (each - 1))
    above = watts * slow[:, None] * np.exp(0.02 * rng.standard_normal((len(each), KERNELS)))
    pause_s = np.zeros(len(each))
    if case.pauses:  # of random lengths, as long as half a window in the mean
        pause_s[WINDOW - 1 :: WINDOW] = host_s * WINDOW * rng.exponential(0.5, count)
    rows = np.stack([np.broadcast_to(kernel_s, wait_s.shape), wait_s], axis=2).reshape(len(each), -1)
    rows = np.hstack([rows, pause_s[:, None]])
    power = np.stack([above, np.zeros_like(above)], axis=2).reshape(len(each), -1)
    power = np.hstack([power, np.zeros((len(each), 1))])
    rest = np.full(12, REST_S / 12)
    seconds = np.concatenate([rest, rows.ravel(), rest])
    beyond = np.concatenate([0 * rest, power.ravel(), 0 * rest])
    begin = np.cumsum(seconds) - seconds
    since, lasts = begin - REST_S, seconds.sum() - 2 * REST_S
    base = idle + case.idle_w * (np.clip(since / lasts, -0.05, 1.05) - 0.5)
    base += case.relaxing_w * -np.expm1(-np.clip(since, 0, lasts) / 3.0)
    resting = np.concatenate([rest > 0, np.zeros(rows.size, bool), rest > 0])
    base += case.excess_w * rng.standard_normal() * ~resting
    ends = REST_S + np.append(0.0, np.cumsum(rows.sum(axis=1)))[::WINDOW]
    spans = np.stack([ends[:-1], ends[1:]], axis=1)
    return Program(Burst(seconds, base + beyond), spans, float(beyond @ seconds) / len(each))


LEAD_S = 0.3
"""Of the record before and after, where ``sampled`` has an idle power of its own."""


def estimates(case: Case, seed: int) -> dict[str, tuple]:
    """Value, low and high end of the work, the code of a failed check and seconds; and the truth."""
    rng = np.random.default_rng([seed, *case.name.encode()])
    one = program(case, rng)
    record = sampled.record(one.burst, rng, LEAD_S, LEAD_S)
    origin, length = record.span_s[0], one.burst.length_s
    spans = origin + one.spans_s
    idle = origin + np.array([[0.15, REST_S - 0.02], [length - REST_S + 0.1, length - 0.02]])
    times, _ = on_grid(record.stamps_s)
    near = (times > origin + 0.12) & (times < origin + length)
    every, counts = np.vstack([idle, spans]), np.append([0.0, 0.0], np.full(len(spans), WINDOW))
    response = Response(record.rise_s, 0.02, DELAY_S, 2e-4, 1 / 16, 0.35, 0.02)
    began = time.perf_counter()
    found = work(attribute(times[near], record.watts[near], every, response=response, bursts=spans), every, counts)
    mean, low, high = found.unknowns.interval()
    return {"regression": (mean[-1], low[-1], high[-1], found.reason, time.perf_counter() - began), "truth": one.work_j}


def judged(case: Case, n: int, seed: int) -> dict:
    """How many hold, how wide they are, and how large errors are."""
    found = [estimates(case, 10_000 * seed + i) for i in range(n)]
    row, truth = asdict(case) | {"n": n}, np.array([one["truth"] for one in found])
    mean, low, high = np.array([one["regression"][:3] for one in found]).T
    codes = [one["regression"][3] for one in found]
    given = np.array([code is None for code in codes])
    error, hold = mean / truth - 1, (low <= truth) & (truth <= high)
    row["regression"] = {
        "given": float(given.mean()),
        "codes": {"idle_apart": codes.count("idle_apart")},
        "n": n,
        "holds": float(hold[given].mean()) if given.any() else None,
        "holds_all": float(hold.mean()),
        "half_pct": float(100 * np.median((high - low) / 2 / truth)),
        "bias_pct": float(100 * error.mean()),
        "error95_pct": float(100 * np.quantile(np.abs(error), 0.95)),
        "seconds": float(np.mean([one["regression"][4] for one in found])),
    }
    return row


def line(row: dict) -> str:
    """A row of the printed table."""
    text, one = f"{row['name']:28} n {row['n']:3d}", row["regression"]
    held = f"{100 * one['holds']:.1f}" if one["given"] else "-"
    text += f" | {held} % of {100 * one['given']:.0f} ({100 * one['holds_all']:.1f}) ± {one['half_pct']:.2f}"
    text += f", errors {one['error95_pct']:.2f}, bias {one['bias_pct']:+.2f}"
    text += "".join(f" {code} {count}" for code, count in one["codes"].items() if count)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="names of cases; all if none is given")
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", help="write the rows here, as JSON, after each")
    arguments = parser.parse_args()
    rows = []
    for case in CASES:
        if arguments.cases and case.name not in arguments.cases:
            continue
        rows.append(judged(case, arguments.n, arguments.seed))
        print(line(rows[-1]), flush=True)
        if arguments.output:
            Path(arguments.output).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
