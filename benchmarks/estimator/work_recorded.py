"""Work of host-bound programs on recordings of a GPU: processes of ``gpu.py`` with a truth, and Runs without one.

    python benchmarks/estimator/work_recorded.py FOLDER/host-*.npz RUN.zip... -o FILE.json

Truth by the energy counter: of a loop less idle power before and after it, and of blocks with pauses of other lengths.
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import gpu_truth
import numpy as np
from gpu_files import read
from gpu_recorded import REST_NS, _chosen, host
from gpu_ways import RESPONSE, Case

from jouletrace.analysis.power import readings
from jouletrace.arrays import Floats
from jouletrace.attribution.attribute import attribute
from jouletrace.attribution.work import Work, work
from jouletrace.run import load
from jouletrace.run.spans import spans_of

WINDOW = 45
"""Iterations of each window of the loop."""

LOADED = ("latency", "energy", "listing", "tracing")
"""Phases of a Run in which iterations run; "context idle" is between them."""


def row_of(found: Work) -> dict:
    """Work in mJ, idle power in W, and what checks say."""
    mean, low, high = found.unknowns.interval()
    checks = {found.outcome.code: {"agree": found.outcome.passed, "difference": found.outcome.estimate}}
    half = (high - low) / 2
    return {"work_mj": 1e3 * mean[-1], "half_mj": 1e3 * half[-1], "idle_w": mean[0], "idle_half_w": half[0]} | checks


def solved(
    times_s: Floats, values_w: Floats, idle_s: Floats, windows_s: Floats, counts: Floats, bursts_s: Floats
) -> dict:
    """The row of windows with their iterations, between spans of idle power."""
    spans = np.vstack([idle_s, windows_s])
    near = (times_s > spans.min() - 0.05) & (times_s < spans.max() + 0.1)
    energies = attribute(times_s[near], values_w[near], spans, response=RESPONSE, bursts=bursts_s)
    return row_of(work(energies, spans, np.append(np.zeros(len(idle_s)), counts)))


def of_process(path: Path) -> Iterator[dict]:
    """A row for each way: the loop, and the loop with blocks that pause."""
    case = Case.of(read(path))
    steps, found = gpu_truth.steps_of(case.found), host(case)
    (loop,), blocks = _chosen(case, name="loop"), _chosen(case, name="block")
    first = np.append(found.iterations_s[:, 0], found.iterations_s[-1, 1])
    start, end = first[0], first[-1]
    edges = np.append(first[: -2 * WINDOW : WINDOW], end)
    windows, counts = np.stack([edges[:-1], edges[1:]], axis=1), np.diff(np.searchsorted(first, edges)).astype(float)
    paused = np.stack([case.record.seconds(one) for one in gpu_truth.edges(blocks)], axis=1)
    rest = np.array([[start - 1.8, start - 0.02], [end + 0.1, end + 1.9]])
    between = np.stack([paused[:-1, 1] + 0.08, paused[1:, 0] - 0.01], axis=1)
    loop_j, (truth_j,) = gpu_truth.of_loop(loop, REST_NS, steps), found.truth.energy_j
    about = {"recording": f"{path.parent.name}/{path.stem}", "iterations": len(found.iterations_s)}
    about |= {"ms": 1e3 * (end - start) / len(found.iterations_s), "loop_by_counter_mj": 1e3 * loop_j}
    about |= {"blocks_by_counter_mj": 1e3 * truth_j, "blocks_half_mj": 1e3 * float(found.truth.half_j[0])}
    plain = (case.times_s, case.record.value)
    yield about | {"way": "loop"} | solved(*plain, rest, windows, counts, windows)
    both, each = np.vstack([windows, paused]), np.append(counts, [block["iterations"] for block in blocks])
    yield about | {"way": "with pauses"} | solved(*plain, np.vstack([rest, between]), both, each, both)


def of_run(path: Path) -> Iterator[dict]:
    """A row of a Run's windows."""
    run = load(path)
    found = readings(run, run.devices[0].id)
    assert found is not None
    record, phases = found[0], spans_of(run, "phase")
    table = run.windows.to_pandas().query("variant == 'untouched'").sort_values("start_ns")
    windows = np.stack([record.seconds(table[key].to_numpy()) for key in ("start_ns", "end_ns")], axis=1)
    names = ("context idle before", "context idle after")
    rest = np.vstack([np.stack([record.seconds(one) for one in phases.named(name).edges_ns], axis=1) for name in names])
    loaded = [np.stack([record.seconds(one) for one in phases.named(name).edges_ns], axis=1) for name in LOADED]
    bursts = []
    for start, end in np.vstack(loaded).tolist():  # each window has a level of its own, and so has what runs before it
        inside = windows[(windows[:, 0] >= start) & (windows[:, 0] < end)]
        edges = [start, *inside[:, 0], max([end, *inside[:, 1]])]
        bursts += [list(one) for one in itertools.pairwise(edges)]
    counts = table["replays"].to_numpy(np.float64)
    rest += [0.1, -0.02]
    row = solved(record.time_s, record.value, rest, windows, counts, np.array(sorted(bursts)))
    yield {"recording": path.stem, "ms": 1e3 * np.diff(windows).sum() / counts.sum(), "way": "windows"} | row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("-o", "--output", help="write the rows here, as JSON")
    arguments = parser.parse_args()
    rows = []
    for path in arguments.paths:
        for row in of_process(path) if path.suffix == ".npz" else of_run(path):
            rows.append(row)
            print(json.dumps(row), flush=True)
    if arguments.output:
        Path(arguments.output).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
