"""The table that plain ``nvidia-smi`` prints, once or in a loop (``-l``, ``watch``, a shell's ``while``)."""

from __future__ import annotations

import re
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, Left, new_run, read_text
from jouletrace.formats.importers.numbers import plain_number
from jouletrace.formats.importers.power_sensor import nvidia_sensor
from jouletrace.formats.importers.readings import Readings
from jouletrace.formats.importers.stamps import Stamps, evenly, read_stamps
from jouletrace.run import DeviceInfo, Run

FORMAT = "nvidia_smi"

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


def recognises(head: str) -> bool:
    """Whether text that begins so is such a table."""
    return _BANNER.search(head) is not None


def read(path: Path, options: ImportOptions) -> Run:
    """Read tables of ``nvidia-smi``.

    Raises:
        BadInputError: If there is no board's power in it, or the time zone is unknown.
    """
    left = Left(path)
    readings, devices = Readings(), dict[str, DeviceInfo]()
    times: list[str] = []
    date, driver, board = "", None, None
    for line, row in enumerate(map(str.strip, read_text(path, left).split("\n")), start=1):
        if found := _DATE.match(row):
            date = found.group()
            times.append(date)
        elif found := _BANNER.search(row):
            driver = found[1]
            if not date:
                times.append("")
            date = ""
        elif found := _BOARD.match(row):
            if board is not None:
                left.add("no_state", "boards are named without a line of readings", place=f"line {line}")
            index = int(found[1])
            board = f"imported:{index}"
            devices.setdefault(
                board,
                DeviceInfo(
                    board, options.device or found[2].removesuffix("..."), index=index, pci_bus=found[3], driver=driver
                ),
            )
        elif board is not None and "MiB /" in row:
            if found := _STATE.match(row):
                _take(readings, devices[board], max(len(times) - 1, 0), found)
            else:
                left.add("missing_cells", "lines of readings have none of the power", place=f"line {line}")
            board = None
    if not len(readings):
        raise BadInputError(f"{path}: nvidia-smi's table, but not one power reading in it")
    stamps = _stamps(times or [""], options)
    left.add("no_time", "tables without a readable time", int((~stamps.valid).sum()))
    run = new_run(path, FORMAT, stamps.clock)
    run.settings["imported"][0]["dialect"] = "table"
    for code, note in stamps.notes.items():
        run.warn(code, note, path.name)
    readings.write(
        run,
        stamps.time_ns,
        stamps.valid,
        stamps.resolution_s,
        devices.values(),
        lambda device, _: nvidia_sensor(device.name),
    )
    if not len(run.samples):
        raise BadInputError(f"{path}: not one table has a readable time")
    left.warn(run)
    return run


def _take(readings: Readings, device: DeviceInfo, row: int, found: re.Match[str]) -> None:
    source = "nvidia-smi, table"
    readings.add(device.id, "power_w", row, float(found["power"]), source=source)
    readings.add(device.id, "temperature_c", row, float(found["temperature"]), source=source)
    readings.add(device.id, "memory_used_bytes", row, float(found["used"]) * 2**20, source=source)
    device.memory_bytes = int(found["memory"]) * 2**20
    if found["pstate"][1:].isdecimal():
        readings.add(device.id, "pstate", row, float(found["pstate"][1:]), source=source)
    if re.fullmatch(r"\d{1,3}%", found["busy"]):
        readings.add(device.id, "utilization_gpu_pct", row, float(found["busy"][:-1]), source=source)
    if re.fullmatch(r"\d{1,3}%", found["fan"]):
        readings.add(device.id, "fan_pct", row, float(found["fan"][:-1]), "%", source)
    if re.fullmatch(r"[\d.]+W", found["limit"]):
        device.power_limit_w = plain_number(found["limit"][:-1])


def _stamps(times: list[str], options: ImportOptions) -> Stamps:
    if any(times):
        return read_stamps(times, options.time_zone)
    note = "the tables have no dates: they are taken to be 1 s apart"
    return evenly(range(len(times)), 1.0, note)
