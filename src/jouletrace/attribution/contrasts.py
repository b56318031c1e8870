"""Energies of kernels as linear combinations of the powers, which add up; and what the readings can't distinguish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jouletrace.attribution.activity import Kind
from jouletrace.attribution.fit import Fit
from jouletrace.run import Estimate

Array = NDArray[np.float64]

PRIOR_SHARE = 0.25
"""Largest standard deviation of a row with figures over the prior's: readings determine it, not the prior."""

SMALL = 0.01
"""Largest share of busy time without figures."""

IDLE = "idle"
METHOD = "regression on the kernel timeline"


@dataclass(frozen=True)
class Row:
    """Energy of one thing, or of several together."""

    seconds: float  # time in which it ran; time in which n kernels ran counts 1/n
    energy: Estimate  # energy of the GPU while it ran, J
    overlapped: float  # share of ``seconds`` in which other kinds ran too; it gets an equal share of the energy there

    @property
    def relative(self) -> float:
        """Half-width of the energy's interval over its value; infinite where there is none."""
        half = self.energy.half_width
        return half / abs(self.energy.value) if half is not None and self.energy.value else float("inf")


class Contrasts:
    """Linear combinations of a fit's powers, with their covariance.

    A kernel's energy is the power of its kind times its time, corrected for the clock; kernels that run at the same
    time share the power equally. So the rows of any grouping add up to the whole, less the energy of repeats. ``group``
    names the row to which a kind belongs; none draws more than ``most_w``.
    """

    def __init__(self, fit: Fit, group: Callable[[Kind], str], most_w: float = np.inf) -> None:
        activity = fit.activity
        self.fit, self.most_w = fit, most_w
        self.names: list[str] = []
        index: dict[str, int] = {}
        for kind in activity.kinds:
            if not kind.repeat and group(kind) not in index:
                index[group(kind)] = len(self.names)
                self.names.append(group(kind))
        self.names.append(IDLE)
        length = activity.end_s - activity.start_s
        above = (fit.power_w[:-1] - fit.power_w[-1])[activity.column]
        slow = np.bincount(activity.column, above * activity.slowness * length, len(activity.members))
        self.weights = np.zeros((len(self.names), len(activity.members) + 2))
        self.overlapped = np.zeros(len(self.names))
        for k, members in enumerate(activity.members):
            for member in members:
                if activity.kinds[member].repeat:
                    continue
                row = index[group(activity.kinds[member])]
                self.weights[row, k] += activity.seconds[k] / len(members)
                self.weights[row, -1] += slow[k] / len(members)
                self.overlapped[row] += activity.seconds[k] / len(members) * (len(members) > 1)
        self.weights[-1, len(activity.members)] = activity.seconds[-1]
        self._x = np.append(fit.power_w, fit.clock_exponent)

    @property
    def seconds(self) -> Array:
        """Time of each row, idle last, shape (rows,)."""
        return np.asarray(self.weights[:, :-1].sum(axis=1))

    def row(self, which: Iterable[int]) -> Row:
        """The sum of some rows of the grouping."""
        return self.mixture(self._once(which))

    def mixture(self, amounts: Array) -> Row:
        """A linear combination of rows of the grouping, idle last, by ``amounts`` of shape (rows,)."""
        weight = amounts @ self.weights
        seconds, energy = float(weight[:-1].sum()), float(weight @ self._x)
        half = self.fit.errors95 * float(np.sqrt(weight @ self.fit.covariance @ weight))
        count = len(self.fit.watts)
        return Row(
            seconds=seconds,
            energy=Estimate(energy, energy - half, energy + half, count, METHOD),
            overlapped=float(amounts @ self.overlapped / seconds) if seconds > 0 else 0.0,
        )

    def sources(self, amounts: Array) -> dict[str, float]:
        """Standard uncertainty of a combination by its sources, J; their squares add up to its variance."""
        weight = amounts @ self.weights
        whole = float(weight @ self.fit.covariance @ weight)
        found, before = {}, 0.0
        for name, covariance in self.fit.covariances.items():
            after = min(max(float(weight @ covariance @ weight), before), whole)
            found[name], before = float(np.sqrt(after - before)), after
        return found

    def resolved(self, which: Sequence[int]) -> bool:
        """Whether the readings determine a sum of rows."""
        return self.determines(self._once(which))

    def _once(self, which: Iterable[int]) -> Array:
        """Coefficient 1 for some rows of the grouping, 0 for the others."""
        amounts = np.zeros(len(self.names))
        amounts[list(which)] = 1.0
        return amounts

    def determines(self, amounts: Array) -> bool:
        """Whether the readings determine a combination: its interval is narrow, and not by the prior alone.

        Idle power may be determined by its prior alone, which is a measurement. A power that no GPU draws is none.
        """
        weight = amounts @ self.weights
        prior = float(np.sqrt(weight @ self.fit.prior_covariance @ weight))
        posterior = float(np.sqrt(weight @ self.fit.design_covariance @ weight))
        measured = posterior <= PRIOR_SHARE * prior or not amounts[:-1].any()
        row = self.mixture(amounts)
        drawn = row.energy.value or 0.0
        return measured and row.relative <= 0.5 and 0.0 <= drawn <= self.most_w * row.seconds


def pools(
    fit: Fit, group: Callable[[Kind], str], near: Callable[[str], str] = lambda name: "", most_w: float = np.inf
) -> list[tuple[str, ...]]:
    """Rows of a grouping whose energy the readings resolve, each alone or pooled with others; largest energy first.

    ``group`` names the row of a kind. Unresolved rows of the same ``near`` (operator, module; "" for none) become one
    row. What is still unresolved becomes one row too. If it takes more than ``SMALL`` of the time, it joins the
    shortest row with which it is resolved, or else that with which their sum is known best: short kernels in fixed
    order end in one row, whose energy is well known though theirs isn't. A rest below ``SMALL`` is in no row.
    No row draws more than ``most_w``.
    """
    contrasts = Contrasts(fit, group, most_w)
    idle = len(contrasts.names) - 1
    seconds = contrasts.seconds
    alone = [[i] for i in range(idle) if seconds[i] > 0]
    good = [pool for pool in alone if contrasts.resolved(pool)]
    families: dict[str, list[int]] = {}
    for (i,) in (pool for pool in alone if pool not in good):
        families.setdefault(near(contrasts.names[i]) or contrasts.names[i], []).append(i)
    good += [family for family in families.values() if contrasts.resolved(family)]
    rest = [i for family in families.values() if not contrasts.resolved(family) for i in family]

    def relative(pool: list[int]) -> float:
        return contrasts.row([*pool, *rest]).relative

    while rest and good and not contrasts.resolved(rest) and seconds[rest].sum() > SMALL * seconds[:idle].sum():
        mine = {near(contrasts.names[i]) for i in rest} - {""}
        beside = [pool for pool in good if mine & {near(contrasts.names[i]) for i in pool}]
        near_or_any = beside or good
        enough = [pool for pool in near_or_any if contrasts.resolved([*pool, *rest])]
        partner = min(enough, key=lambda pool: seconds[pool].sum()) if enough else min(near_or_any, key=relative)
        good.remove(partner)
        rest = [*partner, *rest]
    if rest and contrasts.resolved(rest):
        good.append(rest)
    good.sort(key=lambda pool: -(contrasts.row(pool).energy.value or 0.0))
    return [tuple(contrasts.names[i] for i in sorted(pool)) for pool in good]


def by_operator(kind: Kind) -> str:
    """Groups kernels by operator, or by name where the operator is unknown."""
    return kind.operator or kind.name
