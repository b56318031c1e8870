"""Texts of docs/results/atlas.md, and what computes their figures from the data set beside it; for ``stated.py``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from atlas import IDLE, POOL, read
from jouletrace.run.channels import GAIN_PCT
from jouletrace.sensor.gain import gain_between
from jouletrace.stats.interval import mean_estimate

DATA = Path(__file__).parents[1] / "docs" / "results" / "atlas"
ATLAS, KERNELS = "docs/results/atlas.md", "docs/results/accuracy-programs.md"

Values = Sequence[float]


@cache
def _atlas() -> tuple[list[dict], dict[str, list[dict]]]:
    """Runs of the atlas, the latest last, and the operators of each."""
    runs, operators = (table.to_pylist() for table in read(DATA))
    parts: dict[str, list[dict]] = {}
    for one in operators:
        parts.setdefault(one["run"], []).append(one)
    return sorted(runs, key=lambda one: one["measured"]), parts


def latest() -> list[dict]:
    """A Run of each configuration, the latest."""
    return [row for row in _atlas()[0] if row["latest"]]


def configuration(model: str, batch: int, mode: str, gpu: str = "H100") -> dict | None:
    """A Run of a configuration, the latest one; None if it wasn't measured."""
    wanted = (model, batch, mode)
    found = [r for r in _atlas()[0] if gpu in r["gpu"] and (r["model"], r["batch"], r["mode"]) == wanted]
    return found[-1] if found else None


def parts(row: dict) -> list[dict]:
    """Operators of a Run."""
    return _atlas()[1][row["run"]]


def in_group(row: dict, group: str, share: str = "energy_share") -> float:
    """Share of a group of operators in a Run, %."""
    return 100 * sum(part[share] or 0.0 for part in parts(row) if part["group"] == group)


def figure(row: dict, name: str, scale: float = 1e3) -> Values:
    """A figure of a Run and the half-width of its interval."""
    return row[name] * scale, (row[f"{name}_high"] - row[f"{name}_low"]) / 2 * scale


def over(one: dict, other: dict, name: str) -> Values:
    """A figure of a Run over that of another, and the half-width of the ratio."""
    (a, half_a), (b, half_b) = figure(one, name), figure(other, name)
    return a / b, a / b * math.hypot(half_a / a, half_b / b)


def compiled(model: str, batch: int, name: str = "energy_j") -> Values:
    """A figure compiled over eager on an H100."""
    return over(configuration(model, batch, "compile"), configuration(model, batch, "eager"), name)


def line(gpu: str, label: str, model: str, batch: int) -> tuple[str, str, Callable[[object], Values]]:
    """The claim of a line of the table."""
    modes = [configuration(model, batch, mode, gpu) for mode in ("eager", "compile")]
    both = all(modes)

    def cells(form: str) -> str:
        return " | ".join(form if one else "–" for one in modes)

    def found(_: object) -> Values:
        there = [one for one in modes if one]
        joules = [value for one in there for value in figure(one, "energy_j", 1e3 / batch)]
        names = ("energy_j", "energy_active_j", "iteration_ms") if both else ()
        ratios = [value for name in names for value in over(modes[1], modes[0], name)]
        return [*joules, *ratios, *(in_group(one, IDLE, "time_share") for one in there)]

    ratio = " | ".join(["{} ± {}" if both else "–"] * 3)
    size = f"{batch}{' †' if any(one and 'not_settled' in one['trust_failed'] for one in modes) else ''}"
    return ATLAS, f"| {label} | {size} | {cells('{} ± {}')} | {ratio} | {cells('{}')} |", found


def pairs(_: object) -> Values:
    """Pairs on an H100 in which compiling saves energy beyond the interval, of how many; costs; the same above idle."""
    on_h100 = {(row["model"], row["batch"]) for row in latest() if "H100" in row["gpu"] and row["mode"] == "compile"}
    counts = []
    for name in ("energy_j", "energy_active_j"):
        ratios = [compiled(*one, name) for one in on_h100]
        counts += [sum(a + half < 1 for a, half in ratios), sum(a - half > 1 for a, half in ratios)]
    return counts[0], len(on_h100), *counts[1:]


def waiting(_: object) -> Values:
    """Configurations at batch 1 on an H100: % of time without a kernel, of energy where it is known."""
    rows = [row for row in latest() if row["batch"] == 1 and "H100" in row["gpu"]]
    time = [in_group(row, IDLE, "time_share") for row in rows]
    energy = [in_group(row, IDLE) for row in rows if row["parts_by_whole"]]
    return min(time), max(time), len(energy), len(rows), min(energy), max(energy)


def sums(most_idle: float = 100.0) -> Values:
    """How many configurations have sums of parts, their mean over the whole, and how many intervals hold 1.

    Of those whose idle time takes at most ``most_idle`` percent of the energy.
    """
    rows = [row for row in latest() if row["parts_by_whole"] and in_group(row, IDLE) <= most_idle]
    mean = mean_estimate(np.array([row["parts_by_whole"] for row in rows]))
    hold = sum(row["parts_by_whole_low"] <= 1 <= row["parts_by_whole_high"] for row in rows)
    return len(rows), mean.value, mean.half_width, hold, len(rows), 100 * hold / len(rows)


def trusted(_: object) -> Values:
    """Configurations by trust."""
    return [sum(row["trust"] == one for row in latest()) for one in ("yes", "with care", "no")]


def above_the_limit(_: object) -> Values:
    """Operators and kernels with 5 % of the energy; those that draw more than 700 W; products among them."""
    every = [part for row in latest() for part in parts(row) if (part["energy_share"] or 0) >= 0.05]
    known = [part for part in every if part["power_w"] and part["group"] not in (IDLE, POOL)]
    hot = [part for part in known if part["power_w_low"] > 700]
    return len(known), len(hot), sum(part["group"] == "matrix product" for part in hot)


def without_tensor_cores(_: object) -> Values:
    """Share of products in float32 in the energy of MiniLM at batch 256, compiled, %."""
    found = [one for one in parts(configuration("minilm", 256, "compile")) if "f32f32" in one["operator"]]
    return [100 * sum(one["energy_share"] for one in found)]


def of_minilm(name: str, *modules: str) -> Callable[[object], Values]:
    """Energy in mJ and power in W of an operator of MiniLM at batch 1 on an H200; of idle, without a module."""

    def found(_: object) -> Values:
        rows = parts(configuration("minilm", 1, "eager", "H200"))
        (row,) = [r for r in rows if name in r["operator"] and all((r["module"] or "").endswith(m) for m in modules)]
        return [*figure(row, "energy_j"), *figure(row, "power_w", 1.0)]

    return found


def per_sample(model: str, batch: int) -> float:
    """Energy per sample at batch 1 over that at a batch, eager, on an H100."""
    one, many = (configuration(model, size, "eager")["energy_per_sample_j"] for size in (1, batch))
    return one / many


def agreeing(_: object) -> Values:
    """Configurations measured twice whose energies above idle agree within both intervals, and how many there are.

    Then how many agree when ± 5 % of each of both sensors is added.
    """
    first: dict[tuple, dict] = {}
    for row in _atlas()[0]:
        first.setdefault(tuple(row[name] for name in ("gpu", "model", "batch", "mode")), row)
    pairs = zip(latest(), (first[row["gpu"], row["model"], row["batch"], row["mode"]] for row in latest()), strict=True)
    ratios = [over(now, before, "energy_active_j") for now, before in pairs if now is not before]
    sensors = gain_between(GAIN_PCT / 100, GAIN_PCT / 100)
    own, with_gains = (sum(abs(a - 1) <= half + gain for a, half in ratios) for gain in (0, sensors))
    return own, len(ratios), with_gains


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

CLAIMS: list[tuple[str, str, Callable[[object], Values]]] = [
    *(line(*one) for one in LINES),
    ("docs/paper.md", "{} configurations of ten models that nothing was tuned on, H100s and H200s | {} ± {}; {} of {} "
                      "intervals hold 1; {} ± {} for the {} with",
     lambda _: [*sums()[:5], *sums(20)[1:3], sums(20)[0]]),
    (ATLAS, "half-widths of times reach {} %", lambda _: [
        max(100 * np.divide(*figure(row, "iteration_ms")[::-1]) for row in latest())]),
    (ATLAS, "{} configurations pass all checks, {} pass with care, {} don't", trusted),
    (ATLAS, "MiniLM at batch 256 takes {} ± {} times", lambda _: compiled("minilm", 256)),
    (ATLAS, "they take {} % of the energy", without_tensor_cores),
    (ATLAS, "saves energy in {} of {} pairs on H100s and costs some in {}, beyond the intervals; above idle it saves "
            "in {} and costs in {}", pairs),
    (ATLAS, "MPNet takes {} ± {} of its eager energy", lambda _: compiled("mpnet", 1)),
    (ATLAS, "no difference above idle is shown ({} ± {})", lambda _: compiled("mpnet", 1, "energy_active_j")),
    (ATLAS, "No kernel runs for {} to {} % of the time. In the {} of {} configurations with energies of operators, "
            "waiting takes {} to {} %", waiting),
    (ATLAS, "ConvNeXt takes {} times less energy per image at batch 64 than at 1, MiniLM {} times less per text at 256",
     lambda _: [per_sample("convnext", 64), per_sample("minilm", 256)]),
    (ATLAS, "Gemma2 gains {} times by batch 8 and {} times by the compiler", lambda _: [
        per_sample("gemma2", 8), 1 / compiled("gemma2", 1)[0]]),
    (ATLAS, "Of the {} operators and kernels with 5 % of the energy and more, {} draw more than 700 W while they run, "
            "by their whole intervals; {} of these", above_the_limit),
    (ATLAS, "of the {} configurations with both: mean {} ± {}", lambda _: sums()[:3]),
    (ATLAS, "{} of {} intervals hold 1 ({} %)", lambda _: sums()[3:]),
    (ATLAS, "the mean of {} is {} ± {}", lambda _: sums(20)[:3]),
    (ATLAS, "On H200s MiniLM takes {} ± {} times", lambda _: over(
        *(configuration("minilm", 256, mode, "H200") for mode in ("compile", "eager")), "energy_j")),
    *((KERNELS, f"| {label} | " + "{} ± {} | {} ± {} |", of_minilm(*of)) for label, of in (
        ("dense of the outputs | 6 | 28.7", ("addmm", "layer.*.output.dense")),
        ("dense of the intermediates | 6 | 19.4", ("addmm", "intermediate.dense")),
        ("layer norms of the outputs | 6 | 15.9", ("layer_norm", "layer.*.output.LayerNorm")),
        ("GELU | 6 | 8.6", ("gelu", "intermediate_act_fn")), ("no kernel | – | 2860", (IDLE,)))),
    (KERNELS, "Sum of the rows / untraced whole: {} ± {}", lambda _: figure(
        configuration("minilm", 1, "eager", "H200"), "parts_by_whole", 1.0)),
    (ATLAS, "{} of {} agree within their intervals, and {} with ± 5 % for each of the two sensors", agreeing),
]  # fmt: skip
