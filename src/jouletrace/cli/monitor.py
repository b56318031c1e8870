"""``jouletrace monitor``."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jouletrace.cli import options
from jouletrace.cli.command import Command
from jouletrace.cli.failures import CLOSED
from jouletrace.cli.output import Destination, check_form, launched, print_runs, say
from jouletrace.errors import BadInputError
from jouletrace.spreadsheets import csv_text
from jouletrace.wing import registered
from jouletrace.words.text import printable

if TYPE_CHECKING:
    from jouletrace.profiler.monitoring.watch import Display, LiveWork, Publisher, Reading
    from jouletrace.report.table import Table

MOST_S = 1e9
"""Longest duration in seconds: thirty years."""

STDERR = 2
"""Descriptor."""

COLUMNS = (
    ("power_w", "power", "W", 1, 1.0),
    ("utilization_gpu_pct", "util", "%", 0, 1.0),
    ("clock_sm_mhz", "SM clock", "MHz", 0, 1.0),
    ("clock_memory_mhz", "mem clock", "MHz", 0, 1.0),
    ("temperature_c", "temp", "°C", 0, 1.0),
    ("memory_used_bytes", "memory", "GiB", 2, 2.0**-30),
)
"""Channel, name, unit, digits and factor of each figure."""

_BRIEF = {"SM clock": "SM ", "mem clock": "mem ", "util": "util "}
"""Label in front of a figure in a line, where its unit isn't sufficient."""


def monitor(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND ...]", help="A program to run and record.")
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option("--device", "-d", help=options.DEVICE_HELP + " Repeatable; all selects all GPUs."),
    ] = None,
    interval: Annotated[float, typer.Option(metavar="SECONDS", help="Seconds between lines.")] = 1.0,
    duration: Annotated[float | None, typer.Option(metavar="SECONDS", help="Stop after this time.")] = None,
    per: Annotated[
        str | None,
        typer.Option(
            metavar="URL#METRIC",
            help="Energy per unit of a Prometheus counter, such as "
            'http://127.0.0.1:8000/metrics#vllm:generation_tokens_total; METRIC{label="value"} selects series.',
        ),
    ] = None,
    serve: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Serve a page and Prometheus metrics at 127.0.0.1:PORT, or PORT."),
    ] = None,
    otlp: Annotated[
        str | None, typer.Option(metavar="URL", help="Send energy and power to an OpenTelemetry collector.")
    ] = None,
    pods: Annotated[
        str | None,
        typer.Option(metavar="[SOCKET]", help="Ask the kubelet which pod holds which GPU: energy of each pod."),
    ] = None,
    absolute: options.Absolute = False,
    price: options.KeptPrice = None,
    carbon: options.KeptCarbon = None,
    no_context: options.NoContext = False,
    output: options.Output = None,
    verbose: options.Verbose = False,
    form: Annotated[
        str, typer.Option("--format", "-f", help="table; csv streams lines to stdout; json prints only the result.")
    ] = "table",
    json: options.Json = False,
) -> None:
    """Watch power, clocks and memory, alone or while a program runs.

    At the end it prints the idle level, the working level, their difference, and the energy. Ctrl-C ends it normally.
    With a command, the exit code is the command's.
    """
    from jouletrace.profiler.program.command import program_of

    program = None  # made before what is imported next changes the environment
    if command:
        program = replace(program_of(command, False), context=not no_context)
    from jouletrace.devices import open_devices
    from jouletrace.profiler.monitoring.monitor import monitor as record
    from jouletrace.profiler.monitoring.work_counter import FASTEST_S, CounterTarget, WorkCounter
    from jouletrace.recording.session import command_line
    from jouletrace.run.masking import masked_arguments

    form, given = check_form(form, json), options.tariff(price, carbon)
    options.check_before_program("monitor", device, command)
    for option, seconds in (("--interval", interval), ("--duration", duration)):
        if seconds is not None and not 0 < seconds <= MOST_S:
            raise BadInputError(f"{option} {seconds:g}: must be more than 0 s, and at most {MOST_S:g}")
    counter = WorkCounter(CounterTarget.parse(per), max(interval, FASTEST_S)) if per is not None else None
    streaming = form == "csv"
    if program is not None:
        program.check()
    elif sys.__stdout__ is None:
        raise BadInputError(CLOSED)
    elif signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as behind & in a script, which ends it by SIGINT
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with ExitStack() as stack:
        launcher = stack.enter_context(launched(program)) if program is not None else None
        displays: list[Display] = []
        observers = [made("observers", "pods").observe(pods)] if pods is not None else []
        stated = " ".join(masked_arguments(program.stated if program is not None else []))
        wanted = {option: where for option, where in (("serve", serve), ("otlp", otlp)) if where is not None}
        for option, where in wanted.items():
            publisher: Publisher = stack.enter_context(made("publishers", option).publish(where, stated))
            displays.append(publisher.show)
            say(publisher.about)
        devices = open_devices(device or ["all"], real_time=True)
        for opened in devices:
            stack.callback(opened.close)
        destination = stack.enter_context(Destination(output, "monitor", tariff=given))
        with ExitStack() as drawing:
            if streaming:
                try:
                    displays.append(CsvStream(counting=counter is not None).show)
                except OSError as error:
                    if launcher is None:
                        raise
                    launcher.failure = error  # the program runs nevertheless
            elif form == "table" and (not command or sys.stderr.isatty()):
                live = LiveTable(redrawn=not command)
                drawing.callback(live.close)
                displays.append(live.show)
            run = record(
                devices,
                interval_s=interval,
                duration_s=duration,
                launcher=launcher,
                stdout=None if form == "table" else STDERR,
                counter=counter,
                folder=destination.folder,
                typed=command_line(program.left_out if program is not None else 0),
                displays=displays,
                observers=observers,
            )
        destination.done(run, more=form == "table" and not verbose)
        # The CSV stream on stdout stays parsable: the summary goes to stderr.
        print_runs(
            [run],
            form="table" if streaming else form,
            to=sys.stderr if streaming else None,
            verbose=verbose,
            tariff=given,
            absolute=absolute,
        )


def made(kind: str, option: str) -> Any:
    """The module of a wing for an option, of a field of ``Wing``.

    Raises:
        BadInputError: If no wing has one.
    """
    module = registered(kind).get(option)
    if module is None:
        raise BadInputError(f"--{option}: nothing is installed that does so")
    return import_module(module)


def _cells(reading: Reading) -> list[str]:
    values = [(reading.values.get(channel), digits, factor) for channel, _, _, digits, factor in COLUMNS]
    return ["-" if value is None else f"{value * factor:.{digits}f}" for value, digits, factor in values]


def _plain_line(reading: Reading, width: int) -> str:
    """The latest readings of a device in one line, wrapped at ``width`` columns; 0 wraps nothing, as in a file."""
    lines = [reading.name]
    for (_, name, unit, _, _), cell in zip(COLUMNS, _cells(reading), strict=True):
        figure = f"{_BRIEF.get(name, '')}{cell} {unit}"
        if width and len(lines[-1]) + 2 + len(figure) > width:
            lines.append("")
        lines[-1] += f"  {figure}"
    return "\n".join(lines)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


class CsvStream:
    """CSV lines on stdout, one per device and tick that has a new reading; with ``counting``, each with the work."""

    def __init__(self, counting: bool = False) -> None:
        names = ["time", "device"] + [f"{name.replace(' ', '_')}_{unit}" for _, name, unit, _, _ in COLUMNS]
        self._seen: dict[str, int] = {}
        print(",".join(names + (["work", "J_per_work"] if counting else [])), flush=True)

    def show(self, readings: list[Reading], work: LiveWork | None) -> None:
        """Print the latest readings, each once."""
        more = [] if work is None else [f"{work.done:.15g}", _short(work.j_each)]
        for reading in readings:
            if reading.time_ns > self._seen.get(reading.device, 0):
                self._seen[reading.device] = reading.time_ns
                stamp = datetime.fromtimestamp(reading.time_ns / 1e9).isoformat(timespec="milliseconds")
                print(",".join([stamp, csv_text(printable(reading.device)), *_cells(reading), *more]), flush=True)


class LiveTable:
    """A table on stderr, ``redrawn`` at each tick; plain lines beside a program, and where it isn't a terminal."""

    def __init__(self, redrawn: bool) -> None:
        self._live: Any = None
        self._said: str | None = None
        if redrawn and sys.stderr.isatty():
            from rich.live import Live

            from jouletrace.report.console import open_console

            self._live = Live(console=open_console(stderr=True), transient=True, auto_refresh=False)
            self._live.start()

    def show(self, readings: list[Reading], work: LiveWork | None) -> None:
        """Draw the latest readings."""
        if self._live is not None:
            from rich.text import Text

            from jouletrace.report.terminal import text

            self._live.update(Text(text(_table(readings, work), self._live.console.width)), refresh=True)
            return
        for reading in readings:
            if reading.time_ns:
                say(_plain_line(reading, get_terminal_size().columns if sys.stderr.isatty() else 0))
        if work is not None:
            say(_work_line(work))
            if work.problem != self._said:  # reported once at its start and once at its end
                say(work.problem or f"{work.unit} can be read again")
                self._said = work.problem

    def close(self) -> None:
        """Release the terminal."""
        if self._live is not None:
            self._live.stop()


def _table(readings: list[Reading], work: LiveWork | None) -> Table:
    from jouletrace.report.table import Column, Table

    columns = [Column("device"), *(Column(f"{name} ({unit})", numeric=True) for _, name, unit, _, _ in COLUMNS)]
    notes = [] if work is None else [_work_line(work), *([f"! {work.problem}"] if work.problem else [])]
    rows = [[reading.name, *_cells(reading)] for reading in readings]
    return Table("", columns, rows, [*notes, "Ctrl-C ends and prints the summary"])


def _work_line(work: LiveWork) -> str:
    figures = f"{work.done:.15g} done, {_short(work.per_s)}/s, {_short(work.j_each)} J each"
    return f"{work.unit}: {figures} ({_short(work.j_each_mean)} J since the start)"


COMMAND = Command(
    "Measure",
    "Live power, clocks and memory, alone or beside a program.",
    (
        "jouletrace monitor",
        "jouletrace monitor -- python train.py",
        "jouletrace monitor --per 'http://127.0.0.1:8000/metrics#requests_total'",
        "jouletrace monitor --serve 0.0.0.0:9400 --pods",
    ),
    monitor,
    ends_options=True,
    bare=("--pods",),
)
