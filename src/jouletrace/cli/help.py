"""Additions of ``--help`` to the commands: their groups and summaries, groups of options, and examples.

typer's own panels need rich, whose import takes longer than all else that the help does.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

_TEXT = """\
Measure
  doctor: What can be measured here, how well, and what is missing.
    jouletrace doctor
    jouletrace doctor --device cuda:1 --json
  calibrate: The response of this GPU's power sensors, in a minute.
    jouletrace calibrate
    jouletrace calibrate --device cuda:1 --seconds 90
  profile: Latency, power and energy of a model, and where they go.
    jouletrace profile deit-b --batch 64 --mode graph
    jouletrace profile mymodel.py:make --detail layer --top 20
    jouletrace profile llama-1b --task generate --prompt-len 128
  run: Where the energy of a program goes; it runs unchanged.
    jouletrace run train.py --epochs 1
    jouletrace run --live torchrun --nproc-per-node 2 train.py
  bench: A load on a server: joules per request and token.
    jouletrace bench http://127.0.0.1:8000 --rate 1,2,4,8 --slo 'ttft<0.5'
    jouletrace bench http://gpu7:8000 --rate 2 --monitor http://gpu7:9400/metrics
  bill: Energy of each request by the steps of the server's scheduler.
    jouletrace bill runs/bench steps.jsonl
    jouletrace bill runs/bench steps.jsonl --server-run runs/server
  monitor: Live power, clocks and memory, alone or beside a program.
    jouletrace monitor
    jouletrace monitor -- python train.py
    jouletrace monitor --per 'http://127.0.0.1:8000/metrics#requests_total'
Look
  show: Print the figures of Runs: table, JSON, CSV, Markdown.
    jouletrace show runs/mine
    jouletrace show runs/mine --detail kernel --format csv
  report: Write Runs as one HTML file with charts and a timeline.
    jouletrace report runs/mine -o report.html
    jouletrace report runs/before runs/after
  demo: Show Runs recorded on an H100 and an H200; needs no GPU.
    jouletrace demo
    jouletrace demo --json
Compare
  compare: Two sides of one or several Runs, with tested verdicts.
    jouletrace compare runs/before runs/after
    jouletrace compare runs/before runs/after --fail-if 'energy>3%'
  ab: Two workloads on one GPU, alternating in one process.
    jouletrace ab deit-b deit-b --mode eager --mode-b graph
    jouletrace ab attention.py:eager attention.py:flash --fail-if 'energy>1%'
  sweep: A grid of workloads and options, one Run per point.
    jouletrace sweep deit-b --batch 1,8,64 --dtype fp16,bf16 -o grid
    jouletrace sweep deit-b --power-limit 300,400 --yes
  tune: The setting with the least energy within a limit.
    jouletrace tune deit-b --over batch=1..256 --limit 'p99<20ms'
    jouletrace tune bert-l --over dtype=fp32,tf32,bf16 --limit 'time<+3%'
    jouletrace tune deit-b --over clock=900,1200,1500 --yes
Import and export
  import: Read files of other profilers and power loggers.
    jouletrace import dmon.log --latency 4.37ms
    jouletrace import trace.json power.csv -o runs/imported
  export: Write a Run for other programs: tables, traces, pictures.
    jouletrace export runs/mine --format csv
    jouletrace export runs/mine --format chrome -o run.json.gz
  merge: Join the recordings of the ranks of one program.
    jouletrace merge runs/mine
  verify: Compare the files of Runs with their checksums.
    jouletrace verify runs/mine
Fleets and slices
  fleet: The same load on many GPUs, and how much they differ.
  fleet run: Measure the load on every GPU, then report.
    jouletrace fleet run gemm
    jouletrace fleet run deit-b --batch 64 --mode graph --repeats 5 -o runs/fleet
  fleet report: Report how much the GPUs of a fleet differ.
    jouletrace fleet report runs/fleet -o fleet.html --ask 3
  mig: Divide a GPU into slices (MIG), and measure on them.
  mig list: List possible and present divisions of the GPU.
    jouletrace mig list --device sim:a100-80
  mig plan: Show whether and where instances fit.
    jouletrace mig plan 3g.40gb 2g.20gb 1g.10gb --device sim:a100-80
  mig apply: Divide the GPU by a plan.
    jouletrace mig apply 3g.40gb 2g.20gb 1g.10gb --yes
  mig restore: Restore the previous division.
    jouletrace mig restore
  mig sweep: Run workloads on slices of several profiles.
    jouletrace mig sweep --profiles 1g.10gb,7g.80gb --models vit --batch 1,8 --yes
  mig bench: Put servers on several slices under load at once.
    jouletrace mig bench http://a:8001 http://a:8002 --slices 3g,2g --rate 1,2
    jouletrace mig bench gpt2 gpt2 --slices 3g,2g --device sim:h100 --rate 1,2
Other runtimes and profilers
  convert: Write a workload as ONNX, OpenVINO or TensorRT.
    jouletrace convert gpt2 --to onnx --seq-len 128
    jouletrace convert gpt2 --to tensorrt --dtype fp16 -- --sparsity=enable
  trace: Run a workload or a program under nsys or ncu.
    jouletrace trace --with ncu deit-t
    jouletrace trace --with nsys -- python train.py
"""
"""Groups; their commands with a summary, short enough for its line; examples of each."""

COMMANDS: dict[str, list[str]] = {}
"""Names of the commands by group."""

SUMMARIES: dict[str, str] = {}
EXAMPLES: dict[str, list[str]] = {}
for _line in _TEXT.splitlines():
    if _line.startswith("    "):
        EXAMPLES.setdefault(list(SUMMARIES)[-1], []).append(_line.strip())
    elif _line.startswith("  "):
        _name, _, SUMMARIES[_name] = _line.strip().partition(": ")
        COMMANDS[list(COMMANDS)[-1]] += [] if " " in _name else [_name]
    else:
        COMMANDS[_line] = []

_WORKLOAD = (
    *(
        "task",
        "batch",
        "seq-len",
        "max-new-tokens",
        "context",
        "dtype",
        "dtype-b",
        "mode",
        "mode-b",
        "backend",
        "threads",
    ),
    *("streams", "hint", "config", "optimizer", "label-smoothing", "data", "random", "seed", "input-sets"),
    *("models", "tasks", "noise", "noise-task", "noise-batch"),
)
_OUTPUT = ("detail", "output", "top", "advice", "format", "json", "margin", "fail-if", "strict", "help")
_MANY = 12
"""From this number of options on, those of a command that measures are listed in groups."""


def _group(option: Any) -> str:
    names = {name.lstrip("-") for name in option.opts}
    if names & set(_WORKLOAD):
        return "Workload"
    return "Output" if names & set(_OUTPUT) else "Measurement"


class Command(TyperCommand):
    """A command whose help lists many options in groups, and ends with examples."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options; in groups if there are many."""
        params = [one for one in self.get_params(ctx) if one.get_help_record(ctx) is not None]
        options = [one for one in params if one.param_type_name == "option"]
        if len(options) < _MANY or not any("--device" in one.opts for one in options):
            super().format_options(ctx, formatter)
            return
        groups: dict[str, list[Any]] = {"Arguments": [], "Workload": [], "Measurement": [], "Output": []}
        for one in params:
            groups["Arguments" if one not in options else _group(one)].append(one.get_help_record(ctx))
        for title, rows in groups.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, one a line."""
        lines = EXAMPLES.get(" ".join(ctx.command_path.split()[1:]), ())
        if lines:
            with formatter.section("Example" if len(lines) == 1 else "Examples"):
                for line in lines:
                    formatter.write(f"  {line}\n")


class Commands(TyperGroup):
    """The root, whose help lists the commands in groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by group."""
        width = max(len(name) for name in self.commands)
        for title, names in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), SUMMARIES[name]) for name in names])
