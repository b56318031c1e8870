"""CodeCarbon's ``emissions.csv``: a row for each run of a program, with the energies that CodeCarbon states of it.

Its powers are no record: they are means or last readings, and its times are the ends of whole runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import HEAD_BYTES, NO_CLOCK, ImportOptions, Left, decode_text, new_run, read_text
from jouletrace.formats.importers.blanks import is_blank
from jouletrace.formats.importers.delimited import delimiter_of, first_rows, read_delimited
from jouletrace.formats.importers.stamps import read_stamps
from jouletrace.formats.importers.stated import Stated, StatedRow
from jouletrace.formats.importers.units import plain_number
from jouletrace.run import Run

_J_PER_KWH = 3.6e6

_METRICS = {
    "duration": ("time_s", 1.0),
    "energy_consumed": ("energy_total_j", _J_PER_KWH),
    "gpu_energy": ("energy_gpu_j", _J_PER_KWH),
    "cpu_energy": ("energy_cpu_j", _J_PER_KWH),
    "ram_energy": ("energy_memory_j", _J_PER_KWH),
    "emissions": ("co2_g", 1e3),
}
"""Metric of each column, and its factor to the SI unit of the metric."""

_PARTS = ("cpu_energy", "gpu_energy", "ram_energy")
"""Columns of energies that add up to ``energy_consumed``, in files of versions that have them."""

_ROUNDED = 0.01
"""Share by which a total may differ from their sum, as its digits are rounded."""

_OWN = {"duration", "emissions", "energy_consumed"}
"""Columns of all versions."""

_COUNTED_BY = {"gpu_energy": ("gpu_count", "gpu_model"), "cpu_energy": ("cpu_count", "cpu_model")}
"""Columns that say how many devices are behind an energy, and which."""

_IDS = ("run_id", "experiment_id")
_MACHINE = ("cpu_model", "gpu_model", "country_name", "region", "cloud_provider", "cloud_region")
"""Facts that differ between machines alone; CodeCarbon writes no host name."""

_ALIKE = ("os", "cpu_count", "gpu_count", "ram_total_size", "longitude", "latitude")
"""Facts that differ between containers and jobs of one machine, too."""

_FACTS = ("project_name", "gpu_model", "codecarbon_version", "tracking_mode")
_OF_GPUS = re.compile(r"(\d+) x ")


def sniff(head: bytes) -> bool:
    """True if the beginning of a file is that of such a table."""
    text = decode_text(head).lstrip()[:HEAD_BYTES]
    rows = first_rows(text, delimiter_of(text.split("\n", 1)[0]) or ",", 1)
    return bool(rows) and {name.lower() for name in rows[0]} >= _OWN


def read(path: Path, options: ImportOptions) -> Run:
    """Read the figures of each run, or task of one, and of all together. Of rows of one, which grow, the last counts.

    Raises:
        BadInputError: If no row holds a figure.
    """
    return read_together([path], options)[0]


def read_together(paths: Sequence[Path], options: ImportOptions) -> list[Run]:
    """Read several files as if their rows were in one; a row that several hold counts once.

    Returns:
        A Run of each file, with what was left out of it; the first has the figures of all.

    Raises:
        BadInputError: If no row holds a figure.
    """
    lefts = [Left(path) for path in paths]
    found: dict[str, _Found] = {}
    names = [path.name for path in paths]
    in_order = sorted(enumerate(zip(paths, lefts, strict=True), start=1), key=lambda one: one[1][0].name)
    for number, (path, left) in in_order:  # of their names: rows are called alike whatever the user's order
        of_file = f" of {path.name if names.count(path.name) == 1 else f'file {number}'}" if len(paths) > 1 else ""
        for id, row in _rows(path, left, of_file).items():
            again = id in found and found[id].cells == row.cells
            left.add("rows_repeat", "rows repeat one of another file: each counts once", int(again))
            found[id + of_file * (id in found and not again)] = row
    rows = list(found.values())
    stated = Stated("codecarbon")
    _note_pue(stated, {row.pue for row in rows})
    stamps = read_stamps([row.cells.get("timestamp", "") for row in rows], options.time_zone)
    ends = np.where(stamps.valid, stamps.time_ns / 1e9, np.nan)
    each = zip(found.items(), ends, strict=True)
    stated.add_rows([_row(id, row, end) for (id, row), end in each], stamps.resolution_s)
    if not len(stated):
        raise BadInputError(f"{paths[0]}: a table of CodeCarbon without a figure{lefts[0].first()}")
    facts = _facts([row.cells for row in rows])
    known = {"tracking_mode": facts["tracking_mode"]} if "tracking_mode" in facts else {}
    run = stated.run(paths[0], "codecarbon", options.device or facts.get("gpu_model"), known)
    if "codecarbon_version" in facts:
        run.versions["codecarbon"] = facts["codecarbon_version"]
    runs = [run, *(new_run(path, "codecarbon", NO_CLOCK) for path in paths[1:])]
    for left, part in zip(lefts, runs, strict=True):
        left.warn(part)
    return runs


@dataclass(frozen=True)
class _Found:
    """A row of a file: its cells by the names of the columns, its figures, the PUE that was taken out of them.

    ``doubt`` is why its totals can't be believed; "" if they can.
    """

    cells: Mapping[str, str]
    figures: Mapping[str, float | None]
    pue: float
    doubt: str


def _rows(path: Path, left: Left, of_file: str) -> dict[str, _Found]:
    """The rows of a file by their ids; one without an id is known by its line ``of_file``."""
    table = read_delimited(read_text(path, left).lstrip(), left)
    names = [name.lower() for name in table.header]
    rows: dict[str, tuple[dict[str, str], int]] = {}
    for cells, line in zip(table.rows, table.lines, strict=True):
        row = dict(zip(names, cells, strict=True))
        id = next((row[name] for name in _IDS if row.get(name)), f"line {line}{of_file}")
        id = " ".join(filter(None, [row.get("task_name"), id]))
        left.add(
            "earlier_rows", "rows are earlier states of a run: its last row counts", int(id in rows), f"line {line}"
        )
        rows[id] = row, line
    used = {*_METRICS, *_IDS, *_FACTS, *_MACHINE, *_ALIKE, "timestamp", "task_name", "pue"}
    unused = [name for name in names if name and name not in used]
    left.add("unknown_columns", f"columns were left out ({', '.join(unused)[:120]})", len(unused))
    numbers = [row[name] for row, _ in rows.values() for name in (*_METRICS, "pue") if name in row]
    if any("," in cell for cell in numbers):
        raise BadInputError(f"{path}: numbers with commas, which CodeCarbon doesn't write: save them with points")
    return {id: _found(row, left, line) for id, (row, line) in rows.items()}


def _found(row: Mapping[str, str], left: Left, line: int) -> _Found:
    pue = _pue(row, left, line)
    figures = _figures(row, pue, left, line)
    return _Found(row, figures, pue, _doubt(row, figures))


def _row(id: str, found: _Found, end_s: float) -> StatedRow:
    """A row with its time, and what is known of its machine."""
    row = found.cells
    known = {name: row.get(name, "") for name in (*_MACHINE, *_ALIKE)}
    of_all = _OF_GPUS.findall(known["gpu_model"])
    some = bool(known["gpu_count"] and of_all) and plain_number(known["gpu_count"]) != sum(map(int, of_all))
    return StatedRow(
        f"{row.get('project_name', '')} {id}".strip(),
        found.figures,
        None if math.isnan(end_s) else end_s,
        found.figures.get("time_s"),
        tuple(known[name] for name in _MACHINE),
        # a tracker of a process, or of some GPUs, sees what others see, or doesn't: the file doesn't say
        tuple(known.values()) if row.get("tracking_mode") == "machine" and not some else None,
        found.doubt,
    )


def _figures(row: Mapping[str, str], pue: float, left: Left, line: int) -> dict[str, float | None]:
    """The figures of a row, by metric, in SI units, of what its devices drew: without PUE."""
    found: dict[str, float | None] = {}
    for name, (metric, factor) in _METRICS.items():
        value = left.number(row[name], ".", f"line {line}, column {name}") if name in row else None
        if value is not None and value < 0:
            left.add("below_zero", "figures are below zero", place=f"line {line}, column {name}")
            value = None
        if name in row and (value != 0 or _is_there(row, name)):
            by = factor / pue if metric.startswith("energy") else factor
            found[metric] = None if value is None else value * by
    return found


def _is_there(row: Mapping[str, str], energy: str) -> bool:
    """True unless nothing names a device that an energy of 0 would be of, as of GPUs where there is none."""
    if energy not in _COUNTED_BY:
        return energy != "ram_energy"
    count, model = (row.get(name, "") for name in _COUNTED_BY[energy])
    return plain_number(count) != 0 and not (is_blank(count) and is_blank(model))


def _pue(row: Mapping[str, str], left: Left, line: int) -> float:
    """The factor of the data centre by which CodeCarbon multiplied each energy; 1 where a file has none."""
    if "pue" not in row:
        if row.get("task_name") and row.get("codecarbon_version", "").partition(".")[0] not in ("1", "2"):
            left.add(
                "pue_unknown", "rows of tasks state no PUE: energies contain it if one was set", place=f"line {line}"
            )
        return 1.0
    pue = left.number(row["pue"], ".", f"line {line}, column pue")
    if pue is None or pue <= 0:
        left.add("pue_unknown", "rows have no PUE above 0: energies may contain one", place=f"line {line}")
        return 1.0
    return pue


def _doubt(row: Mapping[str, str], figures: Mapping[str, float | None]) -> str:
    """The code of why the total isn't that of its parts; "" if it may be."""
    total = figures.get("energy_total_j")
    if any(name in row and figures.get(_METRICS[name][0], 0.0) is None and _is_there(row, name) for name in _PARTS):
        return "part_not_measured"
    parts = sum(figures.get(_METRICS[name][0]) or 0.0 for name in _PARTS)
    if total is None or not row.keys() >= set(_PARTS) or math.isclose(total, parts, rel_tol=_ROUNDED):
        return ""
    return "parts_differ"


def _note_pue(stated: Stated, pues: set[float]) -> None:
    """Say by what energies were divided."""
    if pues - {1.0}:
        factors = " and ".join(f"{pue:g}" for pue in sorted(pues - {1.0}))
        stated.undone = f", without its PUE of {factors}"
        text = f"CodeCarbon multiplied energies by a PUE of {factors}: they are divided by it, and CO2 contains it"
        stated.note("pue_undone", text)


def _facts(rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Facts that all rows share."""
    facts = {name: {row.get(name, "") for row in rows} for name in _FACTS}
    return {name: next(iter(texts)) for name, texts in facts.items() if len(texts) == 1 and any(texts)}
