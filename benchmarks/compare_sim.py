"""Does ``compare`` cry wolf, and does it find what is there? On simulated pairs, where the truth is known.

Each pair is two sides of three runs of one thing on one GPU. A run's figures are drawn, not
profiled: a whole profile takes seconds, and its figures differ between runs by a few numbers only.
The GPU's parameters are drawn by seed within the ranges of ``simulator.boards.presets``; then, as in
its engine,

- every run's load draws more or less by ``run_spread`` and by ``drift`` (which outlasts a run),
- a run's own windows leave what ``load_noise`` averages to, plus its start temperature's leakage (sd 1 K),
- times differ between processes by 0.05 to 0.2 % (memory layout, alignment),
- parts share the run's deviation, have one of their own (0.1 to 0.5 %, for one in ten ten times that) and
  the experiment's noise (half-widths of 2 to 10 %, the smaller the part the larger).

The required detection is that of 3 % more energy at default settings (the model alone); with parts, half of the
permitted error is theirs.

``--scatter`` instead makes null comparisons of sides whose runs scatter by these shares, in work and in time, with
one, two, three and five runs a side, without and with a late host. Its windows' times then scatter by 2.5 to 12 %, its
runs' by 0.5 to 0.8 of that, as seen on real hosts. Single runs state a stored scatter between runs, as profiles do.

    python benchmarks/compare_sim.py                       # 1000 pairs of each kind, three seeds
    python benchmarks/compare_sim.py --scatter 0.1 0.3 1 --pairs 400 --parts 0
"""

import time
from math import sqrt

import numpy as np

from jouletrace.analysis.between_runs import OF_WINDOWS, STEADY
from jouletrace.comparing.compare import compare
from jouletrace.comparing.pairs import DIFFERENT, SAME, WORSE
from jouletrace.recording.calibrations import SCATTER
from jouletrace.run import DeviceInfo, Estimate, Run, tables
from jouletrace.run.parts import STORED_SCATTER
from jouletrace.simulator.boards.presets import PRESETS, draw
from jouletrace.stats.quantiles import student
from judging import options

PRESET = PRESETS["h100-80"]
WINDOWS, WINDOW_S = 8, 0.5


class World:
    """A GPU, drawn by its seed, and a workload on it of so many operators; of the model alone if ``parts`` is 0."""

    level = "op"

    def __init__(self, rng, parts):
        self.rng, board = rng, int(rng.integers(1 << 30))
        self.parameters = draw(PRESET, board)
        self.device = DeviceInfo(f"SIM-{board}", "SIMULATED H100", simulated=True)
        self.time_s, self.watts = rng.uniform(0.5e-3, 20e-3), rng.uniform(250, 650)
        self.time_sd = rng.uniform(0.0005, 0.002)
        self.draw_parts(parts)

    def draw_parts(self, parts):
        """Shares of parts in the energy, the standard deviation of each between runs, and the experiment's noise."""
        rng = self.rng
        self.share = rng.dirichlet(np.full(parts, 0.7)) if parts else np.empty(0)
        self.own_sd = rng.uniform(0.001, 0.005, parts) * np.where(rng.random(parts) < 0.1, 10, 1)
        self.noise = np.clip(0.01 / np.sqrt(np.maximum(self.share, 1e-4) * max(parts, 1)), 0.01, 0.05)

    def run(self, more=0.0, part_more=None):
        """One run whose energy is ``more`` higher than that of others, or that of single parts."""
        rng, p = self.rng, self.parameters
        part_more = np.zeros(len(self.share)) if part_more is None else part_more
        active = self.watts - p.context_idle_w
        load = rng.normal(0, p.run_spread) + rng.normal(0, p.drift)
        heat = p.leak_w * rng.normal(0, 1.0) / p.leak_scale_c
        slow = rng.normal(0, self.time_sd)
        within = p.load_noise * sqrt(2 * p.load_noise_s / WINDOW_S / WINDOWS)
        shift = 1 + more + float(self.share @ part_more)
        watts = (p.context_idle_w + active * (1 + load + rng.normal(0, within)) + heat) * shift
        time_s = self.time_s * (1 + slow)
        common = watts * time_s / (self.watts * self.time_s * shift) - 1
        rows = figures(0, {"latency_s": (time_s * (1 + rng.normal(0, 3e-4)), 3e-4), "iteration_time_s": (time_s, 2e-4)})
        rows += figures(0, {"power_w": (watts, within), "energy_total_j": (watts * time_s, within)})
        for i, share in enumerate(self.share):
            off = 1 + common + rng.normal(0, self.own_sd[i]) + rng.normal(0, self.noise[i])
            seconds = share * self.time_s * (1 + slow + rng.normal(0, self.own_sd[i]) + rng.normal(0, self.noise[i]))
            joules = share * self.watts * self.time_s * off * (1 + more + part_more[i])
            rows += figures(i + 1, {"time_s": (seconds, self.noise[i]), "energy_total_j": (joules, self.noise[i])})
        return self.finished(rows)

    def finished(self, rows):
        """The Run of these results."""
        run = Run(workload={"name": "thing", "items": 1}, devices=[self.device])
        units = [{"id": 0, "level": "model", "name": "thing"}]
        for i in range(len(self.share)):
            about = {"op": f"aten.op{i}", "module": f"layer.{i % 7}"} if self.level == "op" else {}
            units.append({"id": i + 1, "parent": 0, "level": self.level, "name": f"aten.op{i}", **about})
        run.units, run.results = tables.from_rows(units, "units"), tables.from_rows(rows, "results")
        return run

    def side(self, n=3, **keys):
        """Runs of one side of a comparison, with their names."""
        return [(self.run(**keys), f"run {i}") for i in range(n)]


class Scattering(World):
    """A workload at idle power of 127 W whose runs scatter by a share in work and in time, on a late host or not."""

    level = "kernel"

    def __init__(self, rng, scatter, late, parts):
        self.rng, self.scatter, self.work_j = rng, scatter, rng.uniform(0.1, 2.0)
        self.device = DeviceInfo("SIM-1", "SIMULATED H100")
        self.windows = np.exp(rng.uniform(np.log(0.025), np.log(0.12))) if late else 0.0
        self.time_sd = rng.uniform(0.5, 0.8) * self.windows if late else scatter
        self.draw_parts(parts)

    def run(self):
        """One run: total energy is work and idle power over its time."""
        rng = self.rng
        time_s = 5e-3 * (1 + self.time_sd * rng.standard_normal())
        work_j = self.work_j * (1 + self.scatter * rng.standard_normal())
        total_j, idle = work_j + 127 * time_s, 127 * time_s / (work_j + 127 * time_s)
        beyond = OF_WINDOWS * sqrt(max(self.windows**2 - STEADY**2, 0.0))
        least = SCATTER["sd_pct"] / 100
        stated = {
            "iteration_time_s": (time_s, np.hypot(least, beyond)),
            "power_w": (total_j / time_s, np.hypot(least, beyond * (1 - idle))),
            "energy_total_j": (total_j, np.hypot(least, beyond * idle)),
            "energy_work_j": (work_j, least),
        }
        rows = figures(0, {"latency_s": (time_s * (1 + 3e-4 * rng.standard_normal()), 3e-4)})
        rows += figures(0, stated, student(0.975, SCATTER["runs"] - 1), 10, STORED_SCATTER)
        for i, share in enumerate(self.share):
            off = 1 + self.own_sd[i] * rng.standard_normal() + self.noise[i] * rng.standard_normal()
            joules = share * work_j * off
            seconds = share * 4e-3 * (1 + 0.3 * (self.scatter + self.own_sd[i]) * rng.standard_normal())
            own = {"time_s": (seconds, 1e-3), "energy_total_j": (joules, self.noise[i])}
            rows += figures(i + 1, {**own, "power_w": (joules / seconds, self.noise[i])})
        run = self.finished(rows)
        run.stored["between_runs"] = SCATTER
        return run


def figures(unit, values, quantile=1.96, n=30, flags=""):
    """Rows of ``results`` from values and their relative standard errors."""
    rows = []
    for metric, (value, error) in values.items():
        half = quantile * error * abs(value)
        estimate = Estimate(float(value), float(value - half), float(value + half), n, "windows")
        rows.append({"unit": unit, "metric": metric, "flags": flags, **estimate.to_dict()})
    return rows


def null_comparisons(arguments):
    """A table of false differences in percent of comparisons, over all rows of each."""
    print("| late host | parts | scatter % | one run a side | two | three | five |\n|---|---|---|---|---|---|---|")
    for late in (False, True):
        for parts in arguments.parts:
            for scatter in arguments.scatter:
                wrong = []
                for runs in (1, 2, 3, 5):
                    rng = np.random.default_rng([arguments.seeds[0], round(1e3 * scatter), late, parts, runs])
                    worlds = (Scattering(rng, scatter / 100, late, parts) for _ in range(arguments.pairs))
                    wrong.append(100 * np.mean([alarms(compare(one.side(runs), one.side(runs))) for one in worlds]))
                cells = " | ".join(f"{share:.1f}" for share in wrong)
                print(f"| {'yes' if late else 'no'} | {parts} | {scatter:g} | {cells} |", flush=True)


def alarms(found):
    """True if any verdict says that something differs."""
    return any(row.verdict in DIFFERENT for row in found.rows)


def trial(seed, pairs, parts):
    """Shares of pairs: false alarms, detection of 3 %, of a tenth more in the largest part; and widths."""
    rng = np.random.default_rng([seed, parts])
    wrong, found, largest, detectable, same = [], [], [], [], []
    for _ in range(pairs):
        world = World(rng, parts)
        null = compare(world.side(), world.side())
        wrong.append(alarms(null))
        same.append(null.row("energy_total_j").verdict == SAME)
        detectable.append(null.row("energy_total_j").detectable)
        found.append(compare(world.side(), world.side(more=0.03)).row("energy_total_j").verdict == WORSE)
        if parts:
            top = int(np.argmax(world.share))
            changed = compare(world.side(), world.side(part_more=0.1 * (np.arange(parts) == top)))
            largest.append(changed.row("energy_total_j", f"aten.op{top}", "op").verdict == WORSE)
    return np.mean(wrong), np.mean(found), np.mean(largest) if largest else np.nan, np.median(detectable), np.mean(same)


def main():
    parser = options(__doc__, pairs=1000, seeds=[1, 2, 3], parts=[0, 40])
    parser.add_argument("--scatter", type=float, nargs="+", help="instead, null comparisons at these scatters, in %%")
    arguments = parser.parse_args()
    if arguments.scatter:
        null_comparisons(arguments)
        return
    print("| parts | seed | false alarms % | 3 % detected % | part detected % | detectable % | same shown % | s |")
    print("|---|---|---|---|---|---|---|---|")
    for parts in arguments.parts:
        for seed in arguments.seeds:
            begin = time.perf_counter()
            wrong, found, largest, least, same = trial(seed, arguments.pairs, parts)
            figures_ = [f"{100 * value:.1f}" for value in (wrong, found, largest)]
            took = time.perf_counter() - begin
            print(f"| {parts} | {seed} | {' | '.join(figures_)} | {100 * least:.2f} | {100 * same:.0f} | {took:.0f} |")


if __name__ == "__main__":
    main()
