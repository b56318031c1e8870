"""Of a simulated GPU: true iterations of a schedule, in a window or once settled, and readings of the past."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jouletrace.arrays import Floats, Ints
from jouletrace.run.channels import POWER
from jouletrace.simulator.boards import Schedule, SimulatedGpu
from jouletrace.simulator.boards import engine as columns
from jouletrace.simulator.boards.kernels import SteadyTimeline
from jouletrace.simulator.boards.presets import find

_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class StepTruth:
    """One iteration of a schedule: the mean over a window, or a steady state."""

    time_s: float  # seconds
    energy_j: float  # energy of the GPU
    active_j: float  # energy over context idle
    clock_mhz: float  # SM clock
    kernel_s: Floats  # seconds of each kernel, shape (kernels,)
    kernel_j: Floats  # energy of each kernel, idle power over its time included, shape (kernels,)
    kernel_active_j: Floats  # energy of each kernel over context idle, shape (kernels,)

    @property
    def gap_s(self) -> float:
        """Seconds of an iteration in which no kernel runs."""
        return self.time_s - float(self.kernel_s.sum())


def clock_mhz(gpu: SimulatedGpu, start_ns: int, end_ns: int) -> float:
    """Mean SM clock over a window."""
    seconds, _, clock = _cells(gpu, start_ns, end_ns)
    return float(np.average(clock, weights=seconds))


def mean_step(gpu: SimulatedGpu, schedule: Schedule, start_ns: int, end_ns: int) -> StepTruth:
    """Mean iteration of a window that holds nothing but iterations of ``schedule``.

    Kernels and idle time sum exactly to the energy caused in the window: the noise of the load is apportioned to the
    kernels by their energy.
    """
    seconds, idle_w, clock = _cells(gpu, start_ns, end_ns)
    used = np.unique(clock).tolist()
    at = [float(seconds[clock == mhz].sum()) for mhz in used]
    lines = [_line(gpu, schedule, mhz) for mhz in used]
    counts = np.array([spent / line.period_s for spent, line in zip(at, lines, strict=True)])
    count = float(counts.sum())
    share = counts / count
    times = np.array([line.kernel_s for line in lines])
    active = share @ np.array([line.kernel_active_j for line in lines])
    idle_mean_w = float(np.average(idle_w, weights=seconds))
    energy = gpu.truth.caused_energy_j(start_ns, end_ns) / count
    time = float(seconds.sum()) / count
    scale = (energy - idle_mean_w * time) / active.sum() if active.sum() > 0 else 1.0
    return _truth(time, idle_mean_w, clock_mhz(gpu, start_ns, end_ns), share @ times, active * scale)


def steady_step(
    gpu: SimulatedGpu, schedule: Schedule, temperature_c: float | None = None, clock_mhz: float | None = None
) -> StepTruth:
    """The noiseless iteration to which a schedule settles under the power cap."""
    preset, cap_w = find(str(gpu.info.details["preset"])), gpu.board.cap_w
    idle_w = gpu.board.engine.idle_w(temperature_c, context=True)
    clock = preset.clock_max_mhz if clock_mhz is None else clock_mhz
    if clock_mhz is None and cap_w is not None and _power_w(gpu, schedule, clock, idle_w) > cap_w:
        low, high = preset.clock_min_mhz, clock
        for _ in range(_HALVINGS):
            clock = (low + high) / 2
            low, high = (low, clock) if _power_w(gpu, schedule, clock, idle_w) > cap_w else (clock, high)
    line = _line(gpu, schedule, clock)
    return _truth(line.period_s, idle_w, clock, line.kernel_s, line.kernel_active_j)


def _truth(time_s: float, idle_w: float, clock: float, kernel_s: Floats, active_j: Floats) -> StepTruth:
    total = float(active_j.sum())
    return StepTruth(time_s, idle_w * time_s + total, total, clock, kernel_s, kernel_s * idle_w + active_j, active_j)


def _power_w(gpu: SimulatedGpu, schedule: Schedule, clock_mhz: float, idle_w: float) -> float:
    line = _line(gpu, schedule, clock_mhz)
    return idle_w + line.active_j / line.period_s


def _line(gpu: SimulatedGpu, schedule: Schedule, clock_mhz: float) -> SteadyTimeline:
    ratio = clock_mhz / find(str(gpu.info.details["preset"])).clock_max_mhz
    return schedule.timeline(ratio, gpu.truth.parameters().voltage_squared(ratio))


def _cells(gpu: SimulatedGpu, start_ns: int, end_ns: int) -> tuple[Floats, Floats, Floats]:
    """Seconds, idle power and clock of each cell within a window, shapes (cells,)."""
    engine = gpu.board.engine
    edges, data = engine.trace.edges(start_ns, end_ns)
    seconds = np.diff(np.clip(edges, start_ns, end_ns)).astype(np.float64) / 1e9
    idle_w = np.array([engine.idle_w(float(heat), True) for heat in data[columns.TEMPERATURE, 1:]])
    return seconds, idle_w, data[columns.CLOCK, 1:]


def read_at(gpu: SimulatedGpu, channel: str, time_ns: Ints) -> Floats:
    """Readings (W) of a power channel at given times of the past, shape as ``time_ns``."""
    there = gpu.instruments
    found = {
        POWER: there.ring or there.sparse,
        "power_average_w": there.average,
        "power_instant_w": there.instant,
    }[channel]
    assert found is not None
    return found.taken_at(time_ns)
