"""Small files of other tools whose parts are known, so that one of them can change: what ``mutations`` changes."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import import_logs
import import_timelines
from jouletrace.formats.importers.registry import formats
from serving_runs import Truth, aiperf_line, client_object, level_of, serving_run, vllm_object

BEGIN = datetime(2026, 8, 24, 22, 19, tzinfo=UTC)


def smi_time(at: datetime) -> str:
    """As nvidia-smi writes it, in local time."""
    return at.strftime("%Y/%m/%d %H:%M:%S.") + f"{at.microsecond // 1000:03d}"


def plain_time(at: datetime) -> str:
    """As a spreadsheet writes it, in local time."""
    return at.strftime("%Y-%m-%d %H:%M:%S")


def unix_time(at: datetime) -> str:
    """Seconds since 1970."""
    return f"{at.timestamp():.0f}"


def milliseconds(at: datetime) -> str:
    """Since 1970."""
    return f"{at.timestamp() * 1000:.0f}"


def dmon_time(at: datetime) -> str:
    """Day and time of day in local time."""
    return at.strftime("%Y%m%d   %H:%M:%S")


@dataclass(frozen=True)
class Table:
    """Rows of cells with a heading each, and what the columns are.

    Attributes:
        header: The headings.
        rows: Cells as text.
        roles: Column by what it holds: "time", "power", "counter", "busy"; "devices" is all that distinguish devices.
            Empty for a tool's page, of which the layout alone changes.
        delimiter: Between cells.
        stamp: How its times are written; None where none can be rewritten.
        preamble: Lines above the headings.
        quoted: Whether all cells are in quotation marks.
        ending: Ends each line.
        behind: Ends each line in front of that.
        written: "csv", "dmon" for columns of nvidia-smi dmon, or "scrapes" for those of dcgm-exporter.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    roles: Mapping[str, Any] = field(default_factory=dict)
    delimiter: str = ","
    stamp: Callable[[datetime], str] | None = None
    preamble: str = ""
    quoted: bool = False
    ending: str = "\n"
    behind: str = ""
    written: str = "csv"

    def data(self) -> bytes:
        """The file."""
        if self.written == "scrapes":
            lines = [line for row in self.rows for line in self._scrape(row)]
        elif self.written == "dmon":
            names, units = zip(*(heading.partition("|")[::2] for heading in self.header), strict=True)
            lines = ["    ".join(cells) for cells in (names, units, *self.rows)]
        else:
            lines = [self._line(cells) + self.behind for cells in (self.header, *self.rows)]
        return (self.preamble.replace("\n", self.ending) + self.ending.join([*lines, ""])).encode()

    def _line(self, cells: Sequence[str]) -> str:
        sink = io.StringIO()
        quoting = csv.QUOTE_ALL if self.quoted else csv.QUOTE_MINIMAL
        csv.writer(sink, delimiter=self.delimiter[0], quoting=quoting, lineterminator="").writerow(cells)
        line = sink.getvalue()
        return line if self.quoted or len(self.delimiter) == 1 else self.delimiter.join(cells)

    def _scrape(self, row: Sequence[str]) -> list[str]:
        """The lines of one GPU: a metric a column, its time behind."""
        cells = dict(zip(self.header, row, strict=False))
        time = self.header.index("time")
        of = ",".join(f'{name}="{cells[name]}"' for name in ("gpu", "UUID", "modelName") if name in cells)
        metrics = [(name, value) for name, value in zip(self.header, row, strict=True) if name.startswith("DCGM_")]
        return [f"{name}{{{of}}} {value} {row[time]}" for name, value in metrics]


@dataclass(frozen=True)
class Sample:
    """A file of a format; ``kind`` is "table", "json", "lines of json", "text" or "database"."""

    form: str
    kind: str
    whole: bytes
    table: Table | None = None

    @property
    def parsed(self) -> Any:
        """The document in a file of JSON."""
        return json.loads(self.whole)


def logged(
    header: Sequence[str],
    cells: Callable[[int, int], Sequence[str]],
    stamp: Callable[[datetime], str],
    *,
    count: int = 1,
    n: int = 40,
    delimiter: str = ",",
    **roles: Any,
) -> Table:
    """A log of so many devices, a reading of each a second: ``cells(k, device)`` are those behind the time."""
    rows = [(stamp(BEGIN + timedelta(seconds=k)), *cells(k, device)) for k in range(n) for device in range(count)]
    return Table(tuple(header), tuple(rows), {"time": 0, **roles}, delimiter, stamp)


def watts(k: int, device: int = 0) -> float:
    """Power of a device at work, within a watt of 200 or 300 W."""
    return 200.0 + 100 * device + (k * 7 % 5 - 2) / 4


def query(devices: int) -> Table:
    """A log of ``nvidia-smi --query-gpu``."""
    fields = ["timestamp", "index", "uuid", "name", "power.draw [W]", "utilization.gpu [%]", "memory.used [MiB]"]

    def cells(k: int, device: int) -> list[str]:
        named = [str(device), f"GPU-{device}b2c", "NVIDIA H100 80GB HBM3"]
        return [*named, f"{watts(k, device):.2f} W", "100 %", "512 MiB", "1410 MHz"]

    fields += ["clocks.current.sm [MHz]"]
    roles = {"power": 4, "busy": 5, "devices": (1, 2, 3)}
    return logged(fields, cells, smi_time, count=devices, delimiter=", ", **roles)


def meter(devices: int) -> Table:
    """A table of a power meter, or of several, with their energy counters."""
    fields = ["time", "device", "power_w", "energy_counter_j", "Voltage (V)"]

    def cells(k: int, device: int) -> list[str]:
        counted = 1000 + sum((watts(i, device) + watts(i + 1, device)) / 2 for i in range(k))
        return [f"outlet {device}", f"{watts(k, device):.2f}", f"{counted:.3f}", "230.5"]

    return logged(fields, cells, plain_time, count=devices, power=2, counter=3, devices=(1,))


def spreadsheet() -> Table:
    """A table whose heading states the unit."""
    return logged(["Time", "Power (W)"], lambda k, _: [f"{watts(k):.2f}"], plain_time, power=1, devices=())


def bare() -> Table:
    """A table of nothing but time and power."""
    return logged(["time_s", "power_w"], lambda k, _: [f"{watts(k):.2f}"], unix_time, power=1, devices=())


def dcgm(devices: int) -> Table:
    """A table of dcgm's fields."""

    def cells(k: int, device: int) -> list[str]:
        return [str(device), f"{watts(k, device):.2f}", "4"]

    return logged(["TimeStamp", "EntityId", "POWER", "FBUSD"], cells, unix_time, count=devices, power=2, devices=(1,))


def scrapes(devices: int) -> Table:
    """Answers of dcgm-exporter, one a second."""
    fields = ("POWER_USAGE", "TOTAL_ENERGY_CONSUMPTION", "SM_CLOCK", "GPU_TEMP", "POWER_MGMT_LIMIT", "GPU_UTIL")

    def cells(k: int, device: int) -> list[str]:
        counted = sum((watts(i, device) + watts(i + 1, device)) / 2 for i in range(k))
        values = [f"{watts(k, device):.3f}", f"{1000 * (5000 + counted):.0f}", "1410", "50", "700", "100"]
        return [str(device), f"GPU-{device}b2c", "NVIDIA H100 80GB HBM3", *values]

    names = ["time", "gpu", "UUID", "modelName", *(f"DCGM_FI_DEV_{name}" for name in fields)]
    roles = {"power": 4, "counter": 5, "busy": 9, "devices": (1, 2, 3)}
    return replace(logged(names, cells, milliseconds, count=devices, **roles), written="scrapes")


def dmon(devices: int) -> Table:
    """Output of ``nvidia-smi dmon -o DT``."""

    def cells(k: int, device: int) -> list[str]:
        return [str(device), f"{watts(k, device):.0f}", "38", "100", "1593", "975"]

    names = ["#Date       Time|#YYYYMMDD   HH:MM:SS", "gpu|Idx", "pwr|W", "gtemp|C", "sm|%", "mclk|MHz", "pclk|MHz"]
    return replace(logged(names, cells, dmon_time, count=devices, power=2, busy=4, devices=(1,)), written="dmon")


def page(text: str, heading: str) -> Table:
    """The table in the output of a tool from the line on that begins with ``heading``."""
    lines = text.splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if line.startswith(heading))
    header, *rows = (row for row in csv.reader(io.StringIO("".join(lines[first:]))) if len(row) > 1)
    quoted = heading.startswith('"')
    return Table(tuple(header), tuple(map(tuple, rows)), preamble="".join(lines[:first]), quoted=quoted)


PROFILE = [
    {"count": 4},
    {"name": "Conv_0 + Relu_1", "timeMs": 4, "averageMs": 1, "medianMs": 0.9, "percentage": 80},
    {"name": 'say "hi", {there}', "timeMs": 1, "averageMs": 0.25, "medianMs": 0.25, "percentage": 20},
]


@cache
def samples() -> dict[str, tuple[Sample, ...]]:
    """By format that is read, small files of it."""
    found: dict[str, list[Sample]] = {}

    def add(form: str, kind: str, whole: bytes | str = b"", table: Table | None = None) -> None:
        data = table.data() if table else whole if isinstance(whole, bytes) else whole.encode()
        if form in formats():
            found.setdefault(form, []).append(Sample(form, kind, data, table))

    for form, make in (
        ("nvidia_smi", query),
        ("nvidia_smi", dmon),
        ("table", meter),
        ("dcgm", dcgm),
        ("dcgm", scrapes),
    ):
        add(form, "table", table=make(1))
        add(form, "table", table=make(2))
    add("table", "table", table=spreadsheet())
    add("table", "table", table=bare())
    for form, name, heading in (
        ("nvprof", "nvprof summary csv", '"Type"'),
        ("nvprof", "nvprof trace csv", '"Start"'),
        ("nvprof", "nvprof metrics csv", '"Device"'),
        ("mig_folder", "mig results", "model_name"),
        ("codecarbon", "emissions", "timestamp"),
    ):
        add(form, "table", table=page(import_logs.TEXTS[name][1], heading))
    texts = ("dmon", "boxes", "scrapes", "nvprof summary", "nvprof metrics", "trtexec log", "torch")
    for form, text in map(import_logs.TEXTS.get, texts):
        add(form, "text", text)
    add("trtexec", "json", "[\n  " + "\n, ".join(map(json.dumps, PROFILE)) + "\n]\n")
    add("kineto", "json", json.dumps(json.loads(import_timelines.native(import_timelines.kineto_events(8)))))
    launches = [(import_timelines.GEMM, (8, 1, 1)), (import_timelines.RELU, (16, 1, 1))]
    with tempfile.TemporaryDirectory() as place:
        for write in (import_timelines.ncu_details, import_timelines.ncu_raw):
            add("ncu", "table", table=page(write(Path(place) / "page", launches).read_text(), '"ID"'))
        add("nsys", "database", import_timelines.nsys(Path(place) / "a.sqlite", launches=20).read_bytes())
    run, _ = serving_run(Truth(), [level_of(Truth(), 4, 8, (50, 500), (20, 100), np.random.default_rng(1))])
    rows = run.requests.to_pylist()
    add("aiperf", "lines of json", "".join(f"{aiperf_line(row)}\n" for row in rows))
    add("vllm_bench", "json", json.dumps(vllm_object(rows)))
    add("inferencex", "json", json.dumps(client_object(rows)))
    return {form: tuple(ones) for form, ones in found.items()}


def changed_database(whole: bytes, *statements: str) -> bytes:
    """The database of nsys after these statements of SQL."""
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        Path(file.name).write_bytes(whole)
        base = sqlite3.connect(file.name)
        for statement in statements:
            base.execute(statement)
        base.commit()
        base.close()
        return Path(file.name).read_bytes()
