"""Compares figures that README.md and pages of docs state with what the raw data in the repository give.

    python benchmarks/stated.py             # Runs are analysed again from their readings and kernels: two minutes
    python benchmarks/stated.py --stored    # of Runs with kernels the stored figures: seconds, as tests/test_figures.py

``CLAIMS`` is the table: a page, a text in it with ``{}`` where figures stand, and what computes these from which data.
Loads of servers and comparisons are of Runs as they state themselves, which ``show`` prints.
A figure holds if it rounds to what is stated. Prints each text with both; exits with 1 if one doesn't hold.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import any_model
import atlas_claims
import bursts
import gpu_pages
import peers_claims
import serving
from jouletrace.analysis import analyse
from jouletrace.comparing.compare import compare
from jouletrace.comparing.paired import paired
from jouletrace.run import Estimate, Run, load

ROOT = Path(__file__).parents[1]
RUNS, BUNDLED = ROOT / "docs" / "results" / "runs", ROOT / "src" / "jouletrace" / "bundled"
OF_TESTS = ROOT / "tests" / "data" / "runs"

NUMBER = r"[-+−]?\d+(?:\.\d+)?"
ROUNDED, UP = 0.505, 1.005
"""Units in the last place by which stated figures may be off: rounded, and half-widths up; 0.005 for other machines."""

Values = Sequence[float | Estimate]
"""Figures in the order of the text; an ``Estimate`` is its value, and its half-width too where the text has "± {}"."""


@dataclass(frozen=True)
class Data:
    """The Runs; ``again``: whether those with kernels are analysed again, or state what they did when saved."""

    again: bool

    def run(self, name: str) -> Run:
        """A Run by the name of its file."""
        return _run(name, self.again)


def _stored(name: str) -> Run:
    return load(next(folder / name for folder in (RUNS, BUNDLED, OF_TESTS) if (folder / name).exists()))


@cache
def _run(name: str, again: bool) -> Run:
    run = _stored(name)
    return analyse(run) if again or not len(run.activity) else run


Compute = Callable[[Data], Values]


def whole(name: str, **scales: float) -> Compute:
    """Figures of the whole of a Run, by metric, each times a scale."""
    return lambda data: [data.run(name).result(metric).scaled(scale) for metric, scale in scales.items()]


def compiled(_: Data) -> Values:
    """Energy of MiniLM compiled over eager, less 1, as ``compare`` prints it, %."""
    a, b = ([(load(RUNS / f"minilm-256-{mode}-h100.zip"), mode)] for mode in ("eager", "compile"))
    return [compare(a, b).row("energy_total_j").change.scaled(100)]


def cause_of_compiled() -> Estimate:
    """Joules of the first cause of that difference."""
    a, b = ([(load(RUNS / f"minilm-256-{mode}-h100.zip"), mode)] for mode in ("eager", "compile"))
    why = compare(a, b).why
    assert why is not None
    return Estimate(why.first[0].value)


def load_figure(name: str, metric: str, number: int) -> Estimate:
    """A figure of a load of a server, by its number, as its Run states it."""
    run = load(RUNS / name)
    loads = [unit["id"] for unit in run.units.to_pylist() if unit["level"] == "load"]
    return run.result(metric, loads[number])


def token_prices(number: int) -> Compute:
    """Joules per output token of a load in two runs, and their ratio."""

    def found(_: Data) -> Values:
        a, b = (load_figure(name, PER_TOKEN, number) for name in RATES)
        return [a, b, b.value / a.value]

    return found


@cache
def in_the_mix(kind: str, prompt: int) -> Values:
    """The bill of a kind of requests in its own load and in a mix with half-widths, and their ratio; above idle too."""
    return serving.mixed(*(load(RUNS / f"serving-{name}-h200.zip") for name in (kind, "mix")), prompt)


@cache
def beside_alone(by: Callable[[Run], tuple[Estimate, float]]) -> Mapping[str, Sequence[Estimate]]:
    """J of a request of 100 + 32 tokens served, without a server, and their ratio, by part."""
    runs = (load(RUNS / f"serving-{name}-h200.zip") for name in ("short", "alone-few", "alone"))
    return serving.against_alone(*runs, (8, 32), by)


def served_and_alone(part: str) -> Compute:
    """A row of these: served, by timed iterations alone, their ratio, and by the windows of the profile."""
    return lambda _: [*beside_alone(serving.iterations)[part], beside_alone(serving.windows)[part][1]]


def prefill_by_windows() -> float:
    """Prefill served over that without a server by the windows of the profiles, less 1."""
    served, alone, _ = beside_alone(serving.windows)["prefill"]
    return (served.value or math.nan) / (alone.value or math.nan) - 1


def paced(figure: str, place: int) -> Compute:
    """A percentile in ms of the loads short, mix and long, by its place in ``serving.stated``."""
    loads = [RUNS / f"serving-{name}-h200.zip" for name in ("short", "mix", "long")]
    return lambda _: [serving.stated(load(run))[figure][place] for run in loads]


def compared(run: Run, metric: str):
    """The row of a metric of an ``ab``; computed from the readings each time."""
    return next(row for row in paired(run).rows if row.metric == metric)


def saved(name: str) -> Compute:
    """By how much less energy B of an ``ab`` takes than A, %."""
    return lambda data: [-100 * compared(data.run(name), "energy_total_j").change.value]


def sides(name: str, scale: float) -> Compute:
    """The cells of a table of ``table_of``; energies times a scale."""

    def found(data: Data) -> Values:
        cells: list[float] = []
        for metric, own in (("latency_s", MS), ("iteration_time_s", MS), ("power_w", 1), ("energy_total_j", scale)):
            row = compared(data.run(name), metric)
            cells += [row.a.value * own, row.b.value * own]
            cells += [100 * end for end in (row.change.value, row.change.low, row.change.high)]
        return cells

    return found


def table_of(a: str, b: str, unit: str, power: str) -> str:
    """A table of compare-h100.md: names of the sides, unit of their energies, verdict on power."""
    change = "{} % ({} to {})"
    return (
        f"| per iteration | {a} | {b} | change (95 %, all rows together) | verdict | |---|---|---|---|---| "
        f"| latency, median | {{}} ms | {{}} ms | {change} | better | "
        f"| time, back to back | {{}} ms | {{}} ms | {change} | better | "
        f"| power, mean | {{}} W | {{}} W | {change} | {power} | "
        f"| energy | {{}} {unit} | {{}} {unit} | {change} | better |"
    )


def of_fleet(figure: str, scale: float) -> Values:
    """Mean of a figure over the GPUs times a scale, and the spread max/min − 1 in %."""
    mean = np.mean([gpu[figure]["value"]["value"] for gpu in FLEET_DATA["gpus"]])
    return [float(mean) * scale, Estimate.from_dict(FLEET_DATA["spread"][figure]["range"]).scaled(100)]


def between_runs(energies_mj: str) -> Values:
    """Standard deviation and range of energies that a page lists, % of their mean."""
    every = np.array(energies_mj.split(), float)
    return [float(100 * one / every.mean()) for one in (every.std(ddof=1), np.ptp(every))]


def tuned(choice: str, reference: str) -> Compute:
    """Energy per sample of a setting of ``tune``'s grid in mJ, and what it saves against another, %."""

    def given(_: Data) -> Values:
        chosen, other = (Estimate(**TUNED[name]["energy_per_sample_j"]) for name in (choice, reference))
        return [chosen.scaled(1e3), 100 * (1 - (chosen.value or 0.0) / (other.value or 1.0))]

    return given


def grids(case: str, choice: str, reference: str) -> Compute:
    """Saving of a setting against another by the grids of two GPUs, %, with the half-widths."""

    def given(_: Data) -> Values:
        rows = csv.DictReader((RUNS / "tune-cases-h200.csv").read_text().splitlines())
        grid = {(row["gpu"], row["setting"]): row for row in rows if row["case"] == case and row["by"] == "grid"}
        first = {"deit-b": "0", "bert-l": "1"}[case]
        savings: list[float | Estimate] = []
        for gpu in sorted("01", key=lambda gpu: gpu != first):
            (a, a_share), (b, b_share) = (_known(grid[gpu, setting]) for setting in (choice, reference))
            half = 100 * a / b * float(np.hypot(a_share, b_share))
            savings.append(Estimate(100 * (1 - a / b), 100 * (1 - a / b) - half, 100 * (1 - a / b) + half))
        return savings

    return given


def _known(row: Mapping[str, str]) -> tuple[float, float]:
    """Energy of a row in J, and its half-width as a share."""
    energy = float(row["energy_j"])
    return energy, (float(row["high_j"]) - float(row["low_j"])) / 2 / energy


def waveform_ms(data: Data) -> Values:
    """Length of the iteration that the waveform of a Run is of."""
    wave = data.run("deit-b-64-layers-h200.zip").waveform
    return [float(wave["end_ns"][-1].as_py() - wave["start_ns"][0].as_py()) / 1e6]


# the table

README, RESULTS, METHOD = "README.md", "docs/results/index.md", "docs/explanation/method.md"
WHOLE, COMPARE, FLEET, BURSTS, SERVING = (
    f"docs/results/{name}.md"
    for name in ("whole-model-h100", "compare-h100", "fleet-h200", "spans-h200", "serving-h200")
)
DEIT, RESNET = "deit-b-64-graph-h100.zip", "resnet50-run-h200.zip"
RATES, PER_TOKEN = ("serving-rates-a-h200.zip", "serving-rates-b-h200.zip"), "energy_per_output_token_j"
EAGER_GRAPH, FP32_FP16, SEGFORMER = "eager-graph-h100.zip", "fp32-fp16-h100.zip", "segformer-kernels-h200.zip"
TUNE = "docs/results/tune-h200.md"
TUNED = {point["point"]: point for point in json.loads((RUNS / "tune-h200.json").read_text())["grid"]}
FLEET_DATA = json.loads((RUNS / "fleet-deit-b-h200.json").read_text())["groups"][0]
TIME_SHARES = [100 * FLEET_DATA["spread"]["time_s"]["variance"][name]["share"]["value"] for name in ("gpu", "within")]
TEN_RUNS = {
    1: "227.95 227.55 228.12 228.25 228.65 228.30 228.37 227.88 228.66 229.10",
    64: "4704.18 4696.28 4697.42 4694.29 4690.28 4694.14 4697.96 4694.99 4696.80 4698.54",
}
"""Energies of DeiT-B by batch that whole-model-h100.md lists, mJ: of runs that were not kept."""
BURST_RUNS = {
    RUNS / "h200" / "spans.zip": {"0.02": 12, "0.05": 12, "0.2": 12, "1": 8, "3": 6},
    RUNS / "bursts-h200.zip": {"0.05": 24, "0.2": 24, "1": 20, "3": 20},
}
"""Recordings of bursts after idle, and how many of each length there are."""
J, MJ, KJ, MS = 1.0, 1e3, 1e-3, 1e3

CLAIMS: list[tuple[str, str, Compute | Values]] = [
    (README, "DeiT-B at batch 64 takes {} ± {} J per iteration", whole(DEIT, energy_total_j=J)),
    (README, "In {} of {} programs on H200s, the operators whose energy has ± 10 % or less take {} % or "
             "more of the active energy, from 20 s of recording each; in the other program, Llama-1B, they take {} %",
     any_model.WORST),
    (README, "A CUDA graph saves {} % of the energy of DeiT-B at batch 1", saved(EAGER_GRAPH)),
    (README, "fp16 {} % of fp32's at batch 8", saved(FP32_FP16)),
    (README, "with p99 < 40 ms, chooses batch 256 as a graph: {} ± {} mJ per image, {} % less than batch 8 launched "
             "eagerly",
     tuned("deit-b-b256-graph", "deit-b-b8-eager")),
    (TUNE, "| DeiT-B | 18.5 to 24.3 | {} ± {} | {} ± {} |",
     grids("deit-b", "256 graph bf16", "16 eager fp16")),
    (TUNE, "| BERT-L | 48.3 to 52.4 | {} ± {} | {} ± {} |",
     grids("bert-l", "128 graph sdpa", "8 eager sdpa")),
    (README, "{} ± {} kJ (± 4.9 % absolute) in ", whole(RESNET, energy_total_j=KJ)),
    (README, "absolute) in {} s", whole(RESNET, iteration_time_s=1)),
    (README, "{} ± {} W on average", whole(RESNET, power_w=1)),
    (README, "parts sum to {} ± {} of the whole", whole(RESNET, closure_kernels=1)),
    (README, "power inside one iteration of {} ms", waveform_ms),
    *((README, f"{{}} ± {{}} J at {rate}", lambda _, number=number: [load_figure(RATES[0], PER_TOKEN, number)])
      for number, rate in ((0, "2 requests"), (3, "16;"))),
    (README, "takes {} ± {} % more energy compiled", compiled),
    (README, "replace its attention: +{} J", lambda _: [cause_of_compiled()]),
    (RESULTS, "eager against a CUDA graph: {} % less energy", saved(EAGER_GRAPH)),
    (RESULTS, "fp32 against fp16: {} % less", saved(FP32_FP16)),
    (METHOD, "in the profile that `jouletrace demo` analyses the ratio is {}", whole(DEIT, counter_ratio=1)),
    (WHOLE, "of another GPU and day: {} ms, {} W, {} mJ", whole(DEIT, latency_s=MS, power_w=1, energy_total_j=MJ)),
    *((WHOLE, f"| deit-b, batch {batch}, graph | {energies} | {{}} % | {{}} % |", between_runs(energies))
      for batch, energies in TEN_RUNS.items()),
    (COMPARE, table_of("eager", "graph", "mJ", "higher"), sides(EAGER_GRAPH, MJ)),
    (COMPARE, table_of("fp32", "fp16", "J", "lower"), sides(FP32_FP16, J)),
    *((SERVING, f"| {rate} requests/s | {{}} ± {{}} | {{}} ± {{}} | {{}} |", token_prices(number))
      for number, rate in enumerate((2, 4, 8, 16))),
    (SERVING, "which can fail: " + ", ".join(["{}"] * 4) + " and " + ", ".join(["{}"] * 4),
     lambda _: [load_figure(name, "closure_steps", number) for name in RATES for number in range(4)]),
    *((SERVING, f"| {kind}, {prompt} + {answer} tokens" + " | {} ± {}" * 6 + " |",
       lambda _, kind=kind, prompt=prompt: in_the_mix(kind, prompt))
      for kind, prompt, answer in (("short", 100, 32), ("long", 200, 48))),
    *((SERVING, f"| {part}" + " | {} ± {}" * 4 + " |", served_and_alone(part))
      for phase in ("whole", "prefill", "decode") for part in (phase, f"{phase} above idle")),
    (SERVING, "The windows give {} ± {} for the whole and {} ± {} for decode",
     lambda _: [beside_alone(serving.windows)[part][2] for part in ("whole", "decode")]),
    (SERVING, "Their prefill is {} % off", lambda _: [100 * prefill_by_windows()]),
    (SERVING, "a step begins {} ms after the step before when served, {} ms when alone",
     lambda _: beside_alone(serving.iterations)["ms from step to step"][:2]),
    (SERVING, "Steps last {}, {} and {} ms (short, mix, long)", paced("ms, quartiles", 2)),
    (SERVING, "and begin {}, {} and {} ms apart", paced("ms from step to step", 2)),
    (SERVING, "Steps by their factors / energy of the window of short, mix and long: {}, {}, {}",
     lambda _: [load_figure(f"serving-{name}-h200.zip", "closure_steps", 0) for name in ("short", "mix", "long")]),
    (FLEET, "| DeiT-B: time of an iteration | {} ms | {} ± {} %", of_fleet("time_s", MS)),
    (FLEET, "| DeiT-B: energy | {} J | {} ± {} %", of_fleet("energy_j", J)),
    (FLEET, "Of the variance of DeiT-B's time {} % lies between GPUs, none between runs of a GPU, {} % within a run",
     TIME_SHARES),
    *((BURSTS, f"| {length} s ({n}) " + "| {} ± {} ({}) " * 5 + "| {} % | {} % | {} of {} | {} |",
       lambda _, place=place, length=length: bursts.table(place)[length])
      for place, lengths in BURST_RUNS.items() for length, n in lengths.items()),
    (any_model.PAGE, "analysed from the raw data by this version: {} ± {}", whole(SEGFORMER, closure_kernels=1)),
    *any_model.CLAIMS,
    *gpu_pages.CLAIMS,
    *peers_claims.CLAIMS,
    *atlas_claims.CLAIMS,
]  # fmt: skip


# the comparison


@dataclass(frozen=True)
class Line:
    """A text, what it states, what the data give, and whether they agree."""

    page: str
    text: str
    stated: tuple[str, ...]
    given: tuple[str, ...]
    holds: bool


def checked(data: Data) -> list[Line]:
    """Every claim against its data."""
    return [_line(page, text, given(data) if callable(given) else given) for page, text, given in CLAIMS]


def _line(page: str, text: str, figures: Values) -> Line:
    stated, halves = _stated(page, text), [before.endswith("± ") for before in text.split("{}")[:-1]]
    given: list[float] = []
    for one in figures:
        given.append(one.value if isinstance(one, Estimate) else one)
        if isinstance(one, Estimate) and halves[len(given) : len(given) + 1] == [True]:
            given.append(one.half_width)
    if stated is None or len(stated) != len(given):
        return Line(page, text, stated or ("not on the page",), tuple(f"{one:g}" for one in given), False)
    places = [len(one.partition(".")[2]) for one in stated]
    over = [
        (float(one.replace("−", "-")) - value) * 10**place
        for one, value, place in zip(stated, given, places, strict=True)
    ]
    near = [-ROUNDED <= off <= (UP if half else ROUNDED) for off, half in zip(over, halves, strict=True)]
    shown = tuple(f"{value:.{place}f}" for value, place in zip(given, places, strict=True))
    return Line(page, text, stated, shown, all(near))


def _stated(page: str, text: str) -> tuple[str, ...] | None:
    """The figures in the place of each ``{}``; None if the page doesn't have the text."""
    pattern = f"({NUMBER})".join(re.escape(part) for part in text.split("{}"))
    found = re.search(pattern, _plain(page))
    return found.groups() if found else None


@cache
def _plain(page: str) -> str:
    """A page without emphasis; where its lines are broken doesn't count."""
    return re.sub(r"\s+", " ", (ROOT / page).read_text().replace("**", ""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stored", action="store_true", help="of Runs with kernels the stored figures")
    lines = checked(Data(again=not parser.parse_args().stored))
    for line in lines:
        print(f"{'ok' if line.holds else 'WRONG':5}  {line.page}: {line.text}")
        print(f"       stated      {'  '.join(line.stated)}\n       recomputed  {'  '.join(line.given)}")
    wrong = sum(not line.holds for line in lines)
    print(f"{len(lines)} texts with {sum(len(line.given) for line in lines)} figures, {wrong} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
