"""Texts of docs/results/atlas.md, and what computes their figures from the data set beside it; for ``stated.py``."""

from __future__ import annotations

import math
from operator import itemgetter
from pathlib import Path

from atlas import IDLE, POOL, read
from jouletrace.run import Estimate
from jouletrace.run.channels import GAIN_PCT
from jouletrace.sensor.gain import gain_between
from jouletrace.stats.interval import mean_estimate

DATA = Path(__file__).parents[1] / "docs" / "results" / "atlas"
ATLAS, KERNELS = "docs/results/atlas.md", "docs/results/accuracy-programs.md"

RUNS, OPERATORS = (table.to_pylist() for table in read(DATA))
RUNS.sort(key=lambda one: one["measured"])
LATEST = [row for row in RUNS if row["latest"]]
"""A Run of each configuration."""

PARTS: dict[str, list[dict]] = {}
for part in OPERATORS:
    PARTS.setdefault(part["run"], []).append(part)


def configuration(model: str, batch: int, mode: str, gpu: str = "H100") -> dict:
    """A Run of a configuration, the latest one; empty if it wasn't measured."""
    wanted = (model, batch, mode)
    found = [r for r in RUNS if gpu in r["gpu"] and (r["model"], r["batch"], r["mode"]) == wanted]
    return found[-1] if found else {}


def in_group(row: dict, group: str, share: str = "energy_share") -> float:
    """Share of a group of operators in a Run, %."""
    return 100 * sum(part[share] or 0.0 for part in PARTS[row["run"]] if part["group"] == group)


def figure(row: dict, name: str, scale: float = 1e3) -> Estimate:
    """A figure of a Run."""
    return Estimate(row[name], row[f"{name}_low"], row[f"{name}_high"]).scaled(scale)


def over(one: dict, other: dict, name: str) -> Estimate:
    """A figure of a Run over that of another, as if they were independent."""
    a, b = figure(one, name), figure(other, name)
    ratio = a.value / b.value
    half = ratio * math.hypot(a.half_width / a.value, b.half_width / b.value)
    return Estimate(ratio, ratio - half, ratio + half)


def compiled(model: str, batch: int, name: str = "energy_j", gpu: str = "H100") -> Estimate:
    """A figure compiled over eager."""
    return over(*(configuration(model, batch, mode, gpu) for mode in ("compile", "eager")), name)


def line(gpu: str, label: str, model: str, batch: int) -> tuple[str, list[float | Estimate]]:
    """A line of the table, and its figures."""
    modes = [configuration(model, batch, mode, gpu) for mode in ("eager", "compile")]
    there = [one for one in modes if one]
    names = ("energy_j", "energy_active_j", "iteration_ms") if all(modes) else ()
    ratio = " | ".join(["{} ± {}" if names else "–"] * 3)
    size = f"{batch}{' †' if any('not_settled' in one['trust_failed'] for one in there) else ''}"
    joules, idle = (" | ".join(form if one else "–" for one in modes) for form in ("{} ± {}", "{}"))
    return f"| {label} | {size} | {joules} | {ratio} | {idle} |", [
        *(figure(one, "energy_j", 1e3 / batch) for one in there),
        *(over(*modes[::-1], name) for name in names),
        *(in_group(one, IDLE, "time_share") for one in there),
    ]


def pairs() -> list[float]:
    """Pairs on an H100 in which compiling saves energy beyond the interval, of how many; costs; the same above idle."""
    on_h100 = {(row["model"], row["batch"]) for row in LATEST if "H100" in row["gpu"] and row["mode"] == "compile"}
    counts = []
    for name in ("energy_j", "energy_active_j"):
        ratios = [compiled(*one, name) for one in on_h100]
        counts += [sum(one.high < 1 for one in ratios), sum(one.low > 1 for one in ratios)]
    return [counts[0], len(on_h100), *counts[1:]]


def waiting() -> list[float]:
    """Configurations at batch 1 on an H100: % of time without a kernel, of energy where it is known."""
    rows = [row for row in LATEST if row["batch"] == 1 and "H100" in row["gpu"]]
    time = [in_group(row, IDLE, "time_share") for row in rows]
    energy = [in_group(row, IDLE) for row in rows if row["parts_by_whole"]]
    return [min(time), max(time), len(energy), len(rows), min(energy), max(energy)]


def sums(most_idle: float = 100.0) -> tuple[int, Estimate, int]:
    """How many configurations have sums of parts, their mean over the whole, and how many intervals hold 1.

    Of those whose idle time takes at most ``most_idle`` percent of the energy.
    """
    rows = [row for row in LATEST if row["parts_by_whole"] and in_group(row, IDLE) <= most_idle]
    hold = sum(row["parts_by_whole_low"] <= 1 <= row["parts_by_whole_high"] for row in rows)
    return len(rows), mean_estimate([row["parts_by_whole"] for row in rows]), hold


def above_the_limit() -> list[int]:
    """Operators and kernels with 5 % of the energy; those that draw more than 700 W; products among them."""
    every = [part for row in LATEST for part in PARTS[row["run"]] if (part["energy_share"] or 0) >= 0.05]
    known = [part for part in every if part["power_w"] and part["group"] not in (IDLE, POOL)]
    hot = [part for part in known if part["power_w_low"] > 700]
    return [len(known), len(hot), sum(part["group"] == "matrix product" for part in hot)]


def without_tensor_cores() -> float:
    """Share of products in float32 in the energy of MiniLM at batch 256, compiled, %."""
    found = PARTS[configuration("minilm", 256, "compile")["run"]]
    return 100 * sum(one["energy_share"] for one in found if "f32f32" in one["operator"])


def of_minilm(name: str, module: str = "") -> list[Estimate]:
    """Energy in mJ and power in W of an operator of MiniLM at batch 1 on an H200."""
    rows = PARTS[configuration("minilm", 1, "eager", "H200")["run"]]
    (row,) = [r for r in rows if name in r["operator"] and (r["module"] or "").endswith(module)]
    return [figure(row, "energy_j"), figure(row, "power_w", 1.0)]


def per_sample(model: str, batch: int) -> float:
    """Energy per sample at batch 1 over that at a batch, eager, on an H100."""
    one, many = (configuration(model, size, "eager")["energy_per_sample_j"] for size in (1, batch))
    return one / many


def agreeing() -> list[int]:
    """Configurations measured twice whose energies above idle agree within both intervals, and how many there are.

    Then how many agree when ± 5 % of each of both sensors is added.
    """
    key = itemgetter("gpu", "model", "batch", "mode")
    first = {key(row): row for row in reversed(RUNS)}
    ratios = [over(row, first[key(row)], "energy_active_j") for row in LATEST if row is not first[key(row)]]
    own, with_gains = (
        sum(abs(one.value - 1) <= one.half_width + gain for one in ratios)
        for gain in (0, gain_between(GAIN_PCT / 100, GAIN_PCT / 100))
    )
    return [own, len(ratios), with_gains]


LINES = [
    *(("H100", label, model, batch) for label, model, batches in (
        ("ResNet-50", "resnet50", (1, 64)), ("ConvNeXt-T", "convnext", (1, 64)), ("Swin-T", "swin-tiny", (1, 64)),
        ("GPT-2-large", "gpt2-large", (1, 8)), ("SegFormer-B2", "segformer", (1, 16)), ("MPNet", "mpnet", (1, 128)),
        ("MiniLM", "minilm", (1, 256)), ("Gemma2-like", "gemma2", (1, 8)),
        ("Whisper-small-like", "whisper", (1, 16)), ("DLRM", "dlrm", (64, 8192))) for batch in batches),
    *(("H200", label, model, batch) for label, model, batches in (
        ("ConvNeXt-T, H200", "convnext", (1, 64)), ("MiniLM, H200", "minilm", (1, 256)),
        ("DLRM, H200", "dlrm", (64, 8192))) for batch in batches),
]  # fmt: skip
"""GPU, name, model and batch of the lines of the table."""

ALL, WORKING = sums(), sums(20)
CLAIMS = [
    *((ATLAS, *line(*one)) for one in LINES),
    ("docs/paper.md", "{} configurations of ten models that nothing was tuned on, H100s and H200s | {} ± {}; {} of {} "
                      "intervals hold 1; {} ± {} for the {} with", [*ALL, ALL[0], WORKING[1], WORKING[0]]),
    (ATLAS, "half-widths of times reach {} %", [
        max(100 * one.half_width / one.value for one in (figure(row, "iteration_ms") for row in LATEST))]),
    (ATLAS, "{} configurations pass all checks, {} pass with care, {} don't", [
        sum(row["trust"] == one for row in LATEST) for one in ("yes", "with care", "no")]),
    (ATLAS, "MiniLM at batch 256 takes {} ± {} times", [compiled("minilm", 256)]),
    (ATLAS, "they take {} % of the energy", [without_tensor_cores()]),
    (ATLAS, "saves energy in {} of {} pairs on H100s and costs some in {}, beyond the intervals; above idle it saves "
            "in {} and costs in {}", pairs()),
    (ATLAS, "MPNet takes {} ± {} of its eager energy", [compiled("mpnet", 1)]),
    (ATLAS, "no difference above idle is shown ({} ± {})", [compiled("mpnet", 1, "energy_active_j")]),
    (ATLAS, "No kernel runs for {} to {} % of the time. In the {} of {} configurations with energies of operators, "
            "waiting takes {} to {} %", waiting()),
    (ATLAS, "ConvNeXt takes {} times less energy per image at batch 64 than at 1, MiniLM {} times less per text at 256",
     [per_sample("convnext", 64), per_sample("minilm", 256)]),
    (ATLAS, "Gemma2 gains {} times by batch 8 and {} times by the compiler",
     [per_sample("gemma2", 8), 1 / compiled("gemma2", 1).value]),
    (ATLAS, "Of the {} operators and kernels with 5 % of the energy and more, {} draw more than 700 W while they run, "
            "by their whole intervals; {} of these", above_the_limit()),
    (ATLAS, "of the {} configurations with both: mean {} ± {}", ALL[:2]),
    (ATLAS, "{} of {} intervals hold 1 ({} %)", [ALL[2], ALL[0], 100 * ALL[2] / ALL[0]]),
    (ATLAS, "the mean of {} is {} ± {}", WORKING[:2]),
    (ATLAS, "On H200s MiniLM takes {} ± {} times", [compiled("minilm", 256, gpu="H200")]),
    *((KERNELS, f"| {label} | " + "{} ± {} | {} ± {} |", of_minilm(*of)) for label, of in (
        ("dense of the outputs | 6 | 28.7", ("addmm", "layer.*.output.dense")),
        ("dense of the intermediates | 6 | 19.4", ("addmm", "intermediate.dense")),
        ("layer norms of the outputs | 6 | 15.9", ("layer_norm", "layer.*.output.LayerNorm")),
        ("GELU | 6 | 8.6", ("gelu", "intermediate_act_fn")), ("no kernel | – | 2860", (IDLE,)))),
    (KERNELS, "Sum of the rows / untraced whole: {} ± {}", [
        figure(configuration("minilm", 1, "eager", "H200"), "parts_by_whole", 1.0)]),
    (ATLAS, "{} of {} agree within their intervals, and {} with ± 5 % for each of the two sensors", agreeing()),
]  # fmt: skip
