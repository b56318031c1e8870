"""The table that plain ``nvidia-smi`` prints, once or in a loop (``-l``, ``watch``, a shell's ``while``)."""

from __future__ import annotations

import re
from pathlib import Path

from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import ImportOptions, decode_text, read_text
from jouletrace.formats.importers.log import Log
from jouletrace.formats.importers.numbers import plain_number
from jouletrace.run import DeviceInfo, Run

_BANNER = re.compile(r"NVIDIA-SMI\s+\S+\s+Driver Version:\s*(\S+)")
_DATE = re.compile(r"^[A-Z][a-z]{2} [A-Z][a-z]{2}\s+\d{1,2} \d{1,2}:\d{2}:\d{2}\s+(?:[A-Z]{3,4} )?\d{4}")
_BOARD = re.compile(
    r"^\|\s*(\d{1,4})\s+(\S.*?)\s+(?:On|Off|N/A)\s*\|\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)"
)
_STATE = re.compile(
    r"^\|\s*(?P<fan>\S+)\s+(?P<temperature>\d{1,4})C\s+(?P<pstate>\S+)\s+"
    r"(?P<power>\d+(?:\.\d+)?)W\s*/\s*(?P<limit>\S+)\s*\|"
    r"\s*(?P<used>\d{1,9})MiB\s*/\s*(?P<memory>\d{1,9})MiB\s*\|\s*(?P<busy>\S+)"
)


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of such a table."""
    return _BANNER.search(decode_text(head)) is not None


def read(path: Path, options: ImportOptions) -> Run:
    """Read tables of ``nvidia-smi``.

    Raises:
        BadInputError: If it holds no power of a GPU, or the time zone is unknown.
    """
    log = Log(path, options)
    date, begun, driver, board = "", False, "", ""
    for line, row in enumerate(map(str.strip, read_text(path, log.left).split("\n")), start=1):
        if found := _DATE.match(row):
            date = found.group()
            log.row(date)
            begun = True
        elif found := _BANNER.search(row):
            driver = found[1]
            if not date:
                log.row("")
            date, begun = "", True
        elif found := _BOARD.match(row):
            if board:
                log.left.add("no_state", "GPUs are named without a line of readings", place=f"line {line}")
            name = options.device or found[2].removesuffix("...")
            index = int(found[1])
            board = log.device(f"imported:{index}", name, index=index, pci_bus=found[3], driver=driver)
        elif board and "MiB /" in row:
            if not begun:
                log.row("")
                begun = True
            if found := _STATE.match(row):
                _take(log, log.devices[board], found)
            else:
                log.left.add("missing_cells", "lines of readings lack the power", place=f"line {line}")
            board = ""
    return log.run("nvidia_smi", "tables", dialect="table")


def _take(log: Log, device: DeviceInfo, found: re.Match[str]) -> None:
    device.memory_bytes = int(found["memory"]) * 2**20
    if re.fullmatch(r"[\d.]+W", found["limit"]):
        device.power_limit_w = plain_number(found["limit"][:-1])
    readings = {
        "power_w": (found["power"], "W"),
        "temperature_c": (found["temperature"], "C"),
        "memory_used_bytes": (found["used"], "MiB"),
        "pstate": (found["pstate"][1:], ""),
        "utilization_gpu_pct": (found["busy"].removesuffix("%"), "%"),
        "fan_pct": (found["fan"].removesuffix("%"), "%"),
    }
    for channel, (digits, unit) in readings.items():
        value = plain_number(digits)  # "N/A" where the GPU reports none
        if value is not None:
            log.add(device.id, channel, value, units.unit(unit) or units.NO_UNIT, "nvidia-smi, table")
