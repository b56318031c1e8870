"""GPUs whose every joule is known: the truth that the rest of jouletrace is tested against.

Nothing here is shared with what estimates (``energy``, ``experiments``), and the parameters of a
GPU are drawn by its seed and hidden: sensors have to be calibrated as on a real GPU.
"""

from jouletrace.simulator.boards.board import Board
from jouletrace.simulator.boards.device import SimulatedGpu
from jouletrace.simulator.boards.kernels import Schedule, SimKernel
from jouletrace.simulator.boards.opening import open_simulated
from jouletrace.simulator.boards.presets import PRESETS
from jouletrace.simulator.boards.truth import StepTruth, Truth

__all__ = ["PRESETS", "Board", "Schedule", "SimKernel", "SimulatedGpu", "StepTruth", "Truth", "open_simulated"]
