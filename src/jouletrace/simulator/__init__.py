"""Simulated GPU power and sensors that sample it, with the truth beside: proves attribution, shares no code with it."""

from jouletrace.simulator.scenarios import GROUPS, Recording, Truth, draw, simulate

__all__ = ["GROUPS", "Recording", "Truth", "draw", "simulate"]
