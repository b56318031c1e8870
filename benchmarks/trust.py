"""Share of Runs with "trust: yes", and how often figures hold under each level, on simulated Runs whose truth is known.

    python benchmarks/trust.py ROWS.csv --seeds 2 [--first 1] [--groups profile log ...]
    python benchmarks/trust.py ROWS.csv --seeds 0        # only the table

Runs are made by the code that users run (``trust_runs.py``): profiles, monitors, recordings, imports, loads of a
server. Each figure with an interval is judged against what the simulator drew: of a profile the energy, power and idle
power of the model, and energies of layers and operators; of a program the whole and its kernels; of a recording its
ranges.
"""

import csv
import os
import sys
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

from jouletrace.analysis.checks import outcomes
from jouletrace.run.parts import Parts
from judging import options
from trust_runs import HEALTHY, OTHERS


def judged(group: str, healthy: bool, seed: int) -> dict[str, Any]:
    """A row: the level, codes, figures, and how many hold; names of those that don't."""
    make = (HEALTHY if healthy else OTHERS)[group]
    with tempfile.TemporaryDirectory() as cache, patch.dict(os.environ, {"JOULETRACE_CACHE": cache}):
        run, figures = make(seed)
    known = [(name, one, truth) for name, one, truth in figures if one.low is not None and one.high is not None]
    missed = [name for name, one, truth in known if not one.low <= truth <= one.high]
    found = outcomes(run, Parts(run))
    return {
        "group": group,
        "healthy": int(healthy),
        "seed": seed,
        "level": found.level,
        "codes": " ".join(dict.fromkeys(one.code for one in found.failed)),
        "figures": len(known),
        "held": len(known) - len(missed),
        "missed": " ".join(missed[:4]).replace("\n", " "),
    }


def cell(rows: list[dict[str, Any]]) -> str:
    """Share of the figures of some Runs that hold."""
    figures, held = (sum(int(row[name]) for row in rows) for name in ("figures", "held"))
    return f"{100 * held / figures:.1f} of {figures}" if figures else "–"


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Lines by group, and of all; Runs that are healthy apart from others."""
    lines = ["| Runs | n | trust: yes, % | hold under yes, % | with care | no | codes |", "|---" * 7 + "|"]
    groups = {row["group"]: [one for one in rows if one["group"] == row["group"]] for row in rows}
    for name, healthy in (("**healthy**", 1), ("**others**", 0)):
        groups[name] = [row for row in rows if int(row["healthy"]) == healthy]
    for name, some in groups.items():
        by = {level: [row for row in some if row["level"] == level] for level in ("yes", "with care", "no")}
        codes = Counter(code for row in some for code in row["codes"].split())
        said = "" if name.startswith("**") else ", ".join(f"{code} {n}" for code, n in codes.most_common())
        share = 100 * len(by["yes"]) / max(len(some), 1)
        lines.append(f"| {name} | {len(some)} | {share:.0f} | {' | '.join(map(cell, by.values()))} | {said} |")
    return lines


def main() -> None:
    """Judge, and print the table."""
    parser = options(__doc__, seeds=2, first=1, groups=[""])
    parser.add_argument("rows", type=Path, help="CSV of rows; what it has isn't made again")
    asked = parser.parse_args()
    rows = list(csv.DictReader(asked.rows.open())) if asked.rows.exists() else []
    done = {(row["group"], int(row["seed"])) for row in rows}
    names = [name for name in (*HEALTHY, *OTHERS) if name.startswith(tuple(asked.groups))]
    for name, seed in product(names, range(asked.first, asked.first + asked.seeds)):
        if (name, seed) in done:
            continue
        rows.append(judged(name, name in HEALTHY, seed))
        with asked.rows.open("a", newline="") as out:
            writer = csv.DictWriter(out, list(rows[-1]), lineterminator="\n")
            if len(rows) == 1:
                writer.writeheader()
            writer.writerow(rows[-1])
        print(*rows[-1].values(), sep=" | ", file=sys.stderr, flush=True)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
