"""The truth of a simulation: exact energies, and how they divide.

It serves tests and benchmarks. No code that estimates may read it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.simulator.boards import engine as columns
from jouletrace.simulator.boards.engine import Engine
from jouletrace.simulator.boards.kernels import Schedule, Timeline
from jouletrace.simulator.boards.presets import Parameters, Preset

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


class Truth:
    """Exact values for one GPU. All windows are in nanoseconds since the Unix epoch."""

    def __init__(self, engine: Engine, preset: Preset, parameters: Parameters, cap_w: float | None) -> None:
        self._engine = engine
        self._preset = preset
        self._parameters = parameters
        self._cap_w = cap_w

    def energy_j(self, start_ns: int, end_ns: int) -> float:
        """Exact integral of the GPU's electrical power over a window, in joules."""
        self._within(start_ns, end_ns)
        return self._difference(columns.ENERGY, start_ns, end_ns)

    def caused_energy_j(self, start_ns: int, end_ns: int) -> float:
        """Energy that the work from start to end caused, the settling tail included.

        It is the energy drawn in the window, plus what would follow if the load stopped at its end,
        less what was caused before its start. It is additive over windows, and equals ``energy_j``
        where the load is the same at both edges.
        """
        return self.energy_j(start_ns, end_ns) + self._difference(columns.TAIL, start_ns, end_ns)

    def idle_w(self, at_ns: int, context: bool = True) -> float:
        """Noiseless idle power at the temperature of that moment, in watts."""
        return self._engine.idle_w(self.temperature_c(at_ns), context)

    def temperature_c(self, at_ns: int) -> float:
        """True temperature of the die."""
        return self._engine.trace.held(columns.TEMPERATURE, at_ns)

    def clock_mhz(self, start_ns: int, end_ns: int) -> float:
        """Mean SM clock over a window."""
        seconds, _, clock = self._cells(start_ns, end_ns)
        return float(np.average(clock, weights=seconds))

    def parameters(self) -> Parameters:
        """The hidden parameters, for tests of a calibration."""
        return self._parameters

    def step(self, schedule: Schedule, start_ns: int, end_ns: int) -> StepTruth:
        """Mean iteration of a window that holds nothing but iterations of ``schedule``.

        Kernels and idle time sum exactly to the energy caused in the window: the noise of the load
        is apportioned to the kernels by their energy.
        """
        seconds, idle_w, clock = self._cells(start_ns, end_ns)
        used = np.unique(clock).tolist()
        at = [float(seconds[clock == mhz].sum()) for mhz in used]
        lines = [self._line(schedule, mhz) for mhz in used]
        counts = np.array([spent / line.period_s for spent, line in zip(at, lines, strict=True)])
        count = float(counts.sum())
        share = counts / count
        times = np.array([line.kernel_s for line in lines])
        active = share @ np.array([line.kernel_active_j for line in lines])
        idle_mean_w = float(np.average(idle_w, weights=seconds))
        energy = self.caused_energy_j(start_ns, end_ns) / count
        time = float(seconds.sum()) / count
        scale = (energy - idle_mean_w * time) / active.sum() if active.sum() > 0 else 1.0
        return self._truth(time, idle_mean_w, self.clock_mhz(start_ns, end_ns), share @ times, active * scale)

    def steady(
        self, schedule: Schedule, temperature_c: float | None = None, clock_mhz: float | None = None
    ) -> StepTruth:
        """The noiseless iteration to which a schedule settles under the power cap."""
        idle_w = self._engine.idle_w(temperature_c, context=True)
        top = self._preset.clock_max_mhz
        clock = top if clock_mhz is None else clock_mhz
        if clock_mhz is None and self._cap_w is not None and self._power_w(schedule, top, idle_w) > self._cap_w:
            low, high = self._preset.clock_min_mhz, top
            for _ in range(_HALVINGS):
                clock = (low + high) / 2
                low, high = (low, clock) if self._power_w(schedule, clock, idle_w) > self._cap_w else (clock, high)
        line = self._line(schedule, clock)
        return self._truth(line.period_s, idle_w, clock, line.kernel_s, line.kernel_active_j)

    @staticmethod
    def _truth(time_s: float, idle_w: float, clock: float, kernel_s: Floats, active_j: Floats) -> StepTruth:
        total = float(active_j.sum())
        return StepTruth(
            time_s, idle_w * time_s + total, total, clock, kernel_s, kernel_s * idle_w + active_j, active_j
        )

    def _power_w(self, schedule: Schedule, clock_mhz: float, idle_w: float) -> float:
        line = self._line(schedule, clock_mhz)
        return idle_w + line.active_j / line.period_s

    def _line(self, schedule: Schedule, clock_mhz: float) -> Timeline:
        ratio = clock_mhz / self._preset.clock_max_mhz
        return schedule.timeline(ratio, self._parameters.voltage_squared(ratio))

    def _cells(self, start_ns: int, end_ns: int) -> tuple[Floats, Floats, Floats]:
        """Seconds, idle power and clock of each cell within a window, shapes (cells,)."""
        self._within(start_ns, end_ns)
        edges, data = self._engine.trace.edges(start_ns, end_ns)
        seconds = np.diff(np.clip(edges, start_ns, end_ns)).astype(np.float64) / 1e9
        idle_w = np.array([self._engine.idle_w(float(heat), True) for heat in data[columns.TEMPERATURE, 1:]])
        return seconds, idle_w, data[columns.CLOCK, 1:]

    def _difference(self, column: int, start_ns: int, end_ns: int) -> float:
        trace = self._engine.trace
        return float(trace.reached(column, end_ns) - trace.reached(column, start_ns))

    def _within(self, start_ns: int, end_ns: int) -> None:
        trace = self._engine.trace
        if not trace.start_ns <= start_ns <= end_ns <= trace.end_ns:
            raise ValueError(
                f"window {start_ns}..{end_ns} is not within the simulated time {trace.start_ns}..{trace.end_ns}"
            )
