"""Comparison of Runs: which figures differ, by how much, and whether chance can explain it."""

from jouletrace.compare.compare import against_first, compare

__all__ = ["against_first", "compare"]
