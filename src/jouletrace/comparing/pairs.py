"""A comparison as data: pairs of figures, with verdicts, notes and checks by code; ``report.comparison`` words it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from jouletrace import higher
from jouletrace.analysis.checks import Outcomes, joined, outcomes
from jouletrace.arrays import Floats
from jouletrace.comparing.causes import Why
from jouletrace.comparing.source import Listed, Side
from jouletrace.errors import unknown
from jouletrace.levels import FAIL_IF, taken
from jouletrace.run import Estimate, Run
from jouletrace.run.frames import frame
from jouletrace.run.parts import ABSENT, STORED_SCATTER, Parts
from jouletrace.run.shown import Shown
from jouletrace.stats.contrast import METHOD, Contrast
from jouletrace.stats.interval import mean_estimate, standard_error

ALPHA = 0.05
"""Probability of at least one false alarm among all verdicts of a comparison."""

BETTER, WORSE, SAME, INCONCLUSIVE = "better", "worse", "no difference shown", "inconclusive"
"""Verdicts. Less time and energy is better."""

HIGHER, LOWER = "higher", "lower"
"""Verdicts on power, of which more is neither better nor worse: what is done in less time often draws more."""

DIFFERENT = (BETTER, WORSE, HIGHER, LOWER)
"""Verdicts that there is a difference."""

FAILED, PASSED, UNMEASURED, UNJUDGED = "failed", "passed", "not measured", "not judged"
"""Other outcomes of a check than inconclusive: "not measured" where a side lacks the figure in all of its rows, "not
judged" where the comparison allows no verdict on the code."""

LOAD: Final = "load"
LEVELS = taken(FAIL_IF)[1:]
"""Levels of parts that are compared, as they are listed: all but the whole."""

PER_SAMPLE, PER_STEP = "per_sample", "per_step"
"""Code of the note that the sides have different numbers of samples in an iteration."""

SAME_RUN, SHARED_RUN, REPEATED = "same_run", "run_on_both_sides", "repeated_by_seed"
SHARED = (SAME_RUN, SHARED_RUN, REPEATED)
"""Codes of warnings that the sides have data in common."""

NAMES = ("level", "name", "where", "shapes", "metric")
"""Attributes of a row that say what it is of."""

FIGURES = ("a", "b", "difference", "change")
"""Attributes of a row that are figures; changes are fractions."""

STATED = (*NAMES, *FIGURES, "confidence", "p", "verdict", "reason", "detectable", "flags")
"""All that files state of a row."""

LENGTH = "length_of_record"
"""Reason why a time has no verdict: a log, or a monitor without a program, ends whenever it was ended."""

ONE_RUN = "one_run"
"""Flag of a row of single runs that is compared with the largest difference on record of two runs of one thing, and
reason of one that this leaves open."""

_JUDGED = ("energy_total_j", "iteration_time_s")
"""Metrics of the whole by which B is judged."""


@dataclass(frozen=True)
class Note:
    """A remark on a comparison by code, with its values (see ``report.comparison_words``)."""

    code: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class SideMetric:
    """A metric of a part in the runs of a side.

    Attributes:
        figures: The figure of each run, all of the same work.
    """

    figures: tuple[Estimate, ...]

    @cached_property
    def value(self) -> Floats:
        """The value of each run, NaN where it is missing, shape (runs,)."""
        return np.array([math.nan if figure.value is None else figure.value for figure in self.figures])

    @property
    def numbers(self) -> Floats:
        """Values of the runs that have the metric."""
        return self.value[np.isfinite(self.value)]

    @property
    def reason(self) -> str:
        """Why runs lack it, where one says more than that it wasn't measured."""
        return next(
            (figure.reason for figure in self.figures if figure.reason not in (None, ABSENT.reason)), "not_measured"
        )

    @property
    def stored(self) -> bool:
        """True if the interval of a single run holds a stored scatter between runs."""
        return all(STORED_SCATTER in figure.flags for figure in self.figures)

    def error(self) -> tuple[float, float]:
        """Standard error that a single run states, NaN if it doesn't, and its degrees of freedom."""
        (figure,) = (figure for figure in self.figures if figure.value is not None)
        error, df = standard_error(figure)
        return math.nan if figure.half_width is None else error, df

    def mean(self) -> Estimate:
        """Mean of the runs with its t-interval; for a single run its half-width; null where all lack the metric."""
        stated = [figure for figure in self.figures if figure.value is not None]
        if len(stated) != 1:
            return mean_estimate(self.numbers, method=METHOD) if stated else Estimate.null(self.reason, METHOD)
        (value,), half = self.numbers.tolist(), stated[0].half_width
        if half is None:
            return Estimate(value, n=1, method=METHOD)
        return Estimate(value, value - half, value + half, 1, METHOD)


@dataclass(frozen=True)
class ComparedRow(Listed):
    """One metric of one part on both sides: ``spread`` adds the contrast, then ``judge`` the verdict.

    Attributes:
        metric: Name in ``run.metrics``.
        groups: The figures of the runs of A, and those of B.
        flags: Codes of what a reader must know ("shapes_differ", "below_margin", ...).
        contrast: Of the means of both sides; None where the spread is unknown.
        alpha: Probability of a false alarm at which it is tested, so that they hold over all rows together.
        verdict: One of the verdicts; "" before it is judged.
        reason: Why it is inconclusive, by code; None otherwise.
    """

    metric: str
    groups: tuple[SideMetric, SideMetric] = field(repr=False)
    flags: tuple[str, ...] = ()
    contrast: Contrast | None = field(default=None, repr=False)
    alpha: float = ALPHA
    verdict: str = ""
    reason: str | None = None

    @cached_property
    def a(self) -> Estimate:
        """Mean of the runs of A, in SI units; ``n`` is the runs."""
        return self.groups[0].mean()

    @cached_property
    def b(self) -> Estimate:
        """Mean of the runs of B."""
        return self.groups[1].mean()

    @property
    def measured(self) -> bool:
        """True if both sides have a figure."""
        return all(len(group.numbers) for group in self.groups)

    @property
    def stated(self) -> bool:
        """True if a side states a figure, or A why it is missing."""
        return any(len(group.numbers) for group in self.groups) or self.groups[0].reason != "not_measured"

    @property
    def difference(self) -> Estimate:
        """B - A, with the same confidence as ``change``."""
        if self.contrast is not None:
            return self.contrast.difference(self.alpha)
        if self.a.value is None or self.b.value is None:
            return Estimate.null(self.reason or "not_measured", METHOD)
        return Estimate(self.b.value - self.a.value, n=1, method=METHOD)

    @cached_property
    def change(self) -> Estimate:
        """B / A - 1; null with a reason where A may be nothing."""
        if self.contrast is not None:
            return self.contrast.change(self.alpha)
        if self.a.value is None or self.b.value is None:
            return Estimate.null(self.reason or "not_measured", METHOD)
        if self.a.value <= 0:
            return Estimate.null("denominator_near_zero", METHOD)
        return Estimate(self.b.value / self.a.value - 1, n=1, method=METHOD)

    def to_dict(self) -> dict[str, Any]:
        """All that is stated of it, by name: figures as ``Estimate``, all else as JSON has it."""
        return {name: getattr(self, name) for name in STATED}

    @property
    def confidence(self) -> float:
        """Of both intervals: 95 % over all rows together."""
        return 1 - self.alpha

    @property
    def p(self) -> float | None:
        """Probability of such a difference by chance, if there is none; None where it can't be determined."""
        return None if self.contrast is None or ONE_RUN in self.flags else self.contrast.p()

    @property
    def detectable(self) -> float | None:
        """Smallest relative change that would be detected with probability 0.9; None where unknown."""
        return None if self.contrast is None else self.contrast.detectable(self.alpha)


@dataclass(frozen=True)
class Check:
    """One ``--fail-if``, from its expression to its outcome.

    Attributes:
        text: As written.
        level: "model" or a level of parts.
        pattern: Pattern of the parts; "" for the model.
        metric: Its metric, by the word of the check.
        above: True if a change of more than ``change`` fails, False if one of less than it does.
        change: Relative change.
        outcome: "failed", "passed", "inconclusive", "not measured" or "not judged"; "" before it is evaluated.
        because: Why it isn't judged; None otherwise.
        deciding: The rows that decide it: those that failed, those that leave it open, or all.
        levels: The level at which each of these was tested, on one side.
    """

    text: str
    level: str
    pattern: str
    metric: str
    above: bool
    change: float
    outcome: str = ""
    because: Note | None = None
    deciding: tuple[ComparedRow, ...] = ()
    levels: tuple[float, ...] = ()

    @property
    def lower(self) -> bool:
        """True if a lower bound of the change decides it."""
        return self.above == (self.outcome == FAILED)

    def bound(self, row: ComparedRow, level: float) -> float | None:
        """The one-sided bound of a row's change by which it failed or passed; None where the row leaves it open."""
        if row.contrast is None or self.outcome not in (FAILED, PASSED):
            return None
        return row.contrast.bound(level, lower=self.lower)

    def fails_from(self, row: ComparedRow, level: float) -> float | None:
        """The change of a row that leaves it open from which on it would fail 9 times in 10; None where unknown."""
        if row.contrast is None or self.outcome != INCONCLUSIVE:
            return None
        least = row.contrast.detectable(2 * level)
        return None if least is None else self.change + (least if self.above else -least)


@dataclass
class Comparison(Shown):
    """The result of a comparison.

    Attributes:
        a, b: The sides.
        rows: The model's figures first, then parts by level, in the order of B.
        method: How the figures came about.
        notes: What differs in how the sides were run, and how the spread is known.
        warnings: Known failures that touch the figures.
        margin: Relative difference below which sides count as equal.
        alpha: Probability of a false alarm over all rows.
        gain: Relative gain error between different GPUs' sensors; 0 on one GPU, None where it isn't known.
        checks: Outcomes of ``--fail-if``.
        runs: All Runs whose checks concern the comparison.
        doubts: What leaves open that the sides can be compared at all.
        why: The difference in energy by its causes; None where it can't be divided.
    """

    a: Side
    b: Side
    rows: list[ComparedRow]
    method: Note
    notes: list[Note] = field(default_factory=list)
    warnings: list[Note] = field(default_factory=list)
    margin: float = 0.01
    alpha: float = ALPHA
    gain: float | None = 0.0
    checks: list[Check] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list, repr=False)
    doubts: list[Note] = field(default_factory=list)
    why: Why | None = field(default=None, repr=False)

    def row(self, metric: str, name: str | None = None, level: str = "model") -> ComparedRow:
        """A row by metric, and by name below the model.

        Raises:
            BadInputError: If there is none.
        """
        at_level = [row for row in self.rows if row.level == level]
        if not at_level:
            raise unknown("level", level, (row.level for row in self.rows))
        named = [row for row in at_level if name in (None, row.name)]
        if not named:
            raise unknown(level, name, (row.name for row in at_level))
        for row in named:
            if row.metric == metric:
                return row
        raise unknown("metric", metric, (row.metric for row in named))

    @property
    def whole(self) -> dict[str, ComparedRow]:
        """The rows of the model by metric."""
        return {row.metric: row for row in self.rows if row.level == "model"}

    @cached_property
    def outcomes(self) -> Outcomes:
        """The checks of the Runs of both sides together."""
        return joined([outcomes(run, Parts(run)) for run in self.runs])

    @property
    def simulated(self) -> bool:
        """True if some GPU was simulated."""
        return any(source.run.simulated for side in (self.a, self.b) for source in side.sources)

    @property
    def shared(self) -> Note | None:
        """The warning that the sides have data in common, which hide a difference; None if they have none."""
        return next((warning for warning in self.warnings if warning.code in SHARED), None)

    @property
    def same(self) -> bool:
        """True if both sides are the same Runs, of which there is nothing to compare."""
        return self.shared is not None and self.shared.code == SAME_RUN

    @property
    def programs(self) -> bool:
        """True if the sides are programs under ``run``, which iterate nothing and have no ``--repeats``."""
        return self.a.run.kind == "program"

    @property
    def watched(self) -> bool:
        """True if devices were watched over a time, without iterations."""
        return "time_s" in self.whole

    @property
    def per_sample(self) -> bool:
        """True if times back to back and energies are those of a sample."""
        return Note(PER_SAMPLE) in self.notes

    @property
    def steps(self) -> tuple[int, int] | None:
        """Steps of A and of B, where times and energies are those of a step of programs that made other numbers."""
        values = next((note.values for note in self.notes if note.code == PER_STEP), None)
        return None if values is None else values[1:]

    @property
    def single_loads(self) -> bool:
        """True if loads of one run a side are compared, whose scatter between runs isn't known."""
        return self.a.count == self.b.count == 1 and any(row.level == LOAD for row in self.rows)

    @property
    def clear(self) -> bool:
        """True if the whole has verdicts, none of which a narrower interval would change."""
        judged = [row.verdict for metric, row in self.whole.items() if metric in _JUDGED]
        return bool(judged) and INCONCLUSIVE not in judged

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict on B by metric of the model, or of all that was recorded: "better", "inconclusive", ..."""
        return {metric: row.verdict for metric, row in self.whole.items()}

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame: what each is of, its figures with the ends of their intervals, its verdict.

        Raises:
            NotPossibleError: If pandas isn't installed.
        """
        return frame([row.to_dict() for row in self.rows])

    def report(self, path: str | Path, *, price: str | None = None, carbon: str | None = None) -> Path:
        """Write both sides as an HTML page, as ``jouletrace compare --report`` does; as ``Run.report``."""
        return higher.report(self, path, price, carbon)

    def __str__(self) -> str:
        """The tables of the terminal."""
        return higher.text_of(self)
