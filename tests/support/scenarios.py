"""Recordings with known truth: draw one, estimate from the recording alone, compare with the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.arrays import Floats, Ints
from jouletrace.errors import check_format
from jouletrace.simulator.sensors import Power, SamplingSensor
from simulated_power import Board, Drawn, play
from simulated_programs import (
    Scene,
    draw_kinds,
    eager_vit_like,
    fixed_order,
    large_operators,
    lay_out,
    overlapping,
    repeated_in_place,
    transformer_graph_like,
    varied_order,
    with_pauses,
)
from simulated_sensors import SHAPES, Averaging, BlockMeans, Sensor, other_response


@dataclass(frozen=True)
class Recording:
    """The data of a profiler: readings, and the timeline as the tracer recorded it, sorted by start.

    Attributes:
        rows: Readings (stamp in µs since the Unix epoch, mW), shape (n, 2).
        start_ns: Start of each kernel, since the Unix epoch.
        end_ns: End of each kernel, since the Unix epoch.
        stream: Stream of each kernel.
        kind: Kind of each kernel, an index into ``names``.
        iteration: Step of each kernel.
        names: Kernel name of each kind.
        operators: Operator of each kind.
        modules: Module of each kind.
    """

    rows: Ints
    start_ns: Ints
    end_ns: Ints
    stream: Ints
    kind: Ints
    iteration: Ints
    names: tuple[str, ...]
    operators: tuple[str, ...]
    modules: tuple[str, ...]


@dataclass(frozen=True)
class Truth:
    """The truth that an estimator is compared with, and everything that was hidden from it.

    Attributes:
        drawn: Energy of each kernel of the scene, of idle time and of other processes.
        kind_j: Energy of each kind.
        kind_s: Time for which kernels of each kind ran.
        kind_w: Mean power drawn by each kind; NaN where it never ran.
        operator_j: Energy of each operator.
        iteration_j: Energy of the kernels of each iteration.
        idle_w: Mean power while no kernel ran, without other processes.
        total_j: Energy of the whole scene, from its begin to its finish.
        power: Power at any time.
        board: Hidden behaviour of the GPU.
        sensor: Hidden parameters of the sensor.
        traced: Kernels of the scene that the recording contains, in its order.
        clock_offset_ns: Lead of the tracer's clock over the readings' clock.
    """

    drawn: Drawn
    kind_j: Floats
    kind_s: Floats
    kind_w: Floats
    operator_j: dict[str, float]
    iteration_j: Floats
    idle_w: float
    total_j: float
    power: Power
    board: Board
    sensor: Sensor
    traced: Ints
    clock_offset_ns: int


def simulate(
    rng: np.random.Generator,
    scene: Scene,
    board: Board,
    sensor: Sensor,
    *,
    clock_offset_ns: int = 0,
    dropped: float = 0.0,
) -> tuple[Scene, Recording, Truth]:
    """Run a scene on a GPU and record it.

    Args:
        rng: Source of all randomness.
        scene: The scene to run.
        board: The GPU that it runs on.
        sensor: The sensor that records it.
        clock_offset_ns: Lead of the tracer's clock over the readings' clock.
        dropped: Share of the kernels that the tracer misses.

    Returns:
        The scene as it ran, its recording, and the truth.
    """
    ran, power, drawn = play(rng, scene, board)
    traced, start, end = _trace(rng, ran, clock_offset_ns, dropped)
    kinds = ran.kinds
    recording = Recording(
        sensor.record(rng, power),
        start,
        end,
        ran.stream[traced],
        ran.kind[traced],
        ran.iteration[traced],
        kinds.names,
        kinds.operators,
        kinds.modules,
    )
    kind_j = _sums(ran.kind, drawn.kernel_j, len(kinds))
    kind_s = _sums(ran.kind, (ran.end_ns - ran.start_ns) * 1e-9, len(kinds))
    operator_j = dict.fromkeys(kinds.operators, 0.0)
    for operator, energy in zip(kinds.operators, kind_j, strict=True):
        operator_j[operator] += float(energy)
    truth = Truth(
        drawn,
        kind_j,
        kind_s,
        np.divide(kind_j, kind_s, out=np.full(len(kinds), np.nan), where=kind_s > 0),
        operator_j,
        _sums(ran.iteration, drawn.kernel_j, int(ran.iteration.max()) + 1),
        drawn.idle_j / drawn.idle_s,
        float(power.joules[-1]),
        power,
        board,
        sensor,
        traced,
        clock_offset_ns,
    )
    return ran, recording, truth


def _sums(index: Ints, value: NDArray[np.floating[Any]], count: int) -> Floats:
    """Sum of ``value`` for each index from 0 to ``count``, excluded."""
    return np.bincount(index, value, count).astype(np.float64)


def _trace(rng: np.random.Generator, scene: Scene, offset_ns: int, dropped: float) -> tuple[Ints, Ints, Ints]:
    """Kernels that a tracer records, with their starts and ends: to 0.3 µs, plus the clock's offset."""
    traced = np.flatnonzero(rng.random(len(scene)) >= dropped)
    start, end = (
        time[traced] + offset_ns + rng.integers(-300, 301, len(traced)) for time in (scene.start_ns, scene.end_ns)
    )
    order = np.argsort(start, kind="stable")
    return traced[order], start[order], np.maximum(end, start)[order]


# --- Groups ----------------------------------------------------------------------------------------------------------


def _long_varied(rng: np.random.Generator, seconds: float) -> Scene:
    kinds = draw_kinds(rng, int(rng.integers(7, 13)), 0.1e6, 3e6)
    return lay_out(varied_order(rng, seconds, kinds), seconds, _idle_w(rng))


def _short_varied(rng: np.random.Generator, seconds: float) -> Scene:
    kinds = draw_kinds(rng, int(rng.integers(6, 13)), 5e3, 100e3)
    return lay_out(varied_order(rng, seconds, kinds), seconds, _idle_w(rng))


def _short_fixed(rng: np.random.Generator, seconds: float) -> Scene:
    return lay_out(transformer_graph_like(rng, seconds), seconds, _idle_w(rng))


def _short_excited(rng: np.random.Generator, seconds: float) -> Scene:
    plan = repeated_in_place(rng, transformer_graph_like(rng, seconds))
    return lay_out(plan, seconds, _idle_w(rng))


def _eager(rng: np.random.Generator, seconds: float) -> Scene:
    return lay_out(eager_vit_like(rng, seconds), seconds, _idle_w(rng))


def _locked(rng: np.random.Generator, seconds: float, rate_hz: float) -> Scene:
    """Steps that a timer keeps at a multiple of the sensor's sampling period."""
    kinds = draw_kinds(rng, 8, 10e3, 100e3)
    period = int(rng.integers(1, 11)) * 1e9 / rate_hz
    kinds = replace(kinds, duration_ns=kinds.duration_ns * 0.9 * period / kinds.duration_ns.sum())
    return lay_out(fixed_order(rng, seconds, kinds, sync_ns=0), seconds, _idle_w(rng), every_ns=period)


def _large(rng: np.random.Generator, seconds: float) -> Scene:
    return lay_out(large_operators(rng, seconds), seconds, _idle_w(rng))


def _overlap(rng: np.random.Generator, seconds: float) -> Scene:
    kinds = draw_kinds(rng, int(rng.integers(6, 11)), 0.05e6, 2e6)
    return overlapping(rng, seconds, kinds, _idle_w(rng))


def _pauses(rng: np.random.Generator, seconds: float) -> Scene:
    kinds = draw_kinds(rng, int(rng.integers(7, 13)), 0.02e6, 2e6)
    return lay_out(with_pauses(rng, fixed_order(rng, seconds, kinds)), seconds, _idle_w(rng))


def _one_kind(rng: np.random.Generator, seconds: float) -> Scene:
    kinds = draw_kinds(rng, 1, 0.05e6, 2e6)
    plan = fixed_order(rng, seconds, kinds)
    return lay_out(with_pauses(rng, plan) if rng.random() < 0.5 else plan, seconds, _idle_w(rng))


def _idle_w(rng: np.random.Generator) -> float:
    return float(rng.uniform(118, 135))


_PROGRAMS: dict[str, Callable[[np.random.Generator, float], Scene]] = {
    "long_varied": _long_varied,
    "short_varied": _short_varied,
    "short_fixed": _short_fixed,
    "short_excited": _short_excited,
    "eager": _eager,
    "cap": _long_varied,
    "drift": _long_varied,
    "overlap": _overlap,
    "foreign_load": _long_varied,
    "foreign_response": _long_varied,
    "pauses": _pauses,
    "large_fixed": _large,
    "one_kind": _one_kind,
}
GROUPS = (*_PROGRAMS, "locked_period")


def draw(seed: int, group: str, seconds: float = 20.0, sensor: Sensor | None = None) -> tuple[Scene, Recording, Truth]:
    """A recording of a group of programs; the seed draws all hidden values.

    Args:
        seed: Seed of all randomness.
        group: One of ``GROUPS``.
        seconds: Length of the program.
        sensor: The sensor that records it, in place of one that the seed draws.

    Raises:
        BadInputError: If the group doesn't exist.
    """
    check_format(group, GROUPS)
    rng = np.random.default_rng([seed, GROUPS.index(group)])
    sampling = SamplingSensor.draw(rng, seconds)
    if group == "locked_period":
        sampling = replace(sampling, drift_hz=float(rng.uniform(-0.02, 0)), wander_s=())
        scene = _locked(rng, seconds, sampling.rate_hz)
    else:
        scene = _PROGRAMS[group](rng, seconds)
    board = Board.draw(rng, len(scene.kinds), seconds)
    if group == "foreign_response":
        sampling = _foreign(rng, seconds)
    elif group == "foreign_load":
        board = replace(board, foreign=_other_process(rng, seconds))
    elif group == "cap":
        wanted = np.average(scene.kinds.power_w, weights=scene.kinds.duration_ns)
        board = replace(board, limit_w=float(wanted * rng.uniform(0.7, 0.95)))
    elif group == "locked_period":
        board = replace(board, regimes=((0.0, 1.0),))
    elif group == "drift":
        board = _drifting(rng, board, seconds)
    offset = int(rng.uniform(-50e3, 50e3)) if rng.random() < 0.5 else 0
    return simulate(rng, scene, board, sensor or sampling, clock_offset_ns=offset)


def _other_process(rng: np.random.Generator, seconds: float) -> tuple[tuple[float, float, float], ...]:
    """Bursts of 30 to 150 W, 0.05 to 2 s long, for about half of the time."""
    edges = np.cumsum(np.exp(rng.uniform(np.log(0.05), np.log(2.0), 2 * int(3 * seconds) + 2)))
    bursts = zip(edges[::2], edges[1::2], rng.uniform(30, 150, len(edges) // 2), strict=True)
    return tuple((float(start), float(end), float(watts)) for start, end, watts in bursts if start < 1.5 * seconds + 1)


def _foreign(rng: np.random.Generator, seconds: float) -> SamplingSensor:
    """A sensor unlike the known ones: another response, and often another averaging."""
    shape = SHAPES[int(rng.integers(len(SHAPES)))]
    sensor = SamplingSensor.draw(rng, seconds, partial(other_response, shape=shape))
    choices = (Averaging(16), Averaging(8), Averaging(32), BlockMeans(24))
    return replace(sensor, averaging=choices[int(rng.integers(len(choices)))])


def _drifting(rng: np.random.Generator, board: Board, seconds: float) -> Board:
    """The GPU with three times as much warming, within the recording, and a clock that jumps by up to 3 %."""
    jumps = np.r_[0.0, np.sort(rng.uniform(0, seconds, max(int(seconds / 5), 1)))]
    clocks = rng.uniform(0.97, 1.0, len(jumps))
    return replace(
        board,
        heat=float(rng.uniform(0.02, 0.05)),
        heat_w=float(rng.uniform(3, 12)),
        heat_s=float(rng.uniform(0.3, 2)) * seconds,
        regimes=tuple((float(at), float(clock)) for at, clock in zip(jumps, clocks, strict=True)),
    )
