"""The GPUs that can be simulated: figures of their data sheets, and ranges of what those don't state.

The public properties (name, memory, limits, clocks) are those that a driver reports. Everything in
``ranges`` is drawn for each GPU by its seed and stays hidden (``parameters``).

Sources: NVIDIA's data sheets for peaks, bandwidths and limits; our recordings of an H100 and
four H200s for idle levels, the cap and the record (a first-order low pass of 13 ms: see
docs/explanation/simulator.md); published measurements of A100 and V100 sensors (boxcars of 18-25 ms every
100 ms; a 20 ms period).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np

from jouletrace.errors import BadInputError

Range = tuple[float, float]

CLOCK_STEP_MHZ = 15.0
CLOCK_LOWEST_MHZ = 210.0
"""Lowest clock that can be locked, as an H100 and an A100 list it."""


@dataclass(frozen=True)
class Preset:
    """Properties of a GPU model."""

    name: str  # name in ``sim:NAME``
    title: str  # name as a driver reports it
    capability: tuple[int, int]  # CUDA compute capability
    memory_bytes: int  # total memory in bytes
    cap_w: float  # default and highest power limit in watts
    cap_min_w: float  # lowest power limit that can be set, in watts
    clock_max_mhz: float  # SM clock without throttling
    clock_idle_mhz: float  # SM clock without a context
    clock_min_mhz: float  # lowest SM clock that the power cap can force
    clock_memory_mhz: float  # memory clock
    l2_bytes: int  # size of the second-level cache
    bytes_per_s: float  # peak memory bandwidth
    peak_flops: Mapping[str, float]  # peak FLOP/s by dtype, at the highest clock
    record: str  # "gapless" for a record kept by the driver, "sparse" for windows shorter than their period
    average: bool  # whether the GPU also offers a one-second average and an instant reading
    ranges: Mapping[str, Range]  # range of each hidden parameter (see ``Parameters``)


_COMMON: dict[str, Range] = {
    # heat
    "leak_w": (12.0, 20.0),
    "leak_scale_c": (28.0, 36.0),
    "ambient_c": (29.0, 33.0),
    "kelvin_per_w": (0.038, 0.046),
    "thermal_s": (5.0, 9.0),
    # response of board power to the load
    "fast_s": (0.0015, 0.0030),
    "slow_s": (0.013, 0.019),
    "slow_share": (0.08, 0.13),
    # noise, as shares of the load's power
    "load_noise": (0.003, 0.005),
    "load_noise_s": (0.03, 0.06),
    "idle_noise_w": (0.4, 0.8),
    "drift": (0.0015, 0.0025),
    "drift_s": (60.0, 180.0),
    "run_spread": (0.002, 0.004),
    # clocks and the power cap
    "voltage_floor": (0.55, 0.65),
    "governor_s": (0.009, 0.012),
    "governor_gain": (0.10, 0.12),
    "governor_noise": (0.062, 0.076),
    "governor_noise_s": (0.040, 0.050),
    "governor_dither": (0.03, 0.04),
    # kernels
    "pipe_share": (1.28, 1.38),
    "memory_share": (0.30, 0.36),
    "busy_share": (0.100, 0.115),
    "pipe_efficiency": (0.66, 0.70),
    "memory_efficiency": (0.80, 0.85),
    "kernel_floor_s": (2.50e-6, 2.70e-6),
    "kernel_gap_s": (0.50e-6, 0.65e-6),
    "launch_gap_s": (18e-6, 26e-6),
    "host_launch_s": (7.5e-6, 10e-6),
    # sensors
    "record_period_s": (0.0199, 0.0202),
    "record_window_s": (0.020, 0.026),
    "record_lag_s": (-0.005, 0.001),
    "record_rise_s": (0.0005, 0.0020),
    "record_noise_w": (0.2, 0.5),
    "average_window_s": (0.96, 1.04),
    "instant_window_s": (0.018, 0.030),
    "slow_period_s": (0.098, 0.102),
    "slow_lag_s": (0.0, 0.012),
    "sample_rate_hz": (1205.0, 1255.0),
}

_V100 = {
    **_COMMON,
    "deep_idle_w": (24.0, 32.0),
    "context_idle_w": (38.0, 46.0),
    "leak_w": (5.0, 9.0),
    "kelvin_per_w": (0.08, 0.10),
    "kernel_floor_s": (3.6e-6, 4.4e-6),
    "kernel_gap_s": (1.2e-6, 1.6e-6),
    "record_window_s": (0.010, 0.020),
    "record_lag_s": (-0.002, 0.006),
}
_A100 = {
    **_COMMON,
    "deep_idle_w": (44.0, 56.0),
    "context_idle_w": (62.0, 78.0),
    "leak_w": (8.0, 13.0),
    "kelvin_per_w": (0.06, 0.08),
    "kernel_floor_s": (2.9e-6, 3.4e-6),
    "kernel_gap_s": (1.0e-6, 1.3e-6),
    "record_period_s": (0.098, 0.102),
    "record_window_s": (0.018, 0.026),
    "record_lag_s": (0.0, 0.010),
}
_HOPPER = {
    **_COMMON,
    "deep_idle_w": (70.0, 78.0),
    "context_idle_w": (120.0, 130.0),
    # the record's exponential accounts for nearly all of the delay
    "fast_s": (0.0005, 0.0015),
    "slow_share": (0.0, 0.01),
    "record_window_s": (0.0005, 0.003),
    "record_lag_s": (0.0010, 0.0025),
    "record_rise_s": (0.0122, 0.0132),
    "instant_window_s": (0.015, 0.025),
}

_V100_FLOPS = {"fp16": 125e12, "bf16": 15.7e12, "tf32": 15.7e12, "fp32": 15.7e12, "fp64": 7.8e12, "int8": 62.8e12}
_A100_FLOPS = {"fp16": 312e12, "bf16": 312e12, "tf32": 156e12, "fp32": 19.5e12, "fp64": 19.5e12, "int8": 624e12}
_HOPPER_FLOPS = {
    "fp16": 989e12,
    "bf16": 989e12,
    "tf32": 495e12,
    "fp32": 67e12,
    "fp64": 67e12,
    "fp8": 1979e12,
    "int8": 1979e12,
}

_GIB = 1 << 30
_MIB = 1 << 20

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "v100", "V100 32GB", (7, 0), 32 * _GIB, 300.0, 150.0, 1530.0, 135.0, 600.0, 877.0,
            6 * _MIB, 0.90e12, _V100_FLOPS, "gapless", False, _V100,
        ),
        Preset(
            "a100-40", "A100 40GB", (8, 0), 40 * _GIB, 400.0, 100.0, 1410.0, 210.0, 600.0, 1215.0,
            40 * _MIB, 1.555e12, _A100_FLOPS, "sparse", False, _A100,
        ),
        Preset(
            "a100-80", "A100 80GB", (8, 0), 80 * _GIB, 400.0, 100.0, 1410.0, 210.0, 600.0, 1593.0,
            40 * _MIB, 2.039e12, _A100_FLOPS, "sparse", False, _A100,
        ),
        Preset(
            "h100-80", "H100 80GB", (9, 0), 80 * _GIB, 700.0, 200.0, 1980.0, 345.0, 600.0, 2619.0,
            50 * _MIB, 3.35e12, _HOPPER_FLOPS, "gapless", True, _HOPPER,
        ),
        Preset(
            "h200-141", "H200 141GB", (9, 0), 141 * _GIB, 700.0, 200.0, 1980.0, 345.0, 600.0, 3201.0,
            50 * _MIB, 4.80e12, _HOPPER_FLOPS, "gapless", True, _HOPPER,
        ),
    )
}  # fmt: skip

ALIASES = {"h100": "h100-80", "a100": "a100-80", "h200": "h200-141"}


def find(name: str) -> Preset:
    """The preset called ``name``, or the usual one of a family ("h100").

    Raises:
        BadInputError: If it doesn't exist; the message lists the presets.
    """
    preset = PRESETS.get(ALIASES.get(name, name))
    if preset is None:
        raise BadInputError(f"no simulated GPU called {name!r}; there are: {', '.join((*ALIASES, *PRESETS))}")
    return preset


@dataclass(frozen=True, slots=True)
class Parameters:
    """The hidden truth of one GPU. Nothing outside ``simulator.boards`` may read it.

    Powers are in watts at 40 °C, times in seconds. Shares refer to the load's power or to the
    preset's power limit.
    """

    deep_idle_w: float  # power without a context
    context_idle_w: float  # power with a context and nothing running
    leak_w: float  # part of the idle power with a context that grows with heat
    leak_scale_c: float  # rise of temperature, in °C, over which leakage grows by a factor e
    ambient_c: float  # temperature of a GPU that draws nothing
    kelvin_per_w: float  # thermal resistance
    thermal_s: float  # thermal time constant
    fast_s: float  # time constant by which most of the GPU's power follows its load
    slow_s: float  # time constant of the rest
    slow_share: float  # share of the rest
    load_noise: float  # standard deviation of the load's noise, as a share of the load
    load_noise_s: float  # its correlation time
    idle_noise_w: float  # standard deviation of idle power
    drift: float  # standard deviation of the slow wander of the load's power, as a share
    drift_s: float  # its correlation time
    run_spread: float  # standard deviation of the load's power between runs, as a share
    voltage_floor: float  # voltage at clock zero over that at the highest clock
    governor_s: float  # tick of the loop that holds the power cap
    governor_gain: float  # its gain: relative change of clock for a relative excess of power
    governor_noise: float  # standard deviation of the governor's estimate of power, as a share of the cap
    governor_noise_s: float  # correlation time of that
    governor_dither: float  # relative standard deviation of its clock around the clock that it computes, per tick
    pipe_share: float  # power of busy arithmetic pipes, as a share of the limit
    memory_share: float  # power of busy memory, as a share of the limit
    busy_share: float  # power of a kernel that does hardly any work, as a share of the limit
    pipe_efficiency: float  # share of the peak FLOP/s that large products reach
    memory_efficiency: float  # share of the peak bandwidth that kernels reach
    kernel_floor_s: float  # shortest time of a kernel
    kernel_gap_s: float  # time between two kernels of a graph
    launch_gap_s: float  # time between two launches of a graph
    host_launch_s: float  # time in which the host launches one operator in eager mode
    record_period_s: float  # update period of the best power source
    record_window_s: float  # its boxcar
    record_lag_s: float  # time from the end of the boxcar to the stamp; negative if stamped early
    record_rise_s: float  # mean of an additional exponential delay
    record_noise_w: float  # white noise of a reading
    average_window_s: float  # boxcar of the long average
    instant_window_s: float  # boxcar of the instant reading; the record's rise precedes it, as it does the average's
    slow_period_s: float  # update period of those two and of the energy counter
    slow_lag_s: float  # time from the end of their boxcar to their update
    sample_rate_hz: float  # samples per second, where the record consists of momentary samples

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
