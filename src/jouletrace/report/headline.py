"""The figure that a verdict states first, with its absolute uncertainty beside the interval."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from jouletrace.analysis.budget import absolute
from jouletrace.analysis.facts import Facts
from jouletrace.report.facts import covered
from jouletrace.report.kinds import worded
from jouletrace.run import Estimate, Run
from jouletrace.run.metrics import PROGRAM_TIME
from jouletrace.run.parts import Part, Parts
from jouletrace.words.scale import NBSP

ENERGY, INFERENCE = "energy_total_j", "energy_per_inference_j"


@dataclass(frozen=True)
class Headline:
    """An energy that is stated first.

    Attributes:
        part: Of what it is.
        metric: Its name.
        figure: It with its interval, in J.
        absolute_j: Half-width of the 95 % interval of what an ideal meter would read, with gain and offset of the
            sensor; None where the figure has no interval, is modelled, or is of a meter.
        devices: Of how many devices it is, of how many that were watched; None where it isn't a sum of theirs.
    """

    part: Part
    metric: str
    figure: Estimate
    absolute_j: float | None
    devices: tuple[int, int] | None = None

    @classmethod
    def from_part(cls, run: Run, part: Part, metric: str, *, modelled: bool = False) -> Headline:
        """A figure of a part of a Run."""
        estimate = part.get(metric)
        return cls(part, metric, estimate, None if modelled else absolute(run, part, metric, estimate))

    @property
    def absolute(self) -> Estimate:
        """The figure with the absolute uncertainty as its interval; as it is without one."""
        value, half = self.figure.value, self.absolute_j
        if value is None or half is None:
            return self.figure
        return replace(self.figure, low=value - half, high=value + half, budget={})

    @property
    def beside(self) -> str:
        """The absolute uncertainty behind a figure: "± 5.7 % absolute"; "" without one."""
        if self.absolute_j is None or not self.figure.value:
            return ""
        return f"±{NBSP}{100 * self.absolute_j / abs(self.figure.value):.2g}{NBSP}%{NBSP}absolute"

    @property
    def behind(self) -> str:
        """The same in parentheses after a space."""
        return f" ({self.beside})" if self.beside else ""

    def to_dict(self, stated: dict[str, Any]) -> dict[str, Any]:
        """The object of JSON, of the figure as it is ``stated`` elsewhere."""
        path = [step._asdict() for step in self.part.path]
        devices = None if self.devices is None else dict(zip(("counted", "all"), self.devices, strict=True))
        stated_facts = {"metric": self.metric, "path": path, "figure": stated, "absolute": self.absolute_j}
        return {**stated_facts, "devices": devices}


def headline(run: Run, results: Parts, run_facts: Facts) -> Headline | None:
    """The figure of a Run that is stated first; None where no energy is."""
    chosen = _chosen(run, results, run_facts)
    if chosen is None or chosen[0].get(chosen[1]).value is None:
        return None
    part, metric, modelled = chosen
    half_j = None if modelled else run_facts.absolute_j.get((part.id, metric))
    of_devices = part.level == "device" or results.whole.get(metric).value is None
    devices = covered(results) if of_devices and metric == ENERGY else None
    return Headline(part, metric, part.get(metric), half_j, devices)


def _chosen(run: Run, results: Parts, run_facts: Facts) -> tuple[Part, str, bool] | None:
    """The part, the metric of its figure, and whether that is modelled."""
    if run.kind in ("ab", "calibrate"):  # of two sides on one GPU, the difference is stated
        return None
    if (kind := worded(run, results)) is not None:
        return kind.leading(run, results, run_facts)
    devices, inference = results.units("device"), results.get(INFERENCE)
    watched = run.kind == "record" and devices
    if run.kind == "program" or (results.get(ENERGY).value is not None and not watched):
        return results.whole, ENERGY, False
    if inference.value is not None:
        return results.whole, INFERENCE, False
    return together(results, run_facts), ENERGY, False


def together(results: Parts, run_facts: Facts) -> Part:
    """The device whose energy is known, or all of them as one part."""
    there = [unit for unit in results.units("device") if unit.get(ENERGY).value is not None]
    if len(there) == 1:
        return there[0]
    return replace(results.whole, figures={PROGRAM_TIME: run_facts.of_known["time_s"], ENERGY: run_facts.together})
