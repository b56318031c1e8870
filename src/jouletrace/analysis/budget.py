"""Parts of the uncertainty of an energy or a power, after the GUM (JCGM 100:2008): standard ones by source.

The interval that figures state holds what this recording leaves open. What no software can see, the gain and the offset
of the GPU's sensor, comes on top here: each is equally likely anywhere within its limits, so that its standard
uncertainty is the limit over the square root of 3. The 95 % interval with both is that of such errors (JCGM 101:2008).
A calibration against a meter has corrected both; it leaves its own uncertainty, a normal error, and the meter's limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from jouletrace.analysis.analyse import analysed
from jouletrace.run import MODEL_UNIT, DeviceInfo, Estimate, Run
from jouletrace.run.forms import AgainstMeter, Calibration
from jouletrace.run.metrics import (
    ENERGY_CPU,
    ENERGY_MEMORY,
    ENERGY_SERVER,
    GPUS_AND_HOST,
    OF_PARTS,
    PROGRAM_TIME,
    metric,
)
from jouletrace.run.parts import Part, Parts, Row
from jouletrace.sensor.gain import gain_of
from jouletrace.stats.interval import Z95, expanded

OFFSET_W = 3.0
"""Limit of the offset, W: published comparisons with meters."""

GAIN, OFFSET = "gain of the sensor, ± {:g} %", "offset of the sensor, ± {:g} W"
CALIBRATED = "gain and offset of the sensor, against a meter, {}"
METER_PCT, METER_W = "accuracy of the meter, ± {:g} %", "accuracy of the meter, ± {:g} W"

_ABOVE_IDLE = (
    *("energy_per_inference_j", "energy_work_j", "power_difference_w", "power_busy_w"),
    *("energy_prompt_token_j", "energy_output_token_j"),
)
"""Figures beyond idle power, beside energies that are called active: the offset is in both, and cancels."""

_OF_OTHERS = (ENERGY_CPU, ENERGY_MEMORY, ENERGY_SERVER)
"""Energies that other sensors measured."""

Figures = TypeVar("Figures", Part, Row)

_OF_SENSOR = ("J", "W", "J/FLOP", "J/B", "1/J")
"""Units of the figures that the gain of the sensor changes."""


@dataclass(frozen=True)
class Term:
    """A source of uncertainty.

    Attributes:
        source: What it is.
        u: Standard uncertainty, in the unit of the figure.
        stated: Whether it is in the interval that figures state.
        normal: Whether an unstated one is a normal error; else it is rectangular.
    """

    source: str
    u: float
    stated: bool
    normal: bool = False


@dataclass(frozen=True)
class Budget:
    """The budget of a figure.

    Attributes:
        unit: Id of the unit; ``MODEL_UNIT`` for the whole.
        name: Of the unit.
        metric: One of ``METRICS``, which has the figure's unit.
        figure: The figure with its interval.
        terms: Its sources.
    """

    unit: int
    name: str
    metric: str
    figure: Estimate
    terms: tuple[Term, ...]

    @property
    def combined(self) -> float:
        """Combined standard uncertainty, in the unit of the figure."""
        return math.sqrt(sum(term.u**2 for term in self.terms))

    @property
    def expanded(self) -> float:
        """Half-width of a 95 % interval of what an ideal meter would read, if the gain is known."""
        return _expanded(self.figure.half_width or 0.0, self.terms)


def meters_of(run: Run, devices: Iterable[DeviceInfo]) -> list[AgainstMeter]:
    """The calibrations against a meter that are in force on devices; empty if one of these has none."""
    each = [run.calibration.get(device.id, Calibration()).get("meter") for device in devices]
    return [] if None in each else [meter for meter in each if meter is not None]


def _devices(run: Run, part: Part | None) -> list[DeviceInfo]:
    """Whose sensors a part's power is from: all GPUs, or the device that the part is."""
    gpus = [device for device in run.devices if device.kind != "cpu"] or run.devices
    return [info for info in run.devices if info.id == part.module] if part and part.level == "device" else gpus


def gain_pct(run: Run, part: Part | None = None) -> float | None:
    """Limit of the gain of a part's sensors, %; of all GPUs, or of the device that the part is. None if not known."""
    gain = gain_of(run, devices=_devices(run, part))
    return None if gain is None else 100 * gain


def absolute(run: Run, part: Part, metric: str, figure: Estimate, gain: float | None = None) -> float | None:
    """Half-width of a 95 % interval of what an ideal meter would read, in the unit of a figure of a part.

    None where the figure has no interval, or the gain is unknown. ``gain`` is ``gain_pct``, if it is known already.
    """
    if figure.half_width is None or (gain := gain_pct(run, part) if gain is None else gain) is None:
        return None
    return Budget(part.id, part.name, metric, figure, _terms(run, part, metric, figure, gain)).expanded


def with_sensor(run: Run, part: Figures) -> Figures:
    """A part or row with gain and offset in the intervals of its figures; as it is if the gain is unknown.

    Times, ratios, and what other sensors measured stay as they are.
    """
    about = part if isinstance(part, Part) else Part(-1, None, "row", "", figures=dict(part.figures))
    figures, gain = dict(part.figures), gain_pct(run, about)
    for name, figure in part.figures.items() if gain is not None else ():
        if metric(name).unit in _OF_SENSOR and name not in (*_OF_OTHERS, *OF_PARTS):
            figures[name] = absolute_interval(figure, _terms(run, about, name, figure, gain))
    return replace(part, figures=figures)


def absolute_interval(figure: Estimate, terms: Sequence[Term]) -> Estimate:
    """A figure with all terms in its interval and its budget; each end moves, as that of an interval about its value.

    As it is without an interval.
    """
    if figure.value is None or figure.low is None or figure.high is None:
        return figure
    low, high = (_expanded(half, terms) for half in (figure.value - figure.low, figure.high - figure.value))
    budget = {term.source: term.u for term in terms} if figure.budget else {}
    return replace(figure, low=figure.value - low, high=figure.value + high, budget=budget)


def _expanded(half: float, terms: Iterable[Term]) -> float:
    """Half-width of a 95 % interval with the unstated ones of some terms, from one without these."""
    unstated = [term for term in terms if not term.stated]
    normal = math.hypot(half, *(Z95 * term.u for term in unstated if term.normal))
    return expanded(normal, [math.sqrt(3) * term.u for term in unstated if not term.normal])


def unseen(value: float, gain: float, offset_j: float) -> tuple[Term, ...]:
    """Return what no software sees of a figure: a gain of so many percent at most, an offset in the figure's unit."""
    limits = {GAIN.format(gain): abs(value) * gain / 100, OFFSET.format(OFFSET_W): offset_j}
    return tuple(Term(source, limit / math.sqrt(3), stated=False) for source, limit in limits.items())


def budgets(run: Run, parts: Iterable[int] = ()) -> list[Budget]:
    """Budgets of a Run's energies, and of the power of a whole, in order of units; of an older Run computed again.

    Args:
        run: A Run.
        parts: Ids of units that are wanted beside the whole, or beside devices and served loads where these alone have
            a budget. One without an energy has none.
    """
    results = Parts(run)
    if not are_stored(results):
        results = Parts(analysed(run))
    apart = (part.id for part in results.rows() if part.level in ("device", "load"))
    has_whole = any(figure.budget for figure in results.whole.figures.values())
    wanted = {*parts, *([MODEL_UNIT] if has_whole else apart)}
    rows = sorted((part for part in results.rows() if part.id in wanted), key=lambda part: part.id)
    return [
        Budget(
            part.id,
            f"{part.gpu}: {part.name}" if part.gpu else str(part.name),
            metric,
            figure,
            _terms(run, part, metric, figure),
        )
        for part in rows
        for metric, figure in part.figures.items()
        if figure.budget
    ]


def are_stored(parts: Parts) -> bool:
    """True if a Run states what its intervals consist of; older ones don't."""
    return any(figure.budget for part in parts.rows() for figure in part.figures.values())


def _terms(run: Run, part: Part, name: str, figure: Estimate, gain: float | None = None) -> tuple[Term, ...]:
    """The stated terms of a figure, and what no software sees."""
    gpus = [device for device in run.devices if device.kind != "cpu"] or run.devices
    gain = gain_pct(run, part) if gain is None else gain
    stated = tuple(Term(source, u, stated=True) for source, u in figure.budget.items())
    if gain is None:
        return stated
    energy, power = part.get("energy_total_j").value, part.get("power_w").value
    value = abs((energy if name == GPUS_AND_HOST else figure.value) or 0.0)
    seconds = part.get("time_s" if part.id != MODEL_UNIT else PROGRAM_TIME).value
    power = power or (energy / seconds if energy and seconds else None)
    if name != "energy_total_j" or seconds is None:  # of a part of the time, or in an older Run
        seconds = value / abs(power) if power else 0.0
    sensors = len(gpus) if part.id == MODEL_UNIT or part.level == "load" else 1  # all at the same limit
    whole = over = 1.0 if metric(name).unit == "W" else seconds
    if "_active_" in name or name in _ABOVE_IDLE:
        over = 0.0
    if meters := meters_of(run, _devices(run, part)):
        return (*stated, *_of_meters(meters if sensors > 1 else meters[:1], value, over, whole))
    return (*stated, *unseen(value, gain, sensors * OFFSET_W * over))


def _of_meters(meters: list[AgainstMeter], value: float, over: float, whole: float) -> list[Term]:
    """Return what calibrations of sensors against a meter leave open of a figure, of which each has an equal share.

    Args:
        meters: One a sensor; all may err to one side.
        value: The figure, in J or W.
        over: Its seconds (1 for a power), 0 where the offset cancels.
        whole: Its seconds wherever: what scatters about the line doesn't cancel.
    """
    u = 0.0
    for meter in meters:
        read = (value / len(meters) - meter["offset_w"] * over) / meter["gain"]
        covariance, at = np.array(meter["covariance"]), np.array([over, read])
        scatter = meter["scatter_w"] * whole * (1.0 if over else math.sqrt(2))
        u += math.sqrt(max(float(at @ covariance @ at), 0.0) + scatter**2)
    dates = sorted({str(np.datetime64(meter["time_ns"], "ns").astype("datetime64[D]")) for meter in meters})
    pct, watts = (max(meter[name] for meter in meters) for name in ("accuracy_pct", "accuracy_w"))
    terms = [Term(CALIBRATED.format(" and ".join(dates)), u, stated=False, normal=True)]
    terms.append(Term(METER_PCT.format(pct), abs(value) * pct / 100 / math.sqrt(3), stated=False))
    if watts:
        terms.append(Term(METER_W.format(watts), over * len(meters) * watts / math.sqrt(3), stated=False))
    return terms
