"""``nvidia-smi dmon``: columns between spaces under two header lines, with or without dates and times."""

from __future__ import annotations

import re
from pathlib import Path

from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import HEAD_BYTES, ImportOptions, decode_text, read_text
from jouletrace.formats.importers.log import Log
from jouletrace.formats.importers.numbers import decimal_sign
from jouletrace.run import Run

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
    "fb": ("memory_used_bytes", "MiB"),  # printed as MB, but MiB
    "bar1": ("memory_bar1_bytes", "MiB"),
    "pviol": ("violation_power_pct", "%"),
    "tviol": ("violation_thermal", ""),
    "rxpci": ("pcie_received", "MB/s"),
    "txpci": ("pcie_sent", "MB/s"),
}
"""Channel of each column, and its unit where the header has none."""

_HEADER = re.compile(r"^#\s*(?:(?:date|time)[\s,]+){0,2}gpu[\s,]+(?!.*\bpid\b)\S", re.I | re.M)


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of a log of ``dmon``; ``pmon``, which counts processes, is excluded."""
    return _HEADER.search(decode_text(head)) is not None


def read(path: Path, options: ImportOptions) -> Run:
    """Read a log of ``dmon``.

    Raises:
        BadInputError: If it holds no reading, or the time zone is unknown.
    """
    log = Log(path, options)
    text = read_text(path, log.left)
    decimal = decimal_sign(re.findall(r"\d{1,12}(?:[.,]\d{1,12})+", text[:HEAD_BYTES]))
    names: list[str] = []
    stated: list[str] = []
    commas = False
    for line, row in enumerate(text.split("\n"), start=1):
        heading = row.lstrip().startswith("#")
        commas = "," in row if heading else commas
        cells = (row.replace(",", " ") if commas else row).lstrip("# \t" if heading else None).split()
        if heading and "gpu" in (lower := [cell.lower() for cell in cells]):
            names, stated = lower, []
        elif heading:
            stated = cells if len(cells) == len(names) else stated
        elif cells and not names:
            log.left.add("not_a_row", "lines stand before any header", place=f"line {line}")
        elif cells:
            _row(log, line, names, stated, cells, decimal)
    log.devices = dict(sorted(log.devices.items()))
    return log.run("nvidia_smi", "rows", dialect="dmon")


def _row(log: Log, line: int, names: list[str], stated: list[str], cells: list[str], decimal: str) -> None:
    at = names.index("gpu")
    if len(cells) != len(names) or not cells[at].isdecimal() or len(cells[at]) > 4:
        log.left.add("broken_rows", "rows do not fit their header", place=f"line {line}")
        return
    device = log.gpu(cells[at])
    log.row(" ".join(cells[:at]), device)
    for k in range(at + 1, len(cells)):
        name = names[k]
        channel, usual = CHANNELS.get(name, (name, ""))
        printed = stated[k] if stated and name not in ("fb", "bar1") else usual
        value = log.left.number(cells[k], decimal, f"line {line}, column {name}")
        if value is not None:
            log.add(device, channel, value, units.unit(printed) or units.NO_UNIT, f"nvidia-smi dmon, {name}")
