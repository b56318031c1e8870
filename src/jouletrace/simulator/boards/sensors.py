"""The readings of a simulated GPU as ``Source``s, as a driver would offer them.

Channels state no more than a driver's documentation does; the true properties of a sensor stay hidden.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from jouletrace.arrays import Floats, Ints
from jouletrace.devices.base import Samples, Source
from jouletrace.run import ChannelInfo
from jouletrace.run.channels import CHANNEL_UNITS, GAIN_PCT, POWER
from jouletrace.sensor.kinds import INSTANT, RECORD, USAGE, sensor_behind
from jouletrace.simulator.boards import engine as columns
from jouletrace.simulator.boards.board import Board
from jouletrace.simulator.boards.instruments import (
    RING_SIZE,
    Counter,
    Faults,
    Held,
    Ring,
    SampledResponse,
    SmoothResponse,
    smoothed,
)
from jouletrace.simulator.boards.presets import Parameters, Preset, generator
from jouletrace.simulator.boards.spec import SimSpec
from jouletrace.simulator.sensors import Power, SamplingSensor

_STATED_RATE_HZ = 1230.0
"""Stated sample rate of a sensor that samples, as for real ones; the true rate of each GPU stays hidden."""

_POLLED_POWER_S = 0.005
_CONTEXT_BYTES = 620 << 20
_DRIVER_BYTES = 510 << 20
_UTILIZATION_NS = 200_000_000
_IDLE_BIT = 0x1
_POWER_CAP_BIT = 0x4


class Reader(Protocol):
    """An instrument that holds each reading until the next."""

    def read(self, now_ns: int) -> tuple[int, float]:
        """Number of the last update, and its reading."""


class RingSource:
    """The driver's record, read as a whole; misses readings that were overwritten since the last call."""

    def __init__(self, board: Board, ring: Ring, channel: ChannelInfo) -> None:
        self.channels: tuple[ChannelInfo, ...] = (channel,)
        # half of the ring's length, so that a late call loses nothing
        self.interval_s = 1.0
        self._board, self._ring = board, ring
        self._last_ns = board.clock.time_ns() - round(RING_SIZE * (channel.period_s or 0.0) * 1e9)

    def poll(self) -> list[Samples]:
        """Readings newer than those of the last call, as far as the ring still holds them."""
        self._board.catch_up()
        stamps, values = self._ring.newer_than(self._last_ns, self._board.clock.time_ns())
        if len(stamps) == 0:
            return []
        self._last_ns = int(stamps[-1])
        return [Samples(self.channels[0].name, stamps, values)]


class HeldSource:
    """A reading that keeps its value between updates, stamped with the time at which it was first read."""

    def __init__(self, board: Board, reader: Reader, channel: ChannelInfo, interval_s: float) -> None:
        self.channels: tuple[ChannelInfo, ...] = (channel,)
        self.interval_s = interval_s
        self._board, self._reader = board, reader
        self._seen = -1

    def poll(self) -> list[Samples]:
        """The reading, if it was updated since the last call."""
        self._board.catch_up()
        now_ns = self._board.clock.time_ns()
        index, value = self._reader.read(now_ns)
        if index <= self._seen:
            return []
        self._seen = index
        return [Samples(self.channels[0].name, np.array([now_ns], dtype=np.int64), np.array([value]))]


class StateSource:
    """Clocks, temperature, throttle reasons, memory and utilisation, read together."""

    interval_s = 0.1

    def __init__(self, board: Board, preset: Preset, channels: tuple[ChannelInfo, ...]) -> None:
        self.channels = channels
        self._board, self._preset = board, preset

    def poll(self) -> list[Samples]:
        """One reading of each."""
        board = self._board
        board.catch_up()
        now_ns = board.clock.time_ns()
        trace = board.engine.trace
        busy = np.diff(trace.reached(columns.BUSY, np.array([now_ns - _UTILIZATION_NS, now_ns])))[0]
        utilization = round(100 * min(busy / (_UTILIZATION_NS / 1e9), 1.0))
        capped = trace.held(columns.CAPPED, now_ns) > 0
        values = {
            "clock_sm_mhz": trace.held(columns.CLOCK, now_ns),
            "clock_memory_mhz": self._preset.clock_memory_mhz,
            "temperature_c": float(round(trace.held(columns.TEMPERATURE, now_ns))),
            "throttle_bits": float((_IDLE_BIT if utilization == 0 else 0) | (_POWER_CAP_BIT if capped else 0)),
            "memory_used_bytes": float(_DRIVER_BYTES + (_CONTEXT_BYTES if board.context_held else 0)),
            "utilization_gpu_pct": float(utilization),
        }
        time = np.array([now_ns], dtype=np.int64)
        return [Samples(channel.name, time, np.array([values[channel.name]])) for channel in self.channels]


class SensorSet:
    """All instruments of a GPU, and sources that read them."""

    def __init__(self, board: Board, preset: Preset, parameters: Parameters, spec: SimSpec, device_id: str) -> None:
        self._board, self._preset, self._spec, self._device_id = board, preset, spec, device_id
        p, trace = parameters, board.engine.trace
        faults = _faults(p, preset, spec)
        # a GPU that is opened for another run keeps its faults, while phases and noise are new
        streams = [generator(preset, spec.seed, 4, spec.run, i) for i in range(4)]
        record = _record_response(p, spec, float(generator(preset, spec.seed, 6, spec.run).random()))
        self._ring: Ring | None = None
        self._sampling_s = 1 / _STATED_RATE_HZ if spec.sensor == "sampled" else None
        self._rate_hz = p.sample_rate_hz
        self._sparse = self._average = self._instant = None
        if preset.record == "gapless":
            # as on Hopper: a reading too late for its slot is taken half a slot later
            parts = 2 if preset.average else 0
            self._ring = Ring(trace, p.record_period_s, record, faults, streams[0], parts)
        else:
            self._sparse = Held(trace, p.record_period_s, record, faults, streams[0])
        if preset.average:
            # behind the same filter as the record, whatever the driver does afterwards
            lag_s = p.slow_lag_s + p.record_lag_s
            average = smoothed(p.average_window_s, lag_s, p.record_rise_s)
            instant = smoothed(p.instant_window_s, lag_s, p.record_rise_s)
            self._average = Held(trace, p.slow_period_s, average, faults, streams[1])
            self._instant = Held(trace, p.slow_period_s, instant, faults, streams[2])
        self._counter = Counter(trace, p.slow_period_s, faults, streams[3])

    def sampled(self) -> SampledStretch:
        """A segment whose record, if one exists, is that of a sensor that samples."""
        rng = generator(self._preset, self._spec.seed, 7, self._spec.run)
        return SampledStretch(self._board, self._ring, rng, self._rate_hz)

    def sources(self) -> list[Source]:
        """New sources, the best power source first."""
        found: list[Source] = []
        if self._ring is not None:
            # the boxcar of the older GPUs may be shorter than their period: their sensor is that of their usage
            field, gapless = (RECORD, True) if self._preset.average else (USAGE, None)
            record = self._power(POWER, "nvmlDeviceGetSamples(NVML_TOTAL_POWER_SAMPLES)", field, gapless)
            record.sampling_s = self._sampling_s
            found.append(RingSource(self._board, self._ring, record))
        if self._sparse is not None:
            sparse = self._power(POWER, "nvmlDeviceGetPowerUsage", USAGE, False)
            found.append(HeldSource(self._board, self._sparse, sparse, _POLLED_POWER_S))
        if self._average is not None:
            average = self._power("power_average_w", "nvmlDeviceGetPowerUsage", USAGE, True)
            found.append(HeldSource(self._board, self._average, average, 0.1))
        if self._instant is not None:
            instant = self._power("power_instant_w", "NVML_FI_DEV_POWER_INSTANT", INSTANT, False)
            found.append(HeldSource(self._board, self._instant, instant, 0.05))
        counter = self._channel("energy_counter_j", "nvmlDeviceGetTotalEnergyConsumption")
        counter.period_s, counter.window_s, counter.gapless = 0.1, 0.1, True
        found.append(HeldSource(self._board, self._counter, counter, 1.0))
        found.append(StateSource(self._board, self._preset, self._state_channels()))
        return found

    def _power(self, name: str, source: str, field: str, gapless: bool | None) -> ChannelInfo:
        """A channel of power; it states what is known of the sensor of the simulated GPU's model."""
        channel = self._channel(name, source)
        channel.sensor, known = sensor_behind(field, self._preset.title)
        channel.period_s, channel.window_s, channel.gapless = known.period_s, known.window_s, gapless
        return channel

    def _channel(self, name: str, source: str) -> ChannelInfo:
        unit = CHANNEL_UNITS[name][0]
        return ChannelInfo(self._device_id, name, unit, f"SIMULATED {source}", gain_pct=GAIN_PCT)

    def _state_channels(self) -> tuple[ChannelInfo, ...]:
        calls = {
            "clock_sm_mhz": "nvmlDeviceGetClockInfo(SM)",
            "clock_memory_mhz": "nvmlDeviceGetClockInfo(MEM)",
            "temperature_c": "nvmlDeviceGetTemperature",
            "throttle_bits": "nvmlDeviceGetCurrentClocksEventReasons",
            "memory_used_bytes": "nvmlDeviceGetMemoryInfo",
            "utilization_gpu_pct": "nvmlDeviceGetUtilizationRates",
        }
        return tuple(
            ChannelInfo(self._device_id, name, CHANNEL_UNITS[name][0], f"SIMULATED {call}", period_s=0.1)
            for name, call in calls.items()
        )


def _faults(p: Parameters, preset: Preset, spec: SimSpec) -> Faults:
    gain = 1 + GAIN_PCT / 100 * (2 * generator(preset, spec.seed, 3).random() - 1) if spec.gain else 1.0
    return Faults(gain, p.record_noise_w * spec.noise)


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

    def __init__(self, board: Board, ring: Ring | None, rng: np.random.Generator, rate_hz: float) -> None:
        self._board, self._ring, self._rng, self._rate_hz = board, ring, rng, rate_hz

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
            self._ring.release(self._board.clock.time_ns(), self._rows[:, 0] * 1000, self._rows[:, 1] / 1e3)

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
