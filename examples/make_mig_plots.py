"""Writes ``mig_plots.ipynb``: the classic plots of a MIG sweep, from the ``sweep.parquet`` of ``jouletrace mig sweep``.

python examples/make_mig_plots.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

INTRODUCTION = """\
# What a GPU's slices do

Figures of a sweep over MIG slices, drawn from the `sweep.parquet` that `jouletrace mig sweep` leaves:

    jouletrace mig sweep --device sim:a100-80 --profiles 1g.10gb,2g.20gb,7g.80gb \\
        --models vit --batch 1,2,4,8,16,32 -o runs/mig-sweep

Jobs that failed (mostly for lack of memory) are gaps. Power of a slice is modelled: see `docs/how-to/mig.md`.
"""

SETUP = """\
import os

import matplotlib.pyplot as plt
import pyarrow.parquet as pq

SWEEP = os.environ.get("SWEEP", "runs/mig-sweep")
rows = [row for row in pq.ParquetFile(f"{SWEEP}/sweep.parquet").read().to_pylist() if row["together"] == 1]
profiles = list(dict.fromkeys(row["profile"] for row in rows))
models = list(dict.fromkeys(row["model"] for row in rows))
batches = sorted({row["batch"] for row in rows})


def compare(column, label, scale=1.0, error=None):
    \"\"\"A group of bars for each batch size, one a profile; one plot a model.\"\"\"
    figure, axes = plt.subplots(1, len(models), figsize=(5 * len(models), 3.5), squeeze=False)
    width = 0.8 / len(profiles)
    for axis, model in zip(axes[0], models, strict=True):
        for i, profile in enumerate(profiles):
            mine = {row["batch"]: row for row in rows if (row["model"], row["profile"]) == (model, profile)}
            known = [n for n, batch in enumerate(batches) if batch in mine and mine[batch][column] is not None]
            at = [n + (i - (len(profiles) - 1) / 2) * width for n in known]
            heights = [mine[batches[n]][column] * scale for n in known]
            errors = [(mine[batches[n]][error] or 0.0) * scale for n in known] if error else None
            axis.bar(at, heights, width, yerr=errors, capsize=2, label=profile)
        axis.set_xticks(range(len(batches)), batches)
        axis.set_xlabel("batch size")
        axis.set_ylabel(label)
        axis.set_title(model)
    axes[0][0].legend()
    figure.tight_layout()
    return figure
"""

CELLS = (
    ("## Frame buffer in use", 'compare("fb_used_bytes", "FB used (MiB)", 1 / 2**20);'),
    ("## Graphics engine activity", 'compare("graphics_active", "graphics engine activity (%)", 100.0);'),
    (
        "## Latency\n\nMean and standard deviation of a request.",
        'compare("latency_mean_s", "latency (ms)", 1e3, "latency_std_s");',
    ),
    ("## Throughput", 'compare("requests_per_s", "throughput (requests/s)");'),
    (
        "## Energy\n\nOf a sample, the slice's share of idle power included.",
        'compare("energy_per_sample_j", "energy (J/sample)");',
    ),
    (
        "## Distribution of latency\n\nOf the largest batch that ran.",
        """\
figure, axis = plt.subplots(figsize=(5, 3.5))
for model in models:
    for profile in profiles:
        here = [row for row in rows if (row["model"], row["profile"]) == (model, profile)]
        mine = [row for row in here if row["latency_quantiles_s"]]
        if mine:
            largest = max(mine, key=lambda row: row["batch"])
            label = f"{model}, {profile}, batch {largest['batch']}"
            axis.plot([1e3 * s for s in largest["latency_quantiles_s"]], [q / 100 for q in range(101)], label=label)
axis.set_xlabel("latency (ms)")
axis.set_ylabel("share of requests")
axis.legend()
figure.tight_layout()""",
    ),
)


def notebook() -> dict[str, Any]:
    """The notebook, in nbformat 4.5."""
    cells = [_cell(0, "markdown", INTRODUCTION), _cell(1, "code", SETUP)]
    for about, code in CELLS:
        cells += [_cell(len(cells), "markdown", about), _cell(len(cells) + 1, "code", code)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _cell(number: int, kind: str, text: str) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "cell_type": kind,
        "id": f"cell-{number}",
        "metadata": {},
        "source": text.strip().splitlines(keepends=True),
    }
    return cell | {"execution_count": None, "outputs": []} if kind == "code" else cell


if __name__ == "__main__":
    path = Path(__file__).with_name("mig_plots.ipynb")
    path.write_text(json.dumps(notebook(), indent=1) + "\n")
    print(f"wrote {path}")
