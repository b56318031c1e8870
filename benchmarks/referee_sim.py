"""Do energies of jobs that ranges mark in a log hold? By a simulator that shares no code with the package.

    python benchmarks/referee_sim.py [--field power.draw] [--spacing 1] [--n 25] [--seed 4242]

Power is constant between edges, and is integrated without a grid. A sensor takes 1191 to 1254 samples per second.
``power.draw`` is their mean over 1.01 s, ``power.draw.instant`` a recursive average of depth 16, both renewed each
0.0995 to 0.1025 s; a loop polls them, 0.05 to 1 % slower than asked. Log and ranges go through files. Columns: energies
of jobs (four a log), % that hold with its 95 % interval (Clopper and Pearson), median half-width [1.96 times the root
mean square error, which would do], mean error.
"""

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from scipy.signal import lfilter
from scipy.stats import beta

import jouletrace as jt
from judging import options

EPOCH_S, GPU, CONTEXT_W = 1_790_000_000, "NVIDIA H100 80GB HBM3", 48.0


class Load:
    """Power that is constant between edges, in s and W."""

    def __init__(self, rng):
        self.rng, self.rest_w = rng, rng.uniform(65, 80)
        self.now_s, self.edge_s, self.watts = 0.0, [0.0], []

    def add(self, seconds, watts, until_s=np.inf):
        for length_s, power_w in np.broadcast(seconds, watts):
            if self.now_s < until_s:
                self.now_s = min(self.now_s + length_s, until_s)
                self.edge_s.append(self.now_s)
                self.watts.append(power_w)

    def energy_j(self, low_s, high_s):
        joules = np.append(0.0, np.cumsum(np.diff(self.edge_s) * self.watts))
        return np.interp(high_s, self.edge_s, joules) - np.interp(low_s, self.edge_s, joules)


def train(load, end_s):
    """Steps of four phases; one in twenty waits for its input, and checkpoints of 2 to 12 s come each 30 to 120 s."""
    rng = load.rng
    step_s, share = np.exp(rng.uniform(np.log(0.15), np.log(3))), rng.dirichlet([4, 6, 1, 1])
    watts, every_s = rng.uniform([350, 400, 200, 120], [650, 690, 400, 300]), rng.uniform(30, 120)
    due_s = load.now_s + every_s
    while load.now_s < end_s:
        load.add(step_s * share * rng.normal(1, 0.03, 4), watts * rng.normal(1, 0.01, 4), end_s)
        if rng.random() < 0.05:
            load.add(rng.exponential(0.4), load.rest_w + CONTEXT_W, end_s)
        if load.now_s > due_s:
            load.add(rng.uniform(2, 12), load.rest_w + rng.uniform(20, 150), end_s)
            due_s += every_s


def serve(load, end_s):
    """Requests at random: a prefill, then some seconds of decoding."""
    rng = load.rng
    wait_s, watts = 1 / np.exp(rng.uniform(np.log(0.05), np.log(2))), rng.uniform([450, 180], [690, 350])
    while load.now_s < end_s:
        load.add(rng.exponential(wait_s), load.rest_w + CONTEXT_W, end_s)
        load.add([rng.uniform(0.05, 0.5), rng.gamma(2, 2)], watts, end_s)


def steady(load, end_s):
    """A level with a fluctuation of 0.3 to 5 %, whose memory is 0.1 to 20 s."""
    rng, count = load.rng, int((end_s - load.now_s) / 0.05) + 1
    keep = np.exp(-0.05 / rng.uniform(0.1, 20))
    off = lfilter([np.sqrt(1 - keep**2)], [1, -keep], rng.standard_normal(count))
    load.add(0.05, rng.uniform(300, 690) * (1 + rng.uniform(0.003, 0.05) * off), end_s)


def bursty(load, end_s):
    """On and off in turns, each for 0.1 to 15 s in the mean, at random or nearly periodic."""
    rng = load.rng
    mean_s, shape = np.exp(rng.uniform(np.log(0.1), np.log(15), 2)), rng.choice([1, 3, 30])
    watts = np.array([rng.uniform(300, 690), load.rest_w + CONTEXT_W])
    while load.now_s < end_s:
        load.add(rng.gamma(shape, mean_s / shape), watts * [rng.normal(1, 0.03), 1], end_s)


KINDS = {kind.__name__: kind for kind in (train, serve, steady, bursty)}


def case(rng, slow):
    """A load, and four jobs of 20 to 150 s times ``slow`` of one of the kinds each: kind, begin, end."""
    load, spans = Load(rng), []
    load.add(20 * slow, load.rest_w)
    for kind in rng.choice(list(KINDS), 4).tolist():
        begin_s = load.now_s
        KINDS[kind](load, begin_s + slow * np.exp(rng.uniform(np.log(20), np.log(150))))
        spans.append((kind, begin_s, load.now_s))
        load.add(slow * rng.uniform(8, 40), load.rest_w)
    return load, spans


def log(load, field, spacing_s):
    """The text that a loop of nvidia-smi prints."""
    at_s = np.arange(0.01, load.now_s, 1 / (rng := load.rng).uniform(1191, 1254))
    watts = load.energy_j(at_s - 1.2e-4, at_s) / 1.2e-4 + 1.2 * rng.standard_normal(len(at_s))
    new_s = np.arange(1.2 + 0.1 * rng.random(), load.now_s, rng.uniform(0.0995, 0.1025))
    if field == "power.draw":
        upto = np.append(0.0, np.cumsum(watts))
        last, first = (np.searchsorted(at_s, new_s - back_s) for back_s in (0.0, 1.01))
        value = (upto[last] - upto[first]) / (last - first)
    else:
        value = lfilter([1 / 16], [1, -15 / 16], watts)[np.searchsorted(at_s, new_s - 0.012) - 1]
    polled_s = np.arange(1.4 + spacing_s * rng.random(), load.now_s, spacing_s * rng.uniform(1.0005, 1.01))
    rows = [f"timestamp, name, {field} [W]"]
    for when_s, watt in zip(polled_s, value[np.searchsorted(new_s, polled_s, side="right") - 1], strict=True):
        rows.append(f"{datetime.fromtimestamp(EPOCH_S + when_s, UTC):%Y/%m/%d %H:%M:%S.%f}, {GPU}, {watt:.2f} W")
    return "\n".join(rows)


def judged(load, spans, text):
    """Kind, mean, low, high and truth of each span, as imported from files."""
    clock, range_ = {"baseTimeNanoseconds": EPOCH_S * 10**9}, {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1}
    events = [{**range_, "name": f"{i}", "ts": 1e6 * a, "dur": 1e6 * (b - a)} for i, (_, a, b) in enumerate(spans)]
    with tempfile.TemporaryDirectory() as folder:
        (trace := Path(folder, "trace.json")).write_text(json.dumps({**clock, "traceEvents": events}))
        (power := Path(folder, "power.csv")).write_text(text)
        run = jt.import_files(trace, power)
    unit = {row["name"]: row["id"] for row in run.units.to_pylist()}
    for i, (kind, a, b) in enumerate(spans):
        energy = run.result("energy_total_j", unit[str(i)])
        yield kind, energy.value, energy.low, energy.high, load.energy_j(a, b)


def main():
    asked, rows = options(__doc__, field="power.draw", spacing=1.0, n=25, seed=4242).parse_args(), []
    for i in range(asked.n):
        load, spans = case(np.random.default_rng([asked.seed, i]), max(asked.spacing, 1.0))
        rows += judged(load, spans, log(load, asked.field, asked.spacing))
    print("| jobs | n | hold % | ± % [would do] | mean error % |\n|---|---|---|---|---|")
    for name in ("all", *KINDS):
        mean, low, high, truth = np.array([row[1:] for row in rows if name in ("all", row[0])]).T
        held, n = int(((low <= truth) & (truth <= high)).sum()), len(truth)
        ends = beta.ppf([0.025, 0.975], [held, held + 1], [n - held + 1, max(n - held, 1e-9)])
        off, half = 100 * (mean / truth - 1), np.median(50 * (high - low) / truth)
        cells = f"{100 * held / n:.1f} [{100 * ends[0]:.0f}, {100 * ends[1]:.0f}] | {half:.3g}"
        print(f"| {name} | {n} | {cells} [{1.96 * np.sqrt(np.mean(off**2)):.3g}] | {off.mean():+.2g} |")


if __name__ == "__main__":
    main()
