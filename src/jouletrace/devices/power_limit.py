"""Setting a GPU's power limit, whoever made the board: the one way in which jouletrace changes what is measured."""

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
        """Change it, for everybody who uses the GPU.

        Raises:
            NotPossibleError: If the user may not, or the GPU can't.
        """

    def spec(self, device: str) -> str:
        """What opens ``device`` in a fresh process at the limit in force."""

    def close(self) -> None:
        """Release the driver's library; the limit stays."""


def check_limit(info: DeviceInfo, watts: float) -> None:
    """Refuse a limit that the GPU doesn't allow.

    Raises:
        BadInputError: With what it allows.
        NotPossibleError: If it has no limit that could be set.
    """
    low, high = info.power_limits_w.get("min"), info.power_limits_w.get("max")
    if low is None or high is None:
        raise NotPossibleError(f"{info.name} has no power limit that could be set")
    if not low <= watts <= high:
        raise BadInputError(f"--power-limit {watts:g}: {info.name} allows {low:g} to {high:g} W")
