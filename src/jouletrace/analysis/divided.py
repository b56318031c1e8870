"""A Run's energy divided by any steps of the paths of its kernels, with the covariance of all their powers.

The regression is solved again, since a Run stores no covariance: a sum of rows that share a power is known less well
than independent ones would be, and may be resolved where none of its rows is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from jouletrace.analysis.analyse import figures_of
from jouletrace.analysis.figures import Figures
from jouletrace.analysis.kernel_times import Kinds, no_kinds
from jouletrace.analysis.parts import Parts
from jouletrace.analysis.program import BEFORE
from jouletrace.errors import BadInputError
from jouletrace.run import MODEL_UNIT, DeviceInfo, Estimate, Run
from jouletrace.run.parts import Path, Step
from jouletrace.run.recording_names import IDLE_NAME, OUTSIDE, of_equal_layers
from jouletrace.stats.interval import Z95, total

KINDS = ("device", "phase", "module", "op", "shapes", "kernel")
"""Kinds of steps by which energy can be divided."""

IDLE: Path = (Step("idle", IDLE_NAME),)

_MISSING = {"module": OUTSIDE}
"""Name of a step that a path lacks, where it isn't empty."""


@dataclass(frozen=True)
class Share:
    """Energy of one division in an iteration, or in all of a program.

    Attributes:
        path: A step for each kind by which was divided; one step of kind "idle" for the time between kernels, or before
            the first; () for ``count`` paths together that aren't listed.
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
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise BadInputError(f"--by {','.join(kinds)}: give one or some of {', '.join(KINDS)}")
    figures = figures_of(replace(run, warnings=list(run.warnings)))
    recorded = [one for one in figures.recorded if isinstance(one, Parts)]
    if not recorded:
        raise BadInputError(
            f"--by {','.join(kinds)}: {run.workload.get('name') or run.kind} holds no recording of kernels: "
            "profile with --detail kernel, or jouletrace run the program"
        )
    whole = figures.get(MODEL_UNIT, "energy_total_j").value
    found = _Division(run.devices, recorded, kinds, whole)
    alone = {path: found.share([path]) for path in found.paths}
    known = [one for one in alone.values() if one.energy.value is not None]
    listed = sorted(known, key=lambda one: -(one.energy.value or 0.0))[:top]
    shown = {one.path for one in listed}
    rest = [path for path in alone if path not in shown]
    while rest and listed and found.share(rest).energy.value is None:  # the smallest with which it is resolved
        rest.append(listed.pop().path)
    return [*listed, *([found.share(rest)] if rest else []), found.idle(), *_before(figures, whole)]


def _before(figures: Figures, whole: float | None) -> list[Share]:
    """What a program takes before its first kernel; nothing of other Runs."""
    ids = [row["id"] for row in figures.units().to_pylist() if row["level"] == "op" and row["name"] == BEFORE]
    if not ids:
        return []
    energy, seconds = (total([figures.get(id, metric) for id in ids]) for metric in ("energy_total_j", "time_s"))
    budget = {} if energy.half_width is None else {"readings before the first kernel": energy.half_width / Z95}
    return [Share((Step("idle", BEFORE),), 1, seconds.value or 0.0, energy, _of(energy, whole), budget)]


def _of(energy: Estimate, whole: float | None) -> Estimate:
    """The share of an energy in that of the whole."""
    return energy.scaled(1 / whole) if whole else Estimate.null("not_measured")


class _Division:
    """Seconds of each kind of kernel by the steps of these kinds, of each recording.

    Attributes:
        paths: All paths, reduced to these steps, in the order in which they first occur.
    """

    def __init__(
        self, devices: Sequence[DeviceInfo], recorded: Sequence[Parts], kinds: Sequence[str], whole: float | None
    ) -> None:
        self._recorded, self._whole = recorded, whole
        self._seconds: list[dict[Path, Kinds]] = []
        for one in recorded:
            named = next((device.name for device in devices if device.id == one.times.device), one.times.device)
            name = str(one.times.about.get("name") or named)
            inside: dict[Path, Kinds] = {}
            for part in one.times.parts:
                path = _reduced((Step("device", name), *one.path(part)), kinds)
                inside.setdefault(path, no_kinds())[part.kind] += part.seconds
            self._seconds.append(inside)
        self.paths = list(dict.fromkeys(path for inside in self._seconds for path in inside))

    def share(self, paths: Collection[Path]) -> Share:
        """What some paths take together."""
        seconds, rows = 0.0, []
        for one, inside in zip(self._recorded, self._seconds, strict=True):
            together = no_kinds()
            for path in paths:
                for kind, some in inside.get(path, no_kinds()).items():
                    together[kind] += some
            if together:
                seconds += sum(together.values())
                rows.append((one, together, 0.0))
        path = next(iter(paths)) if len(paths) == 1 else ()
        return self._share(path, len(paths), seconds, rows)

    def idle(self) -> Share:
        """What is drawn while no kernel runs."""
        rows = [(one, no_kinds(), one.idle_s) for one in self._recorded]
        return self._share(IDLE, 1, sum(one.idle_s for one in self._recorded), rows)

    def _share(self, path: Path, count: int, seconds: float, rows: Sequence[tuple[Parts, Kinds, float]]) -> Share:
        """The sum of seconds of kinds, and of idle time, in several recordings, whose errors are independent."""
        energies = [one.drawn(kinds, idle_s).energy for one, kinds, idle_s in rows]
        energy = energies[0] if len(energies) == 1 else total(energies)
        share = _of(energy, self._whole)
        budget: dict[str, float] = {}
        for one, kinds, idle_s in rows if energy.value is not None else ():
            for cause, u in one.sources(kinds, idle_s).items():
                budget[cause] = math.hypot(budget.get(cause, 0.0), u)
        return Share(path, count, seconds, energy, share, budget)


def _reduced(path: Path, kinds: Sequence[str]) -> Path:
    """A step for each kind; equal layers are one, as is each operator on whatever shapes unless these are asked for."""
    steps = []
    for kind in kinds:
        name = ".".join(step.name for step in path if step.kind == kind)
        steps.append(Step(kind, (of_equal_layers(name) if kind == "module" else name) or _MISSING.get(kind, "")))
    return tuple(steps)
