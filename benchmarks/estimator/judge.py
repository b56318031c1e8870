"""Judge the estimator by energies of bursts in simulated records that it has not seen.

    python benchmarks/estimator/judge.py bursts --n 40 -o FILE.json
    python benchmarks/estimator/judge.py stated --simulators sampled

It is asked for one burst, without a timeline. Of a sensor that samples it gets the response and the delay, the period
where that is stated, and times on the grid behind the stamps; of sensors whose readings are means what a channel
states.
"""

import functools
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import loads
import numpy as np
from loads import Floats, Record

import records
from jouletrace.attribution.attribute import attribute
from jouletrace.sensor.kinds import readings_of
from jouletrace.sensor.shares import Response
from jouletrace.sensor.stamps import find_grid
from judging import options, percents, written

SIMULATORS = {"sampled": records.sampled, "continuous": records.continuous}
MEANS = {name: functools.partial(records.means, kind) for name, kind in records.KINDS.items()}
LENGTHS_S = (0.02, 0.05, 0.2, 1.0, 3.0)
EXACT = ("exact 10 ms", "exact 20 ms", "exact 40 ms")
DELAY_S, BEFORE_S = 0.0034, 0.7
"""Delay of the sensor; record before a burst that is used: idle power wanders."""

ORIGIN_NS = 1_700_000_000_000_000_000


@dataclass(frozen=True)
class Group:
    """Bursts that are judged together."""

    simulator: str
    shape: str
    length_s: float
    off: float = 0.0  # by how much the response that is given is wider or narrower than the true one, relative
    stated: bool = False  # whether the period is given

    def records(self, n: int, seed: int) -> Iterator[tuple[Record, tuple[Floats, Floats], dict[str, Any]]]:
        """Records, the times and readings that are used, and what else the estimator gets."""
        for i in range(n):
            rng = np.random.default_rng(
                [seed, i, *self.simulator.encode(), *self.shape.encode(), int(self.length_s * 1e3)]
            )
            burst = loads.drawn(self.shape, self.length_s, rng)
            if self.simulator in MEANS:
                found = MEANS[self.simulator](burst, rng)
                response = readings_of(records.channel(self.simulator))
                yield found, (found.stamps_s, found.watts), {"response": response}
                continue
            found = SIMULATORS[self.simulator](burst, rng)
            times_s, sd_s = on_grid(found.stamps_s)
            use = times_s > found.span_s[0] - BEFORE_S
            rise_s = found.rise_s * (1 + self.off * (-1) ** i)
            known = {"response": Response(rise_s, 0.02, DELAY_S, 2e-4, 1 / 16, 0.35, 0.02), "times_sd_s": sd_s[use]}
            known["period_s"] = burst.period_s if self.stated else None
            yield found, (times_s[use], found.watts[use]), known


def groups(what: str, simulators: list[str]) -> list[Group]:
    """The groups of one table."""
    if what == "means":
        shapes, lengths = ("constant", "alternating", "pulses", "ramp"), (0.2, 1.0, 3.0, 10.0)
        return [Group(name, shape, length) for name in simulators for shape in shapes for length in lengths]
    shapes, lengths, offs = {
        "bursts": ([shape for shape in loads.SHAPES if shape not in EXACT], LENGTHS_S, (0.0,)),
        "exact": (EXACT, LENGTHS_S, (0.0,)),
        "stated": (("alternating", *EXACT), LENGTHS_S, (0.0,)),
        "off": (("constant", "alternating", "pulses", "ramp", "cap"), (0.05, 0.2, 1.0), (0.05, 0.2)),
    }[what]
    each = [(shape, length, off, what == "stated") for shape in shapes for length in lengths for off in offs]
    return [Group(simulator, *one) for one in each for simulator in simulators]


def on_grid(stamps_s: Floats) -> tuple[Floats, Floats]:
    """Times of the readings, late stamps lying at the half slot before them, and how well each is known."""
    grid = find_grid(ORIGIN_NS + np.rint(stamps_s * 1e9).astype(np.int64), 0.02)
    return stamps_s[0] + np.maximum.accumulate(grid.taken(2)), grid.unsure_s


def judged(group: Group, n: int, seed: int) -> dict[str, Any]:
    """One row: how many hold, and how wide they are."""
    rows, spent = [], 0.0
    for record, read, known in group.records(n, seed):
        began = time.perf_counter()
        found = attribute(*read, [record.span_s], **known)
        rows.append([*(end[0] for end in found.interval()), record.energy_j])
        spent += time.perf_counter() - began
    return asdict(group) | {"n": n, "seconds": spent / n} | percents(*np.transpose(rows))


def line(row: dict[str, Any]) -> str:
    """A row of the printed table."""
    off = f", {row['off']:.0%} off" if row["off"] else ""
    shape = row["shape"] + off + (", stated" if row["stated"] else "")
    text = f"{row['simulator'][:14]:14} {shape:22} {row['length_s']:5g} s n {row['n']:3d} |"
    if "holds" in row:
        text += f" {100 * row['holds']:5.1f} % hold, ± {row['half_pct']:5.2f} %, errors {row['error95_pct']:5.2f}"
    return text + (f", null {100 * row['null']:.0f} %" if row["null"] else "")


def main() -> None:
    parser = options(__doc__, n=200, seed=1)
    parser.add_argument("what", choices=("bursts", "exact", "stated", "off", "means"))
    parser.add_argument("--simulators", nargs="+", choices=(*SIMULATORS, *MEANS))
    parser.add_argument("-o", "--output", help="write the rows here, as JSON, after each")
    asked = parser.parse_args()
    each = groups(asked.what, asked.simulators or list(MEANS if asked.what == "means" else SIMULATORS))
    written((judged(group, asked.n, asked.seed) for group in each), asked.output, line)


if __name__ == "__main__":
    main()
