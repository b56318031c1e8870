"""A simulated GPU to work on: run kernels, load it, wait, hold a context."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from jouletrace.devices.base import Clock
from jouletrace.devices.clock import RealClock
from jouletrace.errors import BadInputError
from jouletrace.simulator.boards.clock import FOREVER_NS, PLAN_NS, VirtualClock, virtual_start_ns
from jouletrace.simulator.boards.engine import CELL_NS, Engine
from jouletrace.simulator.boards.kernels import Schedule, SimKernel
from jouletrace.simulator.boards.load import Constant, Iterations, Load
from jouletrace.simulator.boards.parameters import Parameters, generator
from jouletrace.simulator.boards.presets import Preset
from jouletrace.simulator.boards.roofline import Roofline
from jouletrace.simulator.boards.spec import SimSpec
from jouletrace.simulator.boards.states import States
from jouletrace.simulator.boards.truth import Truth

HISTORY_NS = 3_000_000_000
"""How long a GPU has been idle when it is opened: its sensors have a past, as real ones do."""

Work = Schedule | Sequence[SimKernel]


class Board:
    """A GPU in virtual or real time.

    In virtual time everything happens at once and the clock jumps. In real time what the GPU
    does is computed when somebody looks; ``run``, ``load`` and ``wait`` take as long as they say.
    While nobody works on it, it is idle or follows the plan of its spec (``load=``).

    Args:
        preset: What kind of GPU.
        parameters: Its hidden parameters.
        spec: The rest of what was asked for.

    Attributes:
        clock: Its time; ``VirtualClock`` has timers too.
        truth: The exact energies; for tests only.
        roofline: From operations and bytes to kernels on this GPU.
    """

    def __init__(self, preset: Preset, parameters: Parameters, spec: SimSpec) -> None:
        self._parameters = parameters
        self._plan = spec.load
        self.cap_w = spec.cap_w(preset)
        real = RealClock()
        opened_ns = real.time_ns() if spec.realtime else virtual_start_ns()
        # In real time all processes that open a GPU see one plan; in virtual time each run sees the same.
        self._plan_from_ns = 0 if spec.realtime else opened_ns - PLAN_NS
        start_ns = opened_ns - HISTORY_NS
        rng = generator(preset, spec.seed, 1, spec.run)
        states = States(spec.states, start_ns, generator(preset, spec.seed, 5, spec.run))
        self.engine = Engine(
            preset,
            parameters,
            self.cap_w,
            start_ns=start_ns,
            rng=rng,
            states=states,
            noise=spec.noise,
            sharp=spec.sensor == "sampled",
        )
        self.truth = Truth(self.engine, preset, parameters, self.cap_w)
        self.roofline = Roofline(preset, parameters)
        self._jitter = generator(preset, spec.seed, 2, spec.run)
        now_ns = self._idle(start_ns + HISTORY_NS)
        self.clock: Clock = real if spec.realtime else VirtualClock(self._idle, now_ns, CELL_NS)

    @property
    def context_held(self) -> bool:
        """Whether a context exists: clocks are up then, and idle power with them."""
        return self.engine.context

    def hold_context(self) -> None:
        """Create a context, as any program does that uses the GPU. A new run of its own begins."""
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
        """Kernels with this GPU's own gaps: as a graph, or launched one by one by the host."""
        p = self._parameters
        host_s = p.host_launch_s if eager else 0.0
        return Schedule(kernels, p.kernel_gap_s, p.launch_gap_s, host_s, slowdown)

    def run(self, work: Work, n: int = 1) -> tuple[int, int]:
        """Run ``n`` iterations back to back and wait for them.

        Args:
            work: A schedule, or kernels to be run as a graph.
            n: Iterations, at least 1.

        Returns:
            Start and end in nanoseconds since the Unix epoch.

        Raises:
            BadInputError: If ``n`` is less than 1 or there is nothing to run.
        """
        return self._work(Iterations(self._as_schedule(work), self._count(n)))

    def run_timed(self, work: Work, n: int) -> NDArray[np.float64]:
        """Seconds of each of ``n`` iterations as events between them show them, shape (n,).

        Raises:
            BadInputError: If ``n`` is less than 1 or there is nothing to run.
        """
        iterations = Iterations(self._as_schedule(work), self._count(n), timed=True)
        self._work(iterations)
        # events resolve about half a microsecond, and now and then something gets in between
        error = self._jitter.normal(0.0, 0.3e-6, n) + (self._jitter.random(n) < 0.01) * 8e-6
        return np.diff(iterations.ends_s()) + np.abs(error)

    def run_traced(self, work: Work, n: int) -> NDArray[np.int64]:
        """When each kernel of ``n`` iterations ran, in ns since the Unix epoch, shape (n, kernels, 2).

        Within an iteration kernels are where they are at the highest clock, stretched to its length.

        Raises:
            BadInputError: If ``n`` is less than 1 or there is nothing to run.
        """
        schedule = self._as_schedule(work)
        iterations = Iterations(schedule, self._count(n), timed=True)
        start_ns, _ = self._work(iterations)
        line, edges = schedule.at(1.0, 1.0), iterations.ends_s()
        share = np.array(line.edges_s[1:]).reshape(-1, 2) / line.period_s
        times_s = edges[:-1, None, None] + np.diff(edges)[:, None, None] * share
        return start_ns + np.round(times_s * 1e9).astype(np.int64)

    def cycles(self) -> tuple[int, int]:
        """Where an SM's cycle counter stands, and when: cycles, and nanoseconds since the Unix epoch.

        It counts the real clock, whatever the driver reports. Reading it takes no time.
        """
        self.catch_up()
        return round(self.engine.cycles), self.engine.trace.end_ns

    def load(self, watts: float, seconds: float) -> tuple[int, int]:
        """Keep the GPU at a plain load of ``watts`` of board power, cap permitting.

        Returns:
            Start and end in nanoseconds since the Unix epoch.

        Raises:
            BadInputError: If power or time isn't positive.
        """
        for name, value in (("watts", watts), ("seconds", seconds)):
            if not (isfinite(value) and value > 0):
                raise BadInputError(f"simulated load: {name} must be positive, not {value}")
        return self._work(Constant(watts, seconds))

    def run_load(self, load: Load) -> tuple[int, int]:
        """Work on any load until it is done: start and end in nanoseconds since the Unix epoch."""
        return self._work(load)

    def catch_up(self) -> None:
        """In real time: let the GPU live until now. Nothing to do in virtual time."""
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
        """Let the GPU live as it does when nobody works on it: idle, or by the plan of its spec."""
        reached = self.engine.trace.end_ns
        while reached < until_ns:
            piece_ns, load = self._planned(reached)
            reached = self.engine.run(min(until_ns, piece_ns), load)
        return reached

    def _planned(self, at_ns: int) -> tuple[int, Load | None]:
        """End of the present piece of the plan, and its load.

        In real time the plan repeats from the Unix epoch on, so that all processes that open a GPU
        see the same one.
        """
        if not self._plan:
            return at_ns + HISTORY_NS, None
        lengths = [round(seconds * 1e9) for seconds, _ in self._plan]
        since = self._plan_from_ns
        begin = since + (at_ns - since) // sum(lengths) * sum(lengths)
        ends = [begin + end for end in accumulate(lengths)]
        piece = next(i for i, end in enumerate(ends) if at_ns < end)
        return ends[piece], Constant(self._plan[piece][1])

    def _as_schedule(self, work: Work) -> Schedule:
        return work if isinstance(work, Schedule) else self.schedule(work)

    @staticmethod
    def _count(n: int) -> int:
        if n < 1:
            raise BadInputError(f"iterations must be at least 1, not {n}")
        return n
