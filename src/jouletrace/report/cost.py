"""The cost and the emissions of an energy, at a price and a carbon intensity that the user gives.

There are no tables of countries here: such factors change by the hour, and a wrong one would look measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jouletrace.analysis.facts import Facts
from jouletrace.errors import BadInputError
from jouletrace.report.headline import ENERGY, Headline, together
from jouletrace.report.kinds import worded
from jouletrace.report.table import Column
from jouletrace.run import Estimate, Run
from jouletrace.run.forms import Settings
from jouletrace.run.parts import Parts
from jouletrace.words import reasons
from jouletrace.words.scale import (
    HOURS,
    KWH,
    NBSP,
    PERCENT,
    PrintedUnit,
    decimals,
    figure,
    fixed,
    number,
    quantity,
    unit_for,
)

J_PER_KWH, LEAST_KWH = 3.6e6, 0.1
"""Joules of a kWh; the kWh from which on an energy is stated in these, not Wh."""

_SOME = "some_devices"
"""Flag of an energy that others, which were watched too, have not."""

_MANY = 1e6
"""Iterations, samples or tokens whose cost is stated: one costs far less than a cent."""

_MOST_G = 5000.0
"""Grams of CO2 equivalent per kWh beyond which the unit must be wrong: lignite emits a quarter of it."""

_DIGITS = 3
"""Significant digits of a cost: a price has no more, and a GPU's sensor is known to some percent."""

_PRICE = re.compile(r"([^\d\s.,/-]{1,4}\s*)?([0-9]*\.?[0-9]+)\s*([^\d\s.,/-]{1,4})?(?:\s*/\s*kWh)?", re.IGNORECASE)
_CARBON = re.compile(r"([0-9]*\.?[0-9]+)\s*(kg|g)?(?:\s*CO2e?q?)?(?:\s*/\s*kWh)?", re.IGNORECASE)


def cost_columns(currencies: Sequence[str], *, carbon: bool) -> list[Column]:
    """A column of costs for each currency, and one of CO2 equivalent where there is some."""
    keys = [f"cost_{currency}" if len(currencies) > 1 else "cost" for currency in currencies]
    units = [PrintedUnit(1.0, currency) for currency in currencies]
    costs = [Column("cost", unit=unit, ends=True, key=key) for unit, key in zip(units, keys, strict=True)]
    return [*costs, *([Column("CO2e", unit="g", ends=True, key="co2e_g")] if carbon else [])]


@dataclass(frozen=True)
class Tariff:
    """The cost and the emissions of a kWh, as given.

    Attributes:
        price: Per kWh; None if it isn't given.
        currency: Of the price, as written; "" if it isn't named.
        carbon_g: Grams of CO2 equivalent per kWh; None if they aren't given.
        usual: What counts where neither this nor a Run states a factor; None for nothing.
        in_place_of: Factors of the Run that it replaces, in words; "" for none.
    """

    price: float | None = None
    currency: str = ""
    carbon_g: float | None = None
    usual: Tariff | None = None
    in_place_of: str = ""

    def line(self, energy: Estimate, per: str = "", *, of_gpu: bool = False) -> str:
        """Cost and emissions: "≈ 0.4 kWh, 0.12 ± 0.01 EUR, 170 ± 9 g CO2e per ... at 0.30 EUR/kWh, 400 g/kWh (...)".

        Args:
            energy: In joules, with its absolute uncertainty as the interval.
            per: Of what it is; "" for all that was recorded.
            of_gpu: Whether to say that it is of the GPU alone, with its sensor's gain.
        """
        said = [f"{kwh(energy.value)}"]
        if self.price is not None:
            said.append(_three(self.cost(energy), self.currency))
        if self.carbon_g is not None:
            said.append(f"{_three(self.emitted(energy), 'g')} CO2e")
        what = "; of the GPU alone, ± with its sensor's gain" if of_gpu else ""
        what += "; of some of the devices" if _SOME in energy.flags else ""
        what += "; without the record's holes" if "covered_alone" in energy.flags else ""
        what += f"; the Run states {self.in_place_of}" if self.in_place_of else ""
        return f"≈ {', '.join(said)}{f' per {per}' if per else ''} at {self.given} (given, not measured{what})"

    @property
    def given(self) -> str:
        """As it was given: "0.3 EUR/kWh, 400 g/kWh"."""
        price = [] if self.price is None else [f"{self.price:g} {self.currency}".rstrip() + "/kWh"]
        return ", ".join(price + ([] if self.carbon_g is None else [f"{number(self.carbon_g, 3)} g/kWh"]))

    @property
    def settings(self) -> Settings:
        """Its factors, as a Run keeps them."""
        price = Settings() if self.price is None else Settings(price_per_kwh=self.price, currency=self.currency)
        return price if self.carbon_g is None else {**price, "carbon_g_per_kwh": self.carbon_g}

    def cost(self, energy: Estimate) -> Estimate:
        """Cost of an energy in J, in the currency, with the interval of the energy; null without a price."""
        return Estimate.null("not_given") if self.price is None else energy.scaled(self.price / J_PER_KWH)

    def emitted(self, energy: Estimate) -> Estimate:
        """Grams of CO2 equivalent of an energy in J; null if they aren't given."""
        none = Estimate.null("not_given")
        return none if self.carbon_g is None else energy.scaled(self.carbon_g / J_PER_KWH)

    def to_dict(self, energy: Estimate, per: str, stated: Callable[[Estimate], dict[str, Any]]) -> dict[str, Any]:
        """The object "cost" of JSON, its figures as ``stated`` writes them; other arguments as of ``line``.

        They have no budgets, since the gain of the sensor is in these intervals alone.
        """
        energy = replace(energy, budget={})
        return {
            "per": per or None,
            "price_per_kwh": self.price,
            "currency": self.currency or None,
            "carbon_g_per_kwh": self.carbon_g,
            "in_place_of": self.in_place_of or None,
            "cost": stated(self.cost(energy)),
            "co2e_g": stated(self.emitted(energy)),
        }


@dataclass(frozen=True)
class Bill:
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
            "co2e_g": grams.to_dict(),
            "gpu_s": seconds,
            "share_at_rest": rest,
        }

    def words(self, energy: Estimate, grams: Estimate) -> str:
        """The same in words, without time: "≈ 4.05 kWh, 1.22 EUR, 1.62 kg CO2e"."""
        cost = [] if self.tariff.price is None else [quantity(self.tariff.cost(energy).value, self.tariff.currency)]
        cost += [f"{quantity(grams.value, 'g')} CO2e"] if self.carbon and grams.value is not None else []
        return ", ".join([f"≈ {kwh(energy.value)}", *cost])


def tariff_of(run: Run, given: Tariff | None) -> Tariff | None:
    """The tariff of a Run: each factor as it is given, else as the Run keeps it, else as is usual; None without any."""
    stated, given = run.settings, given or Tariff()
    kept = Tariff(stated.get("price_per_kwh"), stated.get("currency") or "", stated.get("carbon_g_per_kwh"))
    every = (given, kept, given.usual or Tariff())
    priced_by = next((one for one in every if one.price is not None), Tariff())
    emitted_by = next((one for one in every if one.carbon_g is not None), Tariff())
    replaced = Tariff(
        None if (kept.price, kept.currency) == (priced_by.price, priced_by.currency) else kept.price,
        kept.currency,
        None if kept.carbon_g == emitted_by.carbon_g else kept.carbon_g,
    )
    used = Tariff(priced_by.price, priced_by.currency, emitted_by.carbon_g, in_place_of=replaced.given)
    return used if used.given else None


def tariff(price: str | None, carbon: str | None, names: Sequence[str] = ("--price", "--carbon")) -> Tariff | None:
    """A tariff of ``--price`` ("0.30 EUR/kWh", "0.30EUR") and ``--carbon`` ("400 g/kWh", "0.4 kg/kWh").

    ``names`` are those of messages.

    Raises:
        BadInputError: If one of them is neither, names no unit, or is more than any grid emits.
    """
    if price is None and carbon is None:
        return None
    given = Tariff()
    if price is not None:
        cost = _PRICE.fullmatch(price.strip())
        if cost is None:
            raise BadInputError(f"{names[0]} {price!r}: write a price per kWh such as 0.30EUR/kWh")
        currency = (cost[3] or cost[1] or "").strip()
        if currency.lower() in ("", "kwh"):
            raise BadInputError(f"{names[0]} {price}: name the currency, such as {cost[2]}EUR/kWh")
        given = Tariff(_finite(cost[2], f"{names[0]} {price}"), currency)
    if carbon is None:
        return given
    mass = _CARBON.fullmatch(carbon.strip())
    if mass is None:
        raise BadInputError(f"{names[1]} {carbon!r}: write grams of CO2 equivalent per kWh such as 400g/kWh")
    if not mass[2]:
        raise BadInputError(f"{names[1]} {carbon}: name the unit, such as {mass[1]}g/kWh")
    grams = _finite(mass[1], f"{names[1]} {carbon}") * (1e3 if mass[2].lower() == "kg" else 1.0)
    if grams > _MOST_G:
        raise BadInputError(f"{names[1]} {carbon}: {grams:g} g/kWh is more than any grid emits: is the unit right?")
    return Tariff(given.price, given.currency, grams)


def kwh(energy_j: float | None) -> str:
    """An energy in kWh, in which it is paid for, or Wh, to three digits."""
    value = (energy_j or 0.0) / J_PER_KWH
    return f"{number(value, _DIGITS)}{NBSP}kWh" if value >= LEAST_KWH else f"{number(1e3 * value, _DIGITS)}{NBSP}Wh"


def _three(estimate: Estimate, unit: str) -> str:
    """A figure with its half-width, to three significant digits."""
    if estimate.value is None:
        return figure(estimate, unit)
    scale = unit_for([estimate.value], unit)
    value, half = estimate.value / scale.factor, (estimate.half_width or 0.0) / scale.factor
    places = decimals(value, _DIGITS)
    within = f" ±{NBSP}{fixed(max(math.ceil(half * 10**places), 1) / 10**places, places)}" if half else ""
    return f"{number(value, _DIGITS)}{within}{NBSP}{scale.name}"


def _finite(text: str, option: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadInputError(f"{option}: too large")
    return value


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
        return replace(drawn, flags=(*drawn.flags, _SOME)) if partial else drawn, ""
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
