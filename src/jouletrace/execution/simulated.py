"""Tracing a step on a simulated GPU, whose power sensor then takes samples as real ones do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat

import numpy as np

from jouletrace.arrays import Floats, Ints
from jouletrace.execution.calls import Call, Listing, RecordedLaunches
from jouletrace.execution.excitation import PLAIN, Excitation, Variant
from jouletrace.execution.steps.base import Interval
from jouletrace.execution.steps.module_names import CallSite, Phase, phase_of_step
from jouletrace.execution.steps.simulated import SimulatedStep
from jouletrace.simulator.boards import SimulatedGpu
from jouletrace.tracer.process_trace import Launched

_BEFORE_S, _AFTER_S = 0.3, 0.3
"""Idle time around a recording, so that the sensor records its edges."""

_TOGETHER_S = 0.05
"""Seconds of iterations that run in one call of the simulation: a call for each takes longer than all the rest."""


class SimulatedTraceable:
    """A step on a simulated GPU; ``phase`` recognises the phases of its workload."""

    def __init__(self, step: SimulatedStep, device: SimulatedGpu, phase: Phase = phase_of_step) -> None:
        self._step, self._device = step, device
        self._phases = [
            phase(CallSite(kernel.module, kernel.call), kernel.backward) for kernel in step.schedule.kernels
        ]

    def listing(self) -> Listing:
        """See ``Traceable``: each kernel is that of one operator call."""
        kernels = self._step.schedule.kernels
        names = list(dict.fromkeys(kernel.name for kernel in kernels))
        calls = [
            Call(
                kernel.op,
                kernel.shapes,
                kernel.module,
                kernel.call,
                self._phases[index],
                (names.index(kernel.name),),
                kernel.time_s,
                number=index,
                flops=kernel.flops,
                bytes_moved=kernel.bytes_moved,
            )
            for index, kernel in enumerate(kernels)
        ]
        return Listing(calls, names)

    def record(
        self, listing: Listing, excitation: Excitation, iteration_s: float, advance: Callable[[float], None]
    ) -> RecordedLaunches:
        """See ``Traceable``."""
        board, log = self._device.board, list[Variant]()
        steps = {variant: self._variant(variant) for variant in (PLAIN, *excitation.variants)}
        times: list[Ints] = []
        with self._device.instruments.sampled() as sensor:
            board.wait(_BEFORE_S)
            start_ns = board.clock.time_ns()
            for draws, seconds in (
                (repeat(PLAIN), excitation.plain_s),
                (excitation.draws(iteration_s), excitation.repeated_s * (len(excitation.variants) > 1)),
            ):
                end_ns = board.clock.time_ns() + round(seconds * 1e9)
                while (left_s := (end_ns - board.clock.time_ns()) / 1e9) > 0:
                    together = self._next(draws, steps, min(left_s, _TOGETHER_S))
                    times.append(board.run_traced([steps[variant].schedule for variant in together]))
                    log += together
                    advance(min(left_s, _TOGETHER_S))
            finish_ns = board.clock.time_ns()
            board.wait(_AFTER_S)
            active_w = {variant: _active_w(step) for variant, step in steps.items()}
            edges = np.concatenate(times)
            sensor.saw(edges, np.concatenate([active_w[variant] for variant in log]))
        index_of = {name: i for i, name in enumerate(listing.names)}
        named = {
            variant: np.array([index_of[kernel.name] for kernel in step.schedule.kernels])
            for variant, step in steps.items()
        }
        work = Launched.from_columns(
            listing.names, np.concatenate([named[variant] for variant in log]), edges[:, 0], edges[:, 1]
        )
        of = {variant: _owners(len(self._step.schedule.kernels), variant) for variant in steps}
        call, copy = (np.concatenate([of[variant][k] for variant in log]) for k in (0, 1))
        iteration = np.repeat(np.arange(len(log)), [len(of[variant][0]) for variant in log])
        return RecordedLaunches(work, call, copy.astype(bool), iteration, len(log), Interval(start_ns, finish_ns))

    @staticmethod
    def _next(draws: Iterator[Variant], steps: Mapping[Variant, SimulatedStep], seconds: float) -> list[Variant]:
        """The next iterations: at least one, until at the highest clock they take ``seconds``."""
        drawn: list[Variant] = []
        while seconds > 0:
            drawn.append(next(draws))
            seconds -= steps[drawn[-1]].schedule.at(1.0, 1.0).period_s
        return drawn

    def _variant(self, variant: Variant) -> SimulatedStep:
        step = self._step
        for index, times in reversed(variant.repeats):  # from the last on, so that earlier positions stay valid
            step = step.repeated(index, times)
        return step


def _owners(count: int, variant: Variant) -> tuple[Ints, Ints]:
    """Of each kernel of an iteration of so many calls the position of its call, and 1 if it is a copy, else 0."""
    times = np.ones(count, np.int64)
    for index, many in variant.repeats:
        times[index] = many
    call = np.repeat(np.arange(count), times)
    return call, np.append(0, call[1:] == call[:-1]).astype(np.int64)


def _active_w(step: SimulatedStep) -> Floats:
    """Power over idle of each kernel of an iteration, shape (kernels,)."""
    return np.array([kernel.active_w for kernel in step.schedule.kernels])
