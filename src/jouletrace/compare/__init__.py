"""Holding Runs against one another: what differs, by how much, and whether that can be determined from chance."""

from jouletrace.compare.compare import compare
from jouletrace.compare.options import CompareOptions
from jouletrace.compare.several import against_first

__all__ = ["CompareOptions", "against_first", "compare"]
