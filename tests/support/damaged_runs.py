"""Folders and zips of Runs, damaged at random, and what is asked of every command then; for tests and a benchmark.

Besides bytes that change, values change in files that are otherwise sound, as written by another program or edited
by hand. Each such Run is opened and shown with all its figures, or refused in one line.
"""

from __future__ import annotations

import io
import json
import math
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from damaged import damaged
from jouletrace import analysis, report
from jouletrace.cli.output import opened
from jouletrace.errors import JouletraceError
from jouletrace.report import html
from jouletrace.run import Run, save, tables
from jouletrace.run.files import RUN_JSON
from jouletrace.run.spool import SPOOL
from live_runs import marked
from make_runs import profile_run
from records import log_of_gpus, make_run, phases, readings, windows
from timeline_runs import timeline_run

FORMS = ("table", "json", "csv", "markdown", "latex")

VALUES = (
    *(None, True, 0, -1, 1, 7, 2**31, 2**53 + 1, 2**62, -(2**62), 2**63, 10**60, 0.5, -0.5, 1e-300, 1e18, 1e300),
    *("", "x", "power_w", "import", "record", "\x1b[31m", "x" * 5000, "\U0001f525", "1e5", "-1", "a/b", "../..", "\0"),
    *([], {}, [[]], [{}], {"x": {}}, ["x"], [1, 2], {"": None}),
)
"""What is put in the place of a value of ``run.json``."""

_NUMBERS = (0, -1, 1, 2**31 - 1, -(2**31), 2**62, -(2**62), 2**63 - 1, -(2**63), 10**18)
_FLOATS = (0.0, -0.0, -1.0, 1e-300, 1e18, 1e300, -1e300, math.nan, math.inf, -math.inf, 65_535.0, 9e29)
_TEXTS = ("", "x", "power_w", "energy_counter_j", "phase", "monitor", "iteration", "kernel", "op", "model", "untouched")
_TEXTS += ("step", "reference", "layer", "\x1b[31m", "x" * 3000, "\0", "\u2028", "a,b", "energy_total_j", "GPU-by-hand")


def bases() -> dict[str, Run]:
    """Small Runs of several kinds."""
    edges = [(1.0 + 0.6 * k, 1.5 + 0.6 * k) for k in range(8)]
    rows = phases(("deep idle", 0.0, 0.5), ("context idle before", 0.5, 1.0), ("energy", 1.0, 6.0))
    steps = [("iteration", "step", 0.2 + 0.1 * k, 0.29 + 0.1 * k) for k in range(40)]
    ranges = [
        ("range", "epoch", 0.2, 4.0),
        *[("range", "inner", 0.2 + 0.05 * k, 0.23 + 0.05 * k, 1) for k in range(60)],
    ]
    return {
        "profile": profile_run(kernels=2),
        "windows": make_run(readings(300.0, 7.0, noise=1.0), spans=rows, window_rows=windows(edges)),
        "monitor": make_run(readings(300.0, 5.0, noise=1.0), kind="monitor", spans=phases(("monitor", 0.1, 4.8))),
        "record": marked([*steps, *ranges], 300.0, 5.0),
        "import": analysis.analyse(log_of_gpus(3, 600, 2)),
        "timeline": timeline_run(),
    }


def save_bases(folder: Path) -> list[Path]:
    """The same on disk."""
    return [save(run, folder / name) for name, run in bases().items()]


def damage(base: Path, place: Path, draw: random.Random) -> str:
    """Put a damaged copy of a Run at ``place``, a folder or (by its name) a zip; says how it was damaged."""
    (kind,) = draw.choices(tuple(_KINDS), _WEIGHTS)
    folder = place if place.suffix != ".zip" else place.with_suffix("")
    shutil.copytree(base, folder)
    _KINDS[kind](folder, draw)
    if folder != place:
        with zipfile.ZipFile(place, "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
            for file in folder.rglob("*"):
                archive.write(file, file.relative_to(folder))
        shutil.rmtree(folder)
        if kind == "bytes":
            place.write_bytes(damaged(place.read_bytes(), draw))
    return kind


def _bytes(folder: Path, draw: random.Random) -> None:
    path = draw.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    path.write_bytes(damaged(path.read_bytes(), draw))


def _header(folder: Path, draw: random.Random) -> None:
    header = json.loads((folder / RUN_JSON).read_text())
    for _ in range(draw.randint(1, 3)):
        _change_value(header, draw)
    (folder / RUN_JSON).write_text(json.dumps(header))


def _change_value(value: object, draw: random.Random) -> None:
    """Replace, drop, double or add something, somewhere within."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))  # type: ignore[arg-type]
        if not keys:
            break
        key = draw.choice(keys)
        inner = value[key]  # type: ignore[index]
        if isinstance(inner, dict | list) and draw.random() < 0.75:
            value = inner
            continue
        if draw.random() < 0.15:
            del value[key]  # type: ignore[attr-defined]
        elif isinstance(inner, int | float) and draw.random() < 0.3:
            value[key] = inner * draw.choice([-1, 1000, 1e-9, 1e12])  # type: ignore[index]
        else:
            value[key] = draw.choice(VALUES)  # type: ignore[index]
        return
    if isinstance(value, dict):
        value[draw.choice(_TEXTS)] = draw.choice(VALUES)
    else:
        value.append(draw.choice(VALUES))  # type: ignore[attr-defined]


def _cells(folder: Path, draw: random.Random) -> None:
    """Values of a table that no GPU or program has; its checksum is left as it was."""
    name = draw.choice([name for name in tables.TABLES if (folder / f"{name}.parquet").exists()])
    with (folder / f"{name}.parquet").open("rb") as file:
        table = tables.read(file, name)
    for _ in range(draw.randint(1, 3)):
        table = _changed(table, name, draw)
    sink = io.BytesIO()
    tables.write(table, name, sink)
    (folder / f"{name}.parquet").write_bytes(sink.getvalue())


def _changed(table: pa.Table, name: str, draw: random.Random) -> pa.Table:
    how, n = draw.randrange(8), len(table)
    if how == 0 or n == 0:
        rows = tables.from_rows([_row(name, draw) for _ in range(draw.randint(1, 4))], name)
        return pa.concat_tables([table, rows])
    if how == 1:
        return table.slice(0, draw.randrange(n))
    if how == 2:
        return table.take(pa.array(draw.sample(range(n), n)))
    if how == 3:
        return pa.concat_tables([table, table.slice(draw.randrange(n))])
    column = draw.randrange(table.num_columns)
    field = table.schema.field(column)
    if how == 4:
        return table.set_column(column, field, pa.nulls(n, field.type))
    values = table.column(column).to_pylist()
    if how == 5 and field.type in (pa.int64(), pa.float64()):
        factor = draw.choice([-1, 0, 1000, 10**9])
        values = [None if value is None else _fitting(value * factor, field.type) for value in values]
    else:
        odd = _value(field.type, draw)
        chosen = range(n) if how == 6 else draw.sample(range(n), draw.randint(1, min(n, 20)))
        for at in chosen:
            values[at] = odd if draw.random() < 0.8 else _value(field.type, draw)
    return table.set_column(column, field, pa.array(values, type=field.type))


def _fitting(value: float, kind: pa.DataType) -> float:
    return value if kind == pa.float64() else max(min(value, 2**63 - 1), -(2**63))


def _row(name: str, draw: random.Random) -> dict[str, object]:
    return {field.name: _value(field.type, draw) for field in tables.TABLES[name] if draw.random() < 0.8}


def _value(kind: pa.DataType, draw: random.Random) -> object:
    if draw.random() < 0.1:
        return None
    if kind == pa.float64():
        return draw.choice(_FLOATS)
    if pa.types.is_integer(kind):
        low, high = np.iinfo(kind.to_pandas_dtype()).min, np.iinfo(kind.to_pandas_dtype()).max
        return max(low, min(high, draw.choice(_NUMBERS)))
    return draw.choice(_TEXTS)


def _files(folder: Path, draw: random.Random) -> None:
    """A file missing, empty, under another's name, or put away in a folder."""
    path = draw.choice(sorted(folder.iterdir()))
    other = draw.choice(sorted(folder.iterdir()))
    how = draw.randrange(4)
    if how == 0:
        path.unlink()
    elif how == 1:
        path.write_bytes(b"")
    elif how == 2 and other != path:
        shutil.copy(other, path)
    else:
        path.rename(folder / "away")
        path.mkdir()


def _cut_off(folder: Path, draw: random.Random) -> None:
    """A recording that ended with its process: tables only as spools, some of them damaged."""
    from jouletrace.run.spool import SpoolWriter

    header = json.loads((folder / RUN_JSON).read_text())
    (folder / RUN_JSON).write_text(json.dumps(header | {"complete": False, "checksums": {}}))
    for name in ("samples", "spans", "windows"):
        path = folder / f"{name}.parquet"
        with path.open("rb") as file:
            rows = tables.read(file, name).to_pylist()
        path.unlink()
        with SpoolWriter(folder / SPOOL, name, draw.choice(["", "0000"])) as spool:
            spool.append({field.name: [row[field.name] for row in rows] for field in tables.TABLES[name]})
        if draw.random() < 0.5:
            spool.path.write_bytes(damaged(spool.path.read_bytes(), draw))
    for name in ("results", "units"):
        (folder / f"{name}.parquet").unlink()


_KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "bytes": _bytes,
    "header": _header,
    "cells": _cells,
    "files": _files,
    "cut off": _cut_off,
}
_WEIGHTS = (15, 30, 40, 5, 10)


def use(place: Path, folder: Path) -> str | None:
    """Open, analyse, save, open again, print and report a Run; the one line with which it is refused, if it is.

    Raises:
        BaseException: If anything else goes wrong.
    """
    try:
        run = opened(str(place))
        if run.kind in ("profile", "monitor", "record", "import"):
            analysis.analyse(run)
        saved = save(run, folder / "again")
        again = opened(str(saved))
        for form in FORMS:
            for detail in ("model", "layer", "kernel"):
                report.render([again], form, detail=detail)
        html.write([again], folder / "report.html")
    except JouletraceError as error:
        said = str(error)
        assert said
        assert "\n" not in said, said
        return said
    return None
