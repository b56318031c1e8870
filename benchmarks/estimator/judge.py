"""Judge estimators of a burst's energy on simulated records that they have not seen.

    python benchmarks/estimator/judge.py bursts --n 40 -o FILE.json library
    python benchmarks/estimator/judge.py stated --simulators sampled library PATH/OF/mine.py

An estimator is a module, of this folder or by path, with ``estimate(times_s, values_w, spans, **known)``, which returns
means, lower and upper ends (J, shape (s,)) and, if it can, the means at every fixed grid point (shape (g, s)).
``known`` has ``rise_s`` and ``delay_s`` of the sensor, ``period_s`` where the period is stated, and ``stamps_s``, the
stamps as the driver gave them: ``times_s`` are on the grid behind them, ``times_sd_s`` says how well each is known. Of
sensors whose readings are means it has ``channel``, which states the kind.
"""

import argparse
import functools
import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import continuous
import loads
import means
import numpy as np
import sampled
from loads import Record

from jouletrace.sensor.stamps import find_grid

SIMULATORS = {"sampled": sampled.record, "continuous": continuous.record}
MEANS = {name: functools.partial(means.record, kind) for name, kind in means.KINDS.items()}
LENGTHS_S = (0.02, 0.05, 0.2, 1.0, 3.0)
EXACT = ("exact 10 ms", "exact 20 ms", "exact 40 ms")
DELAY_S = 0.0034
ORIGIN_NS = 1_700_000_000_000_000_000

Estimator = Callable[..., tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Group:
    """Bursts that are judged together."""

    simulator: str
    shape: str
    length_s: float
    off: float = 0.0  # by how much the response that is given is wider or narrower than the true one, relative
    stated: bool = False  # whether the period is given

    def records(self, n: int, seed: int) -> Iterator[tuple[Record, dict]]:
        """Records with what is known of each."""
        for i in range(n):
            rng = np.random.default_rng(
                [seed, i, *self.simulator.encode(), *self.shape.encode(), int(self.length_s * 1e3)]
            )
            burst = loads.drawn(self.shape, self.length_s, rng)
            if self.simulator in MEANS:
                yield MEANS[self.simulator](burst, rng), {"channel": means.channel(self.simulator)}
                continue
            found = SIMULATORS[self.simulator](burst, rng)
            known = {
                "rise_s": found.rise_s * (1 + self.off * (-1) ** i),
                "delay_s": DELAY_S,
                "stamps_s": found.stamps_s,
            }
            if self.stated:
                known["period_s"] = burst.period_s
            yield found, known


def groups(what: str, simulators: list[str]) -> list[Group]:
    """The groups of one table."""
    if what == "means":
        shapes, lengths = ("constant", "alternating", "pulses", "ramp"), (0.2, 1.0, 3.0, 10.0)
        return [Group(name, shape, length) for name in simulators for shape in shapes for length in lengths]
    plain = [shape for shape in loads.SHAPES if shape not in EXACT]
    each = {
        "bursts": [(shape, length, 0.0, False) for shape in plain for length in LENGTHS_S],
        "exact": [(shape, length, 0.0, False) for shape in EXACT for length in LENGTHS_S],
        "stated": [(shape, length, 0.0, True) for shape in ("alternating", *EXACT) for length in LENGTHS_S],
        "off": [
            (shape, length, off, False)
            for shape in ("constant", "alternating", "pulses", "ramp", "cap")
            for length in (0.05, 0.2, 1.0)
            for off in (0.05, 0.2)
        ],
    }[what]
    return [Group(simulator, *one) for one in each for simulator in simulators]


def loaded(name: str) -> Estimator:
    """The estimator of a module of this folder, or of a path."""
    path = Path(name)
    if path.suffix != ".py":
        return importlib.import_module(name).estimate
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.estimate


def on_grid(stamps_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times of the readings, late stamps lying at the half slot before them, and how well each is known."""
    grid = find_grid(ORIGIN_NS + np.rint(stamps_s * 1e9).astype(np.int64), 0.02)
    return stamps_s[0] + np.maximum.accumulate(grid.taken(2)), grid.unsure_s


def judged(group: Group, estimators: dict[str, Estimator], n: int, seed: int) -> dict:
    """One row: of each estimator how many hold, how wide they are, and how wide its best grid point would be."""
    rows: dict[str, list] = {name: [] for name in estimators}
    grids: dict[str, list] = {name: [] for name in estimators}
    spent = dict.fromkeys(estimators, 0.0)
    for record, known in group.records(n, seed):
        if "channel" in known:
            times = record.stamps_s
        else:
            times, known["times_sd_s"] = on_grid(record.stamps_s)
        for name, estimate in estimators.items():
            began = time.perf_counter()
            try:
                mean, low, high, *rest = estimate(times, record.watts, [record.span_s], **known)
            except (ValueError, np.linalg.LinAlgError) as error:
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
                mean, low, high, rest = [np.nan], [np.nan], [np.nan], []
            spent[name] += time.perf_counter() - began
            rows[name].append((mean[0], low[0], high[0], record.energy_j))
            if rest and rest[0] is not None:
                grids[name].append(np.asarray(rest[0])[:, 0] / record.energy_j - 1)
    row = asdict(group) | {"n": n}
    for name, values in rows.items():
        mean, low, high, truth = np.array(values).T
        given = np.isfinite(mean)
        known = {"null": float(1 - given.mean()), "seconds": spent[name] / n}
        if given.any():
            error = (mean / truth - 1)[given]
            known |= {
                "holds": float(((low <= truth) & (truth <= high))[given].mean()),
                "half_pct": float(100 * np.median(((high - low) / 2 / truth)[given])),
                "bias_pct": float(100 * error.mean()),
                "error95_pct": float(100 * np.quantile(np.abs(error), 0.95)),
            }
        if grids[name]:
            few = min(map(len, grids[name]))
            errors = np.abs(np.array([one[:few] for one in grids[name]]))
            known["oracle_pct"] = float(100 * np.quantile(errors, 0.95, axis=0).min())
        row[name] = known
    return row


def line(row: dict, names: list[str]) -> str:
    """A row of the printed table."""
    off = f", {row['off']:.0%} off" if row["off"] else ""
    shape = row["shape"] + off + (", stated" if row["stated"] else "")
    text = f"{row['simulator'][:14]:14} {shape:22} {row['length_s']:5g} s n {row['n']:3d}"
    for name in names:
        one = row[name]
        text += f" | {name}:"
        if "holds" in one:
            text += f" {100 * one['holds']:5.1f} % hold, ± {one['half_pct']:5.2f} %, errors {one['error95_pct']:5.2f}"
        text += f" (best {one['oracle_pct']:5.2f})" if "oracle_pct" in one else ""
        text += f", null {100 * one['null']:.0f} %" if one["null"] else ""
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("bursts", "exact", "stated", "off", "means"))
    parser.add_argument("estimators", nargs="+")
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--simulators", nargs="+", choices=(*SIMULATORS, *MEANS))
    parser.add_argument("-o", "--output", help="write the rows here, as JSON, after each")
    arguments = parser.parse_args()
    estimators = {Path(name).stem: loaded(name) for name in arguments.estimators}
    rows = []
    usual = MEANS if arguments.what == "means" else SIMULATORS
    for group in groups(arguments.what, arguments.simulators or list(usual)):
        rows.append(judged(group, estimators, arguments.n, arguments.seed))
        print(line(rows[-1], list(estimators)), flush=True)
        if arguments.output:
            Path(arguments.output).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
