"""Power of a GPU while a scene runs on it, and the energy of each kernel.

Power is constant between edges, so every energy is exact. Edges lie where a kernel starts, ends or changes, and
at each millisecond, so that slowly varying quantities may be taken as constant from edge to edge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jouletrace.arrays import Floats, Ints
from jouletrace.simulator.sensors import Power
from simulated_programs import Scene, wander

BLOCK_NS = 1_000_000
"""Within a block the temperature, the clock and all other slowly varying quantities are constant."""
GOVERNOR_BLOCKS = 55
"""Delay of the governor: an H100 exceeds its cap for 70 ms, and is at the cap 60 ms later."""
CLOCK_EXPONENT = 2.5
"""Dynamic power is proportional to the clock to this power: clock times voltage squared, which rises with the clock."""


@dataclass(frozen=True)
class Board:
    """A GPU's hidden behaviour; arrays have one entry per kind of kernel.

    Times since the first edge are those of the scene at the nominal clock, except for other processes.

    Attributes:
        head: Power above idle at a kernel's start, relative to its steady power.
        head_ns: Length of the head; at most a quarter of the kernel.
        tail: Power above idle at a kernel's end, reached in two steps, relative to its steady power.
        tail_ns: Length of the tail; at most half of the kernel.
        after: Relative change of a kind's power (column) after a kernel of another or the same kind (row).
        poles_ns: Time constants between the chip and the place where its power is sensed.
        scatter: Relative standard deviation of power between instances.
        scatter_s: Correlation times of the scatter common to instances of a kind, and of that common to all kinds.
        heat: Relative rise of dynamic power while the die warms.
        heat_w: Rise of idle power while the die warms.
        heat_s: Time constant of the warming.
        ramp: Relative deficit of dynamic power after a long idle time.
        ramp_s: Time constant after which the deficit is gone.
        regimes: Time since the first edge in s, and relative clock from there on; sorted.
        limit_w: Power cap; infinite for none.
        swing_w: Standard deviation of power at the cap, with a correlation time of 60 ms.
        overlap: Power above idle of concurrent kernels, relative to the sum of their powers alone.
        ceiling_w: Upper bound on the power above idle of concurrent kernels.
        foreign: Start and end in s, and power in W, of the load of other processes.
    """

    head: Floats
    head_ns: Floats
    tail: Floats
    tail_ns: Floats
    after: Floats
    poles_ns: tuple[float, ...] = (20_000.0,)
    scatter: float = 0.03
    scatter_s: tuple[float, float] = (0.3, 0.5)
    heat: float = 0.01
    heat_w: float = 4.0
    heat_s: float = 60.0
    ramp: float = 0.03
    ramp_s: float = 0.03
    regimes: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    limit_w: float = np.inf
    swing_w: float = 40.0
    overlap: float = 0.9
    ceiling_w: float = 800.0
    foreign: tuple[tuple[float, float, float], ...] = ()

    @staticmethod
    def ideal(kinds: int) -> Board:
        """A GPU on which each kernel draws its steady power from its start to its end."""
        one = np.ones(kinds)
        after = np.zeros((kinds, kinds))
        return Board(one, 0 * one, one, 0 * one, after, (), 0.0, heat=0.0, heat_w=0.0, ramp=0.0, overlap=1.0)

    @staticmethod
    def draw(rng: np.random.Generator, kinds: int, seconds: float) -> Board:
        """A GPU like an H100: heads up to 1.4, tails down to 0.5, the clock's two regimes.

        Its scatter leaves the residuals that a regression leaves on real H100s: 4 to 9 W for readings of long kernels.
        """
        jumps = np.r_[0.0, np.cumsum(rng.exponential(8.0, int(seconds) + 8) + 1.0)]
        low, high = sorted(1 + rng.normal(0, 0.0035, 2))
        clocks = np.where(np.arange(len(jumps)) % 2 == rng.integers(2), low, high)
        return Board(
            head=rng.uniform(0.85, 1.4, kinds),
            head_ns=rng.uniform(20_000, 40_000, kinds),
            tail=rng.uniform(0.5, 1.0, kinds),
            tail_ns=rng.uniform(45_000, 70_000, kinds),
            after=rng.normal(0, rng.uniform(0, 0.02), (kinds, kinds)),
            poles_ns=tuple(rng.uniform(8_000, 30_000, rng.integers(1, 3))),
            scatter=rng.uniform(0.015, 0.035),
            scatter_s=(rng.uniform(0.05, 0.6), rng.uniform(0.2, 2.0)),
            heat=rng.uniform(0.005, 0.02),
            heat_w=rng.uniform(1, 5),
            heat_s=rng.uniform(20, 120),
            ramp=rng.uniform(0, 0.06),
            ramp_s=rng.uniform(0.01, 0.06),
            regimes=tuple((float(at), float(clock)) for at, clock in zip(jumps, clocks, strict=True)),
        )


@dataclass(frozen=True)
class Drawn:
    """Energy of a scene by consumer. Kernels that run at once get equal parts of the energy drawn meanwhile.

    Attributes:
        kernel_j: Energy of each kernel.
        idle_j: Energy while no kernel ran.
        idle_s: Time for which no kernel ran.
        foreign_j: Energy of other processes, at any time.
    """

    kernel_j: Floats
    idle_j: float
    idle_s: float
    foreign_j: float


def play(rng: np.random.Generator, scene: Scene, board: Board) -> tuple[Scene, Power, Drawn]:
    """Run a scene on a GPU.

    Args:
        rng: Source of all randomness.
        scene: The scene as it would run at the nominal clock.
        board: The GPU.

    Returns:
        The scene as it ran (kernels take longer at a lower clock, idle time doesn't), its power, and the energy by
        consumer.
    """
    blocks = int((scene.finish_ns - scene.begin_ns) // BLOCK_NS) + 1
    edge, dynamic, busy, place = _pieces(scene, board, _scatter(rng, scene, board, blocks), blocks)
    dynamic = np.where(busy > 1, np.minimum(board.overlap * dynamic, board.ceiling_w), dynamic)
    step = np.diff(edge)
    block = np.minimum(edge[:-1] // BLOCK_NS, blocks - 1)

    slow = _warmth(block, busy > 0, step, blocks, board)
    idle = scene.idle_w + board.heat_w * _heat(blocks, board)
    clock = _clock(rng, _block_mean(block, dynamic, step, blocks) * slow, idle, board)
    ran = np.rint(np.cumsum(np.where(busy > 0, step / clock[block], step))).astype(np.int64)
    edge = np.r_[0, ran]
    own = idle[block] + dynamic * (slow * clock**CLOCK_EXPONENT)[block]
    foreign = _foreign(edge, board)

    power = Power(scene.begin_ns, edge, own + foreign, board.poles_ns)
    return (
        replace(
            scene,
            start_ns=scene.begin_ns + edge[place[:, 0]],
            end_ns=scene.begin_ns + edge[place[:, 1]],
            finish_ns=scene.begin_ns + power.length_ns,
        ),
        power,
        _who_drew(edge, own, foreign, busy, place),
    )


def _pieces(scene: Scene, board: Board, factor: Floats, blocks: int) -> tuple[Ints, Floats, NDArray[np.int32], Ints]:
    """Edges; between edges, the sum of powers above idle and the number of kernels; the edges of each kernel."""
    start, length, kind = scene.start_ns - scene.begin_ns, scene.end_ns - scene.start_ns, scene.kind
    head = np.minimum(board.head_ns[kind], length / 4).astype(np.int64)
    tail = np.minimum(board.tail_ns[kind], length / 2).astype(np.int64)
    cuts = np.column_stack([0 * head, head, length - tail, length - tail // 2, length]) + start[:, None]
    parts = np.column_stack([board.head, np.ones_like(board.head), (1 + board.tail) / 2, board.tail])
    level = parts[kind] * (factor * (scene.kinds.power_w[kind] - scene.idle_w))[:, None]

    kernels = len(scene)
    ends = np.r_[np.arange(blocks) * BLOCK_NS, scene.finish_ns - scene.begin_ns]
    time = np.r_[cuts.ravel(), ends]
    change = np.r_[np.diff(level, axis=1, prepend=0, append=0).ravel(), np.zeros(len(ends))]
    del cuts, level
    order = np.argsort(time, kind="stable")
    began = np.zeros(len(time), dtype=np.int8)
    began[: 5 * kernels : 5], began[4 : 5 * kernels : 5] = 1, -1
    busy = np.cumsum(began[order], dtype=np.int32)[:-1]
    # differences of sums leave rounding errors where nothing runs
    dynamic = np.where(busy > 0, np.cumsum(change[order])[:-1], 0.0)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return time[order], dynamic, busy, rank[: 5 * kernels].reshape(-1, 5)[:, [0, 4]].copy()


def _who_drew(edge: Ints, own: Floats, foreign: Floats, busy: NDArray[np.int32], place: Ints) -> Drawn:
    """Apportion energy to kernels, idle time and other processes."""
    step = np.diff(edge) * 1e-9
    share = np.r_[0.0, np.cumsum(own * step / np.maximum(busy, 1))]
    alone = busy == 0
    return Drawn(
        share[place[:, 1]] - share[place[:, 0]],
        float(own[alone] @ step[alone]),
        float(step[alone].sum()),
        float(foreign @ step),
    )


# --- Slowly varying quantities: one value per block ------------------------------------------------------------------


def _low_pass(value: Floats, seconds: float, start: float) -> Floats:
    """First-order response of blocks to ``value``, from the steady state of ``start``."""
    from scipy.signal import lfilter  # slow to import

    keep = np.exp(-BLOCK_NS * 1e-9 / seconds)
    return np.asarray(lfilter([1 - keep], [1.0, -keep], value, zi=[keep * start])[0], dtype=np.float64)


def _block_mean(block: Ints, value: Floats, step: Ints, blocks: int) -> Floats:
    """Mean of ``value`` over each block."""
    return np.bincount(block, value * step, blocks) / np.maximum(np.bincount(block, step, blocks), 1)


def _scatter(rng: np.random.Generator, scene: Scene, board: Board, blocks: int) -> Floats:
    """Power of each kernel relative to its kind's.

    Half of the variance is slow and common to the kind, a tenth is slow and common to all kinds.
    """
    before = np.r_[scene.kind[0], scene.kind[:-1]]
    usual = 1 + board.after[before, scene.kind]
    if not board.scatter:
        return np.asarray(usual)
    block = (scene.start_ns - scene.begin_ns) // BLOCK_NS
    seconds = BLOCK_NS * 1e-9
    factor = np.sqrt(0.4) * rng.standard_normal(len(scene))
    factor += np.sqrt(0.1) * wander(rng, blocks, seconds, board.scatter_s[1])[block]
    for kind in range(len(scene.kinds)):
        mine = scene.kind == kind
        factor[mine] += np.sqrt(0.5) * wander(rng, blocks, seconds, board.scatter_s[0])[block[mine]]
    return np.asarray(usual * np.maximum(1 + board.scatter * factor, 0.1))


def _heat(blocks: int, board: Board) -> Floats:
    """Share of its warming that the die has completed, 0 to 1."""
    return np.asarray(1 - np.exp(-np.arange(blocks) * BLOCK_NS * 1e-9 / board.heat_s))


def _warmth(block: Ints, busy: NDArray[np.bool_], step: Ints, blocks: int, board: Board) -> Floats:
    """Dynamic power relative to the nominal one: heat raises it, preceding idle time lowers it."""
    recent = _low_pass(_block_mean(block, busy.astype(np.float64), step, blocks), board.ramp_s, 0.0)
    return (1 + board.heat * _heat(blocks, board)) * (1 - board.ramp * (1 - recent))


def _clock(rng: np.random.Generator, dynamic: Floats, idle: Floats, board: Board) -> Floats:
    """Relative clock: the regime's, lowered where power exceeds the cap. The governor acts late, so loads overshoot."""
    since, clocks = np.array(board.regimes).T
    seconds = np.arange(len(dynamic)) * BLOCK_NS * 1e-9
    regime: Floats = clocks[np.maximum(np.searchsorted(since, seconds, "right") - 1, 0)]
    if not np.isfinite(board.limit_w):
        return regime
    wanted = np.maximum(_low_pass(dynamic * regime**CLOCK_EXPONENT, 0.015, 0.0), 1.0)
    allowed = np.clip((board.limit_w - idle) / wanted, 0.05, 1.0)
    allowed = np.r_[np.ones(GOVERNOR_BLOCKS), allowed][: len(wanted)]
    swing = 1 + board.swing_w / (board.limit_w - idle) * wander(rng, len(dynamic), BLOCK_NS * 1e-9, 0.06)
    governed = np.clip(np.where(allowed < 0.999, allowed * swing, allowed), 0.05, 1.0)
    return np.asarray(regime * governed ** (1 / CLOCK_EXPONENT), dtype=np.float64)


def _foreign(edge: Ints, board: Board) -> Floats:
    """Power of other processes from each edge to the next."""
    middle = (edge[:-1] + edge[1:]) * 0.5e-9
    power = np.zeros(len(middle))
    for start, end, watts in board.foreign:
        power[slice(*np.searchsorted(middle, (start, end)))] += watts
    return power
