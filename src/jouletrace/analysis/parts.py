"""Figures of operators, kernels, layers and phases from a traced recording and the power record beside it.

Time comes from the trace. Power comes from one regression of the readings on the timeline (``attribution``); energies
are power times time. All are per untouched iteration: repeats of an operator serve only to determine its power.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.conditions import capped
from jouletrace.analysis.figures import Figures
from jouletrace.analysis.kernel_powers import KernelPowers, powers_of
from jouletrace.analysis.kernel_times import IDLE, Kinds, Launched, sum_of, sums, times_of
from jouletrace.analysis.layers import Layer, layers_of
from jouletrace.analysis.pools import by_operator
from jouletrace.analysis.waveform import table_of
from jouletrace.attribution.observer import Sampled
from jouletrace.errors import BadInputError
from jouletrace.run import MODEL_UNIT, Estimate, Run, tables
from jouletrace.run.division import METHOD, Division, tables_of
from jouletrace.run.estimate import widened
from jouletrace.run.forms import Recording
from jouletrace.run.recording_names import IDLE_NAME, SAMPLE_RATE
from jouletrace.stats.interval import Z95, difference, ratio

ORDER = ("data", "forward", "backward", "optimizer", "prefill", "decode")
"""Of phases, in which they run."""

TRACED = 0.006
"""Relative standard deviation of what tracing changes in the energy of kernels: root mean square of parts / whole - 1
beyond what the readings leave open, in 22 recordings below the power cap of four H200s (mean +0.5 %, scatter 0.4 %)."""


def recorded_of(run: Run, figures: Figures, about: Recording | None = None) -> Recorded:
    """The recording of a Run, or that of one device, with its powers determined; ``add`` adds the resulting figures.

    Raises:
        BadInputError: If the recording isn't whole.
    """
    try:
        return Recorded(run, figures, about)
    except KeyError as error:
        raise BadInputError(f"the recording in this Run can't be used: it lacks {error}") from None


class Recorded:
    """The recording of a Run, or that of one device, and the resulting figures.

    Attributes:
        times: When its kernels ran.
        top: Unit of all of them: the model, or their device where a Run has several.
        powers: Of its kernels; None if the readings say nothing of them, with ``reason``.
    """

    def __init__(self, run: Run, figures: Figures, about: Recording | None = None) -> None:
        self.run, self.figures = run, figures
        self.times = times_of(run, about)
        self.top = self.times.top
        found = powers_of(run, self.times, figures.get(MODEL_UNIT, "baseline_context_idle_w"))
        self.powers: KernelPowers | None = None if isinstance(found, str) else found
        self.reason = found if isinstance(found, str) else ""
        of_kinds, self.place = (None, {}) if self.powers is None else (self.powers.of_kinds, self.powers.place)
        self.division = Division(self.times.device, of_kinds, self.reason or "not_resolved")

    def add(self, *, scaled: bool, whole: Estimate | None = None, whole_s: float | None = None) -> Estimate:
        """Add operators, kernels, phases, layers and checks; the model's own figures are there already.

        Args:
            scaled: Whether the whole was measured without tracing, so that energies may be scaled to it.
            whole: Energy of which these are the parts, J; that of an iteration if None.
            whole_s: Its time, s.

        Returns:
            Energy of all parts, J.
        """
        self.figures.keep(self.times.units.values())
        whole_s = self.iteration_s.value or 0.0 if whole_s is None else whole_s
        # Tracing delays the host, not the GPU: what is left of an untraced iteration is idle.
        self.idle_s = max(whole_s - self.times.busy_s, 0.0)
        self._idle = sum_of([Launched(-1, -1, IDLE, self.idle_s)])
        self.factor, self.factor_half = self._factor() if scaled else (1.0, 0.0)
        if self.powers is not None:
            self.division = replace(self.division, powers=self.powers.of_kinds.scaled(self.factor, self.factor_half))
        self.add_ops()
        self.add_kernels()
        self.add_phases()
        self.add_layers()
        idle = Launched(self.add_idle(), -1, IDLE, self.idle_s)
        flags = ["traced_at_cap"] if self.factor != 1.0 else [] if scaled else ["traced_whole"]
        if self.powers is not None and self.times.about["iterations"] > 1:
            self.run.waveform = table_of(self.run, self.powers, self.times.about["iterations"])
        rows = (part._replace(kind=self.place.get(part.kind, -1)) for part in [*self.times.parts, idle])
        for name, table in tables_of(self.division, rows).items():
            setattr(self.run, name, tables.concat([self.run.table(name), table], name))
        return self.add_checks(whole or self.figures.get(MODEL_UNIT, "energy_total_j"), flags)

    @property
    def iteration_s(self) -> Estimate:
        """Time of an iteration of the whole, untraced where that was measured."""
        return self.figures.get(MODEL_UNIT, "iteration_time_s")

    def _factor(self) -> tuple[float, float]:
        """By what the energies of parts are scaled, and its 95 % half-width.

        Tracing puts pauses between kernels. At a power cap the clock then rises, and with it the energy of each
        kernel, by a factor common to all as far as the unknown for the clock is right (``attribution.program``).
        The factor is that of the active energy of untraced iterations; half of what it is off by is in the intervals.
        Below the cap energies aren't scaled, and the intervals contain ``TRACED``.
        """
        whole = self.figures.get(MODEL_UNIT, "energy_total_j")
        if self.powers is None or whole.value is None or whole.half_width is None:
            return 1.0, 0.0
        about = self.times.about
        if not capped(self.run, self.times.device, about["start_ns"], about["end_ns"]):
            return 1.0, Z95 * TRACED
        rows = (self._seconds(kinds)[:-1] for kinds in (sum_of(self.times.parts), self._idle))
        parts, idle = (float(seconds @ self.powers.of_kinds.watts) for seconds in rows)
        factor = (whole.value - idle) / parts
        return factor, float(np.hypot(whole.half_width / parts, (1 - factor) / 2))

    def _seconds(self, kinds: Kinds) -> NDArray[np.float64]:
        """Seconds of kinds in the form of the division."""
        return self.division.seconds((self.place.get(kind, -1), seconds) for kind, seconds in kinds.items())

    def add_ops(self) -> None:
        """Operators, each on its shapes in its module; what can't be distinguished is one row around its members."""
        inside = sums(self.times.parts, lambda part: self._operator(part.unit))
        self._pool(inside)
        for unit, kinds in inside.items():
            row = self.times.units[unit]
            known = not row["op"] or row["parent"] == self.top
            self._add(unit, kinds, reason="" if known and unit not in self.pooled else "pooled")

    def _operator(self, unit: int) -> int:
        """The operator of a kernel, or the kernel itself where it has none."""
        row = self.times.units[unit]
        if not row["op"]:
            return unit
        return unit if row["parent"] is None else row["parent"]

    def _pool(self, inside: dict[int, Kinds]) -> None:
        """Units around parts whose energies are known together alone."""
        self.pooled: set[int] = set()
        next_id = self._next()
        for names in self.powers.pools if self.powers is not None else ():
            pooled = {k for k, kind in enumerate(self.times.kinds) if by_operator(kind) in names}
            members = [unit for unit, kinds in inside.items() if not pooled.isdisjoint(kinds)]
            self.pooled.update(members)
            together = sum_of(part for part in self.times.parts if self._operator(part.unit) in members)
            for unit in members:
                self.times.units[unit]["parent"] = next_id
            what = "operators" if any(self.times.units[unit]["op"] for unit in members) else "kernels"
            self.figures.unit(next_id, "op", f"{len(members)} {what} together", self.top, count=len(members))
            self._add(next_id, together)
            next_id += 1

    def add_kernels(self) -> None:
        """Kernels under operators."""
        under = (part for part in self.times.parts if self.times.units[part.unit]["op"])
        for unit, kinds in sums(under, lambda part: part.unit).items():
            self._add(unit, kinds, reason="pooled" if self.times.units[unit]["parent"] in self.pooled else "")

    def add_phases(self) -> None:
        """Phases, where an iteration has more than one; those of a generation were measured as such."""
        phased = (part for part in self.times.parts if self.times.units[part.unit]["phase"] is not None)
        inside = sums(phased, lambda part: str(self.times.units[part.unit]["phase"]))
        if len(inside) < 2 or "generation" in self.run.workload:
            return
        for phase in sorted(inside, key=lambda phase: ORDER.index(phase) if phase in ORDER else len(ORDER)):
            self._add(self.figures.unit(self._next(), "phase", phase, self.top, count=1), inside[phase])

    def add_layers(self) -> None:
        """Modules with all that runs in them, and what they call themselves where they contain others."""
        ids: dict[str, int] = {}
        by_phase = "generation" in self.run.workload
        for name, layer in layers_of(self.times.parts, self.times.units, by_phase=by_phase).items():
            above = ids.get(name.rpartition(".")[0], self.top)
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

    def _add_layer(self, unit: int, layer: Layer, contains: bool) -> None:
        self._add(unit, layer.total)
        if contains and layer.own:
            self._add(unit, layer.own, own=True)

    def add_idle(self) -> int:
        """The time of an iteration in which no kernel runs, and what the GPU draws then; returns its unit."""
        rows = self.times.units.values()
        unit = next((row["id"] for row in rows if row["level"] == "op" and row["name"] == IDLE_NAME), None)
        if unit is None:
            unit = self.figures.unit(self._next(), "op", IDLE_NAME, self.top, count=1)
        self._add(unit, self._idle)
        return unit

    def add_checks(self, whole: Estimate, flags: list[str]) -> Estimate:
        """Add how the parts make the whole, and how well the sensor is understood; returns the energy of the parts."""
        parts = Estimate.null(self.reason, METHOD)
        if self.powers is None:
            for name in ("closure_layers", "closure_kernels"):
                self.figures.add(self.top, name, parts)
            return parts
        sites = any(part.site >= 0 for part in self.times.parts)
        for name, least in (("closure_layers", 0), ("closure_kernels", -1)):
            if least == 0 and not sites:
                continue
            kinds = sum_of(part for part in self.times.parts if part.site >= least)
            parts = self.powers.of_kinds.energy(self._seconds(kinds | self._idle)[:-1])
            closure = ratio(parts, whole, METHOD) if whole.value else Estimate.null("not_measured", METHOD)
            if self.factor == 1.0:
                closure = widened(closure, abs(closure.value or 0.0) * self.factor_half)
            self.figures.add(self.top, name, closure, flags)
        fit = self.powers.recorded.lock.fit
        self.figures.add(self.top, "residual_w", Estimate(fit.residual_rms_w, None, None, len(fit.watts), METHOD))
        p_value = Estimate(self.powers.possible.probability, None, None, len(fit.watts), METHOD)
        self.figures.add(self.top, "powers_possible", p_value)
        if isinstance(fit.observer, Sampled):
            rate = fit.observer.track.rate_hz
            self.figures.add(self.top, SAMPLE_RATE, Estimate(rate, None, None, len(fit.watts), METHOD))
        return parts

    def _next(self) -> int:
        return self.figures.last_unit() + 1

    def _add(self, unit: int, kinds: Kinds, *, reason: str = "", own: bool = False) -> None:
        """Add the figures of a unit that runs so many seconds of each kind in an iteration."""
        seconds = self._seconds(kinds)
        time = Estimate(float(seconds.sum()), None, None, self.times.about["iterations"], "trace")
        stated = Estimate.null(reason, METHOD) if reason else self.division.energy(seconds)
        # while several kernels run, they share the energy equally
        energy, flags = replace(stated, budget={}), stated.flags
        if own:
            self.figures.add(unit, "energy_own_j", energy, flags)
            self.figures.add(unit, "time_own_s", time)
            return
        self.figures.add(unit, "time_s", time)
        self.figures.add(unit, "energy_total_j", stated, flags)
        baseline = self.figures.get(MODEL_UNIT, "baseline_context_idle_w")
        if self.division.powers is not None and energy.value is not None and baseline.value is not None:
            idle = baseline.scaled(float(seconds[:-1] @ self.division.powers.own))
            self.figures.add(unit, "energy_active_j", difference(energy, idle, METHOD), flags)
        power = energy.scaled(1 / time.value) if time.value else Estimate.null(energy.reason or "no_time", METHOD)
        self.figures.add(unit, "power_w", power, flags)
        whole = self.figures.get(MODEL_UNIT, "energy_total_j").value
        if energy.value is not None and whole:
            self.figures.add(unit, "share", energy.scaled(1 / whole), flags)
        elif self.reason and self.iteration_s.value and self.top == MODEL_UNIT:  # other GPUs' shares are of energy
            self.figures.add(unit, "share", time.scaled(1 / self.iteration_s.value), flags)
