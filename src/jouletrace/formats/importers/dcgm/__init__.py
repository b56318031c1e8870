"""What DCGM tells: scrapes of dcgm-exporter (Prometheus text), ``dcgmi dmon``, and its fields as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from jouletrace.formats.importers.base import ImportOptions
from jouletrace.formats.importers.dcgm import rows, scrapes
from jouletrace.formats.importers.dialects import Dialect, read_any, sniff_any
from jouletrace.run import Run

DIALECTS = tuple(cast(Dialect, module) for module in (scrapes, rows))


def sniff(head: bytes) -> bool:
    """Whether a file that begins so is one of them."""
    return sniff_any(DIALECTS, head)


def read(path: Path, options: ImportOptions) -> Run:
    """Read a log of DCGM's.

    Raises:
        BadInputError: If nothing in it can be used.
    """
    return read_any(DIALECTS, path, options, "a scrape of dcgm-exporter nor a log of dcgmi dmon or its CSV")
