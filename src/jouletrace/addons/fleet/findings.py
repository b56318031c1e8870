"""All figures of a fleet's report on one group of GPUs: computed once, shown in several ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jouletrace.addons.fleet.correlates import Correlate, correlates
from jouletrace.addons.fleet.names import is_meant
from jouletrace.addons.fleet.results import Fleet, Group
from jouletrace.addons.fleet.spread import FIGURES, Spread
from jouletrace.run import Estimate

_MEANS = ("clock_mhz", "counted_mhz", "temperature_c", "idle_w", "context_idle_w", "power_cap_share", "hardware_share")

WORTH = 0.01
"""Default relative gain from which a specific GPU is worth requesting."""


@dataclass(frozen=True)
class Worth:
    """Whether a specific GPU is worth requesting.

    Attributes:
        gpu: Its code.
        time, energy: Relative saving against one of the others picked at random.
        verdict: "yes", "no" or "undecided": comparison with the limit, for time.
    """

    gpu: int
    time: Estimate
    energy: Estimate
    verdict: str


@dataclass
class Findings:
    """The findings on a group.

    Attributes:
        group: The group.
        spreads: Spread by figure.
        correlates: Correlates of slowness.
        worth: Of the requested GPU, or of the best one.
        gain_pct: Gain error of the power sensors that can't be detected.
    """

    group: Group
    spreads: dict[str, Spread]
    correlates: list[Correlate]
    worth: Worth | None
    gain_pct: float | None

    @property
    def hides_in_gain(self) -> bool:
        """Whether the differences in energy are within the gain errors of two sensors."""
        apart = self.spreads["energy_j"].range.value
        return apart is not None and self.gain_pct is not None and apart < 2 * self.gain_pct / 100


def find(group: Group, ask: str | None = None, worth: float = WORTH) -> Findings:
    """Compute all findings.

    Args:
        group: The GPUs.
        ask: The GPU in question: its name or place, or a beginning of its UUID; None for the fastest.
        worth: Relative gain that counts.
    """
    spreads = {figure: Spread(group, figure) for figure in FIGURES}
    gains = group.runs["gain_pct"]
    gain_pct = float(np.nanmax(gains)) if np.isfinite(gains).any() else None
    return Findings(group, spreads, correlates(group), _worth(group, spreads, ask, worth), gain_pct)


def asked_for(group: Group, ask: str) -> int | None:
    """The code of the named GPU; None if it isn't in this group, or the name is ambiguous."""
    found = [code for code, g in enumerate(group.gpus) if is_meant(ask, g.node, g.id, g.label)]
    exact = [code for code in found if group.gpus[code].id.lower() == ask.strip().lower()]
    found = exact or found
    return found[0] if len(found) == 1 else None


def _worth(group: Group, spreads: dict[str, Spread], ask: str | None, limit: float) -> Worth | None:
    places = spreads["time_s"].places
    code = asked_for(group, ask) if ask is not None else places[0].gpu if len(places) > 1 else None
    if code is None:
        return None
    time = spreads["time_s"].gain(code)
    verdict = "undecided"
    if time.low is not None and time.high is not None:
        verdict = "yes" if time.low >= limit else "no" if time.high < limit else "undecided"
    return Worth(code, time, spreads["energy_j"].gain(code), verdict)


def to_dict(fleet: Fleet, found: list[Findings]) -> dict[str, Any]:
    """The object that ``fleet report --json`` prints."""
    return {
        "schema": 2,
        "simulated": fleet.simulated,
        "source": fleet.source,
        "groups": [_group(one) for one in found],
        "failures": [{**one, "label": fleet.names.get((one["node"], one["gpu"]))} for one in fleet.failures],
        "damaged": fleet.damaged,
    }


def _group(found: Findings) -> dict[str, Any]:
    group, worth = found.group, found.worth
    return {
        "title": group.title,
        "facts": group.facts,
        "nodes": len({gpu.node for gpu in group.gpus}),
        "gpus": [_gpu(found, code) for code in range(len(group.gpus))],
        "spread": {figure: _spread(spread) for figure, spread in found.spreads.items()},
        "slowness": [
            {"condition": one.condition, "where": one.where, "r": one.r.to_dict()} for one in found.correlates
        ],
        "worth": worth
        and {
            "gpu": group.gpus[worth.gpu].id,
            "label": group.gpus[worth.gpu].label,
            "time": worth.time.to_dict(),
            "energy": worth.energy.to_dict(),
            "verdict": worth.verdict,
        },
        "sensor_gain_pct": found.gain_pct,
        "energy_spread_within_sensor_gain": found.hides_in_gain,
    }


def _spread(spread: Spread) -> dict[str, Any]:
    components = spread.split.components if spread.split is not None else ()
    return {
        "range": spread.range.to_dict(),
        "range_measured": spread.observed_range,
        "iqr_over_median": spread.quartiles.to_dict(),
        "variance": {part.level: {"sd": part.sd.to_dict(), "share": part.share.to_dict()} for part in components},
    }


def _gpu(found: Findings, code: int) -> dict[str, Any]:
    gpu = found.group.gpus[code]
    return {
        "node": gpu.node,
        "gpu": gpu.id,
        "label": gpu.label,
        **{name: gpu.facts.get(name) for name in ("serial", "pci_bus", "index")},
        "runs": int((found.group.runs["gpu"] == code).sum()),
        **{figure: _place(spread, code) for figure, spread in found.spreads.items()},
        **{name: found.group.mean(name, code) for name in _MEANS},
    }


def _place(spread: Spread, code: int) -> dict[str, Any] | None:
    place = next((place for place in spread.places if place.gpu == code), None)
    if place is None:
        return None
    figures = {name: getattr(place, name).to_dict() for name in ("value", "off", "rank")}
    return {**figures, "best": place.best, "outlier": place.outlier or None}
