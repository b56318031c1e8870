"""All figures of a fleet's report on one group of GPUs: computed once, shown in several ways."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from jouletrace.addons.fleet.names import is_meant
from jouletrace.addons.fleet.plan import COLLECTIVE, TOGETHER
from jouletrace.addons.fleet.results import Fleet, Group
from jouletrace.addons.fleet.slowness import Correlate, at_equal_temperature, correlates, temperature_slope
from jouletrace.addons.fleet.spread import FIGURES, Spread
from jouletrace.run import Estimate

AUTOCORRELATED = "autocorrelated_windows"
"""Flag of a figure whose successive windows are correlated."""

_MEANS = ("clock_mhz", "counted_mhz", "temperature_c", "idle_w", "context_idle_w", "power_cap_share")

WORTH = 0.01
"""Default relative gain from which a specific GPU is worth requesting."""


@dataclass(frozen=True)
class Skew:
    """Differences between the start times of GPUs with a common start, in seconds.

    Attributes:
        most, median: Over repeats and hosts; None without data.
        n: Number of such starts.
        reason: Why it is missing.
    """

    most: float | None = None
    median: float | None = None
    n: int = 0
    reason: str | None = None


@dataclass(frozen=True)
class Worth:
    """Whether a specific GPU is worth requesting.

    Attributes:
        gpu: Its code.
        time, energy: Relative saving against one of the others picked at random; null for time
            where all take the same by construction.
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
        skew: Skew of the starts.
        correlates: Correlates of slowness.
        slope: Relative change of time per degree.
        cooler: Distance of each GPU from the mean at equal temperature, by code.
        worth: Of the requested GPU, or of the best one.
        gain_pct: Gain error of the power sensors that can't be detected.
    """

    group: Group
    spreads: dict[str, Spread]
    skew: Skew
    correlates: list[Correlate]
    slope: Estimate
    cooler: dict[int, Estimate]
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
    return Findings(
        group,
        spreads,
        start_skew(group),
        correlates(group),
        temperature_slope(group),
        at_equal_temperature(group),
        _worth(group, spreads, ask, worth),
        float(np.nanmax(gains)) if np.isfinite(gains).any() else None,
    )


def asked_for(group: Group, ask: str) -> int | None:
    """The code of the named GPU; None if it isn't in this group, or the name is ambiguous."""
    wanted = ask.strip().lower()
    found = [code for code, g in enumerate(group.gpus) if is_meant(ask, g.node, g.id, g.label)]
    exact = [code for code in found if group.gpus[code].id.lower() == wanted]
    found = exact or found
    return found[0] if len(found) == 1 else None


def start_skew(group: Group) -> Skew:
    """Skew of the start times of processes with a common start, on each host separately."""
    if group.facts["workload"] == COLLECTIVE:
        return Skew(reason="collective")
    if group.facts["placement"] != TOGETHER:
        return Skew(reason="in_turn")
    if group.runs["virtual_time"].all():
        return Skew(reason="virtual_time")
    starts: dict[tuple[int, int], list[int]] = {}
    for node, repeat, start_ns in zip(
        *(group.runs[name].tolist() for name in ("node", "repeat", "start_ns")), strict=True
    ):
        starts.setdefault((node, repeat), []).append(start_ns)
    apart = [(max(own) - min(own)) / 1e9 for own in starts.values() if len(own) > 1]
    if not apart:
        return Skew(reason="one_gpu")
    return Skew(max(apart), float(np.median(apart)), len(apart))


def _worth(group: Group, spreads: dict[str, Spread], ask: str | None, limit: float) -> Worth | None:
    places = spreads["time_s"].places
    if spreads["time_s"].alike:
        places = spreads["energy_j"].places  # the remaining criterion
    code = asked_for(group, ask) if ask is not None else places[0].gpu if len(places) > 1 else None
    if code is None:
        return None
    time = spreads["time_s"].gain(code)
    verdict = "no" if spreads["time_s"].alike else "undecided"
    if time.low is not None and time.high is not None:
        verdict = "yes" if time.low >= limit else "no" if time.high < limit else "undecided"
    return Worth(code, time, spreads["energy_j"].gain(code), verdict)


def to_dict(fleet: Fleet, found: list[Findings]) -> dict[str, Any]:
    """The object that ``fleet report --json`` prints."""
    return {
        "schema": 1,
        "simulated": fleet.simulated,
        "source": fleet.source,
        "groups": [_group(one) for one in found],
        "failures": [{**one, "label": fleet.name(str(one["node"]), str(one["gpu"]))} for one in fleet.failures],
        "damaged": fleet.damaged,
    }


def _group(found: Findings) -> dict[str, Any]:
    group = found.group
    worth = found.worth
    return {
        "title": group.title,
        "facts": group.facts,
        "nodes": len({gpu.node for gpu in group.gpus}),
        "gpus": [_gpu(found, code) for code in range(len(group.gpus))],
        "spread": {
            figure: {
                "range": spread.range.to_dict(),
                "range_measured": spread.observed_range,
                "iqr_over_median": spread.quartiles.to_dict(),
                "variance": {
                    part.level: {"sd": part.sd.to_dict(), "share": part.share.to_dict()} for part in spread.components
                },
                "windows": _windows(spread),
            }
            for figure, spread in found.spreads.items()
        },
        "start_skew_s": asdict(found.skew),
        "slowness": [
            {"condition": one.condition, "where": one.where, "r": one.r.to_dict()} for one in found.correlates
        ],
        "temperature_slope_per_c": found.slope.to_dict(),
        "worth": None
        if worth is None
        else {
            "gpu": group.gpus[worth.gpu].id,
            "label": group.gpus[worth.gpu].label,
            "time": worth.time.to_dict(),
            "energy": worth.energy.to_dict(),
            "verdict": worth.verdict,
        },
        "sensor_gain_pct": found.gain_pct,
        "energy_spread_within_sensor_gain": found.hides_in_gain,
    }


def _windows(spread: Spread) -> dict[str, Any] | None:
    """Number of windows of a run, number of equivalent independent ones, and why these differ."""
    found = spread.once.correlation if spread.once is not None else None
    if found is None:
        return None
    return {
        "per_run": float(found.windows.mean()),
        "effective_per_run": found.effective,
        "autocorrelation": found.rho.to_dict(),
        "flags": [AUTOCORRELATED] if found.seen else [],
    }


def _gpu(found: Findings, code: int) -> dict[str, Any]:
    gpu, cooler = found.group.gpus[code], found.cooler.get(code)
    return {
        "node": gpu.node,
        "gpu": gpu.id,
        "label": gpu.label,
        **{name: gpu.facts.get(name) for name in ("serial", "pci_bus", "index")},
        "runs": int((found.group.runs["gpu"] == code).sum()),
        **{figure: _place(spread, code) for figure, spread in found.spreads.items()},
        **{name: mean_of(found.group, name, code) for name in _MEANS},
        "off_at_equal_temperature": cooler.to_dict() if cooler is not None else None,
    }


def _place(spread: Spread, code: int) -> dict[str, Any] | None:
    place = next((place for place in spread.places if place.gpu == code), None)
    if place is None:
        return None
    told = {name: getattr(place, name).to_dict() for name in ("value", "off", "rank")}
    return {**told, "best": place.best, "outlier": place.outlier or None}


def mean_of(group: Group, name: str, code: int) -> float | None:
    """Mean of a column over the runs of a GPU; None without values."""
    values = group.runs[name][group.runs["gpu"] == code]
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
