"""A load that can be switched on and off at known times, with a power well below the power cap.

Calibration needs it: a cap would distort the load's power, and the readings of a distorted load
contain no information about the sensor. Memory copies keep a GPU at about half of its limit whatever
the data, with the die's clocks unchanged.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from jouletrace.devices.base import Device
from jouletrace.execution.steps.base import Interval

SHARE_OF_LIMIT = 0.55
"""Power of the load on a simulated GPU, relative to its limit."""

_COPY_BYTES = 256 * 2**20
_SIDE = 4096
_GUESS_S, _TRIED_S = 3e-4, 0.05
"""Duration of a copy as assumed at first, and of the copies that show the real one."""


class Burst(Protocol):
    """A load that can be switched on for a given time."""

    def run(self, seconds: float) -> Interval:
        """Keep the device busy for about ``seconds``; returns the exact interval."""

    def describe(self) -> str:
        """Description of the load for users."""

    def close(self) -> None:
        """Free its memory on the device."""


def make_burst(device: Device, torch_device: str | None = None, *, full: bool = False) -> Burst:
    """The load for a device, or a ``full`` one; ``torch_device`` is torch's name of a real GPU ("cuda:0")."""
    if device.info.simulated:
        return _SimulatedBurst(device, 1.0 if full else SHARE_OF_LIMIT)
    if device.info.kind == "cpu":
        return _CpuBurst(device)
    return (_ProductBurst if full else _CopyBurst)(device, torch_device or "cuda:0")


class _SimulatedBurst:
    def __init__(self, device: Any, share: float) -> None:
        self._board = device.board
        self._watts = share * float(device.info.power_limit_w or 300.0)

    def run(self, seconds: float) -> Interval:
        return Interval(*self._board.load(self._watts, seconds))

    def describe(self) -> str:
        return f"constant load of {self._watts:.0f} W"

    def close(self) -> None:
        pass


class _CopyBurst:
    """Device-to-device copies of random data."""

    def __init__(self, device: Device, torch_device: str) -> None:
        import torch

        self._clock = device.clock
        self._torch = torch
        self._device = torch.device(torch_device)
        with torch.cuda.device(self._device):
            self._prepare()
            self._copy_s = _GUESS_S
            self._copy_s = self.run(_TRIED_S).seconds / round(_TRIED_S / _GUESS_S)

    def _prepare(self) -> None:
        draw = self._torch.randint
        source = draw(-(2**31), 2**31 - 1, (_COPY_BYTES // 4,), dtype=self._torch.int32, device=self._device)
        self._buffers: tuple[Any, ...] = (source, source.clone())

    def _once(self) -> None:
        source, target = self._buffers
        target.copy_(source)

    def run(self, seconds: float) -> Interval:
        with self._torch.cuda.device(self._device):
            self._torch.cuda.synchronize()
            start = self._clock.time_ns()
            for _ in range(max(1, round(seconds / self._copy_s))):
                self._once()
            self._torch.cuda.synchronize()
            return Interval(start, self._clock.time_ns())

    def describe(self) -> str:
        return f"device-to-device copies of {_COPY_BYTES // 2**20} MiB of random data"

    def close(self) -> None:
        self._buffers = ()  # closed: nothing may run any more


class _ProductBurst(_CopyBurst):
    """Products of random matrices in fp16."""

    def _prepare(self) -> None:
        a, b = (self._torch.randn(_SIDE, _SIDE, device=self._device, dtype=self._torch.float16) for _ in range(2))
        self._buffers = (a, b, self._torch.empty_like(a))

    def _once(self) -> None:
        a, b, product = self._buffers
        self._torch.mm(a, b, out=product)

    def describe(self) -> str:
        return f"fp16 products of {_SIDE} x {_SIDE} random matrices"


class _CpuBurst:
    """Matrix products of random data on all threads."""

    def __init__(self, device: Device) -> None:
        self._clock = device.clock
        self._a, self._b = np.random.default_rng(0).standard_normal((2, 512, 512))

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
