"""``jouletrace monitor``."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jouletrace.cli import options
from jouletrace.cli.output import Place, check_form, print_runs, say

if TYPE_CHECKING:
    from jouletrace.profiler.monitor import Reading

COLUMNS = (
    ("power_w", "power", "W", 1, 1.0),
    ("utilization_gpu_pct", "util", "%", 0, 1.0),
    ("clock_sm_mhz", "SM clock", "MHz", 0, 1.0),
    ("clock_memory_mhz", "mem clock", "MHz", 0, 1.0),
    ("temperature_c", "temp", "°C", 0, 1.0),
    ("memory_used_bytes", "memory", "GiB", 2, 2.0**-30),
)


def monitor(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND ...]", help="A program to run and record.")
    ] = None,
    device: Annotated[
        list[str] | None, typer.Option("--device", "-d", help=options.DEVICE_HELP + " Repeatable; all for all GPUs.")
    ] = None,
    interval: Annotated[float, typer.Option(metavar="SECONDS", help="Seconds between lines.")] = 1.0,
    duration: Annotated[float | None, typer.Option(metavar="SECONDS", help="Stop after so long.")] = None,
    output: options.Output = None,
    form: Annotated[
        str, typer.Option("--format", "-f", help="table; csv streams lines to stdout; json prints the result only.")
    ] = "table",
    json: options.Json = False,
) -> None:
    """Watch power, clocks and memory, alone or while a command runs.

    At the end: idle level, working level, their difference, and the energy. Ctrl-C ends it normally. With a
    command, the exit code is the command's.
    """
    from jouletrace.devices import open_devices
    from jouletrace.errors import BadInputError
    from jouletrace.profiler.monitor import monitor as record
    from jouletrace.profiler.session import command_line

    form = check_form(form, json)
    for option, seconds in (("--interval", interval), ("--duration", duration)):
        if seconds is not None and not 0 < seconds < float("inf"):
            raise BadInputError(f"{option} {seconds:g}: must be more than 0 s")
    devices = open_devices(device or ["all"])
    streaming = form == "csv"
    with Place(output, "monitor") as place:
        live = Stream() if streaming else (LiveTable() if not command and form == "table" else None)
        try:
            run, code = record(
                devices,
                interval_s=interval,
                duration_s=duration,
                command=command,
                folder=place.folder,
                typed=command_line(),
                on_tick=live.show if live else None,
            )
        finally:
            if live:
                live.close()
            for opened in devices:
                opened.close()
        place.done(run)
        # A stream on stdout stays one: what it came to is for the person at the terminal.
        print_runs([run], form="table" if streaming else form, to=sys.stderr if streaming else None)
    if code:
        raise typer.Exit(code)


def _cells(reading: Reading) -> list[str]:
    cells = []
    for channel, _, _, digits, factor in COLUMNS:
        value = reading.values.get(channel)
        cells.append("-" if value is None else f"{value * factor:.{digits}f}")
    return cells


class Stream:
    """CSV lines on stdout, one a device and tick."""

    def __init__(self) -> None:
        names = ["time", "device"] + [f"{name.replace(' ', '_')}_{unit}" for _, name, unit, _, _ in COLUMNS]
        print(",".join(names), flush=True)

    def show(self, readings: list[Reading]) -> None:
        """Print the latest readings."""
        for reading in readings:
            if reading.time_ns:
                stamp = datetime.fromtimestamp(reading.time_ns / 1e9).isoformat(timespec="milliseconds")
                print(",".join([stamp, reading.device, *_cells(reading)]), flush=True)

    def close(self) -> None:
        """Nothing to put back."""


class LiveTable:
    """A table on stderr that is redrawn at each tick; plain lines where stderr is no terminal."""

    def __init__(self) -> None:
        self._live: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), transient=True, auto_refresh=False)
            self._live.start()

    def show(self, readings: list[Reading]) -> None:
        """Draw the latest readings."""
        if self._live is None:
            for reading in readings:
                if reading.time_ns:
                    cells = zip(COLUMNS, _cells(reading), strict=True)
                    say(
                        f"{reading.name}  "
                        + "  ".join(f"{name} {cell} {unit}" for (_, name, unit, _, _), cell in cells)
                    )
            return
        from rich.table import Table

        table = Table(title="Ctrl-C ends and prints the summary", title_style="dim")
        table.add_column("device")
        for _, name, unit, _, _ in COLUMNS:
            table.add_column(f"{name}\n[dim]{unit}", justify="right")
        for reading in readings:
            table.add_row(reading.name, *_cells(reading))
        self._live.update(table, refresh=True)

    def close(self) -> None:
        """Give the terminal back."""
        if self._live is not None:
            self._live.stop()
