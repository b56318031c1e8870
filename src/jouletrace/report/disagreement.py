"""By how much removal and repetition disagree about a part, where both are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jouletrace.report.reasons import flag
from jouletrace.report.results import Figure
from jouletrace.report.scale import NBSP

CODE = "methods_disagree"
_PAIRS = (("energy_removal_j", "energy_repetition_j"), ("time_removal_s", "time_repetition_s"))


def share(figures: Mapping[str, Figure]) -> float | None:
    """The difference of the two over the larger of them; None unless the part is flagged and has both."""
    if not any(CODE in figure.flags for figure in figures.values()):
        return None
    for names in _PAIRS:
        one, other = (figures[name].estimate.value if name in figures else None for name in names)
        if one is not None and other is not None and (one or other):
            return abs(one - other) / max(abs(one), abs(other))
    return None


def largest(rows: Iterable[tuple[str, Mapping[str, Figure]]]) -> str:
    """What the flag means in a table of these rows: with the largest disagreement, and whose it is."""
    known = [(size, name) for name, figures in rows if (size := share(figures)) is not None]
    if not known:
        return flag(CODE)
    size, name = max(known)
    return f"{flag(CODE)}: by {'up to ' if len(known) > 1 else ''}{_percent(size)} ({name})"


def own(figures: Mapping[str, Figure]) -> str:
    """What the flag means on one row."""
    size = share(figures)
    return flag(CODE) if size is None else f"{flag(CODE)}: by {_percent(size)}"


def _percent(size: float) -> str:
    return f"{100 * size:.{0 if size >= 0.1 else 1}f}{NBSP}%"
