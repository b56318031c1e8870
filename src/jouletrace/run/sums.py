"""Sums of parts: what some are together, and what they leave of the one around them, so that rows make up a row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.run.division import METHOD, UNKNOWN, Division, divisions_of
from jouletrace.run.estimate import Estimate, widened
from jouletrace.run.model import Run
from jouletrace.run.parts import Part, Parts, of_time
from jouletrace.run.paths import Path
from jouletrace.run.recording_names import IN_NO_PART

ENERGY, TIME = "energy_total_j", "time_s"

_ROUNDING = 1e-9
"""Share of a part below which what is left of it is the rounding of sums."""

_OWN_IDS = 3 * 10**9
"""Parts that are made here have numbers below the negative of this, which are those of no other."""

NOT_RESOLVED = "not resolved"
"""Name of the sum of rows without an energy, which are listed each."""

_OTHER_CAUSES = "other causes"

_NESTED = 3
"""Parts in which a kernel lies at most: itself, its operator, and a pool of these."""


class Sums:
    """Sums of parts with the covariance of their powers, where a Run stores these.

    Attributes:
        divisions: Stored divisions by the name of their GPU.
        seconds: By part, the seconds of each kind of kernel in it; layers are added by ``layers``.
        timed: True if shares are of time.
    """

    def __init__(self, run: Run, parts: Parts) -> None:
        self.parts = parts
        self.divisions: dict[str, Division] = {}
        self.seconds: dict[int, Floats] = {}
        self.timed = any(of_time(part.figures) for part in parts.all())
        self._ids, self._members = count(-_OWN_IDS, -1), dict[int, Sequence[Part]]()
        names = {part.module: name for name, part in parts.gpus.items()}
        above = {part.id: part.parent for part in parts.rows() if part.level in ("kernel", "op")}
        phases = {} if parts.units("length") else {(phase.gpu, phase.name): phase.id for phase in parts.units("phase")}
        for division in divisions_of(run):
            gpu = names.get(division.device, "")

            def around(unit: int, path: Path, gpu: str = gpu) -> Iterator[int]:
                id: int | None = unit
                for _ in range(_NESTED):
                    if id is not None and id in above:
                        yield id
                        id = above[id]
                for step in path:
                    if step.kind == "phase" and (gpu, step.name) in phases:
                        yield phases[gpu, step.name]

            self.divisions[gpu] = division
            self.seconds |= division.grouped(map(around, division.column("unit"), division.path))
        for cause in parts.causes():
            idle = self.seconds.get(cause.parent or 0)
            if idle is not None and (whole_s := parts[cause.parent or 0].get(TIME).value):
                self.seconds[cause.id] = idle * ((cause.get(TIME).value or 0.0) / whole_s)

    def of(self, first: Part, seconds: Floats, *, remainder: bool = False) -> dict[str, Estimate]:
        """Figures of seconds of each kind on the device of a part.

        A ``remainder`` has the energy of all powers that are known, however wide the interval is: as the sum of parts.
        It has no power where its time is that of others, too.
        """
        division = self.divisions[first.gpu]
        time = replace(first.get(TIME), value=float(seconds.sum()), low=None, high=None, reason=None)
        energy = division.energy(seconds, remainder=remainder)
        idle_s = None if division.powers is None else float(seconds[:-1] @ division.powers.own)
        figures = self.about(time, energy, idle_s)
        if seconds[-1] > UNKNOWN * seconds.sum():
            figures.pop("power_w", None)
        return figures

    def about(self, time: Estimate, energy: Estimate, idle_s: float | None) -> dict[str, Estimate]:
        """Figures of a time and its energy: with power, share, and what is above ``idle_s`` seconds of context idle."""
        figures = {TIME: time, ENERGY: energy} | ({"power_w": energy.scaled(1 / time.value)} if time.value else {})
        share, of = (time, self.parts.time) if self.timed else (energy, self.parts.get(ENERGY))
        if whole := of.value:
            figures["share"] = share.scaled(1 / whole)
        idle_w = self.parts.get("baseline_context_idle_w")
        if idle_s is not None and energy.value is not None and idle_w.value is not None:
            idle = idle_w.scaled(idle_s)
            value, low, high = ((end or 0.0) - (idle.value or 0.0) for end in (energy.value, energy.low, energy.high))
            active = replace(energy, value=value, low=low, high=high, budget={})
            figures["energy_active_j"] = widened(active, idle.half_width or 0.0)
        return figures

    def together(self, some: Sequence[Part], name: str, *, timed: bool = True) -> Part:
        """Some parts of one device as one; without a stored division it is the sum of their values."""
        if (seconds := self._summed(some)) is not None:
            figures = self.of(some[0], seconds, remainder=True)
        else:
            times = [time for part in some if (time := part.get(TIME)).value is not None]
            time_s, energy = sum(time.value or 0.0 for time in times), self._energy(some)
            figures = {TIME: replace(times[0], value=time_s, low=None, high=None)} if times else {}
            figures |= self._with_share(energy) if energy.value is not None else {ENERGY: some[0].get(ENERGY)}
        if not timed:
            figures = {metric: figure for metric, figure in figures.items() if metric not in (TIME, "power_w")}
        row = self._row(some[0].parent, some[0].gpu, name, figures)
        self._members[row.id] = some
        return row

    def _row(self, parent: int | None, gpu: str, name: str, figures: dict[str, Estimate]) -> Part:
        return Part(next(self._ids), parent, "op", name, gpu=gpu, figures=figures)

    def rest(self, around: Part, inside: Sequence[Part], name: str) -> Part | None:
        """A part for the rest of the one around some parts; None if that is nothing, or isn't known.

        The interval has the covariance of powers. What is left of a whole that was measured by itself has the intervals
        of both; without a stored division there is none.
        """
        energy_j, time_s = (_left(around, inside, metric) for metric in (ENERGY, TIME))
        if not (time_s if energy_j is None else energy_j):
            return None
        with_energy = [part for part in inside if part.get(ENERGY).value is not None]
        seconds, whole = self._summed(with_energy), self.seconds.get(around.id)
        figures: dict[str, Estimate] = {}
        if seconds is not None and whole is not None and energy_j is not None:
            figures = self.of(around, whole - seconds, remainder=True)
        elif energy_j is not None:
            halves = (around.get(ENERGY).half_width, self._energy(with_energy).half_width)
            figures = self._with_share(_within(energy_j, halves if whole is None else [None]))
        figures.pop(TIME, None)
        if time_s and time_s > 0:
            figures[TIME] = replace(around.get(TIME), value=time_s, low=None, high=None)
            if self.timed and (whole_s := self.parts.time.value):
                figures["share"] = figures[TIME].scaled(1 / whole_s)
        else:
            figures.pop("power_w", None)
        return self._row(around.id, around.gpu, name, figures)

    def closed(self, shown: Sequence[Part], left: Sequence[Part], cause: float) -> list[Part]:
        """Rows right below the whole, then of each GPU what has no row or no energy, and what is in no part.

        Idle has its causes below it with a share of ``cause`` of the whole, the others together.
        """
        rows: list[Part] = []
        for part in shown:
            causes = self.parts.causes(cause, part)
            rest = self.rest(part, causes, _OTHER_CAUSES) if causes else None
            rows += [part, *causes, *([] if rest is None else [replace(rest, level="cause")])]
        for gpu in dict.fromkeys([*self.parts.gpus, *(part.gpu for part in shown)]):
            of_gpu = [part for part in shown if part.gpu == gpu]
            others = [part for part in left if part.gpu == gpu and part.get(ENERGY).reason != "pooled"]
            unknown = [part for part in others if part.get(ENERGY).value is None and part.id not in self.seconds]
            others = [part for part in others if part not in unknown]
            lacking = [part for part in of_gpu if part.get(ENERGY).reason == "not_resolved" and part.id in self.seconds]
            of_gpu += [self.together(some, others_of(some)) for some in (others, unknown) if some]
            of_gpu += [self.together(lacking, NOT_RESOLVED, timed=False)] if lacking else []
            if any(part.get(ENERGY).value is not None for part in of_gpu):
                rest = self.rest(self.parts.gpus.get(gpu, self.parts.whole), of_gpu, IN_NO_PART)
                of_gpu += [] if rest is None else [replace(rest, gpu=gpu)]
            rows += [part for part in of_gpu if part not in shown]
        return rows

    def _summed(self, some: Sequence[Part]) -> Floats | None:
        """Seconds of each kind in some parts; None without any, or where those of one aren't known."""
        each = [seconds for part in some if (seconds := self.seconds.get(part.id)) is not None]
        return np.sum(each, axis=0) if each and len(each) == len(some) else None

    def _energy(self, some: Sequence[Part]) -> Estimate:
        """Energy of parts together: those of a division with their covariance, others as independent of these, in J."""
        some = [member for part in some for member in self._members.get(part.id, [part])]
        divided = [part for part in some if part.id in self.seconds]
        each = [part.get(ENERGY) for part in some if part.id not in self.seconds]
        if (seconds := self._summed(divided)) is not None:
            each.append(self.of(divided[0], seconds, remainder=True)[ENERGY])
        stated = [energy for energy in each if energy.value is not None]
        halves = [energy.half_width for energy in stated] if self.divisions else [None]
        return (
            _within(sum(energy.value or 0.0 for energy in stated), halves) if stated else Estimate.null("not_resolved")
        )

    def _with_share(self, energy: Estimate) -> dict[str, Estimate]:
        whole = self.parts.get(ENERGY).value
        return {ENERGY: energy} | ({"share": energy.scaled(1 / whole)} if whole and not self.timed else {})


def others_of(some: Sequence[Part]) -> str:
    """The name of what isn't listed: how many, and why; that of a single one."""
    lacking = all(part.get(ENERGY).reason == "not_resolved" for part in some)
    if len(some) == 1 and some[0].level == "layer":
        return some[0].within(1)
    if len(some) == 1:
        return f"{some[0].holds or some[0].name}{', not resolved' if lacking else ''}"
    return f"{len(some)} {'not resolved' if lacking else 'more, together'}"


def _within(value: float, halves: Sequence[float | None]) -> Estimate:
    """A value with the interval of independent errors, whose half-widths these are; without one if one isn't known."""
    if any(half is None for half in halves):
        return Estimate(value, None, None, 0, "derived")
    half = math.hypot(*(half_width or 0.0 for half_width in halves))
    return Estimate(value, value - half, value + half, 0, METHOD)


def _left(around: Part, inside: Sequence[Part], metric: str) -> float | None:
    """A figure of a part less those in it: 0 where only rounding is left, None where it isn't known."""
    if (whole := around.get(metric).value) is None:
        return None
    value = whole - sum(part.get(metric).value or 0.0 for part in inside)
    return value if abs(value) > _ROUNDING * abs(whole) else 0.0
