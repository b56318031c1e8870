"""Output of ``torch.utils.benchmark``: measurements with their median and IQR, and the table of ``Compare``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, Left, decode_text, read_text
from jouletrace.formats.importers.stated import Stated
from jouletrace.formats.importers.units import UNITS
from jouletrace.run import MODEL_UNIT, Run

_TIME = r"(?P<{0}>[\d.]+) (?P<{0}_unit>ns|us|μs|µs|ms|s)"
_MEDIAN = re.compile(r"^\s*(?P<kind>Median|Mean): +" + _TIME.format("value") + r"\s*$")
_IQR = re.compile(r"^\s*IQR: +" + _TIME.format("iqr") + r" \((?P<p25>[\d.]+) to (?P<p75>[\d.]+)\)\s*$")
_SINGLE = re.compile(r"^\s+" + _TIME.format("value") + r"\s*$")
_COUNT = re.compile(
    r"^\s*(?P<n>\d{1,12}) measurements?, (?P<runs>\d{1,12}) runs? (?:per measurement)?\s*,"
    r" (?P<threads>\d{1,6}) threads?\s*$"
)
_OBJECT = re.compile(r"^<torch\.utils\.benchmark\.\S+ object at 0x[0-9a-f]+>$")


@dataclass
class _Measurement:
    title: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    n: int = 1
    facts: dict[str, int] = field(default_factory=dict)


def sniff(head: bytes) -> bool:
    """True if the beginning of a file contains measurements of ``torch.utils.benchmark``."""
    return any(_OBJECT.match(line.strip()) or _COUNT.match(line) for line in decode_text(head).split("\n"))


def read(path: Path, options: ImportOptions) -> Run:
    """Read measurements: a single one is the latency of the model; each of several is a unit.

    Raises:
        BadInputError: If no measurement has a time.
    """
    left = Left(path)
    found = list(_measurements(read_text(path, left), left))
    if not found:
        raise BadInputError(f"{path}: no measurement of torch.utils.benchmark with a time{left.first()}")
    stated = Stated("torch.utils.benchmark")
    for measurement in found:
        title = " ".join(measurement.title)
        unit = MODEL_UNIT if len(found) == 1 else stated.unit("range", title or "measurement", count=1)
        for metric, value in measurement.figures.items():
            stated.add(unit, metric, value, measurement.n)
    known = {"title": " ".join(found[0].title), **found[0].facts} if len(found) == 1 else {}
    run = stated.run(path, "torch_benchmark", options.device, known)
    left.warn(run)
    return run


def _measurements(text: str, left: Left) -> Iterator[_Measurement]:
    now = _Measurement()
    in_table = False
    for line, row in enumerate(text.split("\n"), start=1):
        plain = row.strip()
        if re.match(r"\[-{2,}.*-{2,}\]$", plain):
            in_table = True
            what = "tables of Compare repeat measurements, rounded, and were left out"
            left.add("compare_table", what, place=f"line {line}")
        elif in_table:
            in_table = not plain.startswith("Times are in")
        elif _OBJECT.match(plain):
            now = _Measurement()
        elif times := _MEDIAN.match(row) or _IQR.match(row) or (None if now.figures else _SINGLE.match(row)):
            _take(now, left, line, times)
        elif count := _COUNT.match(row):
            now.n = int(count["n"])
            now.facts = {"runs_per_measurement": int(count["runs"]), "threads": int(count["threads"])}
            if now.figures:
                yield now
            else:
                left.add("no_time", "measurements have no time", place=f"line {line}")
            now = _Measurement()
        elif plain and not now.figures:
            now.title = [*now.title, plain][-4:]
    if now.figures:  # cut off before its count
        left.add("cut_off", "measurements are cut off before their number of runs")
        yield now


def _take(now: _Measurement, left: Left, line: int, found: re.Match[str]) -> None:
    """The figures of a line: one time, or the quartiles and the IQR."""
    cells = found.groupdict()
    scale = next(UNITS[text].factor for name, text in cells.items() if name.endswith("_unit"))
    usual = "latency_mean_s" if cells.get("kind") == "Mean" else "latency_s"
    for key in ("value", "iqr", "p25", "p75"):
        value = left.number(cells[key], ".", f"line {line}") if key in cells else None
        if value is not None:
            now.figures[usual if key == "value" else f"latency_{key}_s"] = value * scale
