"""NVML of a simulated GPU: the calls of pynvml by which ``devices.nvml`` reads one, answered in NVML's units.

The true properties of a sensor stay hidden: a call returns no more than that of a real driver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from jouletrace.arrays import Floats, Ints
from jouletrace.run.channels import GAIN_PCT
from jouletrace.simulator.boards import engine as columns
from jouletrace.simulator.boards.board import Board
from jouletrace.simulator.boards.instruments import (
    Counter,
    Faults,
    Held,
    Ring,
    SampledResponse,
    SmoothResponse,
    smoothed,
)
from jouletrace.simulator.boards.presets import CLOCK_LOWEST_MHZ, CLOCK_STEP_MHZ, Parameters, Preset, generator
from jouletrace.simulator.boards.set_values import CLOCK, LIMIT, SetValues, SimulatedNvmlError, limit_w
from jouletrace.simulator.boards.spec import SimSpec
from jouletrace.simulator.sensors import Power, SamplingSensor

_CONTEXT_BYTES = 620 << 20
_DRIVER_BYTES = 510 << 20
_UTILIZATION_NS = 200_000_000
_SET_NS = 10_000_000
_IDLE_BIT = 0x1
_POWER_CAP_BIT = 0x4

_NOT_SUPPORTED, _NOT_FOUND = 3, 6
_UNSIGNED_INT = 1
_SM, _INSTANT = 1, 186
_DIVISIBLE = ((8, 0), (9, 0))
"""Compute capabilities of presets that MIG can divide: those of the A100, and of the H100 and H200."""

_FUNCTIONS = ("nvmlInit", "nvmlShutdown", "nvmlSystem", "nvmlDevice", "nvmlGpm", "nvmlGpuInstance")


class SimulatedNvml:
    """The library of a machine with one simulated GPU, for ``devices.nvml.api.Nvml`` in place of ``pynvml``.

    A call that it doesn't answer is refused, as by a driver that doesn't support it.
    """

    NVMLError = SimulatedNvmlError

    def __init__(self, uuid: str, board: Board, preset: Preset, parameters: Parameters, spec: SimSpec) -> None:
        self._uuid, self._board, self._preset = uuid, board, preset
        self.instruments = Instruments(board, preset, parameters, spec)
        self._set = SetValues(uuid, spec)
        self._step_mhz = spec.rounds
        self._follow()
        limits = [round(watts * 1e3) for watts in (preset.cap_min_w, preset.cap_w)]
        self._answers: dict[str, Callable[..., Any]] = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: "simulated",
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda _: self,
            "nvmlDeviceGetUUID": lambda _: uuid,
            "nvmlDeviceGetName": lambda _: f"SIMULATED {preset.title}",
            "nvmlDeviceGetCudaComputeCapability": lambda _: preset.capability,
            "nvmlDeviceGetPowerManagementLimitConstraints": lambda _: limits,
            "nvmlDeviceGetPowerManagementDefaultLimit": lambda _: limits[1],
            "nvmlDeviceGetComputeRunningProcesses": lambda _: [],
            "nvmlDeviceGetGraphicsRunningProcesses": lambda _: [],
            "nvmlDeviceGetSamples": self._samples,
            "nvmlDeviceGetFieldValues": self._fields,
            "nvmlDeviceGetTotalEnergyConsumption": lambda _: round(1e3 * self._read(self.instruments.counter)),
            "nvmlDeviceGetClockInfo": self._clock_mhz,
            "nvmlDeviceGetSupportedMemoryClocks": lambda _: [round(preset.clock_memory_mhz)],
            "nvmlDeviceGetSupportedGraphicsClocks": lambda *_: np.arange(
                preset.clock_max_mhz, CLOCK_LOWEST_MHZ - 1, -CLOCK_STEP_MHZ
            ).tolist(),
            "nvmlDeviceSetGpuLockedClocks": lambda _, __, mhz: self._lock(mhz),
            "nvmlDeviceResetGpuLockedClocks": lambda _: self._lock(None),
            "nvmlDeviceGetTemperature": lambda *_: round(self._held(columns.TEMPERATURE)),
            "nvmlDeviceGetCurrentClocksEventReasons": self._throttling,
            "nvmlDeviceGetMemoryInfo": self._memory,
            "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=self._busy_pct(), memory=self._busy_pct()),
        }
        if (usage := self.instruments.average or self.instruments.sparse) is not None:
            self._answers["nvmlDeviceGetPowerUsage"] = lambda _: round(1e3 * self._read(usage))
        if (named_w := spec.cap_w(preset)) is not None:
            for name in ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"):
                self._answers[name] = lambda _: round(1e3 * limit_w(uuid, spec, named_w))
        if spec.cap is None:  # a limit that its name states stays
            self._answers["nvmlDeviceSetPowerManagementLimit"] = lambda _, mw: self._set.put(LIMIT, mw / 1e3)
        if preset.capability in _DIVISIBLE:
            self._answers["nvmlDeviceGetMigMode"] = lambda _: (0, 0)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The function of that name.

        Raises:
            AttributeError: If it is none of NVML's, but a constant or a type of pynvml.
        """
        if not name.startswith(_FUNCTIONS):
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            if name not in self._answers:
                raise SimulatedNvmlError(_NOT_SUPPORTED)
            self._board.catch_up()
            return self._answers[name](*args)

        return call

    def _now_ns(self) -> int:
        # a busy host may have delayed us since ``catch_up``: there is no power yet that could be read
        return min(self._board.clock.time_ns(), self._board.engine.trace.end_ns)

    def _read(self, instrument: Held | Counter) -> float:
        return instrument.read(self._now_ns())[1]

    def _held(self, column: int) -> float:
        return self._board.engine.trace.held(column, self._now_ns())

    def _samples(self, _: Any, kind: int, after_us: int) -> tuple[int, list[Any]]:
        ring = self.instruments.ring
        if ring is None or kind != 0:
            raise SimulatedNvmlError(_NOT_SUPPORTED)
        ahead_ns = round(self._board.clock.ahead_ns() / _SET_NS) * _SET_NS  # a driver stamps by the host's clock
        stamps, watts = ring.newer_than(after_us * 1000 - ahead_ns, self._now_ns())
        if len(stamps) == 0:
            raise SimulatedNvmlError(_NOT_FOUND)
        rows = zip(((stamps + ahead_ns) // 1000).tolist(), np.rint(watts * 1e3).astype(np.int64).tolist(), strict=True)
        return _UNSIGNED_INT, [SimpleNamespace(timeStamp=us, sampleValue=SimpleNamespace(uiVal=mw)) for us, mw in rows]

    def _fields(self, _: Any, asked: list[tuple[int, int]]) -> list[Any]:
        return [self._field(*wanted) for wanted in asked]

    def _field(self, field: int, scope: int) -> Any:
        instant = self.instruments.instant
        if instant is None or (field, scope) != (_INSTANT, 0):
            return SimpleNamespace(nvmlReturn=_NOT_SUPPORTED)
        value = SimpleNamespace(uiVal=round(1e3 * self._read(instant)))
        return SimpleNamespace(nvmlReturn=0, valueType=_UNSIGNED_INT, value=value)

    def _clock_mhz(self, _: Any, domain: int) -> float:
        if domain != _SM:
            return self._preset.clock_memory_mhz
        locked_mhz = self._follow()
        # "regardless if an app is running": nvidia-smi --help on --lock-gpu-clocks
        return locked_mhz if locked_mhz and not self._board.context_held else self._held(columns.CLOCK)

    def _follow(self) -> float | None:
        """Bring the lock that is in force to the GPU; returns it."""
        locked_mhz = self._set.get(CLOCK)
        self._board.engine.governor.lock(locked_mhz)
        return locked_mhz

    def _lock(self, mhz: float | None) -> None:
        self._set.put(
            CLOCK,
            None if mhz is None else min(round(mhz / self._step_mhz) * self._step_mhz, self._preset.clock_max_mhz),
        )

    def _busy_pct(self) -> int:
        since = np.array([self._now_ns() - _UTILIZATION_NS, self._now_ns()])
        busy_s = float(np.diff(self._board.engine.trace.reached(columns.BUSY, since))[0])
        return round(100 * min(busy_s / (_UTILIZATION_NS / 1e9), 1.0))

    def _throttling(self, _: Any) -> int:
        capped = self._held(columns.CAPPED) > 0
        return (_IDLE_BIT if self._busy_pct() == 0 else 0) | (_POWER_CAP_BIT if capped else 0)

    def _memory(self, *_: Any) -> Any:
        used = _DRIVER_BYTES + (_CONTEXT_BYTES if self._board.context_held else 0)
        return SimpleNamespace(total=self._preset.memory_bytes, used=used)


class Instruments:
    """The instruments of a GPU.

    Attributes:
        ring: The driver's record; None where it keeps none that is gapless.
        sparse: The usage where no record is kept, else None.
        average, instant: The usage as a mean over a second, and the momentary power; None where it has neither.
        counter: Of energy.
    """

    def __init__(self, board: Board, preset: Preset, parameters: Parameters, spec: SimSpec) -> None:
        self._board = board
        p, trace = parameters, board.engine.trace
        self._faults = faults = _faults(p, preset, spec)
        # a GPU that is opened for another run keeps its faults, while phases and noise are new
        streams = [generator(preset, spec.seed, 4, spec.run, i) for i in range(4)]
        record = _record_response(p, spec, float(generator(preset, spec.seed, 6, spec.run).random()))
        self._sampling = (preset, spec.seed, 7, spec.run)
        self._rate_hz = p.sample_rate_hz
        self.ring: Ring | None = None
        self.sparse: Held | None = None
        self.average: Held | None = None
        self.instant: Held | None = None
        if preset.record == "gapless":
            # as on Hopper: a reading too late for its slot is taken half a slot later
            parts = 2 if preset.average else 0
            self.ring = Ring(trace, p.record_period_s, record, faults, streams[0], parts)
        else:
            self.sparse = Held(trace, p.record_period_s, record, faults, streams[0])
        if preset.average:
            # behind the same filter as the record, whatever the driver does afterwards
            lag_s = p.slow_lag_s + p.record_lag_s
            average = smoothed(p.average_window_s, lag_s, p.record_rise_s)
            instant = smoothed(p.instant_window_s, lag_s, p.record_rise_s)
            self.average = Held(trace, p.slow_period_s, average, faults, streams[1])
            self.instant = Held(trace, p.slow_period_s, instant, faults, streams[2])
        self.counter = Counter(trace, p.slow_period_s, faults, streams[3])

    def sampled(self) -> SampledStretch:
        """A segment whose record, if one exists, is that of a sensor that samples."""
        return SampledStretch(self._board, self.ring, generator(*self._sampling), self._rate_hz, self._faults)


def _faults(p: Parameters, preset: Preset, spec: SimSpec) -> Faults:
    gain = 1 + GAIN_PCT / 100 * (2 * generator(preset, spec.seed, 3).random() - 1) if spec.gain else 1.0
    return Faults(gain * spec.reads, p.record_noise_w * spec.noise, spec.offset)


def _record_response(p: Parameters, spec: SimSpec, phase: float) -> SmoothResponse | SampledResponse:
    if spec.sensor == "sampled":
        return SampledResponse(p.sample_rate_hz, phase, p.record_lag_s + p.record_window_s)
    return smoothed(p.record_window_s, p.record_lag_s, p.record_rise_s)


_POLES_NS = (20_000.0,)
"""Time constants between the chip and the place where its power is sensed."""

_AROUND_NS = 400_000_000
"""Idle time before the first and after the last kernel that the samples cover."""


class SampledStretch:
    """A segment in which the record comes from a sensor that takes momentary samples, as Hopper's does.

    The physics of a GPU advances in cells of a millisecond; kernels are shorter. Here each kernel draws its own
    power, and the sum is the energy that the GPU drew. The record holds its readings back until all powers are known.
    """

    def __init__(
        self, board: Board, ring: Ring | None, rng: np.random.Generator, rate_hz: float, faults: Faults
    ) -> None:
        self._board, self._ring, self._rng, self._rate_hz, self._faults = board, ring, rng, rate_hz, faults

    def __enter__(self) -> SampledStretch:
        self._start_ns = self._board.clock.time_ns()
        self._rows = np.empty((0, 2), np.int64)
        if self._ring is not None:
            self._ring.hold(self._start_ns)
        return self

    def saw(self, edges_ns: Ints, active_w: Floats) -> None:
        """Set the kernels that ran in the segment.

        Args:
            edges_ns: Start and end of each kernel in order, shape (n, 2).
            active_w: Approximate power of each over idle, shape (n,).
        """
        power = self._power(edges_ns, active_w)
        sensor = replace(SamplingSensor.draw(self._rng, power.length_ns / 1e9), rate_hz=self._rate_hz)
        rows = sensor.record(self._rng, power)
        self._rows = rows[rows[:, 0] * 1000 > self._start_ns]

    def __exit__(self, *_: object) -> None:
        if self._ring is not None:
            watts = np.asarray(self._faults.gain * self._rows[:, 1] / 1e3 + self._faults.offset_w, np.float64)
            self._ring.release(self._board.clock.time_ns(), self._rows[:, 0] * 1000, watts)

    def _power(self, edges_ns: Ints, active_w: Floats) -> Power:
        """Power that is constant between edges; adjacent kernels leave no idle time between them."""
        begin, finish = int(edges_ns[0, 0]), int(edges_ns[-1, 1])
        idle = self._board.truth.idle_w(begin)
        drawn = self._board.truth.caused_energy_j(begin, finish) - idle * (finish - begin) / 1e9
        factor = drawn / float((np.diff(edges_ns, axis=1)[:, 0] * active_w).sum() / 1e9)
        edges = np.concatenate([[begin - _AROUND_NS], edges_ns.ravel(), [finish + _AROUND_NS]])
        watts = np.full(len(edges) - 1, idle)
        watts[1::2] += active_w * factor
        return Power(int(edges[0]), edges - edges[0], watts, _POLES_NS)
