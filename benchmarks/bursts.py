"""Errors of several ways of reading a GPU's power for short bursts of work, from their recording, for ``stated.py``.

Bursts of a captured model ran after idle pauses, in random order (``1bf93c1b:benchmarks/bursts.py`` recorded them).
Truth is the GPU's energy counter, polled by a separate process, from one of its own steps to another around the burst,
less idle power, by the counter too, for the rest of that bracket. The gain error of the sensor is in both.
"""

import sys
from functools import cache
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from brackets import Bracket, CounterSteps, bracket, find_steps
from jouletrace.analysis.power import energies, power_record
from jouletrace.run import load
from jouletrace.sensor.power_record import integrate

MARGIN_NS, TAIL_NS = 150_000_000, 300_000_000


def inner_bracket(steps: CounterSteps, start_ns: int, end_ns: int) -> Bracket | None:
    """The widest pair of located steps within [start, end]."""
    inside = np.flatnonzero((steps.before_ns >= start_ns) & (steps.time_ns <= end_ns))
    if len(inside) < 3:
        return None
    return bracket(steps, int(steps.time_ns[inside[0]]), int(steps.before_ns[inside[-1]]))


def true_energies(steps: CounterSteps, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Energy of each burst by the counter, above the idle level of the pause on either side, and its sd."""
    truth, sd = np.full((2, len(start)), np.nan)
    since = np.append(start[0] - 1_500_000_000, end[:-1] + TAIL_NS)
    until = np.append(start[1:], end[-1] + 1_200_000_000)
    for i, (a, b) in enumerate(zip(start, end, strict=True)):
        around = bracket(steps, int(a) - MARGIN_NS, int(b) + TAIL_NS)
        pauses = [inner_bracket(steps, since[i], a), inner_bracket(steps, b + TAIL_NS, until[i])]
        if around is None or None in pauses:
            continue
        energy, variance = around.energy_j, 0.0
        for pause, rest_ns in zip(pauses, (a - around.start_ns, around.end_ns - b), strict=True):
            seconds = (pause.end_ns - pause.start_ns) / 1e9
            idle_w = pause.energy_j / seconds
            energy -= idle_w * rest_ns / 1e9
            # An error of a step's time moves energy between the bracket and the pause beside it.
            variance += (idle_w * pause.time_sd_s) ** 2 * (2 * (rest_ns / 1e9 / seconds) ** 2 + 1)
        truth[i], sd[i] = energy, np.sqrt(variance)
    return truth, sd


def as_held(stamps: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The reading that a poll at ``at`` returns: the last value before."""
    return values[np.clip(np.searchsorted(stamps, at, side="right") - 1, 0, None)]


def polled_energy(stamps: np.ndarray, watts: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Mean of what a poll every 10 ms says, times the duration, as scripts around nvidia-smi do."""
    means = [np.mean(as_held(stamps, watts, np.arange(a, b + 1, 10_000_000))) for a, b in zip(start, end, strict=True)]
    return np.array(means) * (end - start) / 1e9


@cache
def table(place: Path) -> dict[str, list[float]]:
    """By length of burst: of each way the mean, sd and worst of the errors, %; half-width and the truth's sd, %.

    Then how many intervals hold the truth, of how many, and how many bursts have no energy, which are in neither.
    ``place`` is NAME.zip, with NAME-counter.npz beside it.
    """
    run = load(place)
    device = run.devices[0].id
    rows = run.spans.to_pandas().query("lane == 'burst'").sort_values("start_ns")
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    reads = np.load(place.with_name(f"{place.stem}-counter.npz"))["reads"]
    at, joules = (reads[:, 0] + reads[:, 2]) // 2, reads[:, 1] / 1e3
    truth, truth_sd = true_energies(find_steps(at, joules), start, end)
    (power, _), ours = power_record(run, device), energies(run, device, start, end)
    ways = [
        as_held(at, joules, end) - as_held(at, joules, start),
        *(polled_energy(*run.series(device, f"power_{name}_w"), start, end) for name in ("average", "instant")),
        integrate(power.time_ns, power.value, start, end),
        ours.energy_j,
    ]
    widths = (ours.high_j - ours.low_j) / 2 / ours.energy_j, truth_sd / truth
    held = (ours.low_j <= truth) & (truth <= ours.high_j)
    found = {}
    for length in rows["name"].unique():
        mine = (rows["name"] == length).to_numpy() & np.isfinite(truth)
        null = mine & np.isnan(ours.energy_j)
        errors = [100 * (way[mine & ~np.isnan(way)] / truth[mine & ~np.isnan(way)] - 1) for way in ways]
        cells = [float(cell) for e in errors for cell in (e.mean(), e.std(ddof=1), np.abs(e).max())]
        cells += [100 * float(np.nanmedian(one[mine])) for one in widths]
        found[str(length)] = [*cells, int(held[mine].sum()), int((mine & ~null).sum()), int(null.sum())]
    return found
