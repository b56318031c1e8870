"""Profiles many models by kernel with ``jouletrace profile`` and prints a line for each: its cost and its result.

    python benchmarks/attribution/any_model.py OUT [NAME ...] [--seconds S] [--gpu N]

Each is a fresh process, as a user starts it; *time* is from the command to the table. OUT/NAME.zip is its Run,
OUT/table.json the figures of all lines.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from jouletrace.run import MODEL_UNIT, Run, load
from jouletrace.run.recording_names import recording_of

HERE = Path(__file__).parent
OWN = f"{HERE.relative_to(Path.cwd()) if HERE.is_relative_to(Path.cwd()) else HERE}/models.py"

MODELS = {
    "vit-b-16": "vit-b --batch 16",
    "deit-b-1": "deit-b --batch 1",
    "deit-b-1-graph": "deit-b --batch 1 --mode graph",
    "deit-b-64": "deit-b --batch 64",
    "deit-b-64-graph": "deit-b --batch 64 --mode graph",
    "bert-l": "bert-l --batch 8 --seq-len 320",
    "bert-l-graph": "bert-l --batch 8 --seq-len 320 --mode graph",
    "gpt2-large": "gpt2-large --batch 4 --seq-len 512",
    "gpt2-large-graph": "gpt2-large --batch 4 --seq-len 512 --mode graph",
    "llama-decode": "llama-1b --task generate --batch 8 --prompt-len 512 --max-new-tokens 32",
    "qwen2": f"{OWN}:qwen2 --dtype bf16",
    "qwen2-graph": f"{OWN}:qwen2 --dtype bf16 --mode graph",
    "mixtral": f"{OWN}:mixtral --dtype bf16",
    "whisper": f"{OWN}:whisper --dtype bf16",
    "t5": f"{OWN}:t5 --dtype bf16",
    "convnext": f"{OWN}:convnext --dtype fp16",
    "convnext-graph": f"{OWN}:convnext --dtype fp16 --mode graph",
    "lstm": f"{OWN}:lstm --dtype fp16",
    "item-loop": f"{OWN}:item_loop --dtype bf16",
    "resnet50-train": "resnet50 --task train --batch 64 --dtype amp",
    "bert-base-train": "bert-base --task train --batch 32 --dtype amp",
    "vit-b-16-compile": "vit-b --batch 16 --mode compile",
    "dlrm": "dlrm --batch 2048",
    "swin": "torchvision:swin_t --batch 32",
    "efficientnet": "torchvision:efficientnet_v2_s --batch 32",
    "mixer": "timm:mixer_b16_224 --batch 32",
    "bart": f"{OWN}:bart --dtype bf16",
    "gemma2": f"{OWN}:gemma2 --dtype bf16",
    "deberta": f"{OWN}:deberta --dtype bf16",
    "segformer": f"{OWN}:segformer --dtype fp16",
}
"""Arguments of ``jouletrace profile``. vit-b, deit-b, bert-l, llama, qwen2 and t5 served for tuning; all others were
chosen before they were measured."""

FINE, LARGE = 0.1, 0.05
"""Half-width of a row that counts as resolved, and the share of the energy from which on an operator is large."""


def profiled(name: str, out: Path, more: list[str]) -> tuple[float, int, str]:
    """Runs one; returns seconds, exit status and what it printed."""
    began = time.monotonic()
    command = [sys.executable, "-m", "jouletrace", "profile", *MODELS[name].split(), "--detail", "kernel", *more]
    path = out / f"{name}.zip"
    path.unlink(missing_ok=True)
    done = subprocess.run([*command, "-o", str(path)], capture_output=True, text=True, env=os.environ, check=False)
    return time.monotonic() - began, done.returncode, done.stdout + done.stderr


def reduced(run: Run) -> dict[str, object]:
    """What the figures of an analysed Run of a recording are computed from, small enough for the repository."""
    top = [u for u in run.units.to_pylist() if u["level"] in ("op", "kernel") and u["parent"] == MODEL_UNIT]
    energies = [(u, run.result("energy_total_j", u["id"])) for u in top if u["name"] != "idle"]
    # a compiler's kernels have no operators
    rows = [[u["name"], bool(u["op"] or u["level"] == "kernel"), e.value, e.half_width] for u, e in energies]
    closure, kept = run.result("closure_kernels"), recording_of(run)
    return {
        "iteration_ms": 1e3 * (run.result("latency_s").value or float("nan")),
        "energy_j": run.result("energy_total_j").value,
        "kernels": len(run.activity),
        "unmatched": kept.get("unmatched"),
        "dropped": kept.get("dropped"),
        "variants": kept.get("variants"),
        "closure": closure.value,
        "closure_half_width": closure.half_width,
        "residual_w": run.result("residual_w").value,
        "warnings": [f"{w.code}: {w.message}" for w in run.warnings],
        "energies": rows,
    }


def figures(found: dict[str, object]) -> dict[str, object]:
    """The same with how finely it resolves the program."""
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


def line(name: str, seconds: float, row: dict[str, object]) -> str:
    """A line of the table."""

    def number(key: str, form: str) -> str:
        return format(row[key], form) if row.get(key) is not None else "-"

    closure = f"{number('closure', '.4f')} ± {number('closure_half_width', '.4f')}"
    return (
        f"| {name} | {seconds:.0f} s | {number('iteration_ms', '.3g')} ms | {row['kernels']} "
        f"| {number('unmatched', '.2%')} | {row['fine_rows']} of {row['rows']} | {number('fine_share', '.0%')} "
        f"| {row['large_within_5']} of {row['large']} | {closure} | {number('residual_w', '.1f')} W |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--seconds", help="of the recording")
    parser.add_argument("--more", default="", help="further arguments of profile")
    parser.add_argument("--table", type=Path, help="where the figures go [OUT/table.json]")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    more = asked.more.split() + (["--detail-time", asked.seconds] if asked.seconds else [])
    print("| model | time | iteration | kernels | unmatched | rows ± 10 % | of active energy | large ± 5 % "
          "| parts / whole | left |\n|---|---|---|---|---|---|---|---|---|---|", flush=True)  # fmt: skip
    rows = {}
    for name in asked.names:
        seconds, status, said = profiled(name, asked.out, more)
        (asked.out / f"{name}.log").write_text(said)
        path = asked.out / f"{name}.zip"
        if not path.exists():
            print(f"| {name} | {seconds:.0f} s | exit {status}: {said.strip().splitlines()[-1:]} |", flush=True)
            rows[name] = {"time_s": seconds, "status": status, "said": said[-2000:]}
            continue
        row = figures(reduced(load(path)))
        rows[name] = {"time_s": seconds, "status": status, **row}
        print(line(name, seconds, row), *(f"\n  {w}" for w in row["warnings"]), flush=True)
        (asked.table or asked.out / "table.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
