"""Bills by the steps that streamed answers show, against those by the scheduler's own steps, without a GPU.

    PYTHONPATH=src python benchmarks/serving_streams.py

Rows: a simulated scheduler, whose chunks arrive at the end of steps, later by an exponential delay; and four loads
recorded on an H200 with its server's log of steps. Ratios of bills of single requests, mean and scatter; of prefill's
energy, all loads together; and bills by the timeline of requests.
"""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np

import judging  # noqa: F401  # makes scheduled_runs importable
from jouletrace.analysis import analyse
from jouletrace.run import Run, load, tables
from jouletrace.run.parts import Parts
from jouletrace.wings.serving.analysis.streams import AnswerStream, add_streams
from scheduled_runs import Law, drawn, scheduled_level, scheduled_run, streams_of
from serving import bills

RUNS = Path(__file__).parents[1] / "docs" / "results" / "runs"
DELAYS_S = (0.0, 0.001, 0.003)


def prefill_j(run: Run) -> float:
    """Of all loads, J."""
    results = Parts(run)
    return sum(load.get("energy_prefill_j").value or 0.0 for load in results.units("load"))


def row(name: str, run: Run, streams: list[AnswerStream] | None) -> None:
    """Print a line: bills by these answers, or by the timeline of requests, over those by the run's steps."""
    true, found = analyse(deepcopy(run)), deepcopy(run)
    found.steps = tables.empty("steps")
    add_streams(found, streams or [])
    together = found.workload["serving"].pop("streamed", np.nan)
    found.workload["serving"] |= {"streamed": 1.0} if streams else {}
    found = analyse(found)
    ratio = bills(found) / bills(true)
    ratio = ratio[np.isfinite(ratio)]
    prefill = f"{prefill_j(found) / prefill_j(true):.3f}" if streams else "–"
    print(
        f"| {name} | {together:.3f} | {ratio.mean():.3f} ± {ratio.std():.3f} | {prefill} | {len(ratio)} |", flush=True
    )


def main() -> None:
    """Print the table."""
    print("| steps | together | bill / by the log | prefill / by the log | requests |\n|---|---|---|---|---|")
    for most_new in (4096, 512):
        law, rng = replace(Law(), most_new=most_new), np.random.default_rng(1)
        levels = [scheduled_level(law, *drawn(rng, rate, 60, (50, 1500), (20, 200))) for rate in (1, 2, 4)]
        run, *_ = scheduled_run(law, levels, seed=1)
        name = f"simulated, at most {most_new} prompt tokens per step"
        for delay_s in DELAYS_S:
            row(f"{name}, {1e3 * delay_s:g} ms", run, streams_of(levels, jitter_s=delay_s))
        row(f"{name}, timeline", run, None)
    shown, logged = (load(RUNS / f"serving-rates-a{end}-h200.zip") for end in ("", "-logged"))
    ratio = bills(shown) / bills(logged)
    ratio = ratio[np.isfinite(ratio)]
    together, prefill = shown.workload["serving"]["streamed"], prefill_j(shown) / prefill_j(logged)
    print(f"| on an H200 | {together:.3f} | {ratio.mean():.3f} ± {ratio.std():.3f} | {prefill:.3f} | {len(ratio)} |")
    row("the same, timeline", logged, None)


if __name__ == "__main__":
    main()
