"""Bills by the steps that streamed answers show, against those by the scheduler's own steps, without a GPU.

    PYTHONPATH=src python benchmarks/serving_streams.py

Rows: a simulated scheduler, and Runs recorded on an H100 with its server's log of steps; chunks arrive at the end of
steps, later by an exponential delay. Ratios of bills of single requests, mean and scatter; of prefill's energy, all
loads together; and bills by the timeline of requests.
"""

import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np

from jouletrace.analysis import analyse
from jouletrace.analysis.serving.streams import Stream, add_streams, stream_of
from jouletrace.report.results import Results
from jouletrace.run import Run, load, tables

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from scheduled_runs import Law, drawn, scheduled_level, scheduled_run, streams_of

RUNS = Path(__file__).parents[1] / "docs" / "results" / "runs"

RECORDED = ("serving-rates-a", "serving-rates-b", "serving-short")
DELAYS_S = (0.0, 0.001, 0.003)


def bills(run: Run) -> np.ndarray:
    """Of each request, J; NaN of those that are not within a steady window as a whole."""
    return np.where(run.requests["billed"].to_numpy() == 1.0, run.requests["energy_j"].to_numpy(), np.nan)


def prefill_j(run: Run) -> float:
    """Of all loads, J."""
    results = Results(run)
    return sum(results.get("energy_prefill_j", one["id"]).value or 0.0 for one in results.units("load"))


def logged_streams(run: Run, delay_s: float, seed: int = 0) -> list[Stream]:
    """Answers whose chunks arrive after the logged steps, from that before the first token on."""
    rng, end = np.random.default_rng(seed), run.steps["end_ns"].to_numpy()
    reads = np.flatnonzero(run.steps["new_tokens"].to_numpy() > 0)
    found = []
    for row in run.requests.to_pylist():
        if row["status"] == "ok":
            first = reads[np.searchsorted(end[reads], row["first_ns"], side="right") - 1]
            arrived = end[first : first + row["output_tokens"]] + 2e6
            arrived = np.maximum.accumulate(arrived + rng.exponential(1e9 * delay_s + 1e-9, len(arrived)))
            found.append(stream_of(row, arrived - row["sent_ns"]))
    return [one for one in found if one is not None]


def row(name: str, run: Run, streams: list[Stream] | None) -> None:
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
    for name in RECORDED:
        run = load(RUNS / f"{name}-h100.zip")
        for delay_s in DELAYS_S:
            row(f"{name}, {1e3 * delay_s:g} ms", run, logged_streams(run, delay_s))
        row(f"{name}, timeline", run, None)


if __name__ == "__main__":
    main()
