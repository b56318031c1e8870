"""The truth of a simulation: exact energies.

It serves tests and benchmarks. No code that estimates may read it.
"""

from __future__ import annotations

from jouletrace.simulator.boards import engine as columns
from jouletrace.simulator.boards.engine import Engine
from jouletrace.simulator.boards.presets import Parameters


class Truth:
    """Exact values for one GPU. All windows are in nanoseconds since the Unix epoch."""

    def __init__(self, engine: Engine, parameters: Parameters) -> None:
        self._engine = engine
        self._parameters = parameters

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

    def parameters(self) -> Parameters:
        """The hidden parameters, for tests of a calibration."""
        return self._parameters

    def _difference(self, column: int, start_ns: int, end_ns: int) -> float:
        trace = self._engine.trace
        return float(trace.reached(column, end_ns) - trace.reached(column, start_ns))

    def _within(self, start_ns: int, end_ns: int) -> None:
        trace = self._engine.trace
        if not trace.since_ns <= start_ns <= end_ns <= trace.end_ns:
            raise ValueError(
                f"window {start_ns}..{end_ns} is not within the simulated time {trace.since_ns}..{trace.end_ns}"
            )
