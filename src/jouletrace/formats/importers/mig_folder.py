"""Folders of MIG profilers: result CSVs, and the ``dcgm.csv`` that was recorded meanwhile.

The log's entity is the GPU for every instance, so only time assigns its activity: each row's figures
are means over the log's readings in its window, both ends included. A run that several files contain is
read once. Rows of zeros are runs that failed, and have no figures.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from jouletrace.analysis.figures import Figures
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import columns
from jouletrace.formats.importers.base import NO_CLOCK, UNIX, ImportOptions, Left, decode_text, new_run, read_head
from jouletrace.formats.importers.dcgm import rows
from jouletrace.formats.importers.mig_points import Point, is_results, once, read_points
from jouletrace.formats.importers.stated import PREFIX
from jouletrace.run import MODEL_UNIT, Estimate, Run

LOG = "dcgm.csv"
METHOD = PREFIX + "the MIG profiler"
JOINED = METHOD + ", joined by time"

_JOINS = {"graphics_active": ("graphics_active", ""), "memory_used_bytes": ("memory_used", "_bytes")}
"""Channel, and the parts of its figures' names before and after "_mean" and "_std"."""

_RATE_SLACK = 0.02


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of a result CSV of such a folder."""
    return is_results(decode_text(head))


def is_folder(path: Path) -> bool:
    """Whether a folder contains a result CSV at any depth."""
    return any(True for _ in _results(path))


def read(path: Path, options: ImportOptions) -> Run:
    """Read a folder with all subfolders, or one result CSV with the log in its folder or above it.

    Raises:
        BadInputError: If it contains no row.
    """
    left = Left(path)
    files = list(_results(path)) if path.is_dir() else [path]
    by_log: dict[Path | None, list[Point]] = {}
    for file in files:
        by_log.setdefault(_log_of(file, path), []).extend(read_points(file, left))
    if not any(by_log.values()):
        raise BadInputError(f"{path}: no row of results in it{left.first()}")
    run = new_run(path, "mig_folder", NO_CLOCK if None in by_log and len(by_log) == 1 else UNIX)
    figures = Figures()
    figures.unit(MODEL_UNIT, "model", path.name, count=1)
    spans = []
    number = MODEL_UNIT
    for log, points in by_log.items():
        recorded = _read_log(run, log, options)
        for point in once(points):
            number += 1
            spans.append(_add(figures, number, point, recorded, left))
    if None in by_log:
        run.warn("no_activity_log", f"no {LOG} beside or above some result files: activity is unknown", path.name)
    run.units, run.results = figures.units(), figures.results()
    run.spans = _spans([span for span in spans if span is not None])
    left.warn(run)
    return run


def _results(folder: Path) -> list[Path]:
    found = []
    for file in sorted(folder.rglob("*.csv")):
        if file.name == LOG or not file.is_file() or not file.stat().st_size:
            continue
        if sniff(read_head(file)):
            found.append(file)
    return found


def _log_of(file: Path, top: Path) -> Path | None:
    """The log in the file's folder or a folder above it: up to the folder that is read, or two levels above a file."""
    folders = [file.parent, *file.parent.parents]
    stop = folders.index(top) if top in folders else 2
    return next((folder / LOG for folder in folders[: stop + 1] if (folder / LOG).is_file()), None)


def _read_log(run: Run, log: Path | None, options: ImportOptions) -> Run | None:
    """The log's readings, which are also added to the Run."""
    if log is None:
        return None
    recorded = rows.read(log, options)
    run.samples = columns.join("samples", [run.samples, recorded.samples])
    known = {device.id for device in run.devices}
    run.devices += [device for device in recorded.devices if device.id not in known]
    run.channels += [one for one in recorded.channels if run.channel(one.device, one.name) is None]
    for warning in recorded.warnings:
        run.warn(warning.code, warning.message, warning.where or log.name)
    run.created_ns = min(run.created_ns or recorded.created_ns, recorded.created_ns)
    return recorded


def _add(
    figures: Figures, number: int, point: Point, recorded: Run | None, left: Left
) -> tuple[int, str, int, int] | None:
    """Add a unit with its figures, and its span, if it has one."""
    length = f" seq {point.seq_len}" if point.seq_len is not None else ""
    name = f"{point.model} batch {point.batch}{length} on {point.instance or 'an instance'}"
    unit = figures.unit(number, "range", name, MODEL_UNIT, count=1)
    if point.failed:
        left.add("failed_rows", "runs failed (zeros in the file, mostly for lack of memory)", place=point.place)
        for metric in ("latency_mean_s", "throughput_per_s"):
            figures.add(unit, metric, Estimate.null("run_failed", METHOD))
        return None
    for column, metric, factor in (("latency", "latency_mean_s", 1e-3), ("latency_std", "latency_std_s", 1e-3)):
        if column in point.figures:
            figures.add(unit, metric, Estimate(point.figures[column] * factor, method=METHOD))
    _add_throughput(figures, unit, point, left)
    window = (point.start_s or 0, point.end_s or 0)
    if recorded is not None:
        _join(figures, unit, recorded, window)
    return unit, name, window[0] * 10**9, window[1] * 10**9


def _add_throughput(figures: Figures, unit: int, point: Point, left: Left) -> None:
    """Add samples per second by batch and latency; the file's own figure must agree, or is left out."""
    latency, stated = point.figures.get("latency"), point.figures.get("throughput")
    if not latency or latency <= 0:
        return
    rate = point.batch * 1e3 / latency
    figures.add(unit, "throughput_per_s", Estimate(rate, method=f"{METHOD}: batch / latency"))
    if stated is not None and abs(stated - rate) > _RATE_SLACK * rate:
        text = "stated throughputs do not agree with batch and latency and were left out"
        left.add("throughput_differs", text, place=point.place)


def _join(figures: Figures, unit: int, recorded: Run, window: tuple[int, int]) -> None:
    device = recorded.devices[0].id
    for channel, (name, suffix) in _JOINS.items():
        stamps, values = recorded.series(device, channel)
        seconds = stamps // 10**9  # as printed: readings within one second have been spread over it
        inside = values[(seconds >= window[0]) & (seconds <= window[1])]
        if recorded.channel(device, channel) is None:
            continue
        count = len(inside)
        mean = (
            Estimate(float(np.mean(inside)), n=count, method=JOINED) if count else Estimate.null("no_samples", JOINED)
        )
        figures.add(unit, f"{name}_mean{suffix}", mean)
        if count > 1:
            spread = Estimate(float(np.std(inside, ddof=1)), n=count, method=JOINED)
            figures.add(unit, f"{name}_std{suffix}", spread)


def _spans(rows: list[tuple[int, str, int, int]]) -> pa.Table:
    units, names, starts, ends = zip(*rows, strict=True) if rows else ((), (), (), ())
    return columns.block(
        "spans",
        len(rows),
        id=np.arange(len(rows)),
        kind="range",
        name=columns.coded(names),
        lane="MIG results",
        unit=units,
        start_ns=starts,
        end_ns=ends,
    )
