"""Whether the power of a table can be that of a device: milliwatts read as watts are the usual slip."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from jouletrace.errors import BadInputError
from jouletrace.formats.importers.readings import MOST_W, Readings
from jouletrace.formats.importers.table.headings import Value
from jouletrace.run import DeviceInfo, Run
from jouletrace.run.channels import POWER

MOST_OF_A_BOARD_W = 1500.0
"""No GPU board draws more in the long run."""


def check_power(
    path: Path,
    run: Run,
    readings: Readings,
    devices: Iterable[DeviceInfo],
    values: Sequence[Value],
    header: Sequence[str],
) -> None:
    """Warn of power that is beyond a GPU board's; ask where nothing states its unit.

    Raises:
        BadInputError: If power is beyond what a board draws and nothing says in which unit it is, or beyond
            what anything draws.
    """
    for device in devices:
        typical = readings.median(device.id, POWER)
        if typical is None or typical <= MOST_OF_A_BOARD_W:
            continue
        source = readings.source(device.id, POWER).removeprefix("column ")
        value = next((one for one in values if header[one.column] == source), None)
        slip = f"if {source!r} is in milliwatts, say --map power_mw={source}"
        if value is not None and not value.stated:
            raise BadInputError(
                f"{path}: nothing states the unit of {source!r}, and {typical:.6g} W is more than any GPU board "
                f"draws: {slip}; if it is in watts, --map power_w={source}"
            )
        if typical > MOST_W:
            raise BadInputError(
                f"{path}: {typical:.3g} W is more than anything draws that is read by one meter: {slip}"
            )
        text = f"power of {typical:.6g} W (median) is more than any GPU board draws: {slip}"
        run.warn("power_implausible", f"{text}; of a whole server it may be right", device.id)
