"""Whether to trust the figures of a Run: which checks it passed, which it failed, and what to do about these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.compute as pc

from jouletrace.analysis.conditions import conditions
from jouletrace.analysis.serving.levels import INVALID
from jouletrace.report import reasons, serving
from jouletrace.report.facts import endings, others
from jouletrace.report.results import OF_PARTS
from jouletrace.report.rules import AGAIN, ATTRIBUTION, CARE, NO, NONE, YES, Rule, rule
from jouletrace.report.scale import NBSP, figure
from jouletrace.run import Run, RunWarning
from jouletrace.run.channels import ENERGY_COUNTER, POWER
from jouletrace.run.parts import Part, Parts

_LEVELS = (YES, CARE, NO)

CLOSED = 0.02
"""Parts whose sum is that close to the whole make it up; tracing itself costs as much (docs/results)."""

_DAY_NS = 86_400_000_000_000
"""A calibration that is younger needs no repetition."""

_LONG_THROTTLE = 0.02
"""Share of the time from which lowered clocks qualify a figure."""


_ADVICE = ": give "
_OPTION = re.compile(r"(--[\w-]+) (?=\S)")
"""An option before its value, which stay on one line."""

_OF_MEASURING = re.compile(r"--(detail-time|max-time|duty)|for longer")
"""Actions that a file leaves no room for."""

_ALL_THAT_IS = ("no_power_reading", "power_all_zero", "not_a_counter")
"""Codes that leave no figure, unless another device or a counter has one."""

_OF_SAMPLES = ("sample_rate", "placebo")
"""Checks of sensors alone that sample."""


_OF_LOADS = ("steady load", "requests answered", "client on time", "the server's GPU", "tokens counted")
"""Checks of a server under load."""


@dataclass(frozen=True)
class Failed:
    """A check that was not passed.

    Attributes:
        check: Its name.
        level: ``CARE`` or ``NO``.
        code: Of the warning, flag or reason behind it.
        message: What is wrong, in words.
        action: What to do; "" where there is nothing.
    """

    check: str
    level: str
    code: str
    message: str
    action: str

    @property
    def line(self) -> str:
        """What is wrong and what to do."""
        text, action = self.message.rstrip("."), _OPTION.sub(rf"\1{NBSP}", self.action)
        return f"{text}: {action}" if action and self.action not in text else text


@dataclass(frozen=True)
class Trust:
    """How far figures can be trusted.

    Attributes:
        passed: Names of the checks that were passed.
        failed: What was not, the worst first; a check may fail for several reasons.
        note: What the checks are about in a figure: how far parts make the whole; "" where there are none.
        claimed: Whether there is any figure to trust.
    """

    passed: tuple[str, ...] = ()
    failed: tuple[Failed, ...] = ()
    note: str = ""
    claimed: bool = True

    @property
    def level(self) -> str:
        """The worst level of what failed; ``YES`` if nothing did, ``NONE`` if there is no figure and no doubt."""
        worst = max((one.level for one in self.failed), key=_LEVELS.index, default=YES)
        return worst if self.claimed or worst == NO else NONE

    @property
    def asked(self) -> int:
        """How many checks there were."""
        return len(self.passed) + len({one.check for one in self.failed})

    def headline(self) -> str:
        """One line: "trust: yes, all 8 checks passed", "trust: with care, 2 remarks"; "no figure" where none is."""
        codes = {level: {one.code for one in self.failed if one.level == level} for level in (CARE, NO)}
        remarks = len(codes[CARE] - codes[NO])
        lost = len({one.check for one in self.failed if one.level == NO})
        said = [f"{lost} of {self.asked} checks failed"] if lost else []
        said += [f"{remarks} remark{'s' if remarks > 1 else ''}"] if remarks else []
        said = said or [f"all {self.asked} checks passed"] * self.claimed
        level = "no figure" if self.level == NONE else f"trust: {self.level}"
        return f"{', '.join([level, *said])}{f'; {self.note}' if self.note else ''}"

    def lines(self) -> list[str]:
        """The headline, and a line for each kind of failure; ``failed`` has all."""
        first = {one.code: one for one in reversed(self.failed)}
        kinds = dict.fromkeys(one.code for one in self.failed)
        return [self.headline(), *(f"{NBSP}{NBSP}{first[code].line}" for code in kinds)]

    def to_dict(self) -> dict[str, Any]:
        """The object "trust" of JSON."""
        failed = [
            {"check": f.check, "level": f.level, "code": f.code, "message": f.message, "action": f.action or None}
            for f in self.failed
        ]
        return {"level": self.level, "passed": len(self.passed), "checks": self.asked, "failed": failed}


def trust(run: Run, results: Parts | None = None) -> Trust:
    """How far the figures of a Run can be trusted."""
    results = results or Parts(run)
    failed: dict[tuple[str, str], Failed] = {}
    for code, message in _raised(run, results):
        own = rule(code)
        level = _level(run, code, own.level)
        if level != YES:
            text, _, advice = message.partition(_ADVICE)  # a message that knows better what to do than the table
            action = f"give {advice}" if advice else _action(run, own)
            failed.setdefault((code, message), Failed(own.check, level, code, text, action))
    note = "" if any(code == "closure" for code, _ in failed) else _note(results)
    return replace(of(asked(run, results), _once(failed.values())), note=note, claimed=_claims(run))


def _claims(run: Run) -> bool:
    """True if a Run states any figure, in windows too; one of a calibration states a sensor's response."""
    stated = run.results["value"].null_count < len(run.results)
    return stated or len(run.windows) > 0 or run.kind == "calibrate"


def _note(results: Parts) -> str:
    """How far parts make the whole; and, where their interval leaves it out, why that is no fault."""
    own = results.get("closure_kernels")
    closure = own
    if closure.value is None:
        return ""
    if "traced_at_cap" in own.flags:
        return (
            f"parts were {figure(closure, '')} of the whole, and are scaled to it: tracing moves the clock at the cap"
        )
    text = f"parts are {figure(closure, '')} of the whole"
    if closure.low is None or closure.high is None or closure.low <= 1 <= closure.high:
        return text
    return f"{text}, within the {100 * CLOSED:g}{NBSP}% that tracing may cost"


def of(names: Iterable[str], failed: Sequence[Failed]) -> Trust:
    """Trust from the names of the checks that were made and what failed."""
    lost = {one.check for one in failed}
    ranked = sorted(failed, key=lambda one: -_LEVELS.index(one.level))
    return Trust(tuple(name for name in dict.fromkeys(names) if name not in lost), tuple(ranked))


def joined(parts: Sequence[Trust]) -> Trust:
    """The trust of several together: what failed in any failed."""
    failed = {(one.code, one.message): one for part in parts for one in part.failed}
    names = [name for part in parts for name in (*part.passed, *(one.check for one in part.failed))]
    return replace(of(names, list(failed.values())), claimed=any(part.claimed for part in parts))


def _once(failed: Iterable[Failed]) -> list[Failed]:
    """Without what a flag repeats of a warning: messages of warnings come first and say more."""
    found: dict[str, list[Failed]] = {}
    for one in failed:
        known = found.setdefault(one.code, [])
        if not known or one.message != reasons.flag(one.code):
            known.append(one)
    return [one for some in found.values() for one in some]


def asked(run: Run, results: Parts) -> list[str]:
    """Names of the checks that are made of a Run: what its kind and its sensors allow."""
    power = any(run.channel(device.id, POWER) is not None for device in run.devices)
    counter = any(run.channel(device.id, ENERGY_COUNTER) is not None for device in run.devices)
    gpus = any(device.kind != "cpu" for device in run.devices)
    measured = run.kind != "import"
    timed = run.kind in ("profile", "ab")
    there = {name: one for unit in (results.whole, *results.gpus.values()) for name, one in unit.figures.items()}
    made = {
        "complete": measured,
        "power sensor": power or counter or measured,
        "power record": power,
        "sensor response": power and measured,
        "other processes": run.kind in ("profile", "ab", "calibrate", "program"),
        "warm-up": timed,
        "idle power": run.kind == "profile" and power,
        "clocks": power and conditions(run)["throttle_reasons"] is not None,
        "aliasing": power and timed,
        "precision": timed,
        "inputs and outputs": timed,
        "tracing": (run.kind == "program" and gpus) or bool(results.units("kernel")),
        "parts and whole": any(there[name].value is not None for name in OF_PARTS if name in there),
        "ranges": bool(results.units("range")) and run.kind in ("record", "monitor", "measure"),
        "ranks": bool(run.settings.get("ranks")) or len(run.workload.get("recordings", ())) > 1,
        "counter of work": bool(run.settings.get("per")),
        **dict.fromkeys(_OF_LOADS, bool(results.units("load"))),
        "stamps": bool(run.clock_pairs) or not measured,
        "files": not measured,
    }
    names = [name for name, is_made in made.items() if is_made]
    if results.get("closure_kernels").value is not None and "residual_w" in there:
        lacks = set() if "sample_rate_hz" in there else set(_OF_SAMPLES)
        lacks |= set() if "powers_possible" in there else {"powers"}  # a Run of an earlier version
        names += [own.check for name, own in ATTRIBUTION.items() if name not in lacks]
    return names


def _raised(run: Run, results: Parts) -> Iterator[tuple[str, str]]:
    """Codes and messages: of warnings, of what is missing from the whole, of flags, of clocks, of parts."""
    for warning in endings(run):  # how stands at the head of all that is shown
        yield warning.code, "it did not end by itself"
    for warning in others(run):
        yield warning.code, _worded(warning)
    for metric in _headline(run):
        for unit in _wholes(run, results):
            own = unit.get(metric)
            if own.value is None and metric in unit.figures:
                yield own.reason or "unknown", f"the energy{_whose(results, unit)} is missing"
    flags = dict.fromkeys(
        code
        for unit in (results.whole, *results.all())
        for one in unit.figures.values()
        if one.value is not None
        for code in one.flags
    )
    for code in flags:
        yield code, reasons.flag(code)
    if run.kind in ("profile", "ab", "program", "import"):
        for name, share in (conditions(run)["throttle_reasons"] or {}).items():
            if share >= _LONG_THROTTLE:
                yield name, f"clocks lowered {100 * share:.0f}{NBSP}% of the time ({reasons.throttle(name)})"
    yield from _closure(results)


def _closure(results: Parts) -> Iterator[tuple[str, str]]:
    """Parts that don't make the whole, or a GPU of several, beyond their interval and what tracing costs."""
    for name, unit in {"the whole": results.whole, **results.gpus}.items():
        own = unit.get("closure_kernels")
        if own.low is None or own.high is None or "traced_at_cap" in own.flags:
            continue
        if own.low > 1 + CLOSED or own.high < 1 - CLOSED:
            yield "closure", f"parts are {figure(own, '')} of {name}"


def _headline(run: Run) -> tuple[str, ...]:
    """The metric that a kind of Run is made for."""
    return ("energy_total_j",) if run.kind in ("profile", "program", "monitor", "record", "import") else ()


def _wholes(run: Run, results: Parts) -> list[Part]:
    """Parts that are wholes: the model, or the devices where each was watched."""
    return [results.whole] if "energy_total_j" in results.whole.figures else results.units("device")


def _whose(results: Parts, unit: Part) -> str:
    """Of which device, where there are several, and why."""
    if unit.level != "device" or len(results.units("device")) < 2:
        return ""
    return f" of {unit.name} ({reasons.reason(unit.get('energy_total_j').reason)})"


def _worded(warning: RunWarning) -> str:
    """A warning in words, without its own words of trust and of what to do, which ``RULES`` has."""
    return warning.message.replace("trust: no, ", "").removesuffix(": see --max-time")


def _level(run: Run, code: str, level: str) -> str:
    """The level of a code in this Run."""
    if code in INVALID and not serving.any_valid(run):
        return NO
    if code in _ALL_THAT_IS and not _has_energy(run):
        return NO
    if code == "long_average" and not len(run.spans):
        return YES  # there is no burst to read too low: the whole is right
    if code == "unmodelled" and any(one.code == "sensor_unknown" for one in run.warnings):
        return YES  # the model is a guess there, which that warning says
    if code != "not_settled":
        return level
    # What was seen to drift spoils a mean; too short to see it may be harmless, and A and B alternating cancels it.
    about: Any = run.workload.get("warm_up") or {}
    drifting = False in (about.get("latency_settled"), about.get("power_settled"))
    return NO if drifting and run.kind != "ab" else CARE


def _has_energy(run: Run) -> bool:
    """True if a Run states any energy."""
    energies = run.results.filter(pc.equal(run.results["metric"], "energy_total_j"))
    return bool(energies["value"].null_count < len(energies))


def _action(run: Run, own: Rule) -> str:
    """What to do in this Run, with longer times in place of those that were too short."""
    measuring = own.check == "sensor response" or own.action == AGAIN or _OF_MEASURING.search(own.action)
    if run.kind == "import" and measuring:
        return ""  # the GPU may be anywhere, and last night can't be logged again
    if run.simulated and own.check == "idle power":
        return ""  # a simulated GPU does not cool down between commands
    settings: Any = run.settings
    about: Any = run.workload.get("warm_up") or {}
    longer = {}
    for name, usual, ran in (("warmup", 5.0, about.get("seconds")), ("max_time", 20.0, None)):
        given = settings.get(f"{name}_s")
        seconds = 3 * given if isinstance(given, int | float) and given > 0 else 3 * usual
        if isinstance(ran, int | float):  # a block of long iterations exceeds the limit
            seconds = max(seconds, 2 * ran // 1 + 1)
        longer[name] = f"{seconds:g}"
    return own.action.format(**longer, calibrate=_calibrate(run))


def _calibrate(run: Run) -> str:
    """The action where readings contradict the response of the sensor: calibrate it, unless that was just done."""
    if run.kind == "calibrate":
        return "run it again on an idle GPU"
    ages = [abs(run.created_ns - done.get("time_ns", 0)) for done in run.calibration.values()]
    return AGAIN if ages and max(ages) < _DAY_NS else "run jouletrace calibrate on an idle GPU"
