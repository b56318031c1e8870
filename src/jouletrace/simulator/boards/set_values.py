"""Values that users of a simulated GPU have set: its power limit, and the lock of its SM clock.

They outlive the process that sets them, as with a real driver. They go by the host's clock, since each process has a
virtual time of its own.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any, Final

from jouletrace.run.files import cache_folder, write_whole
from jouletrace.simulator.boards.spec import SimSpec

LIMIT: Final = "power_limit_w"
CLOCK: Final = "clock_mhz"
_NO_PERMISSION = 4


class SimulatedNvmlError(Exception):
    """An error of the driver.

    Attributes:
        value: NVML's return code.
    """

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class SetValues:
    """The values that were set on a GPU, with the faults of its driver."""

    def __init__(self, uuid: str, spec: SimSpec) -> None:
        self._path, self._spec = cache_folder() / f"{uuid}-set.json", spec

    def get(self, name: str) -> float | None:
        """The value in force; None for the GPU's own."""
        entry = self._read().get(name)
        if entry is None:
            return None
        age_s = time.time() - float(entry["time_s"]) - self._spec.lags
        if age_s >= 0 and self._spec.forgets is not None and age_s > self._spec.forgets:
            return None
        value: float | None = entry["before" if age_s < 0 else "value"]
        return value

    def put(self, name: str, value: float | None) -> None:
        """Set a value; None for the GPU's own.

        Raises:
            SimulatedNvmlError: If the driver refuses.
        """
        if self._spec.refuses:
            raise SimulatedNvmlError(_NO_PERMISSION)
        entry = {"value": value, "before": self.get(name), "time_s": time.time()}
        write_whole(self._path, json.dumps({**self._read(), name: entry}).encode(), durable=False)

    def _read(self) -> dict[str, dict[str, Any]]:
        with suppress(OSError, ValueError):
            values: dict[str, dict[str, Any]] = json.loads(self._path.read_bytes())
            return values
        return {}


def limit_w(uuid: str, spec: SimSpec, named_w: float) -> float:
    """The power limit in force, in watts: that of the GPU's name, else the one that was set, else ``named_w``."""
    return named_w if spec.cap is not None else SetValues(uuid, spec).get(LIMIT) or named_w
