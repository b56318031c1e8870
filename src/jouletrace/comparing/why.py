"""Why B takes another energy than A: the difference divided by what does the same on both sides.

The change of a group of launches is the sum of three terms with log-mean weights, exact and antisymmetric (Ang, Energy
Policy 33 (2005) 867, LMDI-I): L ln(n_B / n_A) + L ln(t_B / t_A) + L ln(P_B / P_A), where L = (E_B - E_A) /
ln(E_B / E_A), n is the number of launches, t the time of each and P the power.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, median
from typing import Any

from jouletrace.comparing.causes import COUNT, ON_BOTH, POWER, REST, TIME, TOGETHER, WAITING, WHOLE, Cause, Why
from jouletrace.comparing.leaves import TIMES, WORK, Leaf, Leaves, leaves_of
from jouletrace.comparing.matching import FUSED, GONE, IDLE, NEW, REPLACED, SAME, MatchedLeaves, match
from jouletrace.comparing.pairs import DIFFERENT, ComparedRow, Note
from jouletrace.comparing.source import Side
from jouletrace.comparing.spread import MOST_SCATTER, WAITS
from jouletrace.run import Estimate
from jouletrace.run.division import RESPONSE
from jouletrace.run.recording_names import has_recording
from jouletrace.stats.interval import Z95

MOST, LEAST = 3, 0.1
"""Causes that the first line names, and the share of the whole from which on one is named."""

UNLIKE = 0.4
"""Share of the joules that must do the same on both sides for the difference of two workloads to be divided: of unlike
ones on record it is at most 0.36, of a model and its compiled form 0.46 (docs/results/why-h100.md)."""

_ALPHA = 0.025
"""Probability that any of the rows is reported to differ where none does: the whole has the other half of 5 %."""

_OF_STEPS = 0.05
"""Relative difference of launches from which on one side made more iterations, and up to which kernels agree in it."""

_MANY = 0.4
"""Share of the whole that the largest causes must leave for all kernels together to be named instead, of whose changes
no larger share may be lost as they are summed."""


def why(
    a: Side, b: Side, rows: Mapping[str, ComparedRow], scale: tuple[float, float], gain: float, margin: float
) -> tuple[Why | None, list[Note]]:
    """The difference of two sides divided by its causes, and notes on what stands in the way or would show more.

    Args:
        a: One side.
        b: The other.
        rows: Those of the whole by metric, with their verdicts.
        scale: Factors by which the figures of each side are multiplied.
        gain: Relative error between the sensors of both sides.
        margin: Share of A below which no row counts as a difference.

    Returns:
        None in place of causes where a side has no energy to divide, and where hardly anything does the same on both.
    """
    energy, notes = rows.get("energy_total_j"), list[Note]()
    leaves_a, leaves_b = leaves_of(a, scale[0]), leaves_of(b, scale[1])
    kernels = leaves_a is not None and leaves_b is not None
    if not kernels:
        bare = [side for side, leaves in ((a, leaves_a), (b, leaves_b)) if leaves is None]
        recorded = [side for side in bare if all(has_recording(source.run) for source in side.sources)]
        for code, some in (("not_resolved", recorded), ("without_kernels", [x for x in bare if x not in recorded])):
            notes += [Note(code, (tuple(side.name for side in some),))] if some else []
        leaves_a, leaves_b = (leaves_of(side, by, kernels=False) for side, by in zip((a, b), scale, strict=True))
    if energy is None or leaves_a is None or leaves_b is None:
        return None, notes if energy is not None and energy.verdict in DIFFERENT else []
    groups = match(leaves_a.leaves, leaves_b.leaves)
    names = {source.run.workload.get("name") for side in (a, b) for source in side.sources}
    if len(names) > 1 and (alike := _alike(groups)) < UNLIKE:
        return None, [*notes, Note("unlike", (100 * alike, _in_common(groups)))]
    of_samples = scale[0] != scale[1] and a.run.kind != "program"  # what launches in a step are of may be compared
    alone = a.run.kind == "program" and min(a.count, b.count) == 1
    side = _Sides(leaves_a, leaves_b, gain, None if alone else _waiting_s(rows, leaves_a, leaves_b), of_samples)
    causes = [side.cause(group) for group in groups]
    work = _joined(side, ON_BOTH, [row for row in causes if row.how != IDLE], 1, 0.0) if kernels and alone else None
    causes.append(side.rest())
    least = margin * (leaves_a.whole.value or 0.0)
    causes = sorted((_judged(row, len(causes), least) for row in causes), key=lambda row: -abs(row.value))
    value, half = (leaves_b.whole.value or 0.0) - (leaves_a.whole.value or 0.0), energy.difference.half_width
    whole = Estimate(value) if half is None else Estimate(value, value - half, value + half)
    divided = Why(whole, leaves_a.whole.value or 0.0, tuple(causes), kernels=kernels, work=work)
    differs = energy.verdict in DIFFERENT
    if differs and abs(next(row.value for row in causes if row.how == REST)) > abs(value) / 2:
        return replace(divided, stated=True), [*notes, Note("most_in_no_part")]
    first = tuple(_first(side, causes, value, least, differs))
    stated = differs or bool(first)
    return replace(divided, first=first, stated=stated), notes if stated else []


def _waiting_s(rows: Mapping[str, ComparedRow], a: Leaves, b: Leaves) -> float:
    """Half-width of the difference of both times in s, which is that of waiting: kernels take the same in every run."""
    half = next((row.difference.half_width for name in TIMES if (row := rows.get(name)) is not None), None)
    return math.hypot(a.time_half_s, b.time_half_s) if half is None else half


@dataclass(frozen=True)
class _Sides:
    """Both sides with what their errors share."""

    a: Leaves
    b: Leaves
    gain: float
    waiting_s: float | None  # half-width of the difference of times; None where each wait is judged by itself
    each: bool  # figures of a sample: launches are of other things

    def cause(self, group: MatchedLeaves) -> Cause:
        """The cause of a group, not judged."""
        ea, eb = self.a.energy(group.a), self.b.energy(group.b)
        value = (eb.value or 0.0) - (ea.value or 0.0)
        shared = 0.0
        if self.a.boards == self.b.boards and group.how == SAME:  # the response errs alike on both sides
            shared = 2 * (Z95**2) * ea.budget.get(RESPONSE, 0.0) * eb.budget.get(RESPONSE, 0.0)
        squares = sum((energy.half_width or 0.0) ** 2 for energy in (ea, eb))
        most = 0.0
        if group.how == IDLE:
            watts = max(_watts(group.a), _watts(group.b))
            scatter = (self.waiting_s or 0.0) * watts
            if self.waiting_s is None:
                most = WAITS * watts * max(sum(leaf.seconds for leaf in some) for some in (group.a, group.b))
        else:
            scatter = Z95 * MOST_SCATTER * math.hypot(ea.value or 0.0, eb.value or 0.0)
        half = math.sqrt(max(squares - shared, 0.0) + scatter**2 + (self.gain * (ea.value or 0.0)) ** 2)
        terms = _terms(group, ea.value or 0.0, eb.value or 0.0, self.each)
        change = Estimate(value, value - half, value + half)
        return Cause(group.how, group.a, group.b, (ea, eb), change, terms, most=most)

    def rest(self) -> Cause:
        """What the rows leave of the whole: windows that were measured without kernels, less what was recorded."""
        rest, half = [], 0.0
        for side, leaves in ((self.a, self.a.leaves), (self.b, self.b.leaves)):
            every = side.energy(leaves)
            value = (side.whole.value or 0.0) - sum(leaf.joules for leaf in leaves)
            wide = math.hypot(side.whole.half_width or 0.0, every.half_width or 0.0)
            rest.append(Estimate(value, value - wide, value + wide))
            half = math.hypot(half, wide)
        change = (rest[1].value or 0.0) - (rest[0].value or 0.0)
        return Cause(REST, (), (), (rest[0], rest[1]), Estimate(change, change - half, change + half), {WHOLE: change})


def _terms(group: MatchedLeaves, ea: float, eb: float, each: bool) -> dict[str, float]:
    """Terms of the change of a group; one where these aren't of one thing on both sides."""
    (na, sa), (nb, sb) = ((sum(x.count for x in s), sum(x.seconds for x in s)) for s in (group.a, group.b))
    of_work = any(leaf.op == WORK for leaf in group.a)
    if group.how == IDLE and min(sa, sb) <= 0:
        return {WAITING: eb - ea}
    if group.how in (NEW, GONE, REPLACED) or of_work or min(ea, eb, sa, sb, na, nb) <= 0:
        return {WHOLE: eb - ea}
    if each or group.how in (IDLE, FUSED):
        na = nb = 1.0
    mean = ea if math.isclose(ea, eb, rel_tol=1e-12) else (eb - ea) / math.log(eb / ea)
    long, power = mean * math.log(sb / nb / (sa / na)), mean * math.log(eb / sb / (ea / sa))
    if group.how == IDLE:
        return {WAITING: long, POWER: power}
    return {COUNT: mean * math.log(nb / na), TIME: long, POWER: power}


def _watts(leaves: Sequence[Leaf]) -> float:
    seconds = sum(leaf.seconds for leaf in leaves)
    return sum(leaf.joules for leaf in leaves) / seconds if seconds else 0.0


def _judged(row: Cause, rows: int, margin: float) -> Cause:
    """A cause with its interval over all rows together; certain if it is beyond that and beyond the margin."""
    half = NormalDist().inv_cdf(1 - _ALPHA / 2 / rows) / Z95 * (row.change.half_width or 0.0) + row.most
    change = Estimate(row.value, row.value - half, row.value + half)
    return replace(row, change=change, certain=abs(row.value) > max(half, margin))


def _first(side: _Sides, rows: Sequence[Cause], whole: float, margin: float, with_energy: bool) -> list[Cause]:
    """The causes to name first: rows of one role are one, as a sum may be certain where none of its rows is.

    So are those on one side alone: they may be on the other under another name.
    """
    many = [row for row in rows if len(row.terms) == 3]
    if not side.each and _equally_often(many):
        others = _first(side, [row for row in rows if len(row.terms) != 3], whole, margin, with_energy)
        return [cause for cause in (_joined(side, ON_BOTH, many, 1, margin), *others) if cause.certain][:MOST]
    by = defaultdict[Any, list[Cause]](list)
    for row in rows:
        if row.how != REST:
            by[row if row.how in (IDLE, REPLACED, FUSED) else row.role].append(row)
    joined = [_joined(side, TOGETHER, some, len(by), margin) for some in by.values()]
    joined.sort(key=lambda row: -abs(row.value))
    least = LEAST * abs(whole) if with_energy else 0.0
    shown = [row for row in joined if row.certain and abs(row.value) > least][:MOST]
    named, all_j = sum(row.value for row in shown), sum(abs(row.value) for row in many)
    if shown and named * whole < (1 - _MANY) * whole**2 and len(many) > MOST:
        every = _joined(side, ON_BOTH, many, len(by), margin)
        if every.certain and abs(every.value) > (1 - _MANY) * all_j and abs(whole - every.value) < abs(whole - named):
            return [every]
    return shown


def _equally_often(rows: Sequence[Cause]) -> bool:
    """True if nearly all that runs on both sides was launched more or less often by one factor, as in more steps."""
    if len(rows) < 2:
        return False
    factors = [math.log(sum(x.count for x in row.b) / sum(x.count for x in row.a)) for row in rows]
    middle = median(factors)
    apart = sum(abs(row.value) for row, factor in zip(rows, factors, strict=True) if abs(factor - middle) > _OF_STEPS)
    return abs(middle) > _OF_STEPS and apart < _OF_STEPS * sum(abs(row.value) for row in rows)


def _joined(side: _Sides, how: str, some: Sequence[Cause], rows: int, margin: float) -> Cause:
    """Several causes as one, with the joint error of their powers; its terms are the sums of theirs."""
    if len(some) == 1:
        return some[0]
    hows = {row.how for row in some}
    how = some[0].how if how == TOGETHER and len(hows) == 1 else how
    group = MatchedLeaves(how, [leaf for row in some for leaf in row.a], [leaf for row in some for leaf in row.b])
    names = dict.fromkeys(name for row in some for name in row.terms)
    terms = {name: sum(row.terms.get(name, 0.0) for row in some) for name in names}
    terms = {WHOLE: sum(terms.values())} if WHOLE in terms else terms
    return _judged(replace(side.cause(group), terms=terms), rows, margin)


def _alike(groups: Sequence[MatchedLeaves]) -> float:
    """Share of the joules of kernels that do the same on both sides, or that modules of one name launch.

    Of each group it is the smaller of its two shares, of modules that of both sides.
    """
    work = [group for group in groups if group.how != IDLE]
    sides = [leaf for group in work for leaf in group.a], [leaf for group in work for leaf in group.b]
    of_a, of_b = (sum(leaf.joules for leaf in side) for side in sides)
    if of_a <= 0 or of_b <= 0:
        return 1.0

    def shared(a: Iterable[Leaf], b: Iterable[Leaf]) -> float:
        return max(min(sum(x.joules for x in a) / of_a, sum(x.joules for x in b) / of_b), 0.0)

    modules = {leaf.module for leaf in sides[0]} & {leaf.module for leaf in sides[1]} - {""}
    by_module = shared(*([leaf for leaf in side if leaf.module in modules] for side in sides))
    same = (group for group in work if group.how not in (REPLACED, NEW, GONE))
    return max(by_module, sum(shared(group.a, group.b) for group in same))


def _in_common(groups: Sequence[MatchedLeaves]) -> tuple[str, ...]:
    """The roles that both sides have, the one with the most energy first."""
    sides = [leaf for group in groups for leaf in group.a], [leaf for group in groups for leaf in group.b]
    both = {leaf.role for leaf in sides[0] if not leaf.idle} & {leaf.role for leaf in sides[1] if not leaf.idle}
    energy = {role: sum(leaf.joules for side in sides for leaf in side if leaf.role == role) for role in both}
    return tuple(sorted(both, key=lambda role: (-energy[role], role)))
