"""Prices and carbon intensities that the user gives, and energies at them.

There are no tables of countries here: such factors change by the hour, and a wrong one would look measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError
from jouletrace.run import Estimate
from jouletrace.words.scale import NBSP, decimals, figure, fixed, number, unit_for

if TYPE_CHECKING:  # a program starts before what its Run needs is imported
    from jouletrace.run.forms import Settings

J_PER_KWH, LEAST_KWH = 3.6e6, 0.1
"""Joules of a kWh; the kWh from which on an energy is stated in these, not Wh."""

SOME = "some_devices"
"""Flag of an energy that others, which were watched too, have not."""

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
        usual: What counts where neither this nor a Run states a factor; None if nothing does.
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
        what += "; of some of the devices" if SOME in energy.flags else ""
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
        price: Settings = {} if self.price is None else {"price_per_kwh": self.price, "currency": self.currency}
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
