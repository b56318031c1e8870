"""Compares a simulated GPU with a real one: the recordings of an H100, replayed.

The sensor's response is calibrated on one recording (copies, below the power cap). The powers of
the loads, and the two figures of the loop that holds the cap, are fitted to one part of each
recording. Then the simulated GPU is given the same load at the same times, without noise, and
its readings are compared with the real ones in the other part.

    python benchmarks/reality.py
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from jouletrace.sensor.calibration.fit import fit_response
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.simulator.boards import SimulatedGpu
from recordings import Recording, recording

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from step_truth import read_at

Floats = NDArray[np.float64]

REST_NS = 1_200_000_000
PROBE_W = 300.0
LEARNT_EDGES = 4
"""So many edges of the capped recording its loop is fitted to: two pulses of 2 s."""


@dataclass(frozen=True)
class Board:
    """A simulated GPU with the calibrated parameters of a real one."""

    given: dict[str, float]  # its parameters, as in ``sim:h100?given=``
    cap: str = "off"  # power limit in watts, or "off"

    def with_given(self, **changes: float) -> "Board":
        return Board(self.given | changes, self.cap)

    @property
    def spec(self) -> str:
        given = ",".join(f"{name}:{value:.9g}" for name, value in self.given.items())
        return f"sim:h100?noise=0&cap={self.cap}&given={given}"


@dataclass(frozen=True)
class Likeness:
    """How near the simulated readings come to the real ones."""

    name: str  # which readings
    n: int  # how many were compared
    swing_w: float  # standard deviation of the real ones
    rms_w: float  # root mean square of the difference
    on_time_rms_w: float  # the same of readings whose time is beyond doubt
    median_w: float  # median of its size
    explained: float  # share of the real readings' variance that the simulated ones explain

    def row(self) -> str:
        return (
            f"| {self.name} | {self.n} | {self.swing_w:.0f} | {self.rms_w:.1f} | {self.on_time_rms_w:.1f} "
            f"| {self.median_w:.1f} | {100 * self.explained:.1f} % |"
        )


@cache
def calibrated() -> StepResponse:
    """The response of the 20 ms record, from pulses of copies below the cap."""
    source = recording("h100_copies")
    return fit_response(source.time_ns, source.power_w, source.edge_ns, source.level)


def board(cap: str = "off") -> Board:
    """A GPU whose record responds like the calibrated one, with all of the response in the sensor."""
    response = calibrated()
    given = {
        "record_period_s": response.period_s,
        "record_lag_s": response.lag_s,
        "record_window_s": response.window_s,
        "record_rise_s": response.rise_s,
        "fast_s": 1e-6,
        "slow_share": 1e-9,
    }
    return Board(given, cap)


def replay(source: Recording, on: Board, watts: Sequence[float | None], edges: int | None = None) -> Floats:
    """Readings of the simulated GPU at the times of the real readings, shape (n,) or fewer.

    Args:
        source: The load, and the times.
        on: The GPU.
        watts: Board power of each level; None for rest.
        edges: Stop at the rest after so many edges; None for all.
    """
    gpu = SimulatedGpu(on.spec)
    now = gpu.clock.time_ns
    gpu.board.hold_context()
    offset = now() - (min(source.time_ns[0], source.edge_ns[0]) - REST_NS)
    for edge, level in zip(source.edge_ns[:edges], source.level, strict=False):
        power, seconds = watts[level], int(edge + offset - now()) / 1e9
        if power is None:
            gpu.board.wait(seconds)
        else:
            gpu.board.load(power, seconds)
    read = source.read_ns
    if edges is not None:
        read = read[read < source.edge_ns[edges]]
    gpu.board.wait(int(read[-1] + offset - now()) / 1e9 + 0.1)
    return read_at(gpu, source.channel, read + offset)


def fitted_levels(source: Recording, on: Board) -> tuple[Floats, Floats]:
    """Simulated readings of a load below the cap, with its powers fitted to every other segment.

    Below the cap a GPU is linear in its load: one replay per level gives the effect of a watt of it.

    Returns:
        The readings, and the watts of rest and of each level.
    """
    rest: list[float | None] = [None] * len(source.labels)
    idle = replay(source, on, rest)
    columns = [np.ones(len(idle))]
    for level in range(1, len(source.labels)):
        probe = list(rest)
        probe[level] = float(idle.mean()) + PROBE_W
        columns.append((replay(source, on, probe) - idle) / PROBE_W)
    design, learn = np.stack(columns, 1), ~source.other_half()
    watts = np.linalg.lstsq(design[learn], (source.power_w - idle)[learn], rcond=None)[0]
    levels = idle.mean() + watts[0] + np.append(0.0, watts[1:])
    return idle + design @ watts, levels


@cache
def capped() -> tuple[Board, float]:
    """The loop that holds the power cap, fitted to the first two pulses of the square waves.

    Returns:
        The GPU, and the power that the load requests.
    """
    source = recording("h100_squares")
    start = board("700")

    def moved(x: Floats) -> tuple[Board, float]:
        ask, tick, gain, idle = x.tolist()
        changes = {"governor_s": 1e-2 * abs(tick), "governor_gain": abs(gain), "context_idle_w": 100 * idle}
        return start.with_given(**changes), 1000 * ask

    def misfit(x: Floats) -> float:
        on, ask = moved(x)
        found = replay(source, on, [None, ask], LEARNT_EDGES)
        return float(np.mean((source.power_w[: len(found)] - found) ** 2))

    begin = np.array([0.95, 0.9, 0.08, 1.2])
    simplex = np.vstack([begin, begin * (1 + 0.1 * np.eye(4))])
    best = minimize(misfit, begin, method="Nelder-Mead", options={"initial_simplex": simplex, "maxiter": 40})
    return moved(best.x)


def likeness(name: str, source: Recording, found: Floats, test: NDArray[np.bool_]) -> Likeness:
    error, real = (source.power_w - found)[test], source.power_w[test]
    rms, on_time = (float(np.sqrt(np.mean(some**2))) for some in (error, error[source.on_time[test]]))
    explained = 1 - rms**2 / float(real.var())
    return Likeness(name, len(error), float(real.std()), rms, on_time, float(np.median(np.abs(error))), explained)


def copies() -> Likeness:
    source = recording("h100_copies")
    return likeness("pulses of copies", source, fitted_levels(source, board())[0], source.other_half())


def segments() -> Likeness:
    source = recording("h100_segments")
    return likeness("step of four segments", source, fitted_levels(source, board())[0], source.other_half())


def squares() -> list[Likeness]:
    source = recording("h100_squares")
    on, ask = capped()
    found = replay(source, on, [None, ask])
    pulse = np.repeat(np.diff(source.edge_ns)[::2], 2)
    latest = np.clip(np.searchsorted(source.edge_ns, source.time_ns) - 1, 0, None)
    length = pulse[latest] / 1e9
    later = np.searchsorted(source.edge_ns, source.time_ns) >= LEARNT_EDGES
    parts = (("0.5 s to 1 s", 0.4, 1.5), ("0.1 s and 0.2 s", 0.08, 0.4), ("bursts of 10 ms to 50 ms", 0.0, 0.08))
    return [
        likeness(f"under the cap: {name}", source, found, later & (length > low) & (length < high))
        for name, low, high in parts
    ]


def main() -> None:
    """Print everything, as Markdown."""
    rows = [copies(), segments(), *squares()]
    response = calibrated()
    on, ask = capped()
    print("| recording | readings | their sd, W | RMS difference, W | of those on time, W | median, W | explained |")
    print("|---" * 7 + "|", *(row.row() for row in rows), "", sep="\n")
    print(
        f"Response: lag {1e3 * response.lag_s:.2f} ms, window {1e3 * response.window_s:.2f} ms, "
        f"rise {1e3 * response.rise_s:.2f} ms. Under the cap the product asks for {ask:.0f} W; "
        f"the loop ticks every {1e3 * on.given['governor_s']:.1f} ms with gain {on.given['governor_gain']:.3f}."
    )


if __name__ == "__main__":
    main()
