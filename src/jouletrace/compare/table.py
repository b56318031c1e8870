"""Rows with verdicts, computed from the figures of both sides."""

from __future__ import annotations

from collections.abc import Sequence

from jouletrace.compare.contrast import ALPHA, METHOD, Contrast, holm
from jouletrace.compare.spread import Entry, contrasts
from jouletrace.report.comparison import BETTER, DIFFERENT, HIGHER, INCONCLUSIVE, LOWER, SAME, WORSE, Row
from jouletrace.run import Estimate

WITHOUT_GAIN = ("latency_s", "iteration_time_s", "time_to_first_token_s", "time_s")
"""Metrics that don't depend on a power sensor."""

MARGIN = 0.01
"""Default relative difference below which two sides count as equal."""

_NEUTRAL = ("power_w",)
"""Metrics of which less isn't necessarily better."""


def solve(entries: Sequence[Entry], gain: float) -> list[Contrast | None]:
    """The contrast of each entry, from the means of independent runs; None where the spread is unknown."""
    evidence: list[Contrast | None] = [None] * len(entries)
    for level, metric in dict.fromkeys((entry.key.level, entry.metric) for entry in entries):
        own = [i for i, e in enumerate(entries) if (e.key.level, e.metric) == (level, metric)]
        of_gain = 0.0 if metric in WITHOUT_GAIN else gain
        solved = contrasts([entries[i] for i in own], of_gain, parts=level != "model")
        for i, contrast in zip(own, solved, strict=True):
            evidence[i] = contrast
    return evidence


def judge(
    entries: Sequence[Entry], evidence: Sequence[Contrast | None], margin: float, unknown: str = "one_run"
) -> list[Row]:
    """Rows with verdicts, in the order of the entries.

    Half of the permitted error is for the model's figures, and half is shared evenly by the levels of parts;
    within each, rows are corrected by Holm's procedure.

    Args:
        entries: The rows to judge.
        evidence: Contrast of each entry.
        margin: Relative difference below which two sides count as equal.
        unknown: Reason for entries without a contrast.
    """
    rows: list[Row | None] = [None] * len(entries)
    parts = {entry.key.level for entry in entries} - {"model"}
    for level in {entry.key.level for entry in entries}:
        alpha = ALPHA / 2 if parts else ALPHA
        alpha = alpha if level == "model" else alpha / len(parts)
        own = [i for i, entry in enumerate(entries) if entry.key.level == level]
        tested = [(i, contrast.p()) for i in own if (contrast := evidence[i]) is not None]
        verdicts = dict(zip((i for i, _ in tested), holm([p for _, p in tested], alpha), strict=True))
        for i in own:
            rejected, at = verdicts.get(i, (False, alpha))
            rows[i] = _row(entries[i], evidence[i], rejected, at, margin, unknown)
    return [row for row in rows if row is not None]


def _row(entry: Entry, contrast: Contrast | None, rejected: bool, alpha: float, margin: float, unknown: str) -> Row:
    a, b = entry.a.mean(), entry.b.mean()
    flags = list(entry.flags)
    reason: str | None
    if contrast is None:
        reason = unknown if entry.measured else a.reason or b.reason or "not_measured"
        difference, change = _without_interval(a, b, reason)
        verdict, p, detectable = INCONCLUSIVE, None, None
    else:
        difference, change, p = contrast.difference(alpha), contrast.change(alpha), contrast.p()
        detectable = contrast.detectable(alpha)
        verdict, reason = _verdict(entry.metric, contrast, change, rejected, margin)
        if verdict in DIFFERENT and _within(change, margin):
            flags.append("below_margin")
    key = entry.key
    return Row(
        level=key.level,
        name=key.name or key.op,
        where=key.module if key.module != key.name else "",
        shapes=key.shapes,
        metric=entry.metric,
        a=a,
        b=b,
        difference=difference,
        change=change,
        confidence=1 - alpha,
        p=p,
        verdict=verdict,
        reason=reason,
        detectable=detectable,
        flags=tuple(flags),
    )


def _verdict(
    metric: str, contrast: Contrast, change: Estimate, rejected: bool, margin: float
) -> tuple[str, str | None]:
    if rejected:
        told = change.low is None or change.high is None or not change.low <= 0 <= change.high
        if contrast.gain and not told:
            return INCONCLUSIVE, "sensor_gain"
        less, more = (LOWER, HIGHER) if metric in _NEUTRAL else (BETTER, WORSE)
        return (more if contrast.b > contrast.a else less), None
    if _within(change, margin):
        return SAME, None
    wide_by_gain = contrast.gain >= margin
    return INCONCLUSIVE, "sensor_gain" if wide_by_gain else "spread_between_runs"


def _within(change: Estimate, margin: float) -> bool:
    return change.low is not None and change.high is not None and -margin <= change.low and change.high <= margin


def _without_interval(a: Estimate, b: Estimate, reason: str) -> tuple[Estimate, Estimate]:
    """The plain difference, where both sides have figures."""
    if a.value is None or b.value is None:
        return Estimate.null(reason, METHOD), Estimate.null(reason, METHOD)
    difference = Estimate(b.value - a.value, n=1, method=METHOD)
    if a.value <= 0:
        return difference, Estimate.null("denominator_near_zero", METHOD)
    return difference, Estimate(b.value / a.value - 1, n=1, method=METHOD)
