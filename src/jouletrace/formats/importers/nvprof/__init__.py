"""Output of ``nvprof``: summaries and metrics as text or CSV, traces of the GPU and the API as CSV."""

from __future__ import annotations

import re
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.base import NO_CLOCK, RELATIVE, ImportOptions, Left, decode_text, new_run, read_text
from jouletrace.formats.importers.nvprof import metrics, summary, trace
from jouletrace.formats.importers.nvprof.sections import COMMAND, sections
from jouletrace.formats.importers.stated import Stated
from jouletrace.run import Run

_BANNER = re.compile(r"^=+(\d+)?=+ (NVPROF is profiling|Profiling (application|result))", re.M)
_HEADERS = (
    re.compile(r"^\W*(Type\W+)?Time\(%\)\W+Time\W+Calls\W+Avg\W+Min\W+Max\W+Name", re.M),
    re.compile(r'^"?Start"?,"?Duration"?,("?Grid X"?|"?Name"?)', re.M),
    re.compile(r'^"?Device"?,"?Kernel"?,"?Invocations"?,"?(Metric|Event) Name"?', re.M),
)


def sniff(head: bytes) -> bool:
    """Whether the beginning of a file is that of output of ``nvprof``."""
    text = decode_text(head)
    return _BANNER.search(text) is not None or any(header.search(text) for header in _HEADERS)


def read(path: Path, options: ImportOptions) -> Run:
    """Read output of ``nvprof``: traces become spans, summaries and metrics units with figures.

    Raises:
        BadInputError: If it holds none of these.
    """
    left = Left(path)
    text = read_text(path, left)
    stated, launched = Stated("nvprof"), trace.Trace(left)
    for section in sections(text):
        if section.kind == "summary":
            summary.take(section, stated, left)
        elif section.kind == "metrics":
            metrics.take(section, stated, left)
        else:
            launched.take(section)
    if not len(stated) and not len(launched):
        raise BadInputError(f"{path}: output of nvprof without a single figure or kernel{left.first()}")
    run = new_run(path, "nvprof", RELATIVE if len(launched) else NO_CLOCK)
    if command := COMMAND.search(text):
        run.workload["command"] = command[1].strip()
    launched.write(run, options)
    if len(stated):
        stated.write(run)
    left.warn(run)
    return run
