"""The report in HTML: one file that needs nothing else, for any browser, with or without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from jouletrace.comparing.pairs import Comparison, Note
from jouletrace.errors import BadInputError
from jouletrace.report.html.page import render
from jouletrace.report.tariffs import Tariff
from jouletrace.run import Run
from jouletrace.run.files import check_replaceable, write_whole

__all__ = ["REPORT_MARKS", "render", "write", "write_page"]

REPORT_MARKS = ('<meta name="generator" content="jouletrace',)
"""Marks by which our own pages are recognised: nothing else is replaced by one."""


def write(
    runs: Sequence[Run],
    path: Path | str,
    comparisons: Sequence[Comparison] = (),
    notes: Sequence[Note] = (),
    tariff: Tariff | None = None,
    files: Sequence[str] = (),
) -> Path:
    """Write the report of one Run, or of several, into one file; an older report that is there is replaced.

    Args:
        runs: What to report on; at least one.
        path: The HTML file.
        comparisons: Results of ``compare`` on them, to be shown first.
        notes: Comparisons that could not be made.
        tariff: What a kWh costs and emits, before what the Runs keep.
        files: Name of each Run's file, for a column of several.

    Returns:
        The path.

    Raises:
        BadInputError: If there is no Run, another file is there, the name doesn't end in ".html", the folder isn't
            there, or it can't be written.
        NotPossibleError: If plotly isn't installed.
    """
    return write_page(Path(path), lambda: render(runs, comparisons, notes, tariff, files))


def write_page(target: Path, make: Callable[[], str], mode: int | None = None) -> Path:
    """Write a page that is made if it may be written: an older one that is there is replaced.

    Raises:
        BadInputError: If another file is there, its name isn't that of a page, or it can't be written.
    """
    check_replaceable(target, REPORT_MARKS, "a report")
    if target.suffix.lower() not in (".html", ".htm") and (target.is_file() or not target.exists()):  # or a device
        raise BadInputError(f"cannot write {target}: a report is HTML, so its name must end in .html")
    if not target.parent.is_dir():
        raise BadInputError(f"cannot write {target}: there is no folder {target.parent}")
    page = make()
    try:
        write_whole(target, page.encode(), mode=mode)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise BadInputError(f"cannot write {target}: {getattr(error, 'strerror', None) or error}") from None
    return target
