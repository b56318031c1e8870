"""Programs with known powers: the start, length and power of every kernel.

A ``Plan`` is a program before it is timed: kernels in the order of launch. Functions from plan to plan add
excitation. ``lay_out`` times a plan and returns a ``Scene``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jouletrace.errors import BadInputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

EPOCH_NS = 1_790_000_000_000_000_000
"""Begin of scenes in ns since the Unix epoch: too large for floats to hold exactly, as real stamps are."""
LEAD_NS = 400_000_000
"""Idle time of a scene before its first kernel and after its last one."""
SPIN = "spin_kernel"


@dataclass(frozen=True)
class Kinds:
    """Kinds of kernel; arrays and tuples have one entry per kind.

    Attributes:
        names: Names of the kernels.
        operators: Operators that launch them.
        modules: Modules that call the operators.
        duration_ns: Mean duration at the nominal clock.
        power_w: Steady power of the whole GPU while such a kernel runs alone.
    """

    names: tuple[str, ...]
    operators: tuple[str, ...]
    modules: tuple[str, ...]
    duration_ns: Floats
    power_w: Floats

    def __len__(self) -> int:
        return len(self.names)

    def plus(self, name: str, duration_ns: float, power_w: float) -> Kinds:
        """These kinds and one more, with its own operator and module."""
        return Kinds(
            (*self.names, name),
            (*self.operators, name),
            (*self.modules, name),
            np.append(self.duration_ns, duration_ns),
            np.append(self.power_w, power_w),
        )


@dataclass(frozen=True)
class Plan:
    """Kernels in the order of launch on one stream; arrays have one entry per kernel.

    Attributes:
        kinds: Kinds of the kernels.
        kind: Index into ``kinds``.
        call: Number of the operator call, counted through the whole program.
        iteration: Number of the step.
        gap_ns: Idle time between the previous kernel and this one.
        duration_ns: Duration at the nominal clock.
    """

    kinds: Kinds
    kind: Ints
    call: Ints
    iteration: Ints
    gap_ns: Floats
    duration_ns: Floats

    def take(self, index: Ints) -> Plan:
        """The kernels at ``index``, which may contain repetitions."""
        return Plan(
            self.kinds,
            self.kind[index],
            self.call[index],
            self.iteration[index],
            self.gap_ns[index],
            self.duration_ns[index],
        )


@dataclass(frozen=True)
class Scene:
    """A program on the clock, with the idle time around it; arrays have one entry per kernel, sorted by start.

    Attributes:
        kinds: Kinds of the kernels, with their steady powers.
        start_ns: Start since the Unix epoch.
        end_ns: End since the Unix epoch.
        stream: Stream of each kernel.
        kind: Index into ``kinds``.
        iteration: Number of the step.
        idle_w: Power of the cool GPU while nothing runs.
        begin_ns: Begin of the scene, in idle.
        finish_ns: End of the scene, in idle.
    """

    kinds: Kinds
    start_ns: Ints
    end_ns: Ints
    stream: Ints
    kind: Ints
    iteration: Ints
    idle_w: float
    begin_ns: int
    finish_ns: int

    def __len__(self) -> int:
        return len(self.kind)


def wander(rng: np.random.Generator, count: int, step: float, correlation: float) -> NDArray[np.float64]:
    """A stationary random walk (Ornstein and Uhlenbeck's) of mean 0 and standard deviation 1.

    Args:
        rng: Draws it.
        count: Number of values.
        step: Distance from one value to the next.
        correlation: Distance at which values correlate by 1/e, in the unit of ``step``.
    """
    from scipy.signal import lfilter  # slow to import

    keep = np.exp(-step / correlation)
    noise = rng.standard_normal(count) * np.sqrt(1 - keep**2)
    noise[0] /= np.sqrt(1 - keep**2)
    return np.asarray(lfilter([1.0], [1.0, -keep], noise), dtype=np.float64)


def jitter_ns(duration_ns: Floats) -> Floats:
    """Standard deviation of the durations of kernels that do the same work.

    H100s show 3 % of 5 µs, 1 % of 13 µs, 0.3 % of 0.3 ms and 0.07 % of 2.7 ms: long kernels scatter little.
    """
    return 100 + 0.95 * np.sqrt(duration_ns)


# --- Plans -----------------------------------------------------------------------------------------------------------


def fixed_order(
    rng: np.random.Generator,
    seconds: float,
    kinds: Kinds,
    step: ArrayLike | None = None,
    gap_ns: float = 1_300,
    sync_ns: float = 250_000,
) -> Plan:
    """A step repeated without a change, long enough to fill ``seconds``.

    Args:
        rng: Scatters durations and idle times.
        seconds: Time to fill.
        kinds: Kinds of kernel that run.
        step: Kinds in the order of a step; each kind once unless given. Neighbours of one operator are one call.
        gap_ns: Mean idle time between kernels.
        sync_ns: Additional idle time before each fourth step, where programs in a loop synchronise.

    Raises:
        BadInputError: If a step takes no time or no step fits.
    """
    order = np.arange(len(kinds)) if step is None else np.asarray(step, dtype=np.int64)
    period = float(kinds.duration_ns[order].sum()) + gap_ns * len(order)
    if not seconds > 0 or not period > 0:
        raise BadInputError(f"a program of {seconds} s with steps of {period} ns: both have to be above 0")
    steps = int(np.ceil(seconds * 1e9 / period * 1.02)) + 2
    new_call = np.r_[1, [kinds.operators[a] != kinds.operators[b] for a, b in pairwise(order)]]
    return _plan(rng, kinds, np.tile(order, (steps, 1)), np.tile(new_call, (steps, 1)), gap_ns, sync_ns)


def varied_order(
    rng: np.random.Generator, seconds: float, kinds: Kinds, step: ArrayLike | None = None, gap_ns: float = 1_300
) -> Plan:
    """As ``fixed_order``, with each step in a new random order."""
    plan = fixed_order(rng, seconds, kinds, step, gap_ns)
    shuffled = rng.permuted(plan.kind.reshape(plan.iteration[-1] + 1, -1), axis=1)
    return _plan(rng, kinds, shuffled, np.ones_like(shuffled), gap_ns, 250_000)


def _plan(rng: np.random.Generator, kinds: Kinds, kind: Ints, new_call: Ints, gap_ns: float, sync_ns: float) -> Plan:
    """A plan from the kinds of each step, shape (steps, kernels of a step)."""
    steps, length = kind.shape
    iteration = np.repeat(np.arange(steps), length)
    gap = rng.gamma(20.0, gap_ns / 20, steps * length)
    gap[:: 4 * length] += sync_ns
    mean = kinds.duration_ns[kind.ravel()]
    duration = np.maximum(mean + jitter_ns(mean) * rng.standard_normal(len(mean)), 0.3 * mean)
    return Plan(kinds, kind.ravel(), np.cumsum(new_call) - 1, iteration, gap, duration)


def with_pauses(rng: np.random.Generator, plan: Plan, longest_ns: float = 1e6) -> Plan:
    """Add a pause of the host before each step, uniformly distributed up to ``longest_ns``."""
    first = np.r_[True, np.diff(plan.iteration) > 0]
    gap = plan.gap_ns.copy()
    gap[first] += rng.uniform(0, longest_ns, int(first.sum()))
    return replace(plan, gap_ns=gap)


def with_spins(rng: np.random.Generator, plan: Plan, longest_ns: float = 20_000, power_w: float = 165.0) -> Plan:
    """Add a kernel that only waits before each operator call, uniformly distributed up to ``longest_ns``."""
    before = np.flatnonzero(np.r_[True, np.diff(plan.call) > 0])
    kinds = plan.kinds.plus(SPIN, longest_ns / 2, power_w)
    return Plan(
        kinds,
        np.insert(plan.kind, before, len(kinds) - 1),
        np.insert(2 * plan.call + 1, before, 2 * plan.call[before]),
        np.insert(plan.iteration, before, plan.iteration[before]),
        np.insert(plan.gap_ns, before, plan.gap_ns[before]),
        np.insert(plan.duration_ns, before, rng.uniform(1_000, longest_ns, len(before))),
    )


def repeated_in_place(rng: np.random.Generator, plan: Plan, times: Sequence[int] = (4, 10), hold: int = 1) -> Plan:
    """Repeat one operator call of each step, drawn at random, in place.

    Args:
        rng: Draws the calls, and durations of the copies.
        plan: The plan to excite.
        times: Total runs of the call: one of these, drawn at random.
        hold: Steps for which a draw holds: sensors that average over many steps don't resolve a single one.
    """
    first = np.flatnonzero(np.r_[True, np.diff(plan.call) > 0])
    size = np.diff(np.r_[first, len(plan.kind)])
    step_first = np.flatnonzero(np.r_[True, np.diff(plan.iteration[first]) > 0])
    step_size = np.diff(np.r_[step_first, len(first)])
    runs = np.ones(len(first), dtype=np.int64)
    held = np.arange(len(step_first)) // hold * hold
    call, count = rng.integers(0, step_size)[held], rng.choice(np.asarray(times), len(step_first))[held]
    runs[step_first + np.minimum(call, step_size - 1)] = count
    total = size * runs
    within = np.arange(total.sum()) - np.repeat(np.cumsum(total) - total, total)
    copy = plan.take(np.repeat(first, total) + within % np.repeat(size, total))
    again = within >= np.repeat(size, total)
    mean = copy.kinds.duration_ns[copy.kind]
    scattered = np.maximum(mean + jitter_ns(mean) * rng.standard_normal(len(mean)), 0.3 * mean)
    return replace(copy, duration_ns=np.where(again, scattered, copy.duration_ns))


# --- Programs like real ones -----------------------------------------------------------------------------------------


def draw_kinds(rng: np.random.Generator, count: int, shortest_ns: float, longest_ns: float) -> Kinds:
    """Kinds of uniformly drawn power whose durations are spaced evenly on a logarithmic scale."""
    names = tuple(f"kernel_{i}" for i in range(count))
    spread = np.exp(np.linspace(np.log(shortest_ns), np.log(longest_ns), count)) * rng.uniform(0.85, 1.15, count)
    operators = tuple(f"operator_{i}" for i in range(count))
    return Kinds(names, operators, operators, rng.permutation(spread), rng.uniform(260, 1000, count))


_LAYER = (  # kernel, operator, module, µs in the graph, µs in the eager model, W
    ("layer_norm", "layer_norm", "norm", 4.0, 8.5, 460),
    ("gemm_qkv", "linear", "attention.qkv", 7.5, 24.8, 930),
    ("flash_fprop", "attention", "attention.core", 6.0, 13.6, 400),
    ("gemm_proj", "linear", "attention.proj", 5.0, 15.2, 820),
    ("add", "add", "residual", 3.0, 5.0, 330),
    ("gemm_fc1", "linear", "mlp.fc1", 8.5, 19.8, 900),
    ("gelu", "gelu", "mlp.act", 3.5, 12.8, 540),
    ("gemm_fc2", "linear", "mlp.fc2", 8.0, 21.0, 870),
)
_OUTER = (
    ("patch_conv", "conv2d", "patch", 9.0, 152.9, 400),
    ("cat", "cat", "embed", 3.2, 20.0, 350),
    ("copy", "copy", "embed", 3.4, 22.8, 450),
    ("gemm_head", "linear", "head", 4.5, 4.6, 480),
)
_STEP_OF_LAYER = (0, 1, 2, 3, 4, 0, 5, 6, 7, 4)


def _vit(rng: np.random.Generator, column: int, layers: int, padding: int) -> tuple[Kinds, list[int]]:
    """Kinds of a vision transformer and its step; ``padding`` copies per layer stand for small helpers."""
    rows = _LAYER + _OUTER
    duration = np.array([float(row[column]) for row in rows]) * 1e3 * rng.uniform(0.85, 1.15, len(rows))
    power = np.array([float(row[5]) for row in rows]) * rng.uniform(0.8, 1.2, len(rows))
    names, operators, modules = (tuple(str(row[i]) for row in rows) for i in range(3))
    n = len(_LAYER)
    layer = [*_STEP_OF_LAYER, *[n + 2] * padding]
    step = [n, n + 1, n + 2, *layer * layers, 0, n + 3, n + 2]
    return Kinds(names, operators, modules, duration, power), step


def eager_vit_like(rng: np.random.Generator, seconds: float, busy: float = 0.27) -> Plan:
    """A ViT-B launched kernel by kernel: 5 to 150 µs each, the host slower than the GPU, which is busy 27 %."""
    kinds, step = _vit(rng, 4, 12, 0)
    mean_gap = float(kinds.duration_ns[step].mean()) * (1 / busy - 1)
    plan = fixed_order(rng, seconds, kinds, step, mean_gap)
    # the host's time depends on the operator, its speed wanders, and some launches are late
    of_place = rng.gamma(1.2, 1 / 1.2, len(step))[np.arange(len(plan.kind)) % len(step)]
    slowness = wander(rng, len(plan.kind), 1.0, 1_200.0)
    gap = of_place * np.exp(0.3 * slowness) * rng.gamma(2.5, 1 / 2.5, len(plan.kind))
    late = rng.exponential(15.0, len(plan.kind)) * (rng.random(len(plan.kind)) < 0.001)
    gap += late
    return replace(plan, gap_ns=800 + (mean_gap - 800) * gap / gap.mean())


def transformer_graph_like(rng: np.random.Generator, seconds: float) -> Plan:
    """A DeiT-B at batch 1 as a CUDA graph: 150 kernels of 3 to 10 µs in fixed order, 0.9 ms per step."""
    kinds, step = _vit(rng, 3, 12, 2)
    return fixed_order(rng, seconds, kinds, step, gap_ns=900)


def large_operators(rng: np.random.Generator, seconds: float) -> Plan:
    """Eight operators of 0.2 to 3 ms in fixed order."""
    return fixed_order(rng, seconds, draw_kinds(rng, 8, 0.2e6, 3e6))


# --- Scenes ----------------------------------------------------------------------------------------------------------


def lay_out(plan: Plan, seconds: float, idle_w: float = 124.0, stream: int = 0, every_ns: float | None = None) -> Scene:
    """Time a plan.

    Args:
        plan: The plan to time; the step that would end after ``seconds`` and all later ones are dropped.
        seconds: Time from the first kernel to the last.
        idle_w: Power of the cool GPU while nothing runs.
        stream: Stream on which it runs.
        every_ns: Period of the steps, kept by a timer: each waits for its deadline. Without it they follow each other.

    Raises:
        BadInputError: If not even one step fits.
    """
    end = np.cumsum(plan.gap_ns + plan.duration_ns)
    if every_ns is not None:
        first = np.flatnonzero(np.r_[True, np.diff(plan.iteration) > 0])
        origin = end[first] - plan.duration_ns[first]
        end = end - origin[plan.iteration] + np.arange(len(first))[plan.iteration] * every_ns
    cut = plan.iteration[min(int(np.searchsorted(end, seconds * 1e9)), len(end) - 1)]
    keep = plan.iteration < cut
    if not keep.any():
        raise BadInputError(f"no step of the program fits in {seconds} s: give more seconds")
    stop = np.rint(end[keep]).astype(np.int64) + EPOCH_NS + LEAD_NS
    start = stop - np.rint(plan.duration_ns[keep]).astype(np.int64)
    if np.any(start[1:] < stop[:-1]):
        raise BadInputError(f"steps take longer than their period of {every_ns} ns")
    return Scene(
        plan.kinds,
        start,
        stop,
        np.full(len(start), stream),
        plan.kind[keep],
        plan.iteration[keep],
        idle_w,
        EPOCH_NS,
        int(stop[-1]) + LEAD_NS,
    )


def overlapping(rng: np.random.Generator, seconds: float, kinds: Kinds, idle_w: float = 124.0) -> Scene:
    """Two streams, each with half of the kinds and with pauses: kernels overlap partly, and at times nothing runs."""
    half = np.array_split(rng.permutation(len(kinds)), 2)
    plans = [with_pauses(rng, varied_order(rng, seconds, kinds, part), 2e6) for part in half]
    return merge(*(lay_out(plan, seconds, idle_w, stream) for stream, plan in enumerate(plans)))


def merge(one: Scene, other: Scene) -> Scene:
    """One scene in which two scenes of the same kinds run at once."""
    start = np.r_[one.start_ns, other.start_ns]
    order = np.argsort(start, kind="stable")
    return Scene(
        one.kinds,
        start[order],
        np.r_[one.end_ns, other.end_ns][order],
        np.r_[one.stream, other.stream][order],
        np.r_[one.kind, other.kind][order],
        np.r_[one.iteration, other.iteration][order],
        one.idle_w,
        min(one.begin_ns, other.begin_ns),
        max(one.finish_ns, other.finish_ns),
    )


def from_timeline(
    start_ns: ArrayLike,
    dur_ns: ArrayLike,
    kind: ArrayLike,
    names: Sequence[str],
    power_w: ArrayLike,
    idle_w: float = 124.0,
    iteration: ArrayLike | None = None,
) -> Scene:
    """A recorded timeline with invented powers.

    Args:
        start_ns: Start of each kernel, since the Unix epoch.
        dur_ns: Duration of each kernel.
        kind: Index into ``names`` of each kernel.
        names: Names of the kinds.
        power_w: Steady power of each kind.
        idle_w: Power of the cool GPU while nothing runs.
        iteration: Number of each kernel's step; one step for all unless given.

    Raises:
        BadInputError: If there is no kernel, or lengths differ.
    """
    start, duration, index = (np.asarray(column, dtype=np.int64) for column in (start_ns, dur_ns, kind))
    power = np.asarray(power_w, dtype=np.float64)
    step = np.zeros_like(start) if iteration is None else np.asarray(iteration, dtype=np.int64)
    if not len(start) or len({len(start), len(duration), len(index), len(step)}) > 1 or len(names) != len(power):
        raise BadInputError(
            "a timeline needs kernels, as many starts as durations and kinds, and a power for each name"
        )
    order = np.argsort(start, kind="stable")
    count = np.maximum(np.bincount(index, minlength=len(names)), 1)
    mean = np.bincount(index, weights=duration, minlength=len(names)) / count
    label = tuple(names)
    end = start + duration
    return Scene(
        Kinds(label, label, label, mean, power),
        start[order],
        end[order],
        np.zeros_like(start),
        index[order],
        step[order],
        idle_w,
        int(start.min()) - LEAD_NS,
        int(end.max()) + LEAD_NS,
    )
