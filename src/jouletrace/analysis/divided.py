"""A Run's energy divided by any steps of the paths of its kernels, with the covariance of all their powers.

A sum of rows that share a power is known less well than independent ones would be, and may be resolved where none of
its rows is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from jouletrace.analysis import efficiency
from jouletrace.analysis.analyse import analysed
from jouletrace.errors import BadInputError
from jouletrace.levels import BY, PROFILE, STEPS, check, taken
from jouletrace.run import MODEL_UNIT, Estimate, Run, device_labels
from jouletrace.run.division import RESPONSE, Division, divisions_of
from jouletrace.run.estimate import widened
from jouletrace.run.parts import ABSENT, Row
from jouletrace.run.paths import Path, PathStep
from jouletrace.run.recording_names import BEFORE, IN_NO_PART, OUTSIDE, RECORDINGS, of_equal_layers
from jouletrace.run.sums import ENERGY, TIME
from jouletrace.stats.interval import Z95, total

NOT_RECORDED = "kernels not recorded"
"""Name of what a GPU takes of which no kernels were recorded, beside others of the Run."""

_ROUNDING = 1e-9
"""Share of the whole below which what rows leave of it is the rounding of sums."""

_MISSING = {"phase": "(no phase)", "module": OUTSIDE, "op": "(no operator)", "shapes": "(no shapes)"}
"""Names of steps that a path lacks."""


def check_levels(levels: Sequence[str]) -> None:
    """Refuse levels that ``divided`` doesn't take.

    Raises:
        BadInputError: If one isn't a level of ``--by``, or is given twice.
    """
    for level in levels:
        check(BY, level, f"--by {','.join(levels)}")
    if len(set(levels)) < len(levels):
        raise BadInputError(f"--by {','.join(levels)}: give each level once")


def divided(run: Run, levels: Sequence[str], top: int | None = None) -> list[Row]:
    """A Run's energy by these levels, the largest first, then what isn't listed as one, then idle time.

    A path has a step for each level; one of kind "idle" for what no recorded kernel takes, behind that of the device
    where it was divided by these. Operators state their work, and their energy by it (``analysis.efficiency``).

    What isn't listed, be it one path, has the energy that is left, however wide its interval; of a program what was
    before its first kernel follows. What all leave of the whole, which was measured by itself, comes last: so the rows
    make up the whole. A Run of an older version holds no division: its regression is solved again.

    Args:
        run: A Run with a recording of kernels.
        levels: Of ``--by``, in the order in which rows state them.
        top: List so many rows; all that are resolved, if None.

    Raises:
        BadInputError: If there is no such level, or the Run has no recording of kernels.
    """
    check_levels(levels)
    kinds, saved = [STEPS[level] for level in levels], run
    if not len(run.divided):
        run = analysed(run)
    divisions = divisions_of(run)
    if not divisions:
        holder = f"{run.workload.get('name') or run.kind} holds no recording of kernels and power"
        raise BadInputError(f"--by {','.join(levels)}: {holder}: {_instead(saved)}")
    names = device_labels(run.devices)
    names |= {
        recording["device"]: recording["name"]
        for recording in run.workload.get("recordings", ())
        if recording.get("name")
    }
    sums = [
        (
            division,
            division.grouped(map(partial(_reduced, names.get(division.device, division.device), kinds), division.path)),
        )
        for division in divisions
    ]

    sites, units = defaultdict[Path, set[int]](set), {row["id"]: row for row in run.units.to_pylist()}
    formats = efficiency.formats_of(units.values())
    best = run.calibration.get(divisions[0].device, {}).get("rates") if len(divisions) == 1 else None
    for division in divisions if "op" in kinds and "kernel" not in kinds else ():
        for path, site in zip(division.path, division.column("site"), strict=True):
            sites[_reduced(names.get(division.device, division.device), kinds, path)[0]].add(site)

    def row(paths: Collection[Path], *, remainder: bool = False) -> Row:
        seconds, energies = 0.0, []
        for division, groups in sums:
            if some := [groups[path] for path in paths if path in groups]:
                of_kinds = np.sum(some, axis=0)
                seconds += float(of_kinds.sum())
                energies.append(division.energy(of_kinds, remainder=remainder))
        path, energy = next(iter(paths)), summed(energies, alike=alike)
        if len(paths) > 1:
            return _row((PathStep("pool", f"{len(paths)} more, together"),), seconds, energy, whole, len(paths))
        sited = [units[id] for id in sites[path] if id is not None]
        used = {formats.get(row["parent"], "") for row in sited if row["flops"]}
        number_format = used.pop() if len(used) == 1 else ""
        counted = efficiency.efficiency(efficiency.summed(sited), energy, seconds, best, number_format)
        listed_row = _row(path, seconds, energy, whole)
        return replace(listed_row, figures={**listed_row.figures, **counted})

    whole, alike = run.result(ENERGY).value, _alike(run, {division.device for division in divisions})
    paths = dict.fromkeys(path for _, groups in sums for path in groups)
    idle = [row([path], remainder=True) for path in paths if path[-1].kind == "idle"]
    every_row = [row([path]) for path in paths if path[-1].kind != "idle"]
    with_energy = (row for row in every_row if row.get(ENERGY).value is not None)
    listed = sorted(with_energy, key=lambda row: -(row.get(ENERGY).value or 0.0))[:top]
    shown = {row.path for row in listed}
    rest = [row.path for row in every_row if row.path not in shown]
    unrecorded: dict[Path, list[tuple[float, Estimate]]] = {}
    for device, name, unit in beside(run, divisions):
        energy, time = (run.result(metric, unit) for metric in (ENERGY, TIME))
        budget = {} if energy.half_width is None else {"readings": energy.half_width / Z95}
        step = [PathStep("device", names.get(device, device))] if "device" in kinds else []
        path = (*step, PathStep("idle", name))
        unrecorded.setdefault(path, []).append((time.value or 0.0, replace(energy, budget=budget)))
    rows = [
        *listed,
        *([row(rest, remainder=True)] if rest else []),
        *idle,
        *(
            _row(path, sum(seconds for seconds, _ in some), summed([energy for _, energy in some]), whole)
            for path, some in unrecorded.items()
        ),
    ]
    every = row(paths, remainder=True).get(ENERGY)
    return [*rows, *_in_no_part(run.result(ENERGY), rows, every)]


def _in_no_part(whole: Estimate, rows: Sequence[Row], every: Estimate) -> list[Row]:
    """The rest of a whole that no row has; its interval combines those of whole and rows as independent errors."""
    left = (whole.value or 0.0) - sum(row.get(ENERGY).value or 0.0 for row in rows)
    if not whole.value or abs(left) <= _ROUNDING * abs(whole.value) or not any(row.get(ENERGY).value for row in rows):
        return []
    half = math.hypot(whole.half_width or 0.0, every.half_width or 0.0)
    energy = Estimate(left, left - half, left + half, every.n, every.method)
    return [_row((PathStep("rest", IN_NO_PART),), 0.0, energy, whole.value)]


def _instead(run: Run) -> str:
    """Advice for a Run without a recording of kernels, which it had when its figures were made, or never."""
    if run.workload.get(RECORDINGS):
        levels = set(run.units["level"].to_pylist())
        stated = next((f"--detail {level}" for level in reversed(taken(PROFILE)[1:]) if level in levels), "-v")
        return f"it was saved without the one that it had: {stated} shows its parts; for others measure again"
    if (detail := run.settings.get("detail")) in ("op", "kernel"):
        return f"--detail {detail} was asked for and not measured: -v says why"
    return "profile with --detail kernel, or jouletrace run the program"


def beside(run: Run, divisions: Sequence[Division]) -> list[tuple[str, str, int]]:
    """Device, name and unit of what comes before a first kernel, and of GPUs of which no kernels were recorded."""
    rows, recorded = run.units.to_pylist(), {division.device for division in divisions}
    devices = {row["id"]: str(row["module"]) for row in rows if row["level"] == "device"}
    before = (row for row in rows if row["level"] == "op" and row["name"] == BEFORE)
    others = (row for row in rows if row["level"] == "device" and row["parent"] == MODEL_UNIT)
    return [
        *((devices.get(row["parent"], divisions[0].device), BEFORE, row["id"]) for row in before),
        *((row["module"], NOT_RECORDED, row["id"]) for row in others if row["module"] not in recorded),
    ]


def _alike(run: Run, recorded: Collection[str]) -> bool:
    """True if these GPUs are of one kind, and the response of no sensor was calibrated: they share its error."""
    kinds = {device.name for device in run.devices if device.id in recorded}
    origins = {channel.origin for channel in run.channels if channel.device in recorded and channel.unit == "W"}
    return len(kinds) == 1 and origins == {"nominal"}


def summed(energies: Sequence[Estimate], *, alike: bool = False) -> Estimate:
    """The sum of energies of several devices, J: errors are independent, but of a response that is ``alike``."""
    energy = energies[0] if len(energies) == 1 else total(energies)
    if len(energies) > 1 and energy.value is not None:
        causes = dict.fromkeys(cause for energy in energies for cause in energy.budget)
        budget = {cause: math.hypot(*(energy.budget.get(cause, 0.0) for energy in energies)) for cause in causes}
        shared = [each.budget.get(RESPONSE, 0.0) for each in energies] if alike else []
        if more := sum(shared) ** 2 - sum(u**2 for u in shared):
            budget[RESPONSE] = sum(shared)
        energy = widened(replace(energy, budget=budget), Z95 * math.sqrt(max(more, 0.0)))
    return energy


def added(energies: Iterable[Estimate]) -> Estimate:
    """The sum of the known ones of energies whose errors are alike, as of one power, J; null without any."""
    there = [energy for energy in energies if energy.value is not None]
    ends = (
        (energy.value if end is None else end for end in (energy.value, energy.low, energy.high)) for energy in there
    )
    return Estimate(*(sum(filter(None, some)) for some in zip(*ends, strict=True))) if there else ABSENT


def _row(path: Path, seconds: float, energy: Estimate, whole: float | None, count: int | None = None) -> Row:
    share = replace(energy, budget={}).scaled(1 / whole) if whole else Estimate.null("not_measured")
    return Row(path, {TIME: Estimate(seconds), ENERGY: energy, "share": share}, count)


def _reduced(device: str, kinds: Sequence[str], below: Path) -> tuple[Path]:
    """The path of a row, with a step for each kind; equal layers are one, as are shapes unless these are asked for."""
    path, steps = (PathStep("device", device), *below), []
    if any(step.kind == "idle" for step in path):
        return (path if "device" in kinds else below,)
    for kind in kinds:
        name = ".".join(step.name for step in path if step.kind == kind)
        steps.append(PathStep(kind, (of_equal_layers(name) if kind == "module" else name) or _MISSING.get(kind, "")))
    return (tuple(steps),)
