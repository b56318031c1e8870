"""Texts of docs/results/atlas.md, and what computes their figures from the data set beside it; for ``stated.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from jouletrace.stats.interval import mean_estimate

DATA = Path(__file__).parents[1] / "docs" / "results" / "atlas"
ATLAS = "docs/results/atlas.md"

Values = Sequence[float]


@cache
def _atlas() -> tuple[list[dict], dict[str, list[dict]]]:
    """Configurations of the atlas, the latest last, and the operators of each."""
    tables = [pq.read_table(DATA / f"{name}.parquet").to_pylist() for name in ("atlas", "atlas-operators")]
    parts: dict[str, list[dict]] = {}
    for one in tables[1]:
        parts.setdefault(one["run"], []).append(one)
    return sorted(tables[0], key=lambda one: one["measured"]), parts


def configuration(model: str, batch: int, mode: str, gpu: str = "H100", which: int = -1) -> dict | None:
    """A configuration of the atlas, the latest one; None if it wasn't measured."""
    wanted = (model, batch, mode)
    found = [r for r in _atlas()[0] if gpu in r["gpu"] and (r["model"], r["batch"], r["mode"]) == wanted]
    return found[which] if found else None


def latest() -> list[dict]:
    """All configurations of the atlas, those of repeated ones that were measured last."""
    return list({(r["gpu"], r["model"], r["batch"], r["mode"]): r for r in _atlas()[0]}.values())


def in_group(row: dict, group: str, share: str = "energy_share") -> float:
    """Share of a group of operators in a configuration, %."""
    return 100 * sum(part[share] or 0.0 for part in _atlas()[1][row["run"]] if part["group"] == group)


def figure(row: dict, name: str, scale: float = 1e3) -> Values:
    """A figure of a configuration and the half-width of its interval."""
    return row[name] * scale, (row[f"{name}_high"] - row[f"{name}_low"]) / 2 * scale


def line(gpu: str, label: str, model: str, batch: int) -> tuple[str, str, Callable[[object], Values]]:
    """The claim of a line of the atlas's tables."""
    modes = [configuration(model, batch, mode, gpu) for mode in ("eager", "compile")]
    both = all(modes)

    def cells(form: str) -> str:
        return " | ".join(form if one else "–" for one in modes)

    def found(_: object) -> Values:
        there = [one for one in modes if one]
        ratios = [modes[1][name] / modes[0][name] for name in ("energy_j", "iteration_ms")] if both else []
        joules = [value for one in there for value in figure(one, "energy_j", 1e3 / batch)]
        idle = [in_group(one, "no kernel running", "time_share") for one in there]
        return [*joules, *ratios, *(one["power_w"] for one in there), *idle]

    ratio = "{} | {}" if both else "– | –"
    size = f"{batch}{' †' if any(one and 'not_settled' in one['trust_failed'] for one in modes) else ''}"
    return ATLAS, f"| {label} | {size} | {cells('{} ± {}')} | {ratio} | {cells('{}')} | {cells('{}')} |", found


def compiled(_: object) -> Values:
    """Energy compiled over eager, of all pairs on an H100: the three that cost more, the others and most of these."""
    pairs = [(row, configuration(row["model"], row["batch"], "compile")) for row in latest() if row["mode"] == "eager"]
    ratios = sorted(c["energy_j"] / e["energy_j"] for e, c in pairs if c and "H100" in e["gpu"])
    less = [one for one in ratios if one <= 1]
    middle = [one for one in less if 0.6 < one < 0.75]
    return ratios[-1], ratios[-2], ratios[-3], len(less), less[0], less[-1], len(middle), middle[0], middle[-1]


def waiting(_: object) -> Values:
    """Configurations at batch 1 on an H100: % of time without a kernel, of energy where it is known."""
    rows = [row for row in latest() if row["batch"] == 1 and "H100" in row["gpu"]]
    time = [in_group(row, "no kernel running", "time_share") for row in rows]
    energy = [in_group(row, "no kernel running") for row in rows if row["parts_by_whole"]]
    return min(time), max(time), len(energy), len(rows), min(energy), max(energy)


def sums(_: object) -> Values:
    """How many configurations have sums of parts, their mean over the whole, and how many intervals hold 1."""
    rows = [row for row in latest() if row["parts_by_whole"]]
    mean = mean_estimate(np.array([row["parts_by_whole"] for row in rows]))
    hold = sum(row["parts_by_whole_low"] <= 1 <= row["parts_by_whole_high"] for row in rows)
    return len(rows), mean.value, mean.half_width, hold, len(rows), 100 * hold / len(rows)


def trusted(_: object) -> Values:
    """Configurations by trust, and those without energies of operators with their least and largest W above idle."""
    rows = latest()
    dim = [row for row in rows if not row["parts_by_whole"]]
    above = [row["power_w"] - row["idle_w"] for row in dim]
    counts = [sum(row["trust"] == one for row in rows) for one in ("yes", "with care", "no")]
    return *counts, len(dim), min(above), max(above)


def parts(model: str, batch: int, mode: str) -> list[dict]:
    """Operators of a configuration on an H100."""
    return _atlas()[1][configuration(model, batch, mode)["run"]]


def hottest(_: object) -> Values:
    """Power of the part that draws most, W, twice, with its half-width; of those with 5 % of the energy and ± 5 %."""
    every = [part for row in latest() for part in _atlas()[1][row["run"]] if (part["energy_share"] or 0) > 0.05]
    known = [(one["power_w"], (one["power_w_high"] - one["power_w_low"]) / 2) for one in every if one["power_w"]]
    power, half = max(one for one in known if one[1] < 0.05 * one[0])
    return power, power, half


def gelu(_: object) -> Values:
    """Shares of elementwise operators, and of GELU, in the energy of GPT-2-large at batch 8 in eager mode, %."""
    activation = [one for one in parts("gpt2-large", 8, "eager") if str(one["module"]).endswith("mlp.act")]
    whole = in_group(configuration("gpt2-large", 8, "eager"), "elementwise, other")
    return whole, 100 * sum(one["energy_share"] for one in activation)


def without_tensor_cores(_: object) -> Values:
    """Share of products in float32 in the energy of MiniLM at batch 256, compiled, %."""
    found = [one for one in parts("minilm", 256, "compile") if "f32f32" in one["operator"]]
    return [100 * sum(one["energy_share"] for one in found)]


def of_both(model: str, batch: int, what: Callable[[dict], Values]) -> Callable[[object], Values]:
    """Figures of a configuration on an H100, compiled, then eager."""
    return lambda _: [value for mode in ("compile", "eager") for value in what(configuration(model, batch, mode))]


def per_sample(model: str, batch: int) -> float:
    """Energy per sample at batch 1 over that at a batch, eager, on an H100."""
    one, many = (configuration(model, size, "eager")["energy_per_sample_j"] for size in (1, batch))
    return one / many


def again(model: str, batch: int, mode: str) -> Callable[[object], Values]:
    """Energy above idle of a configuration that was measured twice, mJ."""
    return lambda _: [
        value for k in (0, 1) for value in figure(configuration(model, batch, mode, which=k), "energy_active_j")
    ]


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
"""GPU, name, model and batch of the lines of both tables."""

CLAIMS: list[tuple[str, str, Callable[[object], Values]]] = [
    *(line(*one) for one in LINES),
    ("README.md", "the compiler makes MiniLM take [{} times the energy]", lambda _: compiled(_)[:1]),
    ("docs/paper.md", "{} configurations of ten models that nothing was tuned on, H100s and H200s | {} ± {}; "
                      "{} of {} intervals hold 1 |", lambda _: sums(_)[:5]),
    (ATLAS, "MiniLM at batch 256 takes {} times", lambda _: compiled(_)[:1]),
    (ATLAS, "which take {} % of the energy. DLRM", without_tensor_cores),
    (ATLAS, "DLRM takes {} times as much at batch 8192", lambda _: compiled(_)[2:3]),
    (ATLAS, "{} at batch 64 is within the intervals", lambda _: compiled(_)[1:2]),
    (ATLAS, "waits for its host for {} % of a step, {} % in eager mode",
     of_both("dlrm", 8192, lambda row: [in_group(row, "no kernel running", "time_share")])),
    (ATLAS, "The other {} pairs take {} to {} times as much, {} of them {} to {}", lambda _: compiled(_)[3:]),
    (ATLAS, "No kernel runs for {} to {} % of the time. In the {} of these {} configurations with energies of "
            "operators, waiting takes {} to {} %", waiting),
    (ATLAS, "takes {} of its eager energy for this reason", lambda _: [
        configuration("mpnet", 1, "compile")["energy_j"] / configuration("mpnet", 1, "eager")["energy_j"]]),
    (ATLAS, "both take the same, {} ± {} and {} ± {} mJ",
     of_both("mpnet", 1, lambda row: figure(row, "energy_active_j"))),
    (ATLAS, "ConvNeXt takes {} times less per image at 64 than at 1, MiniLM {} times less per text at 256",
     lambda _: [per_sample("convnext", 64), per_sample("minilm", 256)]),
    (ATLAS, "Gemma2 {} times, GPT-2-large {} times", lambda _: [per_sample("gemma2", 8), per_sample("gpt2-large", 8)]),
    (ATLAS, "draw up to {} W while they run (MiniLM eager, {} ± {} W)", hottest),
    (ATLAS, "Elementwise operators take {} % of the energy of eager GPT-2-large at batch 8: its GELU is eight kernels, "
            "which take {} %", gelu),
    (ATLAS, "of the {} configurations with both: mean {} ± {}", lambda _: sums(_)[:3]),
    (ATLAS, "{} of {} intervals hold 1 ({} %)", lambda _: sums(_)[3:]),
    (ATLAS, "{} configurations pass all checks, {} pass with care, {} don't. Of these {} have no energies of "
            "operators: at batch 1 (64 of DLRM) the GPU draws {} to {} W", trusted),
    (ATLAS, "Half-widths of times reach {} %", lambda _: [
        max(100 * np.divide(*figure(row, "iteration_ms")[::-1]) for row in latest())]),
    *((ATLAS, f"| {label} | " + "{} ± {} | {} ± {} |", again(*one)) for label, one in (
        ("SegFormer-B2 1, eager", ("segformer", 1, "eager")), ("SegFormer-B2 1, compiled", ("segformer", 1, "compile")),
        ("Swin-T 1, eager", ("swin-tiny", 1, "eager")), ("Swin-T 1, compiled", ("swin-tiny", 1, "compile")),
        ("Swin-T 64, eager", ("swin-tiny", 64, "eager")))),
]  # fmt: skip
