"""Figures of the pages on H200s from their Runs and from what the energy counter said beside them, for ``stated.py``.

    python benchmarks/gpu_pages.py    # prints the rows of the pages from the Runs in docs/results/runs/h200

``results_gpu.py`` records the Runs; a row is claimed as soon as its Run is there. The JSON beside a Run is what the
program wrote (``programs/common.py``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jouletrace.analysis import analyse
from jouletrace.analysis.parts import recorded_of
from jouletrace.analysis.power import energies, power_record
from jouletrace.run import Estimate, Run, divisions_of, load
from jouletrace.run.figures import Figures
from jouletrace.run.parts import Parts
from jouletrace.run.recording_names import IDLE_NAME, WAITING

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "docs" / "results" / "runs" / "h200"
TWO_GPUS = {"ddp": RUNS.parent / "ddp-run-h200.zip", "fsdp": ROOT / "tests" / "data" / "fsdp-two-h200.zip"}

OF_LONG = ("complete", "workload", "trust", "headline", "model", "checks", "conditions", "warnings")
"""Keys that are kept of the JSON of the long program's Run, which itself is large."""


@cache
def opened(place: Path, again: bool) -> Run:
    """A Run, its kernels analysed again; one that has none, or whose kernels were cut, states what it did."""
    run = load(place)
    return analyse(run) if again and len(run.activity) else run


def beside(place: Path) -> Any:
    """Return what the program said of itself."""
    return json.loads(place.with_suffix(".json").read_text())


def window(run: Run, counter: Mapping[str, float]) -> list[float]:
    """Energy by the readings between the counter's two steps, with the ends of its interval, J."""
    each = energies(run, run.devices[0].id, [counter["since_ns"]], [counter["until_ns"]])
    return [float(figure[0]) for figure in (each.energy_j, each.low_j, each.high_j)]


def loop_energy(run: Run, counter: Mapping[str, float]) -> Estimate:
    """Energy of the range ``loop``, and of the counter's time without a kernel at the power of such time, J.

    None if readings know no energy of either.
    """
    results = Parts(run)
    loops = [part for part in results.units("layer") if part.name.rpartition(".")[2] == "loop"]
    idles = [part for part in results.outside() if part.name == IDLE_NAME]
    if not loops or not idles:
        return Estimate.null("not_attributed")
    loop, idle = (max(parts, key=lambda part: part.get("time_s").value or 0.0) for parts in (loops, idles))
    energy, power, time = loop.get("energy_total_j"), idle.get("power_w"), loop.get("time_s").value
    if energy.value is None or power.value is None or time is None:
        return Estimate.null("not_attributed")
    if len(run.activity):
        time = busy_s(run, counter)
    rest_s = counter["s"] - time
    joules, half = energy.value + power.value * rest_s, float(np.hypot(energy.half_width, power.half_width * rest_s))
    return Estimate(joules, joules - half, joules + half)


def busy_s(run: Run, counter: Mapping[str, float]) -> float:
    """Seconds between the counter's steps in which a kernel runs; in a range's time those that overlap count twice."""
    edges = (run.activity[name].to_numpy() for name in ("start_ns", "end_ns"))
    start, end = (np.clip(edge, counter["since_ns"], counter["until_ns"]) for edge in edges)
    order = np.argsort(start)
    until = np.maximum.accumulate(end[order])
    return float(np.sum(np.clip(until - np.maximum(start[order], np.append(0, until[:-1])), 0, None)) / 1e9)


def missed_j(place: Path, draws: int = 300) -> float:
    """95 % half-width of what samples miss of a loop's energy, J: as a GPU takes them, at any rate and phase.

    Power is that of the Run's kernels. Samples are means over 120 us at 1191 to 1254 Hz
    (docs/explanation/attribution.md).
    """
    run, counter, rng = opened(place, again=True), beside(place), np.random.default_rng(1)
    (division,) = divisions_of(run)
    assert division.powers is not None
    power_w, lasts_s, sample_s = division.powers.watts / division.powers.own, counter["s"], 120e-6
    kinds = {row["unit"]: row["kind"] for row in division.table.to_pylist() if row["kind"] is not None}
    kernels = run.activity.sort_by("start_ns")
    start, end = ((kernels[name].to_numpy() - counter["since_ns"]) / 1e9 for name in ("start_ns", "end_ns"))
    edges = np.column_stack([start, np.minimum(end, np.append(start[1:], np.inf))])
    above_j = (power_w[[kinds.get(unit, -1) for unit in kernels["unit"].to_pylist()]] - power_w[-1]) * np.diff(edges)[
        :, 0
    ]
    upto_j = np.repeat(np.append(0.0, np.cumsum(above_j)), 2)[1:-1]

    def drawn_j(since_s: Any, until_s: Any) -> Any:
        since_j, until_j = (np.interp(at_s, edges.ravel(), upto_j) for at_s in (since_s, until_s))
        return until_j - since_j + power_w[-1] * (until_s - since_s)

    samples = (np.arange(rng.random() / rate, lasts_s, 1 / rate) for rate in rng.uniform(1191, 1254, draws))
    missed = [lasts_s * drawn_j(at_s, at_s + sample_s).mean() / sample_s - drawn_j(0.0, lasts_s) for at_s in samples]
    return 1.96 * float(np.sqrt(np.mean(np.square(missed))))


def solved_j(place: Path) -> list[float]:
    """Energy of a loop's own time by the solve that gives the powers of kernels, and its half-width, J."""
    run, counter = opened(place, again=True), beside(place)
    (about,), figures = run.workload["recordings"], Figures()
    powers = recorded_of(run, figures, about).powers
    assert powers is not None
    rows = powers.recorded.rows([[counter["since_ns"], counter["until_ns"]]])
    loop = np.eye(1, rows.energies.mean_j.shape[1], 1)
    value, low, high = (float(end[0]) for end in rows.energies.interval(loop))
    return [value, (high - low) / 2]


def loop_row(place: Path) -> list[float | None]:
    """Of a program: seconds and joules of the loop by the counter, joules by the Run and their half-width, the
    difference in %; parts over the whole and its half-width; the same by readings alone, J, half-width and %;
    kernels in thousands."""
    run, counter = opened(place, again=True), beside(place)
    by_run, (joules, low, high) = loop_energy(run, counter), window(run, counter)
    closure, truth = run.result("closure_kernels"), counter["j"]
    cells: list[float | None] = [counter["s"], truth]
    if by_run.value is None:
        cells += [None, None, None]
    else:
        cells += [by_run.value, by_run.half_width, 100 * (by_run.value / truth - 1)]
    cells += [closure.value, None if closure.value is None else closure.half_width]
    kernels = sum(recording["kernels"] for recording in run.workload["recordings"])
    return [*cells, joules, (high - low) / 2, 100 * (joules / truth - 1), kernels / 1e3]


WHOLE = {"latency_s": 1e3, "power_w": 1, "energy_total_j": 1e3, "counter_ratio": 1, "closure_kernels": 1}
"""Figures of a whole model and their scales: ms, W, mJ."""


def whole_row(place: Path, again: bool = False) -> list[float | None]:
    """Of a whole model: latency, and each other figure of ``WHOLE`` with its half-width; None where it has none."""
    run = opened(place, again)
    cells: list[float | None] = []
    for metric, scale in WHOLE.items():
        figure = run.result(metric).scaled(scale)
        cells += [figure.value, None if figure.value is None else figure.half_width]
    return [cells[0], *cells[2:]]


def capped_row(place: Path, again: bool = False) -> list[float | None]:
    """``whole_row``, and the median clock of the SMs, MHz, and temperature, C, while power is near the limit."""
    run = opened(place, again)
    device = run.devices[0]
    power, near = power_record(run, device.id), 0.9 * (device.power_limit_w or math.inf)
    cells = whole_row(place, again)
    if power is None:
        return [*cells, None, None]
    for name in ("clock_sm_mhz", "temperature_c"):
        stamps, values = run.series(device.id, name)
        mine = values[np.interp(stamps, power[0].time_ns, power[0].value) > near]
        cells.append(float(np.median(mine)) if len(mine) else None)
    return cells


def spread(places: Sequence[Path]) -> list[float]:
    """Of repeats: their number, mean energy in mJ, standard deviation, range and median half-width, % of the mean."""
    figures = [load(place).result("energy_total_j") for place in places]
    each = np.array([figure.value for figure in figures], float)
    halves = [figure.half_width for figure in figures]
    mean = float(each.mean())
    shares = [100 * float(cell) / mean for cell in (each.std(ddof=1), np.ptp(each), np.median(halves))]
    return [len(each), 1e3 * mean, *shares]


def cost_row(place: Path) -> list[float]:
    """By how many % an iteration takes longer under ``run``, with the interval, and its milliseconds without."""
    import slowdown

    rows = json.loads(place.read_text())
    alone = [1e3 * row["s"] / row["iterations"] for row in rows if row["kind"] == "python"]
    return [*slowdown.more(rows), float(np.median(alone))]


def two_row(place: Path) -> list[float]:
    """Of a training on two GPUs: seconds, kJ of both and the half-width, parts over the whole and the half-width."""
    run = opened(place, again=True)
    energy, closure = run.result("energy_total_j").scaled(1e-3), run.result("closure_kernels")
    cells = [figure for one in (energy, closure) for figure in (one.value, one.half_width)]
    return [run.result("time_s").value, *cells]


def waiting_row(place: Path, rank: int, again: bool = True) -> list[float]:
    """Of a rank: its share of the collectives in which it comes last, %; of its waits for other ranks the seconds, the
    mean power and its half-width, W; the power without a kernel and its half-width, W; joules of the waits, their
    half-width, and their share of the rank's energy, %."""
    run, name = opened(place, again), f"rank-{rank}"
    results = Parts(run)
    (said,) = [recording for recording in run.workload["recordings"] if recording["name"] == name]
    phases = [part for part in (*results.units("phase"), *results.outside()) if part.gpu == name]
    waits, idle = (next(part for part in phases if part.name == each) for each in (WAITING, IDLE_NAME))
    powers = [
        figure for part in (waits, idle) for one in [part.get("power_w")] for figure in (one.value, one.half_width)
    ]
    lost, whole = waits.get("energy_total_j"), results.gpus[name].get("energy_total_j")
    share = 100 * lost.value / whole.value
    last = 100 * said["last"] / said["collectives"]
    return [last, waits.get("time_s").value, *powers, lost.value, lost.half_width, share]


def long_row(facts: Mapping[str, Any]) -> list[float]:
    """Of the long program: seconds and joules by the counter, joules by readings and half-width, difference in %; the
    most memory of the three largest processes, each with its growth from the second fifth of the time to the fourth,
    MiB; the Run's MB."""
    counter, (joules, low, high) = facts["counter"], facts["window"]
    sizes: dict[str, list[float]] = {}
    for _, process, size, words in facts["memory"]:
        sizes.setdefault(f"{process} {words}", []).append(size / 2**20)
    cells = [counter["s"], counter["j"], joules, (high - low) / 2, 100 * (joules / counter["j"] - 1)]
    for samples in sorted((own for own in sizes.values() if len(own) >= 5), key=max, reverse=True)[:3]:
        fifths = np.array_split(samples, 5)
        cells += [max(samples), float(np.median(fifths[3]) - np.median(fifths[1]))]
    return [*cells, sum(facts["bytes"].values()) / 1e6]


# the rows of the pages

Columns = Sequence[tuple[int, int]]
"""Of each column how many figures it has, a value or a value with its half-width, and decimals."""

PROGRAM: Columns = ((1, 2), (1, 1), (2, 0), (1, 2), (2, 4), (2, 0), (1, 2), (1, 0))
MODEL: Columns = ((1, 4), (2, 1), (2, 1), (2, 4))
CAPPED: Columns = (*MODEL, (2, 3), (1, 0), (1, 0))
REPEATS: Columns = ((1, 0), (1, 2), (1, 2), (1, 2), (1, 2))
COST: Columns = ((1, 1), (1, 1), (1, 1), (1, 2))
TWO: Columns = ((1, 1), (2, 2), (2, 4))
WAITS: Columns = ((1, 0), (1, 2), (2, 0), (2, 0), (2, 0), (1, 1))
LONG: Columns = ((1, 1), (1, 0), (2, 0), (1, 2), *((1, 0),) * 7)

MODELS = (
    *("deit-t-1-graph", "deit-b-1-graph", "deit-b-64-graph", "deit-b-1-eager"),
    *("bert-b-128-graph", "bert-l-320-graph", "resnet50-64-eager", "llama-1b-512-eager"),
)
REPEATED = ("deit-b-1-graph", "deit-b-64-graph")

PAGES = {
    name: f"docs/results/{name}-h200.md"
    for name in ("whole-models", "programs", "host-bound", "training-two-gpus", "at-the-cap")
}


def repeats_of(name: str) -> list[Path]:
    """The Runs of a case: itself and its repeats."""
    return [RUNS / f"{name}.zip", *sorted(RUNS.glob(f"{name}-[0-9].zip"))]


Row = tuple[str, str, Columns, Callable[[bool], Sequence[float | None]]]
"""Page, label, columns and what computes the figures, from kernels analysed again or from stored figures."""


def rows() -> Iterator[Row]:
    """Every row of the pages whose data are there."""
    for place in sorted(RUNS.glob("*.zip")):
        name = place.stem
        if name in MODELS:
            yield PAGES["whole-models"], name, MODEL, lambda again, place=place: whole_row(place, again)[:7]
        elif name.startswith("cap-"):
            number = name.removeprefix("cap-")
            yield PAGES["at-the-cap"], number, CAPPED, lambda again, place=place: capped_row(place, again)
        elif place.with_suffix(".json").exists():
            page = PAGES["host-bound" if name in ("mamba", "transformer") else "programs"]
            yield page, name, PROGRAM, lambda _, place=place: loop_row(place)
    for name in REPEATED:
        if len(repeats := repeats_of(name)) > 1:
            yield PAGES["whole-models"], f"{name}, repeated", REPEATS, lambda _, places=repeats: spread(places)
    if (facts := RUNS / "long.json").exists():
        yield PAGES["programs"], "ResNet-50, nine minutes", LONG, lambda _: long_row(json.loads(facts.read_text()))
    for costs in sorted(RUNS.glob("cost-*.json")):
        name = costs.stem.removeprefix("cost-")
        yield PAGES["host-bound"], f"{name}, cost", COST, lambda _, costs=costs: cost_row(costs)
    for kind, place in TWO_GPUS.items():
        page = PAGES["training-two-gpus"]
        yield page, kind, TWO, lambda _, place=place: two_row(place)
        for rank in (0, 1):
            yield page, f"{kind}, rank {rank}", WAITS, lambda _, place=place, rank=rank: waiting_row(place, rank)


def text_of(label: str, columns: Columns) -> str:
    """A row with ``{}`` where figures stand."""
    return " | ".join([f"| {label}", *("{} ± {}" if figures == 2 else "{}" for figures, _ in columns)]) + " |"


CLAIMS = [
    (
        page,
        text_of(label, columns),
        lambda data, compute=compute: [cell for cell in compute(data.again) if cell is not None],
    )
    for page, label, columns, compute in rows()
]
CLAIMS += [
    (
        PAGES["training-two-gpus"],
        "stated when it was saved, {} ± {} and {} ± {} J",
        lambda _: [figure for rank in (0, 1) for figure in waiting_row(TWO_GPUS["fsdp"], rank, again=False)[6:8]],
    )
]
CLAIMS += [
    (
        PAGES["programs"],
        "by ± {} J in gnn's loop and ± {} J in jax's",
        lambda _: [missed_j(RUNS / f"{name}.zip") for name in ("gnn", "jax")],
    ),
    (
        PAGES["programs"],
        "gives {} ± {} J and {} ± {} J",
        lambda _: [figure for name in ("gnn", "jax") for figure in solved_j(RUNS / f"{name}.zip")],
    ),
]
"""For ``stated.CLAIMS``."""


def printed(figures: Sequence[float | None], columns: Columns) -> str:
    """Cells of a row; half-widths are rounded up."""
    cells, left = [], list(figures)
    for number, decimals in columns:
        (value, *halves), left = left[:number], left[number:]
        text = "–" if value is None else f"{value:.{decimals}f}"
        for half in halves:
            text += "" if half is None else f" ± {math.ceil(half * 10**decimals - 1e-9) / 10**decimals:.{decimals}f}"
        cells.append(text)
    return " | ".join(cells)


def main() -> None:
    """Print every row."""
    for page, label, columns, compute in rows():
        print(f"{page}: | {label} | {printed(compute(False), columns)} |")


if __name__ == "__main__":
    main()
