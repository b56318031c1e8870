"""Which response the 20 ms record of an H100 has: a boxcar, an exponential, or one after the other.

Each is fitted to every recording twice: with the load known to be a few levels and their settling
(variable projection, as ``calibrate`` does), and, for the step that repeats, with a free waveform
in bins of 2 ms. What is stated is how much of the variance of the other half of the readings it
explains.

    python benchmarks/sensor_models.py -o sensor-models.md
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, minimize

from jouletrace.sensor.calibration.fitter import load_features
from jouletrace.sensor.calibration.response import StepResponse
from output import print_text
from recordings import RECORDS, Recording, recording

Floats = NDArray[np.float64]

MODELS = {"boxcar": ("lag", "window"), "exponential": ("lag", "rise"), "both": ("lag", "window", "rise")}
PERIOD_S = 0.02
BIN_S = 0.002
LONGEST_S = 0.13
STARTS = ((0.0, 0.025, 0.004), (0.003, 0.005, 0.013), (-0.005, 0.015, 0.008))
SHAPE = ("lag", "window", "rise")


@dataclass(frozen=True)
class Found:
    """A model's best shape on a recording, in seconds, and how well it does on the other half."""

    recording: str
    model: str
    lag_s: float
    window_s: float
    rise_s: float
    rms_w: float
    explained: float

    def row(self) -> str:
        times = " | ".join(f"{1e3 * value:.1f}" for value in (self.lag_s, self.window_s, self.rise_s))
        return f"| {self.recording} | {self.model} | {times} | {self.rms_w:.1f} | {100 * self.explained:.2f} % |"


class Levels:
    """A recording whose load is a few levels, each with a drift and a settling."""

    def __init__(self, source: Recording) -> None:
        self.name, self.power, self.test = source.name, source.power_w, source.other_half()
        origin = source.time_ns[0]
        self.time = (source.read_ns - origin) / 1e9
        edges = (source.edge_ns - origin) / 1e9
        self.features = load_features(edges, source.level, self.time[0] - 1, self.time[-1] + 0.3, PERIOD_S)
        swing = float(np.subtract(*np.percentile(self.power, [95, 5])))
        self.ridge = np.diag(1 / (self.features.prior_sd * 20) ** 2) + 1e-9 * np.eye(len(self.features.mean))
        self.scale = swing

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
        left = [self.residual(best, fit)[~fit] for fit in (self.test, ~self.test)]
        lost = sum(float(part @ part) for part in left)
        error = self.residual(best, everything)
        explained = 1 - lost / (len(self.power) * float(np.var(self.power)))
        return Found(self.name, model, *best.tolist(), float(np.sqrt(np.mean(error**2))), explained)


def free_waveform(source: Recording, model: str, *, slots: bool) -> Found:
    """Fit the mean power in each 2 ms of a repeated step, whatever it is, and the model's two times."""
    origin = source.time_ns[0]
    starts = (source.edge_ns[:: len(source.labels)] - origin) / 1e9
    time = ((source.read_ns if slots else source.time_ns) - origin) / 1e9
    inside = (time > starts[0] + 0.2) & (time < starts[-1])
    time, power = time[inside], source.power_w[inside]
    test = (np.searchsorted(starts, time) // 4) % 2 == 1
    step = BIN_S / 2
    fine = np.arange(starts[0] - 0.1, time[-1] + 0.1, step)
    since = fine - starts[np.clip(np.searchsorted(starts, fine) - 1, 0, None)]
    count = round(LONGEST_S / BIN_S) + 1
    place = np.where((since >= 0) & (since < LONGEST_S), since / BIN_S, count - 1).astype(int)
    smooth = np.diff(np.eye(count), axis=0) * 0.01

    def lost(x: Floats) -> float:
        if x[1] < step / 2:
            return np.inf
        which = {"boxcar": "window_s", "exponential": "rise_s"}[model]
        response = StepResponse(PERIOD_S, lag_s=float(x[0]), **{which: float(x[1])})  # type: ignore[arg-type]
        reach = int((response.memory_s + 0.02) / step)
        index = ((time - fine[0]) / step).astype(int)[:, None] + 5 - np.arange(reach)
        delay = time[:, None] - fine[index]
        design = np.zeros((len(time), count))
        np.add.at(
            design,
            (np.arange(len(time))[:, None], place[index]),
            response.step(delay) - response.step(delay - step),
        )
        left = 0.0
        for fit in (test, ~test):
            known = np.vstack([design[fit], smooth])
            waveform = np.linalg.lstsq(known, np.append(power[fit], np.zeros(len(smooth))), rcond=None)[0]
            left += float(np.sum((power[~fit] - design[~fit] @ waveform) ** 2))
        return left / (len(power) * float(np.var(power)))

    begin = {"boxcar": (0.0, 0.025), "exponential": (0.002, 0.012)}[model]
    simplex = np.array([begin, (begin[0] + 0.003, begin[1]), (begin[0], 1.2 * begin[1])])
    best = minimize(lost, begin, method="Nelder-Mead", options={"initial_simplex": simplex, "maxiter": 40})
    lag, width = best.x.tolist()
    times = (lag, width, 0.0) if model == "boxcar" else (lag, 0.0, width)
    name = f"{source.name}, {'half slots' if slots else 'stamps as they are'}"
    rms = float(np.sqrt(best.fun * np.var(power)))
    return Found(name, model, *times, rms, 1 - float(best.fun))


def tables() -> str:
    """Both comparisons, as Markdown."""
    head = (
        "| recording | response | lag, ms | window, ms | rise, ms | RMS, W | other half explained |\n"
        + "|---" * 7
        + "|"
    )
    levels = [Levels(recording(name)).fit(model).row() for name in RECORDS for model in MODELS]
    repeated = recording("h100_segments")
    free = [
        free_waveform(repeated, model, slots=slots).row()
        for slots in (False, True)
        for model in ("boxcar", "exponential")
    ]
    return "\n".join(
        ["The load as levels that settle:", "", head, *levels, "", "The load as a free waveform:", "", head, *free]
    )


if __name__ == "__main__":
    print_text(__doc__, tables)
