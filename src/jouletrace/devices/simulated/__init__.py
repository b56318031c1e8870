"""Boards whose every joule is known: the truth that the rest of jouletrace is tested against.

Nothing here is shared with what estimates (``energy``, ``experiments``), and the parameters of a
board are drawn by its seed and hidden: sensors have to be calibrated as on a real board.
"""

from jouletrace.devices.simulated.board import Board
from jouletrace.devices.simulated.device import SimulatedGpu, open_simulated
from jouletrace.devices.simulated.kernels import Schedule, SimKernel
from jouletrace.devices.simulated.presets import PRESETS
from jouletrace.devices.simulated.truth import StepTruth, Truth

__all__ = ["PRESETS", "Board", "Schedule", "SimKernel", "SimulatedGpu", "StepTruth", "Truth", "open_simulated"]
