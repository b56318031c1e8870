"""A Run's energy divided by any steps of the paths of its kernels, with the covariance of all their powers.

The regression is solved again, since a Run stores no covariance: a sum of rows that share a power is known less well
than independent ones would be, and may be resolved where none of its rows is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from jouletrace.analysis.analyse import figures_of
from jouletrace.analysis.kernel_times import Kinds, no_kinds
from jouletrace.analysis.parts import Parts
from jouletrace.errors import BadInputError
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.parts import Path, Step
from jouletrace.run.recording_names import BEFORE, IDLE_NAME, OUTSIDE, of_equal_layers
from jouletrace.stats.interval import Z95, total

KINDS = ("device", "phase", "module", "op", "shapes", "kernel")
"""Kinds of steps by which energy can be divided."""

NOT_RECORDED = "kernels not recorded"
"""Name of what a GPU takes of which no kernels were recorded, beside others of the Run."""

_MISSING = {"module": OUTSIDE}
"""Name of a step that a path lacks, where it isn't empty."""


@dataclass(frozen=True)
class Share:
    """Energy of one division in an iteration, or in all of a program.

    Attributes:
        path: A step for each kind by which was divided; a step of kind "idle" for what no recorded kernel takes (behind
            that of the device, where it was divided by these); () for ``count`` paths together that aren't listed.
        count: How many paths it sums up.
        seconds: Time in which their kernels ran, s; kernels that overlap count each.
        energy: In joules; null where the readings don't resolve the sum.
        budget: Standard uncertainty of the energy by cause, J; empty without an energy.
        share: Of the energy of the whole.
    """

    path: Path
    count: int
    seconds: float
    energy: Estimate
    share: Estimate
    budget: Mapping[str, float]


def divided(run: Run, kinds: Sequence[str], top: int | None = None) -> list[Share]:
    """A Run's energy by steps of these kinds, the largest first, then what isn't listed as one, then idle time.

    Of a program what was before its first kernel comes last; so the rows make up the whole.

    Args:
        run: A Run with a recording of kernels.
        kinds: Some of ``KINDS``, in the order in which rows state them.
        top: List so many rows; all that are resolved, if None.

    Raises:
        BadInputError: If there is no such kind, or the Run has no recording of kernels.
    """
    if not kinds or len(set(kinds)) < len(kinds) or set(kinds) - set(KINDS):
        raise BadInputError(f"--by {','.join(kinds)}: give one or some of {', '.join(KINDS)}, each once")
    figures = figures_of(replace(run, warnings=list(run.warnings)))
    recorded = [one for one in figures.recorded if isinstance(one, Parts)]
    if not recorded:
        raise BadInputError(
            f"--by {','.join(kinds)}: {run.workload.get('name') or run.kind} holds no recording of kernels: "
            "profile with --detail kernel, or jouletrace run the program"
        )
    whole = figures.get(MODEL_UNIT, "energy_total_j").value
    alike = Counter(device.name for device in run.devices)
    numbered = {device.id: f"{i}: {device.name}" for i, device in enumerate(run.devices) if alike[device.name] > 1}
    names = {device.id: device.name for device in run.devices} | numbered
    names |= {one.times.device: str(one.times.about["name"]) for one in recorded if one.times.about.get("name")}
    found = _Division(names, recorded, kinds, whole)
    alone = {path: found.share([path]) for path in found.paths}
    known = [one for one in alone.values() if one.energy.value is not None]
    listed = sorted(known, key=lambda one: -(one.energy.value or 0.0))[:top]
    shown = {one.path for one in listed}
    rest = [path for path in alone if path not in shown]
    beside = [*found.idle(), *_beside(figures.units().to_pylist(), figures.get, {one.times.device for one in recorded})]
    return [
        *listed,
        *([found.share(rest, remainder=len(rest) > 1)] if rest else []),
        *_added(beside, names, "device" in kinds, whole),
    ]


class _Taken(NamedTuple):
    """Energy that a device takes for something, in J, with its budget by cause, and the time of it, in s."""

    device: str
    name: str
    seconds: float
    energy: Estimate
    budget: Mapping[str, float]


def _beside(
    rows: Sequence[Mapping[str, Any]], figure: Callable[[int, str], Estimate], recorded: Collection[str]
) -> list[_Taken]:
    """Energies of devices before the first kernel of a program, and of GPUs of which no kernels were recorded."""
    devices = {row["id"]: str(row["module"]) for row in rows if row["level"] == "device"}
    found = []
    for row in rows:
        before = row["level"] == "op" and row["name"] == BEFORE
        if before or (row["level"] == "device" and row["module"] not in recorded and row["parent"] == MODEL_UNIT):
            energy, time = (figure(row["id"], metric) for metric in ("energy_total_j", "time_s"))
            budget = {} if energy.half_width is None else {"readings": energy.half_width / Z95}
            device = devices.get(row["parent"] if before else row["id"], "")
            found.append(_Taken(device, BEFORE if before else NOT_RECORDED, time.value or 0.0, energy, budget))
    return found


def _added(rows: Sequence[_Taken], names: Mapping[str, str], apart: bool, whole: float | None) -> list[Share]:
    """A row for each name, or for each device and name where devices are ``apart``."""
    groups: dict[Path, list[_Taken]] = {}
    for row in rows:
        path = (*((Step("device", names.get(row.device, row.device)),) if apart else ()), Step("idle", row.name))
        groups.setdefault(path, []).append(row)
    return [_summed(path, 1, some, whole) for path, some in groups.items()]


def _summed(path: Path, count: int, rows: Sequence[_Taken], whole: float | None) -> Share:
    """The sum of what several devices take, whose errors are independent."""
    energy = rows[0].energy if len(rows) == 1 else total([one.energy for one in rows])
    causes = dict.fromkeys(cause for one in rows for cause in one.budget) if energy.value is not None else {}
    budget = {cause: math.hypot(*(one.budget.get(cause, 0.0) for one in rows)) for cause in causes}
    return Share(path, count, sum(one.seconds for one in rows), energy, _of(energy, whole), budget)


def _of(energy: Estimate, whole: float | None) -> Estimate:
    """The share of an energy in that of the whole."""
    return energy.scaled(1 / whole) if whole else Estimate.null("not_measured")


class _Division:
    """Seconds of each kind of kernel by the steps of these kinds, of each recording.

    Attributes:
        paths: All paths, reduced to these steps, in the order in which they first occur.
    """

    def __init__(
        self, names: Mapping[str, str], recorded: Sequence[Parts], kinds: Sequence[str], whole: float | None
    ) -> None:
        self._recorded, self._whole = recorded, whole
        self._seconds: list[dict[Path, Kinds]] = []
        for one in recorded:
            device = Step("device", names.get(one.times.device, one.times.device))
            inside: dict[Path, Kinds] = {}
            for part in one.times.parts:
                path = _reduced((device, *one.path(part)), kinds)
                inside.setdefault(path, no_kinds())[part.kind] += part.seconds
            self._seconds.append(inside)
        self.paths = list(dict.fromkeys(path for inside in self._seconds for path in inside))

    def share(self, paths: Collection[Path], *, remainder: bool = False) -> Share:
        """The energy of some paths together; of a ``remainder`` also where the readings resolve it badly."""
        rows = []
        for one, inside in zip(self._recorded, self._seconds, strict=True):
            together = no_kinds()
            for path in paths:
                for kind, some in inside.get(path, no_kinds()).items():
                    together[kind] += some
            if together:
                rows.append(_drawn(one, together, 0.0, remainder=remainder))
        return _summed(next(iter(paths)) if len(paths) == 1 else (), len(paths), rows, self._whole)

    def idle(self) -> list[_Taken]:
        """Energy of each device while no kernel runs."""
        return [_drawn(one, no_kinds(), one.idle_s) for one in self._recorded]


def _drawn(one: Parts, kinds: Kinds, idle_s: float, *, remainder: bool = False) -> _Taken:
    """Seconds of kinds, or of idle time, of a recording."""
    energy = one.drawn(kinds, idle_s, remainder=remainder).energy
    budget = one.sources(kinds, idle_s) if energy.value is not None else {}
    return _Taken(one.times.device, IDLE_NAME, sum(kinds.values()) + idle_s, energy, budget)


def _reduced(path: Path, kinds: Sequence[str]) -> Path:
    """A step for each kind; equal layers are one, as is each operator on whatever shapes unless these are asked for."""
    steps = []
    for kind in kinds:
        name = ".".join(step.name for step in path if step.kind == kind)
        steps.append(Step(kind, (of_equal_layers(name) if kind == "module" else name) or _MISSING.get(kind, "")))
    return tuple(steps)
