"""Logs of ``tegrastats`` on Jetson boards: a line a reading, with the power of each supply rail in milliwatts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, Left, decode_text, new_run, read_text
from jouletrace.formats.importers.power_sensor import METER
from jouletrace.formats.importers.readings import Readings
from jouletrace.formats.importers.stamps import Stamps, evenly, read_stamps
from jouletrace.run import DeviceInfo, Run
from jouletrace.run.channels import POWER

FORMAT = "tegrastats"
INTERVAL_S = 1.0
"""Seconds between lines unless ``--interval`` says otherwise: what lines without a time are taken to be apart."""

MODULE_RAILS = ("VDD_IN", "POM_5V_IN", "VIN")
"""What feeds a whole module, by the boards that have such a sensor."""

_DEVICE = "imported:0"
_LINE = re.compile(r"^(?P<stamp>.{0,40}?)\s*\bRAM (?P<used>\d{1,9})/(?P<total>\d{1,9})MB\b(?P<rest>.*)$")
_KNOWN = re.compile(r"\bRAM \d{1,9}/\d{1,9}MB\b.*(GR3D_FREQ|EMC_FREQ|CPU \[)")
_RAIL = re.compile(r"(?<![\w@])(?P<rail>[A-Z][A-Z0-9_]{1,30}) (?P<now>\d{1,9})(?:mW(?:/\d{1,9}mW)?|/\d{1,9})(?!\w)")
"""The first number is of now, the second the mean since the log began: "VDD_IN 3700/3650", "VDD_IN 3700mW/3650mW"."""

_ENGINE = re.compile(r"\b(?P<name>GR3D|EMC)_FREQ (?P<busy>\d{1,3})%(?:@\[?(?P<mhz>\d{1,5}(?:,\d{1,5})*)\]?)?")
_TEMPERATURE = re.compile(r"(?<!\S)(?P<name>[A-Za-z]\w{0,30})@(?P<celsius>-?\d{1,3}(?:\.\d{1,6})?)C(?!\w)")
_MONTH_FIRST = re.compile(r"^(\d{2})-(\d{2})-(\d{4})(?=\D)")
_ABSENT_C = -100.0
"""A sensor that is powered down reads -256."""

_ENGINES = {"GR3D": ("utilization_gpu_pct", "clock_sm_mhz"), "EMC": ("utilization_memory_pct", "clock_memory_mhz")}


def sniff(head: bytes) -> bool:
    """Whether a file that begins so is a log of ``tegrastats``."""
    return _KNOWN.search(decode_text(head)) is not None


def read(path: Path, options: ImportOptions) -> Run:
    """Read a log: rails, load, clocks, memory and temperatures become channels of one device.

    Energy rests on the rail that feeds the module, else on the GPU's; ``--map power_w=RAIL+RAIL`` names others.

    Raises:
        BadInputError: If there is no line of it, or the mapping names no rail that it has.
    """
    left = Left(path)
    log = _Log(left)
    for line, row in enumerate(read_text(path, left).split("\n"), start=1):
        log.take(line, row)
    if not len(log.readings):
        raise BadInputError(f"{path}: not one line of tegrastats that can be read{left.first()}")
    chosen, warning = log.choose_power(options.map, path)
    stamps = _stamps(log.times, options)
    left.add("no_time", "lines without a readable time", int((~stamps.valid).sum()))
    run = new_run(path, FORMAT, stamps.clock)
    for code, note in stamps.notes.items():
        run.warn(code, note, path.name)
    if warning:
        run.warn("rail_assumed", warning, path.name)
    device = DeviceInfo(_DEVICE, options.device or "Jetson", index=0, memory_bytes=log.memory_bytes)
    device.details["power_rails"] = chosen
    log.readings.write(run, stamps.time_ns, stamps.valid, stamps.resolution_s, [device], lambda _, __: METER)
    if not len(run.samples):
        raise BadInputError(f"{path}: not one line has a readable time")
    left.warn(run)
    return run


class _Log:
    """Lines as they come."""

    def __init__(self, left: Left) -> None:
        self.readings = Readings()
        self.times: list[str] = []
        self.memory_bytes: int | None = None
        self._left = left
        self._rails: list[dict[str, float]] = []

    def take(self, line: int, row: str) -> None:
        """One line of the file."""
        found = _LINE.match(row.strip())
        if found is None:
            if row.strip():
                self._left.add("broken_rows", "lines are none of tegrastats", place=f"line {line}")
            return
        number = len(self.times)
        self.times.append(_MONTH_FIRST.sub(r"\3-\1-\2", found["stamp"]))
        self.memory_bytes = int(found["total"]) * 2**20
        self._add("memory_used_bytes", number, float(found["used"]) * 2**20, "RAM")
        for engine in _ENGINE.finditer(found["rest"]):
            busy, clock = _ENGINES[engine["name"]]
            self._add(busy, number, float(engine["busy"]), f"{engine['name']}_FREQ")
            if engine["mhz"]:
                self._add(clock, number, float(max(map(int, engine["mhz"].split(",")))), f"{engine['name']}_FREQ")
        for sensor in _TEMPERATURE.finditer(found["rest"]):
            name, celsius = sensor["name"].lower(), float(sensor["celsius"])
            if celsius > _ABSENT_C:
                channel = "temperature_c" if name == "gpu" else f"temperature_{name}_c"
                self._add(channel, number, celsius, sensor["name"], "Cel")
        self._rails.append({rail["rail"]: float(rail["now"]) / 1e3 for rail in _RAIL.finditer(found["rest"])})
        for name, watts in self._rails[-1].items():
            self._add(f"power_{name.lower()}_w", number, watts, name, "W")

    def choose_power(self, mapping: dict[str, str], path: Path) -> tuple[list[str], str]:
        """Add the channel that energy rests on: which rails it is the sum of, and a warning if that is a guess.

        Raises:
            BadInputError: If the mapping asks for anything but a sum of rails that are there.
        """
        there = list(dict.fromkeys(name for rails in self._rails for name in rails))
        for target, wanted in mapping.items():
            missing = [name for name in wanted.split("+") if name not in there]
            if target != POWER or missing:
                say = f"say --map {POWER}=RAIL, or RAIL+RAIL; there are {', '.join(there)[:200]}"
                raise BadInputError(f"{path}: --map {target}={wanted}: {say}")
        chosen, warning = _rails_of_power(mapping.get(POWER, ""), there)
        for number, rails in enumerate(self._rails):
            if chosen and all(name in rails for name in chosen):
                self._add(POWER, number, sum(rails[name] for name in chosen), "+".join(chosen))
        return chosen, warning

    def _add(self, channel: str, row: int, value: float, source: str, unit: str = "") -> None:
        self.readings.add(_DEVICE, channel, row, value, unit, f"tegrastats, {source}")


def _rails_of_power(wanted: str, there: Sequence[str]) -> tuple[list[str], str]:
    """The rails that energy rests on, and a warning where it is not the module's."""
    if wanted:
        return wanted.split("+"), ""
    if module := next((name for name in MODULE_RAILS if name in there), None):
        return [module], ""
    gpu = next((name for name in there if "GPU" in name), None)
    if not there:
        return [], ""
    say = f"say --map {POWER}={'+'.join(there)} for the sum of all"
    if gpu is None:
        return [], f"none of the rails is the module's or the GPU's, so that there is no energy: {say}"
    others = f", not of the module: {say}" if len(there) > 1 else ", not of the module"
    return [gpu], f"energy is of the rail {gpu}{others}"


def _stamps(times: list[str], options: ImportOptions) -> Stamps:
    if any(times):
        return read_stamps(times, options.time_zone)
    note = f"the log has no times: its lines are taken to be {INTERVAL_S:g} s apart, the default of tegrastats"
    return evenly(range(len(times)), INTERVAL_S, note)
