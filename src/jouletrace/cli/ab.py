"""``jouletrace ab``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.compare import FailIf, Margin, Strict, check_expressions, conclude
from jouletrace.cli.output import Destination, check_form
from jouletrace.errors import BadInputError
from jouletrace.profiler.settings import ProfileSettings

WORKLOADS = "As for profile: a built-in name, hf:, torchvision:, timm:, file.py:callable, a transformers folder."


@options.from_settings(
    ProfileSettings,
    *("device", "task", "batch", "seq_len", "max_new_tokens", "dtype", "mode", "config", "optimizer"),
    *("label_smoothing", "data", "warmup_s", "random", "seed", "input_sets"),
)
def ab(
    settings: ProfileSettings,
    a: Annotated[str, typer.Argument(metavar="A", help=WORKLOADS)],
    b: Annotated[
        str, typer.Argument(metavar="B", help="The other workload; may be A with --batch-b, --mode-b or --dtype-b.")
    ],
    dtype_b: Annotated[str | None, typer.Option(help="Data type of B. [default: as A]")] = None,
    batch_b: Annotated[
        int | None, typer.Option(min=1, help="Samples per iteration of B: compared per sample. [default: as A]")
    ] = None,
    mode_b: Annotated[str | None, typer.Option(help="Mode of B. [default: as A]")] = None,
    margin: Margin = "1%",
    max_time: Annotated[float, typer.Option(metavar="SECONDS", help="Longest total time of the windows.")] = 40.0,
    detail_time: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Record the kernels of both sides for so long, if these differ: 6 names causes."
        ),
    ] = 0.0,
    fail_if: FailIf = None,
    strict: Strict = False,
    output: options.Output = None,
    verbose: options.Verbose = False,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Compare two workloads on one GPU, alternating in one process.

    They run in blocks of A B B A, so that temperature, clocks and the sensor's gain affect both equally; differences
    of 1 % are resolved within a minute.
    """
    from jouletrace.cli.progress import ProgressLine, quiet_output
    from jouletrace.profiler.ab import AbSettings, run_ab
    from jouletrace.recording.session import command_line
    from jouletrace.workloads import resolve

    form = check_form(form, json)
    check_expressions(fail_if or [])
    how = AbSettings(margin=options.parse_percent(margin, "--margin"), max_time_s=max_time, detail_time_s=detail_time)
    try:
        settings_b = replace(
            settings,
            batch=batch_b or settings.batch,
            mode=mode_b or settings.mode,
            dtype=dtype_b or settings.dtype,
        )
    except BadInputError as error:
        said = re.sub(r"^--(batch|mode|dtype) ", r"--\1-b ", str(error))  # the only options of B alone
        raise BadInputError(f"B: {said}") from None
    with quiet_output():
        first, other = resolve(a), resolve(b)
    with Destination(output, f"{first.name}-vs-{other.name}") as destination:
        with ProgressLine() as progress, quiet_output():
            run, comparison = run_ab(
                first,
                other,
                settings,
                how,
                settings_b=settings_b,
                fail_if=fail_if or [],
                folder=destination.folder,
                command=command_line(),
                progress=progress,
            )
        destination.done(run, more=form == "table" and not verbose)
    conclude(comparison, form=form, top=10, strict=strict, verbose=verbose)


COMMAND = Command(
    "Compare",
    "Two workloads on one GPU, alternating in one process.",
    (
        "jouletrace ab deit-b deit-b --mode eager --mode-b graph",
        "jouletrace ab attention.py:eager attention.py:flash --fail-if 'energy>1%'",
    ),
    ab,
)
