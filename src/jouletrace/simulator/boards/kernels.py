"""Kernels with a true time and power, and their schedule at a given clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.errors import BadInputError
from jouletrace.simulator.boards.presets import Parameters, Preset

_SETTLING_ITERATIONS = 2


@dataclass(frozen=True, slots=True)
class SimKernel:
    """A kernel whose time and power are known.

    Both hold at the highest clock, with the kernel in the middle of its step.

    Attributes:
        name: Name of the kernel.
        time_s: Seconds that it runs.
        active_w: Board power over context idle while it runs.
        op: Operator that launches it.
        shapes: Input shapes and types of the operator.
        module: Qualified name of the module.
        call: Number of the module's call in an iteration.
        clocked: Share of the time that is inversely proportional to the SM clock.
        core: Share of the energy that is proportional to the square of the core's voltage.
        repeat: Time and energy of an immediate repetition over those of the first launch: less
            than 1 where the data are still in the cache.
        flops: Floating-point operations.
        bytes_moved: Bytes read and written.
        host_calls: Operators that the host calls in eager mode to launch it, including views and
            other operators without a kernel.
        backward: Whether autograd launches it.

    Raises:
        BadInputError: If a figure is out of its range.
    """

    name: str
    time_s: float
    active_w: float
    op: str = ""
    shapes: str = ""
    module: str = ""
    call: str = ""
    clocked: float = 0.7
    core: float = 0.8
    repeat: float = 1.0
    flops: float = 0.0
    bytes_moved: float = 0.0
    host_calls: int = 1
    backward: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.time_s < float("inf"):
            raise BadInputError(f"simulated kernel {self.name!r}: time_s must be positive, not {self.time_s}")
        if not 0 <= self.active_w < float("inf"):
            raise BadInputError(f"simulated kernel {self.name!r}: active_w must not be negative, not {self.active_w}")
        for share in ("clocked", "core", "repeat"):
            if not 0 <= getattr(self, share) <= 1:
                raise BadInputError(
                    f"simulated kernel {self.name!r}: {share} must be in 0..1, not {getattr(self, share)}"
                )

    @property
    def active_j(self) -> float:
        """Energy over context idle of one launch at the highest clock."""
        return self.time_s * self.active_w

    def scaled(self, time: float = 1.0, power: float = 1.0) -> SimKernel:
        """The same kernel with its time and power multiplied."""
        return replace(self, time_s=self.time_s * time, active_w=self.active_w * power)


@dataclass(frozen=True, slots=True)
class SteadyTimeline:
    """One iteration of a schedule in its steady state at a fixed clock."""

    period_s: float  # seconds from one iteration to the next
    active_j: float  # energy over context idle of an iteration
    busy_s: float  # seconds of the period in which a kernel runs
    kernel_s: Floats  # seconds of each kernel, shape (kernels,)
    kernel_active_j: Floats  # energy over context idle of each kernel, shape (kernels,)
    edges_s: list[float]  # start and end of every kernel in turn, from 0 to ``period_s``, ascending
    reached_j: list[float]  # energy over context idle up to each edge


class Schedule:
    """The kernels of one iteration and how they are launched.

    A kernel starts once the previous kernel has ended, the idle time between them is over and the
    host has launched it. The host runs ahead as far as it can, across iterations too, so its time
    shows only where the GPU has to wait for it. The model is the steady state of iterations back to
    back: the first iteration has no transient.

    Args:
        kernels: Kernels in order; may be empty if ``launch_gap_s`` is positive.
        gap_s: Seconds between two kernels.
        launch_gap_s: Seconds between two iterations.
        host_s: Seconds in which the host launches one operator; 0 for a graph.
        slowdown: Factor on every kernel's time.

    Raises:
        BadInputError: If an iteration would take no time.
    """

    def __init__(
        self,
        kernels: Sequence[SimKernel],
        gap_s: float = 0.0,
        launch_gap_s: float = 0.0,
        host_s: float = 0.0,
        slowdown: float = 1.0,
    ) -> None:
        if not kernels and launch_gap_s <= 0:
            raise BadInputError("a simulated schedule needs a kernel, or a launch that takes time")
        self.kernels = tuple(kernels)
        self._time = np.array([k.time_s for k in self.kernels]) * slowdown
        self._clocked = np.array([k.clocked for k in self.kernels])
        self._energy = np.array([k.active_j for k in self.kernels]) * slowdown
        self._core = np.array([k.core for k in self.kernels])
        self._gap = np.full(len(self.kernels), gap_s)
        self._launch_gap_s = launch_gap_s
        if self.kernels:
            self._gap[0] = launch_gap_s if launch_gap_s > 0 else gap_s
        self._host = np.array([k.host_calls for k in self.kernels]) * host_s
        self._timelines: dict[tuple[float, float], SteadyTimeline] = {}

    def at(self, ratio: float, voltage_squared: float) -> SteadyTimeline:
        """The steady state at ``ratio`` of the highest clock and this squared voltage."""
        key = (ratio, voltage_squared)
        if key not in self._timelines:
            self._timelines[key] = self.timeline(ratio, voltage_squared)
        return self._timelines[key]

    def timeline(self, ratio: float, voltage_squared: float) -> SteadyTimeline:
        """As ``at``, but not cached: for clocks between the steps of the GPU."""
        time = self._time * (1 - self._clocked + self._clocked / ratio)
        energy = self._energy * (1 - self._core + self._core * voltage_squared)
        if not self.kernels:
            return SteadyTimeline(self._launch_gap_s, 0.0, 0.0, time, energy, [0.0, self._launch_gap_s], [0.0, 0.0])
        starts, period = self._starts(time)
        edges = np.concatenate([[0.0], np.column_stack([starts, starts + time]).ravel()])
        reached = np.concatenate([[0.0], np.column_stack([np.zeros_like(energy), energy]).ravel().cumsum()])
        edges[-1] = period
        return SteadyTimeline(
            period, float(energy.sum()), float(time.sum()), time, energy, edges.tolist(), reached.tolist()
        )

    def _starts(self, time: Floats) -> tuple[Floats, float]:
        """Start of each kernel after the end of the previous iteration, and the period.

        Let g be the idle time before a kernel, d the kernel's time plus g, D the running sum of d, and L the
        time at which the host has launched it. Then end = max(end of the previous kernel, L - g) + d,
        whose solution is D + running maximum of (L - g - D of the previous kernel).
        """
        rounds = _SETTLING_ITERATIONS + 1
        gap, span = np.tile(self._gap, rounds), np.tile(self._gap + time, rounds)
        launched = np.tile(self._host, rounds).cumsum()
        done = span.cumsum()
        ends = done + np.maximum.accumulate(np.maximum(launched - gap - (done - span), 0.0))
        count = len(time)
        before, last = ends[-count - 1] if rounds > 1 else 0.0, ends[-count:]
        return last - time - before, float(last[-1] - before)


class InTurn:
    """Several schedules, one iteration of each in turn, as one: the GPU runs them without a stop in between."""

    def __init__(self, schedules: Sequence[Schedule]) -> None:
        self._distinct = list(dict.fromkeys(schedules))
        number = {schedule: i for i, schedule in enumerate(self._distinct)}
        self._order = np.array([number[schedule] for schedule in schedules])
        self._timelines: dict[tuple[float, float], SteadyTimeline] = {}

    def at(self, ratio: float, voltage_squared: float) -> SteadyTimeline:
        """Their timelines one after the other; see ``Schedule``."""
        key = (ratio, voltage_squared)
        if key not in self._timelines:
            self._timelines[key] = self._joined([schedule.at(ratio, voltage_squared) for schedule in self._distinct])
        return self._timelines[key]

    def _joined(self, lines: list[SteadyTimeline]) -> SteadyTimeline:
        order = self._order
        period, active = (
            np.array(values)[order] for values in zip(*((x.period_s, x.active_j) for x in lines), strict=True)
        )
        parts = [np.array([line.edges_s[1:], line.reached_j[1:]]) for line in lines]
        before = np.array([np.cumsum(period) - period, np.cumsum(active) - active])
        lengths = np.array([part.shape[1] for part in parts])[order]
        edges, reached = np.concatenate([parts[i] for i in order], axis=1) + np.repeat(before, lengths, axis=1)
        return SteadyTimeline(
            float(edges[-1]),
            float(active.sum()),
            float(sum(lines[i].busy_s for i in order)),
            np.concatenate([lines[i].kernel_s for i in order]),
            np.concatenate([lines[i].kernel_active_j for i in order]),
            [0.0, *edges.tolist()],
            [0.0, *reached.tolist()],
        )


_PRODUCT_FLOOR = 1.45
_MEMORY_CLOCKED = 0.25
_FLOOR_CLOCKED = 0.7
_CACHE_SPEEDUP = 2.5
_CACHE_ENERGY = 0.6
# power of busy pipes by dtype, relative to that of half precision
_PIPE = {"fp16": 1.0, "bf16": 1.0, "tf32": 0.9, "fp32": 0.6, "fp64": 0.8, "fp8": 1.0, "int8": 1.0}


class Roofline:
    """Kernels on one GPU."""

    def __init__(self, preset: Preset, parameters: Parameters) -> None:
        self._preset = preset
        self._p = parameters

    def kernel(
        self,
        name: str,
        flops: float = 0.0,
        bytes_moved: float = 0.0,
        dtype: str = "fp16",
        **labels: Any,
    ) -> SimKernel:
        """A kernel with given operations of products and traffic; ``labels`` are further fields of ``SimKernel``.

        Raises:
            BadInputError: If the GPU has no pipes for the dtype.
        """
        p, preset = self._p, self._preset
        if dtype not in preset.peak_flops:
            raise BadInputError(
                f"simulated {preset.name}: no pipes for dtype {dtype!r}; there are: {', '.join(preset.peak_flops)}"
            )
        floor = p.kernel_floor_s * (_PRODUCT_FLOOR if flops > 0 else 1.0)
        compute = flops / (preset.peak_flops[dtype] * p.pipe_efficiency)
        memory = bytes_moved / (preset.bytes_per_s * p.memory_efficiency)
        time = floor + max(compute, memory)
        clocked = floor * _FLOOR_CLOCKED + (compute if compute >= memory else memory * _MEMORY_CLOCKED)
        pipes_j = preset.cap_w * p.pipe_share * _PIPE[dtype] * flops / preset.peak_flops[dtype] / p.pipe_efficiency
        memory_j = preset.cap_w * p.memory_share * memory
        busy_j = preset.cap_w * p.busy_share * time
        active = pipes_j + memory_j + busy_j
        # in an immediate repetition the data still in the cache take less energy, and less time where
        # memory was the limit
        cached = max(0.0, 1 - bytes_moved / preset.l2_bytes)
        warm_memory = memory * (1 - cached + cached / _CACHE_SPEEDUP)
        warm_time = floor + max(compute, warm_memory)
        warm_j = pipes_j + memory_j * (1 - cached + cached * _CACHE_ENERGY) + busy_j * warm_time / time
        repeat = (warm_time / time + warm_j / active) / 2
        return SimKernel(
            name,
            time,
            active / time,
            clocked=clocked / time,
            core=1 - 0.7 * memory_j / active,
            repeat=min(repeat, 1.0),
            flops=flops,
            bytes_moved=bytes_moved,
            **labels,
        )
