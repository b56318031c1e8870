"""What TensorRT's ``trtexec`` writes: its log, and its exported times, profile and layer information."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from jouletrace.formats.importers.base import ImportOptions
from jouletrace.formats.importers.dialects import Dialect, read_any, sniff_any
from jouletrace.formats.importers.trtexec import layers, log, times
from jouletrace.run import Run

DIALECTS = tuple(cast(Dialect, module) for module in (log, times, layers))


def sniff(head: bytes) -> bool:
    """Whether a file that begins so is one of them."""
    return sniff_any(DIALECTS, head)


def read(path: Path, options: ImportOptions) -> Run:
    """Read a file of ``trtexec``.

    Raises:
        BadInputError: If nothing in it can be used.
    """
    return read_any(DIALECTS, path, options, "a log of trtexec nor its times, profile or layer JSON")
