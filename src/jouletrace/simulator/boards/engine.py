"""The physics of a simulated GPU, in cells of at most a millisecond.

In each cell the load sets a power over idle, at the governor's clock as modified by the GPU's state.
Board power follows it through two first-order lags (a real GPU settles for about 80 ms after a load
ends); idle power including leakage is added. Power is constant within a cell, so every energy is
exact by construction.

The lags are linear: they delay energy and lose none. Energy that was caused but not drawn yet is
their content times their time constant, kept as the trace's ``TAIL``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import exp, sqrt

import numpy as np

from jouletrace.arrays import Floats, Ints
from jouletrace.simulator.boards.clock import FOREVER_NS
from jouletrace.simulator.boards.load import Load
from jouletrace.simulator.boards.presets import CLOCK_STEP_MHZ, Parameters, Preset

Row = tuple[int, float, float, float, float, float, float]
"""One edge: time and the columns below."""

ENERGY, TAIL, BUSY, CLOCK, TEMPERATURE, CAPPED = range(6)
_COLUMNS = 6
_FIRST_ROOM = 4096


class BoardTrace:
    """Keeps what happened on a GPU, edge by edge.

    ``ENERGY`` (J), ``TAIL`` (J) and ``BUSY`` (s) are values at the edge; ``CLOCK`` (MHz),
    ``TEMPERATURE`` (°C) and ``CAPPED`` (0 or 1) hold since the previous edge.

    Args:
        start_ns: The first edge, in nanoseconds since the Unix epoch.
        temperature_c: Temperature there.
        past_ns: Age from which on edges may be dropped, which bounds memory.
    """

    def __init__(self, start_ns: int, temperature_c: float, past_ns: int = FOREVER_NS) -> None:
        # times from the start, so that they stay exact where numpy converts them to floats
        self.start_ns = start_ns
        self._past_ns = past_ns
        self._time = np.zeros(_FIRST_ROOM, dtype=np.int64)
        self._data = np.zeros((_COLUMNS, _FIRST_ROOM))
        self._data[TEMPERATURE, 0] = temperature_c
        self._count = 1

    @property
    def since_ns(self) -> int:
        """The oldest edge that is kept, in nanoseconds since the Unix epoch."""
        return self.start_ns + int(self._time[0])

    @property
    def end_ns(self) -> int:
        """The last edge, in nanoseconds since the Unix epoch."""
        return self.start_ns + int(self._time[self._count - 1])

    def extend(self, rows: list[Row]) -> None:
        """Append edges, oldest first; each is a time since the epoch and the columns."""
        if not rows:
            return
        if self._count + len(rows) > len(self._time):
            times = self._time[: self._count]
            kept = slice(int(np.searchsorted(times, times[-1] - self._past_ns)), self._count)
            before, self._count = (self._time[kept], self._data[:, kept]), self._count - kept.start
            room = 2 * (self._count + len(rows))
            if room > len(self._time):
                self._time, self._data = np.zeros(room, dtype=np.int64), np.zeros((_COLUMNS, room))
            self._time[: self._count], self._data[:, : self._count] = before
        count = self._count + len(rows)
        self._time[self._count : count] = [row[0] - self.start_ns for row in rows]
        self._data[:, self._count : count] = np.array([row[1:] for row in rows]).T
        self._count = count

    def edges(self, start_ns: int, end_ns: int) -> tuple[Ints, Floats]:
        """The cells that overlap a window: their edges in ns since the epoch, and the columns there."""
        first = max(int(np.searchsorted(self._time[: self._count], start_ns - self.start_ns, "right")) - 1, 0)
        last = int(np.searchsorted(self._time[: self._count], end_ns - self.start_ns, "left")) + 1
        last = min(last, self._count)
        return self._time[first:last] + self.start_ns, self._data[:, first:last]

    def reached(self, column: int, time_ns: Ints | int) -> Floats:
        """Value of ``ENERGY``, ``TAIL`` or ``BUSY`` at any times, linear between edges.

        Times before the first edge give the first value, as if the GPU had been off.
        """
        at = np.asarray(time_ns, dtype=np.int64) - self.start_ns
        low, high = self._span(at)
        value: Floats = np.interp(at, self._time[low:high], self._data[column, low:high])
        return value

    def held(self, column: int, time_ns: int) -> float:
        """Value of ``CLOCK``, ``TEMPERATURE`` or ``CAPPED`` at a time."""
        at = int(np.searchsorted(self._time[: self._count], time_ns - self.start_ns, "left"))
        return float(self._data[column, min(at, self._count - 1)])

    def _span(self, at: Ints) -> tuple[int, int]:
        """The slice of edges that covers ``at``; interpolation over the whole history would be slow."""
        if at.size == 0:
            return 0, self._count
        times = self._time[: self._count]
        low = int(np.searchsorted(times, at.min(), "right")) - 1
        high = int(np.searchsorted(times, at.max(), "left")) + 1
        return max(low, 0), max(min(high, self._count), max(low, 0) + 1)


CELL_NS = 1_000_000
REFERENCE_C = 40.0
_CELL_S = CELL_NS / 1e9
_DRIFT_CELLS = 100
_DEEP_LEAK = 0.35


class Engine:
    """The state of a GPU from ``start_ns`` on; ``run`` advances it, idle or at work.

    ``noise`` scales all noise and drift; with ``sharp``, cells also end where kernels end, so that power is exact
    within a millisecond. A ``cap_w`` of None is no limit. ``past_ns`` is that of ``BoardTrace``.

    Attributes:
        context: Whether some process holds a context.
        trace: What happened so far.
        cycles: Cycles of an SM so far, at the real clock.
    """

    def __init__(
        self,
        preset: Preset,
        parameters: Parameters,
        cap_w: float | None,
        *,
        start_ns: int,
        rng: np.random.Generator,
        noise: float = 1.0,
        sharp: bool = False,
        past_ns: int = FOREVER_NS,
    ) -> None:
        p = self._parameters = parameters
        self._preset = preset
        self.context = False
        self.governor = Governor(p, cap_w, preset.clock_max_mhz, preset.clock_min_mhz, noise)
        self._temperature_c = p.ambient_c + p.deep_idle_w * p.kelvin_per_w
        self.trace = BoardTrace(start_ns, self._temperature_c, past_ns)
        self.cycles = 0.0
        self._rng = rng
        self._normals = self._draw_normals()
        self._noise = noise
        self._sharp = sharp
        self._now_ns = start_ns
        self._energy_j = 0.0
        self._busy_s = 0.0
        self._fast_w = 0.0
        self._slow_w = 0.0
        self._cells = 0
        self._tick_j = 0.0
        self._tick_ns = round(p.governor_s * 1e9 / CELL_NS) * CELL_NS
        self._tick_from_ns = start_ns
        # autocorrelated noises: each is multiplied by keep and refreshed at every whole cell
        self._load_noise, self._idle_noise_w, self._drift, self._run_offset = 0.0, 0.0, 0.0, 0.0
        self._load_keep = exp(-_CELL_S / p.load_noise_s)
        self._load_fresh = p.load_noise * noise * sqrt(1 - self._load_keep**2)
        self._idle_keep = exp(-_CELL_S / p.load_noise_s)
        self._idle_fresh = p.idle_noise_w * noise * sqrt(1 - self._idle_keep**2)
        self._drift_keep = exp(-_DRIFT_CELLS * _CELL_S / p.drift_s)
        self._drift_fresh = p.drift * noise * sqrt(1 - self._drift_keep**2)
        # what a whole cell leaves of the lags' content; most cells are whole
        self._cell_keeps = exp(-_CELL_S / p.fast_s), exp(-_CELL_S / p.slow_s)
        self.new_run()

    def new_run(self) -> None:
        """Begin a new run, whose load power deviates slightly from that of other runs."""
        self._run_offset = self._parameters.run_spread * self._noise * next(self._normals)
        self._drift = self._parameters.drift * self._noise * next(self._normals)

    def idle_w(self, temperature_c: float | None = None, context: bool | None = None) -> float:
        """Idle power in watts, leakage included; by default at the present temperature and context."""
        p = self._parameters
        heat = (self._temperature_c if temperature_c is None else temperature_c) - REFERENCE_C
        leak = p.leak_w * (exp(heat / p.leak_scale_c) - 1)
        if self.context if context is None else context:
            return p.context_idle_w + leak
        return p.deep_idle_w + _DEEP_LEAK * leak

    def run(self, until_ns: int, load: Load | None = None) -> int:
        """Simulate the GPU until a time, or until its load is done.

        Returns:
            The time reached, in nanoseconds since the Unix epoch.
        """
        rows: list[Row] = []
        if load is not None:
            self._set_clock(load)
        done = False
        while self._now_ns < until_ns and not done:
            grid_ns = (self._now_ns // CELL_NS + 1) * CELL_NS
            edge_ns = grid_ns if grid_ns < until_ns else until_ns
            if load is not None:
                left_ns = load.left_s() * 1e9
                if left_ns < 0.5:
                    break
                if self._sharp:  # one nanosecond later, to pass the edge
                    edge_ns = self._now_ns + int(min(edge_ns - self._now_ns, load.edge_s() * 1e9 + 1))
                if left_ns <= edge_ns - self._now_ns:
                    edge_ns, done = self._now_ns + max(round(left_ns), 1), True
            rows.append(self._cell(edge_ns, load))
            # noise and clock change on the grid alone, so that a read within a cell changes nothing
            if edge_ns == grid_ns and self._whole_cell() and load is not None:
                self._set_clock(load)
        self.trace.extend(rows)
        return self._now_ns

    def _cell(self, edge_ns: int, load: Load | None) -> Row:
        # a thousand of these are a simulated second
        p, governor, length_ns = self._parameters, self.governor, edge_ns - self._now_ns
        seconds = length_ns / 1e9
        idle_w = self.idle_w() + self._idle_noise_w
        active_w = 0.0
        if load is not None:
            active_w, busy = load.advance(seconds, idle_w)
            active_w *= 1 + self._load_noise + self._drift + self._run_offset
            self._busy_s += busy * seconds
        fast_s, slow_s, slow_to = p.fast_s, p.slow_s, p.slow_share * active_w
        if length_ns == CELL_NS:
            fast_keep, slow_keep = self._cell_keeps
        else:
            fast_keep, slow_keep = exp(-seconds / fast_s), exp(-seconds / slow_s)
        fast_before, slow_before = self._fast_w, self._slow_w
        fast_to = (1 - p.slow_share) * active_w
        self._fast_w = fast = fast_to + (fast_before - fast_to) * fast_keep
        self._slow_w = slow = slow_to + (slow_before - slow_to) * slow_keep
        # exact integral of a first-order lag: its input less the increase of its content
        energy_j = (idle_w + active_w) * seconds - fast_s * (fast - fast_before) - slow_s * (slow - slow_before)
        self._energy_j += energy_j
        self._tick_j += energy_j
        settled_c = p.ambient_c + p.kelvin_per_w * energy_j / seconds
        self._temperature_c += (settled_c - self._temperature_c) * seconds / p.thermal_s
        self._now_ns = edge_ns
        works = self.context or load is not None or governor.locked
        clock = governor.clock_mhz if works else self._preset.clock_idle_mhz
        self.cycles += clock * seconds * 1e6
        return (
            edge_ns,
            self._energy_j,
            fast_s * fast + slow_s * slow,
            self._busy_s,
            clock,
            self._temperature_c,
            float(governor.holding),
        )

    def _whole_cell(self) -> bool:
        """Refresh noises at the end of a whole cell; True if the clock has changed."""
        self._cells += 1
        normals = self._normals
        self._load_noise = self._load_noise * self._load_keep + self._load_fresh * next(normals)
        self._idle_noise_w = self._idle_noise_w * self._idle_keep + self._idle_fresh * next(normals)
        if self._cells % _DRIFT_CELLS == 0:
            self._drift = self._drift * self._drift_keep + self._drift_fresh * next(self._normals)
        if self._now_ns - self._tick_from_ns < self._tick_ns:
            return False
        before = self.governor.clock_mhz
        mean_w = self._tick_j * 1e9 / (self._now_ns - self._tick_from_ns)
        self.governor.tick(mean_w, next(self._normals), next(self._normals))
        self._tick_j, self._tick_from_ns = 0.0, self._now_ns
        return self.governor.clock_mhz != before

    def _set_clock(self, load: Load) -> None:
        ratio = self.governor.ratio
        load.set_clock(ratio, self._parameters.voltage_squared(ratio))

    def _draw_normals(self) -> Iterator[float]:
        while True:
            yield from self._rng.standard_normal(4096).tolist()


_WINDOW_TICKS = 3
_DELAY_TICKS = 2


class Governor:
    """Integrates its delayed estimate of the excess power into a lower clock.

    Because of the delay a load that starts overshoots the cap for about 50 ms. Because of the error
    of its estimate power under a cap wanders by several per cent while the mean stays at the cap.

    Attributes:
        clock_mhz: The clock.
        locked: Whether a user has locked it; the cap lowers it nevertheless.
    """

    def __init__(
        self, parameters: Parameters, cap_w: float | None, clock_max_mhz: float, clock_min_mhz: float, noise: float
    ) -> None:
        self.clock_mhz = clock_max_mhz
        self.tick_s = parameters.governor_s
        self._gain = parameters.governor_gain
        self._cap_w = cap_w
        self._clock_max_mhz = clock_max_mhz
        self._floor = self._lowest = clock_min_mhz / clock_max_mhz
        self._target = self._top = 1.0
        self._top_mhz = clock_max_mhz
        self.locked = False
        self._seen: deque[float] = deque([0.0] * (_WINDOW_TICKS + _DELAY_TICKS), maxlen=_WINDOW_TICKS + _DELAY_TICKS)
        self._error = 0.0
        self._keep = exp(-self.tick_s / parameters.governor_noise_s)
        self._dither = parameters.governor_dither * noise
        self._fresh = parameters.governor_noise * noise * sqrt(1 - self._keep**2)

    @property
    def ratio(self) -> float:
        """The clock over the highest one."""
        return self.clock_mhz / self._clock_max_mhz

    @property
    def holding(self) -> bool:
        """True if the cap lowers the clock."""
        return self.clock_mhz < self._top_mhz

    def lock(self, mhz: float | None) -> None:
        """Lock the clock; None unlocks it."""
        self.locked = mhz is not None
        top_mhz = self._clock_max_mhz if mhz is None else mhz
        if top_mhz != self._top_mhz:
            top = top_mhz / self._clock_max_mhz
            if self._target >= min(self._top, top):  # the cap doesn't lower it
                self._target, self.clock_mhz = top, top_mhz
            self._top, self._top_mhz, self._lowest = top, top_mhz, min(self._floor, top)

    def tick(self, mean_w: float, normal: float, other_normal: float) -> None:
        """Set the clock after a tick of mean power ``mean_w``; the other arguments are standard normal draws."""
        if self._cap_w is None:
            return
        self._error = self._error * self._keep + self._fresh * normal
        self._seen.append(mean_w)
        believed = sum(list(self._seen)[:_WINDOW_TICKS]) / _WINDOW_TICKS / self._cap_w + self._error
        self._target = min(max(self._target + self._gain * (1 - believed), self._lowest), self._top)
        if self._target < self._top:
            ratio = min(max(self._target + self._dither * other_normal, self._lowest), self._top)
            self.clock_mhz = round(ratio * self._clock_max_mhz / CLOCK_STEP_MHZ) * CLOCK_STEP_MHZ
        else:
            self.clock_mhz = self._top_mhz
