"""``nvidia-smi dmon``: columns between spaces under two header lines, with or without dates and times."""

from __future__ import annotations

import re
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import HEAD_BYTES, ImportOptions, Left, new_run, read_text
from jouletrace.formats.importers.numbers import decimal_sign
from jouletrace.formats.importers.power_sensor import nvidia_sensor
from jouletrace.formats.importers.readings import Readings
from jouletrace.formats.importers.stamps import Stamps, evenly, read_stamps
from jouletrace.run import DeviceInfo, Run

FORMAT = "nvidia_smi"
INTERVAL_S = 1.0
"""Seconds between rows unless ``-d`` says otherwise: what rows without a time are taken to be apart."""

CHANNELS: dict[str, tuple[str, str]] = {
    "pwr": ("power_w", "W"),
    "gtemp": ("temperature_c", "C"),
    "temp": ("temperature_c", "C"),
    "mtemp": ("temperature_memory_c", "C"),
    "sm": ("utilization_gpu_pct", "%"),
    "mem": ("utilization_memory_pct", "%"),
    "enc": ("utilization_encoder_pct", "%"),
    "dec": ("utilization_decoder_pct", "%"),
    "jpg": ("utilization_jpeg_pct", "%"),
    "ofa": ("utilization_optical_flow_pct", "%"),
    "mclk": ("clock_memory_mhz", "MHz"),
    "pclk": ("clock_sm_mhz", "MHz"),
    "fb": ("memory_used_bytes", "MiB"),  # printed as MB, meant as MiB
    "bar1": ("memory_bar1_bytes", "MiB"),
    "pviol": ("violation_power_pct", "%"),
    "tviol": ("violation_thermal", ""),
    "rxpci": ("pcie_received", "MB/s"),
    "txpci": ("pcie_sent", "MB/s"),
}
"""Channel of each column and what its unit is where the header has none."""

_HEADER = re.compile(r"^#\s*(?:(?:date|time)[\s,]+){0,2}gpu[\s,]+(?!.*\bpid\b)\S", re.I | re.M)


def recognises(head: str) -> bool:
    """Whether text that begins so is a log of ``dmon``; ``pmon`` counts processes and isn't one."""
    return _HEADER.search(head) is not None


def read(path: Path, options: ImportOptions) -> Run:
    """Read a log of ``dmon``.

    Raises:
        BadInputError: If there is no reading in it, or the time zone is unknown.
    """
    left = Left(path)
    text = read_text(path, left)
    log = _Log(left, decimal_sign(re.findall(r"\d{1,12}(?:[.,]\d{1,12})+", text[:HEAD_BYTES])))
    for line, row in enumerate(text.split("\n"), start=1):
        log.take(line, row)
    if not len(log.readings):
        raise BadInputError(f"{path}: a log of nvidia-smi dmon without a single reading")
    stamps = log.stamps(options)
    left.add("no_time", "rows without a readable time", int((~stamps.valid).sum()))
    run = new_run(path, FORMAT, stamps.clock)
    run.settings["imported"][0]["dialect"] = "dmon"
    for code, note in stamps.notes.items():
        run.warn(code, note, path.name)
    devices = [
        DeviceInfo(id, options.device or f"device {index}", index=index) for id, index in sorted(log.devices.items())
    ]
    log.readings.write(
        run,
        stamps.time_ns,
        stamps.valid,
        stamps.resolution_s,
        devices,
        lambda _, __: nvidia_sensor(options.device or ""),
    )
    if not len(run.samples):
        raise BadInputError(f"{path}: not one row of the log has a readable time")
    left.warn(run)
    return run


class _Log:
    """Rows as they come, under the header that stands over them."""

    def __init__(self, left: Left, decimal: str) -> None:
        self.readings = Readings()
        self.devices: dict[str, int] = {}
        self._left = left
        self._decimal = decimal
        self._commas = False
        self._names: list[str] = []
        self._units: list[str] = []
        self._times: list[str] = []
        self._ticks: dict[str, int] = {}
        self._ordinals: list[int] = []

    def take(self, line: int, row: str) -> None:
        """One line of the file."""
        if row.lstrip().startswith("#"):
            self._commas = "," in row
        cells = row.replace(",", " ").split() if self._commas else row.split()
        if row.lstrip().startswith("#"):
            self._head(" ".join(cells).lstrip("# ").split())
        elif cells and self._names:
            self._row(line, cells)
        elif cells:
            self._left.add("not_a_row", "lines stand before any header", place=f"line {line}")

    def _head(self, cells: list[str]) -> None:
        lower = [cell.lower() for cell in cells]
        if "gpu" in lower:
            self._names, self._units = lower, []
        elif len(cells) == len(self._names):
            self._units = cells

    def _row(self, line: int, cells: list[str]) -> None:
        at = self._names.index("gpu")
        if len(cells) != len(self._names) or not cells[at].isdecimal() or len(cells[at]) > 4:
            self._left.add("broken_rows", "rows do not fit their header", place=f"line {line}")
            return
        index = int(cells[at])
        device = f"imported:{index}"
        self.devices[device] = index
        number_of_row = len(self._times)
        self._times.append(" ".join(cells[:at]))
        tick = self._ticks.get(device, -1) + 1
        self._ticks[device] = tick
        self._ordinals.append(tick)
        for column in range(at + 1, len(cells)):
            self._cell(line, device, number_of_row, column, cells[column])

    def _cell(self, line: int, device: str, row: int, column: int, cell: str) -> None:
        name = self._names[column]
        stated = self._units[column] if column < len(self._units) else ""
        channel, usual = CHANNELS.get(name, (name, ""))
        unit = units.unit(usual if name in ("fb", "bar1") or not stated else stated)
        value = self._left.number(cell, self._decimal, f"line {line}, column {name}")
        if value is None:
            return
        unit = unit or units.NO_UNIT
        suffix = "" if channel.endswith(unit.suffix) else unit.suffix
        self.readings.add(device, channel + suffix, row, value * unit.factor, unit.si, f"nvidia-smi dmon, {name}")

    def stamps(self, options: ImportOptions) -> Stamps:
        """When each row was written."""
        if any(self._times):
            return read_stamps(self._times, options.time_zone)
        note = f"the log has no times: its rows are taken to be {INTERVAL_S:g} s apart, as dmon writes them by default"
        return evenly(self._ordinals, INTERVAL_S, note)
