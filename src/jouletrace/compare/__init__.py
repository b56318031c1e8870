"""Comparison of Runs: which figures differ, by how much, and whether chance can explain it."""

from jouletrace.compare.compare import compare
from jouletrace.compare.options import CompareOptions
from jouletrace.compare.several import against_first

__all__ = ["CompareOptions", "against_first", "compare"]
