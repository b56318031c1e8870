"""``jouletrace profile``."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.campaigns import conclude
from jouletrace.cli.command import Command
from jouletrace.cli.output import Destination, check_form, print_runs, say
from jouletrace.profiler.settings import AUTO, ProfileSettings
from jouletrace.wing import registered

WORKLOAD_HELP = (
    "A built-in name (deit-b, bert-l, resnet50, gpt2-large, dlrm, ...), hf:ORG/NAME of the Hugging Face hub, "
    "torchvision:NAME, timm:NAME, package.module:callable or file.py:callable that returns (model, inputs) or "
    "(callable, args), a local transformers folder, or a .onnx file."
)


@options.from_settings(ProfileSettings, detail=AUTO)
def profile(
    settings: ProfileSettings,
    workload: Annotated[str, typer.Argument(help=WORKLOAD_HELP)],
    repeats: Annotated[int, typer.Option(min=1, help="Fresh processes; shows the spread within and between them.")] = 1,
    on: options.On = None,
    absolute: options.Absolute = False,
    price: options.KeptPrice = None,
    carbon: options.KeptCarbon = None,
    output: options.Output = None,
    top: options.Top = None,
    verbose: options.Verbose = False,
    advice: options.Advice = "brief",
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Measure latency, power and energy of a workload, end to end.

    Idle power is measured first, then the workload is warmed up until it has settled. Latency and energy are
    measured in separate passes without other instrumentation. With --on, all repeats run on one GPU of a cluster.
    """
    from jouletrace.campaign.cluster import cluster
    from jouletrace.campaign.repeats import can_resume, profile_on, profile_repeats
    from jouletrace.cli.progress import ProgressLine, quiet_output
    from jouletrace.profiler.profile import profile_workload
    from jouletrace.recording.session import command_line
    from jouletrace.without_pandas import hide_pandas_from_pyarrow
    from jouletrace.workloads import resolve
    from jouletrace.workloads.transformers_models import BuiltInModel

    form, advised = check_form(form, json), options.is_advised(advice)
    given, there = options.tariff(price, carbon), cluster(on, settings.device)
    show_run = partial(print_runs, form=form, detail=settings.detail, top=top, verbose=verbose, absolute=absolute)
    show_run = partial(show_run, tariff=given, advice=advised)
    if there is None and settings.backend in (engines := registered("engines")):
        profile_engine = import_module(engines[settings.backend]).profile_engine
        with Destination(output, workload.rpartition("/")[2], tariff=given) as destination:
            run = profile_engine(workload, settings, destination.folder, typed=command_line(), say=say)
            destination.done(run, more=form == "table" and not verbose)
            show_run([run])
        return
    with quiet_output():
        resolved = resolve(workload)
    if isinstance(resolved, BuiltInModel):  # no one else's code
        hide_pandas_from_pyarrow()
    name = f"{resolved.name}-b{settings.batch}" if settings.batch else resolved.name
    resumes = there is None and repeats > 1 and output is not None and can_resume(output)
    with Destination(output, name, resumes=resumes, tariff=given) as destination:
        tally = None
        with ProgressLine() as progress, quiet_output():
            folder, typed = destination.folder, command_line()
            if there is not None:
                run = profile_on(there, workload, settings, repeats, folder=folder, command=typed)
            elif repeats > 1:
                run, tally = profile_repeats(
                    workload, settings, repeats, folder=folder, command=typed, progress=progress
                )
            else:
                run = profile_workload(resolved, settings, folder=folder, command=typed, progress=progress)
        if tally is None or tally.ended_by is None:
            destination.done(run, more=form == "table" and not verbose)
        show_run([run])
    if tally is not None:  # outside, where what there is of repeats is kept whatever ended them
        conclude(tally, folder, "runs")


COMMAND = Command(
    "Measure",
    "Latency, power and energy of a model, and where they go.",
    (
        "jouletrace profile deit-b --batch 64 --mode graph",
        "jouletrace profile mymodel.py:make --detail layer --top 20",
        "jouletrace profile llama-1b --task generate --prompt-len 128",
    ),
    profile,
)
