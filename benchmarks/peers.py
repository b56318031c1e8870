"""The tables of docs/peers.md from their raw data, for ``stated.py``: errors of blocks, times to wait, overhead.

``git show c953164d:benchmarks/peers.py`` measured the blocks, with each tool as its own pages advise.
"""

from typing import Any

import numpy as np

from jouletrace.stats.interval import mean_estimate

TOOLS = ("zeus", "zeus, approx", "codecarbon", "nvidia-smi", "NVML instant", "jouletrace")


def blocks(rows: list[dict[str, Any]]) -> list[str]:
    """Lines by tool: errors of blocks by length, % of the truth; ms before and after a block."""
    lengths = sorted({row["seconds"] for row in rows})
    lines = ["| tool | " + " | ".join(f"{one:g} s" for one in lengths) + " | ms before | ms after |"]
    for tool in TOOLS:
        own, cells = [row for row in rows if row["tool"] == tool], []
        for seconds in lengths:
            error = np.array([100 * (r["joules"] / r["truth"] - 1) for r in own if r["seconds"] == seconds])
            known = error[np.isfinite(error)]
            missing = f", {len(error) - len(known)} of {len(error)} missing" if len(known) < len(error) else ""
            spread = f" ± {known.std(ddof=1):.1f}" if len(known) > 1 else ""
            cells.append((f"{known.mean():+.1f}{spread}" if len(known) else "–") + missing)
        cells += [f"{1e3 * np.median([row[name] for row in own]):.1f}" for name in ("before_s", "after_s")]
        lines.append(f"| {tool} | {' | '.join(cells)} |")
    return lines


def overhead(of: dict[str, dict[str, list[tuple[float, float]]]], cores: dict[str, float]) -> list[str]:
    """Lines by tool: % of the time of each work, the mean of pairs with its 95 % interval, and % of a core."""
    lines = [f"| tool | {' | '.join(of)} | CPU beside the program |"]
    for tool in next(iter(of.values())):
        means = [mean_estimate(np.log([inside / plain for plain, inside in pairs[tool]])) for pairs in of.values()]
        percent = [[100 * np.expm1(end) for end in (one.value, one.low, one.high)] for one in means]
        cells = ["{:+.1f} ({:+.1f} to {:+.1f}) %".format(*ends) for ends in percent]
        lines.append(f"| {tool} | {' | '.join(cells)} | {100 * cores[tool]:.1f} % |")
    return lines
