"""Energy that a change of the program could save: rules over what a Run stores, as data."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np
import pyarrow.compute as pc

from jouletrace.analysis.checks import Outcomes
from jouletrace.analysis.conditions import first
from jouletrace.analysis.divided import added, divided, summed
from jouletrace.analysis.rules import NO
from jouletrace.run import Estimate, Run
from jouletrace.run.division import divisions_of
from jouletrace.run.forms import RecordingFacts
from jouletrace.run.metrics import BEST, WORK
from jouletrace.run.parts import ABSENT, CAUSES, Part, Parts
from jouletrace.run.paths import Path, names_of
from jouletrace.run.recording_names import IDLE_NAME, WAITING, of_equal_layers
from jouletrace.run.roles import in_fp32, role_of

LEAST, MOST = 0.1, 3
"""Share of the whole from which advice is given, and the largest number of rules that are named."""

RANKS, RANK_AT_CAP = "ranks", "rank_at_cap"
"""Codes of the rules that name a GPU."""

FAR, _FAR = "far_from_best", 0.3
"""Code of the rule on operators far from the best rate of their GPU, and the share of that below which they are."""

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
        where: The GPU that others wait for, the module that launches most of the kernels, or the operator with its
            rate; "" where there is none.
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

    Idle before and after the part that was recorded is in no cause.
    The cause of single times isn't stored: they count to each into which they fit.
    """
    devices = {
        recording.get("name", ""): recording.get("device", "") for recording in run.workload.get("recordings", ())
    }

    def recurring(cause: Part) -> Estimate:
        activity = run.activity.filter(pc.fill_null(pc.equal(run.activity["device"], devices.get(cause.gpu, "")), True))
        start, end = (activity.sort_by("start_ns")[name].to_numpy() / 1e9 for name in ("start_ns", "end_ns"))
        until = np.maximum.accumulate(end)
        gaps = np.sort(np.maximum(start[1:] - until[:-1], 0.0))[::-1]
        whole = cause.get("time_s").value or 0.0
        idle_s = sum(beside.get("time_s").value or 0.0 for beside in parts.units("cause") if beside.gpu == cause.gpu)
        if not whole or not gaps.any():
            return cause.get("energy_total_j")
        left = whole * min(float(gaps.sum()) / idle_s, 1.0)
        longest = gaps[:_MOST_ONCE]
        for once in longest[longest > _ONCE * (until[-1] - start[0])]:
            left -= float(once) if once <= left else 0.0
        return cause.get("energy_total_j").scaled(left / whole)

    names = {CAUSES[cause] for cause in causes}
    return added(recurring(part) for part in parts.units("cause") if part.name in names)


def _last(run: Run, checks: Outcomes) -> tuple[str, bool]:
    """The GPU that comes last in most collectives, and whether its power cap holds it, but not the others."""

    def held(recording: RecordingFacts) -> float:
        conditions = checks.conditions.get(recording.get("device", ""))
        return ((conditions and conditions["throttle_reasons"]) or {}).get("sw_power_cap", 0.0)

    ranked = sorted(
        (recording for recording in run.workload.get("recordings", ()) if "last" in recording),
        key=lambda recording: recording["last"],
    )
    others, capped = [held(recording) for recording in ranked[:-1]], held(ranked[-1]) if ranked else 0.0
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


Site = tuple[str, str, str, str, bool]
"""A kernel with what launches it: module, equal layers as one, and operator ("" where unknown), the name of the kernel,
its role, and whether it computes in fp32."""

OF_KERNELS: dict[str, Callable[[Site, bool], object]] = {
    "math_attention": lambda site, attention: attention,
    "fp32_attention": lambda site, _: site[4] and site[3] == "attention",
    "fp32": lambda site, _: site[4],
    "layout": lambda site, _: re.search(r"nchwToNhwc|nhwcToNchw", site[2], re.IGNORECASE),
    "host_copies": lambda site, _: re.search(r"memcpy (DtoH|HtoD)", site[2]),
    "copies": lambda site, _: site[3] == "copy",
}
"""Codes with the kernels that they are of, by their sites and whether these are of attention; the first that applies
counts."""

_BESIDE = ("copy", "elementwise")
"""Roles of kernels beside the products and the softmax of attention: scaling, masks, conversions."""


def _of_kernels(run: Run, parts: Parts) -> dict[str, tuple[Estimate, str]]:
    """Energy of the kernels of each rule, J, and the module inside another that launches half and more of them.

    The energy has the covariance of their powers where the Run stores it; equal layers are one module.
    """
    divisions, by_rule = divisions_of(run), defaultdict[str, list[Estimate]](list)
    spent = defaultdict[str, defaultdict[str, float]](lambda: defaultdict(float))

    def at(path: Path) -> Site:
        names = names_of(path)
        op, kernel = names["op"], names["kernel"]
        return of_equal_layers(names["module"]), op, kernel, role_of(kernel, op), in_fp32(kernel)

    def of_attention(sites: Collection[Site]) -> set[Site]:
        """Those of attention that runs operator by operator; none beside an attention that is one kernel."""
        by_role = defaultdict[str, list[Site]](list)
        for site in sites:
            by_role[site[3]].append(site)
        products, softmax = by_role["product"], by_role["softmax"]
        mixed = len({fp32 for *_, fp32 in products}) > 1
        # compiled code names no operator of products: torch converts what is narrower to fp32 for those of attention
        batched = [site for site in products if site[1].endswith("bmm") or (not site[1] and mixed and site[4])]
        if not batched or not softmax or by_role["attention"]:
            return set()
        modules = {site[0] for site in batched} & {site[0] for site in softmax} - {""}
        return {*batched, *softmax, *(site for role in _BESIDE for site in by_role[role] if site[0] in modules)}

    listed = [] if divisions else parts.units("kernel")
    rows = [[at(path) for path in division.path] for division in divisions] or [[at(part.path) for part in listed]]
    sites = {site for some in rows for site in some}
    attention = of_attention(sites)
    codes = {
        site: [code for code, applies in OF_KERNELS.items() if applies(site, site in attention)][:1] for site in sites
    }
    for part in listed:
        site = at(part.path)
        for code in codes[site]:
            by_rule[code].append(part.get("energy_total_j"))
            spent[code][site[0]] += part.get("time_s").value or 0.0
    for division, some in zip(divisions, rows, strict=False):
        for site, seconds in zip(some, division.column("seconds"), strict=True):
            for code in codes[site]:
                spent[code][site[0]] += seconds
        for code, seconds in division.grouped(codes[site] for site in some).items():
            by_rule[code].append(division.energy(seconds, remainder=True))
    stated = {code: [energy for energy in energies if energy.value is not None] for code, energies in by_rule.items()}
    join = partial(summed, alike=True) if len(divisions) > 1 else added
    where = {}
    for code, modules in spent.items():
        name = max(modules, key=modules.__getitem__)
        where[code] = name if "." in name and modules[name] >= sum(modules.values()) / 2 else ""
    stakes = {code: (join(energies), where[code]) for code, energies in stated.items() if energies}
    if not any("rates" in calibration for calibration in run.calibration.values()):
        return stakes
    return stakes | _far_from_best(run, {site[1] for site in sites if codes[site]})


def _limited(run: Run) -> Iterator[tuple[str, Estimate, Estimate, float]]:
    """Operators of a GPU whose best rates are known: name, share of that which limits it, energy, J by FLOP or byte.

    None is faster than its FLOPs at the best rate of their format, nor than its bytes at that of copies: the larger
    share is that of what limits it.
    """
    for row in divided(run, ["op"]) if len(run.divided) else ():
        pairs = zip(BEST, WORK.values(), strict=True)
        both = [(row.get(name), row.get(each)) for name, each in pairs]
        share, each = max(both, key=lambda pair: pair[0].value or 0.0)
        if share.value and each.value and not any(limit.reason == "no_best_rate" for limit, _ in both):
            yield row.path[-1].name if row.path else "", share, row.get("energy_total_j"), each.value


def _far_from_best(run: Run, advised: Collection[str]) -> dict[str, tuple[Estimate, str]]:
    """Energy that operators far from the best rates of their GPU would save, J, and the one that would save most.

    A faster kernel draws more power: a saving in proportion to time would be too large. So the work of each would take
    what the same takes in others with its limit, the median of those that aren't far. Without such others it takes less
    in proportion to its share over ``_FAR``, from which on it would not be named. Of ``advised`` another rule speaks.
    """
    every, savings = list(_limited(run)), list[tuple[Estimate, str]]()
    least = LEAST * (run.result("energy_total_j").value or 0.0)
    for op, share, energy, each_j in every:
        rate, by = share.value or 0.0, share.method
        others = [j for _, other, _, j in every if other.method == by and (other.value or 0.0) >= _FAR]
        takes = median(others) / each_j if others else rate / _FAR
        if op and op not in advised and rate < _FAR and takes < 1 and (energy.value or 0.0) >= least:
            best = by if by == "copy" else f"{by} rate"
            savings.append((energy.scaled(1 - takes), f"{op} at {100 * rate:.0f} % of the best {best}"))
    savings.sort(key=lambda saving: -(saving[0].value or 0.0))
    return {FAR: (added(energy for energy, _ in savings), savings[0][1])} if savings else {}


def advice_of(run: Run, parts: Parts, checks: Outcomes) -> list[Advice]:
    """Findings on a profile or a program, the largest first: none below ``LEAST`` of the whole, or that may be 0.

    No joule belongs to two of them. There are none where the figures are in doubt.
    """
    whole = parts.get("energy_total_j").value
    if run.kind not in ("profile", "program") or not whole or checks.level == NO:
        return []
    last = {code: _last(run, checks)[0] for code in (RANKS, RANK_AT_CAP)}
    stakes = {code: (stake(run, parts, checks), last.get(code, "")) for code, stake in RULES.items()}
    stakes |= _of_kernels(run, parts)
    shares = {code: energy.scaled(1 / whole) for code, (energy, _) in stakes.items()}
    advised = [
        Advice(code, stakes[code][0], share.value, stakes[code][1])
        for code, share in shares.items()
        if share.value is not None and share.value >= LEAST and (share.low or 0.0) >= 0
    ]
    return sorted(advised, key=lambda advice: -advice.share)[:MOST]
