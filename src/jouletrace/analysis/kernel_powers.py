"""Powers of the kernels of a recording, with their covariance."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.kernel_times import IDLE, KernelTimes
from jouletrace.analysis.pools import by_operator, pools
from jouletrace.analysis.power import most_kernels_w, no_power_reason
from jouletrace.analysis.regressed import Recorded, recorded
from jouletrace.analysis.rules import doubt, says
from jouletrace.attribution.outcome import Outcome
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.program import Rows
from jouletrace.attribution.rows import PRIOR_SHARE, check_powers, check_rest
from jouletrace.errors import BadInputError
from jouletrace.run import MODEL_UNIT, Estimate, Run
from jouletrace.run.channels import POWER
from jouletrace.run.division import RESPONSE, Powers
from jouletrace.stats.interval import Z95

Array = NDArray[np.float64]

READINGS = "noise of the readings"
"""Source of the uncertainty of a kernel's energy, beside ``RESPONSE``."""

_LEAST = 1e-12
"""Least eigenvalue of a correlation of powers, which kinds that always run at once would make 0."""


class KernelPowers:
    """Powers of kinds of kernels, but repeats.

    Attributes:
        recorded: The recording.
        rows: Energies of all of it and of its kinds.
        of_kinds: Powers of the kinds, idle last, over the time that their kernels take.
        place: Of each kind of the recording in them; those of unknown power are in none.
        pools: Names of operators whose energies are known together alone.
    """

    def __init__(self, recording: Recorded, times: KernelTimes, most_w: float) -> None:
        self.recorded, self.rows = recording, recording.rows()
        self.of_kinds, self.place = powers_of_kinds(recording, self.rows, times.total_s, most_w)
        self._kinds = list(self.place)
        groups: dict[str, Array] = {}
        for kind, place in self.place.items():
            group = groups.setdefault(by_operator(times.kinds[kind]), np.zeros(len(self.of_kinds.watts)))
            group[place] = times.total_s[kind]
        if recording.activity.seconds[-1] > 0:
            self.place[IDLE] = len(self.of_kinds.watts) - 1
        operators = {kind.operator for kind in times.kinds}
        found = pools(self.of_kinds, groups, lambda name: name.split(" ", maxsplit=1)[0] if name in operators else "")
        self.pools = [names for names in found if len(names) > 1]

    def seconds(self, edges_s: Array) -> Array:
        """Seconds of kinds as ``of_kinds`` has them, idle last, between each two edges, shape (edges - 1, kinds)."""
        activity = self.recorded.activity
        columns = activity.timeline.seconds(edges_s)
        rest = np.diff(edges_s) - columns.sum(axis=1)
        return np.column_stack([(columns @ activity.shares)[:, self._kinds], rest]) / self.of_kinds.own

    @cached_property
    def possible(self) -> Outcome:
        """The check that the GPU can draw the powers."""
        return check_powers(self.rows, float(self.of_kinds.most_w[0]))


def powers_of(run: Run, times: KernelTimes, rest: Estimate) -> KernelPowers | str:
    """Powers of a Run's kernels, or the code of the reason why there are none, of which the Run warns.

    ``rest`` is what the GPU draws with a context and nothing running, W.
    """
    if run.channel(times.device, POWER) is None:
        return no_power_reason(run, times.device)
    most_w, found = most_kernels_w(run, times.device), None
    try:
        recording, why = recorded(run, times, rest)
        if not why:
            found = KernelPowers(recording, times, most_w)
            why = doubt([check_rest(found.rows, float(recording.activity.seconds[-1]))])
    except BadInputError as error:
        why = str(error)
    else:
        run.warnings = [
            one
            for one in run.warnings
            if one.code not in ("not_attributed", "powers_doubtful") or one.where not in ("", times.device)
        ]
    name = times.about.get("name") if times.top != MODEL_UNIT else None
    whose = f" of {name}" if name else ""
    if why or found is None:
        where = times.device if times.top != MODEL_UNIT else ""
        run.warn("not_attributed", f"no energies of kernels{whose}: {why}", where)
        return "not_attributed"
    if not found.possible.passed:
        run.warn(
            "powers_doubtful", f"{says(found.possible)}: single rows{whose} may be off by more than ±", times.device
        )
    return found


def powers_of_kinds(recording: Recorded, rows: Rows, total_s: Array, most_w: float) -> tuple[Powers, dict[int, int]]:
    """Powers of kinds of kernels but repeats, idle last, and the place of each kind in them.

    A kernel's energy is the power of its kind times its time; kernels that run at once share the power equally. What
    all of the recording has beyond its kernels is idle. So rows of any grouping add up to the whole, less repeats.

    Args:
        recording: The recording.
        rows: Its energies, of which the first is that of all of it.
        total_s: Time that the kernels of each kind took, shape (kinds,); energies are of times in proportion to it.
        most_w: None of them draws more.
    """
    activity = recording.activity
    ran = (rows.seconds > 0) & (total_s > 0)
    kinds = [k for k, kind in enumerate(activity.kinds) if ran[k] and not kind.repeat]
    each, rest_s = np.eye(len(rows.seconds)), max(float(activity.seconds[-1]), 1e-9)
    weights = rows.together(np.vstack([each[kinds] / total_s[kinds, None], -np.ones(len(each)) / rest_s]))
    weights[-1, 0] = 1 / rest_s
    watts, covariance = rows.energies.moments(weights)
    several = np.array([len(members) > 1 for members in activity.members])
    overlapped = (activity.seconds[:-1] * several) @ activity.shares
    scale = np.append(total_s[kinds], 1.0)
    prior, left, sensor = (
        np.pad(part[np.ix_(kinds, kinds)], (0, 1)) / np.outer(scale, scale)
        for part in (rows.before, rows.after, rows.by_sensor)
    )
    prior[-1, -1], left[-1, -1] = recording.idle_w[1] ** 2 + Prior().rest_w ** 2, covariance[-1, -1]
    prior_w, root = np.sqrt(np.diag(prior)), _root(covariance)
    white = np.linalg.inv(_root(left))
    powers = Powers(
        watts=watts,
        own=np.append(rows.seconds[kinds] / total_s[kinds], 1.0),
        overlapped=np.append(overlapped[kinds] / total_s[kinds], 0.0),
        most_w=np.full(len(watts), most_w),
        prior_w=prior_w,
        tracing_w=np.zeros(len(watts)),
        readings=len(recording.lock.fit.watts),
        coverage=Z95,
        root=root,
        causes={READINGS: white @ (left - sensor) @ white.T, RESPONSE: np.eye(len(watts))},
        gained=(PRIOR_SHARE**2 * prior - left) / np.outer(prior_w, prior_w),
    )
    return powers, {kind: place for place, kind in enumerate(kinds)}


def _root(covariance: Array) -> Array:
    """A lower triangle whose product with its transpose is this covariance."""
    scale = np.sqrt(np.diag(covariance))
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    triangle = np.asarray(np.linalg.qr((vectors * np.sqrt(np.maximum(values, _LEAST))).T, mode="r"))
    return np.asarray(scale[:, None] * triangle.T)
