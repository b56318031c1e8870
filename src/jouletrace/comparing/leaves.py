"""What the energy of a side consists of: leaves that are divided no further, with the errors that they share."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from jouletrace.analysis.analyse import analysed
from jouletrace.analysis.divided import added, beside, summed
from jouletrace.arrays import Floats
from jouletrace.comparing.source import Side, SourceRun
from jouletrace.errors import JouletraceError
from jouletrace.run import Estimate, Run
from jouletrace.run.division import Division, divisions_of
from jouletrace.run.parts import Part, Parts
from jouletrace.run.paths import Path, names_of
from jouletrace.run.recording_names import has_recording, of_equal_layers
from jouletrace.run.roles import format_of, role_of

FLOOR, WORK = "floor of the GPU", "work above the floor"
"""Names of the two leaves of a Run without kernels: what the GPU takes while it waits, and all above that."""

MOST_UNKNOWN = 0.1
"""Share of the time of kernels whose power may be unknown where they are compared."""

TIMES = ("iteration_time_s", "time_s")
"""Metrics of the time of an iteration, or of all that ran: the first that a side has counts."""

_PROCESS = re.compile(r" \(\d+\)(?=\.|$)")
"""The id of a process behind its name, as the module of what it launches begins."""

_FLOORS = ("power_idle_at_work_w", "baseline_context_idle_w")
_WORKS = ("energy_work_j", "energy_active_over_context_idle_j")


@dataclass(frozen=True, eq=False)
class Leaf:
    """Launches of one kind of kernel by one site of equal layers, or idle; its figures are of the work compared.

    Attributes:
        phase, module, op, shapes, kernel: Where it ran, and what; "" where it isn't known. Equal layers are ``*``.
        idle: True of what no kernel takes.
        count: Launches.
        seconds: Time.
        energy: In J, whether or not it is resolved; null where the power isn't known.
        division: Of which ``kind`` states the power; None where the leaf was measured by itself.
        kind: Number of its kind in the division.
    """

    phase: str = ""
    module: str = ""
    op: str = ""
    shapes: str = ""
    kernel: str = ""
    idle: bool = False
    count: float = 1.0
    seconds: float = 0.0
    energy: Estimate = field(default_factory=lambda: Estimate.null("not_resolved"))
    division: Division | None = None
    kind: int = 0

    @property
    def joules(self) -> float:
        """Energy in J; 0 where it isn't known."""
        return self.energy.value or 0.0

    @property
    def role(self) -> str:
        """Its role (``run.roles``)."""
        return role_of(self.kernel, self.op)

    @property
    def format(self) -> str:
        """Its number format; "" where unknown."""
        return format_of(self.kernel, self.shapes)


@dataclass(frozen=True)
class Leaves:
    """The leaves of a side, of the mean of its runs.

    Attributes:
        leaves: All of them.
        whole: Energy that they should add up to, J.
        time_half_s: Half-width of the time of an iteration, s.
        boards: Ids of the devices.
    """

    leaves: list[Leaf]
    whole: Estimate
    time_half_s: float
    boards: frozenset[str]

    def energy(self, leaves: Iterable[Leaf]) -> Estimate:
        """Energy of some leaves together, J, with the covariance of their powers."""
        seconds: dict[int, Floats] = {}
        divisions: dict[int, Division] = {}
        alone = defaultdict[float, list[Estimate]](list)
        for leaf in leaves:
            if leaf.energy.value is None:
                continue
            if leaf.division is None or leaf.division.powers is None:
                alone[round(leaf.joules / leaf.seconds, 6) if leaf.seconds else 0.0].append(leaf.energy)
                continue
            key = id(leaf.division)
            divisions[key] = leaf.division
            kinds = seconds.setdefault(key, np.zeros(len(leaf.division.powers.watts)))
            kinds[leaf.kind] += leaf.seconds
        rows = [added(some) for some in alone.values()]
        rows += [divisions[key].energy(np.append(kinds_s, 0.0), remainder=True) for key, kinds_s in seconds.items()]
        if not rows:
            return Estimate(0.0, 0.0, 0.0)
        return summed(rows, alike=True)


def leaves_of(side: Side, scale: float, *, kernels: bool = True) -> Leaves | None:
    """The leaves of a side, of its kernels or of what it takes with and without work; None where these aren't known.

    Args:
        side: The side.
        scale: By which its figures are multiplied.
        kernels: True for those of kernels.
    """
    leaves, wholes, time_half_s = list[Leaf](), [], 0.0
    weight = scale / side.count
    for source in side.sources:
        energy, time = (source.whole.get(metric) for metric in ("energy_total_j", _time_of(source.whole)))
        if energy.value is None or not time.value:
            return None
        if kernels:
            run = source.run if len(source.run.units) else side.run  # parts are of the first of several processes
            inside = list(_recorded(run, weight)) or list(_stated(run, weight))
        else:
            inside = _floor(source, energy, time, weight)
        if not inside or _unknown(inside) > MOST_UNKNOWN:
            return None
        leaves += inside
        wholes.append(energy.scaled(weight))
        time_half_s = max(time_half_s, (time.half_width or 0.0) * scale)
    return Leaves(leaves, summed(wholes), time_half_s, frozenset(side.boards))


def _time_of(whole: Part) -> str:
    return next((name for name in TIMES if whole.get(name).value), TIMES[-1])


def _recorded(run: Run, weight: float) -> Iterator[Leaf]:
    """The leaves of a Run with a recording of kernels; a Run of an older version is solved again."""
    if not len(run.divided):
        if not has_recording(run):
            return
        try:
            run = analysed(run)
        except JouletraceError:
            return
    divisions = divisions_of(run)
    counts = {row["id"]: row["count"] for row in run.units.to_pylist()}
    for division in (division.scaled(weight) for division in divisions):
        columns = [division.column(name) for name in ("unit", "kind", "seconds", "count")]
        spent = Counter[int]()
        for unit, own_s in zip(columns[0], columns[2], strict=True):
            spent[unit] += own_s
        for unit, kind, own_s, often, path in zip(*columns, division.path, strict=True):
            energy, powers = Estimate.null(division.reason), division.powers
            if powers is not None and kind is not None:
                energy = Estimate(own_s * float(powers.watts[kind]))
            # Runs of older versions state launches of units alone: one takes as long at each site
            launches = (counts.get(unit) or 1) * own_s / (spent[unit] or 1.0) if often is None else often
            leaf = replace(_at(path), count=launches * weight, seconds=own_s, energy=energy)
            yield leaf if kind is None else replace(leaf, division=division, kind=kind)
    for _, name, unit in beside(run, divisions):
        energy, time = (run.result(metric, unit) for metric in ("energy_total_j", "time_s"))
        yield Leaf(op=name, idle=True, seconds=(time.value or 0.0) * weight, energy=energy.scaled(weight))


def _unknown(leaves: Sequence[Leaf]) -> float:
    """Share of the time of kernels whose energy isn't known."""
    whole = sum(leaf.seconds for leaf in leaves if not leaf.idle)
    unknown = sum(leaf.seconds for leaf in leaves if not leaf.idle and leaf.energy.value is None)
    return unknown / whole if whole else 0.0


def _stated(run: Run, weight: float) -> Iterator[Leaf]:
    """The leaves of a Run that states its kernels, but holds neither their powers nor their recording."""
    for part in Parts(run).units("kernel"):
        energy, time = part.get("energy_total_j"), part.get("time_s").value or 0.0
        leaf, count = _at(part.path), (part.count or 1) * weight
        if energy.value is not None or leaf.kernel:
            yield replace(leaf, count=count, seconds=time * weight, energy=energy.scaled(weight))


def _at(path: Path) -> Leaf:
    """A leaf at a path, without figures."""
    names = names_of(path)
    module = _PROCESS.sub("", of_equal_layers(names["module"]))
    op = names["op"] or names["pool"]
    return Leaf(names["phase"], module, op, names["shapes"], names["kernel"], idle="idle" in names)


def _floor(source: SourceRun, energy: Estimate, time: Estimate, weight: float) -> list[Leaf]:
    """The two leaves of a Run without kernels: the power of a GPU that waits, all of the time, and what is above.

    There are none where that power wasn't measured.
    """
    parts = Parts(source.run)
    power = next((figure for name in _FLOORS if (figure := parts.get(name)).value is not None), None)
    seconds = (time.value or 0.0) * weight
    if power is None:
        return []
    floor = power.scaled(seconds)
    work = next((figure for name in _WORKS if (figure := parts.get(name)).value is not None), energy)
    above = (energy.value or 0.0) * weight - (floor.value or 0.0)
    half = (work.half_width or 0.0) * weight
    return [
        Leaf(op=FLOOR, seconds=seconds, energy=floor, idle=True),
        Leaf(op=WORK, seconds=seconds, energy=Estimate(above, above - half, above + half)),
    ]
