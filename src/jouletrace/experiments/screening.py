"""A first look at a step's parts: roughly how large each is, and what can't be changed by itself.

It takes a capture for each part, and a training step may have hundreds: so the parts on the largest
tensors come first, and what time doesn't allow is taken for small and pooled. Operators of an
optimizer write over each other's results: none can be removed or repeated alone. All together
they can.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from jouletrace.experiments.arms import DETACH, REFERENCE, REMOVE, REPEAT, SCREEN, Arm
from jouletrace.experiments.bench import Bench, Window
from jouletrace.experiments.parts import Part
from jouletrace.experiments.plan import PlanSettings
from jouletrace.experiments.pooling import joined

SCREEN_S = 0.08
"""Length of a window."""

_MOST_OF_BUDGET = 0.3

_AFTER = 10
"""Looks at parts from one at the reference to the next: no single one tells, 1.7 % off as the first may be."""

_CLOCKED = 0.5
"""Share of the time that goes with the clock: 0.4 to 0.6 of three steps on an H100, by its cycle counters.

After a capture its clock climbs from 1890 to 1940 MHz, so short looks differ by 1 %: more than small parts take.
"""
_DIMENSIONS = re.compile(r"\[([\d,]*)\]")
_ELEMENTS = re.compile(r"(\d+) elements")
"""In the shapes of an operator on more tensors than are listed; see ``steps.operators.describe``."""


@dataclass
class Screened:
    """What is known of the parts.

    Attributes:
        parts: All of them, those joined that can be changed together alone.
        share: Rough share of the step's time of each, by id; 0 of those not looked at.
        free_s: Seconds of an iteration at the highest clock.
        capture_s: Seconds of a capture; None if there was none.
    """

    parts: list[Part]
    share: dict[int, float] = field(default_factory=dict)
    free_s: float = 0.0
    capture_s: float | None = None


def screen(
    bench: Bench, parts: Sequence[Part], settings: PlanSettings, pause_s: float
) -> Generator[Window, None, Screened]:
    """Look at each part for a moment.

    Args:
        bench: Where to run.
        parts: The parts.
        settings: Which methods to use, and the budget, of which a share at most is taken.
        pause_s: Pause that keeps the step below the power cap; 0 where none acts.
    """
    look = _Look(bench, pause_s, Screened(list(parts)))
    known = look.known
    deadline_s = bench.spent_s + _MOST_OF_BUDGET * (settings.budget_s - bench.spent_s)
    yield from look.at(Arm(REFERENCE), {})
    stuck, unseen = [], []
    for i, part in enumerate(sorted(parts, key=_elements, reverse=True), 1):
        if bench.spent_s > deadline_s:
            unseen.append(part)
            continue
        if i % _AFTER == 0:
            yield from look.at(Arm(REFERENCE), {})
        if settings.removal:
            yield from look.at(Arm(REMOVE, part.id, 0), {part.id: part})
        if part.id not in known.share and settings.repetition:
            yield from look.at(Arm(REPEAT, part.id, 2), {part.id: part})
        if part.id not in known.share and settings.removal and not part.members:
            stuck.append(part)
    if unseen:
        known.share |= dict.fromkeys((part.id for part in unseen), 0.0)
        bench.notes.append(("not_looked_at", f"the time was too short to look at each part: {len(unseen)} weren't"))
        if settings.removal:
            yield from _sift(look, unseen)
    for _, alike in groupby(sorted(stuck, key=lambda part: part.phase or ""), key=lambda part: part.phase):
        yield from _join(look, list(alike))
    look.weigh()
    known.parts.sort(key=lambda part: min(unit.place for unit in part.units))
    if look.captures_s:
        known.capture_s = float(np.median(look.captures_s))
    return known


def _join(look: _Look, stuck: list[Part]) -> Generator[Window, None, None]:
    """Make one part of those of a phase that can't be changed alone; with the whole phase, if it takes that."""
    known = look.known
    whole = [part for part in known.parts if part.phase == stuck[0].phase]
    for together in (stuck, whole):
        part = joined(together, 1 + max(part.id for part in known.parts))
        yield from look.at(Arm(REMOVE, part.id, 0), {part.id: part})
        if part.id not in known.share:
            look.bench.forget({part.id})
            continue
        inside = {inner.id for inner in together}
        known.parts = [*(one for one in known.parts if one.id not in inside), part]
        look.bench.forget(inside)
        for kind in (REPEAT, DETACH):
            look.bench.refused[kind, part.id] = "operators that write over each other's results"
        what = f"{len(together)} operators" + (f" of {part.phase}" if part.phase else "")
        look.bench.notes.append(("measured_together", f"{what} write over each other's results: removed together"))
        return


def _sift(look: _Look, unseen: Sequence[Part]) -> Generator[Window, None, None]:
    """Find those that can't be removed among many that can: one such would keep a whole pool from being removed."""
    trial = joined(unseen, 1 + max(part.id for part in look.known.parts)) if len(unseen) > 1 else unseen[0]
    yield from look.at(Arm(REMOVE, trial.id, 0), {trial.id: trial})
    if len(unseen) == 1:
        return
    if look.known.share.pop(trial.id, None) is None:
        look.bench.forget({trial.id})
        half = len(unseen) // 2
        yield from _sift(look, unseen[:half])
        yield from _sift(look, unseen[half:])


class _Look:
    """Short windows of variants, and what they say."""

    def __init__(self, bench: Bench, pause_s: float, known: Screened) -> None:
        self.bench = bench
        self.known = known
        self.captures_s: list[float] = []
        self._pause_s = pause_s
        self._seen: list[tuple[Arm, float, float | None]] = []

    def at(self, arm: Arm, parts: dict[int, Part]) -> Generator[Window, None, None]:
        """Run a variant for a moment and note its part's share, if it can be captured."""
        arm = replace(arm, spin_ns=round(self._pause_s * 1e9))
        with ExitStack() as stack:
            before_ns = self.bench.ended_ns
            variant = self.bench.capture(arm, parts, stack)
            if variant is None:
                return
            window = self.bench.window(variant, replace(arm, kind=SCREEN), -1, SCREEN_S, SCREEN_S / 4)
        self.captures_s.append((self.bench.resumed_ns - before_ns) / 1e9)
        yield window
        step_s = window.iteration_s - self._pause_s
        self._seen.append((arm, step_s, window.counted_mhz))
        if arm.part is None:
            self.known.free_s = step_s
        else:
            self._note(arm, arm.part, step_s)

    def weigh(self) -> None:
        """The shares anew, by all looks at the reference, and at one clock where it was counted in all looks."""
        clocks = [mhz for *_, mhz in self._seen if mhz]
        top = max(clocks) if clocks and len(clocks) == len(self._seen) else None
        looks = [(arm, step_s * (mhz / top) ** _CLOCKED if top and mhz else step_s) for arm, step_s, mhz in self._seen]
        references = [step_s for arm, step_s in looks if arm.part is None]
        self.known.free_s = float(np.median(references)) if references else 0.0
        for arm, step_s in looks:
            if arm.part in self.known.share:
                self._note(arm, arm.part, step_s)

    def _note(self, arm: Arm, part: int, step_s: float) -> None:
        """The share of a part, from how long the step takes with it changed."""
        if self.known.free_s > 0:
            self.known.share[part] = (step_s / self.known.free_s - 1) / (arm.multiplicity - 1)


def _elements(part: Part) -> int:
    """Elements of what a part reads, all its launches together."""
    if said := _ELEMENTS.search(part.shapes):
        return part.count * int(said[1])
    shapes = _DIMENSIONS.findall(part.shapes)
    return part.count * sum(math.prod(int(size) for size in shape.split(",") if size) for shape in shapes)
