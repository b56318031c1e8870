"""Scrapes of dcgm-exporter: Prometheus' text format, one after the other in a file."""

from __future__ import annotations

import re
from pathlib import Path

from jouletrace.formats.importers.base import ImportOptions, Left, read_text
from jouletrace.formats.importers.dcgm.log import DcgmLog
from jouletrace.formats.importers.numbers import plain_number
from jouletrace.formats.importers.stamps import read_stamps
from jouletrace.run import Run

_METRIC = re.compile(
    r"^(?P<name>(?:DCGM_FI|dcgm)_\w+)\{(?P<labels>(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\}\s+(?P<value>\S+)(?:\s+(?P<stamp>\d{10,19}))?\s*$"
)
_LABEL = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


def recognises(head: str) -> bool:
    """Whether text that begins so is such a scrape."""
    return re.search(r"^(# (HELP|TYPE) )?(DCGM_FI|dcgm)_\w+[ {]", head, re.M) is not None and "{" in head


def read(path: Path, options: ImportOptions) -> Run:
    """Read scrapes; a new one begins where a metric comes back, or after a line that is a time.

    Raises:
        BadInputError: If there is no metric in it, or the time zone is unknown.
    """
    left = Left(path)
    log = DcgmLog(options)
    times = [""]
    seen: set[str] = set()
    for line, text in enumerate(map(str.strip, read_text(path, left).split("\n")), start=1):
        found = _METRIC.match(text)
        if found is None:
            if (stamp := _time(text)) is not None:
                times, seen = _next(times, seen, stamp), set()
            elif text and not text.startswith("#"):
                left.add("broken_rows", "lines are neither metrics nor comments", place=f"line {line}")
            continue
        series = f"{found['name']}{{{found['labels']}}}"
        if series in seen:
            times, seen = _next(times, seen, ""), set()
        seen.add(series)
        if found["stamp"]:
            times[-1] = times[-1] or found["stamp"]
        value = plain_number(found["value"])
        if value is None:
            left.add("not_a_number", "metrics have no number", place=f"line {line}")
            continue
        labels = {key.lower(): text for key, text in _LABEL.findall(found["labels"])}
        board = log.board(
            labels.get("gpu", ""),
            labels.get("uuid", ""),
            labels.get("modelname", ""),
            pci_bus=labels.get("pci_bus_id", ""),
            host=labels.get("hostname", ""),
            driver=labels.get("dcgm_fi_driver_version", ""),
        )
        part = labels.get("gpu_i_id")
        instance = log.instance(board, part, labels.get("gpu_i_profile", "")) if part else None
        log.add(found["name"], "", board, instance, len(times) - 1, value)
    return log.run(path, left, "dcgm-exporter", times, list(range(len(times))), "scrapes")


def _next(times: list[str], seen: set[str], stamp: str) -> list[str]:
    """A new scrape; one that has a time and no metrics yet is still the same."""
    if not seen and len(times) == 1 and not times[0]:
        return [stamp]
    return [*times[:-1], stamp] if not seen and stamp else [*times, stamp]


def _time(text: str) -> str | None:
    """The stamp of a line that is nothing but one, as ``date`` prints between scrapes."""
    plain = text.lstrip("# ").strip()
    if not 10 <= len(plain) <= 40 or not any(c.isdigit() for c in plain):
        return None
    stamps = read_stamps([plain], "UTC")
    return plain if stamps.valid[0] and stamps.clock == "unix" else None
