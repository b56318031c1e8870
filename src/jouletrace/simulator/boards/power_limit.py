"""The power limit of a simulated GPU, kept in a file where a real driver would keep it."""

from __future__ import annotations

import json
from pathlib import Path

from jouletrace.errors import NotPossibleError
from jouletrace.run import DeviceInfo
from jouletrace.simulator.boards.device import SimulatedGpu


class SimulatedPowerLimit:
    """Implements ``profiler.power_limits.PowerLimiter``.

    Attributes:
        permitted: Whether the user may change it; for tests.
    """

    permitted = True

    def __init__(self, device: str, state: Path) -> None:
        board = SimulatedGpu(device)
        self.info: DeviceInfo = board.info
        self._state = state
        board.close()

    def limit_w(self) -> float:
        """The limit in force, in watts."""
        try:
            return float(json.loads(self._state.read_text())["limit_w"])
        except (OSError, ValueError, KeyError):
            pass
        if self.info.power_limit_w is None:
            raise NotPossibleError(f"{self.info.name} has no power limit")
        return self.info.power_limit_w

    def set_limit(self, watts: float) -> None:
        """Set the limit, in watts."""
        if not self.permitted:
            raise NotPossibleError(f"{self.info.name}: the power limit can't be set: this needs root (sudo)")
        self._state.parent.mkdir(parents=True, exist_ok=True)
        self._state.write_text(json.dumps({"limit_w": watts}))

    def spec(self, device: str) -> str:
        """The GPU with its cap."""
        name, _, query = device.partition("?")
        others = [part for part in query.split("&") if part and not part.startswith("cap=")]
        return f"{name}?{'&'.join([*others, f'cap={self.limit_w():g}'])}"

    def close(self) -> None:
        """Nothing to release."""
