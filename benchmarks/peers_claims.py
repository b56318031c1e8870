"""Texts of docs/peers.md and their figures, computed from what ``peers_gpu.py`` measured; for ``stated.py``."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import binom

import peers_errors
from peers_errors import Row

PAGE, README = "docs/peers.md", "README.md"
MEASURED = json.loads((Path(__file__).parents[1] / "docs" / "results" / "runs" / "peers-h200.json").read_text())
TABLES = [" ".join(line.split()) for line in peers_errors.tables(MEASURED).splitlines()]

TRUTHS: dict[str, Callable] = {
    "steady": peers_errors.of_steady,
    "training": peers_errors.of_training,
    "bursts": peers_errors.of_bursts,
    "inside": peers_errors.of_inside,
}
ROWS = {name: peers_errors.judged(MEASURED[name], truths) for name, truths in TRUTHS.items()}
WINDOWS = peers_errors.of_windows(MEASURED["bursts"], peers_errors.of_bursts)
KERNELS, OVERHEAD = MEASURED["kernels"], MEASURED["overhead"]
ALONE, WAYS = peers_errors.alone(KERNELS), peers_errors.ways(KERNELS)
OURS, SHARE = WAYS["jouletrace"], WAYS["torch.profiler's share × energy"]
CHAIN_S = KERNELS["said"]["in the chain"]
THREE = ("mm fp16", "gelu", "convolution")


def errors(section: str, *tools: str, of_s: float) -> np.ndarray:
    """Errors of blocks of a length, %."""
    return np.array([row["error_pct"] for row in ROWS[section] if row["tool"] in tools and row["length_s"] == of_s])


def spread(section: str, tool: str, of_s: float) -> tuple[float, float]:
    """Mean and standard deviation of errors, %."""
    percent = errors(section, tool, of_s=of_s)
    return float(percent.mean()), float(percent.std(ddof=1))


def worst_mean() -> float:
    """The largest mean error of a tool and length in loads that go on, %."""
    cells = {(name, row["tool"], row["length_s"]) for name in ("steady", "training") for row in ROWS[name]}
    return float(max(abs(errors(name, tool, of_s=length_s).mean()) for name, tool, length_s in cells))


def worst_of_ours() -> float:
    """The largest error of a block of jouletrace in loads that go on, %."""
    rows = [*ROWS["steady"], *ROWS["training"]]
    return max(abs(row["error_pct"]) for row in rows if row["tool"] == "jouletrace")


def held(*sections: str) -> list[float]:
    """How many of jouletrace's intervals hold the truth, of how many, by section."""
    return [float(one) for name in sections for one in peers_errors.held(ROWS[name]).split(": ")[1].split(" of ")]


def after_ms(which: str, *tools: str) -> list[float]:
    """The median of each tool after bursts, ms."""
    return [1e3 * float(np.median([row[which] for row in ROWS["bursts"] if row["tool"] == tool])) for tool in tools]


def waits_s() -> list[float]:
    """The shortest and the longest of jouletrace's times to a figure, s."""
    waits = [row["figure_s"] for row in ROWS["bursts"] if row["tool"] == "jouletrace"]
    return [min(waits), max(waits)]


def scatters(within_pct: float) -> list[float]:
    """Of means inside work that are that near to the truth, the least and the largest scatter, %."""
    cells = {(row["tool"], row["length_s"]) for row in ROWS["inside"] if row["tool"] != "NVML samples"}
    both = [spread("inside", tool, length_s) for tool, length_s in cells]
    near = [deviation for mean, deviation in both if abs(mean) < within_pct]
    return [min(near), max(near)]


def longer_ms(tool: str) -> list[float]:
    """By how much a tool's stated time exceeds the work, the least and the most, ms."""
    rows = [row for name in ("steady", "training", "bursts") for row in ROWS[name] if row["tool"] == tool]
    more = [1e3 * (row["stated_s"] - (row["at"][2] - row["at"][1]) / 1e9) for row in rows]
    return [min(more), max(more)]


def plain_ms(work: str) -> list[float]:
    """The fastest and the slowest turn without a tool, ms per iteration."""
    turns = [1e3 * row["s"] for row in OVERHEAD["rows"] if (row["tool"], row["work"]) == ("nothing", work)]
    return [min(turns), max(turns)]


def above(joules: dict, *operators: str) -> list[float]:
    """By how much operators are above the same alone, %."""
    return [100 * (joules[name] / ALONE[name]["j"] - 1) for name in operators]


def windows(of_s: float) -> list[float]:
    """Mean and sd of the errors of a window on the counter over all blocks of bursts, %, and their number."""
    percent = [row["error_pct"] for row in WINDOWS if row["length_s"] == of_s]
    return [float(np.mean(percent)), float(np.std(percent, ddof=1)), len(percent)]


def random_windows(which: int, about_s: float) -> float:
    """The larger of the standard deviations (0) or worst errors (1) of loads that go on, %."""
    return max(peers_errors.of_random_windows(MEASURED[name], about_s)[which] for name in ("steady", "training"))


def in_all(*sections: str) -> list[float]:
    """How many of jouletrace's intervals hold the truth in all sections, of how many."""
    return [sum(held(*sections)[which::2]) for which in (0, 1)]


def raised(length_s: float) -> list[Row]:
    """jouletrace's bursts inside work, with what the lighter work then draws less added to the truth."""
    rows = [row for row in ROWS["inside"] if row["tool"] == "jouletrace" and row["length_s"] == length_s]
    return [
        row | {"true_j": row["true_j"] + peers_errors.lowered_j(MEASURED["inside"], row["count"])[0]} for row in rows
    ]


def raised_errors(length_s: float) -> list[float]:
    """Mean and sd of the errors to the raised truth, %."""
    percent = [100 * (row["joules"][0] / row["true_j"] - 1) for row in raised(length_s)]
    return [float(np.mean(percent)), float(np.std(percent, ddof=1))]


def of_miss(length_s: float) -> float:
    """How much of jouletrace's mean miss inside work the lowered power is, %."""
    rows = [row for row in ROWS["inside"] if row["tool"] == "jouletrace" and row["length_s"] == length_s]
    missed_j = np.mean([row["joules"][0] - row["true_j"] for row in rows])
    return float(100 * peers_errors.lowered_j(MEASURED["inside"], rows[0]["count"])[0] / missed_j)


PERCENT = peers_errors.slowdown.more(OVERHEAD["run"]["encoder"])
FIGURES = peers_errors.of_table(KERNELS["said"]["jouletrace"])
HALVES = [50 * (one["high"] - one["low"]) / one["value"] for one in FIGURES.values()]
HELD_ALONE = [FIGURES[name]["low"] <= ALONE[name]["j"] <= FIGURES[name]["high"] for name in ALONE]
PEERS = ("zeus", "zeus, approx", "codecarbon", "codecarbon, task")
HELD, HELD_IN_ALL = in_all("steady", "training", "bursts"), in_all(*TRUTHS)
RAISED = peers_errors.held([row for length_s in (0.05, 0.1) for row in raised(length_s)])
INSIDE, AFTER = spread("inside", "jouletrace", 0.05), after_ms("figure_s", *PEERS)

CLAIMS = [(PAGE, text, given) for text, given in (
    *((line, ()) for line in TABLES if line.startswith("|")),
    *((line.split(";")[0].capitalize().replace("standard deviation", "Standard deviation"), ())
      for line in TABLES if line.startswith("standard deviation")),
    *((line.split("counter ")[1], ()) for line in TABLES if line.startswith("a window")),
    ("It is {} ± {} % off at 50 ms and {} ± {} % at 100 ms", [*INSIDE, *spread("inside", "jouletrace", 0.1)]),
    ("no figure at 20 ms, and {} of {} intervals hold the truth", held("inside")),
    ("all tools come within {} %", [worst_mean()]),
    ("{} of {} of jouletrace's intervals hold the truth, taken for exact", in_all("steady", "training")),
    ("{} of {} intervals hold the truth without *inside*, {} of {} with it", [*HELD, *HELD_IN_ALL]),
    ("that few, or fewer, of 13 hold in {} % of cases", [100 * float(binom.cdf(HELD[0], HELD[1], 0.95))]),
    ("a window on the counter of 0.95 to 1.05 s scatters by {} % (at worst {} %)",
     [random_windows(which, 1.0) for which in (0, 1)]),
    ("one of 4.95 to 5.05 s by {} % (at worst {} %)", [random_windows(which, 5.0) for which in (0, 1)]),
    ("then draws {} ± {} J less in 0.2 s after bursts of 50 ms, {} ± {} J after 100 ms",
     [one for count in (29, 59) for one in peers_errors.lowered_j(MEASURED["inside"], count)]),
    ("{} % of the mean miss at 50 ms, {} % at 100 ms", [of_miss(0.05), of_miss(0.1)]),
    ("jouletrace is {} ± {} % off at 50 ms, {} ± {} % at 100 ms", [*raised_errors(0.05), *raised_errors(0.1)]),
    ("and {} of {} intervals hold it", [float(one) for one in RAISED.split(": ")[1].split(" of ")]),
    ("It waits {} ms", after_ms("figure_s", "jouletrace")),
    ("takes {} ms of CPU time", after_ms("figure_cpu_s", "jouletrace")),
    ("Zeus and CodeCarbon answer in {} to {} ms", [min(AFTER), max(AFTER)]),
    ("are {} to {} % above the same alone", [min(above(OURS, *THREE)), max(above(OURS, *THREE))]),
    ("0.23 % at 1 s, 0.05 % at 5 s. jouletrace's intervals that hold it: {} of {}.", held("steady")),
    ("at 3 s. jouletrace's intervals that hold it: {} of {};", held("bursts")),
    ("0.24 % at 1 s, 0.05 % at 5 s. jouletrace's intervals that hold it: {} of {}.", held("training")),
    ("common to all blocks of a length. jouletrace's intervals that hold it: {} of {}.", held("inside")),
    ("At 3 s Zeus is {} % off", -errors("bursts", "zeus", of_s=3.0)),
    ("a mean over the last second, {} %", -errors("bursts", "nvidia-smi", of_s=3.0)),
    ("means within 12 % of the truth scatter by {} to {} %", scatters(12)),
    ("mm fp16 takes {} % less time, gelu {} %, convolution {} %",
     [100 * (1 - 1e3 * CHAIN_S[name] / ALONE[name]["ms"]) for name in THREE]),
    ("jouletrace has {}, {} and {} % above alone", above(OURS, *THREE)),
    ("By the counter an iteration of the chain takes {} J", [sum(SHARE.values())]),
    ("all operators alone {} J", [sum(one["j"] for one in ALONE.values())]),
    ("jouletrace's rows sum to {} J", [sum(OURS[name] for name in ALONE)]),
    ("and is {} % above alone for cumsum, {} % for mul", above(SHARE, "cumsum", "mul")),
    ("mm fp16 has {} W there", [OURS["mm fp16"] / CHAIN_S["mm fp16"]]),
    ("intervals of ± {} to {} % hold alone of {} of {}",
     [min(HALVES), max(HALVES), sum(HELD_ALONE), len(HELD_ALONE)]),
    ("turns without a tool took {} to {} ms per iteration", plain_ms("launches")),
    ("for the encoder, {} ({} to {}) %", PERCENT),
    ("{} to {} s of it, and ships constants", waits_s()),
    ("is {} to {} ms longer than the work", longer_ms("codecarbon")),
)]  # fmt: skip
CLAIMS += [
    (README, "a window on the energy counter of about 1 s scatters by {} %, of about 5 s by {} %",
     [random_windows(0, length_s) for length_s in (1.0, 5.0)]),
    (README, "jouletrace's five blocks are off by {} % at most", [worst_of_ours()]),
    (README, "jouletrace is {} ± {} % off, `nvidia-smi` {} ± {} %",
     [value for tool in ("jouletrace", "nvidia-smi") for value in spread("bursts", tool, 1.0)]),
    (README, "such a window, as Zeus's, {} ± {} % (n = {})", windows(1.0)),
    (README, "bursts of 50 ms inside other work jouletrace is {} ± {} % off", INSIDE),
    (README, "of all its intervals {} of {} hold", HELD_IN_ALL),
]  # fmt: skip
