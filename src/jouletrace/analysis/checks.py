"""The checks that are made of a Run and their outcomes, as data; ``report.trust`` words them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow.compute as pc

from jouletrace.analysis.conditions import Conditions, by_device
from jouletrace.analysis.rules import ATTRIBUTION, CARE, INVALID, NO, NONE, YES, rule
from jouletrace.run import Estimate, Run, RunWarning
from jouletrace.run.channels import POWER
from jouletrace.run.info import short_labels
from jouletrace.run.metrics import OF_PARTS
from jouletrace.run.parts import ABSENT, DOUBTFUL, Parts

CLOSED = 0.02
"""Parts whose sum is that close to the whole make it up; tracing itself costs as much (docs/results)."""

ENDINGS = ("interrupted", "failed", "incomplete")
"""Codes of warnings that say that a Run ended early."""

_LEVELS = (YES, CARE, NO)

_DAY_NS = 86_400_000_000_000
"""A calibration that is younger needs no repetition."""

_LONG_THROTTLE = 0.02
"""Share of the time from which lowered clocks qualify a figure."""

_ALL_THAT_IS = ("no_power_reading", "power_all_zero", "not_a_counter", "part_not_measured", "parts_differ")
"""Codes that leave no figure, unless another device or a counter has one."""

_OF_SAMPLES = ("sample_rate", "placebo")
"""Checks of sensors alone that sample."""

_OF_LOADS = ("steady load", "requests answered", "client on time", "the server's GPU", "tokens counted")
"""Checks of a server under load."""

_UNSAID = RunWarning("incomplete", "the run did not end by itself: the figures rest on what was recorded until then")


@dataclass(frozen=True)
class Circumstances:
    """Circumstances of a Run that decide what to do about a check that failed.

    Attributes:
        kind: ``Run.kind``.
        simulated: True if a simulated GPU was measured.
        warmup_s: Length of a warm-up that would be long enough, in seconds.
        max_time_s: Limit of the time for windows that would be long enough, in seconds.
        calibrated: True if its sensors were calibrated less than a day before or after.
    """

    kind: str = "profile"
    simulated: bool = False
    warmup_s: float = 15.0
    max_time_s: float = 60.0
    calibrated: bool = False


@dataclass(frozen=True)
class Failure:
    """A check that was not passed.

    Attributes:
        check: Its name.
        level: ``CARE`` or ``NO``.
        code: Of the warning, flag or reason behind it.
        where: The phase, channel, file, device or devices ("#2, #5") concerned; "" where it is the whole.
        figure: The figure or the share behind it: a null one that is missing, how far parts make the whole, the share
            of the time in which clocks were lowered, at most; None where the code says all.
        message: What is wrong, in words of its own; "" where the code says it.
        action: What to do, where that is stated here; None for that of the code.
        made: How the Run was made.
    """

    check: str
    level: str
    code: str
    where: str = ""
    figure: Estimate | float | None = None
    message: str = ""
    action: str | None = None
    made: Circumstances = Circumstances()


@dataclass(frozen=True)
class Outcomes:
    """Checks that were passed and that were not; made by ``of``.

    Attributes:
        level: The worst level of what failed; ``YES`` if nothing did, ``NONE`` if there is no figure and no doubt.
        asked: Names of all checks that were made.
        passed: Names of those that were passed.
        failed: What was not, the worst first; a check may fail for several reasons.
        claimed: True if there is any figure to trust.
        closure: How far parts make the whole, 1 if they do; null without parts, and of several Runs.
        conditions: Those of each GPU of the Run by its id, on which the check of clocks rests.
    """

    level: str
    asked: tuple[str, ...]
    passed: tuple[str, ...]
    failed: tuple[Failure, ...]
    claimed: bool = True
    closure: Estimate = ABSENT
    conditions: Mapping[str, Conditions] = field(default_factory=dict)


def of(names: Iterable[str], failed: Sequence[Failure], *, claimed: bool = True) -> Outcomes:
    """Outcomes from the names of the checks that were made, what failed, and whether there is a figure to trust."""
    lost = {failure.check for failure in failed}
    asked = tuple(dict.fromkeys([*names, *(failure.check for failure in failed)]))
    ranked = sorted(failed, key=lambda failure: -_LEVELS.index(failure.level))
    worst = ranked[0].level if ranked else YES
    level = worst if claimed or worst == NO else NONE
    return Outcomes(level, asked, tuple(name for name in asked if name not in lost), tuple(ranked), claimed)


def joined(several: Sequence[Outcomes]) -> Outcomes:
    """The outcomes of several together: what failed in any failed."""
    failed = [failure for each in several for failure in each.failed]
    names = [name for each in several for name in each.asked]
    return of(names, failed, claimed=any(each.claimed for each in several))


def outcomes(run: Run, parts: Parts) -> Outcomes:
    """The outcomes of all checks of a Run, whose figures ``parts`` holds, without flags that repeat a warning."""
    under = by_device(run)
    made = _circumstances(run)
    by_code: dict[str, list[Failure]] = {}
    for code, where, figure, message in _raised(run, parts, under):
        check, usual = rule(code)
        level = _level(run, parts, code, usual)
        there = by_code.get(code, [])
        failure = Failure(check, level, code, where, figure, message, None, made)
        if level != YES and failure not in there and (message or figure is not None or not there):
            by_code.setdefault(code, there).append(failure)
    failed = [failure for some in by_code.values() for failure in some]
    stated = run.results["value"].null_count < len(run.results)
    claimed = stated or len(run.windows) > 0 or run.kind == "calibrate"  # that states a sensor's response
    made_of = of(_asked(run, parts, under), failed, claimed=claimed)
    return replace(made_of, closure=parts.get("closure_kernels"), conditions=under)


def endings(run: Run) -> list[RunWarning]:
    """Warnings that a Run ended early, at least one of each that did; none of a whole one."""
    return [] if run.complete else [warning for warning in run.warnings if warning.code in ENDINGS] or [_UNSAID]


def others(run: Run) -> list[RunWarning]:
    """All other warnings of a Run."""
    return [warning for warning in run.warnings if run.complete or warning.code not in ENDINGS]


def doubts(run: Run, name: str) -> list[str]:
    """Codes of what makes the figures of the load of that name invalid."""
    return [warning.code for warning in run.warnings if warning.code in INVALID and warning.where in ("", name)]


def _asked(run: Run, parts: Parts, under: Mapping[str, Conditions]) -> list[str]:
    """Names of the checks that are made of a Run: what its kind and its sensors allow."""
    power = any(run.channel(device.id, POWER) is not None for device in run.devices)
    gpus = any(device.kind != "cpu" for device in run.devices)
    measured = run.kind != "import"
    timed = run.kind in ("profile", "ab")
    there = {name: figure for part in (parts.whole, *parts.gpus.values()) for name, figure in part.figures.items()}
    made = {
        "complete": measured,
        "power sensor": power or measured,
        "power record": power,
        "sensor response": power and measured,
        "other processes": run.kind in ("profile", "ab", "calibrate", "program"),
        "warm-up": timed,
        "idle power": run.kind == "profile" and power,
        "clocks": power and any(conditions["throttle_reasons"] is not None for conditions in under.values()),
        "aliasing": power and timed,
        "precision": timed,
        "inputs and outputs": timed and not run.simulated,  # which knows shapes alone
        "tracing": (run.kind == "program" and gpus) or bool(parts.units("kernel")),
        "parts and whole": any(there[name].value is not None for name in OF_PARTS if name in there),
        "ranges": bool(parts.units("range")) and run.kind in ("record", "monitor", "measure"),
        "ranks": bool(run.settings.get("ranks")) or len(run.workload.get("recordings", ())) > 1,
        "counter of work": bool(run.settings.get("per")),
        **dict.fromkeys(_OF_LOADS, bool(parts.units("load"))),
        "stamps": bool(run.clock_pairs) or not measured,
        "files": not measured,
    }
    names = [name for name, is_made in made.items() if is_made]
    if parts.get("closure_kernels").value is not None and "residual_w" in there:
        lacks = {"averages"} if "sample_rate_hz" in there else {"averages", *_OF_SAMPLES}
        if "powers_possible" not in there or any(warning.code == DOUBTFUL for warning in run.warnings):
            lacks.add("powers")  # a Run of an earlier version; or it is rows that are in doubt, each by itself
        names += [words.check for name, words in ATTRIBUTION.items() if name not in lacks]
    return names


def _raised(
    run: Run, parts: Parts, under: Mapping[str, Conditions]
) -> Iterator[tuple[str, str, Estimate | float | None, str]]:
    """Code, place, figure and message: of warnings, of what is missing of the whole, of flags, of clocks, of parts."""
    for warning in endings(run):  # its words stand at the head of all that is shown
        yield warning.code, "", None, ""
    for warning in others(run):
        yield warning.code, warning.where, None, warning.message
    for where, figure in _missing(run, parts):
        yield figure.reason or "unknown", where, figure, ""
    stated = (
        figure for part in (parts.whole, *parts.all()) for figure in part.figures.values() if figure.value is not None
    )
    for code in dict.fromkeys(code for figure in stated for code in figure.flags):
        yield code, "", None, ""
    if run.kind in ("profile", "ab", "program", "import"):
        yield from _lowered(run, under)
    for where, part in {"": parts.whole, **parts.gpus}.items():
        figure = part.get("closure_kernels")
        if figure.low is None or figure.high is None or "traced_at_cap" in figure.flags:
            continue
        if figure.low > 1 + CLOSED or figure.high < 1 - CLOSED:  # beyond their interval and what tracing costs
            yield "closure", where, figure, ""


def _lowered(run: Run, under: Mapping[str, Conditions]) -> Iterator[tuple[str, str, float, str]]:
    """Each reason for lowered clocks, the GPUs where it was on for long, and the longest share of their time."""
    labels = short_labels(run.devices) if len(under) > 1 else dict.fromkeys(under, "")
    shares_of: dict[str, dict[str, float]] = {}
    for device, conditions in under.items():
        for name, share in (conditions["throttle_reasons"] or {}).items():
            if share >= _LONG_THROTTLE:
                shares_of.setdefault(name, {})[labels[device]] = share
    for name, shares in shares_of.items():
        yield name, ", ".join(shares), max(shares.values()), ""


def _missing(run: Run, parts: Parts) -> Iterator[tuple[str, Estimate]]:
    """Places and figures of energies that are missing: what a Run is made for, or those of all loads."""
    devices, loads = parts.units("device"), parts.units("load")
    unasked = run.kind == "import" and not run.devices  # results of a load without a log of power
    asked = [] if unasked or any(load.get("energy_total_j").value is not None for load in loads) else loads[:1]
    if run.kind in ("profile", "program", "monitor", "record", "measure", "import"):
        asked += [parts.whole] if "energy_total_j" in parts.whole.figures else devices
    for part in asked:
        energy = part.get("energy_total_j")
        if energy.value is None and "energy_total_j" in part.figures:
            yield part.name if part.level == "device" and len(devices) > 1 else "", energy


def _level(run: Run, parts: Parts, code: str, level: str) -> str:
    """The level of a code in this Run."""
    if code in INVALID and all(doubts(run, load.name) for load in parts.units("load")):
        return NO
    energies = run.results.filter(pc.equal(run.results["metric"], "energy_total_j"))["value"]
    if code in _ALL_THAT_IS and energies.null_count == len(energies):
        return NO
    warned = {warning.code for warning in run.warnings}
    harmless = {
        "long_average": not len(run.spans),  # there is no burst to read too low: the whole is right
        "unmodelled": "sensor_unknown" in warned,  # the model is a guess there, which that warning says
        # A flag: the interval says so and holds, and no time narrows that of a late host. ``ab`` warns of its blocks.
        "target_not_met": code not in warned,
    }
    if harmless.get(code):
        return YES
    if code != "not_settled":
        return level
    # What was seen to drift spoils a mean; too short to see it may be harmless, and A and B alternating cancels it.
    about: Any = run.workload.get("warm_up") or {}
    drifting = False in (about.get("latency_settled"), about.get("power_settled"))
    return NO if drifting and run.kind != "ab" else CARE


def _circumstances(run: Run) -> Circumstances:
    """Circumstances of a Run, with longer times in place of those that were too short."""
    settings: Any = run.settings
    about: Any = run.workload.get("warm_up") or {}
    warmup, most, ran = settings.get("warmup_s"), settings.get("max_time_s"), about.get("seconds")
    warmup_s = 3 * warmup if isinstance(warmup, int | float) and warmup > 0 else 15.0
    if isinstance(ran, int | float):  # a block of long iterations exceeds the limit
        warmup_s = max(warmup_s, 2 * ran // 1 + 1)
    most_s = 3 * most if isinstance(most, int | float) and most > 0 else 60.0
    ages = [abs(run.created_ns - done.get("time_ns", 0)) for done in run.calibration.values()]
    return Circumstances(run.kind, run.simulated, warmup_s, most_s, bool(ages) and max(ages) < _DAY_NS)
