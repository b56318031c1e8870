"""What the ranks of one program took together: a step of all of them, and what all of their devices drew."""

from __future__ import annotations

from collections.abc import Mapping

from jouletrace.analysis.figures import Figures
from jouletrace.analysis.ranges import RangeUnit, devices_of
from jouletrace.analysis.spans import Path
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.stats.interval import total

METHOD = "ranks"


def add_ranks(run: Run, figures: Figures, units: Mapping[Path, RangeUnit]) -> None:
    """Add the whole, and a unit for each path that every rank has: energy of one in each rank, added up."""
    ranks = _last_starts(run)
    names = [name for name in ranks if (name,) in units]
    if not names:
        return
    devices = [device for name in names for device in devices_of(run, (name,))]
    shared = len(set(devices)) < len(devices)
    _add_devices(run, figures)
    first = max(unit.id for unit in units.values()) + 1
    paths = list(dict.fromkeys(path[1:] for path in units if path[0] == names[0] and len(path) > 1))
    paths = [path for path in paths if all((name, *path) in units for name in names)]
    ids = {path: first + i for i, path in enumerate(paths)}
    for path, id in ids.items():
        of = [units[name, *path] for name in names]
        parent = next((ids[path[:i]] for i in range(len(path) - 1, 0, -1) if path[:i] in ids), MODEL_UNIT)
        counts = {unit.count for unit in of}
        figures.unit(id, "range", "/".join(["all ranks", *path]), parent, count=max(counts))
        flags = dict.fromkeys(flag for unit in of for flag in figures.flags(unit.id, "energy_total_j"))
        if len(counts) > 1:
            flags["counts_differ"] = None
        figures.add(id, "time_s", _mean([figures.get(unit.id, "time_s") for unit in of]), flags)
        energy = total([figures.get(unit.id, "energy_total_j") for unit in of], method=METHOD)
        figures.add(id, "energy_total_j", Estimate.null("ranks_share_device", METHOD) if shared else energy, flags)


def _last_starts(run: Run) -> list[str]:
    """Names of the ranks, each as it was after its last restart."""
    last: dict[int, tuple[int, str]] = {}
    for member in run.settings.get("ranks", ()):
        restart = member.get("restart", 0)
        if restart >= last.get(member["rank"], (-1, ""))[0]:
            last[member["rank"]] = restart, member["name"]
    return [name for _, (_, name) in sorted(last.items())]


def _add_devices(run: Run, figures: Figures) -> None:
    """Energy of all devices of all ranks, each once."""
    numbers = range(1, len(run.devices) + 1)
    parts = [figures.get(number, "energy_total_j") for number in numbers]
    flags = dict.fromkeys(flag for number in numbers for flag in figures.flags(number, "energy_total_j"))
    figures.add(MODEL_UNIT, "energy_total_j", total(parts, method=METHOD), flags)


def _mean(times: list[Estimate]) -> Estimate:
    return total(times, method=METHOD).scaled(1 / len(times))
