"""Footnotes of documents and pages, and the names of formats."""

from __future__ import annotations

from collections.abc import Sequence

FORMATS = ("table", "json", "csv", "markdown", "latex")
"""Names of the formats in which Runs and comparisons are rendered."""


class Footnotes:
    """Collects remarks on the cells of one table: equal remarks share a letter, in all tables of an output.

    Args:
        others: Those of the same output, whose letters go on; None for the first.
    """

    def __init__(self, others: Footnotes | None = None) -> None:
        self._letters: dict[str, str] = {} if others is None else others._letters
        self._here: set[str] = set()

    def mark(self, remark: str) -> str:
        """The mark of a remark, to be set behind a cell: "[a]"."""
        if remark not in self._letters:
            self._letters[remark] = _letters(len(self._letters))
        self._here.add(remark)
        return f"[{self._letters[remark]}]"

    def of_table(self) -> Footnotes:
        """Those of one table among them."""
        return type(self)(self)

    def lines(self) -> list[str]:
        """The meaning of each mark of this table."""
        return [f"[{letters}] {remark}" for remark, letters in self._letters.items() if remark in self._here]

    def of_all(self, remarks: Sequence[str]) -> list[str]:
        """Remarks on all rows of this table."""
        return [f"all rows: {remark}" for remark in remarks]


class NoFootnotes(Footnotes):
    """Drops remarks but some, where a verdict has those that matter.

    Args:
        others: As of ``Footnotes``.
        but: The remarks that stay.
    """

    def __init__(self, others: Footnotes | None = None, but: Sequence[str] = ()) -> None:
        super().__init__(others)
        self._but: Sequence[str] = others._but if isinstance(others, NoFootnotes) else but

    def mark(self, remark: str) -> str:
        """The mark of a remark that stays, "" for others."""
        return super().mark(remark) if remark in self._but else ""

    def of_all(self, remarks: Sequence[str]) -> list[str]:
        """Those that stay."""
        return super().of_all([remark for remark in remarks if remark in self._but])


def _letters(n: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    before, last = divmod(n, 26)
    return (_letters(before - 1) if before else "") + chr(ord("a") + last)
