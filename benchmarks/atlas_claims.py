"""Texts of docs/results/atlas.md, and what computes their figures from the data set beside it; for ``stated.py``."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path

from atlas import IDLE, POOL, read
from jouletrace.attribution.prior import Prior
from jouletrace.run import Estimate
from jouletrace.run.channels import GAIN_PCT
from jouletrace.run.estimate import widened
from jouletrace.sensor.gain import gain_between
from jouletrace.stats.interval import Z95, mean_estimate, ratio, total

DATA = Path(__file__).parents[1] / "docs" / "results" / "atlas"
ATLAS, KERNELS, PAPER = "docs/results/atlas.md", "docs/results/accuracy-programs.md", "docs/paper.md"

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


LATE = 0.018
"""Half-width of a time, relative, beyond which windows scatter by more than 2 %; none is between 0.0111 and 0.0397."""


def figure(row: dict, name: str, scale: float = 1e3) -> Estimate:
    """A figure of a Run; energy above idle of a late host as now: its idle power at work may be higher."""
    found = Estimate(row[name], row[f"{name}_low"], row[f"{name}_high"]).scaled(scale)
    if name != "energy_active_j" or _half(row, "iteration_ms") <= LATE * row["iteration_ms"]:
        return found
    return widened(found, Z95 * Prior.excess_w * row["iteration_ms"] * 1e-3 * scale)


def _half(row: dict, name: str) -> float:
    return (row[f"{name}_high"] - row[f"{name}_low"]) / 2


def over(one: dict, other: dict, name: str) -> Estimate:
    """A figure of a Run over that of another, as if they were independent; null where no finite interval covers it."""
    return ratio(figure(one, name), figure(other, name))


def compiled(model: str, batch: int, name: str = "energy_j", gpu: str = "H100") -> list[float | None]:
    """A figure compiled over eager, and the ends of its interval."""
    found = over(*(configuration(model, batch, mode, gpu) for mode in ("compile", "eager")), name)
    return [found.value, found.low, found.high]


def line(gpu: str, label: str, model: str, batch: int) -> tuple[str, list[float | Estimate]]:
    """A line of the table, and its figures."""
    modes = [configuration(model, batch, mode, gpu) for mode in ("eager", "compile")]
    ratios = [compiled(model, batch, name, gpu) for name in ("energy_j", "energy_active_j", "iteration_ms")]
    size = f"{batch}{' †' if any('not_settled' in one['trust_failed'] for one in modes) else ''}"
    cells = " | ".join("{} ({} to {})" if None not in one else "–" for one in ratios)
    return f"| {label} | {size} | {{}} ± {{}} | {{}} ± {{}} | {cells} | {{}} | {{}} |", [
        *(figure(one, "energy_j", 1e3 / batch) for one in modes),
        *(end for one in ratios if None not in one for end in one),
        *(in_group(one, IDLE, "time_share") for one in modes),
    ]


def pairs() -> list[float]:
    """Pairs on an H100 in which compiling saves energy beyond the interval, of how many; costs; the same above idle."""
    on_h100 = {(row["model"], row["batch"]) for row in LATEST if "H100" in row["gpu"] and row["mode"] == "compile"}
    counts = []
    for name in ("energy_j", "energy_active_j"):
        ends = [compiled(*one, name)[1:] for one in on_h100]
        counts += [sum(high is not None and high < 1 for _, high in ends)]
        counts += [sum(low is not None and low > 1 for low, _ in ends)]
    return [counts[0], len(on_h100), *counts[1:]]


def trusted(rows: list[dict]) -> list[int]:
    """Configurations by level; then by present rules: a missed target is a flag, missing operators are "with care"."""
    now = []
    for row in rows:
        failed = set(row["trust_failed"].split(", ")) - {"target_not_met", ""}
        now.append("no" if "not_settled" in failed else "with care" if failed else "yes")
    return [sum(one == level for one in each) for each in ([row["trust"] for row in rows], now)
            for level in ("yes", "with care", "no")]  # fmt: skip


def waiting() -> list[float]:
    """Configurations at batch 1 on an H100: % of time without a kernel, of energy where it is known."""
    rows = [row for row in LATEST if row["batch"] == 1 and "H100" in row["gpu"]]
    time = [in_group(row, IDLE, "time_share") for row in rows]
    energy = [in_group(row, IDLE) for row in rows if row["parts_by_whole"]]
    return [min(time), max(time), len(energy), len(rows), min(energy), max(energy)]


def sums(rows: list[dict]) -> tuple[int, Estimate, int]:
    """How many configurations have sums of parts, their mean over the whole, and how many intervals hold 1."""
    found = [row for row in rows if row["parts_by_whole"]]
    hold = sum(row["parts_by_whole_low"] <= 1 <= row["parts_by_whole_high"] for row in found)
    return len(found), mean_estimate([row["parts_by_whole"] for row in found]), hold


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


def gains(name: str) -> list[tuple[float, float]]:
    """By model on an H100, of a figure per sample: eager at the smaller batch over the larger, and over compiled."""
    found = []
    for model in sorted({row["model"] for row in LATEST}):
        small, large = sorted({row["batch"] for row in LATEST if row["model"] == model and "H100" in row["gpu"]})
        one, many = (configuration(model, size, "eager")[name] / size for size in (small, large))
        found.append((one / many, one * small / configuration(model, small, "compile")[name]))
    return found


def agreeing() -> list[int]:
    """Configurations measured twice whose energies above idle agree within both intervals, and how many there are.

    Then how many agree when ± 5 % of each of both sensors is added.
    """
    first = {KEY(row): row for row in reversed(RUNS)}
    pairs = [(row, first[KEY(row)]) for row in LATEST if row is not first[KEY(row)]]
    changes = [total([figure(one, NAME) for one in pair], [1.0, -1.0]) for pair in pairs]
    gain = gain_between(GAIN_PCT / 100, GAIN_PCT / 100)
    own, with_gains = (
        sum(abs(d.value) <= d.half_width + of * old[NAME] * 1e3 for d, (_, old) in zip(changes, pairs, strict=True))
        for of in (0, gain)
    )
    return [own, len(pairs), with_gains]


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

KEY, NAME = itemgetter("gpu", "model", "batch", "mode"), "energy_active_j"
ALL, WORKING = sums(LATEST), sums([row for row in LATEST if in_group(row, IDLE) <= 20])
CAPPED, BELOW = (sums([row for row in LATEST if (row["power_w"] >= 690) is capped]) for capped in (True, False))
BEFORE = sums(list({KEY(row): row for row in RUNS[:50]}.values()))
"""Of the Runs before the search for the sample rate was mended."""
CLAIMS = [
    *((ATLAS, *line(*one)) for one in LINES),
    *((PAPER, f"{label} | {{}} ± {{}}; {{}} of {{}} intervals hold 1", [*of[1:], of[0]]) for label, of in (
        ("the same, ten models on H100s and H200s, below the cap", BELOW), ("at the cap", CAPPED),
        ("before the search was mended in view of these models", BEFORE))),
    (ATLAS, "half-widths of times reach {} %", [
        max(100 * one.half_width / one.value for one in (figure(row, "iteration_ms") for row in LATEST))]),
    (ATLAS, "{} configurations pass all checks, {} pass with care, {} don't", trusted(LATEST)[:3]),
    (ATLAS, "by the present rules these are {}, {} and {}", trusted(LATEST)[3:]),
    (ATLAS, "MiniLM at batch 256 takes {} ({} to {}) times", compiled("minilm", 256)),
    (ATLAS, "they take {} % of the energy", [without_tensor_cores()]),
    (ATLAS, "saves energy in {} of {} pairs on H100s and costs some in {}, beyond the intervals; above idle it saves "
            "in {} and costs in {}", pairs()),
    (ATLAS, "MPNet takes {} ({} to {}) of its eager energy", compiled("mpnet", 1)),
    (ATLAS, "No kernel runs for {} to {} % of the time. In the {} of {} configurations with energies of operators, "
            "waiting takes {} to {} %", waiting()),
    (ATLAS, "ConvNeXt takes {} times less energy per image at batch 64 than at 1, MiniLM {} times less per text at 256",
     [per_sample("convnext", 64), per_sample("minilm", 256)]),
    (ATLAS, "Gemma2 gains {} times by batch 8 and {} times by the compiler",
     [per_sample("gemma2", 8), 1 / (compiled("gemma2", 1)[0] or 0.0)]),
    (ATLAS, "in {} of {} models", [sum(a > b for a, b in gains("energy_j")), len(gains("energy_j"))]),
    (ATLAS, "above idle a batch gains {} to {} times, the compiler {} to {} times", [
        of(one[k] for one in gains("energy_active_j")) for k in (0, 1) for of in (min, max)]),
    (ATLAS, "Of the {} operators and kernels with 5 % of the energy and more, {} draw more than 700 W while they run, "
            "by their whole intervals; {} of these", above_the_limit()),
    (ATLAS, "of the {} configurations with both: mean {} ± {}", ALL[:2]),
    (ATLAS, "{} of {} intervals hold 1 ({} %)", [ALL[2], ALL[0], 100 * ALL[2] / ALL[0]]),
    (ATLAS, "the mean of {} is {} ± {}", WORKING[:2]),
    (ATLAS, "On H200s MiniLM takes {} ({} to {}) times", compiled("minilm", 256, gpu="H200")),
    (ATLAS, "{} draw 694 to 696 W: none of their intervals holds 1, mean {} ± {}", CAPPED[:2]),
    (ATLAS, "Of the {} others {} hold, mean {} ± {}", [BELOW[0], BELOW[2], BELOW[1]]),
    (ATLAS, "the first 50 Runs have {} configurations with sums, mean {} ± {}, of which {} hold", BEFORE),
    *((KERNELS, f"| {label} | " + "{} ± {} | {} ± {} |", of_minilm(*of)) for label, of in (
        ("dense of the outputs | 6 | 28.7", ("addmm", "layer.*.output.dense")),
        ("dense of the intermediates | 6 | 19.4", ("addmm", "intermediate.dense")),
        ("layer norms of the outputs | 6 | 15.9", ("layer_norm", "layer.*.output.LayerNorm")),
        ("GELU | 6 | 8.6", ("gelu", "intermediate_act_fn")), ("no kernel | – | 2860", (IDLE,)))),
    (KERNELS, "Sum of the rows / untraced whole: {} ± {}", [
        figure(configuration("minilm", 1, "eager", "H200"), "parts_by_whole", 1.0)]),
    (ATLAS, "{} of {} agree within their intervals, and {} with ± 5 % for each of the two sensors", agreeing()),
]  # fmt: skip
