"""Figures of operators, kernels, layers and phases from a traced recording and the power record beside it.

Time comes from the trace. Power comes from one regression of the readings on the timeline (``attribution``); energies
are power times time. All are per untouched iteration: repeats of an operator serve only to determine its power.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.conditions import capped
from jouletrace.analysis.figures import Figures, Sources
from jouletrace.analysis.power import no_power_reason
from jouletrace.analysis.recording import IDLE_NAME, OUTSIDE, RECORDING, SAMPLE_RATE
from jouletrace.analysis.regressed import fitted
from jouletrace.analysis.waveform import table_of
from jouletrace.attribution.activity import LONG_S, Activity, Kind, activity_of
from jouletrace.attribution.rows import METHOD, Contrasts, Row, by_operator, rows
from jouletrace.errors import BadInputError
from jouletrace.run import MODEL_UNIT, Estimate, Run, tables
from jouletrace.run.channels import POWER
from jouletrace.run.tables import UnitRow
from jouletrace.sensor.observer import Sampled
from jouletrace.stats.interval import Z95, difference, ratio

ORDER = ("data", "forward", "backward", "optimizer", "prefill", "decode")
"""Of phases, in which they run."""


_BY_OTHERS = "called by others"

TRACING = "tracing"
"""A source of uncertainty."""

TRACED = 0.006
"""Relative standard deviation of what tracing changes in the energy of kernels: root mean square of parts / whole - 1
beyond what the readings leave open, in 22 recordings below the power cap of four H200s (mean +0.5 %, scatter 0.4 %)."""


UNSEEN = 0.01
"""Share of a row's time in kernels whose power isn't known, above which it has no energy."""

Array = NDArray[np.float64]
Kinds = defaultdict[int, float]
"""Seconds of each kind of kernel in an iteration."""

Key = TypeVar("Key")


class Part(NamedTuple):
    """Kernels of one unit and kind that one site launches, in an untouched iteration.

    ``unit`` and ``site`` are ids of units, ``site`` -1 where it is unknown; ``kind`` is an index into the kinds.
    """

    unit: int
    site: int
    kind: int
    seconds: float


def _no_kinds() -> Kinds:
    return defaultdict(float)


def parts_of(run: Run, figures: Figures) -> Parts:
    """The recording of a Run, with its powers determined; ``add`` adds the resulting figures.

    Raises:
        BadInputError: If the recording isn't whole.
    """
    try:
        return Parts(run, figures)
    except KeyError as error:
        raise BadInputError(f"the recording in this Run can't be used: it lacks {error}") from None


@dataclass
class _Layer:
    """Seconds of each kind of kernel in a module, or in one of its calls."""

    total: Kinds = field(default_factory=_no_kinds)  # all that runs in it
    own: Kinds = field(default_factory=_no_kinds)  # what it calls itself
    calls: dict[str, _Layer] = field(default_factory=dict)  # its calls, by what they are called
    numbers: set[str] = field(default_factory=set)  # of its calls in an iteration

    def add(self, part: Part, number: str | None, *, own: bool) -> None:
        """Add what runs at a site, in the call of this number."""
        self.total[part.kind] += part.seconds
        if own:
            self.own[part.kind] += part.seconds
        if number is not None:
            self.numbers.add(number)


class Parts:
    """The recording of a Run, and the resulting figures.

    Attributes:
        whole, whole_s: Energy and time of which the parts are; None for those of an iteration.
        contrasts: Of the fit, a row for each kind of kernel; None if the readings say nothing of them, with ``reason``.
    """

    def __init__(self, run: Run, figures: Figures) -> None:
        self.run, self.figures = run, figures
        self.about = run.workload[RECORDING]
        self.whole: Estimate | None = None
        self.whole_s: float | None = None
        raw = ("op", "kernel", "site")
        stored: list[UnitRow] = run.units.to_pylist()
        self.units: list[UnitRow] = [
            {**row, "parent": MODEL_UNIT}
            if row["level"] == "op" or (row["level"] == "kernel" and not row["op"])
            else row
            for row in stored
            if row["level"] in raw and (row["op"] or row["level"] != "op" or row["name"] == IDLE_NAME)  # no pools
        ]
        self.by_id = {row["id"]: row for row in self.units}
        self.contrasts: Contrasts | None = None
        self.pools: list[tuple[str, ...]] = []  # kinds of operators whose rows are one, as their names
        self._read_activity()
        self.reason = self._regress()

    def add(self) -> None:
        """Add operators, kernels, phases, layers and checks; the model's own figures are there already."""
        self.figures.keep(self.units)
        self.factor, self.factor_half = self._factor()
        self.add_ops()
        self.add_kernels()
        self.add_phases()
        self.add_layers()
        self.add_idle()
        self.add_checks()
        if self.contrasts is not None:
            self.run.waveform = table_of(self.run, self.contrasts.fit, self.about["iterations"])

    @property
    def iteration_s(self) -> Estimate:
        """Time of an iteration of the whole, untraced where that was measured."""
        return self.figures.get(MODEL_UNIT, "iteration_time_s")

    def _read_activity(self) -> None:
        """Kernels, their kinds, and seconds of each (kernel unit, site) in an untouched iteration."""
        activity = self.run.activity
        self.start, self.end = activity["start_ns"].to_numpy(), activity["end_ns"].to_numpy()
        unit = activity["unit"].to_numpy()
        site = pc.fill_null(activity["site"], -1).to_numpy()
        own = ~pc.fill_null(activity["copy"], False).to_numpy(zero_copy_only=False)
        names: dict[Kind, int] = {}
        kind_of = {}
        for row in self.units:
            if row["level"] == "kernel":
                operator = f"{row['op']} {row['shapes'] or ''}".strip() if row["op"] else ""
                kind_of[row["id"]] = names.setdefault(Kind(row["name"], operator), len(names))
        ids, where = tables.distinct(unit)
        self.kind = np.array([kind_of[int(one)] for one in ids], np.int64)[where]
        length = (self.end - self.start) / 1e9
        self.kinds = tuple(names)
        if self.about.get("variants"):  # an import has none: what isn't its own there ran outside of iterations
            self._part_repeats(own, length)
        self.total_s = np.bincount(self.kind, length, len(self.kinds))
        width = int(site.max(initial=0)) + 2
        pairs, place = tables.distinct(unit[own] * width + site[own] + 1)
        seconds = np.bincount(place, length[own]) / self.about["iterations"]
        found = [
            Part(int(pair // width), int(pair % width) - 1, kind_of[int(pair // width)], float(s))
            for pair, s in zip(pairs, seconds, strict=True)
        ]
        if "seconds" in self.about:  # of a whole program, of which a part is analysed
            stated = self.about["seconds"]
            found = [Part(int(unit), int(site), kind_of[int(unit)], float(s)) for unit, site, s in stated]
        self.parts = sorted(found, key=lambda part: (part.site < 0, part.site, part.unit))

    def _part_repeats(self, own: NDArray[np.bool_], length: Array) -> None:
        """Copies of short kernels are kinds of their own: they take most of the time in which these run."""
        mean = np.bincount(self.kind, length) / np.maximum(np.bincount(self.kind), 1)
        repeated = ~own & (mean <= LONG_S)[self.kind]
        some, place = tables.distinct(self.kind[repeated])
        self.kind[repeated] = len(self.kinds) + place
        self.kinds += tuple(replace(self.kinds[kind], repeat=True) for kind in some)

    def _regress(self) -> str:
        """Determine the powers of kinds; returns why there are none, "" if there are."""
        if self.run.channel(self.device, POWER) is None:
            return no_power_reason(self.run, self.device)
        try:
            rest = self.figures.get(MODEL_UNIT, "baseline_context_idle_w")
            fit, doubt = fitted(self.run, self.device, self._activity, rest)
        except BadInputError as error:
            doubt = str(error)
        else:
            self.run.warnings = [warning for warning in self.run.warnings if warning.code != "not_attributed"]
        if doubt:
            self.run.warn("not_attributed", f"no energies of kernels: {doubt}")
            return "not_attributed"
        index = {kind: str(i) for i, kind in enumerate(self.kinds) if not kind.repeat}
        operators = {kind.operator for kind in self.kinds}
        table = rows(fit, by_operator, lambda name: name.split(" ", maxsplit=1)[0] if name in operators else "")
        self.pools = [row.names for row in table if row.energy.value is not None and row.pooled]
        self.contrasts = Contrasts(fit, lambda kind: index[kind])
        self.place = {i: self.contrasts.names.index(name) for i, name in enumerate(index.values())}
        return ""

    @property
    def device(self) -> str:
        """Whose power record the readings are of."""
        first = self.run.devices[0].id if self.run.devices else ""
        return str(self.about.get("device") or first)

    def _activity(self, origin_ns: int) -> Activity:
        return activity_of(self.start, self.end, self.kind, self.kinds, origin_ns)

    def _factor(self) -> tuple[float, float]:
        """By what the energies of parts are scaled, and its 95 % half-width.

        Tracing puts pauses between kernels. At a power cap the clock then rises, and with it the energy of each
        kernel, by a factor common to all as far as the column for the clock is right (``attribution.fit``). The
        factor is that of the active energy of untraced iterations; half of what it is off by is in the intervals.
        Below the cap energies aren't scaled, and the intervals contain ``TRACED``.
        """
        whole = self.figures.get(MODEL_UNIT, "energy_total_j")
        if self.contrasts is None or whole.value is None or whole.half_width is None or "whole" in self.about:
            return 1.0, 0.0
        if not capped(self.run, self.device, self.about["start_ns"], self.about["end_ns"]):
            return 1.0, Z95 * TRACED
        parts = self._drawn(_sum(self.parts)).energy.value
        idle = self._drawn(_no_kinds(), self.idle_s).energy.value
        assert parts is not None
        assert idle is not None
        factor = (whole.value - idle) / parts
        return factor, float(np.hypot(whole.half_width / parts, (1 - factor) / 2))

    def _scaled(self, energy: Estimate) -> Estimate:
        """An energy of kernels at the clock that they have untraced."""
        if energy.value is None or energy.half_width is None:
            return energy
        value = energy.value * self.factor
        half = float(np.hypot(energy.half_width * self.factor, energy.value * self.factor_half))
        return replace(energy, value=value, low=value - half, high=value + half)

    def add_ops(self) -> None:
        """Operators, each on its shapes in its module; what can't be distinguished is one row around its members."""
        inside = _sums(self.parts, lambda part: self._operator(part.unit))
        self._pool(inside)
        for unit, kinds in inside.items():
            row = self.by_id[unit]
            known = not row["op"] or row["parent"] == MODEL_UNIT
            self._add(unit, kinds, reason="" if known and unit not in self.pooled else "pooled")

    def _operator(self, unit: int) -> int:
        """The operator of a kernel, or the kernel itself where it has none."""
        row = self.by_id[unit]
        if not row["op"]:
            return unit
        return MODEL_UNIT if row["parent"] is None else row["parent"]

    def _pool(self, inside: dict[int, Kinds]) -> None:
        """Units around parts whose energies are known together alone."""
        self.pooled: set[int] = set()
        next_id = self._next()
        for names in self.pools:
            members = [u for u, kinds in inside.items() if any(by_operator(self.kinds[k]) in names for k in kinds)]
            self.pooled.update(members)
            together = _no_kinds()
            for unit in members:
                self.by_id[unit]["parent"] = next_id
                for kind, seconds in inside[unit].items():
                    together[kind] += seconds
            what = "operators" if any(self.by_id[unit]["op"] for unit in members) else "kernels"
            self.figures.unit(next_id, "op", f"{len(members)} {what} together", MODEL_UNIT, count=len(members))
            self._add(next_id, together)
            next_id += 1

    def add_kernels(self) -> None:
        """Kernels under operators."""
        under = (part for part in self.parts if self.by_id[part.unit]["op"])
        for unit, kinds in _sums(under, lambda part: part.unit).items():
            self._add(unit, kinds, reason="pooled" if self.by_id[unit]["parent"] in self.pooled else "")

    def add_phases(self) -> None:
        """Phases, where an iteration has more than one; those of a generation were measured as such."""
        phased = (part for part in self.parts if self.by_id[part.unit]["phase"] is not None)
        inside = _sums(phased, lambda part: str(self.by_id[part.unit]["phase"]))
        if len(inside) < 2 or "generation" in self.run.workload:
            return
        for phase in sorted(inside, key=lambda phase: ORDER.index(phase) if phase in ORDER else len(ORDER)):
            self._add(self.figures.unit(self._next(), "phase", phase, MODEL_UNIT, count=1), inside[phase])

    def add_layers(self) -> None:
        """Modules with all that runs in them, and what they call themselves where they contain others."""
        layers: dict[str, _Layer] = {}
        for part in self.parts:
            if part.site < 0:
                continue
            row = self.by_id[part.site]
            path = _path(row["module"] or OUTSIDE)
            numbers = [word for word in (row["call"] or "").split(".") if word]
            for depth, name in enumerate(path):
                own, layer = depth == len(path) - 1, layers.setdefault(name, _Layer())
                number = numbers[depth] if len(numbers) == len(path) else None
                layer.add(part, number, own=own)
                if number is not None:
                    called = self._call(number, row["phase"])
                    layer.calls.setdefault(called, _Layer()).add(part, number, own=own)
        ids: dict[str, int] = {}
        for name, layer in layers.items():
            above = ids.get(name.rpartition(".")[0], MODEL_UNIT)
            count = max(1, len(layer.numbers - {"0"}))
            ids[name] = self.figures.unit(self._next(), "layer", name, above, module=name, count=count)
            contains = layer.own != layer.total
            self._add_layer(ids[name], layer, contains)
            # of very many calls, a row for each would be of no use
            for label, call in layer.calls.items() if 1 < len(layer.calls) <= 16 else ():
                unit = self.figures.unit(
                    self._next(), "layer", f"{name} ({label})", ids[name], module=name, count=len(call.numbers)
                )
                self._add_layer(unit, call, contains)

    def _add_layer(self, unit: int, layer: _Layer, contains: bool) -> None:
        self._add(unit, layer.total)
        if contains and layer.own:
            self._add(unit, layer.own, own=True)

    def _call(self, number: str, phase: str | None) -> str:
        if "generation" in self.run.workload:
            return phase or ""
        return f"call {number}" if int(number) else _BY_OTHERS

    def add_idle(self) -> None:
        """The time of an iteration in which no kernel runs, and what the GPU draws then."""
        unit = next((row["id"] for row in self.units if row["level"] == "op" and row["name"] == IDLE_NAME), None)
        if unit is None:
            unit = self.figures.unit(self._next(), "op", IDLE_NAME, MODEL_UNIT, count=1)
        self._add(unit, _no_kinds(), idle_s=self.idle_s)

    @cached_property
    def busy_s(self) -> float:
        """Seconds of an untouched iteration in which at least one kernel runs."""
        order = np.argsort(self.start, kind="stable")
        start, end = self.start[order], np.maximum.accumulate(self.end[order])
        union = float((end - np.maximum(start, np.append(start[:1], end[:-1]))).clip(min=0).sum())
        return sum(part.seconds for part in self.parts) * union / max(float((self.end - self.start).sum()), 1.0)

    @property
    def idle_s(self) -> float:
        """Seconds of an untraced iteration in which no kernel runs: tracing delays the host, not the GPU."""
        whole_s = self.iteration_s.value or 0.0 if self.whole_s is None else self.whole_s
        return max(whole_s - self.busy_s, 0.0)

    def add_checks(self) -> None:
        """How the parts make the whole that was measured without tracing, and how well the sensor is understood."""
        whole = self.whole or self.figures.get(MODEL_UNIT, "energy_total_j")
        flags = ["traced_whole"] if "whole" in self.about else ["traced_at_cap"] if self.factor != 1.0 else []
        if self.contrasts is None:
            for name in ("closure_layers", "closure_kernels"):
                self.figures.add(MODEL_UNIT, name, Estimate.null(self.reason, METHOD))
            return
        sites = any(part.site >= 0 for part in self.parts)
        for name, least in (("closure_layers", 0), ("closure_kernels", -1)):
            if least == 0 and not sites:
                continue
            kinds = _sum(part for part in self.parts if part.site >= least)
            parts = self._drawn(kinds, self.idle_s).energy
            closure = ratio(parts, whole, METHOD) if whole.value else Estimate.null("not_measured", METHOD)
            if self.factor == 1.0:
                closure = self._scaled(closure)
            self.figures.add(MODEL_UNIT, name, closure, flags)
        fit = self.contrasts.fit
        self.figures.add(MODEL_UNIT, "residual_w", Estimate(fit.residual_rms_w, None, None, len(fit.watts), METHOD))
        if isinstance(fit.observer, Sampled):
            rate = fit.observer.track.rate_hz
            self.figures.add(MODEL_UNIT, SAMPLE_RATE, Estimate(rate, None, None, len(fit.watts), METHOD))

    def _next(self) -> int:
        return self.figures.last_unit() + 1

    def _amounts(self, kinds: Kinds, idle_s: float = 0.0) -> Array:
        """How much of each row of the fit some seconds of kinds are: of a kind the share of all that it ran for."""
        assert self.contrasts is not None
        idle = self.contrasts.seconds[-1]
        amounts = np.zeros(len(self.contrasts.names))
        for kind, some in kinds.items():
            if self.total_s[kind] > 0:
                amounts[self.place[kind]] += some / self.total_s[kind]
        amounts[-1] = idle_s / idle if idle > 0 else 0.0
        return amounts

    def _drawn(self, kinds: Kinds, idle_s: float = 0.0) -> Row:
        assert self.contrasts is not None
        return self.contrasts.mixture(self._amounts(kinds, idle_s))

    def _sources(self, kinds: Kinds, idle_s: float) -> Sources:
        """What the interval of some seconds of kinds consists of."""
        assert self.contrasts is not None
        amounts = self._amounts(kinds, idle_s)
        found = self.contrasts.sources(amounts)
        if idle_s:
            return found
        energy = self.contrasts.mixture(amounts).energy.value or 0.0
        return {name: u * self.factor for name, u in found.items()} | {TRACING: abs(energy) * self.factor_half / Z95}

    def _add(self, unit: int, kinds: Kinds, *, reason: str = "", own: bool = False, idle_s: float = 0.0) -> None:
        """Add the figures of a unit that runs so many seconds of each kind in an iteration."""
        seconds = sum(kinds.values()) + idle_s
        unseen = sum(some for kind, some in kinds.items() if not self.total_s[kind])
        if unseen > UNSEEN * seconds:  # it ran outside of the part of a program that is analysed
            reason = reason or "not_resolved"
        time = Estimate(seconds, None, None, self.about["iterations"], "trace")
        row, flags, reason = None, [], reason or self.reason
        if self.contrasts is not None and not reason:
            amounts = self._amounts(kinds, idle_s)
            row = self.contrasts.mixture(amounts)
            known = self.contrasts.determines(amounts) and (not idle_s or amounts[-1] > 0)
            reason = "" if known else "not_resolved"
            # while several kernels run, they share the energy equally
            flags = ["overlapped"] if row.overlapped > 0.05 else []
        energy = Estimate.null(reason, METHOD)
        if row is not None and not reason:
            energy = row.energy if idle_s else self._scaled(row.energy)
        power = energy.scaled(1 / seconds) if seconds > 0 else Estimate.null(reason or "no_time", METHOD)
        if energy.value is not None and not own:
            self.figures.sources[unit] = partial(self._sources, kinds, idle_s)
        if own:
            self.figures.add(unit, "energy_own_j", energy, flags)
            self.figures.add(unit, "time_own_s", time)
            return
        self.figures.add(unit, "time_s", time)
        self.figures.add(unit, "energy_total_j", energy, flags)
        baseline = self.figures.get(MODEL_UNIT, "baseline_context_idle_w")
        if row is not None and energy.value is not None and baseline.value is not None:
            idle = baseline.scaled(row.seconds)
            self.figures.add(unit, "energy_active_j", difference(energy, idle, METHOD), flags)
        self.figures.add(unit, "power_w", power, flags)
        whole = self.figures.get(MODEL_UNIT, "energy_total_j").value
        if energy.value is not None and whole:
            self.figures.add(unit, "share", energy.scaled(1 / whole), flags)
        elif self.reason and self.iteration_s.value:
            self.figures.add(unit, "share", time.scaled(1 / self.iteration_s.value), flags)


def _sums(parts: Iterable[Part], key: Callable[[Part], Key]) -> dict[Key, Kinds]:
    """Seconds of each kind, by a key of parts."""
    found: defaultdict[Key, Kinds] = defaultdict(_no_kinds)
    for part in parts:
        found[key(part)][part.kind] += part.seconds
    return found


def _sum(parts: Iterable[Part]) -> Kinds:
    """Seconds of each kind in all parts."""
    return _sums(parts, lambda _: None).get(None, _no_kinds())


def _path(name: str) -> list[str]:
    """A module and all around it, outer ones first."""
    if name == OUTSIDE:
        return [name]
    words = name.split(".")
    return [".".join(words[:depth]) for depth in range(1, len(words) + 1)]
