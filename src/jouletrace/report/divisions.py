"""Divisions of a Run's energy as rows of its JSON object: each part by its path, one function for all of them.

Parts that divide the same joules in different ways stand in different divisions, so that the leaves of one state each
joule once: operators of equal layers are stored together, modules one by one, phases of ranks across both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from jouletrace.run import Estimate, Run
from jouletrace.run.layers import OWN
from jouletrace.run.parts import Part, Parts, Row, costliest
from jouletrace.run.paths import Path, PathStep
from jouletrace.run.recording_names import BEFORE, IDLE_NAME

LEVELS = {
    **{"op": "code", "kernel": "code", "cause": "code", "phase": "phase", "layer": "module", "range": "range"},
    **{"load": "request", "context": "context", "length": "length"},
}
"""The division of each level of parts; devices are in "whole"."""

PLACES = {
    "time_s": "time_s",
    "power_w": "power_w",
    "energy_total_j": "energy_j",
    "energy_active_j": "energy_active_j",
    "share": "share",
}
"""Metrics that each row states, and their fields; the others are in "other" under their own names."""

BASELINES = {"context idle": "baseline_context_idle_w", "deep idle": "baseline_deep_idle_w"}


def divisions(run: Run, results: Parts) -> dict[str, list[Row]]:
    """Rows of each division that the Run has, in stored order; "whole" is always there."""
    by_division = {"whole": list(_whole(run, results))}
    paths = _paths(results)
    apart = results.apart()  # kernels and operators of an import state the same time, each by itself
    for part in results.all():
        division, last = LEVELS.get(part.level), part.path[-1].kind if part.path else ""
        if last == "call" or (apart and last in ("op", "shapes")):
            division = "call" if last == "call" else "operator"
        if division is not None:
            by_division.setdefault(division, []).extend(with_own(Row(paths[part.id], part.figures, part.count)))
    outside = [Row(part.path, part.figures, part.count) for part in results.outside()]
    for division in ("phase", "module", "operator"):  # phases of a generation were measured with their idle time
        if division in by_division and not (division == "phase" and results.units("length")):
            by_division[division] += filter(_idle, outside)
    figures = results.whole.figures
    if idle := [
        Row((PathStep("level", name),), {"power_w": figures[m]}) for name, m in BASELINES.items() if m in figures
    ]:
        by_division["idle"] = idle
    return {division: list(_unique(rows)) for division, rows in by_division.items()}


def _unique(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows; of several with one path, such as steps of the host and of the GPU, the later ones are numbered."""
    taken, seen = {row.path for row in rows}, Counter[Path]()
    for row in rows:
        path = row.path
        while seen[row.path] and path in taken:
            seen[row.path] += 1
            path = (*row.path[:-1], *(PathStep(kind, f"{name} ({seen[row.path]})") for kind, name in row.path[-1:]))
        seen[row.path] = max(seen[row.path], 1)
        taken.add(path)
        yield replace(row, path=path)


def _whole(run: Run, results: Parts) -> Iterator[Row]:
    """All that was measured, and each device where there are several."""
    figures = {name: estimate for name, estimate in results.whole.figures.items() if name in PLACES}
    devices, names = results.units("device"), {part.id: name for name, part in results.gpus.items()}
    only = run.devices[0].id if len(run.devices) == 1 and not devices else None
    yield Row((), {"time_s": results.time, **figures}, None, only)
    for part in devices:
        yield Row((PathStep("device", names.get(part.id, part.name)),), part.figures, part.count, part.module)


def _paths(results: Parts) -> dict[int, Path]:
    """Paths of parts by number, kernels below their operators: a phase comes behind an operator that is in several."""
    path_of_part, below = {part.id: part.path for part in results.all()}, dict[int, list[Part]]()
    for part in results.all():
        if part.level == "kernel" and part.parent and results[part.parent].op:
            below.setdefault(part.parent, []).append(part)
    for id, kernels in below.items():
        phase, *others = {kernel.phase for kernel in kernels}
        if phase and not others:
            path_of_part[id] = replace(results[id], phase=phase).path
        for kernel in kernels:
            path_of_part[kernel.id] = (
                *path_of_part[id],
                *(step for step in kernel.path if step not in path_of_part[id]),
            )
    return path_of_part


def with_own(row: Row) -> Iterator[Row]:
    """A row, and what a module with others in it runs itself, which is a leaf beside them."""
    itself = {OWN[name]: estimate for name, estimate in row.figures.items() if name in OWN}
    yield replace(row, figures={name: estimate for name, estimate in row.figures.items() if name not in OWN})
    if itself:
        yield Row((*row.path, PathStep("own", "own operators")), itself)


def costliest_of(rows: Sequence[Row], top: int) -> list[Row]:
    """The ``top`` costliest rows, the costliest first, and all that is idle beyond them."""
    left = iter(range(top))
    ranked = (rows[n] for n in costliest([row.figures for row in rows]))
    return [row for row in ranked if _idle(row) or next(left, None) is not None]


def _idle(row: Row) -> bool:
    return any(step.kind == "idle" or step.name in (IDLE_NAME, BEFORE) for step in row.path)


def as_json(row: Row, figure: Callable[[Estimate], dict[str, Any]]) -> dict[str, Any]:
    """The object of a row, its figures as ``figure`` states them."""
    return {
        "path": [step._asdict() for step in row.path],
        "count": row.count or None,
        **({} if row.device is None else {"device": row.device}),
        **{key: figure(row.get(name)) for name, key in PLACES.items()},
        "flags": list(dict.fromkeys(flag for estimate in row.figures.values() for flag in estimate.flags)),
        "other": {name: figure(estimate) for name, estimate in row.figures.items() if name not in PLACES},
    }
