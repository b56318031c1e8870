"""``--fail-if``: expressions such as ``energy>5%``, ``kernel:gemm*:energy>3%``, ``layer:encoder.*:latency<-10%``.

    [LEVEL:PATTERN:]METRIC(>|<)CHANGE%

A check asks for each row that it selects whether B / A - 1 is beyond the stated change. It fails if the
change is shown to be beyond, with the error permitted over all rows of all checks; it passes if the change
is shown to be within, and is inconclusive otherwise. Without a figure on both sides in any row it isn't measured.
No check is judged where figures can't be trusted, or the sides are of other devices or workloads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from jouletrace.analysis.rules import NO
from jouletrace.comparing.pairs import (
    FAILED,
    INCONCLUSIVE,
    PASSED,
    UNJUDGED,
    UNMEASURED,
    Check,
    ComparedRow,
    Comparison,
    Note,
)
from jouletrace.comparing.setup import other_things
from jouletrace.comparing.source import Side
from jouletrace.errors import BadInputError
from jouletrace.levels import FAIL_IF, PROFILE, taken
from jouletrace.levels import check as check_level
from jouletrace.run.metrics import EACH
from jouletrace.stats.contrast import Contrast
from jouletrace.stats.several import holm

METRICS = {
    "latency": ("latency_s", "time_s"),
    "time": ("iteration_time_s", "time_s"),
    "power": ("power_w", "power_w"),
    "energy": ("energy_total_j", "energy_total_j"),
    "work": ("energy_work_j", "energy_work_j"),
    "per_token": ("energy_per_token_j", "energy_per_output_token_j"),
    "per_request": ("energy_per_request_j", "energy_per_request_j"),
    **{name: 2 * (f"{name}_p95_s",) for name in ("ttft", "tpot", "e2e")},
}
"""The metric of the model, and that of a part, by word."""

_EXPRESSION = re.compile(r"(?:(\w+):(.+):)?\s*(\w+)\s*([<>])\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))\s*%")


def parse(text: str) -> Check:
    """Read an expression.

    Raises:
        BadInputError: If it can't be read, with what is wrong.
    """
    match = _EXPRESSION.fullmatch(text.strip())
    if match is None:
        raise BadInputError(
            f"--fail-if '{text}': write [LEVEL:NAME:]METRIC>CHANGE%, such as 'energy>5%'; NAME may hold *"
        )
    level, pattern, metric, above, change = match.groups()
    check_level(FAIL_IF, level or "model", f"--fail-if '{text}'")
    if metric not in METRICS:
        raise BadInputError(f"--fail-if '{text}': the metric is one of {', '.join(METRICS)}{_near(metric, METRICS)}")
    if float(change) <= -100:
        raise BadInputError(f"--fail-if '{text}': nothing falls by 100 % or more: write a limit above -100%")
    if above == "<" and float(change) > 0:
        where, size = f"{level}:{pattern}:" if level else "", change.lstrip("+")
        raise BadInputError(
            f"--fail-if '{text}' would fail unless {metric} rose by {size} %: write '{where}{metric}>{size}%' to fail "
            "where it rose by more"
        )
    return Check(text, level or "model", pattern or "", metric, above == ">", float(change) / 100)


def evaluate(checks: Sequence[Check], comparison: Comparison) -> list[Check]:
    """The checks on a comparison with their outcomes.

    Raises:
        BadInputError: If a check names a part that the sides don't have in common: it would always pass.
    """
    if checks and (because := _hindrance(comparison)):
        return [replace(check, outcome=UNJUDGED, because=because) for check in checks]
    asked = [(check, row) for check in checks for row in _meant(check, comparison.rows, (comparison.a, comparison.b))]
    beyond, short = (
        holm([_p(check, row.contrast, of) for check, row in asked], comparison.alpha) for of in (True, False)
    )
    evaluated = []
    for check in checks:
        numbers = [k for k, (of, _) in enumerate(asked) if of is check]
        failed, open_ = (
            [k for k in numbers if beyond[k][0]],
            [k for k in numbers if not beyond[k][0] and not short[k][0]],
        )
        measured = any(asked[k][1].measured for k in numbers)
        outcome = UNMEASURED if not measured else FAILED if failed else INCONCLUSIVE if open_ else PASSED
        deciding = failed or open_ or numbers
        levels = [beyond[k][1] if failed else comparison.alpha / len(asked) if open_ else short[k][1] for k in deciding]
        rows_ = tuple(asked[k][1] for k in deciding)
        evaluated.append(replace(check, outcome=outcome, deciding=rows_, levels=tuple(levels)))
    return evaluated


def limits(comparison: Comparison) -> tuple[int | None, int] | None:
    """Rises of energy in whole %: the largest that a check with these figures fails on, the least that it passes.

    The first is None where no rise is shown. None where no check of the energy would be judged, or its scatter isn't
    known.
    """
    row = comparison.whole.get("energy_total_j")
    if row is None or row.contrast is None or _hindrance(comparison):
        return None
    low, high = (row.contrast.bound(comparison.alpha, lower=lower) for lower in (True, False))
    if low is None or high is None:
        return None
    return math.ceil(100 * low) - 1 if low > 0 else None, max(math.floor(100 * high) + 1, 1)


def _hindrance(comparison: Comparison) -> Note | None:
    """The reason against any verdict on the code; None without one."""
    if apart := other_things(comparison.a, comparison.b):
        return apart
    doubt = next((failure for failure in comparison.outcomes.failed if failure.level == NO), None)
    return Note("not_trusted", (doubt,)) if doubt else None


def _meant(check: Check, rows: Sequence[ComparedRow], sides: Sequence[Side]) -> list[ComparedRow]:
    metric = METRICS[check.metric][check.level != "model"]
    at_level = [row for row in rows if row.level == check.level]
    named = at_level if check.level == "model" else [row for row in at_level if _fits(row, check.pattern)]
    meant = [row for row in named if row.metric in (metric, EACH.get(metric))]
    if meant or named or check.level == "model":
        return meant
    if not at_level:
        raise BadInputError(f"--fail-if '{check.text}': {_lacking(check.level, sides)}")
    near = _near(check.pattern, sorted({row.name for row in at_level}))
    raise BadInputError(f"--fail-if '{check.text}': no {check.level} in common is called {check.pattern!r}{near}")


def _lacking(level: str, sides: Sequence[Side]) -> str:
    """Which sides have no part of a level, of which they have none in common, and what gives it to them."""
    lacking = [side for side in sides if all(listed.level != level for listed in side.only)]
    if not lacking:
        return f"A and B have no {level} in common"
    said = f"{' and '.join(side.name for side in lacking)} {'has' if len(lacking) == 1 else 'have'} no {level}"
    profiled = level in taken(PROFILE) and all(side.run.kind == "profile" for side in lacking)
    return f"{said}: profile with --detail {level}" if profiled else said


def _fits(row: ComparedRow, pattern: str) -> bool:
    """True if a pattern with ``*`` and ``?`` matches a part: its name, operator (also without "aten."), or module."""
    printed = (row.part.op or row.name).removeprefix("aten.")
    texts = (row.name, row.part.op, printed, row.part.module, row.called)
    return any(text and (fnmatchcase(text, pattern) or text == pattern) for text in texts)


def _p(check: Check, contrast: Contrast | None, beyond: bool) -> float:
    """Probability of the observed means if the change weren't beyond the limit, or weren't within it.

    The sensors' gain weakens either conclusion. A row without a contrast takes part with probability 1.
    """
    if contrast is None:
        return 1.0
    return (contrast.p_above if check.above == beyond else contrast.p_below)(1 + check.change)


def _near(word: str, names: Iterable[str]) -> str:
    near = get_close_matches(word, list(names), 1)
    return f"; did you mean {near[0]}?" if near else ""
