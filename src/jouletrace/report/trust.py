"""Trust in figures, in words: how many checks failed, which, and what to do about these."""

from __future__ import annotations

import re
from typing import Any

from jouletrace.analysis.checks import CLOSED, ENDINGS, Failure, Outcomes
from jouletrace.analysis.rules import CARE, NO, NONE
from jouletrace.run import Estimate
from jouletrace.words import reasons
from jouletrace.words.scale import NBSP, figure

_ADVICE = ": give "
_OF_ROWS = f"each row has its own{NBSP}±"
_OPTION = re.compile(r"(--[\w-]+) (?=\S)")
"""An option before its value, which stay on one line."""

_OF_MEASURING = re.compile(r"--(detail-time|duration|max-time|duty)|for longer")
"""Actions that a file leaves no room for."""


def message(failure: Failure) -> str:
    """The message of a failure, without its own words of trust and of the action."""
    if failure.message:
        text = reasons.stated(failure.message).removesuffix(": see --max-time")
        return text.partition(_ADVICE)[0] if failure.action is None else text
    if isinstance(failure.figure, float):
        share = f"{'up to ' * (',' in failure.where)}{100 * failure.figure:.0f}{NBSP}%"
        whose = f"{failure.where}: " * bool(failure.where)
        return f"{whose}clocks lowered {share} of the time ({reasons.throttle(failure.code)})"
    if isinstance(failure.figure, Estimate) and failure.figure.value is None:
        return (
            reasons.no_energy(failure.figure.reason, whose=f" of {failure.where}")
            if failure.where
            else "energy unknown"
        )
    if isinstance(failure.figure, Estimate):
        return f"parts sum to {figure(failure.figure, '')} of {failure.where or 'the whole'}"
    return "it did not end by itself" if failure.code in ENDINGS else reasons.flag(failure.code)


def action(failure: Failure) -> str:
    """The action that a failure asks for; "" where nothing can be done."""
    if failure.action is not None:
        return failure.action
    _, _, advice = failure.message.removesuffix(": see --max-time").partition(_ADVICE)
    if advice:
        return f"give {advice}"  # the message knows better than the table
    made = failure.made
    usual = reasons.ACTIONS_OF_KIND.get((failure.code, made.kind), reasons.ACTIONS.get(failure.code, ""))
    measuring = failure.check == "sensor response" or usual == reasons.AGAIN or _OF_MEASURING.search(usual)
    if made.kind == "import" and measuring:
        return ""  # the GPU may be anywhere, and last night can't be logged again
    if made.simulated and failure.check in ("idle power", "the server's GPU"):
        return ""  # a simulated GPU does not cool down between commands, and serves no requests
    calibrate = reasons.AGAIN if made.calibrated else "run jouletrace calibrate on an idle GPU"
    if made.kind == "calibrate":  # that was just done
        calibrate = f"{reasons.AGAIN} on an idle GPU"
    return usual.format(warmup=f"{made.warmup_s:g}", max_time=f"{made.max_time_s:g}", calibrate=calibrate)


def headline(checks: Outcomes) -> str:
    """One line: "trust: yes, all 8 checks passed", "trust: with care, 2 remarks"; "no figure" where none is."""
    codes = {level: {failure.code for failure in checks.failed if failure.level == level} for level in (CARE, NO)}
    remarks = len(codes[CARE] - codes[NO])
    lost = len({failure.check for failure in checks.failed if failure.level == NO})
    said = [f"{lost} of {len(checks.asked)} checks failed"] if lost else []
    said += [f"{remarks} remark{'s' if remarks > 1 else ''}"] if remarks else []
    said = said or [f"all {len(checks.asked)} checks passed"] * checks.claimed
    level = "no figure" if checks.level == NONE else f"trust: {checks.level}"
    note = _closure(checks)
    return f"{', '.join([level, *said])}{f'; {note}' if note else ''}"


def _closure(checks: Outcomes) -> str:
    """How far parts make the whole, and, where their interval leaves it out, why that is no fault; it is of no row."""
    closure = checks.closure
    if closure.value is None or any(failure.code == "closure" for failure in checks.failed):
        return ""
    said = f"{figure(closure, '')} of the whole"
    if "traced_at_cap" in closure.flags:
        return f"parts summed to {said}, and are scaled to it, as tracing moves the clock at the cap; {_OF_ROWS}"
    if closure.low is None or closure.high is None or closure.low <= 1 <= closure.high:
        return f"parts sum to {said}; {_OF_ROWS}"
    return f"parts sum to {said}, within the {100 * CLOSED:g}{NBSP}% that tracing may cost; {_OF_ROWS}"


def lines(checks: Outcomes) -> list[str]:
    """The headline, and a line for each kind of failure; ``to_dict`` has all."""
    first: dict[str, Failure] = {}
    for failure in _once(checks):
        first.setdefault(failure.code, failure)
    return [headline(checks), *(f"{NBSP}{NBSP}{_line(failure)}" for failure in first.values())]


def _once(checks: Outcomes) -> list[Failure]:
    """Failures; several places or Runs that state one in equal words count once."""
    return list({(failure.code, failure.level, message(failure)): failure for failure in checks.failed}.values())


def _line(failure: Failure) -> str:
    """The message of a failure and the action."""
    text, advice = message(failure).rstrip("."), _OPTION.sub(rf"\1{NBSP}", action(failure))
    return f"{text}: {advice}" if advice and advice not in text else text


def to_dict(checks: Outcomes) -> dict[str, Any]:
    """The object "trust" of JSON."""
    failed = [
        {"check": f.check, "level": f.level, "code": f.code, "message": message(f), "action": action(f) or None}
        for f in _once(checks)
    ]
    return {"level": checks.level, "passed": len(checks.passed), "checks": len(checks.asked), "failed": failed}
