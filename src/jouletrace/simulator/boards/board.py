"""A simulated GPU: runs kernels and loads, waits, holds a context."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import isfinite

import numpy as np

from jouletrace.arrays import Floats, Ints
from jouletrace.devices.base import Clock, RealClock
from jouletrace.errors import BadInputError
from jouletrace.simulator.boards.clock import FOREVER_NS, PLAN_NS, VirtualClock, virtual_start_ns
from jouletrace.simulator.boards.engine import CELL_NS, Engine
from jouletrace.simulator.boards.kernels import InTurn, Roofline, Schedule, SimKernel
from jouletrace.simulator.boards.load import Constant, Iterations, Load
from jouletrace.simulator.boards.presets import Parameters, Preset, generator
from jouletrace.simulator.boards.spec import SimSpec
from jouletrace.simulator.boards.truth import Truth

HISTORY_NS = 3_000_000_000
"""How long a GPU has been idle when it is opened: its sensors already have a history, as real ones do."""

REAL_PAST_NS = 60_000_000_000
"""Age in real time from which on a GPU may forget its past: no sensor looks back further, and a program may take days.

In virtual time all of it is kept, for whoever compares energies with the truth.
"""

Work = Schedule | Sequence[SimKernel]


class Board:
    """A GPU in virtual or real time.

    In virtual time every call returns at once and the clock jumps. In real time the GPU's state is
    computed when it is read, and ``run``, ``load`` and ``wait`` take the time that they simulate.
    Between calls the GPU is idle or follows the plan of its spec (``load=``).

    Attributes:
        clock: Its time; ``VirtualClock`` also has timers.
        truth: The exact energies; for tests only.
        roofline: From operations and bytes to kernels on this GPU.
    """

    def __init__(self, preset: Preset, parameters: Parameters, spec: SimSpec) -> None:
        self._parameters = parameters
        self._plan = spec.load
        self.cap_w = spec.cap_w(preset)
        real = RealClock()
        opened_ns = real.time_ns() if spec.realtime else virtual_start_ns()
        # In real time all processes that open a GPU see one plan; in virtual time every run sees the same plan.
        self._plan_from_ns = 0 if spec.realtime else opened_ns - PLAN_NS
        start_ns = opened_ns - HISTORY_NS
        rng = generator(preset, spec.seed, 1, spec.run)
        self.engine = Engine(
            preset,
            parameters,
            self.cap_w,
            start_ns=start_ns,
            rng=rng,
            noise=spec.noise,
            sharp=spec.sensor == "sampled",
            past_ns=REAL_PAST_NS if spec.realtime else FOREVER_NS,
        )
        self.truth = Truth(self.engine, parameters)
        self.roofline = Roofline(preset, parameters)
        self._jitter = generator(preset, spec.seed, 2, spec.run)
        now_ns = self._idle(start_ns + HISTORY_NS)
        self.clock: Clock = real if spec.realtime else VirtualClock(self._idle, now_ns, CELL_NS)

    @property
    def context_held(self) -> bool:
        """True if a context exists, which raises the clocks and the idle power."""
        return self.engine.context

    def hold_context(self) -> None:
        """Create a context, as any program that uses the GPU does. This begins a new run."""
        self.catch_up()
        if not self.engine.context:
            self.engine.context = True
            self.engine.new_run()

    def release_context(self) -> None:
        """End the last context: the GPU goes to deep idle."""
        self.catch_up()
        self.engine.context = False

    def wait(self, seconds: float) -> None:
        """Let ``seconds`` pass without work."""
        self.clock.sleep(seconds)
        self.catch_up()

    def schedule(self, kernels: Sequence[SimKernel], eager: bool = False, slowdown: float = 1.0) -> Schedule:
        """Schedule kernels with this GPU's idle times between them: as a graph, or launched one by one by the host."""
        p = self._parameters
        host_s = p.host_launch_s if eager else 0.0
        return Schedule(kernels, p.kernel_gap_s, p.launch_gap_s, host_s, slowdown)

    def run(self, work: Work, n: int = 1) -> tuple[int, int]:
        """Run ``n`` iterations back to back and wait for them.

        Returns:
            Start and end in nanoseconds since the Unix epoch.
        """
        return self._work(Iterations(self._as_schedule(work), self._count(n)))

    def run_timed(self, work: Work, n: int) -> Floats:
        """Seconds of each of ``n`` iterations as CUDA events between them measure them, shape (n,)."""
        iterations = Iterations(self._as_schedule(work), self._count(n), timed=True)
        self._work(iterations)
        # events resolve about half a microsecond, and a few iterations are disturbed
        error = self._jitter.normal(0.0, 0.3e-6, n) + (self._jitter.random(n) < 0.01) * 8e-6
        return np.diff(iterations.ends_s()) + np.abs(error)

    def run_traced(self, schedules: Sequence[Schedule]) -> Ints:
        """Run an iteration of each schedule in turn.

        The positions of kernels are those at the highest clock, scaled to the time that the whole took.

        Returns:
            Start and end of each kernel in ns since the Unix epoch, shape (kernels of all, 2).
        """
        work = InTurn(schedules)
        load = Iterations(work, 1, timed=True)
        start_ns, _ = self._work(load)
        line = work.at(1.0, 1.0)
        times_s = load.reached_s(np.array(line.edges_s[1:]) / line.period_s)
        return start_ns + np.round(times_s * 1e9).astype(np.int64).reshape(-1, 2)

    def cycles(self) -> tuple[int, int]:
        """Value of an SM's cycle counter, and the time of the read in nanoseconds since the Unix epoch.

        Reading it takes no time.
        """
        self.catch_up()
        return round(self.engine.cycles), self.engine.trace.end_ns

    def load(self, watts: float, seconds: float) -> tuple[int, int]:
        """Keep the GPU at a constant load of ``watts`` of board power, or less under a lower cap.

        Returns:
            Start and end in nanoseconds since the Unix epoch.
        """
        for name, value in (("watts", watts), ("seconds", seconds)):
            if not (isfinite(value) and value > 0):
                raise BadInputError(f"simulated load: {name} must be positive, not {value}")
        return self._work(Constant(watts, seconds))

    def run_load(self, load: Load) -> tuple[int, int]:
        """Run any load to its end; returns start and end in nanoseconds since the Unix epoch."""
        return self._work(load)

    def catch_up(self) -> None:
        """Simulate up to the present in real time; does nothing in virtual time."""
        if not self.clock.virtual:
            self._idle(self.clock.time_ns())

    def _work(self, load: Load) -> tuple[int, int]:
        self.hold_context()
        start_ns = self.engine.trace.end_ns
        if isinstance(self.clock, VirtualClock):
            self.clock.advance(lambda until_ns: self.engine.run(until_ns, load))
            return start_ns, self.engine.trace.end_ns
        end_ns = self.engine.run(start_ns + FOREVER_NS, load)
        self.clock.sleep((end_ns - self.clock.time_ns()) / 1e9)
        return start_ns, end_ns

    def _idle(self, until_ns: int) -> int:
        """Simulate the GPU without work until ``until_ns``: idle, or by the plan of its spec."""
        reached = self.engine.trace.end_ns
        while reached < until_ns:
            piece_ns, load = self._planned(reached)
            reached = self.engine.run(min(until_ns, piece_ns), load)
        return reached

    def _planned(self, at_ns: int) -> tuple[int, Load | None]:
        """End of the present piece of the plan, and its load.

        In real time the plan repeats from the Unix epoch on, so that all processes that open a GPU
        see the same plan.
        """
        if not self._plan:
            return at_ns + HISTORY_NS, None
        lengths = [round(seconds * 1e9) for seconds, _ in self._plan]
        since = self._plan_from_ns
        begin = since + (at_ns - since) // sum(lengths) * sum(lengths)
        ends = [begin + end for end in accumulate(lengths)]
        piece = next(i for i, end in enumerate(ends) if at_ns < end)
        watts = self._plan[piece][1]
        return ends[piece], Constant(watts, busy=float(watts > self._parameters.context_idle_w))

    def _as_schedule(self, work: Work) -> Schedule:
        return work if isinstance(work, Schedule) else self.schedule(work)

    @staticmethod
    def _count(n: int) -> int:
        if n < 1:
            raise BadInputError(f"iterations must be at least 1, not {n}")
        return n
