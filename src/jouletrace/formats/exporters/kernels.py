"""One flat table of kernels for a spreadsheet: a row for each name on each GPU, the longest in sum first."""

from __future__ import annotations

from pathlib import Path

from jouletrace.analysis.divided import divided
from jouletrace.errors import BadInputError
from jouletrace.formats.exporters.output import new_file
from jouletrace.report.table import Column, Table
from jouletrace.run import Estimate, Run, device_labels
from jouletrace.run.parts import Part, Parts

_COLUMNS = ("device", "kernel", "calls", "time_s", "time_mean_s", "share_of_time")


def write_kernels(run: Run, path: Path | str) -> Path:
    """Write device, kernel, calls, time in all and of a call in s, share of the time of all kernels, energy in J.

    Calls, times and energies are of an iteration, and of all of a program or an import. Energies have the ends of their
    95 % intervals; ``notes`` has the code of why one is missing.

    Raises:
        BadInputError: If the Run has no kernels, or the path exists already or can't be written.
    """
    with new_file(path) as file:
        groups = _by_name(run)
        if not groups:
            raise BadInputError("this Run holds no kernels: profile with --detail kernel, or run the program")
        energies = _energies(run, len({device for device, _ in groups}) > 1)
        seconds = {key: _seconds(units) for key, units in groups.items()}
        whole_s = sum(one or 0.0 for one in seconds.values())
        rows = []
        for key in sorted(groups, key=lambda key: -(seconds[key] or 0.0)):
            units, time = groups[key], seconds[key]
            calls = sum(unit.count or 0 for unit in units) or None
            each = time / calls if time is not None and calls else None
            share = time / whole_s if time is not None and whole_s else None
            alone = units[0].get("energy_total_j") if len(units) == 1 else Estimate.null("not_resolved")
            energy = energies.get(key, alone)
            notes = ", ".join([*filter(None, [energy.reason]), *energy.flags])
            rows.append([*key, calls, time, each, share, energy, notes, str(run.simulated).lower()])
        energy_column = Column("energy_total_j", ends=True)
        columns = [*map(Column, _COLUMNS), energy_column, Column("notes"), Column("simulated")]
        file.write(Table("", columns, rows).csv().encode())
    return Path(path)


def _by_name(run: Run) -> dict[tuple[str, str], list[Part]]:
    """Kernels by device and name."""
    labels, groups = device_labels(run.devices), dict[tuple[str, str], list[Part]]()
    only = run.devices[0].name if len(run.devices) == 1 else ""
    for unit in Parts(run).all():
        if unit.level == "kernel":
            groups.setdefault((unit.gpu or labels.get(unit.module or "", only), unit.name), []).append(unit)
    return groups


def _seconds(units: list[Part]) -> float | None:
    """The time of kernels, in s; None where that of one isn't known."""
    found = [unit.get("time_s").value or unit.get("time_traced_s").value for unit in units]
    return None if None in found else sum(one or 0.0 for one in found)


def _energies(run: Run, several: bool) -> dict[tuple[str, str], Estimate]:
    """Energies of kernels by device and name, of a Run that stores how its energy divides."""
    if not len(run.divided):
        return {}
    only = run.devices[0].name if len(run.devices) == 1 else ""
    shares = divided(run, ["device", "kernel"] if several else ["kernel"])
    paths = ((one, {step.kind: step.name for step in one.path}) for one in shares)
    return {(at.get("device", only), at["kernel"]): one.get("energy_total_j") for one, at in paths if "kernel" in at}
