"""Energy that a change of the program could save: rules over what a Run stores, as data."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow.compute as pc

from jouletrace.analysis.checks import Outcomes
from jouletrace.analysis.conditions import first
from jouletrace.analysis.divided import added, summed
from jouletrace.analysis.rules import NO
from jouletrace.run import Estimate, Run
from jouletrace.run.division import divisions_of
from jouletrace.run.forms import Recording
from jouletrace.run.parts import ABSENT, CAUSES, Part, Parts
from jouletrace.run.paths import Path
from jouletrace.run.recording_names import IDLE_NAME, WAITING
from jouletrace.run.roles import in_fp32, role_of

LEAST, MOST = 0.1, 3
"""Share of the whole from which advice is given, and the largest number of rules that are named."""

RANKS, RANK_AT_CAP = "ranks", "rank_at_cap"
"""Codes of the rules that name a GPU."""

_CAPPED = 0.05
"""Share of the time at the power cap by which one GPU must exceed all others."""

_ONCE, _MOST_ONCE = 0.01, 5
"""Least share of the recorded time, and largest number, of times without a kernel that set up: they don't recur."""

_LAUNCHED = ("eager", "compile")
"""Modes of a profile in which the host launches each kernel."""


@dataclass(frozen=True)
class Advice:
    """A finding of one rule.

    Attributes:
        code: Of the rule.
        energy: That a change could save at most, J.
        share: Of the energy of the whole.
        where: The GPU that others wait for; "" of other rules.
    """

    code: str
    energy: Estimate
    share: float
    where: str = ""


def _host(run: Run, parts: Parts, checks: Outcomes) -> Estimate:
    """Of a program the time between kernels that launching takes; of a profile all of it, or what it is at most."""
    if run.kind == "program":
        return _of_idle(run, parts, "host", "between launches")
    if run.settings.get("mode") not in _LAUNCHED:
        return ABSENT
    idle = added(part.get("energy_total_j") for part in parts.units("op") if part.name == IDLE_NAME)
    return idle if idle.value is not None else _unlaunched(parts, first(checks.conditions)["power_limit_w"])


def _unlaunched(parts: Parts, limit_w: float | None) -> Estimate:
    """Idle power over the time that is left if the GPU did its work at its power limit, where the host limits, J."""
    power, work, time = parts.get("power_idle_at_work_w"), parts.get("energy_work_j"), parts.time
    if power.value is None or work.value is None or not time.value or not limit_w or limit_w <= power.value:
        return ABSENT
    left = time.value - work.value / (limit_w - power.value)
    half = math.hypot((power.half_width or 0.0) * left, power.value * (time.half_width or 0.0))
    return Estimate(power.value * left, power.value * left - half, power.value * left + half)


def _of_idle(run: Run, parts: Parts, *causes: str) -> Estimate:
    """Energy of the time between kernels by these causes, without what sets up, J.

    The cause of single times isn't stored: they count to each into which they fit.
    """
    devices = {one.get("name", ""): one.get("device", "") for one in run.workload.get("recordings", ())}

    def recurring(cause: Part) -> Estimate:
        device = devices.get(cause.gpu, "")
        own = run.activity.filter(pc.fill_null(pc.equal(run.activity["device"], device), True))
        start, end = (own.sort_by("start_ns")[name].to_numpy() / 1e9 for name in ("start_ns", "end_ns"))
        until = np.maximum.accumulate(end)
        longest = np.sort(start[1:] - until[:-1])[::-1][:_MOST_ONCE]
        whole = left = cause.get("time_s").value or 0.0
        for once in longest[longest > _ONCE * (until[-1] - start[0])] if len(own) else ():
            left -= float(once) if once <= left else 0.0
        return cause.get("energy_total_j").scaled(left / whole if whole else 0.0)

    names = {CAUSES[one] for one in causes}
    return added(recurring(part) for part in parts.units("cause") if part.name in names)


def _last(run: Run, checks: Outcomes) -> tuple[str, bool]:
    """The GPU that comes last in most collectives, and whether its power cap holds it, but not the others."""

    def held(one: Recording) -> float:
        known = checks.conditions.get(one.get("device", ""))
        return ((known and known["throttle_reasons"]) or {}).get("sw_power_cap", 0.0)

    ranked = sorted((one for one in run.workload.get("recordings", ()) if "last" in one), key=lambda one: one["last"])
    others, capped = [held(one) for one in ranked[:-1]], held(ranked[-1]) if ranked else 0.0
    return ranked[-1].get("name", "") if ranked else "", capped - max(others, default=0.0) >= _CAPPED


def _waits(run: Run, parts: Parts, checks: Outcomes, *, capped: bool) -> Estimate:
    """Energy of waiting for other ranks, if the last one is at its power cap or if it isn't, J."""
    waits = (part.get("energy_total_j") for part in parts.units("phase") if part.name == WAITING)
    return added(waits) if _last(run, checks)[1] == capped else ABSENT


RULES: dict[str, Callable[[Run, Parts, Outcomes], Estimate]] = {
    "host": _host,
    "data_loader": lambda run, parts, _: _of_idle(run, parts, "data loading"),
    "synchronisation": lambda run, parts, _: _of_idle(run, parts, "synchronisation"),
    RANKS: lambda run, parts, checks: _waits(run, parts, checks, capped=False),
    RANK_AT_CAP: lambda run, parts, checks: _waits(run, parts, checks, capped=True),
}
"""Codes with the energy at stake while no kernel works, J."""

SOFTMAX, BATCHED = "softmax", "product of attention"
"""Kinds of kernels of attention that runs operator by operator."""

OF_KERNELS: dict[str, Callable[[str, str, str], object]] = {
    "math_attention": lambda name, op, attention: attention,
    "fp32": lambda name, op, _: in_fp32(name),
    "layout": lambda name, op, _: re.search(r"nchwToNhwc|nhwcToNchw", name, re.IGNORECASE),
    "copies": lambda name, op, _: role_of(name, op) == "copy",
}
"""Codes with the kernels that they are of, by their names, operators, and kinds in attention; the first that applies
counts."""


def _of_kernels(run: Run, parts: Parts) -> dict[str, Estimate]:
    """Energy of the kernels of each rule, J, with the covariance of their powers where the Run stores it."""
    divisions, found = divisions_of(run), defaultdict[str, list[Estimate]](list)

    def names(path: Path) -> tuple[str, str]:
        words = {step.kind: step.name for step in path}
        return words.get("kernel", ""), words.get("op", "").removeprefix("aten.")

    listed = [] if divisions else parts.units("kernel")
    rows = [[names(path) for path in one.path] for one in divisions] or [[names(part.path) for part in listed]]
    kernels = {one for some in rows for one in some}
    products = [one for one in kernels if role_of(one[0]) == "product"]
    mixed = len({in_fp32(name) for name, _ in products}) > 1
    # compiled code names no operator of products: torch converts what is narrower to fp32 for those of attention
    kinds = {one: BATCHED for one in products if one[1].endswith("bmm") or (not one[1] and mixed and in_fp32(one[0]))}
    kinds |= {one: SOFTMAX for one in kernels if role_of(*one) == "softmax"}
    if len(set(kinds.values())) < 2 or any(role_of(*one) == "attention" for one in kernels):
        kinds = {}
    codes = {
        one: [code for code, applies in OF_KERNELS.items() if applies(*one, kinds.get(one, ""))][:1] for one in kernels
    }
    for part in listed:
        for code in codes[names(part.path)]:
            found[code].append(part.get("energy_total_j"))
    for division, some in zip(divisions, rows, strict=False):
        for code, seconds in division.grouped(codes[one] for one in some).items():
            found[code].append(division.energy(seconds, remainder=True))
    known = {code: [one for one in energies if one.value is not None] for code, energies in found.items()}
    join = partial(summed, alike=True) if len(divisions) > 1 else added
    return {code: join(energies) for code, energies in known.items() if energies}


def advice_of(run: Run, parts: Parts, checks: Outcomes) -> list[Advice]:
    """Findings on a profile or a program, the largest first: none below ``LEAST`` of the whole, or that may be 0.

    No joule belongs to two of them. There are none where the figures are in doubt.
    """
    whole = parts.get("energy_total_j").value
    if run.kind not in ("profile", "program") or not whole or checks.level == NO:
        return []
    stakes = {code: stake(run, parts, checks) for code, stake in RULES.items()} | _of_kernels(run, parts)
    shares = {code: energy.scaled(1 / whole) for code, energy in stakes.items()}
    found = [
        Advice(code, stakes[code], share.value, _last(run, checks)[0] if code in (RANKS, RANK_AT_CAP) else "")
        for code, share in shares.items()
        if share.value is not None and share.value >= LEAST and (share.low or 0.0) >= 0
    ]
    return sorted(found, key=lambda one: -one.share)[:MOST]
