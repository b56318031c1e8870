"""Compares figures that README.md and pages of docs state with what the raw data in the repository give.

    python benchmarks/stated.py             # Runs are analysed again from their readings and kernels: a minute
    python benchmarks/stated.py --stored    # of Runs with kernels the stored figures: seconds, as tests/test_figures.py

``CLAIMS`` is the table: a page, a text in it with ``{}`` where figures stand, and what computes these from which data.
Loads of servers and comparisons are of Runs as they state themselves, which ``show`` prints.
A figure holds if it rounds to what is stated. Prints each text with both; exits with 1 if one doesn't hold.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import atlas_claims
import bursts
import peers
import serving
from jouletrace.analysis import analyse
from jouletrace.comparing.compare import compare
from jouletrace.comparing.paired import paired
from jouletrace.run import Estimate, Run, load
from jouletrace.stats.interval import mean_estimate

ROOT = Path(__file__).parents[1]
RUNS, BUNDLED = ROOT / "docs" / "results" / "runs", ROOT / "src" / "jouletrace" / "bundled"

NUMBER = r"[-+−]?\d+(?:\.\d+)?"
ROUNDED, UP = 0.505, 1.005
"""Units in the last place by which stated figures may be off: rounded, and half-widths up; 0.005 for other machines."""

FINE, LARGE = 0.1, 0.05
"""Half-width of a row that counts as resolved, and the share of the energy from which on an operator is large."""

Values = Sequence[float]


@dataclass(frozen=True)
class Data:
    """The raw data; ``again``: whether Runs with kernels are analysed again, or state what they did when saved."""

    again: bool

    def run(self, name: str) -> Run:
        """A Run by the name of its file."""
        return _run(name, self.again)


@cache
def _run(name: str, again: bool) -> Run:
    run = load(next(folder / name for folder in (RUNS, BUNDLED) if (folder / name).exists()))
    return analyse(run) if again or not len(run.activity) else run


@cache
def _models() -> list[dict]:
    """The programs of any-model-h200.json, with how finely each was resolved."""
    return [_resolved(one) for one in json.loads((RUNS / "any-model-h200.json").read_text())]


def _resolved(found: dict[str, object]) -> dict[str, object]:
    """Figures of a recorded program with how finely it is resolved."""
    known = [row for row in found["energies"] if row[2] is not None]
    total = sum(value for _, _, value, _ in known) or float("nan")
    single = [(value, (half or float("inf")) / value) for _, named, value, half in known if named and value]
    large = [width for value, width in single if value >= LARGE * total]
    return {
        **found,
        "rows": sum(named for _, named, _, _ in found["energies"]),
        "fine_rows": sum(width <= FINE for _, width in single),
        "fine_share": sum(value for value, width in single if width <= FINE) / total,
        "large": len(large),
        "large_within_5": sum(width <= 0.05 for width in large),
    }


@cache
def _overhead() -> dict:
    found = json.loads((RUNS / "peers-overhead.json").read_text())
    return {"of": found["overhead"], "cores": found["cpu"]}


@cache
def _fleet() -> dict:
    return json.loads((RUNS / "fleet-deit-b-h200.json").read_text())["groups"][0]


@cache
def _bursts() -> dict[str, list[float]]:
    return bursts.table(RUNS / "bursts-h200.zip")


@cache
def _peers() -> dict:
    return json.loads((RUNS / "peers-h200.json").read_text())


# what computes figures


def plus_minus(figure: Estimate, scale: float = 1.0) -> Values:
    """A figure and the half-width of its interval."""
    return figure.value * scale, figure.half_width * scale


def whole(name: str, *metrics: tuple[str, float]) -> Callable[[Data], Values]:
    """Figures of the whole of a Run with their half-widths, each times a scale."""
    return lambda data: [
        value for metric, scale in metrics for value in plus_minus(data.run(name).result(metric), scale)
    ]


def values(name: str, *metrics: tuple[str, float]) -> Callable[[Data], Values]:
    """Figures of the whole of a Run, each times a scale."""
    return lambda data: [data.run(name).result(metric).value * scale for metric, scale in metrics]


def recorded(name: str) -> Callable[[Data], Values]:
    """Of a recorded program: seconds, energy with its half-width in kJ, power in W."""

    def found(data: Data) -> Values:
        run = data.run(name)
        energy = plus_minus(run.result("energy_total_j"), KJ)
        return run.result("iteration_time_s").value, *energy, run.result("power_w").value

    return found


def compiled(_: Data) -> Values:
    """Energy of MiniLM compiled over eager, less 1, with its half-width, as ``compare`` prints them, %."""
    a, b = ([(load(RUNS / f"minilm-256-{mode}-h100.zip"), mode)] for mode in ("eager", "compile"))
    return plus_minus(compare(a, b).row("energy_total_j").change, 100)


def load_figure(name: str, metric: str, number: int) -> Estimate:
    """A figure of a load of a server, by its number, as its Run states it."""
    run = load(RUNS / name)
    loads = [unit["id"] for unit in run.units.to_pylist() if unit["level"] == "load"]
    return run.result(metric, loads[number])


def token_prices(number: int) -> Callable[[Data], Values]:
    """Joules per output token of a load in two runs, and their ratio."""

    def found(_: Data) -> Values:
        a, b = (load_figure(name, "energy_per_output_token_j", number) for name in RATES)
        return [*plus_minus(a), *plus_minus(b), b.value / a.value]

    return found


def mixed(kind: str, prompt: int) -> Callable[[Data], Values]:
    """Bills of a kind of requests alone and in a mix, their ratio, and that above idle power."""

    def found(data: Data) -> Values:
        runs = [data.run(f"serving-{name}-h200.zip") for name in (kind, "mix")]
        alone, mix = (float(np.nanmean(serving.bills(run, *serving.KINDS[kind]))) for run in runs)
        above = [serving.above_idle(run)[0][prompt] for run in runs]
        return [alone, mix, mix / alone, above[1] / above[0]]

    return found


def served_phase(phase: str) -> Callable[[Data], Values]:
    """Joules per request of a phase, served and by ``profile``."""
    return lambda data: serving.phase_ratios(
        data.run("serving-short-h200.zip"), data.run("llama-generate-h200.zip"), phase
    )


def change(name: str, metric: str = "energy_total_j") -> Callable[[Data], Values]:
    """By how much less B of an ``ab`` has of a metric than A, %."""
    return lambda data: [-100 * compared(data.run(name), metric).change.value]


def sides(name: str, scale: float) -> Callable[[Data], Values]:
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


def compared(run: Run, metric: str):
    """The row of a metric of an ``ab``; computed from the readings each time."""
    return next(row for row in paired(run).rows if row.metric == metric)


def program(title: str) -> Callable[[Data], Values]:
    """The cells of a line of any-model-h200.md."""

    def found(_: Data) -> Values:
        one = next(one for one in _models() if one["title"] == title)
        fine = one["fine_rows"], one["rows"], 100 * one["fine_share"]
        large = one["large_within_5"], one["large"]
        return one["kernels"], *fine, *large, one["closure"], one["closure_half_width"], one["residual_w"]

    return found


def worst(_: Data) -> Values:
    """Programs but the worst, all; the least share of the active energy in fine rows of these, and of the worst, %."""
    shares = sorted(100 * one["fine_share"] for one in _models())
    return len(shares) - 1, len(shares), shares[1], shares[0]


def large_rows(_: Data) -> Values:
    """Large operators that are known to 5 %, and all."""
    return sum(one["large_within_5"] for one in _models()), sum(one["large"] for one in _models())


def closures(_: Data) -> Values:
    """Mean closure of all, and of those that didn't serve for tuning, with half-widths."""
    every = [one["closure"] for one in _models()]
    untuned = [one["closure"] for one in _models() if "(t)" not in one["title"]]
    return *plus_minus(mean_estimate(every)), len(untuned), *plus_minus(mean_estimate(untuned))


def closures_hold(_: Data) -> Values:
    """Closures whose intervals hold 1 below the cap, of how many, in %; those at the cap, of how many."""
    hold = {one["title"]: abs(one["closure"] - 1) <= one["closure_half_width"] for one in _models()}
    at = [held for title, held in hold.items() if "at the cap" in title]
    below = [held for title, held in hold.items() if "at the cap" not in title]
    return sum(below), len(below), 100 * sum(below) / len(below), sum(at), len(at)


def of_fleet(figure: str, scale: float) -> Callable[[Data], Values]:
    """Mean of a figure over the GPUs times a scale, and the spread max/min − 1 in % with its half-width."""

    def found(_: Data) -> Values:
        mean = np.mean([gpu[figure]["value"]["value"] for gpu in _fleet()["gpus"]])
        spread = _fleet()["spread"][figure]["range"]
        return mean * scale, 100 * spread["value"], 50 * (spread["high"] - spread["low"])

    return found


def fleet_shares(_: Data) -> Values:
    """Shares of the variance of time between GPUs and within a run, %."""
    levels = _fleet()["spread"]["time_s"]["variance"]
    return [100 * levels[name]["share"]["value"] for name in ("gpu", "within")]


def missed_s(*tools: str) -> float:
    """Seconds of the mean power of the work that tools miss of a block of 1 s and more, mean over the blocks."""
    rows = [row for row in _peers()["windows"]["rows"] if row["tool"] in tools and row["seconds"] >= 1]
    return float(
        np.mean([(1 - row["joules"] / row["truth"]) * (row["end_ns"] - row["start_ns"]) / 1e9 for row in rows])
    )


def worst_error(tools: Sequence[str], seconds: float) -> float:
    """The largest error of a block of some length, %."""
    rows = [row for row in _peers()["windows"]["rows"] if row["tool"] in tools and row["seconds"] == seconds]
    return max(abs(100 * (row["joules"] / row["truth"] - 1)) for row in rows)


def errors_of(tool: str, seconds: float) -> Values:
    """Mean and standard deviation of the errors of a tool in blocks of some length, %."""
    rows = [row for row in _peers()["windows"]["rows"] if row["tool"] == tool and row["seconds"] == seconds]
    errors = 100 * (np.array([row["joules"] / row["truth"] for row in rows]) - 1)
    return float(errors.mean()), float(errors.std(ddof=1))


def unread(seconds: float) -> Values:
    """CodeCarbon's blocks of some length that ended in less than 1 ms, so without a reading, of how many."""
    rows = [row for row in _peers()["windows"]["rows"] if row["tool"] == "codecarbon" and row["seconds"] == seconds]
    return sum(row["after_s"] < 1e-3 for row in rows), len(rows)


@cache
def _layers() -> dict:
    return json.loads((RUNS / "peers-layers-h200.json").read_text())["layers"]


def zeus_modules(kind: str) -> float:
    """Zeus around each module of a kind: joules per iteration."""
    return _layers()["zeus around each module"][kind]


def own_modules(form: str) -> Values:
    """Joules per iteration that jouletrace attributes to modules of some name, with the sum of their half-widths."""
    found = [one for name, one in _layers()["jouletrace"].items() if re.fullmatch(form, name)]
    return sum(one[0] for one in found), sum((one[2] - one[1]) / 2 for one in found)


def device_ms(name: str = "") -> float:
    """Milliseconds of an operator by torch's profiler, or of all of them."""
    times = _layers()["torch.profiler, device ms"]
    return sum(ms for each, ms in times.items() if each.startswith("aten::") and (not name or each == name))


def of_time(name: str) -> float:
    """Joules of an operator by its share of the time."""
    return _layers()["jouletrace"]["VisionTransformer"][0] * device_ms(name) / device_ms()


def between_runs(energies_mj: str) -> Callable[[Data], Values]:
    """Standard deviation and range of energies that a page lists, % of their mean."""
    every = np.array(energies_mj.split(), float)
    return lambda _: (100 * every.std(ddof=1) / every.mean(), 100 * np.ptp(every) / every.mean())


# the table

README, RESULTS, PEERS = "README.md", "docs/results/index.md", "docs/peers.md"
METHOD, PAPER = "docs/explanation/method.md", "docs/paper.md"
WHOLE, ANY, COMPARE = (f"docs/results/{name}.md" for name in ("whole-model-h100", "any-model-h200", "compare-h100"))
PROGRAMS, FLEET, BURSTS = (f"docs/results/{name}.md" for name in ("run-h200", "fleet-h200", "accuracy-spans"))
SERVING = "docs/results/serving-h200.md"

LAYER, NORM = r"encoder\.layers\.encoder_layer_\d+\.", "aten::native_layer_norm"
NORMS = LAYER + r"ln_[12]|encoder\.ln"
DEIT, RESNET, CUPY, DDP = "deit-b-64-graph-h100.zip", "resnet50-run-h200.zip", "cupy-run-h200.zip", "ddp-run-h200.zip"
RATES = ("serving-rates-a-h200.zip", "serving-rates-b-h200.zip")
EAGER_GRAPH, FP32_FP16, SEGFORMER = "eager-graph-h100.zip", "fp32-fp16-h100.zip", "segformer-kernels-h200.zip"
TEN_RUNS = {
    1: "227.95 227.55 228.12 228.25 228.65 228.30 228.37 227.88 228.66 229.10",
    64: "4704.18 4696.28 4697.42 4694.29 4690.28 4694.14 4697.96 4694.99 4696.80 4698.54",
}
"""Energies of DeiT-B by batch that whole-model-h100.md lists, mJ: of runs that were not kept."""
J, MJ, KJ, S, MS = 1.0, 1e3, 1e-3, 1.0, 1e3

CLAIMS: list[tuple[str, str, Callable[[Data], Values]]] = [
    (README, "DeiT-B at batch 64 takes {} ± {} J per iteration", whole(DEIT, ("energy_total_j", J))),
    (README, "In {} of {} programs on H200s, the operators whose energy is known to ± 10 % or better take {} % or "
             "more of the active energy, from 20 s of recording each; in the other program, Llama-1B, they take {} %",
     worst),
    (README, "A CUDA graph saves {} % of the energy of DeiT-B at batch 1", change(EAGER_GRAPH)),
    (README, "fp16 {} % of fp32's at batch 8", change(FP32_FP16)),
    (README, "{} ± {} kJ (± 5.7 % absolute) in ", whole(RESNET, ("energy_total_j", KJ))),
    (README, "absolute) in {} s", values(RESNET, ("iteration_time_s", S))),
    (README, "{} ± {} W on average", whole(RESNET, ("power_w", 1))),
    (README, "parts are {} ± {} of the whole", whole(RESNET, ("closure_kernels", 1))),
    (README, "power inside one iteration of {} ms", lambda data: [waveform_ms(data.run("deit-b-64-layers-h200.zip"))]),
    *((README, f"{{}} ± {{}} J at {rate}", lambda _, number=number: plus_minus(
        load_figure(RATES[0], "energy_per_output_token_j", number)))
      for number, rate in ((0, "2 requests"), (3, "16;"))),
    (README, "jouletrace is {} ± {} % off, Zeus {} ± {} %, `nvidia-smi` {} ± {} %", lambda _: [
        value for tool in ("jouletrace", "zeus", "nvidia-smi") for value in errors_of(tool, 1.0)]),
    (RESULTS, "eager against a CUDA graph: {} % less energy", change(EAGER_GRAPH)),
    (RESULTS, "fp32 against fp16: {} % less", change(FP32_FP16)),
    (METHOD, "in the profile that `jouletrace demo` analyses the ratio is {}", values(DEIT, ("counter_ratio", 1))),
    (WHOLE, "of another GPU and day: {} ms, {} W, {} mJ",
     values(DEIT, ("latency_s", MS), ("power_w", 1), ("energy_total_j", MJ))),
    *((WHOLE, f"| deit-b, batch {batch}, graph | {energies} | {{}} % | {{}} % |", between_runs(energies))
      for batch, energies in TEN_RUNS.items()),
    (COMPARE, table_of("eager", "graph", "mJ", "higher"), sides(EAGER_GRAPH, MJ)),
    (COMPARE, table_of("fp32", "fp16", "J", "lower"), sides(FP32_FP16, J)),
    (PROGRAMS, "CuPy: FFT and sort | {} | {} ± {} kJ | {} W", recorded(CUPY)),
    (PROGRAMS, "merge sort {} %", lambda data: [kernel_share(data.run(CUPY), "Sort")]),
    (PROGRAMS, "DistributedDataParallel on two GPUs | {} | {} ± {} kJ | {} W", recorded(DDP)),
    *((SERVING, f"| {rate} requests/s | {{}} ± {{}} | {{}} ± {{}} | {{}} |", token_prices(number))
      for number, rate in enumerate((2, 4, 8, 16))),
    (SERVING, "which can fail: " + ", ".join(["{}"] * 4) + " and " + ", ".join(["{}"] * 4),
     lambda _: [load_figure(name, "closure_steps", number).value for name in RATES for number in range(4)]),
    (SERVING, "An output token takes {} ± {} J there",
     lambda _: plus_minus(load_figure("serving-traced-h200.zip", "energy_per_output_token_j", 0))),
    *((SERVING, f"| {prompt} + {answer} tokens, J | {{}} | {{}} | {{}} | {{}} |", mixed(kind, prompt))
      for kind, prompt, answer in (("short", 100, 32), ("long", 600, 96))),
    *((SERVING, f"| {phase} | {{}} | {{}} | {{}} | {{}} | {{}} | {{}} |", served_phase(phase))
      for phase in ("prefill", "decode")),
    (FLEET, "| DeiT-B: time of an iteration | {} ms | {} ± {} %", of_fleet("time_s", MS)),
    (FLEET, "| DeiT-B: energy | {} J | {} ± {} %", of_fleet("energy_j", J)),
    (FLEET, "Of the variance of DeiT-B's time {} % lies between GPUs, none between runs of a GPU, {} % within a run",
     fleet_shares),
    *((BURSTS, f"| {length} s ({n}) " + "| {} ± {} ({}) " * 5 + "| {} % | {} % | {} of {} |",
       lambda _, length=length: _bursts()[length]) for length, n in (("0.05", 24), ("0.2", 24), ("1", 20), ("3", 20))),
    *((PEERS, line, lambda _: ()) for line in peers.blocks(_peers()["windows"]["rows"])),
    *((PEERS, line, lambda _: ()) for line in peers.overhead(**_overhead())),
    (PEERS, "{} s with Zeus, {} s with CodeCarbon, {} s with the momentary power, {} s with `nvidia-smi` "
            "and {} s with jouletrace", lambda _: [
        missed_s(*tools) for tools in (("zeus", "zeus, approx"), ("codecarbon",), ("NVML instant",), ("nvidia-smi",),
                                       ("jouletrace",))]),
    (PEERS, "their largest error is {} % in blocks of 5 s and {} % in those of 10 s",
     lambda _: [worst_error(("zeus", "zeus, approx", "codecarbon"), seconds) for seconds in (5, 10)]),
    (PEERS, "jouletrace's is {} % in both",
     lambda _: [max(worst_error(("jouletrace",), seconds) for seconds in (5, 10))]),
    (PEERS, "its largest errors are {} % at 1 s and {} % at 0.05 s",
     lambda _: [worst_error(("jouletrace",), seconds) for seconds in (1, 0.05)]),
    (PEERS, "{} of {} blocks of 1 s and {} of {} of 0.05 s", lambda _: [*unread(1), *unread(0.05)]),
    (PEERS, "an iteration at batch 1 without any tool took {} to {} ms", lambda _: [
        edge(1e3 * plain for pairs in _overhead()["of"]["batch 1"].values() for plain, _ in pairs)
        for edge in (min, max)]),
    (PEERS, "| attention, 12 modules | – | – | {} J | {} ± {} J |", lambda _: [
        zeus_modules("attention"), *own_modules(LAYER + "self_attention")]),
    (PEERS, "| MLPs, 12 | – | – | {} J | {} ± {} J |", lambda _: [zeus_modules("mlp"), *own_modules(LAYER + "mlp")]),
    (PEERS, "| norms, 25 | {} ms | {} J | {} J | {} ± {} J |", lambda _: [
        device_ms(NORM), of_time(NORM), zeus_modules("norm"), *own_modules(NORMS)]),
    (PEERS, "| GELUs, 12 | {} ms | {} J | – | {} ± {} J |", lambda _: [
        device_ms("aten::gelu"), of_time("aten::gelu"), *own_modules(LAYER + r"mlp\.1")]),
    (PEERS, "| whole | {} ms | – | – | {} ± {} J; sum of parts {} J |", lambda _: [
        device_ms(), *own_modules("VisionTransformer"),
        own_modules(r"conv_proj|encoder|\(outside of modules\)|idle")[0]]),
    (PEERS, "Its norms take {} times the whole", lambda _: [
        zeus_modules("norm") / own_modules("VisionTransformer")[0]]),
    (PEERS, "Norms get {} times what jouletrace attributes to them: {} J over the profiler's {} ms is {} W", lambda _: [
        of_time(NORM) / own_modules(NORMS)[0], own_modules(NORMS)[0], device_ms(NORM),
        1e3 * own_modules(NORMS)[0] / device_ms(NORM)]),
    *((ANY, f"| {title} | " + "{} | {} of {} | {} % | {} of {} | {} ± {} | {} W |", program(title))
      for title in (one["title"] for one in _models())),
    (ANY, "{} of {} reach the goal", large_rows),
    (ANY, "Mean of 26: {} ± {}, so equal to 1 within 2 % (two one-sided tests, p < 0.001); of the {} untuned: "
          "{} ± {}", closures),
    (ANY, "Below the cap {} of {} intervals hold 1 ({} %), goal 90 %. At the cap {} of {} do", closures_hold),
    (PAPER, "to the energy of the untraced program is {} ± {};", lambda data: closures(data)[:2]),
    (PAPER, "| parts / untraced whole, 26 programs on H200s, mean | {} ± {};", lambda data: closures(data)[:2]),
    (PAPER, "| the same, {} programs that nothing was tuned on | {} ± {} |", lambda data: closures(data)[2:]),
    (PAPER, "below the power cap {} of {} intervals hold 1, at the cap none of {}", lambda data: [
        number for place, number in enumerate(closures_hold(data)) if place in (0, 1, 4)]),
    (PAPER, "at the cap four are {} to {} % above it", lambda _: [
        100 * (f(one["closure"] for one in _models() if "at the cap" in one["title"]) - 1) for f in (min, max)]),
    (ANY, "analysed from the raw data by this version: {} ± {}", whole(SEGFORMER, ("closure_kernels", 1))),
    (README, "takes {} ± {} % more energy compiled", compiled),
    *atlas_claims.CLAIMS,
]  # fmt: skip


def waveform_ms(run: Run) -> float:
    """Length of the iteration that the waveform of a Run is of."""
    return float(run.waveform["end_ns"][-1].as_py() - run.waveform["start_ns"][0].as_py()) / 1e6


def kernel_share(run: Run, name: str) -> float:
    """Share of kernels with a word in their names in the energy of the whole, %."""
    kernels = [unit for unit in run.units.to_pylist() if unit["level"] == "kernel" and name in unit["name"]]
    joules = sum(run.result("energy_total_j", unit["id"]).value or 0.0 for unit in kernels)
    return 100 * joules / run.result("energy_total_j").value


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
    return [_line(page, text, tuple(compute(data))) for page, text, compute in CLAIMS]


def _line(page: str, text: str, given: Values) -> Line:
    stated = _stated(page, text)
    if stated is None or len(stated) != len(given):
        return Line(page, text, stated or ("not on the page",), tuple(f"{one:g}" for one in given), False)
    places = [len(one.partition(".")[2]) for one in stated]
    halves = [before.endswith("± ") for before in text.split("{}")[:-1]]
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
