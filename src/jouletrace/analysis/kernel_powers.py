"""Powers of the kernels of a recording by the regression, and energies of seconds of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.kernel_times import KernelTimes, Kinds
from jouletrace.analysis.power import most_kernels_w, no_power_reason
from jouletrace.analysis.regressed import fitted
from jouletrace.attribution.checks import check_powers, p_of_powers
from jouletrace.attribution.contrasts import Contrasts, Row, by_operator, pools
from jouletrace.attribution.fit import Fit
from jouletrace.errors import BadInputError
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.channels import POWER


class KernelPowers:
    """Powers of kinds of kernels.

    Attributes:
        fit: The regression.
        most_w: What the GPU can draw at most.
        p_value: Of the powers, if the GPU draws no more than ``most_w``.
        pools: Names of operators whose energies are known together alone.
    """

    def __init__(self, fit: Fit, times: KernelTimes, most_w: float) -> None:
        self.fit, self.most_w, self.p_value = fit, most_w, p_of_powers(fit, most_w)
        self._total_s = times.total_s
        index = {kind: str(i) for i, kind in enumerate(times.kinds) if not kind.repeat}
        self._contrasts = Contrasts(fit, lambda kind: index[kind], most_w)
        self._place = {i: self._contrasts.names.index(name) for i, name in enumerate(index.values())}
        operators = {kind.operator for kind in times.kinds}

        def near(name: str) -> str:
            return name.split(" ", maxsplit=1)[0] if name in operators else ""

        self.pools = [names for names in pools(fit, by_operator, near, most_w) if len(names) > 1]

    def drawn(self, kinds: Kinds, idle_s: float = 0.0) -> Row:
        """What some seconds of kinds draw."""
        return self._contrasts.mixture(self._amounts(kinds, idle_s))

    def determines(self, kinds: Kinds, idle_s: float = 0.0) -> bool:
        """Whether the readings determine that."""
        amounts = self._amounts(kinds, idle_s)
        return self._contrasts.determines(amounts) and (not idle_s or bool(amounts[-1] > 0))

    def sources(self, kinds: Kinds, idle_s: float = 0.0) -> dict[str, float]:
        """Standard uncertainties of that by their sources, J."""
        return self._contrasts.sources(self._amounts(kinds, idle_s))

    def _amounts(self, kinds: Kinds, idle_s: float) -> NDArray[np.float64]:
        """How much of each row of the fit some seconds of kinds are: of a kind the share of all that it ran for."""
        idle = self._contrasts.seconds[-1]
        amounts = np.zeros(len(self._contrasts.names))
        for kind, some in kinds.items():
            if self._total_s[kind] > 0:
                amounts[self._place[kind]] += some / self._total_s[kind]
        amounts[-1] = idle_s / idle if idle > 0 else 0.0
        return amounts


def powers_of(run: Run, times: KernelTimes, rest: Estimate) -> KernelPowers | str:
    """Powers of a Run's kernels, or the code of the reason why there are none, of which the Run warns.

    ``rest`` is what the GPU draws with a context and nothing running, W.
    """
    if run.channel(times.device, POWER) is None:
        return no_power_reason(run, times.device)
    try:
        fit, doubt = fitted(run, times, rest)
    except BadInputError as error:
        doubt = str(error)
    else:
        run.warnings = [
            one
            for one in run.warnings
            if one.code not in ("not_attributed", "powers_doubtful") or one.where not in ("", times.device)
        ]
    name = times.about.get("name") if times.top != MODEL_UNIT else None
    whose = f" of {name}" if name else ""
    if doubt:
        where = times.device if times.top != MODEL_UNIT else ""
        run.warn("not_attributed", f"no energies of kernels{whose}: {doubt}", where)
        return "not_attributed"
    found = KernelPowers(fit, times, most_kernels_w(run, times.device))
    check = check_powers(found.p_value, found.most_w)
    if not check.passed:
        run.warn("powers_doubtful", f"{check.says}: single rows{whose} may be off by more than ±", times.device)
    return found
