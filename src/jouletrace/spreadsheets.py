"""Text in CSV that a spreadsheet takes for text: names come from anywhere, and some would be run as formulas."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from io import StringIO

_FORMULA = tuple("=+-@\t\r＝＋－＠")


def csv_text(text: str) -> str:
    """Text for a cell; with an apostrophe before it where a spreadsheet would take it for a formula.

    Only for text: a number may well begin with a minus.
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


def csv_file(rows: Iterable[Iterable[object]]) -> str:
    """Rows as the text of a CSV file; None is an empty cell."""
    sink = StringIO()
    texts = ([csv_text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    csv.writer(sink, lineterminator="\n").writerows(texts)
    return sink.getvalue()
