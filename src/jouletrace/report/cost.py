"""The cost and the emissions of an energy, at a price and a carbon intensity that the user gives.

There are no tables of countries here: such factors change by the hour, and a wrong one would look measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from jouletrace.analysis.facts import Facts
from jouletrace.errors import BadInputError
from jouletrace.report.headline import ENERGY, Headline, together
from jouletrace.report.kinds import worded
from jouletrace.run import Estimate, Run
from jouletrace.run.parts import Parts
from jouletrace.words import reasons
from jouletrace.words.scale import NBSP, decimals, figure, fixed, number, unit_for

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


@dataclass(frozen=True)
class Tariff:
    """The cost and the emissions of a kWh, as given.

    Attributes:
        price: Per kWh; None if it isn't given.
        currency: Of the price, as written; "" if it isn't named.
        carbon_g: Grams of CO2 equivalent per kWh; None if they aren't given.
    """

    price: float | None = None
    currency: str = ""
    carbon_g: float | None = None

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
        return f"≈ {', '.join(said)}{f' per {per}' if per else ''} at {self.given} (given, not measured{what})"

    @property
    def given(self) -> str:
        """As it was given: "0.3 EUR/kWh, 400 g/kWh"."""
        price = [] if self.price is None else [f"{self.price:g} {self.currency}/kWh"]
        return ", ".join(price + ([] if self.carbon_g is None else [f"{number(self.carbon_g, 3)} g/kWh"]))

    def cost(self, energy: Estimate) -> Estimate:
        """Cost of an energy in J, in the currency: its interval is that of the energy."""
        return energy.scaled((self.price or 0.0) / J_PER_KWH)

    def emitted(self, energy: Estimate) -> Estimate:
        """Grams of CO2 equivalent of an energy in J."""
        return energy.scaled((self.carbon_g or 0.0) / J_PER_KWH)

    def to_dict(self, energy: Estimate, per: str, stated: Callable[[Estimate], dict[str, Any]]) -> dict[str, Any]:
        """The object "cost" of JSON, its figures as ``stated`` writes them; other arguments as of ``line``.

        They have no budgets, since the gain of the sensor is in these intervals alone.
        """
        none, energy = Estimate.null("not_given"), replace(energy, budget={})
        return {
            "per": per or None,
            "price_per_kwh": self.price,
            "currency": self.currency or None,
            "carbon_g_per_kwh": self.carbon_g,
            "cost": stated(none if self.price is None else self.cost(energy)),
            "co2e_g": stated(none if self.carbon_g is None else self.emitted(energy)),
        }


def tariff(price: str | None, carbon: str | None) -> Tariff | None:
    """A tariff of ``--price`` ("0.30 EUR/kWh", "0.30EUR") and ``--carbon`` ("400 g/kWh", "0.4 kg/kWh").

    Raises:
        BadInputError: If one of them is neither, names no unit, or is more than any grid emits.
    """
    if price is None and carbon is None:
        return None
    given = Tariff()
    if price is not None:
        cost = _PRICE.fullmatch(price.strip())
        if cost is None:
            raise BadInputError(f"--price {price!r}: write a price per kWh such as 0.30EUR/kWh")
        currency = (cost[3] or cost[1] or "").strip()
        if currency.lower() in ("", "kwh"):
            raise BadInputError(f"--price {price}: name the currency, such as {cost[2]}EUR/kWh")
        given = Tariff(_finite(cost[2], f"--price {price}"), currency)
    if carbon is None:
        return given
    mass = _CARBON.fullmatch(carbon.strip())
    if mass is None:
        raise BadInputError(f"--carbon {carbon!r}: write grams of CO2 equivalent per kWh such as 400g/kWh")
    if not mass[2]:
        raise BadInputError(f"--carbon {carbon}: name the unit, such as {mass[1]}g/kWh")
    grams = _finite(mass[1], f"--carbon {carbon}") * (1e3 if mass[2].lower() == "kg" else 1.0)
    if grams > _MOST_G:
        raise BadInputError(f"--carbon {carbon}: {grams:g} g/kWh is more than any grid emits: is the unit right?")
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
    if given is None:
        return []
    kind, lines = worded(run, results), list[str]()
    prices = [(*priced(run, results, run_facts), "")] if kind is None else kind.prices(run, results, run_facts)
    for energy, per, whose in prices[1:] or prices:
        if energy.value is not None:
            lines.append(given.line(energy, per, of_gpu=run_facts.gain > 0))
        elif kind is not None:
            lines.append(f"no cost per {per}{whose}: no {kind.LEVEL} states it")
        elif per:
            lines.append(f"no cost: {reasons.reason(energy.reason)}")
    return lines
