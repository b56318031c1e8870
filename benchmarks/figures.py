"""Draw the figures of docs/explanation (method.md, simulator.md) and of docs/results from recordings of real GPUs.

python benchmarks/figures.py
"""

import argparse
import json
import math
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import reality
import sensor_models
from jouletrace.attribution.spans import span_energies
from jouletrace.campaign.race import Candidate, Race, Visit
from jouletrace.campaign.tune import estimate_of, sd_of
from jouletrace.run import Estimate, load
from jouletrace.run.parts import Parts
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.kinds import HOPPER_SENSOR, calibrated
from jouletrace.sensor.power_record import at_slots, clean, integrate
from recordings import Recording, recording

FOLDER = Path(__file__).parent.parent / "docs" / "figures"
RUNS = Path(__file__).parent.parent / "docs" / "results" / "runs"
REAL, SIMULATED, OTHER, FAINT = "#2a6f97", "#c1121f", "#e09f3e", "#9aa5b1"
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "jouletrace",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e7eb",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.markersize": 2.5,
    "figure.constrained_layout.use": True,
}


def response() -> Figure:
    """Readings of copies after an edge, with the exponential and the best boxcar."""
    source = recording("h100_copies")
    exponential, boxcar = (_fitted(source, model) for model in ("both", "boxcar"))
    figure, axes = plt.subplots(2, 2, figsize=(7.5, 4.2), sharex=True, height_ratios=(2, 1))
    time = np.linspace(-0.01, 0.09, 400)
    for way, title in ((0, "load goes on"), (1, "load goes off")):
        top, bottom = axes[0, way], axes[1, way]
        delay, power = _isolated(source, way)
        rest, work = np.median(power[delay < 0]), np.median(power[delay > 0.09])
        share = (power - rest) / (work - rest)
        top.plot(1e3 * delay, 100 * share, "o", color=REAL, label="reading")
        top.plot(1e3 * time, 100 * exponential.step(time), color=SIMULATED, label="lag, window and rise")
        top.plot(1e3 * time, 100 * boxcar.step(time), "--", color=OTHER, label="best boxcar")
        for model, color in ((boxcar, OTHER), (exponential, SIMULATED)):
            bottom.plot(1e3 * delay, 100 * (share - model.step(delay)), "o", color=color)
        top.set_title(title, fontsize=9)
        bottom.set(xlabel="ms since the edge", xlim=(-10, 90), ylim=(-20, 20))
    axes[0, 0].set_ylabel("% of the step")
    axes[1, 0].set_ylabel("residual, %")
    axes[0, 0].legend(loc="lower right")
    return figure


def lost_energy() -> Figure:
    """Energy of each pulse of copies, as is and corrected, less its length times the load's power."""
    source = recording("h100_copies")
    shape = reality.calibrated()
    record = clean(source.time_ns, source.power_w, shape.period_s)
    start, end = source.edge_ns[::2], source.edge_ns[1::2]
    length = (end - start) / 1e9
    expected = length * _power_by_time(source, (start + end) // 2)
    as_is = integrate(record.time_ns, record.value, start, end) - expected
    found = span_energies(
        at_slots(record, shape.period_s, shape.stamp_grid), calibrated(shape, HOPPER_SENSOR), start, end
    )
    figure, axis = plt.subplots(figsize=(7.5, 2.8))
    axis.axhline(0, color="#333", lw=0.8)
    label = f"record summed as is: {as_is.mean():.1f} ± {as_is.std(ddof=1):.1f} J"
    axis.plot(length, as_is, "o", color=OTHER, ms=4, label=label)
    error = found.energy_j - expected
    label = f"corrected: {error.mean():+.1f} ± {error.std(ddof=1):.1f} J"
    axis.errorbar(length, error, (found.high_j - found.low_j) / 2, fmt="o", color=REAL, ms=4, lw=1, label=label)
    axis.set(xscale="log", xlabel="length of the pulse, s", ylabel="error, J", ylim=(-8, 5))
    axis.set_xticks([0.03, 0.1, 0.3, 1], ["0.03", "0.1", "0.3", "1"])
    axis.legend(loc="upper left", ncols=2)
    return figure


def sensors() -> Figure:
    """The same seconds of the same GPU in three of its readings."""
    figure, axis = plt.subplots(figsize=(7.5, 2.8))
    source = recording("h100_copies")
    first = source.edge_ns[0]
    since, until = 12.0, 19.0
    names = {"power_w": "the 20 ms record", "power_instant_w": "POWER_INSTANT", "power_average_w": "PowerUsage"}
    for (channel, name), color in zip(names.items(), (REAL, OTHER, SIMULATED), strict=True):
        part = recording("h100_copies", channel)
        time = (part.time_ns - first) / 1e9
        near = (time > since) & (time < until)
        style = {"drawstyle": "steps-post"} if channel != "power_w" else {}
        axis.plot(time[near], part.power_w[near], ".-", color=color, lw=0.8, label=name, **style)
    for on, off in source.edge_ns.reshape(-1, 2):
        if since < (on - first) / 1e9 < until:
            axis.axvspan((on - first) / 1e9, min((off - first) / 1e9, until), color="#eee", lw=0)
    axis.set(xlabel="s; the load runs where it is grey", ylabel="W", xlim=(since, until))
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def replayed() -> Figure:
    """Recordings of an H100, and the same load on a simulated GPU."""
    figure, axes = plt.subplots(2, 2, figsize=(7.5, 5))
    segments = recording("h100_segments")
    found = reality.fitted_levels(segments, reality.board())[0]
    starts = segments.edge_ns[::5]
    latest = np.searchsorted(starts, segments.read_ns) - 1
    test = segments.other_half() & (latest >= 0) & segments.on_time
    since = (segments.read_ns - starts[np.clip(latest, 0, None)]) / 1e6
    some = np.flatnonzero(test & (since < 125))[::4]
    axes[0, 0].plot(since[some], segments.power_w[some], "o", color=REAL, label="H100")
    axes[0, 0].plot(since[some], found[some], "o", color=SIMULATED, ms=1.5, label="simulated")
    axes[0, 0].set(title="a step of four segments, folded", xlabel="ms since the step's start", ylabel="W")
    axes[0, 0].legend()
    squares = recording("h100_squares")
    on, ask = reality.capped()
    found = reality.replay(squares, on, [None, ask])
    time = (squares.read_ns - squares.edge_ns[0]) / 1e9
    parts = ((axes[0, 1], 3.9, 6.3, "2 s under the cap"), (axes[1, 0], 13.9, 16.5, "0.5 s to 0.1 s"))
    for axis, since_s, until_s, title in (*parts, (axes[1, 1], 18.6, 20.6, "25 ms, then 10 ms")):
        near = (time > since_s) & (time < until_s)
        axis.plot(time[near], squares.power_w[near], ".-", color=REAL, lw=0.8)
        axis.plot(time[near], found[near], "-", color=SIMULATED, lw=0.9)
        axis.set(title=f"square waves: {title}", xlabel="s", xlim=(since_s, until_s))
    axes[1, 0].set_ylabel("W")
    for axis in axes.flat:
        axis.title.set_fontsize(9)
    return figure


def frontier() -> Figure:
    """Energy per output token against latency of a server at four rates, in two runs."""
    figure, axis = plt.subplots(figsize=(6.5, 3.0))
    for name, color, label in (("a", REAL, "first run"), ("b", SIMULATED, "second run")):
        loads = Parts(load(RUNS / f"serving-rates-{name}-h200.zip")).units("load")
        joules = [unit.get("energy_per_output_token_j") for unit in loads]
        at, y = ([one.value for one in some] for some in ([unit.get("e2e_p95_s") for unit in loads], joules))
        half = [one.half_width for one in joules]
        axis.errorbar(at, y, half, fmt="o", color=color, ms=4, lw=1, label=label)
        for unit, *place in zip(loads, at, y, strict=True):
            axis.annotate(unit.name, place, (5, 3), textcoords="offset points", color=color, fontsize=7)
    axis.set(xlabel="end-to-end latency, 95th percentile, s", ylabel="J per output token", ylim=(0, None))
    axis.legend()
    return figure


def tuned() -> Figure:
    """Energy per sample against p99 of the settings that ``tune`` tried on an H200, as its race joins the visits.

    Bars: 95 % of energy; the least and largest p99 of a visit.
    """
    stored = json.loads((RUNS / "tune-h200.json").read_text())
    visits: dict[tuple[int, str], list[dict]] = {}
    for visit in stored["visits"]:
        batch, mode = re.fullmatch(r"\d+-batch-(\d+)--(\w+)", visit["visit"]).groups()
        visits.setdefault((int(batch), mode), []).append(visit)
    settings = sorted(visits)
    reference, limit_ms = settings.index((8, "eager")), 40.0  # those of the command that is stored beside
    race = Race([Candidate(batch, (mode,)) for batch, mode in settings], reference)
    for n, setting in enumerate(settings):
        for visit in visits[setting]:
            energy, time = (Estimate(**visit[name]) for name in ("energy_per_sample_j", "time_per_sample_s"))
            logs = math.log(energy.value), sd_of(energy), math.log(time.value), sd_of(time)
            seconds = visit["iterations"] * visit["p50_s"]
            race.add(Visit(n, visit["process"], seconds, *logs, host_bound=setting == (8, "eager")))
    figure, axis = plt.subplots(figsize=(6.5, 2.6))
    chosen = race.verdict().best
    marks = {chosen: (SIMULATED, ": chosen"), reference: (OTHER, ": the reference")}
    p99 = [[1e3 * visit["p99_s"] for visit in visits[setting]] for setting in settings]
    at = [float(np.median(one)) for one in p99]
    joules = [estimate_of(*race.figures(n)[0]).scaled(1e3) for n in range(len(settings))]
    by_time = sorted(range(len(settings)), key=at.__getitem__)
    front = [n for i, n in enumerate(by_time) if all(joules[n].value < joules[k].value for k in by_time[:i])]
    axis.plot([at[n] for n in front], [joules[n].value for n in front], color=FAINT, lw=1, zorder=0, label="front")
    for n, (batch, mode) in enumerate(settings):
        color, words = marks.get(n, (REAL, ""))
        y, beside = joules[n], [[at[n] - min(p99[n])], [max(p99[n]) - at[n]]]
        axis.errorbar(at[n], y.value, [[y.value - y.low], [y.high - y.value]], beside, fmt="o", color=color, ms=4, lw=1)
        align, right = ("right", -6) if batch == 256 else ("left", 6)
        text, offset = f"{batch}, {mode}{words}", (right, 5 if mode == "eager" else -11)
        axis.annotate(text, (at[n], y.value), offset, ha=align, textcoords="offset points", color=color, fontsize=7)
    axis.axvline(limit_ms, color="#333", lw=0.8, ls="--")
    axis.annotate("limit", (limit_ms, 165), (4, 0), textcoords="offset points", fontsize=7)
    axis.set(xscale="log", xlabel="p99 of an iteration, ms", ylabel="mJ per sample", ylim=(0, None), xlim=(1, 60))
    axis.set_xticks([1, 2, 5, 10, 20, 40], ["1", "2", "5", "10", "20", "40"])
    axis.legend(loc="lower left")
    return figure


def _fitted(source: Recording, model: str) -> StepResponse:
    found = sensor_models.Levels(source).fit(model)
    return StepResponse(0.02, lag_s=found.lag_s, window_s=found.window_s, rise_s=found.rise_s)


def _isolated(source: Recording, way: int) -> tuple[np.ndarray, np.ndarray]:
    """Delay and power of readings around edges with 120 ms of quiet on both sides."""
    edge = source.edge_ns
    gap = np.diff(edge, prepend=edge[0] - 10**9, append=edge[-1] + 10**9)
    quiet = np.flatnonzero((gap[:-1] > 120_000_000) & (gap[1:] > 120_000_000))
    delay = (source.read_ns - edge[quiet[quiet % 2 == way]][:, None]) / 1e9
    near = (delay > -0.01) & (delay < 0.12)
    return delay[near], np.broadcast_to(source.power_w, delay.shape)[near]


def _power_by_time(source: Recording, at_ns: np.ndarray) -> np.ndarray:
    """Power of the load, which creeps with heat: a line in time through its settled readings."""
    latest = np.searchsorted(source.edge_ns, source.read_ns) - 1
    settled = (latest % 2 == 0) & (source.read_ns - source.edge_ns[np.clip(latest, 0, None)] > 120_000_000)
    origin = source.read_ns[0]
    line = np.polyfit((source.read_ns[settled] - origin) / 1e9, source.power_w[settled], 1)
    return np.polyval(line, (at_ns - origin) / 1e9)


FIGURES: dict[str, Callable[[], Figure]] = {
    "response": response,
    "lost_energy": lost_energy,
    "sensors": sensors,
    "replayed": replayed,
    "frontier": frontier,
    "tuned": tuned,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(FIGURES), help="which figures; all by default")
    parser.add_argument("-o", "--output", type=Path, default=FOLDER, help="folder")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        with plt.rc_context(STYLE):
            figure = FIGURES[name]()
            text = StringIO()
            figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
            plt.close(figure)
        # a hundredth of a point is finer than any screen
        short = re.sub(r"\d+\.\d{3,}", lambda match: f"{float(match[0]):.2f}", text.getvalue())
        (arguments.output / f"{name}.svg").write_text(short)


if __name__ == "__main__":
    main()
