"""Simulated GPU power with known truth, and sensors that sample it. Tests attribution and shares no code with it."""

from jouletrace.simulator.scenarios import GROUPS, Recording, Truth, draw, simulate

__all__ = ["GROUPS", "Recording", "Truth", "draw", "simulate"]
