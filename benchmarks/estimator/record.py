"""A simulated record of one burst with its truth."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Record:
    """Readings around one burst."""

    stamps_s: NDArray[np.float64]  # as the driver gives them, shape (n,)
    watts: NDArray[np.float64]  # shape (n,)
    span_s: tuple[float, float]  # start and end of the burst
    energy_j: float  # its true energy
    rise_s: float  # the sensor's true memory
