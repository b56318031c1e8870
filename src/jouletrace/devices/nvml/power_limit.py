"""The power limit of an NVIDIA GPU."""

from __future__ import annotations

from jouletrace.devices.nvml.api import Nvml, Unavailable
from jouletrace.devices.nvml.gpu import find_board
from jouletrace.devices.nvml.identity import describe
from jouletrace.errors import NotPossibleError
from jouletrace.run import DeviceInfo

_NO_PERMISSION = 4


class NvmlPowerLimit:
    """Implements ``profiler.power_limits.PowerLimiter``.

    Args:
        uuid: UUID of the GPU.
        nvml: The library; this object closes it. None opens it.

    Raises:
        BadInputError: If the GPU doesn't exist.
        NotPossibleError: If the driver is missing, or the GPU is lost.
    """

    def __init__(self, uuid: str, nvml: Nvml | None = None) -> None:
        self._nvml = nvml if nvml is not None else Nvml()
        try:
            self._handle = find_board(self._nvml, uuid)
            self.info: DeviceInfo = describe(self._nvml, self._handle)
        except BaseException:
            self._nvml.close()
            raise

    def limit_w(self) -> float:
        """The limit that was set (``nvmlDeviceGetPowerManagementLimit``), in watts."""
        try:
            return float(self._nvml.call("nvmlDeviceGetPowerManagementLimit", self._handle)) / 1e3
        except Unavailable as error:
            raise NotPossibleError(f"{self.info.name} doesn't report its power limit: {error}") from None

    def set_limit(self, watts: float) -> None:
        """``nvmlDeviceSetPowerManagementLimit``, as ``nvidia-smi -pl``."""
        try:
            self._nvml.call("nvmlDeviceSetPowerManagementLimit", self._handle, round(watts * 1e3))
        except Unavailable as error:
            why = "this needs root (sudo)" if error.code == _NO_PERMISSION else str(error)
            raise NotPossibleError(f"{self.info.name}: the power limit can't be set: {why}") from None

    def spec(self, device: str) -> str:
        """The same: the driver keeps the limit."""
        return device

    def close(self) -> None:
        """Release NVML."""
        self._nvml.close()
