"""Logs of ``tegrastats`` on Jetson GPUs: one reading per line, with the power of each supply rail in milliwatts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import units
from jouletrace.formats.importers.base import ImportOptions, decode_text, read_text
from jouletrace.formats.importers.log import Log
from jouletrace.formats.importers.power_sensor import METER
from jouletrace.run import Run
from jouletrace.run.channels import POWER

MODULE_RAILS = ("VDD_IN", "POM_5V_IN", "VIN")
"""Rails that feed a whole module, by the GPUs with such a sensor."""

_LINE = re.compile(r"^(?P<stamp>.{0,40}?)\s*\bRAM (?P<used>\d{1,9})/(?P<total>\d{1,9})MB\b(?P<rest>.*)$")
_KNOWN = re.compile(r"\bRAM \d{1,9}/\d{1,9}MB\b.*(GR3D_FREQ|EMC_FREQ|CPU \[)")
_RAIL = re.compile(r"(?<![\w@])(?P<rail>[A-Z][A-Z0-9_]{1,30}) (?P<now>\d{1,9})(?:mW(?:/\d{1,9}mW)?|/\d{1,9})(?!\w)")
"""The present power, and the mean since the log began: "VDD_IN 3700/3650", "VDD_IN 3700mW/3650mW"."""

_ENGINE = re.compile(r"\b(?P<name>GR3D|EMC)_FREQ (?P<busy>\d{1,3})%(?:@\[?(?P<mhz>\d{1,5}(?:,\d{1,5})*)\]?)?")
_TEMPERATURE = re.compile(r"(?<!\S)(?P<name>[A-Za-z]\w{0,30})@(?P<celsius>-?\d{1,3}(?:\.\d{1,6})?)C(?!\w)")
_MONTH_FIRST = re.compile(r"^(\d{2})-(\d{2})-(\d{4})(?=\D)")
_ABSENT_C = -100.0
"""Lowest possible temperature: a sensor that is powered down reads -256."""

_ENGINES = {"GR3D": ("utilization_gpu_pct", "clock_sm_mhz"), "EMC": ("utilization_memory_pct", "clock_memory_mhz")}


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of a log of ``tegrastats``."""
    return _KNOWN.search(decode_text(head)) is not None


def read(path: Path, options: ImportOptions) -> Run:
    """Read a log: rails, load, clocks, memory and temperatures become channels of one device.

    Energy is computed from the rail of the module, else from the GPU's; ``--map power_w=RAIL+RAIL`` selects others.

    Raises:
        BadInputError: If no line is of tegrastats, or the mapping names no rail of the log.
    """
    log = _TegraLog(path, options)
    for line, row in enumerate(read_text(path, log.left).split("\n"), start=1):
        log.take(line, row)
    if not len(log.readings):
        raise BadInputError(f"{path}: not one line of tegrastats that can be read{log.left.first()}")
    log.choose_power(options.map, path)
    return log.run("tegrastats", "lines", sensor=lambda _, __: METER)


class _TegraLog(Log):
    """Lines in the course of reading."""

    def __init__(self, path: Path, options: ImportOptions) -> None:
        super().__init__(path, options)
        self._board = self.devices[self.device("imported:0", options.device or "Jetson", index=0)]
        self._rails: list[dict[str, float]] = []

    def take(self, line: int, row: str) -> None:
        """Read one line of the file."""
        found = _LINE.match(row.strip())
        if found is None:
            self.left.add("broken_rows", "lines aren't of tegrastats", bool(row.strip()), f"line {line}")
            return
        self.row(_MONTH_FIRST.sub(r"\3-\1-\2", found["stamp"]))
        self._board.memory_bytes = int(found["total"]) * 2**20
        self._reading("memory_used_bytes", float(found["used"]), "MiB", "RAM")
        for engine in _ENGINE.finditer(found["rest"]):
            busy, clock = _ENGINES[engine["name"]]
            self._reading(busy, float(engine["busy"]), "%", f"{engine['name']}_FREQ")
            if engine["mhz"]:
                self._reading(clock, float(max(map(int, engine["mhz"].split(",")))), "MHz", f"{engine['name']}_FREQ")
        for sensor in _TEMPERATURE.finditer(found["rest"]):
            name, celsius = sensor["name"].lower(), float(sensor["celsius"])
            if celsius > _ABSENT_C:
                self._reading(
                    "temperature_c" if name == "gpu" else f"temperature_{name}_c", celsius, "C", sensor["name"]
                )
        self._rails.append({rail["rail"]: float(rail["now"]) / 1e3 for rail in _RAIL.finditer(found["rest"])})
        for name, watts in self._rails[-1].items():
            self._reading(f"power_{name.lower()}_w", watts, "W", name)

    def choose_power(self, mapping: dict[str, str], path: Path) -> None:
        """Add the channel from which energy is computed, with a warning if the choice of rails is a guess.

        Raises:
            BadInputError: If the mapping is anything but a sum of existing rails.
        """
        there = list(dict.fromkeys(name for rails in self._rails for name in rails))
        for target, wanted in mapping.items():
            missing = [name for name in wanted.split("+") if name not in there]
            if target != POWER or missing:
                say = f"give --map {POWER}=RAIL, or RAIL+RAIL; the rails are {', '.join(there)[:200]}"
                raise BadInputError(f"{path}: --map {target}={wanted}: {say}")
        chosen, warning = _rails_of_power(mapping.get(POWER, ""), there)
        if warning:
            self.note("rail_assumed", warning)
        self._board.details["power_rails"] = chosen
        for number, rails in enumerate(self._rails):
            if chosen and all(name in rails for name in chosen):
                watts = sum(rails[name] for name in chosen)
                self.readings.add(self._board.id, POWER, number, watts, "W", f"tegrastats, {'+'.join(chosen)}")

    def _reading(self, channel: str, value: float, unit: str, source: str) -> None:
        self.add(self._board.id, channel, value, units.UNITS[unit], f"tegrastats, {source}")


def _rails_of_power(wanted: str, there: Sequence[str]) -> tuple[list[str], str]:
    """The rails from which energy is computed, and a warning where they aren't the module's."""
    if wanted:
        return wanted.split("+"), ""
    if module := next((name for name in MODULE_RAILS if name in there), None):
        return [module], ""
    gpu = next((name for name in there if "GPU" in name), None)
    if not there:
        return [], ""
    say = f"give --map {POWER}={'+'.join(there)} for the sum of all"
    if gpu is None:
        return [], f"none of the rails is the module's or the GPU's, so energy is unknown: {say}"
    others = f", not of the module: {say}" if len(there) > 1 else ", not of the module"
    return [gpu], f"energy is of the rail {gpu}{others}"
