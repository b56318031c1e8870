"""How often intervals of mean power hold where each reading of a collector is in several rows of a log.

    python benchmarks/held_readings.py [--loads 100] [--collectors 30 120] [--noise-w 0.5] [--step-w 0]

A collector reads power every 30 or 120 s; a tool asks it every 1 to 30 s, for an hour. Loads switch between 100 and
300 W, with spells of 20 to 90 s. Beside each: the same readings written once, each at its time.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from judging import Case, options  # first: it makes those of tests/support importable

from held_logs import Collector, Load, answer, asked, imported, judged, table  # isort: skip

SECONDS = 3600.0
ROWS_S = {30.0: (1.0, 5.0, 15.0, 30.0), 120.0: (5.0, 15.0, 30.0)}

Rows = Callable[[np.ndarray], np.ndarray]


def cases(form: str, period_s: float, rows: Rows, given: argparse.Namespace) -> list[Case]:
    """Mean powers of each load and their truths, where rows come at the times that ``rows`` makes of a collector's."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.loads):
            rng, path = np.random.default_rng(seed), Path(folder) / "log"
            load = Load.drawn(rng, SECONDS + 2 * period_s)
            reading_s, power_w = Collector(period_s, given.noise_w, given.step_w).readings(rng, load, SECONDS)
            at = rows(reading_s)
            log = at, asked(reading_s, power_w, at)
            found.append(judged(imported(answer(path, log) if form == "DCGM" else table(path, *log)), load))
    return found


def held(found: list[Case]) -> tuple[str, float]:
    """How many intervals hold, and their median half-width in W."""
    known = [(one, truth) for one, truth in found if one.half_width is not None]
    hits = sum(one.low <= truth <= one.high for one, truth in known)
    return f"{hits} of {len(known)}", float(np.median([one.half_width for one, _ in known]))


def main() -> None:
    given = options(
        __doc__, loads=100, collectors=[30.0, 120.0], noise_w=0.5, step_w=0.0, files=["DCGM", "table"]
    ).parse_args()
    print("| file | collector | rows | held | half-width | once: held | once: half-width | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for form in given.files:
        for period_s in given.collectors:
            once, once_w = held(cases(form, period_s, lambda at: at[(at >= 0) & (at < SECONDS)], given))
            for row_s in ROWS_S[period_s]:
                hits, half_w = held(cases(form, period_s, lambda _, step=row_s: np.arange(0.0, SECONDS, step), given))
                each = form, f"{period_s:g} s", f"{row_s:g} s", hits, f"± {half_w:.1f} W"
                each += once, f"± {once_w:.1f} W", f"{half_w / once_w:.2f}"
                print(f"| {' | '.join(each)} |", flush=True)


if __name__ == "__main__":
    main()
