"""Does the race of ``jouletrace tune`` choose well, and is its promise true? On simulated spaces of known optimum.

A space has 12 to 200 settings: batch x mode x dtype. Energies follow from idle power, work per sample and a power cap,
times from the slower of GPU and host; kernels chosen by size add roughness. Windows of a second scatter by 0.3 to
1.5 %, processes by 0.3 to 1 %, hosts that are late by 5 to 25 %; iterations have heavy tails; large batches run out of
memory; the GPU drifts. Kinds: plain; flat (the cap makes energies equal); two branches (a slow frugal mode); drift (of
1 %, with swings); late (hosts slower for 70 s of each 300 s); infeasible (nothing meets the p99 limit). A limit counts
as kept within 2 %: its test permits 1 %. The rival is a grid: each setting to 1 %, scatters known beforehand.

    python benchmarks/tune_sim.py 200 seed=1 detail=1  # by kind, limit and number of settings
    python benchmarks/tune_sim.py 100 limit=1  # how often a setting passes with a share of iterations over its p99
"""

import sys

import numpy as np

from jouletrace.campaign.limits import BLOCKS
from jouletrace.campaign.race import Candidate, Race, ShareLimit, TimeLimit, Visit

KINDS, LIMITS = ("plain", "flat", "branches", "drift", "late", "infeasible"), ("none", "p99", "time")
HEADER = (
    "| spaces | n | within 1 % | promise | saving | within | limit | equal | undecided | median | sum | processes |"
)


VISIT_S = 4.0
"""Seconds that a visit costs beside the seconds that are measured: building, warming up, as measured on an H200."""


class Space:
    """The truth: log energy and log time per sample of each setting, its scatters, its excess over the limit."""

    def __init__(self, rng, kind, limit):
        u, self.kind, self.limit = rng.uniform, kind, limit
        modes, dtypes = (2 if kind == "branches" else rng.integers(1, 5)), rng.integers(1, 5)
        batches = int(np.clip(round(np.exp(u(np.log(12), np.log(200))) / (modes * dtypes)), 3, 20))
        octaves = (1 if batches <= 10 else 0.5) * np.arange(batches) + (0 if batches > 5 else rng.integers(0, 4))
        grid = np.meshgrid(np.unique(np.round(2**octaves).astype(int)), range(modes), range(dtypes), indexing="ij")
        self.batch, mode, dtype = (axis.ravel() for axis in grid)
        n, batch = len(mode), self.batch
        settings = np.transpose((batch, mode, dtype))
        self.candidates = [Candidate(float(b), (f"mode {m}", f"dtype {d}")) for b, m, d in settings]
        pace = (np.array([1, 0.62, 0.42, 0.3]) * np.exp(rng.normal(0, 0.05, 4)))[dtype]
        per_sample, idle, cap = np.exp(u(np.log(5e-5), np.log(2e-3))), u(70, 130), 700.0
        gpu = u(3e-4, 3e-3) + batch * per_sample * pace
        host = np.exp(u(np.log(1e-3), np.log(2e-2))) * np.array([1, 0.55, 0.3, 0.15])[mode]
        work = per_sample * pace * (u(700, 900) if kind == "flat" else u(250, 700)) * (1 + u(0.2, 3) / batch)
        slow, frugal = (u(1.005, 1.3), u(0.75, 0.97)) if kind == "branches" else (1, 1)
        gpu, work, rough = gpu * slow ** (mode == 1), work * frugal ** (mode == 1), u(0.005, 0.03)
        gpu, work = gpu * np.exp(rng.normal(0, rough, n)), work * np.exp(rng.normal(0, rough / 2, n))
        self.iteration_s = np.maximum((gpu**6 + host**6) ** (1 / 6), work * batch / (cap - idle))
        self.energy, self.time = np.log(idle * self.iteration_s / batch + work), np.log(self.iteration_s / batch)
        self.host_sd = np.where(host > 1.05 * gpu, u(0.05, 0.25), 0.0)
        self.window_sd, self.process_sd, self.start_s = u(0.003, 0.015, n), u(0.003, 0.01), u(8, 15)
        self.fails = batch * u(0.5, 2) * np.array([4, 4, 2, 1])[dtype] > 4 * batch.max() * u(0.3, 1.5)
        self.fails |= rng.random(n) < 0.02
        self.fails &= ~self.fails.all()
        runs = np.flatnonzero(~self.fails)
        today = [k for k in runs if mode[k] == 0 and dtype[k] == 0]
        self.reference = int(today[len(today) // 3] if today else runs[0])
        if limit == "time":  # one of the faster third: a slow reference permits all
            self.reference = int(rng.choice(runs[np.argsort(self.time[runs])][: max(1, len(runs) // 3)]))
        self.amplitude = (0.01 if kind == "drift" else u(0, 0.006)) * rng.choice([-1, 1])
        self.phase, self.period = u(0, 6), u(200, 500)
        n = 100_000  # times of iterations over their mean, and the limit that they set
        shape, tail = 1 + np.abs(rng.normal(0, u(0.005, 0.03), n)), rng.random(n) < u(0.002, 0.03)
        shape = np.where(tail, shape * (1 + u(0.05, 0.5) * rng.random(n) ** (-1 / u(2, 4))), shape)
        self.shape = np.sort(shape / shape.mean())
        luck = np.exp(rng.normal(0, self.host_sd.max(), n))
        late, steady = np.quantile(self.shape * luck, 0.99), np.quantile(self.shape, 0.99)
        p99 = self.iteration_s * np.where(self.host_sd > 0, late, steady)
        self.bound_s = np.quantile(p99[runs], u(0.1, 0.9)) * np.exp(rng.normal(0, 0.01))
        if kind == "infeasible":
            self.bound_s = 0.7 * p99[runs].min()
        over = {
            "p99": np.log(p99 / self.bound_s),
            "time": self.time - self.time[self.reference] - np.log(TimeLimit().most),
        }
        self.over = np.where(self.fails, np.inf, over.get(limit, np.full(len(p99), -1.0)))

    def drift(self, clock):
        swing = np.sin(2 * np.pi * clock / self.period + self.phase) if self.kind == "drift" else 0
        return self.amplitude * (1 - np.exp(-clock / 150) + swing / 2)

    def grid_s(self):
        """Seconds to measure every setting to 1 %, with as few processes and windows (at most 30) as need be."""
        least, wanted, process = [], (0.01 / 1.96) ** 2, self.process_sd**2
        ways = [(n * (m + VISIT_S), n, m) for n in range(1, 9) for m in range(1, 31)]
        for second in (self.window_sd**2 + self.host_sd**2)[~self.fails]:
            least.append(min(way for way in ways if (process + second * (way[2] < 30) / way[2]) / way[1] <= wanted))
        return sum(seconds for seconds, *_ in least) + max(n for _, n, _ in least) * self.start_s


class Gpu:
    """The only door to the truth; ``clock`` is the cost in seconds."""

    def __init__(self, space, rng):
        self.space, self.rng, self.clock, self.processes = space, rng, 0.0, 0

    def carry_out(self, race, plan):
        """A new process that visits settings as planned; a failing one costs no more than a visit."""
        self.clock += self.space.start_s
        effects = self.rng.normal(0, self.space.process_sd, (len(self.space.fails), 2)) * (1, 0.7)
        for k, seconds in plan:
            race.fail(k) if self.space.fails[k] else race.add(self.visit(k, seconds, *effects[k]))
        self.clock += VISIT_S * len({k for k, _ in plan if self.space.fails[k]})
        self.processes += 1

    def visit(self, k, seconds, of_energy, of_time):
        space, rng, windows, counts = self.space, self.rng, [], []
        self.clock += VISIT_S
        begin, late, seconds = self.clock, bool(space.host_sd[k]), max(1, round(seconds))
        for _ in range(seconds):
            luck = rng.normal() * space.host_sd[k] + 0.2 * (space.kind == "late" and late and self.clock % 300 < 70)
            drift, scatter = space.drift(self.clock), space.window_sd[k]
            time = np.log(space.iteration_s[k]) + luck + of_time + 0.5 * drift + 0.5 * scatter * rng.normal()
            n = max(3, int(1 / np.exp(time)))
            beyond = 1 - np.searchsorted(space.shape, space.bound_s * np.array([1, 1.01]) / np.exp(time)) / 100_000
            blocks = np.unique(np.arange(n) * max(1, BLOCKS // seconds) // n, return_counts=True)[1]
            over = rng.binomial(blocks, beyond[0])
            far = rng.binomial(over, min(1, beyond[1] / max(beyond[0], 1e-9)))
            counts += np.transpose((blocks, over, far)).tolist()
            energy = space.energy[k] + luck + of_energy + drift + scatter * rng.normal()
            windows.append((energy, time - np.log(space.batch[k])))
            self.clock += max(1.0, n * np.exp(time))
        energy, time = np.array(windows).T
        sd = [np.std(of, ddof=1) / np.sqrt(len(of)) if len(of) > 1 else np.nan for of in (energy, time)]
        values = (energy.mean(), sd[0], time.mean(), sd[1], tuple(map(tuple, counts)), late)
        return Visit(k, self.processes, self.clock - begin, *values)


def trial(seed, i):
    """The row of a space: what is true of its verdict; costs in seconds."""
    space = Space(np.random.default_rng([seed, i]), KINDS[i % 6], "p99" if i % 6 == 5 else LIMITS[i // 6 % 3])
    limit = {"p99": ShareLimit(space.bound_s), "time": TimeLimit()}.get(space.limit)
    race = Race(space.candidates, space.reference, limit=limit, seed=i, start_s=space.start_s)
    gpu = Gpu(space, np.random.default_rng([seed, i, 7]))
    while plan := race.plan():
        gpu.carry_out(race, plan)
    verdict, energy, n = race.verdict(), space.energy, len(space.candidates)
    size = "12 to 29" if n < 30 else "30 to 79" if n < 80 else "80 to 200"
    row = {"kind": space.kind, "limited by": space.limit, "settings": size, "cost": gpu.clock, "grid": space.grid_s()}
    row |= {"processes": gpu.processes, "undecided": verdict.outcome == "undecided" or bool(verdict.undecided)}
    fine, k = space.over <= 0, verdict.best
    if k is None:
        none = verdict.outcome == "none" and not fine.any()
        return row | {"near": none, "promise": none or verdict.outcome == "undecided"}
    least = energy[fine].min(initial=np.inf)
    fine[[one for one, _ in verdict.undecided]] = False
    (low, high), kept = verdict.saving, bool(space.over[k] <= np.log(1.02))
    saving = low - 1e-9 <= -np.expm1(energy[k] - energy[space.reference]) <= high + 1e-9
    within = energy[k] - energy[fine].min(initial=np.inf) <= np.log1p(verdict.within) + 1e-9
    equal = np.abs(energy[list(verdict.equal)] - energy[k]) <= 0.02
    row |= {"near": energy[k] <= least + np.log(1.01) and kept, "promise": saving and within and kept}
    return row | {"saving": saving, "within": within, "limit": kept} | ({"equal": equal.mean()} if len(equal) else {})


def line(name, rows):
    """Percentages over the rows that have them; cost over that of the grid, median and of sums; median processes."""
    shown = ("near", "promise", "saving", "within", "limit", "equal", "undecided")
    columns = [[row[key] for row in rows if key in row] for key in shown]
    shares = " | ".join(f"{100 * np.mean(column):.1f}" if column else "–" for column in columns)
    cost, grid, processes = np.array([(row["cost"], row["grid"], row["processes"]) for row in rows]).T
    costs = f"{np.median(cost / grid):.2f} | {cost.sum() / grid.sum():.2f} | {np.median(processes):.0f}"
    return f"| {name} | {len(rows)} | {shares} | {costs} |"


SHARES = {"independent": {}, "processes differ": {"apart": 0.002}, "in bursts of 4": {"together": 4}}
SHARES |= {"processes differ, 1,000 iterations per s": {"apart": 0.002, "pace": 1000}}


def near_limit(seed, share, pace=100, apart=0.0, together=1, others=1):
    """True if a setting is chosen of ``others`` with that share over a p99; 15 % less energy each than one with none.

    ``pace`` iterations take a second; shares of processes are of a beta distribution with the intraclass correlation
    ``apart``; ``together`` iterations are over the limit at once.
    """
    rng, settings = np.random.default_rng(seed), [Candidate(2.0**k, ("bf16",)) for k in range(others + 1)]
    race, process = Race(settings, 0, limit=ShareLimit(1e9), seed=seed), 0
    while plan := race.plan():
        for k, seconds in plan:
            own = rng.beta(*(np.array([share, 1 - share]) * (1 / apart - 1))) if apart else share
            n = np.diff(np.linspace(0, seconds * pace, BLOCKS + 1).astype(int))
            over = together * rng.binomial(n // together, own if k else 0)
            energy, log_time = -0.15 * k + rng.normal(0, 0.005), -np.log(pace * 2.0**k)
            race.add(
                Visit(
                    k,
                    process,
                    seconds,
                    energy,
                    np.nan,
                    log_time,
                    np.nan,
                    tuple(map(tuple, np.transpose((n, over, over)))),
                )
            )
        process += 1
    return bool(race.verdict().best)


def print_shares(campaigns):
    """Percentages of campaigns that choose a setting, by its share and how iterations over the limit come."""
    print("| over the limit | 1.01 % | 1.01 %, five settings | 0.8 % | 0.5 % |", "|---" * 5 + "|", sep="\n")
    for name, how in SHARES.items():
        columns = ((0.0101, 1), (0.0101, 5), (0.008, 1), (0.005, 1))
        passed = [np.mean([near_limit(i, share, others=n, **how) for i in range(campaigns)]) for share, n in columns]
        print(f"| {name} | {' | '.join(f'{100 * one:.1f}' for one in passed)} |", flush=True)


def main(spaces=200, seed=1, detail=0, limit=0):
    if int(limit):
        print_shares(int(spaces))
        return
    rows = [trial(int(seed), i) for i in range(int(spaces))]
    print(HEADER, "|---" * 12 + "|", line("all", rows), sep="\n")
    groups = {(key, row[key]) for row in rows for key in ("kind", "limited by", "settings")}
    for key, value in sorted(groups) if int(detail) else ():
        print(line(f"{key}: {value}", [row for row in rows if row[key] == value]))


if __name__ == "__main__":
    main(*[a for a in sys.argv[1:] if "=" not in a], **dict(a.split("=") for a in sys.argv[1:] if "=" in a))
