"""CodeCarbon's ``emissions.csv``: a row for each run of a program, with the energies that CodeCarbon states of it.

Its powers are no record: they are means or last readings, and its times are the ends of whole runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import HEAD_BYTES, ImportOptions, Left, decode_text, read_text
from jouletrace.formats.importers.delimited import delimiter_of, first_rows, read_delimited
from jouletrace.formats.importers.stated import Stated
from jouletrace.run import MODEL_UNIT, Run

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

_OWN = {"duration", "emissions", "energy_consumed"}
"""Columns of all versions."""

_IDS = ("run_id", "experiment_id")
_FACTS = ("project_name", "gpu_model", "codecarbon_version", "tracking_mode")


def sniff(head: bytes) -> bool:
    """True if the beginning of a file is that of such a table."""
    text = decode_text(head).lstrip()[:HEAD_BYTES]
    rows = first_rows(text, delimiter_of(text.split("\n", 1)[0]) or ",", 1)
    return bool(rows) and {name.lower() for name in rows[0]} >= _OWN


def read(path: Path, options: ImportOptions) -> Run:
    """Read the figures of each run, and their sums. Of rows of one run, which grow, the last counts.

    Raises:
        BadInputError: If no row holds a figure.
    """
    left = Left(path)
    table = read_delimited(read_text(path, left).lstrip(), left)
    names = [name.lower() for name in table.header]
    rows: dict[str, tuple[dict[str, str], int]] = {}
    for cells, line in zip(table.rows, table.lines, strict=True):
        row = dict(zip(names, cells, strict=True))
        id = next((row[name] for name in _IDS if row.get(name)), f"line {line}")
        left.add(
            "earlier_rows", "rows are earlier states of a run: its last row counts", int(id in rows), f"line {line}"
        )
        rows[id] = row, line
    stated = Stated("codecarbon")
    found = {id: _figures(row, left, line) for id, (row, line) in rows.items()}
    for id, figures in found.items() if len(found) > 1 else ():
        unit = stated.unit("range", f"{rows[id][0].get('project_name', '')} {id}".strip(), count=1)
        for metric, value in figures.items():
            stated.add(unit, metric, value)
    for metric, _ in _METRICS.values():
        values = [figures[metric] for figures in found.values() if metric in figures]
        if values and len(values) == len(found):
            stated.add(MODEL_UNIT, metric, sum(values), len(values))
    if not len(stated):
        raise BadInputError(f"{path}: a table of CodeCarbon without a figure{left.first()}")
    facts = _facts([row for row, _ in rows.values()])
    unused = [name for name in names if name and name not in {*_METRICS, *_IDS, *_FACTS, "timestamp"}]
    left.add("unknown_columns", f"columns were left out ({', '.join(unused)[:120]})", len(unused))
    known = {"tracking_mode": facts["tracking_mode"]} if "tracking_mode" in facts else {}
    run = stated.run(path, "codecarbon", options.device or facts.get("gpu_model"), known)
    if "codecarbon_version" in facts:
        run.versions["codecarbon"] = facts["codecarbon_version"]
    left.warn(run)
    return run


def _figures(row: Mapping[str, str], left: Left, line: int) -> dict[str, float]:
    """The figures of a row, by metric, in SI units."""
    found = {}
    for name, (metric, factor) in _METRICS.items():
        value = left.number(row[name], ".", f"line {line}, column {name}") if name in row else None
        if value is not None and value >= 0:
            found[metric] = value * factor
        elif value is not None:
            left.add("below_zero", "figures are below zero", place=f"line {line}, column {name}")
    return found


def _facts(rows: list[dict[str, str]]) -> dict[str, str]:
    """Facts that all rows share."""
    facts = {name: {row.get(name, "") for row in rows} for name in _FACTS}
    return {name: next(iter(texts)) for name, texts in facts.items() if len(texts) == 1 and any(texts)}
