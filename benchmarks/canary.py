"""A canary: figures of fixed loads on a GPU beside their truth, one row a commit.

    python benchmarks/canary.py measure OUT                    # on an H100, eight minutes: OUT/canary.json, OUT/*.zip
    python benchmarks/canary.py add OUT/canary.json COMMIT     # its row in docs/results/canary.csv
    python benchmarks/canary.py draw                           # docs/figures/canary.svg over the commits

Loads and truths are the same whatever the code does, and all go through the command line and ``jt.measure``:

- *bursts* of 20 and 50 ms whose power swings with periods of 5, 10.4 and 20.8 ms. Truth: trains of twenty bursts
  between two steps of the energy counter, with short and with long pauses; the least-squares line of energy over time
  of pauses gives the energy of a burst, and the scatter about the lines of all cells the truth's own half-width.
- *chain*: eight large operators by ``profile --detail kernel``, and each looped alone by the counter.
- *host*: an eager model at batch 1, which the host limits.
- *slowdown*: programs under ``run`` and without it, by turns.
- *first figure*: seconds from the start of ``profile deit-b --mode graph`` to its verdict, in a fresh process.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import slowdown

HERE = Path(__file__).parent
TABLE = HERE.parent / "docs" / "results" / "canary.csv"
PICTURE = HERE.parent / "docs" / "figures" / "canary.svg"

LENGTHS_S, PERIODS_S = (0.02, 0.05), (0.005, 0.0104, 0.0208)
TRAIN, PAUSES_S = 20, (0.30, 0.06, 0.06, 0.30, 0.06, 0.06)
"""Bursts of a train, and the pauses of its trains; the bursts between long pauses are measured."""

ALONE_S, WARM_S = 1.5, 0.7
"""How long an operator is looped alone, and before that to warm up."""


class Counter:
    """The energy counter of the first GPU."""

    def __init__(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._read, self._gpu = pynvml.nvmlDeviceGetTotalEnergyConsumption, pynvml.nvmlDeviceGetHandleByIndex(0)
        self.name = pynvml.nvmlDeviceGetName(self._gpu)

    def joules(self) -> float:
        """The counter's present value."""
        return self._read(self._gpu) / 1e3

    def stepped(self) -> tuple[float, float]:
        """Seconds and joules of the next step of the counter."""
        before = now = self.joules()
        while now == before:
            now = self.joules()
        return time.perf_counter(), now


def captured(torch, call):
    """A CUDA graph of a call; it keeps the call, whose tensors it reads."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.inference_mode():
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.inference_mode():
        call()
    graph.call = call
    return graph


def replay_s(torch, graph, count: int) -> float:
    """Mean time of a replay."""
    began = time.perf_counter()
    for _ in range(count):
        graph.replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / count


def swing(torch, period_s: float):
    """A call of one period: products for a third of it, then copies of memory, which draw less."""
    a, b = (torch.randn(2048, 2048, device="cuda").half() for _ in range(2))
    big, out = torch.randn(1 << 24, device="cuda"), torch.empty(1 << 24, device="cuda")
    product, copy = captured(torch, lambda: a @ b), captured(torch, lambda: torch.mul(big, 1.5, out=out))
    for graph in (product, copy):
        replay_s(torch, graph, 300)
    products = round(period_s / 3 / replay_s(torch, product, 300))
    copies = round(2 * period_s / 3 / replay_s(torch, copy, 300))

    def period() -> None:
        for _ in range(products):
            a @ b
        for _ in range(copies):
            torch.mul(big, 1.5, out=out)

    return period


def bursts(counter: Counter) -> list[dict]:
    """Each length and period: the truth of a burst, and what ``jt.measure`` says of those between long pauses."""
    import torch

    import jouletrace as jt

    rng = np.random.default_rng(1)
    cells = []
    for wanted_s in PERIODS_S:
        period = swing(torch, wanted_s)
        graph = captured(torch, period)
        period_s = replay_s(torch, graph, 50)
        for length_s in LENGTHS_S:
            count = max(1, round(length_s / period_s))
            replay_s(torch, graph, int(1.0 / period_s))
            trains, measured = [], []
            for pause_s in PAUSES_S:
                time.sleep(0.5)
                busy, began = 0.0, counter.stepped()
                for _ in range(TRAIN):
                    time.sleep(pause_s * rng.uniform(0.9, 1.1))
                    with jt.measure("burst") as block:
                        for _ in range(count):
                            graph.replay()
                    busy += block.time_s.value
                    if pause_s == max(PAUSES_S):
                        measured.append(block)
                time.sleep(pause_s)
                ended = counter.stepped()
                trains.append((TRAIN, ended[0] - began[0] - busy, ended[1] - began[1]))
            cells.append((length_s, period_s, count, np.array(trains), measured))
    fits = [line_of(trains) for _, _, _, trains, _ in cells]
    freedom = sum(len(trains) - 2 for _, _, _, trains, _ in cells)
    scatter_j = float(np.sqrt(sum(float(left @ left) for _, left, _ in fits) / freedom))
    return [
        {
            "length_s": length_s,
            "period_s": period_s,
            "true_length_s": count * period_s,
            "truth_j": float(line[0]),
            "truth_half_j": 2.06 * scatter_j * spread,  # Student's t of 24 degrees of freedom
            "pause_w": float(line[1]),
            "trains": trains.tolist(),
            "stated": [[one.value, one.low, one.high, one.reason] for one in (block.energy_j for block in measured)],
        }
        for (length_s, period_s, count, trains, measured), (line, left, spread) in zip(cells, fits, strict=True)
    ]


def line_of(trains: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Energy of a burst in J and power of pauses in W; what is left of trains in J; the first's sd over the scatter."""
    design, energy = trains[:, :2], trains[:, 2]
    line, *_ = np.linalg.lstsq(design, energy, rcond=None)
    return line, energy - design @ line, float(np.sqrt(np.linalg.inv(design.T @ design)[0, 0]))


def chain(counter: Counter) -> dict[str, float]:
    """Energy in J of each operator of the chain, looped alone, by the counter."""
    import torch

    sys.path.insert(0, str(HERE / "programs"))
    from chain import make

    model, (inputs,) = make()
    alone = {}
    for name, operator in model.operators.items():
        graph = captured(torch, lambda operator=operator: operator(inputs))
        chunk, seen, ends = max(1, int(0.02 / replay_s(torch, graph, 20))), [], time.perf_counter() + ALONE_S + WARM_S
        waiting, done = [], 0
        while time.perf_counter() < ends:  # a chunk is always waiting, so that the GPU works while the counter is read
            for _ in range(chunk):
                graph.replay()
            waiting.append(torch.cuda.Event())
            waiting[-1].record()
            if len(waiting) > 2:
                waiting.pop(0).synchronize()
                done += chunk
                seen.append((time.perf_counter(), done, counter.joules()))
        torch.cuda.synchronize()
        rows = np.array([row for row, before in zip(seen[1:], seen, strict=False) if row[2] != before[2]])
        rows = rows[rows[:, 0] > seen[0][0] + WARM_S]
        alone[name] = float(np.polyfit(rows[:, 1], rows[:, 2], 1)[0])
    return alone


def _json(out: Path, *words: str) -> tuple[float, dict]:
    """Seconds of a command of jouletrace in a fresh process, and the JSON that it prints; its Run goes to ``out``."""
    words, began = (*words, "--json", "-o", str(out)), time.perf_counter()
    ended = subprocess.run([sys.executable, "-m", "jouletrace", *words], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    print(f"$ jouletrace {' '.join(words)}   [{ended.returncode}, {seconds:.1f} s]\n{ended.stderr}")
    return seconds, json.loads(ended.stdout) if ended.returncode == 0 else {}


def measure(out: Path) -> dict:
    """Everything, in some eight minutes; what is known so far is in ``canary.json`` whenever it ends."""
    out.mkdir(parents=True, exist_ok=True)
    found: dict = {"device": Counter().name}
    made = f"{HERE / 'programs' / 'chain.py'}:make"
    recorded = ("--mode", "eager", "--detail", "kernel", "--detail-time", "10", "--max-time", "3")
    parts = {
        "first": lambda: _json(out / "first.zip", "profile", "deit-b", "--mode", "graph"),
        "bursts": lambda: _child(out, "bursts"),
        "chain": lambda: _json(out / "chain.zip", "profile", made, *recorded),
        "alone": lambda: _child(out, "alone"),
        "host": lambda: _json(out / "host.zip", "profile", "deit-b", "--batch", "1", "--mode", "eager"),
        "slowdown": lambda: {name: slowdown.measure(name) for name in ("encoder", "resnet_train")},
    }
    for name, part in parts.items():
        began = time.perf_counter()
        found[name] = part()
        print(f"== {name}: {time.perf_counter() - began:.0f} s", flush=True)
        (out / "canary.json").write_text(json.dumps(found))
    return found


def _child(out: Path, what: str) -> list | dict:
    """A part in a process of its own, which gives its memory on the GPU back."""
    path = out / f"{what}.json"
    subprocess.run([sys.executable, __file__, what, str(path)], check=True)
    return json.loads(path.read_text())


OPERATORS = {
    "mul": ("aten.mul", 0),
    "mm fp32": ("aten.mm", 0),
    "softmax": ("aten._softmax", 0),
    "mm fp16": ("aten.mm", 1),
    "gelu": ("aten.gelu", 0),
    "cumsum": ("aten.cumsum", 0),
    "convolution": ("aten.convolution", 0),
    "layer norm": ("aten.native_layer_norm", 0),
}
"""The operator behind each name of the chain, and which of that name, the longest first."""

OTHERWISE = ("convolution",)
"""Looped alone it needs no transposes: no truth for the chain."""


def row(found: dict) -> dict[str, float | str]:
    """A row of the table: errors and half-widths in %, counts, seconds."""
    cells: dict[str, float | str] = {"device": found["device"], "first figure (s)": found["first"][0]}
    for length in LENGTHS_S:
        own = [one for one in found["bursts"] if one["length_s"] == length]
        each = [(s, one["truth_j"]) for one in own for s in one["stated"] if s[0] is not None]
        errors, widths = ([100 * (s[0] / true - 1) for s, true in each], [50 * (s[2] - s[1]) / s[0] for s, _ in each])
        truth = max(100 * one["truth_half_j"] / one["truth_j"] for one in own)
        held, name = sum(s[1] <= true <= s[2] for s, true in each), f"bursts {1e3 * length:g} ms"
        cells |= {f"{name}, hold": held, f"{name}, of": len(each), f"{name}, truth ± (%)": truth}
        if each:
            cells |= {f"{name}, error (%)": float(np.mean(errors)), f"{name}, rms error (%)": _rms(errors)}
            cells |= {f"{name}, half-width (%)": float(np.median(widths))}
    errors, widths, held = _chain(found)
    cells |= {"chain, rms error (%)": _rms(errors), "chain, half-width (%)": float(np.median(widths or [np.nan]))}
    cells |= {"chain, hold": held, "chain, of": len(errors), "chain (s)": found["chain"][0]}
    energy = found["host"][1].get("model", {}).get("energy_j", {})
    for what in ("total", "active_over_context_idle"):
        figure = energy.get(what) or {}
        if figure.get("value"):
            cells[f"host {what} (J)"] = figure["value"]
            cells[f"host {what} ± (%)"] = 50 * (figure["high"] - figure["low"]) / figure["value"]
    for name, rows in found.get("slowdown", {}).items():
        more, low, high = slowdown.more(rows)
        cells |= {f"{name} under run (%)": more, f"{name} under run, low (%)": low, f"{name} under run, high (%)": high}
    known = {name: value for name, value in cells.items() if value == value}
    return {name: value if isinstance(value, str | int) else round(value, 4) for name, value in known.items()}


def _rms(values: list[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values else float("nan")


def _chain(found: dict) -> tuple[list[float], list[float], int]:
    """Errors and half-widths in % of the operators with a truth, and how many hold, the truth taken for exact.

    One that would draw more than the power limit if it took as long alone as in the chain has none: it is capped there.
    """
    document = found["chain"][1] or {"parts": {}, "devices": [{}]}
    operators = [row for row in document["parts"].get("code", []) if row["path"][-1]["kind"] in ("op", "shapes")]
    rows = sorted(operators, key=lambda row: -(row["time_s"]["value"] or 0))
    limit_w = document["devices"][0].get("power_limit_w") or np.inf
    errors, widths, held = [], [], 0
    for name, (operator, which) in OPERATORS.items():
        own = [row for row in rows if {"kind": "op", "name": operator.removeprefix("aten.")} in row["path"]]
        if name in OTHERWISE or len(own) <= which or own[which]["energy_j"]["value"] is None:
            continue
        figure, truth = own[which]["energy_j"], found["alone"][name]
        if truth > limit_w * own[which]["time_s"]["value"]:
            continue
        errors.append(100 * (figure["value"] / truth - 1))
        widths.append(50 * (figure["high"] - figure["low"]) / figure["value"])
        held += figure["low"] <= truth <= figure["high"]
    return errors, widths, held


def add(found: dict, commit: str) -> None:
    """Put the row of a commit into the table, in place of an earlier one of the same commit."""
    rows = [one for one in _rows() if one["commit"] != commit]
    rows.append({"commit": commit, **{name: str(value) for name, value in row(found).items()}})
    names = list(dict.fromkeys(name for one in rows for name in one))
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _rows() -> list[dict[str, str]]:
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def draw() -> None:
    """Draw each numeric column over the commits."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    rows = _rows()
    names = [name for name in rows[0] if name not in ("commit", "device")]
    figure, axes = pyplot.subplots(-(-len(names) // 4), 4, figsize=(14, 1.9 * -(-len(names) // 4)), squeeze=False)
    for axis, name in zip(axes.flat, names, strict=False):
        axis.plot([float(one.get(name) or "nan") for one in rows], marker="o", markersize=3, linewidth=1)
        axis.set_title(name, fontsize=8)
        axis.set_xticks(range(len(rows)), [one["commit"][:8] for one in rows], fontsize=6, rotation=30)
        axis.tick_params(axis="y", labelsize=7)
    for axis in axes.flat[len(names) :]:
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    """Parse the command and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("measure", "add", "draw", "bursts", "alone"))
    parser.add_argument("place", type=Path, nargs="?", default=Path("canary"))
    parser.add_argument("commit", nargs="?")
    chosen = parser.parse_args()
    if chosen.command == "add" and chosen.commit is None:
        parser.error("add: name canary.json and the commit")
    if chosen.command == "measure":
        print(json.dumps(row(measure(chosen.place)), indent=1))
    elif chosen.command == "add":
        add(json.loads(chosen.place.read_text()), chosen.commit)
    elif chosen.command == "draw":
        draw()
    else:
        chosen.place.write_text(json.dumps({"bursts": bursts, "alone": chain}[chosen.command](Counter())))


if __name__ == "__main__":
    main()
