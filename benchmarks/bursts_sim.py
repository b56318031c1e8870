"""Bursts after idle, with steps that swing in power inside, on simulated H100s whose sensor samples as real ones do.

Each GPU has its own sample rate and is calibrated as a real one would be. Bursts of iterations with a high and a
low phase then follow one another with idle time between, so that they begin at any phase of the sampling. Every burst
is measured as a named range of a recording that marks its steps, as ``jouletrace.record`` does it. Truth is the
energy that the burst caused.

    python benchmarks/bursts_sim.py --seed 101
    python benchmarks/bursts_sim.py --rates 1230 --each 5
"""

import os
import tempfile
from collections import defaultdict
from itertools import pairwise

import numpy as np

from jouletrace.analysis import analyse
from jouletrace.devices import open_device
from jouletrace.profiler.calibrate import calibrate
from jouletrace.recording.session import Session
from jouletrace.run import Estimate, Run
from jouletrace.run.readings import ALIASED
from jouletrace.simulator.boards import Schedule, SimKernel
from judging import Case, judged, options

RATES = (1190, 1203, 1216, 1230, 1243, 1255)
LENGTHS = (0.05, 0.2, 1.0, 3.0)
STATED_S = 1 / 1230
"""Time between samples, as documented; a GPU's own is hidden."""

KINDS = {
    "phases of 1 to 20 ms": lambda rng: rng.uniform(np.log(1e-3), np.log(20e-3), 2),
    "periods within 3 % of 1, 2 or 3 / 1230 s": lambda rng: split(rng, rng.integers(1, 4) * rng.uniform(0.97, 1.03)),
    "other periods of 0.3 to 2.5 ms": lambda rng: split(rng, elsewhere(rng)),
}


def split(rng: np.random.Generator, samples: float) -> np.ndarray:
    """Logarithms of both phases of a step so many samples long."""
    share = rng.uniform(0.3, 0.7)
    return np.log(samples * STATED_S * np.array([share, 1 - share]))


def elsewhere(rng: np.random.Generator) -> float:
    """Samples in a step that is no multiple of one, nor a half, within 5 %."""
    while True:
        samples = float(np.exp(rng.uniform(np.log(0.3e-3), np.log(2.5e-3)))) / STATED_S
        if min(abs(samples / near - 1) for near in (0.5, 1, 2, 3)) > 0.05:
            return samples


def recorded(rate_hz: float, seed: int, each: int, calibrated: bool) -> tuple[Run, list[tuple]]:
    """The recording of all bursts on one GPU; kind, length and truth of each."""
    spec = f"sim:h100-80?seed={seed}&sensor=sampled&given=sample_rate_hz:{rate_hz}"
    if calibrated:
        calibrate(spec, seed=seed)
    device = open_device(f"{spec}&run=1")
    rng = np.random.default_rng([seed, 200])
    plan = [(kind, length) for kind in KINDS for length in LENGTHS for _ in range(each)]
    ran = []
    with Session("record", [device]) as session:
        device.board.load(300.0, 2.0)
        session.clock.sleep(2.0)
        for kind, length_s in (plan[i] for i in rng.permutation(len(plan))):
            phases = np.exp(KINDS[kind](rng))
            watts = np.array([rng.uniform(280, 500), rng.uniform(10, 250)])[:: rng.choice([1, -1])]
            count = max(1, round(length_s / phases.sum()))
            schedule = Schedule([SimKernel("phase", float(s), float(w)) for s, w in zip(phases, watts, strict=True)])
            start, end = device.board.run(schedule, count)
            add(session, f"burst {len(ran)}", start + np.arange(count + 1) * (end - start) // count)
            ran.append((kind, length_s, start, end))
            session.clock.sleep(float(rng.uniform(0.5, 1.0)))
        session.clock.sleep(1.0)
        run = analyse(session.finish())
    found = [(*what, device.truth.caused_energy_j(start, end)) for *what, start, end in ran]
    device.close()
    return run, found


def energies(run: Run, count: int) -> list[Estimate]:
    """The energies of so many bursts, in order."""
    units = {row["name"]: row["id"] for row in run.units.to_pylist()}
    return [run.result("energy_total_j", units[f"burst {number}"]) for number in range(count)]


def add(session: Session, name: str, edges: np.ndarray) -> None:
    """A range with its steps, as ``jouletrace.record`` marks them."""
    about = {"name": "step", "lane": "main"}
    rows = [{"id": 0, "kind": "range", **about, "name": name, "start_ns": int(edges[0]), "end_ns": int(edges[-1])}]
    for i, (start, end) in enumerate(pairwise(edges.tolist()), start=1):
        rows.append({"id": i, "parent": 0, "kind": "iteration", **about, "start_ns": start, "end_ns": end})
    session.add_spans(rows)


def cells(cases: list[Case]) -> list[str]:
    """Of bursts of one length: how many, errors and half-widths in %, how many hold, how many are flagged and null."""
    found, plain = judged(cases), judged([case for case in cases if ALIASED not in case[0].flags])
    error = 100 * found.error
    shares = [f"{one.held.sum()} of {one.n} ({100 * one.held.sum() / max(one.n, 1):.0f} %)" for one in (found, plain)]
    return [
        str(len(cases)),
        f"{error.mean():+.2f} ± {error.std():.2f}",
        f"{np.abs(error).max():.1f}",
        f"{100 * np.median(found.half):.2f}",
        *shares,
        str(found.n - plain.n),
        str(len(cases) - found.n),
    ]


HEAD = (
    "| burst | n | error ± sd % | worst % | median half-width % | covered | of it unflagged | flagged | null |\n"
    + "|"
    + "---|" * 9
)


def main() -> None:
    parser = options(__doc__, each=8, seed=1)
    parser.add_argument("--rates", type=lambda text: [float(one) for one in text.split(",")], default=list(RATES))
    asked = parser.parse_args()
    os.environ["JOULETRACE_CACHE"] = tempfile.mkdtemp()
    found: dict[tuple[str, float], list[Case]] = defaultdict(list)
    for number, rate_hz in enumerate(asked.rates):
        run, ran = recorded(rate_hz, asked.seed + number, asked.each, calibrated=True)
        for (kind, length_s, truth), energy in zip(ran, energies(run, len(ran)), strict=True):
            found[kind, length_s].append((energy, truth))
        print(f"board {number}: {rate_hz:g} Hz, {sum(map(len, found.values()))} bursts", flush=True)
    for kind in KINDS:
        print(f"### Steps with {kind}\n\n{HEAD}")
        for length_s in LENGTHS:
            print(f"| {length_s:g} s | {' | '.join(cells(found[kind, length_s]))} |")
        print()


if __name__ == "__main__":
    main()
