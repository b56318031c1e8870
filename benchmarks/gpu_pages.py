"""Figures of the pages on GPUs from their Runs and from what the energy counter said beside them, for ``stated.py``.

``NAME.json`` beside ``NAME.zip`` is what the program wrote (``programs/common.py``, ``programs/two_ranks.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import bursts
from jouletrace.analysis.divided import divided
from jouletrace.analysis.power import energies
from jouletrace.run import Estimate, Run, load
from jouletrace.run.parts import Parts
from jouletrace.run.recording_names import IDLE_NAME, WAITING

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
