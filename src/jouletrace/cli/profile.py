"""``jouletrace profile``."""

from __future__ import annotations

from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.output import Place, check_form, print_runs, say

WORKLOAD_HELP = (
    "A built-in name (deit-b, bert-l, resnet50, gpt2-large, dlrm, ...), hf:ORG/NAME of the Hugging Face hub, "
    "torchvision:NAME, timm:NAME, package.module:callable or file.py:callable that returns (model, inputs) or "
    "(callable, args), a local transformers folder, or a .onnx file."
)


def profile(
    workload: Annotated[str, typer.Argument(help=WORKLOAD_HELP)],
    task: Annotated[str, typer.Option(help="What an iteration does: infer, train or generate.")] = "infer",
    detail: options.Detail = "model",
    device: options.Device = "auto",
    batch: Annotated[int | None, typer.Option(help="Samples an iteration. [default: the workload's]")] = None,
    seq_len: Annotated[
        int | None,
        typer.Option(
            "--seq-len",
            "--prompt-len",
            help="Tokens a sample; of a workload that generates, of its prompt. [default: the workload's]",
        ),
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Tokens to generate for each sample: exactly so many. [default: 64]")
    ] = None,
    early_stop: Annotated[
        bool, typer.Option("--early-stop", help="Let a sample end where the model ends it; tokens are counted as made.")
    ] = False,
    dtype: Annotated[
        str | None, typer.Option(help="fp32 (IEEE), tf32, fp16, bf16, fp64, amp. [default: fp16, on a CPU fp32]")
    ] = None,
    mode: Annotated[str, typer.Option(help="eager, graph (CUDA graph) or compile.")] = "eager",
    backend: Annotated[
        str, typer.Option(help="What runs it: torch, onnxruntime, openvino; trtexec for an engine of TensorRT.")
    ] = "auto",
    threads: Annotated[int | None, typer.Option(help="Threads of a runtime. [default: its own choice]")] = None,
    streams: Annotated[int, typer.Option(help="Iterations that a runtime runs at once.")] = 1,
    hint: Annotated[
        str | None,
        typer.Option(
            help="What OpenVINO chooses its streams for: latency or throughput. [default: as many as --streams]"
        ),
    ] = None,
    l2: Annotated[str, typer.Option(help="L2 cache between iterations: warm, or cold (flushed).")] = "warm",
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Change the model's configuration; repeatable.")
    ] = None,
    optimizer: Annotated[str, typer.Option(help="Of a training step: adamw or sgd.")] = "adamw",
    label_smoothing: Annotated[float, typer.Option(help="Of a training step's loss: at least 0, less than 1.")] = 0.0,
    data: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Train on its images, a class a sub-folder. [default: random ones]"),
    ] = None,
    target_ci: Annotated[str, typer.Option(help="Wanted half-width of the energy's 95 % interval.")] = "1%",
    max_time: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Most seconds of the energy pass. [default: 9; 15 for a slow sensor]"),
    ] = None,
    detail_time: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Seconds of the recording behind --detail layer or kernel; on sim: boards of their own time.",
        ),
    ] = 20.0,
    warmup: Annotated[float, typer.Option(metavar="SECONDS", help="Most seconds of warm-up.")] = 5.0,
    block: Annotated[int, typer.Option(help="Iterations in a block of block means.")] = 100,
    repeats: Annotated[int, typer.Option(min=1, help="Fresh processes; spread within and between is shown.")] = 1,
    random: Annotated[
        bool, typer.Option("--random", help="Random weights for hf: and local folders: their configuration is enough.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of weights and inputs.")] = 0,
    input_sets: Annotated[int, typer.Option(help="Distinct random inputs to rotate among.")] = 1,
    output: options.Output = None,
    top: options.Top = None,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Measure latency, power and energy of a workload, end to end.

    Idle power is taken first, then the workload is warmed up until it has settled; latency and energy are
    measured in passes of their own with nothing else attached.
    """
    from jouletrace.cli.progress import ProgressLine
    from jouletrace.cli.quiet_output import aside
    from jouletrace.profiler.prepare import resolve
    from jouletrace.profiler.profile import profile_workload
    from jouletrace.profiler.repeats import profile_repeats
    from jouletrace.profiler.settings import ProfileSettings
    from jouletrace.recording.session import command_line

    form = check_form(form, json)
    by_trtexec = backend == "trtexec"
    settings = ProfileSettings(
        task=task,
        detail=detail,
        device=device,
        batch=batch,
        seq_len=seq_len,
        dtype=dtype,
        mode=mode,
        backend="auto" if by_trtexec else backend,
        threads=threads,
        streams=streams,
        hint=hint,
        l2=l2,
        config=options.parse_pairs(config or [], "--config"),
        optimizer=optimizer,
        label_smoothing=label_smoothing,
        data=data,
        max_new_tokens=max_new_tokens,
        early_stop=early_stop,
        random=random,
        target_ci=options.parse_percent(target_ci, "--target-ci"),
        max_time_s=max_time,
        detail_time_s=detail_time,
        warmup_s=warmup,
        block=block,
        seed=seed,
        input_sets=input_sets,
    )
    if by_trtexec:
        from jouletrace.addons.toolchain.engine import profile_engine

        with Place(output, workload.rpartition("/")[2]) as place:
            run = profile_engine(workload, settings, place.folder, typed=command_line(), say=say)
            place.done(run)
            print_runs([run], form=form, detail=detail, top=top)
        return
    with aside():
        found = resolve(workload)
    with Place(output, f"{found.name}-b{batch}" if batch else found.name) as place:
        with ProgressLine() as progress, aside():
            folder, typed = place.folder, command_line()
            if repeats > 1:
                run = profile_repeats(workload, settings, repeats, folder=folder, command=typed, progress=progress)
            else:
                run = profile_workload(found, settings, folder=folder, command=typed, progress=progress)
        place.done(run)
        print_runs([run], form=form, detail=detail, top=top)
