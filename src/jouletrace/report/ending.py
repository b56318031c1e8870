"""How a Run ended, where it did not end by itself: said before its figures, which rest on a part of it."""

from __future__ import annotations

from jouletrace.run import Run, RunWarning

_ENDINGS = ("interrupted", "failed", "incomplete")
"""Codes of warnings that say so."""

_UNSAID = "the run did not end by itself: the figures rest on what was recorded until then"


def endings(run: Run) -> list[RunWarning]:
    """What says that a Run ended early, at least one of each that did; empty of a whole one."""
    if run.complete:
        return []
    return [warning for warning in run.warnings if warning.code in _ENDINGS] or [RunWarning("incomplete", _UNSAID)]


def others(run: Run) -> list[RunWarning]:
    """All other warnings of a Run."""
    return [warning for warning in run.warnings if run.complete or warning.code not in _ENDINGS]


def said(warning: RunWarning) -> str:
    """A warning in one line, with where it arose unless it says so itself."""
    placed = warning.where and warning.where not in warning.message
    return f"{warning.message} ({warning.where})" if placed else warning.message
