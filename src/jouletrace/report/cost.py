"""What a Run costs and emits: at which tariff, of which energy; and the lines of a bill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jouletrace.analysis.facts import Facts
from jouletrace.report.headline import ENERGY, Headline, together
from jouletrace.report.kinds import worded
from jouletrace.report.table import Column
from jouletrace.report.tariffs import SOME, Tariff, kwh
from jouletrace.run import Estimate, Run
from jouletrace.run.parts import Parts
from jouletrace.words import reasons
from jouletrace.words.scale import HOURS, KWH, PERCENT, PrintedUnit, quantity
from jouletrace.words.text import printable

_MANY = 1e6
"""Iterations, samples or tokens whose cost is stated: one costs far less than a cent."""


def tariff_of(run: Run, given: Tariff | None) -> Tariff | None:
    """The tariff of a Run: each factor as it is given, else as the Run keeps it, else as is usual; None without any."""
    stated, given = run.settings, given or Tariff()
    kept = Tariff(stated.get("price_per_kwh"), stated.get("currency") or "", stated.get("carbon_g_per_kwh"))
    every = (given, kept, given.usual or Tariff())
    priced_by = next((tariff for tariff in every if tariff.price is not None), Tariff())
    emitted_by = next((tariff for tariff in every if tariff.carbon_g is not None), Tariff())
    replaced = Tariff(
        None if (kept.price, kept.currency) == (priced_by.price, priced_by.currency) else kept.price,
        kept.currency,
        None if kept.carbon_g == emitted_by.carbon_g else kept.carbon_g,
    )
    used = Tariff(priced_by.price, priced_by.currency, emitted_by.carbon_g, in_place_of=replaced.given)
    return used if used.given else None


def priced(run: Run, results: Parts, run_facts: Facts) -> tuple[Estimate, str]:
    """The energy whose cost is stated, in J, and of what it is: "" for all that was recorded.

    Its interval is the absolute uncertainty, with gain and offset of the sensor.
    """
    if (kind := worded(run, results)) is not None:
        return kind.prices(run, results, run_facts)[0][:2]
    whole = Headline.from_part(run, results.whole, ENERGY).absolute
    if run.kind not in ("profile", "ab"):
        if whole.value is not None or run_facts.together.value is None:
            return whole, ""
        drawn = Headline.from_part(run, together(results, run_facts), ENERGY).absolute
        partial = run_facts.of_devices[ENERGY].value is None
        return replace(drawn, flags=(*drawn.flags, SOME)) if partial else drawn, ""
    token = Headline.from_part(run, results.whole, "energy_per_token_j").absolute
    if token.value is not None:
        return token.scaled(_MANY), "million new tokens"
    items = run.workload.get("items") or 1
    return whole.scaled(_MANY / items), "million samples" if items > 1 else "million iterations"


def cost_line(run: Run, results: Parts, run_facts: Facts, given: Tariff | None) -> list[str]:
    """The line below a verdict; none without an energy, which the verdict says, but of a load's price."""
    if (used := tariff_of(run, given)) is None:
        return []
    kind, lines = worded(run, results), list[str]()
    prices = [(*priced(run, results, run_facts), "")] if kind is None else kind.prices(run, results, run_facts)
    for energy, per, whose in prices[1:] or prices:
        if energy.value is not None:
            lines.append(used.line(energy, per, of_gpu=run_facts.gain > 0))
        elif kind is not None:
            lines.append(f"no cost per {per}{whose}: no {kind.LEVEL} states it")
        elif per:
            lines.append(f"no cost: {reasons.reason(energy.reason)}")
    return lines


def cost_columns(currencies: Sequence[str], *, carbon: bool) -> list[Column]:
    """A column of costs for each currency, and one of CO2 equivalent where there is some."""
    costs = [
        Column("cost", unit=PrintedUnit(1.0, printable(currency)), ends=True, key=f"cost_{currency}")
        for currency in currencies
    ]
    return [*costs, *([Column("CO2e", unit="g", ends=True, key="co2e_g")] if carbon else [])]


@dataclass(frozen=True)
class GpuBill:
    """What all lines of a bill of GPUs state: energy, cost and CO2 equivalent, time, and the share of it at rest.

    Attributes:
        tariff: Of its costs.
        carbon: Whether CO2 equivalent is stated.
    """

    tariff: Tariff
    carbon: bool

    def columns(self) -> list[Column]:
        """The columns of ``cells``."""
        return [
            Column("energy", unit=KWH, ends=True, key="energy_j"),
            *cost_columns([] if self.tariff.price is None else [self.tariff.currency], carbon=self.carbon),
            Column("GPU time", unit=HOURS, key="gpu_s"),
            Column("at rest", unit=PERCENT, key="share_at_rest"),
        ]

    def cells(self, energy: Estimate, grams: Estimate, seconds: float, rest: float | None) -> list[Any]:
        """The cells of a line: its energy in J, CO2 equivalent in g, GPU seconds, and share of these at rest."""
        cost = [] if self.tariff.price is None else [self.tariff.cost(energy)]
        return [energy, *cost, *([grams] if self.carbon else []), seconds or None, rest]

    def to_dict(self, energy: Estimate, grams: Estimate, seconds: float, rest: float | None) -> dict[str, Any]:
        """The same as an object of JSON."""
        return {
            "energy_j": energy.to_dict(),
            "cost": None if self.tariff.price is None else self.tariff.cost(energy).to_dict(),
            "currency": self.tariff.currency or None,
            "co2e_g": grams.to_dict() if self.carbon else None,
            "gpu_s": seconds,
            "share_at_rest": rest,
        }

    def words(self, energy: Estimate, grams: Estimate) -> str:
        """The same in words, without time: "≈ 4.05 kWh, 1.22 EUR, 1.62 kg CO2e"."""
        cost = [] if self.tariff.price is None else [quantity(self.tariff.cost(energy).value, self.tariff.currency)]
        cost += [f"{quantity(grams.value, 'g')} CO2e"] if self.carbon and grams.value is not None else []
        return ", ".join([f"≈ {kwh(energy.value)}", *cost])
