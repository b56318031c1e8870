"""Where variants are captured and run: the only place that touches the step."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from jouletrace.errors import JouletraceError
from jouletrace.experiments.arms import GAPS, PACE, STEP, TOGETHER, Arm
from jouletrace.experiments.counted import counted_replay
from jouletrace.experiments.pacing import whole_periods
from jouletrace.experiments.parts import Part
from jouletrace.experiments.pieces import pieces
from jouletrace.experiments.protocols import Replayable, VariableStep

_RAMPED = 0.7
"""Share of a ramp that must have run: its iterations are counted out before their time is known."""

_LEAST_S = 1e-7


@dataclass(frozen=True)
class Window:
    """A window that has just been run.

    Attributes:
        arm: What ran.
        block: Block of the plan; -1 before the first one.
        replays: Iterations.
        start_ns, end_ns: In nanoseconds since the Unix epoch.
        counted_mhz: Mean clock by the device's own cycle counters; None where they can't be read.
    """

    arm: Arm
    block: int
    replays: int
    start_ns: int
    end_ns: int
    counted_mhz: float | None = None

    @property
    def iteration_s(self) -> float:
        """Seconds of an iteration."""
        return (self.end_ns - self.start_ns) / 1e9 / self.replays

    def columns(self) -> dict[str, Any]:
        """Its row of the ``windows`` table, but for its order and what the sensors say."""
        return {
            "variant": self.arm.variant,
            "unit": self.arm.part,
            "multiplicity": float(self.arm.multiplicity),
            "block": self.block,
            "replays": self.replays,
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "counted_mhz": self.counted_mhz,
        }


class Bench:
    """Captures variants of a step and runs them.

    Args:
        step: The step, warmed up.
        sensor_s: Update period of the power sensor.

    Attributes:
        iteration_s: Seconds of an iteration of the step, once ``measure_iteration`` has run.
        refused: By kind and part, why the step can't do it.
        notes: Code and text of what a reader should know.
        began_ns, resumed_ns, ended_ns: Start of the first replay, of the last ramp, and end of the last replay.
    """

    def __init__(self, step: VariableStep, sensor_s: float) -> None:
        self.iteration_s = 0.0
        self.refused: dict[tuple[str, int], str] = {}
        self.notes: list[tuple[str, str]] = []
        self._refusals: list[tuple[int, tuple[str, str]]] = []
        self.began_ns = self.resumed_ns = self.ended_ns = 0
        self._step = step
        self._sensor_s = sensor_s
        self._paced: dict[tuple[int, int], VariableStep] = {}

    @property
    def spent_s(self) -> float:
        """Seconds from the first to the last replay."""
        return (self.ended_ns - self.began_ns) / 1e9

    def pieces(self, spin_ns: int) -> int:
        """Into how many waits a pause is split."""
        return pieces(self.iteration_s + spin_ns / 1e9)

    def measure_iteration(self, seconds: float) -> None:
        """Find out how long an iteration takes, from about so many seconds of them."""
        first, _ = counted_replay(self._step, 1)  # the first reading takes longer, which no window should wait for
        self.began_ns = first.start_ns
        once = self.run(self._step, 1)
        self.iteration_s = self.run(self._step, max(1, round(seconds / once)))

    def capture(self, arm: Arm, parts: Mapping[int, Part], stack: ExitStack) -> Replayable | None:
        """An arm made ready, freed with ``stack``; None where the step can't do it, which is noted once.

        The untouched step is the user's own; all others are captured afresh and checked.
        """
        part = parts.get(arm.part) if arm.part is not None else None
        if part is not None and (arm.kind, part.id) in self.refused:
            return None
        try:
            if arm.kind == PACE and arm.multiplicity:
                return self._trial(arm, stack)
            nothing = arm.kind == GAPS or (arm.kind == PACE and not arm.multiplicity)
            base = self.paced(arm.spin_ns, 1 if nothing else self.pieces(arm.spin_ns))
            if arm.kind == STEP:
                return base
            variant = base.empty() if nothing else base.variant(_changes(arm, parts))
            stack.callback(variant.close)
            variant.check()
        except JouletraceError as error:
            what = f"{part.op} in {part.module}" if part and part.module else part.op if part else "the step"
            note = ("variant_refused", f"{arm.variant}, {what}: {error}")
            self.notes.append(note)
            if part is not None:
                self.refused[arm.kind, part.id] = str(error)
                self._refusals.append((part.id, note))
            return None
        return variant

    def forget(self, parts: Collection[int]) -> None:
        """Forget what these parts were refused: they are measured in another way."""
        self.refused = {key: text for key, text in self.refused.items() if key[1] not in parts}
        gone = [note for part, note in self._refusals if part in parts]
        self.notes = [note for note in self.notes if not any(note is other for other in gone)]

    def paced(self, spin_ns: int, split: int = 1) -> VariableStep:
        """The step with a pause in so many pieces, made once and kept until ``close``."""
        if not spin_ns:
            return self._step
        if (spin_ns, split) not in self._paced:
            self._paced[spin_ns, split] = self._step.paced(spin_ns / 1e9, split)
        return self._paced[spin_ns, split]

    def unpace(self, spin_ns: int, split: int) -> None:
        """Free a paced step that was only tried."""
        self._paced.pop((spin_ns, split)).close()

    def close(self) -> None:
        """Free the paced steps; the step itself is its owner's."""
        while self._paced:
            self._paced.popitem()[1].close()

    def run(self, variant: Replayable, n: int) -> float:
        """Run ``n`` iterations; returns seconds of one."""
        stretch = variant.replay(n)
        self.ended_ns = stretch.end_ns
        return max((stretch.end_ns - stretch.start_ns) / 1e9 / n, _LEAST_S)

    def window(self, variant: Replayable, arm: Arm, block: int, window_s: float, ramp_s: float) -> Window:
        """Ramp up, then run one window about as long as wanted."""
        iteration_s = self.iteration_s + arm.spin_ns / 1e9
        self.resumed_ns = 0
        ramped_s = 0.0
        while ramped_s < _RAMPED * ramp_s:
            n = max(1, math.ceil((ramp_s - ramped_s) / iteration_s))
            stretch = variant.replay(n)
            self.resumed_ns = self.resumed_ns or stretch.start_ns
            iteration_s = max((stretch.end_ns - stretch.start_ns) / 1e9 / n, _LEAST_S)
            ramped_s += n * iteration_s
        replays = whole_periods(iteration_s, window_s, self._sensor_s)
        stretch, counted_mhz = counted_replay(variant, replays, self._step)  # all variants run on one device
        self.ended_ns = stretch.end_ns
        return Window(arm, block, replays, stretch.start_ns, stretch.end_ns, counted_mhz)

    def _trial(self, arm: Arm, stack: ExitStack) -> Replayable:
        """The step with a pause that is only tried."""
        if not arm.spin_ns:
            return self._step
        paced = self._step.paced(arm.spin_ns / 1e9, self.pieces(arm.spin_ns))
        stack.callback(paced.close)
        return paced


def _changes(arm: Arm, parts: Mapping[int, Part]) -> dict[Any, int]:
    """What to hand to ``variant``."""
    changes: dict[Any, int] = {}
    for id in (arm.part, arm.partner if arm.kind == TOGETHER else None):
        if id is not None:
            changes |= parts[id].changes(arm.multiplicity)
    return changes
