"""Which response the 20 ms record of an H100 has: a boxcar, an exponential, or one after the other.

Each is fitted to every recording, with the load known to be a few levels and their settling (variable projection, as
``calibrate`` does). What is stated is how much of the variance of the other half of the readings it explains.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from jouletrace.sensor.calibration.fitter import load_features
from jouletrace.sensor.calibration.response import StepResponse
from recordings import Recording

Floats = NDArray[np.float64]

MODELS = {"boxcar": ("lag", "window"), "exponential": ("lag", "rise"), "both": ("lag", "window", "rise")}
PERIOD_S = 0.02
STARTS = ((0.0, 0.025, 0.004), (0.003, 0.005, 0.013), (-0.005, 0.015, 0.008))
SHAPE = ("lag", "window", "rise")


@dataclass(frozen=True)
class Found:
    """A model's best shape on a recording, in seconds, and how much of the other half's variance it explains."""

    lag_s: float
    window_s: float
    rise_s: float
    explained: float


class Levels:
    """A recording whose load is a few levels, each with a drift and a settling."""

    def __init__(self, source: Recording) -> None:
        self.power, self.test = source.power_w, source.other_half()
        origin = source.time_ns[0]
        self.time = (source.read_ns - origin) / 1e9
        edges = (source.edge_ns - origin) / 1e9
        self.features = load_features(edges, source.level, self.time[0] - 1, self.time[-1] + 0.3, PERIOD_S)
        self.ridge = np.diag(1 / (self.features.prior_sd * 20) ** 2) + 1e-9 * np.eye(len(self.features.mean))
        self.scale = float(np.subtract(*np.percentile(self.power, [95, 5])))

    def residual(self, shape: Floats, fit: NDArray[np.bool_]) -> Floats:
        """Readings less the model's, its amplitudes fitted to some of them."""
        lag, window, rise = shape.tolist()
        design = self.features.read(self.time, StepResponse(PERIOD_S, window, rise, lag))
        return np.asarray(self.power - design @ self.amplitudes(design, fit))

    def amplitudes(self, design: Floats, fit: NDArray[np.bool_]) -> Floats:
        """Powers of the levels, their drifts and settlings, in watts."""
        normal = design[fit].T @ design[fit] + self.ridge
        return np.asarray(np.linalg.solve(normal, design[fit].T @ self.power[fit]))

    def fit(self, model: str) -> Found:
        free = [SHAPE.index(name) for name in MODELS[model]]
        everything = np.ones(len(self.power), bool)

        def shape(x: Floats) -> Floats:
            full = np.zeros(3)
            full[free] = (x - 1) * PERIOD_S  # steps of the search are a share of x, which may be about zero
            return full

        low, high = np.array([-1.0, 0, 0])[free] + 1, np.array([2.0, 3, 3])[free] + 1
        tries = [
            least_squares(
                lambda x: self.residual(shape(x), everything) / self.scale,
                np.clip(np.array(start)[free] / PERIOD_S + 1, low + 1e-3, high - 1e-3),
                bounds=(low, high),
                diff_step=0.01,
                loss="soft_l1",
                f_scale=0.05,
            )
            for start in STARTS
        ]
        best = shape(min(tries, key=lambda found: found.cost).x)
        lost = sum(float(np.sum(self.residual(best, fit)[~fit] ** 2)) for fit in (self.test, ~self.test))
        return Found(*best.tolist(), 1 - lost / (len(self.power) * float(np.var(self.power))))
