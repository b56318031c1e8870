"""``jouletrace bench``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import Destination, check_form, print_runs, say
from jouletrace.errors import BadInputError

_MOST_S = 1e6


def bench(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="An OpenAI-compatible server: http://HOST:PORT; with --device sim:NAME also a workload to simulate.",
        ),
    ],
    rate: Annotated[
        str | None, typer.Option(metavar="N,...", help="Open loop: so many requests/s, whatever the answers do.")
    ] = None,
    concurrency: Annotated[
        str | None, typer.Option(metavar="N,...", help="Closed loop: so many requests at once.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV or JSON lines of arrival_s, input_tokens, output_tokens; with --concurrency the lengths alone.",
        ),
    ] = None,
    arrivals: Annotated[str, typer.Option(help="With --rate: poisson, constant, or bursts:N at once.")] = "poisson",
    duration: Annotated[float, typer.Option(metavar="SECONDS", help="Of each load.")] = 60.0,
    input_tokens: Annotated[str, typer.Option(metavar="N|LOW:HIGH", help="Length of prompts.")] = "512",
    output_tokens: Annotated[str, typer.Option(metavar="N|LOW:HIGH", help="Length of answers.")] = "128",
    slo: Annotated[
        str, typer.Option(metavar="LIMITS", help="Such as ttft<0.5,tpot<0.05,e2e<10, in seconds or ms.")
    ] = "",
    model: Annotated[str, typer.Option(help="Name of the model. [default: the only one served]")] = "",
    api: Annotated[str, typer.Option(help="completions, chat or auto.")] = "auto",
    device: Annotated[
        list[str] | None,
        typer.Option("--device", "-d", help="The server's GPUs, repeatable. [default: those in use]"),
    ] = None,
    monitor: Annotated[
        list[str] | None,
        typer.Option(metavar="URL[#GPU]", help="The server's GPU on another machine: a page of monitor --serve there."),
    ] = None,
    steps: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The log that the server writes of its steps: bills are by these."),
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Within which an answer must end.")] = 120.0,
    pause: Annotated[float, typer.Option(metavar="SECONDS", help="Without requests before and after each load.")] = 5.0,
    seed: Annotated[int, typer.Option(min=0, help="Of arrivals and lengths.")] = 0,
    output: options.Output = None,
    price: options.KeptPrice = None,
    carbon: options.KeptCarbon = None,
    verbose: options.Verbose = False,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Put a server under load: latency, goodput and joules per request and per token of each load.

    Warm-up and steady state are determined from the requests. A key is read from OPENAI_API_KEY.
    """
    from jouletrace.devices import is_simulated, open_devices
    from jouletrace.recording.session import command_line
    from jouletrace.wings.serving.client.bench import bench as run_bench
    from jouletrace.wings.serving.client.bench import in_use
    from jouletrace.wings.serving.client.load import BenchSettings, load_levels
    from jouletrace.wings.serving.client.protocol import PATHS, base_url
    from jouletrace.wings.serving.request_options import slo_of

    form, given = check_form(form, json), options.tariff(price, carbon)
    workload = "://" not in url and bool(device) and all(map(is_simulated, device or []))
    if not workload:
        base_url(url)
    if api not in (*PATHS, "auto"):
        raise BadInputError(f"--api {api}: must be completions, chat or auto")
    for option, seconds in (("--duration", duration), ("--timeout", timeout)):
        if not 0 < seconds <= _MOST_S:
            raise BadInputError(f"{option} {seconds:g}: must be more than 0 s, and at most {_MOST_S:g}")
    if not 0 <= pause <= _MOST_S:
        raise BadInputError(f"--pause {pause:g}: must be from 0 to {_MOST_S:g} s")
    if monitor and device:
        raise BadInputError("--device and --monitor: the server's GPUs are here or there; give one of them")
    levels = load_levels(rate, concurrency, trace, arrivals, duration, (input_tokens, output_tokens), seed)
    settings = BenchSettings(url, levels, model, api, slo_of(slo), timeout, pause, seed, steps)
    with ExitStack() as stack:
        devices = open_devices(monitor or device or ["visible"], real_time=not workload)
        for opened in devices:
            stack.callback(opened.close)
        if not (monitor or device):
            devices = in_use(devices, say)
        place = stack.enter_context(Destination(output, "bench", tariff=given))
        run = run_bench(settings, devices, folder=place.folder, command=command_line(), say=say)
        place.done(run, more=form == "table" and not verbose)
        print_runs([run], form=form, verbose=verbose, tariff=given)


COMMAND = Command(
    "Measure",
    "A load on a server: joules per request and token.",
    (
        "jouletrace bench http://127.0.0.1:8000 --rate 1,2,4,8 --slo 'ttft<0.5'",
        "jouletrace bench http://gpu7:8000 --rate 2 --monitor http://gpu7:9400/metrics",
    ),
    bench,
)
