"""``jouletrace convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import put, put_json, say


def convert(
    workload: Annotated[str, typer.Argument(help="As for profile; for tensorrt and openvino also a .onnx file.")],
    to: Annotated[str, typer.Option("--to", help="onnx, openvino or tensorrt.")],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTIONS ...]", help="Passed to trtexec unchanged.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file. [default: NAME.onnx, .xml or .engine in the current folder]"),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Samples per iteration. [default: the workload's]")] = None,
    seq_len: Annotated[int | None, typer.Option(help="Tokens per sample. [default: the workload's]")] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="fp32 or fp16 (for an engine: the precision that TensorRT may use). [default: fp32]"),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Change the model's configuration; repeatable.")
    ] = None,
    opset: Annotated[int, typer.Option(help="Version of ONNX's operators.")] = 18,
    input_names: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Names of inputs, in order. [default: the model's]")
    ] = None,
    output_names: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Names of outputs, in order. [default: the model's]")
    ] = None,
    fold: Annotated[
        bool, typer.Option("--fold/--no-fold", help="Fold constants and remove nodes without effect.")
    ] = True,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Largest difference from torch, relative to an output's largest value. [default: 0.001; fp16 0.02]"
        ),
    ] = None,
    workspace: Annotated[
        int | None, typer.Option(metavar="MIB", help="Memory that TensorRT may use to build. [default: TensorRT's]")
    ] = None,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", help="trtexec is ended after this time.")] = 3600.0,
    seed: Annotated[int, typer.Option(help="Seed of weights and inputs.")] = 0,
    json: options.Json = False,
) -> None:
    """Convert a workload to a model for another runtime, and compare its outputs with torch's.

    If the outputs differ, nothing is written. TensorRT engines are built from ONNX by trtexec.
    """
    from jouletrace.cli.progress import quiet_output
    from jouletrace.wings.runtimes.export import ExportOptions
    from jouletrace.wings.toolchain.convert import ConvertSettings
    from jouletrace.wings.toolchain.convert import convert as run_conversion
    from jouletrace.workloads.options import WorkloadOptions

    how = ConvertSettings(
        to=to,
        built=WorkloadOptions(
            batch=batch,
            seq_len=seq_len,
            dtype=dtype,
            seed=seed,
            config=options.parse_pairs(config or [], "--config"),
        ),
        exported=ExportOptions(
            opset=opset,
            input_names=_names(input_names),
            output_names=_names(output_names),
            fold=fold,
            tolerance=tolerance,
        ),
        workspace_mib=workspace,
        more=tuple(more or ()),
        limit_s=time_limit,
    )
    with quiet_output():
        path, facts = run_conversion(workload, how, output, say=say)
    if json:
        put_json({"schema": 1, "path": str(path), **facts})
    else:
        put("\n".join(_lines(facts)))
    say(f"wrote {path}")


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()


def _lines(facts: dict[str, Any]) -> list[str]:
    """The facts of the written model as readable lines."""
    lines = [f"{side:<11}{_tensors(facts[side])}" for side in ("inputs", "outputs") if side in facts]
    if "nodes" in facts:
        lines.append(f"{'graph':<11}{facts['nodes']} nodes, opset {facts['opset']}, {facts['dtype']}")
    lines.append(f"{'size':<11}{facts['bytes'] / 1e6:.4g} MB")
    if "difference" in facts:
        lines.append(
            f"{'difference':<11}{facts['difference']:.2g} of the largest output value, against torch "
            f"({facts['tolerance']:g} allowed)"
        )
    if "command" in facts:
        lines.append(f"{'built by':<11}{facts['command']}")
    return lines


def _tensors(shapes: dict[str, list[int]]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes.items())


COMMAND = Command(
    "Other runtimes and profilers",
    "Write a workload as ONNX, OpenVINO or TensorRT.",
    (
        "jouletrace convert gpt2 --to onnx --seq-len 128",
        "jouletrace convert gpt2 --to tensorrt --dtype fp16 -- --sparsity=enable",
    ),
    convert,
)
