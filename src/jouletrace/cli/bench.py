"""``jouletrace bench``."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.output import Place, check_form, print_runs, say
from jouletrace.errors import BadInputError
from jouletrace.option import number

if TYPE_CHECKING:
    from jouletrace.devices.base import Device
    from jouletrace.profiler.serving.load import Level

_MOST_S = 1e6
_MOST_RATE = 1e5


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
    price: options.Price = None,
    carbon: options.Carbon = None,
    verbose: options.Verbose = False,
    form: options.Format = "table",
    json: options.Json = False,
) -> None:
    """Put a server under load: latency, goodput and joules per request and per token of each load.

    Warm-up and steady state are determined from the requests. A key is read from OPENAI_API_KEY.
    """
    from jouletrace.devices import is_simulated, open_devices
    from jouletrace.profiler.serving.bench import bench as run_bench
    from jouletrace.profiler.serving.load import BenchSettings
    from jouletrace.profiler.serving.protocol import PATHS, base_url
    from jouletrace.recording.session import command_line
    from jouletrace.report.cost import tariff

    form, given = check_form(form, json), tariff(price, carbon)
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
    settings = BenchSettings(url, levels, model, api, parse_slo(slo), timeout, pause, seed, steps)
    with ExitStack() as stack:
        devices = open_devices(monitor or device or ["visible"], real_time=not workload)
        for opened in devices:
            stack.callback(opened.close)
        if not (monitor or device):
            devices = _in_use(devices)
        place = stack.enter_context(Place(output, "bench"))
        run = run_bench(settings, devices, folder=place.folder, command=command_line(), say=say)
        place.done(run, more=form == "table" and not verbose)
        print_runs([run], form=form, verbose=verbose, tariff=given)


def _in_use(devices: list[Device]) -> list[Device]:
    """The GPUs on which processes run, where some of several are idle: the server's are among them."""
    busy = [one for one in devices if one.processes()]
    if not 0 < len(busy) < len(devices):
        return devices
    names = ", ".join(one.spec for one in busy)
    say(f"recording {names}: no process runs on the other {len(devices) - len(busy)} GPUs; --device chooses others")
    return busy


def load_levels(
    rate: str | None,
    concurrency: str | None,
    trace: Path | None,
    arrivals: str,
    seconds: float,
    lengths: tuple[str, str],
    seed: int,
) -> list[Level]:
    """The loads in the order of their options.

    Raises:
        BadInputError: If there is none, or one is wrong.
    """
    from jouletrace.profiler.serving.load import ARRIVALS, Lengths, closed_levels, open_levels, trace_level

    kind, _, size = arrivals.partition(":")
    if kind not in ARRIVALS or (size != "" and kind != "bursts") or not re.fullmatch("[1-9][0-9]*", size or "8"):
        raise BadInputError(f"--arrivals {arrivals}: must be poisson, constant or bursts:N, N requests at once")
    sizes = Lengths.parse(lengths[0], "--input-tokens"), Lengths.parse(lengths[1], "--output-tokens")
    found: list[Level] = []
    traced = None if trace is None else trace_level(trace)
    if rate is not None:
        found += open_levels(_numbers(rate, "--rate"), kind, seconds, int(size or 8), sizes, seed)
    if concurrency is not None:
        counts = _numbers(concurrency, "--concurrency")
        if any(count != int(count) for count in counts):
            raise BadInputError(f"--concurrency {concurrency}: write whole numbers, as 1,4,16")
        of_trace = None if traced is None else traced.requests
        found += closed_levels([int(count) for count in counts], seconds, sizes, seed, of_trace)
    elif traced is not None:
        found.append(traced)
    if not found:
        raise BadInputError("bench: give --rate 1,2,4 (open loop), --concurrency 1,4,16 (closed loop) or --trace FILE")
    return found


def _numbers(text: str, option: str) -> list[float]:
    try:
        found = [number(one) for one in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < one <= _MOST_RATE for one in found) or len(set(found)) < len(found):
        raise BadInputError(f"{option} {text}: write different numbers above 0, as 1,2,4, of at most {_MOST_RATE:g}")
    return found


def parse_slo(text: str) -> dict[str, float]:
    """Limits in seconds by name, from ``ttft<0.5,tpot<50ms``.

    Raises:
        BadInputError: If it is anything else.
    """
    found: dict[str, float] = {}
    for one in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*(ttft|tpot|e2e)\s*<=?\s*([0-9]*\.?[0-9]+)\s*(ms|s)?\s*", one)
        if match is None or not 0 < float(match[2]) < 1e6 or match[1] in found:
            raise BadInputError(f"--slo {text}: write limits such as ttft<0.5,tpot<50ms,e2e<10, each once")
        found[match[1]] = float(match[2]) * (1e-3 if match[3] == "ms" else 1.0)
    return found


COMMAND = Command(
    "Measure",
    "A load on a server: joules per request and token.",
    (
        "jouletrace bench http://127.0.0.1:8000 --rate 1,2,4,8 --slo 'ttft<0.5'",
        "jouletrace bench http://gpu7:8000 --rate 2 --monitor http://gpu7:9400/metrics",
    ),
    bench,
)
