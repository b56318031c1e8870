"""All figures of a fleet's report on one group of GPUs: computed once, shown in several ways."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jouletrace.arrays import Floats, Ints
from jouletrace.report.tariffs import Tariff
from jouletrace.run import Estimate
from jouletrace.sensor.gain import gain_between, shown
from jouletrace.stats.contrast import with_gain
from jouletrace.stats.interval import Z95, expanded
from jouletrace.wings.fleet.plan import is_meant
from jouletrace.wings.fleet.results import Fleet, Group
from jouletrace.wings.fleet.spread import FIGURES, FleetSpread

CONDITIONS = {
    "clock_mhz": "SM clock",
    "counted_mhz": "SM clock, measured",
    "temperature_c": "temperature",
    "power_w": "power",
    "power_cap_share": "time under the power cap",
    "thermal_share": "time throttled for heat",
}
BETWEEN, WITHIN = "between GPUs", "between runs of a GPU"

_METHOD = "Pearson's r"
_LEAST = 5


@dataclass(frozen=True)
class Correlate:
    """Pearson's correlation of one of ``CONDITIONS`` with the time of an iteration, ``BETWEEN`` or ``WITHIN`` GPUs."""

    condition: str
    where: str
    r: Estimate


def correlates(group: Group) -> list[Correlate]:
    """Correlates of slowness, the strongest first; those that can't be estimated come last."""
    found = []
    for condition in CONDITIONS:
        time, other = group.runs["time_s"], group.runs[condition]
        known = np.isfinite(time) & np.isfinite(other)
        gpu = group.runs["gpu"][known]
        (means, rest), (others, other_rest) = _by_gpu(time[known], gpu), _by_gpu(other[known], gpu)
        found.append(Correlate(condition, BETWEEN, _correlation(means, others, len(means))))
        found.append(Correlate(condition, WITHIN, _correlation(rest, other_rest, len(gpu) - len(means) + 1)))
    return sorted(found, key=lambda one: -abs(one.r.value) if one.r.value is not None else 1.0)


def _by_gpu(values: Floats, gpu: Ints) -> tuple[Floats, Floats]:
    """The mean of each GPU, and each value less its GPU's mean."""
    _, place = np.unique(gpu, return_inverse=True)
    means = np.bincount(place, values) / np.bincount(place) if len(values) else np.zeros(0)
    return means, values - means[place]


def _correlation(x: Floats, y: Floats, n: int) -> Estimate:
    """Pearson's r, with its interval by Fisher's z (Fisher 1921, Metron 1:3), for ``n`` independent pairs.

    The interval is that of z transformed back, so it lies within -1 and 1 and isn't symmetric about r. Each mean of
    a GPU that was removed costs one pair, as other variables that are held constant do (Fisher 1924, Metron 3:329).
    """
    if n < _LEAST:
        return Estimate.null("few_gpus", _METHOD)
    dx, dy = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((dx**2).sum() * (dy**2).sum()))
    if scale <= 1e-12 * float(np.abs(x).max() * np.abs(y).max() + 1e-300):
        return Estimate.null("did_not_vary", _METHOD)
    r = float(np.clip((dx * dy).sum() / scale, -1, 1))
    z, half = float(np.arctanh(np.clip(r, -0.999999, 0.999999))), Z95 / float(np.sqrt(n - 3))
    return Estimate(r, min(float(np.tanh(z - half)), r), max(float(np.tanh(z + half)), r), n, _METHOD)


_MEANS = ("clock_mhz", "counted_mhz", "temperature_c", "idle_w", "context_idle_w", "power_cap_share", "hardware_share")

WORTH = 0.01
"""Default relative gain from which a specific GPU is worth requesting."""


@dataclass(frozen=True)
class Worth:
    """The answer to whether a specific GPU is worth requesting.

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
    """The findings on a group: spread by figure, correlates of slowness, worth of the requested or the best GPU.

    ``gain_pct`` is the gain error of the power sensors, which can't be detected.
    """

    group: Group
    spreads: dict[str, FleetSpread]
    correlates: list[Correlate]
    worth: Worth | None
    gain_pct: float | None

    @property
    def gain(self) -> float:
        """Relative gain error between the sensors of the GPUs."""
        return gain_between(*[(self.gain_pct or 0.0) / 100] * len(self.group.gpus))

    @property
    def hour(self) -> Estimate:
        """Energy of all GPUs together in an hour, in J, with the gain of their sensors in the interval."""
        power = self.spreads["power_w"].total
        if (watts := power.value) is None:
            return power
        half = expanded(power.half_width or 0.0, [(self.gain_pct or 0.0) / 100 * watts])
        return replace(power, low=watts - half, high=watts + half).scaled(3600.0)

    @property
    def energy_range(self) -> Estimate:
        """The range of the energies with the gain of two sensors in its interval, as ``compare`` has it."""
        return with_gain(self.spreads["energy_j"].range, self.gain)

    @property
    def hides_in_gain(self) -> bool:
        """True if the differences in energy can't be distinguished from the gain errors of two sensors."""
        return self.energy_range.value is not None and self.gain > 0 and not shown(self.energy_range)


def find(group: Group, ask: str | None = None, worth: float = WORTH) -> Findings:
    """Compute all findings.

    ``ask`` is the GPU in question: its name or place, or a beginning of its UUID; None for the fastest. ``worth`` is
    the relative gain that counts.
    """
    spreads = {figure: FleetSpread(group, figure) for figure in FIGURES}
    gains = group.runs["gain_pct"]
    gain_pct = float(np.nanmax(gains)) if np.isfinite(gains).any() else None
    return Findings(group, spreads, correlates(group), _worth(group, spreads, ask, worth), gain_pct)


def asked_for(group: Group, ask: str) -> int | None:
    """The code of the named GPU; None if it isn't in this group, or the name is ambiguous."""
    found = [code for code, g in enumerate(group.gpus) if is_meant(ask, g.node, g.id, g.label)]
    exact = [code for code in found if group.gpus[code].id.lower() == ask.strip().lower()]
    found = exact or found
    return found[0] if len(found) == 1 else None


def _worth(group: Group, spreads: dict[str, FleetSpread], ask: str | None, limit: float) -> Worth | None:
    places = spreads["time_s"].places
    code = asked_for(group, ask) if ask is not None else places[0].gpu if len(places) > 1 else None
    if code is None:
        return None
    time = spreads["time_s"].gain(code)
    verdict = "undecided"
    if time.low is not None and time.high is not None:
        verdict = "yes" if time.low >= limit else "no" if time.high < limit else "undecided"
    return Worth(code, time, spreads["energy_j"].gain(code), verdict)


def to_dict(fleet: Fleet, found: list[Findings], tariff: Tariff | None = None) -> dict[str, Any]:
    """The object that ``fleet report --json`` prints."""
    return {
        "schema": 2,
        "simulated": fleet.simulated,
        "source": fleet.source,
        "groups": [_group(one, tariff) for one in found],
        "failures": [{**one, "label": fleet.names.get((one["node"], one["gpu"]))} for one in fleet.failures],
        "damaged": fleet.damaged,
    }


def _group(found: Findings, tariff: Tariff | None) -> dict[str, Any]:
    group, worth = found.group, found.worth
    return {
        **({} if tariff is None else {"cost": tariff.to_dict(found.hour, "hour", Estimate.to_dict)}),
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
        "total": {name: found.spreads[name].total.to_dict() for name in ("power_w", "energy_j")},
        "sensor_gain_pct": found.gain_pct,
        "energy_range_with_gain": found.energy_range.to_dict(),
        "energy_spread_within_sensor_gain": found.hides_in_gain,
    }


def _spread(spread: FleetSpread) -> dict[str, Any]:
    components = spread.split.components if spread.split is not None else ()
    return {
        "mean": {**spread.mean.to_dict(), "of": "gpus"},
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


def _place(spread: FleetSpread, code: int) -> dict[str, Any] | None:
    place = next((place for place in spread.places if place.gpu == code), None)
    if place is None:
        return None
    figures = {name: getattr(place, name).to_dict() for name in ("value", "off", "rank")}
    return {**figures, "best": place.best, "outlier": place.outlier or None}
