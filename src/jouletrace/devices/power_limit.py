"""Setting the power limit of a GPU of any vendor: the only way in which jouletrace changes what it measures."""

from __future__ import annotations

from typing import Protocol

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run import DeviceInfo


class PowerLimiter(Protocol):
    """The power limit of one GPU. Reading changes nothing."""

    info: DeviceInfo

    def limit_w(self) -> float:
        """The limit in force, in watts.

        Raises:
            NotPossibleError: If the GPU doesn't report it.
        """

    def set_limit(self, watts: float) -> None:
        """Set the limit, in watts, for all users of the GPU.

        Raises:
            NotPossibleError: If the user lacks permission, or the GPU doesn't support it.
        """

    def spec(self, device: str) -> str:
        """The spec that opens ``device`` in a new process at the limit in force."""

    def close(self) -> None:
        """Release the driver's library; the limit stays."""


def check_limit(info: DeviceInfo, watts: float) -> None:
    """Refuse a limit that the GPU doesn't allow.

    Raises:
        BadInputError: If the limit is outside the permitted range, which the message states.
        NotPossibleError: If the GPU has no adjustable limit.
    """
    low, high = info.power_limits_w.get("min"), info.power_limits_w.get("max")
    if low is None or high is None:
        raise NotPossibleError(f"{info.name} has no adjustable power limit")
    if not low <= watts <= high:
        raise BadInputError(f"--power-limit {watts:g}: {info.name} allows {low:g} to {high:g} W")
