"""Tracing a step on a simulated GPU, whose power sensor then takes samples as real ones do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from jouletrace.execution.program import PLAIN, Call, Excitation, Listing, Traced, Variant, match
from jouletrace.execution.steps.base import Interval
from jouletrace.execution.steps.module_names import CallSite, phase_of_step
from jouletrace.execution.steps.simulated import SimulatedStep
from jouletrace.simulator.boards import SimulatedGpu
from jouletrace.tracing.trace import Trace

_BEFORE_S, _AFTER_S = 0.3, 0.3
"""Idle time around a recording, so that the sensor records its edges."""


class SimulatedProgram:
    """A step on a simulated GPU; ``phases`` are those of each kernel, None in an inference or a training step."""

    def __init__(self, step: SimulatedStep, device: SimulatedGpu, phases: Sequence[str] | None = None) -> None:
        self._step, self._device = step, device
        self._phases = phases or [
            phase_of_step(CallSite(kernel.module, kernel.call), kernel.backward) for kernel in step.schedule.kernels
        ]

    def listing(self) -> Listing:
        """See ``Program``: each kernel is that of one operator call."""
        kernels = self._step.schedule.kernels
        names = list(dict.fromkeys(kernel.name for kernel in kernels))
        calls = [
            Call(
                kernel.op,
                kernel.shapes,
                kernel.module,
                kernel.call,
                self._phases[place],
                (names.index(kernel.name),),
                kernel.time_s,
                number=place,
            )
            for place, kernel in enumerate(kernels)
        ]
        return Listing(calls, names)

    def record(
        self, listing: Listing, excitation: Excitation, iteration_s: float, advance: Callable[[float], None]
    ) -> Traced:
        """See ``Program``."""
        board, log = self._device.board, list[Variant]()
        steps = {variant: self._variant(variant) for variant in (PLAIN, *excitation.variants)}
        times: list[NDArray[np.int64]] = []
        with self._device.sampled() as sensor:
            board.wait(_BEFORE_S)
            start_ns = board.clock.time_ns()
            for draws, seconds in (
                (repeat(PLAIN), excitation.plain_s),
                (excitation.draws(iteration_s), excitation.repeated_s * (len(excitation.variants) > 1)),
            ):
                end_ns = board.clock.time_ns() + round(seconds * 1e9)
                while board.clock.time_ns() < end_ns:
                    before_ns = board.clock.time_ns()
                    variant = next(draws)
                    times.append(board.run_traced(steps[variant].schedule, 1)[0])
                    log.append(variant)
                    advance((board.clock.time_ns() - before_ns) / 1e9)
            finish_ns = board.clock.time_ns()
            board.wait(_AFTER_S)
            watts = [_active_w(steps[variant]) for variant in log]
            sensor.saw(np.concatenate(times), np.concatenate(watts))
        kernels = list(chain.from_iterable(steps[variant].schedule.kernels for variant in log))
        place = {name: i for i, name in enumerate(listing.names)}
        edges = np.concatenate(times)
        trace = Trace.of(
            listing.names,
            "simulated",
            name=np.array([place[kernel.name] for kernel in kernels]),
            start_ns=edges[:, 0],
            end_ns=edges[:, 1],
        )
        matched = match(listing.codes(trace), listing.calls, log)
        return Traced(trace, matched, len(log), Interval(start_ns, finish_ns))

    def _variant(self, variant: Variant) -> SimulatedStep:
        step = self._step
        for place, times in reversed(variant.repeats):  # from the last on, so that earlier positions stay valid
            step = step.repeated(place, times)
        return step


def _active_w(step: SimulatedStep) -> NDArray[np.float64]:
    """Power over idle of each kernel of an iteration, shape (kernels,)."""
    return np.array([kernel.active_w for kernel in step.schedule.kernels])
