"""Words and numbers of comparisons."""

from __future__ import annotations

from jouletrace.report import reasons
from jouletrace.report.scale import NBSP, NONE, fixed
from jouletrace.run import Estimate

REASONS: dict[str, str] = {
    "one_run": "one run per side doesn't show the spread between runs: use --repeats or several Runs",
    "sensor_gain": "not distinguishable from sensor gain",
    "spread_between_runs": "the spread between runs leaves it open",
    "few_blocks": "too few blocks for a verdict",
}
"""By reason code: why a verdict is inconclusive."""

FLAGS: dict[str, str] = {
    "dtype_differs": "matched though the types of its inputs differ",
    "shapes_differ": "matched though the shapes of its inputs differ",
    "kernel_differs": "another kernel under the same operator",
    "below_margin": "significant, but below the margin",
}
"""By flag code: what a reader must know about a row."""


def reason(code: str | None) -> str:
    """Why a verdict is inconclusive, in words."""
    return REASONS.get(code or "", "") or reasons.reason(code)


def flag(code: str) -> str:
    """A flag in words."""
    return FLAGS.get(code) or reasons.flag(code)


def percent(share: float) -> str:
    """A share in percent, to two digits: "0.34 %"."""
    return f"{_number(100 * share)}{NBSP}%"


def signed(change: Estimate) -> str:
    """A relative change with its interval: "+3.1 % (+2.2 to +4.0)"; "–" where there is none."""
    if change.value is None:
        return NONE
    text = f"{_signed(change.value)}{NBSP}%"
    if change.low is None or change.high is None:
        return text
    return f"{text} ({_signed(change.low)}{NBSP}to{NBSP}{_signed(change.high)})"


def _signed(share: float) -> str:
    text = _number(100 * share)
    return text if text.startswith("−") or not text.strip("0.") else f"+{text}"


def _number(value: float) -> str:
    return fixed(value, 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2)
