"""Errors of several ways of reading a GPU's power for short bursts of work, from their recording.

Bursts of a captured model ran after idle pauses, in random order. Truth is the GPU's energy
counter from one of its own steps to another around the burst, less idle power (by the counter
too) for the rest of that bracket; a separate process polled the counter meanwhile. The result
therefore is the agreement of each method with the GPU's own integral. The gain error of its sensor
is in both and can't show.
"""

from pathlib import Path

import numpy as np

from counter import CounterSteps, bracket, inner_bracket, readings, steps_of
from jouletrace.analysis.power import energies, power_record
from jouletrace.run import load
from jouletrace.sensor.power_record import integrate

PLAN = ((0.05, 24), (0.2, 24), (1.0, 20), (3.0, 20))
MARGIN_NS = 150_000_000
TAIL_NS = 300_000_000


def true_energies(steps: CounterSteps, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Energy of each burst by the counter, above the idle level of the pause on either side, and its sd."""
    truth, sd = np.full(len(start), np.nan), np.full(len(start), np.nan)
    for i, (a, b) in enumerate(zip(start, end, strict=True)):
        around = bracket(steps, int(a) - MARGIN_NS, int(b) + TAIL_NS)
        since = int(end[i - 1]) + TAIL_NS if i else int(a) - 1_500_000_000
        until = int(start[i + 1]) if i + 1 < len(start) else int(b) + 1_200_000_000
        pauses = [inner_bracket(steps, since, int(a)), inner_bracket(steps, int(b) + TAIL_NS, until)]
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
    found = []
    for a, b in zip(start, end, strict=True):
        times = np.arange(a, b + 1, 10_000_000)
        found.append(float(np.mean(as_held(stamps, watts, times))) * (b - a) / 1e9)
    return np.array(found)


def analyse(folder: Path) -> str:
    """The table, as Markdown, of a folder, or of NAME.zip with NAME-counter.npz beside it."""
    run = load(folder)
    polled = folder / "counter.npy" if folder.is_dir() else folder.with_name(f"{folder.stem}-counter.npz")
    device = run.devices[0]
    rows = run.spans.to_pandas().query("lane == 'burst'").sort_values("start_ns")
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    lengths = rows["name"].astype(str).to_numpy()
    at, joules = readings(polled)
    steps = steps_of(polled)
    truth, truth_sd = true_energies(steps, start, end)
    found, ours = power_record(run, device.id), energies(run, device.id, start, end)
    assert found is not None
    assert ours is not None
    power, response = found
    columns = {
        "energy-counter window": as_held(at, joules, end) - as_held(at, joules, start),
        "`PowerUsage` poll": polled_energy(*run.series(device.id, "power_average_w"), start, end),
        "`POWER_INSTANT` poll": polled_energy(*run.series(device.id, "power_instant_w"), start, end),
        "20 ms record as is": integrate(power.time_ns, power.value, start, end),
        "jouletrace": ours.energy_j,
    }
    covered = (ours.low_j <= truth) & (truth <= ours.high_j)
    half_j = (ours.high_j - ours.low_j) / 2
    with_truth = np.abs(ours.energy_j - truth) <= np.hypot(half_j, 1.96 * truth_sd)
    half = half_j / ours.energy_j
    lines = [
        f"Board: {device.name}, driver {device.driver}; {run.workload.get('load', 'deit-base fp16 graph')}.",
        "",
        "Mean error ± standard deviation (worst), percent of the truth:",
        "",
        "| burst (n) | "
        + " | ".join(columns)
        + " | half-width | sd of the truth | covered | covered, with the truth's own sd |",
        "|---|" + "---|" * (len(columns) + 4),
    ]
    for seconds, _ in PLAN:
        mine = (lengths == f"{seconds:g}") & np.isfinite(truth)
        cells = []
        for values in columns.values():
            error = 100 * (values[mine] / truth[mine] - 1)
            cells.append(f"{error.mean():+.1f} ± {error.std(ddof=1):.1f} ({np.abs(error).max():.0f})")
        cells.append(f"{100 * np.median(half[mine]):.1f} %")
        cells.append(f"{100 * np.median(truth_sd[mine] / truth[mine]):.2f} %")
        cells.append(f"{covered[mine].sum()} of {mine.sum()}")
        cells.append(f"{with_truth[mine].sum()} of {mine.sum()}")
        lines.append(f"| {seconds:g} s ({mine.sum()}) | " + " | ".join(cells) + " |")
    flags = sorted({flag for some in ours.flags for flag in some})
    lines += [
        "",
        f"Response: {response.origin}, delay {response.delay_s * 1e3:.1f} ms; flags: {', '.join(flags) or 'none'}.",
    ]
    return "\n".join(lines)
