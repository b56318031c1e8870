"""A load that can be switched on and off at known times, with a power well below the power cap.

Calibration needs it: a cap would distort the load's power, and the readings of a distorted load
contain no information about the sensor. Memory copies keep a GPU at about half of its limit whatever
the data, with the die's clocks unchanged.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from jouletrace.devices.base import Device
from jouletrace.execution.steps.base import Interval

SHARE_OF_LIMIT = 0.55
"""Power of the load on a simulated GPU, relative to its limit."""

_COPY_BYTES = 256 * 2**20


class Burst(Protocol):
    """A load that can be switched on for a given time."""

    def run(self, seconds: float) -> Interval:
        """Keep the device busy for about ``seconds``; returns the exact interval."""

    def describe(self) -> str:
        """Description of the load for users."""

    def close(self) -> None:
        """Free its memory on the device."""


def make_burst(device: Device, torch_device: str | None = None) -> Burst:
    """The load for a device.

    Args:
        device: The device to load.
        torch_device: Torch's name of a real GPU ("cuda:0").
    """
    if device.info.simulated:
        return _SimulatedBurst(device)
    if device.info.kind == "cpu":
        return _CpuBurst(device)
    return _CopyBurst(device, torch_device or "cuda:0")


class _SimulatedBurst:
    def __init__(self, device: Any) -> None:
        self._board = device.board
        self._watts = SHARE_OF_LIMIT * float(device.info.power_limit_w or 300.0)

    def run(self, seconds: float) -> Interval:
        return Interval(*self._board.load(self._watts, seconds))

    def describe(self) -> str:
        return f"constant load of {self._watts:.0f} W"

    def close(self) -> None:
        pass


class _CopyBurst:
    """Device-to-device copies of random data in a CUDA graph."""

    def __init__(self, device: Device, torch_device: str) -> None:
        import torch

        self._clock = device.clock
        self._torch = torch
        self._device = torch.device(torch_device)
        with torch.cuda.device(self._device):
            source = torch.randint(-(2**31), 2**31 - 1, (_COPY_BYTES // 4,), dtype=torch.int32, device=self._device)
            self._buffers = (source, torch.empty_like(source))
            self._buffers[1].copy_(source)
            torch.cuda.synchronize()
            self._copy_s = self.run(0.05, guess_s=3e-4).seconds / max(1, round(0.05 / 3e-4))

    def run(self, seconds: float, guess_s: float | None = None) -> Interval:
        torch = self._torch
        source, target = self._buffers
        copies = max(1, round(seconds / (guess_s or self._copy_s)))
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()
            start = self._clock.time_ns()
            for _ in range(copies):
                target.copy_(source)
            torch.cuda.synchronize()
            return Interval(start, self._clock.time_ns())

    def describe(self) -> str:
        return f"device-to-device copies of {_COPY_BYTES // 2**20} MiB of random data"

    def close(self) -> None:
        self._buffers = ()  # type: ignore[assignment]  # closed: nothing may run any more


class _CpuBurst:
    """Matrix products of random data on all threads."""

    def __init__(self, device: Device) -> None:
        import numpy as np

        self._clock = device.clock
        rng = np.random.default_rng(0)
        self._a, self._b = rng.standard_normal((2, 512, 512))

    def run(self, seconds: float) -> Interval:
        start = self._clock.time_ns()
        end = start + math.ceil(seconds * 1e9)
        while self._clock.time_ns() < end:
            self._a @ self._b
        return Interval(start, self._clock.time_ns())

    def describe(self) -> str:
        return "matrix products on all threads"

    def close(self) -> None:
        pass
