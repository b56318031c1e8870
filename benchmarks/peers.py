"""Texts of docs/peers.md and their figures from the raw data, for ``stated.py``: errors of blocks, overhead, layers.

``git show c953164d:benchmarks/peers.py`` measured the blocks, with each tool as its own pages advise.
"""

import json
import re
from pathlib import Path

import numpy as np

from jouletrace.stats.interval import mean_estimate

PAGE, RUNS = "docs/peers.md", Path(__file__).parents[1] / "docs" / "results" / "runs"
TOOLS = ("zeus", "zeus, approx", "codecarbon", "nvidia-smi", "NVML instant", "jouletrace")
OF_TIME = (*TOOLS[:2], "codecarbon")
BLOCKS, OVERHEAD, LAYERS = (
    json.loads((RUNS / f"peers-{name}.json").read_text())[part]
    for name, part in (("h200", "windows"), ("overhead", "overhead"), ("layers-h200", "layers"))
)
CORES = json.loads((RUNS / "peers-overhead.json").read_text())["cpu"]
OWN, DEVICE_MS, AROUND_J = (
    LAYERS[name] for name in ("jouletrace", "torch.profiler, device ms", "zeus around each module")
)
LAYER, NORM, GELU = r"encoder\.layers\.encoder_layer_\d+\.", "aten::native_layer_norm", "aten::gelu"
NORMS = LAYER + r"ln_[12]|encoder\.ln"


def rows(*tools: str, of_s: float = 0.0, least_s: float = 0.0) -> list[dict]:
    """Blocks of some tools, of one length or of a least one."""
    own = [row for row in BLOCKS["rows"] if row["tool"] in tools]
    return [row for row in own if (row["seconds"] == of_s if of_s else row["seconds"] >= least_s)]


def errors(*tools: str, of_s: float) -> np.ndarray:
    """Of blocks of some length that have a figure, %."""
    found = np.array([100 * (row["joules"] / row["truth"] - 1) for row in rows(*tools, of_s=of_s)])
    return found[np.isfinite(found)]


def spread_of(tool: str, of_s: float) -> tuple[float, float]:
    """Mean and standard deviation of errors, %."""
    found = errors(tool, of_s=of_s)
    return float(found.mean()), float(found.std(ddof=1))


def worst(*tools: str, of_s: float) -> float:
    """The largest error, %."""
    return float(np.abs(errors(*tools, of_s=of_s)).max())


def missed_s(*tools: str) -> float:
    """Seconds of the mean power of the work that tools miss of a block of 1 s and more, mean over the blocks."""
    missed = [
        (1 - row["joules"] / row["truth"]) * (row["end_ns"] - row["start_ns"]) / 1e9 for row in rows(*tools, least_s=1)
    ]
    return float(np.mean(missed))


def unread(of_s: float) -> tuple[int, int]:
    """CodeCarbon's blocks of some length that ended in less than 1 ms, so without a reading, of how many."""
    own = rows("codecarbon", of_s=of_s)
    return sum(row["after_s"] < 1e-3 for row in own), len(own)


def blocks() -> list[str]:
    """Lines by tool: errors of blocks by length, % of the truth; ms before and after a block."""
    lengths = sorted({row["seconds"] for row in BLOCKS["rows"]})
    lines = ["| tool | " + " | ".join(f"{one:g} s" for one in lengths) + " | ms before | ms after |"]
    for tool in TOOLS:
        cells = []
        for seconds in lengths:
            known, n = errors(tool, of_s=seconds), len(rows(tool, of_s=seconds))
            missing = f", {n - len(known)} of {n} missing" if len(known) < n else ""
            spread = f" ± {known.std(ddof=1):.1f}" if len(known) > 1 else ""
            cells.append((f"{known.mean():+.1f}{spread}" if len(known) else "–") + missing)
        cells += [f"{1e3 * np.median([row[name] for row in rows(tool)]):.1f}" for name in ("before_s", "after_s")]
        lines.append(f"| {tool} | {' | '.join(cells)} |")
    return lines


def overhead() -> list[str]:
    """Lines by tool: % of the time of each work, the mean of pairs with its 95 % interval, and % of a core."""
    lines = [f"| tool | {' | '.join(OVERHEAD)} | CPU beside the program |"]
    for tool in CORES:
        means = [mean_estimate(np.log([inside / plain for plain, inside in own[tool]])) for own in OVERHEAD.values()]
        percent = [[100 * np.expm1(end) for end in (one.value, one.low, one.high)] for one in means]
        cells = ["{:+.1f} ({:+.1f} to {:+.1f}) %".format(*ends) for ends in percent]
        lines.append(f"| {tool} | {' | '.join(cells)} | {100 * CORES[tool]:.1f} % |")
    return lines


def own(form: str) -> tuple[float, float]:
    """Joules per iteration that jouletrace attributes to modules of some name, with the sum of their half-widths."""
    found = [one for name, one in OWN.items() if re.fullmatch(form, name)]
    return sum(one[0] for one in found), sum((one[2] - one[1]) / 2 for one in found)


WHOLE_MS = sum(ms for name, ms in DEVICE_MS.items() if name.startswith("aten::"))
WHOLE_J, NORMS_J = own("VisionTransformer")[0], own(NORMS)[0]


def of_time(name: str) -> tuple[float, float]:
    """Milliseconds of an operator by torch's profiler, and joules by its share of the time."""
    return DEVICE_MS[name], WHOLE_J * DEVICE_MS[name] / WHOLE_MS


PLAIN_MS = [1e3 * plain for pairs in OVERHEAD["batch 1"].values() for plain, _ in pairs]
CLAIMS = [(PAGE, text, given) for text, given in (
    *((line, ()) for line in (*blocks(), *overhead())),
    ("{} s with Zeus, {} s with CodeCarbon, {} s with the momentary power, {} s with `nvidia-smi` and {} s with "
     "jouletrace",
     [missed_s(*TOOLS[:2]), *map(missed_s, ("codecarbon", "NVML instant", "nvidia-smi", "jouletrace"))]),
    ("their largest error is {} % in blocks of 5 s and {} % in those of 10 s",
     [worst(*OF_TIME, of_s=s) for s in (5, 10)]),
    ("jouletrace's is {} % in both", [max(worst("jouletrace", of_s=s) for s in (5, 10))]),
    ("its largest errors are {} % at 1 s and {} % at 0.05 s", [worst("jouletrace", of_s=s) for s in (1, 0.05)]),
    ("{} of {} blocks of 1 s and {} of {} of 0.05 s", [*unread(1), *unread(0.05)]),
    ("an iteration at batch 1 without any tool took {} to {} ms", [min(PLAIN_MS), max(PLAIN_MS)]),
    ("| attention, 12 modules | – | – | {} J | {} ± {} J |", [AROUND_J["attention"], *own(LAYER + "self_attention")]),
    ("| MLPs, 12 | – | – | {} J | {} ± {} J |", [AROUND_J["mlp"], *own(LAYER + "mlp")]),
    ("| norms, 25 | {} ms | {} J | {} J | {} ± {} J |", [*of_time(NORM), AROUND_J["norm"], *own(NORMS)]),
    ("| GELUs, 12 | {} ms | {} J | – | {} ± {} J |", [*of_time(GELU), *own(LAYER + r"mlp\.1")]),
    ("| whole | {} ms | – | – | {} ± {} J; sum of parts {} J |",
     [WHOLE_MS, *own("VisionTransformer"), own(r"conv_proj|encoder|\(outside of modules\)|idle")[0]]),
    ("Its norms take {} times the whole", [AROUND_J["norm"] / WHOLE_J]),
    ("Norms get {} times what jouletrace attributes to them: {} J over the profiler's {} ms is {} W",
     [of_time(NORM)[1] / NORMS_J, NORMS_J, DEVICE_MS[NORM], 1e3 * NORMS_J / DEVICE_MS[NORM]]),
)]  # fmt: skip
