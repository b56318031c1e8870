"""Figures that other tools state in their output: units and results of a Run, with the tool in ``method``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jouletrace.formats.importers.base import NO_CLOCK, new_run
from jouletrace.run import MODEL_UNIT, DeviceInfo, Estimate, Run
from jouletrace.run.figures import Figures
from jouletrace.run.forms import stated_facts

PREFIX = "stated by "
"""Prefix of the method of every stated figure; an analysis keeps such figures unchanged."""


class Stated:
    """Units and figures stated in a file, without intervals, since tools state none."""

    def __init__(self, tool: str) -> None:
        self.method = PREFIX + tool
        self._figures = Figures()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def unit(self, level: str, name: str, parent: int = MODEL_UNIT, **columns: Any) -> int:
        """A new unit; returns its id."""
        return self._figures.units.add(level, name, parent, **columns | {"count": _counted(columns.get("count"))})

    def add(self, unit: int, metric: str, value: float | None, n: int = 0) -> None:
        """Add a figure of a unit in the SI unit of its metric; does nothing without a value."""
        if value is not None:
            self._count += 1
            self._figures.add(unit, metric, Estimate(value, n=_counted(n) or 0, method=self.method))

    def write(self, run: Run) -> None:
        """Add them to a Run, below the unit of the whole model."""
        model = Figures()
        model.model(run.workload.get("name", "model"))
        model.units.keep(self._figures.units.rows.values())
        self._figures.units = model.units
        self._figures.become(run)

    def run(self, path: Path, form: str, device: str | None, workload: Mapping[str, Any], dialect: str = "") -> Run:
        """A Run of them without times, with the known facts of the workload and the name of the device, if known."""
        run = new_run(path, form, NO_CLOCK, dialect)
        run.workload |= stated_facts(workload)
        if device:
            run.devices.append(DeviceInfo("imported:0", device, kind="cpu" if device == "CPU" else "gpu", index=0))
        self.write(run)
        return run


def _counted(n: object) -> int | None:
    """A count within the range of a table; None for a missing or larger one."""
    return n if isinstance(n, int) and 0 <= n < 1 << 62 else None
