"""Names of metrics and parts as they are printed."""

from __future__ import annotations

from jouletrace.run.metrics import METRICS, Metric
from jouletrace.run.recording_names import IDLE_NAME

NO_KERNEL = "no kernel running"
"""The time between kernels, and its energy, as it is printed: in files it is ``IDLE_NAME``, which people take for the
power of an idle GPU."""


def printed(name: str | None) -> str:
    """A unit's name as it is printed, in parentheses or not."""
    if name is not None and name.strip("()") == IDLE_NAME:
        return name.replace(IDLE_NAME, NO_KERNEL)
    return str(name or "?")


PROFILE = (
    "latency_s",
    "throughput_per_s",
    "power_w",
    "energy_total_j",
    "energy_active_over_context_idle_j",
    "energy_active_over_deep_idle_j",
    "baseline_context_idle_w",
    "baseline_deep_idle_w",
)
"""What a profile always states: a figure, or why there is none."""

_SUFFIXES = {"_per_s": "1/s", "_s": "s", "_w": "W", "_j": "J", "_mhz": "MHz", "_c": "°C", "_bytes": "B", "_pct": "pct"}


def metric(name: str) -> Metric:
    """How a metric is printed; one that isn't in the table is named and measured by its own name."""
    if name in METRICS:
        return METRICS[name]
    for suffix, unit in _SUFFIXES.items():
        if name.endswith(suffix):
            words = name.removesuffix(suffix).replace("_", " ")
            return Metric(words.capitalize(), unit, words)
    words = name.replace("_", " ")
    return Metric(words.capitalize(), "1", words)


def ordered(names: set[str]) -> list[str]:
    """Metrics in the order of ``METRICS``, unknown ones last by name."""
    return [name for name in METRICS if name in names] + sorted(names - set(METRICS))
