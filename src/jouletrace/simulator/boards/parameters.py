"""Hidden parameters of a simulated GPU, drawn by its seed within the preset's ranges."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

from jouletrace.simulator.boards.presets import Preset


@dataclass(frozen=True, slots=True)
class Parameters:
    """The hidden truth of one GPU. Nothing outside ``simulator.boards`` may read it.

    Powers are in watts at 40 °C, times in seconds. Shares refer to the load's power or to the
    preset's power limit.

    Attributes:
        deep_idle_w: Power without a context.
        context_idle_w: Power with a context and nothing running.
        leak_w: Part of the idle power with a context that grows with heat.
        leak_scale_c: Rise of temperature, in °C, over which leakage grows by a factor e.
        ambient_c: Temperature of a GPU that draws nothing.
        kelvin_per_w: Thermal resistance.
        thermal_s: Thermal time constant.
        fast_s: Time constant by which most of the GPU's power follows its load.
        slow_s: Time constant of the rest.
        slow_share: Share of the rest.
        load_noise: Standard deviation of the load's noise, as a share of the load.
        load_noise_s: Its correlation time.
        idle_noise_w: Standard deviation of idle power.
        drift: Standard deviation of the slow wander of the load's power, as a share.
        drift_s: Its correlation time.
        run_spread: Standard deviation of the load's power between runs, as a share.
        voltage_floor: Voltage at clock zero over that at the highest clock.
        governor_s: Tick of the loop that holds the power cap.
        governor_gain: Its gain: relative change of clock for a relative excess of power.
        governor_noise: Standard deviation of the governor's estimate of power, as a share of the cap.
        governor_noise_s: Correlation time of that.
        governor_dither: Relative standard deviation of its clock around the clock that it computes, per tick.
        pipe_share: Power of busy arithmetic pipes, as a share of the limit.
        memory_share: Power of busy memory, as a share of the limit.
        busy_share: Power of a kernel that does hardly any work, as a share of the limit.
        pipe_efficiency: Share of the peak FLOP/s that large products reach.
        memory_efficiency: Share of the peak bandwidth that kernels reach.
        kernel_floor_s: Shortest time of a kernel.
        kernel_gap_s: Time between two kernels of a graph.
        launch_gap_s: Time between two launches of a graph.
        host_launch_s: Time in which the host launches one operator in eager mode.
        record_period_s: Update period of the best power source.
        record_window_s: Its boxcar.
        record_lag_s: Time from the end of the boxcar to the stamp; negative if stamped early.
        record_rise_s: Mean of an additional exponential delay.
        record_noise_w: White noise of a reading.
        average_window_s: Boxcar of the long average.
        instant_window_s: Boxcar of the instant reading; the record's rise precedes it, as it does the average's.
        slow_period_s: Update period of those two and of the energy counter.
        slow_lag_s: Time from the end of their boxcar to their update.
        sample_rate_hz: Samples per second, where the record consists of momentary samples.
    """

    deep_idle_w: float
    context_idle_w: float
    leak_w: float
    leak_scale_c: float
    ambient_c: float
    kelvin_per_w: float
    thermal_s: float
    fast_s: float
    slow_s: float
    slow_share: float
    load_noise: float
    load_noise_s: float
    idle_noise_w: float
    drift: float
    drift_s: float
    run_spread: float
    voltage_floor: float
    governor_s: float
    governor_gain: float
    governor_noise: float
    governor_noise_s: float
    governor_dither: float
    pipe_share: float
    memory_share: float
    busy_share: float
    pipe_efficiency: float
    memory_efficiency: float
    kernel_floor_s: float
    kernel_gap_s: float
    launch_gap_s: float
    host_launch_s: float
    record_period_s: float
    record_window_s: float
    record_lag_s: float
    record_rise_s: float
    record_noise_w: float
    average_window_s: float
    instant_window_s: float
    slow_period_s: float
    slow_lag_s: float
    sample_rate_hz: float

    def voltage_squared(self, ratio: float) -> float:
        """Square of the core's voltage over that at the highest clock, at ``ratio`` of the clock."""
        return (self.voltage_floor + (1 - self.voltage_floor) * ratio) ** 2


def generator(preset: Preset, seed: int, *tags: int) -> np.random.Generator:
    """A separate stream of random numbers for each GPU and use."""
    return np.random.default_rng([seed, zlib.crc32(preset.name.encode()), *tags])


def draw(preset: Preset, seed: int, given: Iterable[tuple[str, float]] = ()) -> Parameters:
    """Parameters of GPU number ``seed`` of its kind: those given, the others uniform in the preset's ranges."""
    # a stream per name, so that a new parameter doesn't change the others
    streams = {field.name: generator(preset, seed, zlib.crc32(field.name.encode())) for field in fields(Parameters)}
    drawn = {name: float(rng.uniform(*preset.ranges[name])) for name, rng in streams.items()}
    return Parameters(**{**drawn, **dict(given)})
