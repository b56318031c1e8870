"""Runs whose figures and words a wing has: the interface of its module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from jouletrace.analysis.facts import Facts
from jouletrace.comparing.pairs import ComparedRow
from jouletrace.report.document import Footnotes
from jouletrace.report.table import Table
from jouletrace.run import Estimate, Run
from jouletrace.run.figures import Figures
from jouletrace.run.parts import Part, Parts
from jouletrace.wing import kind_of


class KindOfRun(Protocol):
    """The interface of a module of ``Wing.kinds``.

    Attributes:
        LEVEL: Level of the parts that it words.
    """

    LEVEL: str

    def add(self, run: Run, figures: Figures) -> None:
        """Add the figures that follow from a Run's raw tables, and warn of what is wrong with them."""

    def join(self, runs: Sequence[Run]) -> None:
        """Make what several files state consistent, before the tables of all become those of the first."""

    def edges(self, run: Run) -> list[tuple[int, int]]:
        """Starts and ends, ns, that stand in the workload and not in a table."""

    def shift(self, run: Run, by_ns: int) -> None:
        """Add to these."""

    def paired(self, rows: Sequence[ComparedRow], a: Run, b: Run) -> list[ComparedRow]:
        """The compared rows of two single Runs, with another scatter where the two have an error in common."""

    def verdict(self, run: Run, results: Parts, known: Facts, absolute: str) -> list[str]:
        """The verdict on a Run, in lines; ``absolute`` is the uncertainty behind the figure that is stated first."""

    def leading(self, run: Run, results: Parts, known: Facts) -> tuple[Part, str, bool] | None:
        """The part and metric that are stated first, and whether that is modelled, without a budget; None for none."""

    def prices(self, run: Run, results: Parts, known: Facts) -> Sequence[tuple[Estimate, str, str]]:
        """Energies whose cost is stated, J: of the Run, then of each of several things in it if it has these.

        Each has its unit of work and whose it is, " of URL" or "".
        """

    def section(self, run: Run, results: Parts, marks: Footnotes, *, brief: bool = False) -> Table:
        """The parts, one a row."""

    def facts(self, run: Run) -> list[tuple[str, str]]:
        """Facts by title."""

    def plots(self, run: Run, results: Parts, known: Facts) -> Mapping[str, dict[str, Any] | None]:
        """Plots of the HTML report as plotly takes them, by place in ``run.html.j2``; None for none."""


def worded(run: Run, results: Parts) -> KindOfRun | None:
    """The module that words a Run; None if no wing does, or there is no part to word."""
    kind = cast(KindOfRun | None, kind_of(run.workload))
    return kind if kind is not None and results.units(kind.LEVEL) else None
