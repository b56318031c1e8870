"""Simulated GPUs whose energy is known exactly, to test the rest of jouletrace.

This package shares no code with the packages that estimate (``sensor``, ``attribution``). The seed draws the
parameters of a GPU, and they stay hidden: its sensors have to be calibrated as on a real GPU.
"""

from jouletrace.simulator.boards.board import Board
from jouletrace.simulator.boards.device import SimulatedGpu
from jouletrace.simulator.boards.kernels import Schedule, SimKernel
from jouletrace.simulator.boards.presets import PRESETS
from jouletrace.simulator.boards.truth import Truth

__all__ = ["PRESETS", "Board", "Schedule", "SimKernel", "SimulatedGpu", "Truth"]
