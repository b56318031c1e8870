"""Powers of the kernels of a recording by the regression."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.kernel_times import IDLE, KernelTimes
from jouletrace.analysis.power import most_kernels_w, no_power_reason
from jouletrace.analysis.regressed import fitted
from jouletrace.attribution.checks import check_powers, p_of_powers
from jouletrace.attribution.contrasts import by_operator, pools, powers_of_kinds
from jouletrace.attribution.fit import Fit
from jouletrace.errors import BadInputError
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.channels import POWER


class KernelPowers:
    """Powers of kinds of kernels.

    Attributes:
        fit: The regression.
        of_kinds: Its powers by kind, idle last.
        place: Of each kind of the recording in them; those of unknown power are in none.
        p_value: Of the powers, if the GPU draws no more than is possible.
        pools: Names of operators whose energies are known together alone.
    """

    def __init__(self, fit: Fit, times: KernelTimes, most_w: float) -> None:
        self.fit, self.p_value = fit, p_of_powers(fit, most_w)
        self.of_kinds, self.place = powers_of_kinds(fit, times.total_s, most_w)
        groups: dict[str, NDArray[np.float64]] = {}
        for kind, place in self.place.items():
            group = groups.setdefault(by_operator(times.kinds[kind]), np.zeros(len(self.of_kinds.watts)))
            group[place] = times.total_s[kind]
        if fit.activity.seconds[-1] > 0:
            self.place[IDLE] = len(self.of_kinds.watts) - 1
        operators = {kind.operator for kind in times.kinds}
        found = pools(self.of_kinds, groups, lambda name: name.split(" ", maxsplit=1)[0] if name in operators else "")
        self.pools = [names for names in found if len(names) > 1]


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
    most_w = most_kernels_w(run, times.device)
    found = KernelPowers(fit, times, most_w)
    check = check_powers(found.p_value, most_w)
    if not check.passed:
        run.warn("powers_doubtful", f"{check.says}: single rows{whose} may be off by more than ±", times.device)
    return found
