"""Functions of higher packages that lower ones use by name, imported at the call: they may not import them.

``print(run)`` and ``run.save`` take no argument that could carry these functions.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # importing typing takes longer than all that is done here
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, Final

VENDORS: Final = ("jouletrace.simulator.boards.device",)
"""Modules of devices above ``devices`` (see ``devices.registry``)."""


PRINTED: Final = "jouletrace.report.terminal"
"""Module of what a program's figures are printed with."""


def _named(function: str) -> Any:
    """A function of ours by its module and name."""
    module, _, name = function.partition(":")
    return getattr(import_module(f"jouletrace.{module}"), name)


def of_devices(run: Any, metric: str) -> Any:
    """A figure of all devices of a recording together."""
    return _named("analysis.facts:of_devices")(run, _named("run.parts:Parts")(run), metric)


def with_sensor(run: Any, part: Any) -> Any:
    """A part with gain and offset of the sensor in its intervals."""
    return _named("analysis.budget:with_sensor")(run, part)


def number_of(run: Any, name: str) -> int:
    """The number of the unit of a Run that has a name or path."""
    found: int = _named("run.parts:number_of")(run, name)
    return found


def text_of(value: Any) -> str:
    """The text that ``print`` shows."""
    found: str = _named("report:text_of")(value)
    return found


def summary(run: Any) -> str:
    """The verdict on what a program has just measured, behind its name."""
    found: str = _named("report.content:summary")(run)
    return found


def text_of_parts(parts: Any, most: int) -> str:
    """The text that ``print`` shows of a ``Summary`` of layers or kernels, with so many rows at most."""
    found: str = _named("report.part_summary:text_of_parts")(parts, most)
    return found


def report(of: Any, path: Path | str, price: str | None, carbon: str | None) -> Path:
    """Write the HTML report of a Run or a comparison, with a price and a mass of CO2 per kWh; returns the path."""
    found: Path = _named("report:write_report")(of, path, price, carbon)
    return found


def save(run: Any, path: Path | str, *, overwrite: bool) -> Path:
    """Write a Run to a path; returns that."""
    found: Path = _named("run.store:save")(run, path, overwrite=overwrite)
    return found
