"""Figures of a program, and of operators, kernels, layers and phases, from a traced recording and its power record.

Time comes from the trace. Power comes from one regression of the readings on the timeline (``attribution``); energies
are power times time. All are per untouched iteration: repeats of an operator serve only to determine its power.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from jouletrace.analysis.conditions import capped
from jouletrace.analysis.efficiency import efficiency, formats_of, work_of
from jouletrace.analysis.kernel_powers import KernelPowers, by_operator, kind_of, powers_of, recorded_units, times_of
from jouletrace.analysis.power import window_estimate
from jouletrace.analysis.waveform import table_of
from jouletrace.arrays import Floats
from jouletrace.attribution.observer import Sampled
from jouletrace.errors import BadInputError
from jouletrace.run import MODEL_UNIT, DeviceInfo, Estimate, Run, tables
from jouletrace.run.division import METHOD, Division, tables_of
from jouletrace.run.estimate import widened
from jouletrace.run.figures import Figures
from jouletrace.run.forms import RecordingFacts
from jouletrace.run.layers import calls_of, layers_of
from jouletrace.run.metrics import PROGRAM_TIME
from jouletrace.run.recording_names import BEFORE, IDLE_NAME, SAMPLE_RATE, has_recording
from jouletrace.stats.interval import Z95, difference, ratio, total

Layer = tuple[str, str | None, bool]
"""A module, the name of one of its calls, and whether it is what it calls itself."""

_MOST_CALLS = 16
"""Calls of a module with rows of their own: of very many, a row for each would be of no use."""

ORDER = ("data", "forward", "backward", "optimizer", "prefill", "decode")
"""Of phases, in which they run."""

TRACED = 0.006
"""Relative standard deviation of what tracing changes in the energy of kernels: root mean square of parts / whole - 1
beyond what the readings leave open, in 22 recordings below the power cap of four H200s (mean +0.5 %, scatter 0.4 %)."""


def recorded_of(run: Run, figures: Figures, about: RecordingFacts | None = None) -> RecordedParts:
    """The recording of a Run, or that of one device, with its powers determined; ``add`` adds the resulting figures.

    Raises:
        BadInputError: If the recording isn't whole.
    """
    try:
        return RecordedParts(run, figures, about)
    except KeyError as error:
        raise BadInputError(f"the recording in this Run can't be used: it lacks {error}") from None


class RecordedParts:
    """The recording of a Run, or that of one device, and the resulting figures.

    Attributes:
        times: When its kernels ran.
        top: Unit of all of them: the model, or their device where a Run has several.
        powers: Of its kernels; None if the readings say nothing of them, with ``reason``.
    """

    def __init__(self, run: Run, figures: Figures, about: RecordingFacts | None = None) -> None:
        self.run, self.figures = run, figures
        self.times = times_of(run, about)
        self.top = self.times.top
        units = self.times.units.values()
        self._work, self._formats = work_of(units), formats_of(units)
        self._best = run.calibration.get(self.times.device, {}).get("rates")
        powers = powers_of(run, self.times, figures.get(MODEL_UNIT, "baseline_context_idle_w"))
        self.powers: KernelPowers | None = None if isinstance(powers, str) else powers
        self.reason = powers if isinstance(powers, str) else ""

    def add(self, *, scaled: bool, whole: Estimate | None = None, whole_s: float | None = None) -> Estimate:
        """Add operators, kernels, phases, layers and checks; the model's own figures are there already.

        Args:
            scaled: Whether the whole was measured without tracing, so that energies may be scaled to it.
            whole: Energy of which these are the parts, J; that of an iteration if None.
            whole_s: Its time, s.

        Returns:
            Energy of all parts, J.
        """
        self.figures.units.keep(self.times.units.values())
        whole_s = self.whole_time.value or 0.0 if whole_s is None else whole_s
        # Tracing delays the host, not the GPU: what is left of an untraced iteration is idle.
        self.division = self._divided(max(whole_s - self.times.busy_s, 0.0))
        factor, half = self._factor() if scaled else (1.0, 0.0)
        if self.powers is not None:
            powers = self.powers.of_kinds.scaled(factor, half)
            if self.times.about["iterations"] > 1:  # each part runs in each iteration: at no time of its own
                powers = replace(powers, varies_w=np.zeros(len(powers.watts)), scatter_w=np.zeros(len(powers.watts)))
            self.division = replace(self.division, powers=powers)
        self.add_ops()
        self.add_kernels()
        self.add_phases()
        self.add_layers()
        flags = ["traced_at_cap"] if factor != 1.0 else [] if scaled else ["traced_whole"]
        if self.powers is not None and self.times.about["iterations"] > 1:
            self.run.waveform = table_of(self.run, self.powers, self.times.about["iterations"])
        for name, table in tables_of(self.division).items():
            setattr(self.run, name, tables.concat([self.run.table(name), table], name))
        whole = whole or self.figures.get(MODEL_UNIT, "energy_total_j")
        return self.add_checks(whole, flags, half if factor == 1.0 else 0.0)

    @property
    def whole_time(self) -> Estimate:
        """Time of the whole: of all of a program, else of an iteration, untraced where that was measured."""
        return self.figures.get(MODEL_UNIT, PROGRAM_TIME)

    def _divided(self, idle_s: float) -> Division:
        """All that was launched, with the kinds of the powers, and so much idle time."""
        rows = self.times.units.values()
        idle = next((row["id"] for row in rows if row["level"] == "op" and row["name"] == IDLE_NAME), None)
        idle = self.figures.units.idle(self.top) if idle is None else idle
        rest: dict[str, object] = {"device": self.times.device, "unit": idle, "seconds": idle_s}
        ran = tables.concat([self.times.parts, tables.from_rows([rest], "divided")], "divided")
        if self.powers is None:
            ran = tables.changed(ran, "kind", [None] * len(ran))
            return Division(self.times.device, None, self.reason or "not_resolved", ran)
        kinds = self.powers.numbers(self.times.parts["kind"].to_pylist())
        return Division(self.times.device, self.powers.of_kinds, "not_resolved", tables.changed(ran, "kind", kinds))

    def _sum(self, *, sited: bool = False) -> Floats:
        """Seconds of each kind in all that was launched, or by known sites alone, and in idle time."""
        *sites, _ = self.division.column("site")
        return self.division.grouped([*([0] * (site is not None or not sited) for site in sites), [0]])[0]

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
        joules = self._sum()[:-1] * self.powers.of_kinds.watts
        parts, idle = float(joules[:-1].sum()), float(joules[-1])
        factor = (whole.value - idle) / parts
        return factor, float(np.hypot(whole.half_width / parts, (1 - factor) / 2))

    def _of(self, unit: int, column: str) -> Any:
        """A column of an operator, kernel or site; None of idle."""
        row = self.times.units.get(unit)
        return row and row.get(column)

    def add_ops(self) -> None:
        """Operators, each on its shapes in its module; what can't be distinguished is one row around its members."""
        inside = self.division.grouped([self._operator(unit)] for unit in self.division.column("unit"))
        self._pool(inside)
        for unit, seconds in inside.items():
            resolved = not self._of(unit, "op") or self._of(unit, "parent") == self.top
            self._add(unit, seconds, reason="" if resolved and unit not in self.pooled else "pooled")

    def _operator(self, unit: int) -> int:
        """The operator of a kernel, or the kernel itself where it has none."""
        above = self._of(unit, "parent") if self._of(unit, "op") else None
        return unit if above is None else int(above)

    def _pool(self, inside: Mapping[int, Floats]) -> None:
        """Units around parts whose energies are known together alone."""
        self.pooled: set[int] = set()
        units = self.times.units
        for names in self.powers.pools if self.powers is not None else ():
            members = [unit for unit in inside if unit in units and by_operator(kind_of(units[unit])) in names]
            self.pooled.update(members)
            what = "operators" if any(units[unit]["op"] for unit in members) else "kernels"
            pool = self.figures.units.add("op", f"{len(members)} {what} together", self.top, count=len(members))
            for unit in members:
                units[unit]["parent"] = pool
            self._add(pool, np.sum([inside[unit] for unit in members], axis=0))

    def add_kernels(self) -> None:
        """Kernels under operators."""
        inside = self.division.grouped([unit] if self._of(unit, "op") else [] for unit in self.division.column("unit"))
        for unit, seconds in inside.items():
            self._add(unit, seconds, reason="pooled" if self._of(unit, "parent") in self.pooled else "")

    def add_phases(self) -> None:
        """Phases, where an iteration has more than one."""
        inside = self.division.grouped(filter(None, [self._of(unit, "phase")]) for unit in self.division.column("unit"))
        if len(inside) < 2:
            return
        for phase in sorted(inside, key=lambda phase: ORDER.index(phase) if phase in ORDER else len(ORDER)):
            self._add(self.figures.units.add("phase", phase, self.top, count=1), inside[phase])

    def add_layers(self) -> None:
        """Modules and their calls with all that runs in them, and what those that contain others call themselves."""
        by_phase, units = self.run.workload.get("task") == "generate", self.times.units
        sites = {site: calls_of(units[site], by_phase) for site in self.division.column("site") if site is not None}
        inside = self.division.grouped(layers_of(sites.get(site, ())) for site in self.division.column("site"))
        numbers = defaultdict[str, dict[str, set[str]]](dict)
        for name, number, label in (call for calls in sites.values() for call in calls):
            if number is not None and label is not None:
                numbers[name].setdefault(label, set()).add(number)
        ids: dict[str, int] = {}
        for name in [name for name, label, by_itself in inside if label is None and not by_itself]:
            contains = not np.array_equal(inside[name, None, False], inside.get((name, None, True), 0.0))
            calls = numbers[name]
            count = max(1, len(set[str]().union(*calls.values()) - {"0"}))
            ids[name] = self.figures.units.add(
                "layer", name, ids.get(name.rpartition(".")[0], self.top), module=name, count=count
            )
            self._add_layer(ids[name], inside, (name, None), contains)
            for label, numbers_of in calls.items() if 1 < len(calls) <= _MOST_CALLS else ():
                unit = self.figures.units.add(
                    "layer", f"{name} ({label})", ids[name], module=name, count=len(numbers_of)
                )
                self._add_layer(unit, inside, (name, label), contains)

    def _add_layer(
        self, unit: int, inside: Mapping[Layer, Floats], layer: tuple[str, str | None], contains: bool
    ) -> None:
        self._add(unit, inside[*layer, False])
        if contains and (*layer, True) in inside:
            self._add(unit, inside[*layer, True], by_itself=True)

    def add_checks(self, whole: Estimate, flags: list[str], tracing: float) -> Estimate:
        """Add how the parts make the whole, and how well the sensor is understood; returns the energy of the parts.

        Args:
            whole: Its energy, J.
            flags: Of the checks.
            tracing: Relative half-width of what tracing changes.
        """
        parts = Estimate.null(self.reason, METHOD)
        if self.powers is None:
            for name in ("closure_layers", "closure_kernels"):
                self.figures.add(self.top, name, parts)
            return parts
        sites = self.times.parts["site"].null_count < len(self.times.parts)
        for name, sited in [*([("closure_layers", True)] if sites else []), ("closure_kernels", False)]:
            parts = self.powers.of_kinds.energy(self._sum(sited=sited)[:-1])
            closure = ratio(parts, whole, METHOD) if whole.value else Estimate.null("not_measured", METHOD)
            closure = widened(closure, abs(closure.value or 0.0) * tracing) if tracing else closure
            self.figures.add(self.top, name, closure, flags)
        recorded, stated = self.powers.recorded, {"powers_possible": self.powers.possible.probability}
        if (fit := recorded.fit) is not None:
            stated["residual_w"] = fit.residual_rms_w
            if isinstance(fit.observer, Sampled):
                stated[SAMPLE_RATE] = fit.observer.track.rate_hz
        for name, value in stated.items():
            self.figures.add(self.top, name, Estimate(value, None, None, len(recorded.readings), METHOD))
        return parts

    def _add(self, unit: int, seconds: Floats, *, reason: str = "", by_itself: bool = False) -> None:
        """Add the figures of a unit that runs so many seconds of each kind in an iteration."""
        time = Estimate(float(seconds.sum()), None, None, self.times.about["iterations"], "trace")
        stated = Estimate.null(reason, METHOD) if reason else self.division.energy(seconds)
        # while several kernels run, they share the energy equally
        energy, flags = replace(stated, budget={}), stated.flags
        if by_itself:
            self.figures.add(unit, "energy_own_j", energy, flags)
            self.figures.add(unit, "time_own_s", time)
            return
        self.figures.add(unit, "time_s", time)
        self.figures.add(unit, "energy_total_j", stated, flags)
        baseline = self.figures.get(MODEL_UNIT, "baseline_context_idle_w")
        if self.division.powers is not None and energy.value is not None and baseline.value is not None:
            idle = baseline.scaled(float(seconds[:-1] @ self.division.powers.own))
            self.figures.add(unit, "energy_active_j", difference(energy, idle, METHOD), flags)
        work, used = self._work.get(unit, (0.0, 0.0)), self._formats.get(unit, "")
        self.figures.add_each(unit, efficiency(work, stated, time.value or 0.0, self._best, used))
        power = energy.scaled(1 / time.value) if time.value else Estimate.null(energy.reason or "no_time", METHOD)
        self.figures.add(unit, "power_w", power, flags)
        whole = self.figures.get(MODEL_UNIT, "energy_total_j").value
        if energy.value is not None and whole:
            self.figures.add(unit, "share", energy.scaled(1 / whole), flags)
        elif self.reason and self.whole_time.value and self.top == MODEL_UNIT:  # other GPUs' shares are of energy
            self.figures.add(unit, "share", time.scaled(1 / self.whole_time.value), flags)


def add_program(run: Run, figures: Figures) -> None:
    """Add the figures of the program, of its devices where there are several, and of its parts."""
    recordings = run.workload.get("recordings", [])
    name = str(run.workload.get("name", "program"))
    figures.model(name)
    edges = run.spans.filter(np.array([kind == "phase" for kind in run.spans["kind"].to_pylist()], bool)).to_pylist()
    span = next((row for row in edges if row["name"] == "program"), None)
    if span is None:
        return
    begin, end = int(span["start_ns"]), int(span["end_ns"])
    seconds = (end - begin) / 1e9
    gpus = [device for device in run.devices if device.kind != "cpu"] or run.devices
    whole = [window_estimate(run, device.id, begin, end) for device in gpus]
    energy = whole[0] if len(whole) == 1 else total(whole)
    figures.add(MODEL_UNIT, PROGRAM_TIME, Estimate(seconds, None, None, 1, "clock"))
    figures.add_energy(MODEL_UNIT, energy, seconds)
    if (steps := run.workload.get("steps")) and steps["calls"] > 1:
        figures.add(MODEL_UNIT, "energy_per_step_j", replace(energy, budget={}).scaled(1 / steps["calls"]))
    device_units = {row["module"]: row["id"] for row in run.units.to_pylist() if row["level"] == "device"}
    figures.units.after(device_units.values())
    for rows in recorded_units(run).values():
        figures.units.keep(rows.values())

    def add_device(device: DeviceInfo, name: str, energy: Estimate, whole: float | None) -> None:
        unit = figures.units.add("device", name, id=device_units.get(device.id), module=device.id)
        figures.add(unit, "time_s", Estimate(seconds, None, None, 1, "trace"))
        figures.add_energy(unit, energy, seconds, whole)

    if len(gpus) > 1:
        names = {recording["device"]: f"{recording['name']}: " for recording in recordings if "name" in recording}
        for device, energy_of_device in zip(gpus, whole, strict=True):
            add_device(device, f"{names.get(device.id, '')}{device.name}", energy_of_device, energy.value)
    added = [_add_parts(run, figures, about, begin, end) for about in recordings] if has_recording(run) else []
    if len(gpus) > 1 and added:
        traced = {about.get("device") for about in recordings}
        for device, energy_of_device in zip(gpus, whole, strict=True):
            if device.id not in traced and energy_of_device.value and energy.value:
                share = 100 * energy_of_device.value / energy.value
                run.warn("kernels_not_recorded", f"no kernels were recorded of {share:.0f} % of the energy", device.id)
        parts, wholes = (total(side) for side in zip(*added, strict=True))
        figures.add(MODEL_UNIT, "closure_kernels", ratio(parts, wholes, added[0][0].method), ["traced_whole"])
    if not recordings:
        from jouletrace.analysis.ranges import add_ranges  # a program on GPUs needs none of it

        add_ranges(run, figures)
    if any(
        "start_ns" not in recording for recording in recordings
    ):  # an old Run without kernels: its phases are what is known
        phases = {row["id"]: row for row in run.units.to_pylist() if row["level"] == "phase"}
        figures.units.keep(phases.values())
        figures.keep_results(row for row in run.results.to_pylist() if row["unit"] in (MODEL_UNIT, *phases))


def _add_parts(
    run: Run, figures: Figures, about: RecordingFacts, begin_ns: int, end_ns: int
) -> tuple[Estimate, Estimate]:
    """Add what ran on a GPU from its first kernel on, and what was before it, when it draws less without a context.

    Returns:
        Energy of all parts from the first kernel on, and of the whole of that time, J.
    """
    first_ns = about.get("first_ns", about["start_ns"])
    recorded = recorded_of(run, figures, about)
    whole = window_estimate(run, recorded.times.device, first_ns, end_ns)
    parts = recorded.add(scaled=False, whole=whole, whole_s=(end_ns - first_ns) / 1e9)
    before, seconds = window_estimate(run, recorded.times.device, begin_ns, first_ns), (first_ns - begin_ns) / 1e9
    unit = figures.units.add("op", BEFORE, recorded.top, count=1)
    figures.add(unit, "time_s", Estimate(seconds, None, None, 1, "trace"))
    figures.add_energy(unit, before, seconds, figures.get(MODEL_UNIT, "energy_total_j").value)
    return parts, whole
