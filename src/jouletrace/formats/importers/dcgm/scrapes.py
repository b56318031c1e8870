"""Scrapes of dcgm-exporter in a file: a sequence of pages in Prometheus' text format."""

from __future__ import annotations

import re
from pathlib import Path

from jouletrace.formats.importers.base import ImportOptions, decode_text, read_text
from jouletrace.formats.importers.dcgm.log import DcgmLog
from jouletrace.formats.importers.numbers import plain_number
from jouletrace.formats.importers.stamps import read_stamps
from jouletrace.run import Run

_METRIC = re.compile(
    r"^(?P<name>(?:DCGM_FI|dcgm)_\w+)\{(?P<labels>(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\}\s+(?P<value>\S+)(?:\s+(?P<stamp>\d{10,19}))?\s*$"
)
_FACTS = {"pci_bus": "pci_bus_id", "host": "hostname", "driver": "dcgm_fi_driver_version"}
_LABEL = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of such a scrape."""
    text = decode_text(head)
    return re.search(r"^(# (HELP|TYPE) )?(DCGM_FI|dcgm)_\w+[ {]", text, re.M) is not None and "{" in text


def read(path: Path, options: ImportOptions) -> Run:
    """Read scrapes; a new one begins where a metric is repeated, or after a line with a time.

    Raises:
        BadInputError: If it holds no metric, or the time zone is unknown.
    """
    log = DcgmLog(path, options)
    seen: set[str] = set()
    row, stamp = -1, ""  # the time on a line of its own, for the next scrape
    for line, text in enumerate(map(str.strip, read_text(path, log.left).split("\n")), start=1):
        found = _METRIC.match(text)
        if found is None:
            if (time := _time(text)) is not None:
                row, stamp, seen = -1, time, set()
            elif text and not text.startswith("#"):
                log.left.add("broken_rows", "lines are neither metrics nor comments", place=f"line {line}")
            continue
        series = f"{found['name']}{{{found['labels']}}}"
        if row < 0 or series in seen:
            row, stamp, seen = log.row(stamp or found["stamp"] or ""), "", set()
        seen.add(series)
        value = plain_number(found["value"])
        if value is None:
            log.left.add("not_a_number", "metrics have no number", place=f"line {line}")
            continue
        labels = {key.lower(): text for key, text in _LABEL.findall(found["labels"])}
        board = log.board(
            *(labels.get(key, "") for key in ("gpu", "uuid", "modelname")),
            **{fact: labels.get(key, "") for fact, key in _FACTS.items()},
        )
        part = labels.get("gpu_i_id")
        instance = log.instance(board, part, labels.get("gpu_i_profile", "")) if part else None
        log.take(found["name"], "", board, instance, row, value)
    return log.run("dcgm", "scrapes", dialect="dcgm-exporter")


def _time(text: str) -> str | None:
    """The stamp of a line that consists of one, as ``date`` prints between scrapes."""
    plain = text.lstrip("# ").strip()
    if not 10 <= len(plain) <= 40 or not any(c.isdigit() for c in plain):
        return None
    stamps = read_stamps([plain], "UTC")
    return plain if stamps.valid[0] and stamps.clock == "unix" else None
