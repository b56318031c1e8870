"""Running an experiment on the parts of a step, window by window.

Nothing here measures: windows are handed out as they end, whoever records them fills in their
energies, and between rounds the experiment asks for what is known by then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pyarrow as pa

from jouletrace.energy.sampling_rate import SamplingRate
from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.experiments import allocate, plan
from jouletrace.experiments.arms import REFERENCE, REMOVE
from jouletrace.experiments.bench import Bench, Window
from jouletrace.experiments.budget import Budget
from jouletrace.experiments.levels import Levels, Observed
from jouletrace.experiments.parts import Part, make_parts, module_groups
from jouletrace.experiments.pauses import Pauses
from jouletrace.experiments.plan import Block, PlanSettings
from jouletrace.experiments.pooling import by_phase, pool_small
from jouletrace.experiments.protocols import VariableStep
from jouletrace.experiments.resolution import noise_of, tellable
from jouletrace.experiments.screening import screen

_LOOK_S = 0.3
"""For the time of an iteration: by its end the clock is up."""

_MOST_WINDOWS = (4, 2, 1)
"""Windows of an arm in a round, at most."""

_LEAST_GAP_NS, _MOST_GAP_NS = 50_000, 200_000
"""Pauses for launch alone: long against the launch of an empty graph, short against what is sought."""


class Experiment:
    """Which part of a step costs what.

    Iterate over ``windows()`` and record each window as it comes. If iteration is broken off, by
    Ctrl-C say, captures are freed and what has been recorded can be estimated as it is.

    Args:
        step: The step, warmed up.
        measured: Returns the ``windows`` table so far, with ``energy_j`` and ``clock_mhz`` of all windows
            handed out; called between rounds.
        settings: How to experiment.
        first_id: Id of the first part.
        sampling: Returns how the sensor samples, as far as readings so far tell; called before blocks run.

    Attributes:
        parts: The parts; final (small ones pooled) once blocks run.
        groups: Modules that are removed as a whole beside them.
        share: Rough share of the step's time of each part, by id.

    Raises:
        BadInputError: If the step has no units.
    """

    def __init__(
        self,
        step: VariableStep,
        measured: Callable[[], pa.Table],
        settings: PlanSettings | None = None,
        first_id: int = 1,
        sampling: Callable[[], SamplingRate | None] = lambda: None,
    ) -> None:
        self.settings = settings or PlanSettings()
        self._alone = make_parts(step.units(), first_id, together=self.settings.together)
        if not self._alone:
            raise BadInputError("the step has no operators to experiment on")
        self.parts = list(self._alone)
        self.groups: list[Part] = []
        self.share: dict[int, float] = {}
        self._bench = Bench(step, self.settings.sensor_s)
        self._pauses = Pauses(self._bench, self.settings, self.share)
        self._measured = measured
        self._sampling = sampling
        self._sampled: SamplingRate | None = None
        self._rng = np.random.default_rng(self.settings.seed)
        self._budget = Budget(self.settings)
        self._blocks = 0

    @property
    def pause_s(self) -> float:
        """Least pause that keeps the step below the power cap; 0 where none acts."""
        return self._pauses.least_s

    @property
    def refused(self) -> dict[tuple[str, int], str]:
        """By kind and part, why the step can't do it."""
        return self._bench.refused

    @property
    def notes(self) -> list[tuple[str, str]]:
        """Code and text of what a reader should know."""
        return [*self._bench.notes, *([self._pauses.note] if self._pauses.note else [])]

    @property
    def spent_s(self) -> float:
        """Seconds from the first to the last replay."""
        return self._bench.spent_s

    def windows(self) -> Iterator[Window]:
        """Run the experiment, one window at a time."""
        with ExitStack() as stack:
            stack.callback(self._bench.close)
            self._bench.measure_iteration(min(_LOOK_S, self.settings.budget_s / 20))
            yield from self._pauses.find(self._measured)
            self._budget.capped = self.pause_s > 0
            yield from self._screen()
            self._sampled = self._sampling()
            self._detune()
            if not self.settings.together:
                yield from self._keep_tellable()
                self._detune()
            self._choose_groups()
            for blocks in self._rounds():
                for block in blocks:
                    yield from self._run(block)

    def _detune(self) -> None:
        """Choose the pause against the sensor's beat, by the parts as they are now."""
        refused, rng = self.refused.keys(), np.random.default_rng(0)
        blocks = plan.opening(self.parts, self.share, None, refused, self.settings, rng)
        self._pauses.detune((arm for block in blocks for arm in block.order), self._sampled)
        if self._pauses.detuned_s:
            self.settings = replace(self.settings, window_s=self.settings.detuned_window_s)
            self._budget.settings = self.settings

    def _screen(self) -> Generator[Window, None, None]:
        """Roughly what share of the step's time each part is, at the highest clock where a cap acts."""
        parts = by_phase(self._alone, self._next_id()) if self.settings.phases else self._alone
        known = yield from screen(self._bench, parts, self.settings, self.pause_s)
        if any(part.members and (REMOVE, part.id) in self.refused for part in parts):
            text = "not every phase can be removed as a whole: operators were, one by one"
            self._bench.forget({part.id for part in parts})
            self._bench.notes.append(("phases_by_operator", text))
            known = yield from screen(self._bench, self._alone, self.settings, self.pause_s)
        self._alone, self._pauses.free_s = known.parts, known.free_s
        self.share.update(known.share)
        if known.capture_s is not None:
            self._budget.capture_s = known.capture_s
        self._pool(len(self._alone))

    def _keep_tellable(self) -> Generator[Window, None, None]:
        """Pool operators within their layers until there are no more parts than can be told apart."""
        noise = yield from noise_of(self._bench, self._measured, self.settings, self._pauses.detuned_s)
        if noise > 0:
            self._pool(tellable(noise, self._left_s, self.settings))

    def _pool(self, most: int) -> bool:
        """Pool what is too small, and more of it so that no more than ``most`` parts remain, if that can be.

        What can't be removed stays by itself, since a pool is removed as a whole, and so does what matters.

        Returns:
            Whether no more than that remain.
        """
        small = {
            id: share
            for id, share in self.share.items()
            if (REMOVE, id) not in self.refused and abs(share) < self.settings.matters
        }
        self.parts = pool_small(self._alone, small, self.settings.pool_below, most)
        for part in self.parts:
            shares = [self.share.get(member.id) for member in part.members]
            if shares and None not in shares:
                self.share[part.id] = math.fsum(share for share in shares if share is not None)
        return len(self.parts) <= most

    def _choose_groups(self) -> None:
        """Modules to hold the sums of parts against; phases as a whole have nothing to be held against."""
        # Pools take the ids from the first free one on, and there are fewer of them than parts.
        first = self._next_id() + len(self._alone)
        self.groups = module_groups(self._alone, self.share, self.settings.modules, first)

    def _next_id(self) -> int:
        return 1 + max(part.id for part in self._alone)

    def _rounds(self) -> Iterator[list[Block]]:
        """Blocks, round by round, each planned when the one before has been measured."""
        first = self._opening()
        yield first
        gaps = plan.gap_block(self._gap_pauses(), self._rng)
        ids = [part.id for part in self.parts]
        while True:
            observed = Observed.of(self._measured())
            levels = Levels(observed, observed.cost, self._sampled if observed.cost is observed.energy_j else None)
            wanting = allocate.needs(levels, ids, self.settings)
            blocks = self._next_blocks(levels, wanting, gaps)
            if not blocks:
                break
            yield blocks
        yield [gaps]

    def _next_blocks(self, levels: Levels, wanting: list[allocate.Need], last: Block) -> list[Block]:
        """A round for the neediest arms, with fewer windows of each if there isn't time for more."""
        both = (self._pauses.plain(), self._pauses.paced()) if self._pauses.capped else (self._pauses.plain(),)
        for most in _MOST_WINDOWS:
            wishes = allocate.next_wishes(levels, wanting, self.settings.hold, most)
            blocks = []
            for common in both:
                alike = [wish for wish in wishes if (wish[0].spin_ns > 0) == (common.reference.spin_ns > 0)]
                blocks += plan.in_blocks(alike, common, self.settings, self._rng, self._blocks)
            kept = self._budget.within(blocks, self._left_s - self._budget.seconds(last))
            if kept:
                return kept
        return []

    def _opening(self) -> list[Block]:
        """The first round, as much as fits the budget: first less of it, then more parts pooled until it does."""
        for scope, share in plan.SCOPES:
            blocks = self._scoped(scope)
            if self._budget.first_round_s(blocks) <= share * self._left_s:
                break
        else:
            blocks = self._opening_of_fewer(scope, share)
        self.groups = self._groups_of(scope)
        return blocks

    def _opening_of_fewer(self, scope: plan.Scope, share: float) -> list[Block]:
        """The first round with as many parts as there is time for."""
        fit, too_many = 0, len(self.parts)
        while too_many - fit > 1:
            most = (fit + too_many) // 2
            reached = self._pool(most)
            if not reached or self._budget.first_round_s(self._scoped(scope)) <= share * self._left_s:
                fit = most
            else:
                too_many = most
        self._pool(fit)
        blocks = self._scoped(scope)
        if self._budget.first_round_s(blocks) <= share * self._left_s:
            return blocks
        if not self._pauses.capped:
            return self._scoped(scope)
        self._bench.notes.append(("no_time_for_equal_clocks", "the time was too short for all parts at equal clocks"))
        return self._scoped(plan.LEAST)

    def _scoped(self, scope: plan.Scope) -> list[Block]:
        paced = (self._pauses.of, self._pauses.paced()) if self._pauses.capped else None
        groups = self._groups_of(scope)
        refused, plain = self.refused.keys(), (self._pauses.plain(), self._pauses.tuned)
        return plan.opening(self.parts, self.share, paced, refused, self.settings, self._rng, scope, groups, *plain)

    def _groups_of(self, scope: plan.Scope) -> list[Part]:
        """Those that a scope removes; a module that is one part as it is would be held against itself."""
        pools = [set(part.units) for part in self.parts if part.members]
        others = [group for group in self.groups if set(group.units) not in pools]
        return others[: plan.modules(scope, self.settings)]

    @property
    def _left_s(self) -> float:
        return self.settings.budget_s - self.spent_s

    def _gap_pauses(self) -> list[int]:
        """Two pauses for launch alone; none where the step can't be paced."""
        near = min(max(round(self._bench.iteration_s * 1e9 / 4), _LEAST_GAP_NS), _MOST_GAP_NS)
        try:
            self._bench.paced(near)
        except JouletraceError:
            return [0]
        return [near, 2 * near]

    def _run(self, block: Block) -> Iterator[Window]:
        """Capture what a block needs and run its windows."""
        number, self._blocks = self._blocks, self._blocks + 1
        ramp_s = plan.ramp(block, self.settings, self.pause_s > 0)
        began_s = self.spent_s
        parts = {part.id: part for part in (*self.parts, *self.groups)}
        with ExitStack() as stack:
            captured = {arm: self._bench.capture(arm, parts, stack) for arm in dict.fromkeys(block.order)}
            reference = captured[block.order[0]]
            if reference is not None and block.order[0].kind == REFERENCE:
                settle_s = plan.settle(block, self.settings, self.pause_s > 0)
                self._bench.run(reference, max(1, round(settle_s / (self._bench.iteration_s + block.spin_ns / 1e9))))
            for arm in block.order:
                variant = captured[arm]
                if variant is not None:
                    yield self._bench.window(variant, arm, number, self.settings.window_s, ramp_s)
        self._budget.ran(block, self.spent_s - began_s)
