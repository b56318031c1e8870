"""What ``nvidia-smi`` prints: ``dmon``, ``--query-gpu`` in CSV, and its table printed again and again."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from jouletrace.formats.importers.base import ImportOptions
from jouletrace.formats.importers.dialects import Dialect, read_any, sniff_any
from jouletrace.formats.importers.nvidia_smi import dmon, query, table
from jouletrace.run import Run

DIALECTS = tuple(cast(Dialect, module) for module in (dmon, query, table))


def sniff(head: bytes) -> bool:
    """Whether a file that begins so is one of them."""
    return sniff_any(DIALECTS, head)


def read(path: Path, options: ImportOptions) -> Run:
    """Read a log of ``nvidia-smi``.

    Raises:
        BadInputError: If nothing in it can be used.
    """
    return read_any(DIALECTS, path, options, "a log of nvidia-smi dmon nor its --query-gpu CSV nor its table")
