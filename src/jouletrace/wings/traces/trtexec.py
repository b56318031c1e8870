"""Files of TensorRT's ``trtexec``: its log, and the times of layers of ``--exportProfile``."""

from __future__ import annotations

import re
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import ImportOptions, Left, decode_text, read_head, read_text
from jouletrace.formats.importers.stamps import read_stamps
from jouletrace.formats.importers.stated import Stated
from jouletrace.formats.importers.units import plain_number
from jouletrace.run import MODEL_UNIT, Run, tables
from jouletrace.wings.traces.trtexec_layers import LayerTable, is_profile, read_profile, take_layers

_LOG = re.compile(
    r"TensorRT\.trtexec|Average on \d+ runs - GPU latency|=== (Trace details|Performance summary) ===|\[TRT\]|"
    r"=== (Model|Build|Inference|Reporting|System) Options ==="
)
_LINE = re.compile(r"^(?:\[(?P<stamp>\d{2}/\d{2}/\d{4}-\d{2}:\d{2}:\d{2})\] )?\[(?P<level>[VIWEF])\] ?(?P<text>.*)$")
_AVERAGE = re.compile(
    r"Average on (?P<runs>\d+) runs - GPU latency: (?P<gpu>\S+) ms(?: - Host latency: (?P<host>\S+) ms)?"
    r"(?: \((?:end to end (?P<end>\S+) ms, )?enqueue (?P<enqueue>\S+) ms\))?"
)
_SUMMARY = re.compile(r"^(?P<name>[A-Z][\w ]*?): (?P<figures>min = .*)$")
_FIGURE = re.compile(r"(?P<name>min|max|mean|median|percentile\((?P<percent>[\d.]+)%\)) = (?P<value>\S+?) ms")
_SINGLE = re.compile(
    r"^(?P<name>Throughput|Total Host Walltime|Total GPU Compute Time): (?P<value>\S+) (?P<unit>qps|s)$"
)
_OPTION = re.compile(
    r"^(?P<name>Model|Batch|Precision|Selected Device|TensorRT version|Streams|CUDA Graph|Warmup)\s*: (?P<value>.+)$"
)

_METRICS = {
    "Latency": "latency",
    "End-to-End Host Latency": "end_to_end_latency",
    "Enqueue Time": "enqueue_time",
    "H2D Latency": "h2d_latency",
    "GPU Compute Time": "gpu_compute_time",
    "D2H Latency": "d2h_latency",
    "Host Latency": "latency",
}
"""Metrics by their names in the summary; older versions write "Host Latency"."""

_TOTALS = {
    "Throughput": "queries_per_s",
    "Total Host Walltime": "host_walltime_s",
    "Total GPU Compute Time": "gpu_compute_time_total_s",
}
_FACTS = ("batch", "precision", "streams", "cuda graph")
_BATCH = re.compile(r"[0-9]{1,9}")
_AVERAGED = {"gpu": "GPU latency", "host": "host latency", "end": "end to end", "enqueue": "enqueue"}


def sniff(head: bytes) -> bool:
    """True if the beginning of a file is that of such a log, or of its part with the figures, or of a profile."""
    text = decode_text(head)
    return _LOG.search(text) is not None or is_profile(text)


def read(path: Path, options: ImportOptions) -> Run:
    """Read a log or a profile.

    Of a log averages become windows without a time, and the rest figures of the model. Each layer of a profile,
    and of the table of layers in a log, becomes a unit with its times.

    Raises:
        BadInputError: If it is neither, or holds no figure.
    """
    head = decode_text(read_head(path))
    left = Left(path)
    if _LOG.search(head):
        run = _read_log(path, options, left)
    elif is_profile(head):
        run = _read_profile(path, options, left)
    else:
        raise BadInputError(f"{path}: not recognised as a file of trtexec")
    left.warn(run)
    return run


def _read_log(path: Path, options: ImportOptions, left: Left) -> Run:
    stated, averages, layers = Stated("trtexec"), list[dict[str, object]](), list[LayerTable]()
    facts: dict[str, str] = {}
    first = ""
    for line, row in enumerate(read_text(path, left).split("\n"), start=1):
        found = _LINE.match(row.rstrip())
        text, first = (found["text"].strip(), first or found["stamp"] or "") if found else (row.strip(), first)
        place = f"line {line}"
        if take_layers(text, layers):
            continue
        if average := _AVERAGE.search(text):
            averages += _average(average, len(averages), left, place)
        elif summary := _SUMMARY.match(text):
            _summary(summary, stated, left, place)
        elif single := _SINGLE.match(text):
            if (value := _number(single["value"], left, place)) is not None:
                stated.add(MODEL_UNIT, _TOTALS[single["name"]], value)
        elif option := _OPTION.match(text):
            facts.setdefault(option["name"].lower(), option["value"].strip())
        elif text.startswith(("Average on", "Latency:", "GPU Compute Time:", "Throughput:")):
            left.add("not_a_figure", "lines that should hold figures do not", place=place)
    for table in layers:
        table.add(stated, left)
    if not len(stated) and not averages:
        raise BadInputError(f"{path}: a log of trtexec without averages or performance summary{left.first()}")
    run = stated.run(path, "trtexec", options.device or facts.get("selected device"), _known(facts), "log")
    if "tensorrt version" in facts:
        run.versions["tensorrt"] = facts["tensorrt version"]
    if first:
        stamps = read_stamps([first.replace("-", " ")], options.time_zone)
        run.created_ns = int(stamps.time_ns[0]) if stamps.valid[0] else 0
    run.windows = tables.from_rows(averages, "windows")
    return run


def _known(facts: dict[str, str]) -> dict[str, str | int]:
    """Facts for ``Run.workload``."""
    known: dict[str, str | int] = {name.replace(" ", "_"): facts[name] for name in _FACTS if name in facts}
    if _BATCH.fullmatch(facts.get("batch", "")):  # a network with dynamic shapes has "Explicit"
        known["batch"] = int(facts["batch"])
    if "model" in facts:
        known["name"] = facts["model"].rsplit("/", 1)[-1]
    return known


def _average(found: re.Match[str], order: int, left: Left, place: str) -> list[dict[str, object]]:
    """A row of ``windows`` for each latency that the line averages."""
    runs = int(found["runs"][:9])
    rows: list[dict[str, object]] = []
    for group, name in _AVERAGED.items():
        if found[group] is not None and (ms := _number(found[group], left, place)) is not None:
            window = {"variant": name, "order": order + len(rows), "replays": runs, "time_s": ms / 1e3 * runs}
            rows.append(window)
    return rows


def _summary(found: re.Match[str], stated: Stated, left: Left, place: str) -> None:
    metric = _METRICS.get(found["name"]) or re.sub(r"\W+", "_", found["name"].lower())
    figures = list(_FIGURE.finditer(found["figures"]))
    if len(figures) < found["figures"].count(" = "):
        left.add("not_a_number", "figures aren't numbers", found["figures"].count(" = ") - len(figures), place)
    for figure in figures:
        if (ms := _number(figure["value"], left, place)) is None:
            continue
        name = f"p{figure['percent'].replace('.', '_')}" if figure["percent"] else figure["name"]
        # "latency_s" is always the median.
        stated.add(MODEL_UNIT, f"{metric}_s" if name == "median" else f"{metric}_{name}_s", ms / 1e3)


def _number(text: str, left: Left, place: str) -> float | None:
    value = plain_number(text)
    if value is None or value < 0:
        left.add("not_a_number", "figures aren't numbers", place=place)
        return None
    return value


def _read_profile(path: Path, options: ImportOptions, left: Left) -> Run:
    stated = Stated("trtexec")
    if not read_profile(read_text(path, left), stated, left):
        raise BadInputError(f"{path}: not one layer in it can be read{left.first()}")
    return stated.run(path, "trtexec", options.device, {}, "profile")
