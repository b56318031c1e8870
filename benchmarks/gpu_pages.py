"""Figures of the pages on GPUs from their Runs and from what the energy counter said beside them, for ``stated.py``.

    python benchmarks/gpu_pages.py    # prints the rows of the pages from the Runs in docs/results/runs

``results_gpu.py`` records the Runs; NAME of its archives is ``NAME-h200`` there. The JSON beside a Run is what the
program wrote (``programs/common.py``, ``programs/two_ranks.py``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import bursts
from jouletrace.analysis.divided import divided
from jouletrace.analysis.power import energies, power_record
from jouletrace.run import Estimate, Run, load
from jouletrace.run.parts import Parts
from jouletrace.run.recording_names import IDLE_NAME, WAITING

RUNS = Path(__file__).parents[1] / "docs" / "results" / "runs"

OF_LONG = ("complete", "workload", "trust", "headline", "model", "checks", "conditions", "warnings")
"""What is kept of the JSON of the long program's Run, which itself is large."""


def beside(place: Path) -> Any:
    """What the program said of itself."""
    return json.loads(place.with_suffix(".json").read_text())


def window(run: Run, counter: Mapping[str, float]) -> list[float]:
    """Energy by the readings between the counter's two steps, with the ends of its interval, J."""
    each = energies(run, run.devices[0].id, [counter["since_ns"]], [counter["until_ns"]])
    return [float(figure[0]) for figure in (each.energy_j, each.low_j, each.high_j)]


def loop_energy(run: Run, counter: Mapping[str, float]) -> Estimate:
    """Energy of the range ``loop``, and of the rest of the counter's time at the power without a kernel, J.

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
    rest_s = counter["s"] - time
    joules, half = energy.value + power.value * rest_s, float(np.hypot(energy.half_width, power.half_width * rest_s))
    return Estimate(joules, joules - half, joules + half)


def loop_row(place: Path) -> list[float | None]:
    """Of a program: seconds and joules of the loop by the counter, joules by the Run and their half-width, the
    difference in %; parts over the whole and its half-width; the same by readings alone, J, half-width and %;
    kernels in thousands."""
    run, counter = load(place), beside(place)
    by_run, (joules, low, high) = loop_energy(run, counter), window(run, counter)
    closure, truth = run.result("closure_kernels"), counter["j"]
    cells: list[float | None] = [counter["s"], truth]
    if by_run.value is None:
        cells += [None, None, None]
    else:
        cells += [by_run.value, by_run.half_width, 100 * (by_run.value / truth - 1)]
    cells += [closure.value, None if closure.value is None else closure.half_width]
    return [*cells, joules, (high - low) / 2, 100 * (joules / truth - 1), len(run.activity) / 1e3]


WHOLE = {"latency_s": 1e3, "power_w": 1, "energy_total_j": 1e3, "counter_ratio": 1, "closure_kernels": 1}
"""Figures of a whole model and their scales: ms, W, mJ."""


def whole_row(place: Path) -> list[float | None]:
    """Of a whole model: each figure of ``WHOLE`` and its half-width; None where it has none."""
    run = load(place)
    cells: list[float | None] = []
    for metric, scale in WHOLE.items():
        figure = run.result(metric).scaled(scale)
        cells += [figure.value, None if figure.value is None else figure.half_width]
    return cells


def capped_row(place: Path) -> list[float | None]:
    """``whole_row``, and the median clock of the SMs, MHz, and temperature, C, while power is near the limit."""
    run = load(place)
    device = run.devices[0]
    power, near = power_record(run, device.id), 0.9 * (device.power_limit_w or math.inf)
    cells = whole_row(place)
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


def burst_rows(place: Path) -> dict[str, list[float]]:
    """``bursts.table``: errors of each way of reading, by length of burst."""
    return bursts.table(place)


def cost_row(place: Path) -> list[float]:
    """By how many % an iteration takes longer under ``run``, with the interval, and its milliseconds without."""
    import slowdown

    rows = json.loads(place.read_text())
    alone = [1e3 * row["s"] / row["iterations"] for row in rows if row["kind"] == "python"]
    return [*slowdown.more(rows), float(np.median(alone))]


def waiting_rows(place: Path) -> dict[str, list[float | None]]:
    """By rank: joules lost by waiting as the Run states them, in all and of the unequal range less the equal one, with
    half-widths; what that should be by the counter, the energy of the same steps in both; seconds of these waits.
    """
    run, ranks = load(place), beside(place)
    lost: dict[tuple[str, str], tuple[float, float, float]] = {}
    for row in divided(run, ("device", "layer", "phase")):
        energy, names = row.get("energy_total_j"), [step.name for step in row.path]
        if names[-1:] != [WAITING] or energy.value is None:
            continue
        device, *layers, _ = names
        words = {word for layer in layers for word in layer.split(".")}
        for name in {"equal", "unequal"} & words:
            joules, squares, seconds = lost.get((device, name), (0.0, 0.0, 0.0))
            time = row.get("time_s").value or 0.0
            lost[device, name] = joules + energy.value, squares + energy.half_width**2, seconds + time
    rows: dict[str, list[float | None]] = {}
    waits = [part for part in Parts(run).units("phase") if part.name == WAITING]
    for rank in ranks:
        name = f"rank-{rank['rank']}"
        (all_waits,) = [part.get("energy_total_j") for part in waits if part.gpu == name] or [Estimate.null("none")]
        more, less = (lost.get((name, one), (0.0, 0.0, 0.0)) for one in ("unequal", "equal"))
        rows[name] = [
            *((None, None) if all_waits.value is None else (all_waits.value, all_waits.half_width)),
            *(more[0] - less[0], float(np.sqrt(more[1] + less[1]))),
            *(rank["unequal"]["j"] - rank["equal"]["j"], more[2] - less[2]),
        ]
    return rows


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
MODEL: Columns = ((2, 4), (2, 1), (2, 1), (2, 4))
CAPPED: Columns = (*MODEL, (2, 4), (1, 0), (1, 0))
REPEATS: Columns = ((1, 0), (1, 2), (1, 2), (1, 2), (1, 2))
BURSTS: Columns = (*((1, 1),) * 16, (1, 2), (1, 0), (1, 0))
COST: Columns = ((1, 1), (1, 1), (1, 1), (1, 2))
WAITS: Columns = ((2, 0), (2, 0), (1, 0), (1, 2))
LONG: Columns = ((1, 1), (1, 0), (2, 0), (1, 2), *((1, 0),) * 7)

TOGETHER: frozenset[str] = frozenset()
"""Programs whose kernels readings don't distinguish: they have no energy by kernels, and no sum of parts."""

MODELS = (
    *("deit-t-1-graph", "deit-b-1-graph", "deit-b-64-graph", "deit-b-1-eager"),
    *("bert-b-128-graph", "bert-l-320-graph", "resnet50-64-eager", "llama-1b-512-eager"),
)
REPEATED = ("deit-b-1-graph", "deit-b-64-graph")
LENGTHS = ("0.02", "0.05", "0.2", "1", "3")

PAGES = {
    name: f"docs/results/{name}-h200.md"
    for name in ("whole-models", "programs", "host-bound", "spans", "waiting", "at-the-cap")
}


def place(name: str) -> Path:
    """A Run in the repository."""
    return RUNS / f"{name}-h200.zip"


def text_of(label: str, columns: Columns, absent: bool) -> str:
    """A row with ``{}`` where figures stand; of programs in ``TOGETHER`` without those by kernels."""
    cells = ["{} ± {}" if figures == 2 else "{}" for figures, _ in columns]
    if absent:
        cells[2:5] = "–––"
    return f"| {label} | " + " | ".join(cells) + " |"


def repeats_of(name: str) -> list[Path]:
    """The Runs of a case: itself and its repeats."""
    return [place(name), *sorted(RUNS.glob(f"{name}-[0-9]-h200.zip"))]


Row = tuple[str, str, Columns, Callable[[], Sequence[float | None]]]
"""Page, label, columns and what computes the figures."""


def rows() -> Iterator[Row]:
    """Every row of the pages."""
    for name in MODELS:
        yield PAGES["whole-models"], name, MODEL, lambda name=name: whole_row(place(name))[: 2 * len(MODEL)]
    for name in REPEATED:
        yield PAGES["whole-models"], f"{name}, repeated", REPEATS, lambda name=name: spread(repeats_of(name))
    for page, names in (("programs", ("unet", "lora", "gnn", "jax")), ("host-bound", ("mamba", "transformer"))):
        for name in names:
            yield PAGES[page], name, PROGRAM, lambda name=name: loop_row(place(name))
    facts = place("long").with_suffix(".json")
    yield PAGES["programs"], "ResNet-50, nine minutes", LONG, lambda: long_row(json.loads(facts.read_text()))
    for name in ("mamba", "transformer"):
        costs = place(f"cost-{name}").with_suffix(".json")
        yield PAGES["host-bound"], f"{name}, cost", COST, lambda costs=costs: cost_row(costs)
    for length in LENGTHS:
        yield PAGES["spans"], f"{length} s", BURSTS, lambda length=length: burst_rows(place("spans"))[length]
    for kind in ("ddp", "fsdp"):
        for rank in ("rank-0", "rank-1"):
            one = place(f"two-{kind}")
            yield PAGES["waiting"], f"{kind}, {rank}", WAITS, lambda one=one, rank=rank: waiting_rows(one)[rank]
    for gpu in (0, 1):
        yield PAGES["at-the-cap"], f"GPU {gpu}", CAPPED, lambda gpu=gpu: capped_row(place(f"cap-{gpu}"))


CLAIMS = [
    (
        page,
        text_of(label, columns, label in TOGETHER),
        lambda _, compute=compute: [cell for cell in compute() if cell is not None],
    )
    for page, label, columns, compute in rows()
]
"""For ``stated.CLAIMS``, as soon as the pages and their Runs are there."""


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
    """Print every row whose Runs are there."""
    for page, label, columns, compute in rows():
        try:
            print(f"{page}: | {label} | {printed(compute(), columns)} |")
        except Exception as error:  # a Run that isn't there
            print(f"{page}: {label}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
