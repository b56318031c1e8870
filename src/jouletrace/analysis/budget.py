"""What the uncertainty of an energy or a power consists of, after the GUM (JCGM 100:2008): standard ones by source.

The interval that figures state holds what this recording leaves open. What no software can see, the gain and the offset
of the GPU's sensor, comes on top here: each is equally likely anywhere within its limits, so that its standard
uncertainty is the limit over the square root of 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from jouletrace.analysis.analyse import figures_of
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.metrics import METRICS
from jouletrace.sensor.gain import gain_of
from jouletrace.stats.interval import Z95

OFFSET_W = 3.0
"""Limit of the offset, W: published comparisons with meters."""

GAIN, OFFSET = "gain of the sensor, ± {:g} %", "offset of the sensor, ± {:g} W"

COVERAGE = Z95
"""Standard uncertainties in an expanded one: 95 % of a normal distribution, and more where one of the rectangular ones
of gain and offset is most of it."""


@dataclass(frozen=True)
class Term:
    """A source of uncertainty.

    Attributes:
        source: What it is.
        u: Standard uncertainty, in the unit of the figure.
        stated: Whether it is in the interval that figures state.
    """

    source: str
    u: float
    stated: bool


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
        """Expanded uncertainty: half-width of a 95 % interval of what an ideal meter would read."""
        unseen = sum(term.u**2 for term in self.terms if not term.stated)
        return math.hypot(self.figure.half_width or 0.0, COVERAGE * math.sqrt(unseen))


def budgets(run: Run, parts: Iterable[int] = ()) -> list[Budget]:
    """Budgets of a Run's energies, and of the power of a whole, computed again from its raw tables, in order of units.

    Args:
        run: A Run.
        parts: Ids of units that are wanted beside the whole, or beside devices and served loads where these alone have
            a budget. One without an energy has none.
    """
    figures = figures_of(replace(run, warnings=list(run.warnings)))  # which prepares the units of the Run
    rows = {row["id"]: row for row in figures.units().to_pylist()}
    known = {unit for unit, _ in figures.sources}
    apart = (id for id, row in rows.items() if row["level"] in ("device", "load"))
    wanted = {*parts, *([MODEL_UNIT] if MODEL_UNIT in known else apart)}
    gpus = [device for device in run.devices if device.kind != "cpu"] or run.devices
    found = []
    for unit, metric in sorted(figures.sources, key=lambda of: of[0]):  # of a unit in the order in which they came
        figure = figures.get(unit, metric)
        if unit not in wanted or figure.value is None:
            continue
        row = rows[unit]
        time = figures.get(unit, "time_s" if unit != MODEL_UNIT else "iteration_time_s").value
        terms = [Term(source, u, stated=True) for source, u in figures.sources[unit, metric]().items()]
        own = [device for device in run.devices if device.id == row["module"]] if row["level"] == "device" else gpus
        gain = 100 * gain_of(replace(run, devices=own))
        terms.append(Term(GAIN.format(gain), abs(figure.value) * gain / 100 / math.sqrt(3), stated=False))
        sensors = len(gpus) if unit == MODEL_UNIT or row["level"] == "load" else 1  # all at the same limit
        over = 1.0 if METRICS[metric].unit == "W" else time or 0.0
        if "_active_" in metric:  # the baseline has the same offset
            over = 0.0
        terms.append(Term(OFFSET.format(OFFSET_W), sensors * OFFSET_W * over / math.sqrt(3), stated=False))
        found.append(Budget(unit, str(row["name"]), metric, figure, tuple(terms)))
    return found
