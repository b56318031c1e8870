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


def message(one: Failure) -> str:
    """The message of a failure, without its own words of trust and of the action."""
    if one.message:
        text = reasons.stated(one.message).removesuffix(": see --max-time")
        return text.partition(_ADVICE)[0] if one.action is None else text
    if isinstance(one.figure, float):
        share = f"{'up to ' * (',' in one.where)}{100 * one.figure:.0f}{NBSP}%"
        whose = f"{one.where}: " * bool(one.where)
        return f"{whose}clocks lowered {share} of the time ({reasons.throttle(one.code)})"
    if isinstance(one.figure, Estimate) and one.figure.value is None:
        return reasons.no_energy(one.figure.reason, whose=f" of {one.where}") if one.where else "energy unknown"
    if isinstance(one.figure, Estimate):
        return f"parts sum to {figure(one.figure, '')} of {one.where or 'the whole'}"
    return "it did not end by itself" if one.code in ENDINGS else reasons.flag(one.code)


def action(one: Failure) -> str:
    """The action that a failure asks for; "" where nothing can be done."""
    if one.action is not None:
        return one.action
    _, _, advice = one.message.removesuffix(": see --max-time").partition(_ADVICE)
    if advice:
        return f"give {advice}"  # the message knows better than the table
    made = one.made
    usual = reasons.ACTIONS_OF_KIND.get((one.code, made.kind), reasons.ACTIONS.get(one.code, ""))
    measuring = one.check == "sensor response" or usual == reasons.AGAIN or _OF_MEASURING.search(usual)
    if made.kind == "import" and measuring:
        return ""  # the GPU may be anywhere, and last night can't be logged again
    if made.simulated and one.check in ("idle power", "the server's GPU"):
        return ""  # a simulated GPU does not cool down between commands, and serves no requests
    calibrate = reasons.AGAIN if made.calibrated else "run jouletrace calibrate on an idle GPU"
    if made.kind == "calibrate":  # that was just done
        calibrate = f"{reasons.AGAIN} on an idle GPU"
    return usual.format(warmup=f"{made.warmup_s:g}", max_time=f"{made.max_time_s:g}", calibrate=calibrate)


def headline(found: Outcomes) -> str:
    """One line: "trust: yes, all 8 checks passed", "trust: with care, 2 remarks"; "no figure" where none is."""
    codes = {level: {one.code for one in found.failed if one.level == level} for level in (CARE, NO)}
    remarks = len(codes[CARE] - codes[NO])
    lost = len({one.check for one in found.failed if one.level == NO})
    said = [f"{lost} of {len(found.asked)} checks failed"] if lost else []
    said += [f"{remarks} remark{'s' if remarks > 1 else ''}"] if remarks else []
    said = said or [f"all {len(found.asked)} checks passed"] * found.claimed
    level = "no figure" if found.level == NONE else f"trust: {found.level}"
    note = _closure(found)
    return f"{', '.join([level, *said])}{f'; {note}' if note else ''}"


def _closure(found: Outcomes) -> str:
    """How far parts make the whole, and, where their interval leaves it out, why that is no fault; it is of no row."""
    own = found.closure
    if own.value is None or any(one.code == "closure" for one in found.failed):
        return ""
    said = f"{figure(own, '')} of the whole"
    if "traced_at_cap" in own.flags:
        return f"parts summed to {said}, and are scaled to it, as tracing moves the clock at the cap; {_OF_ROWS}"
    if own.low is None or own.high is None or own.low <= 1 <= own.high:
        return f"parts sum to {said}; {_OF_ROWS}"
    return f"parts sum to {said}, within the {100 * CLOSED:g}{NBSP}% that tracing may cost; {_OF_ROWS}"


def lines(found: Outcomes) -> list[str]:
    """The headline, and a line for each kind of failure; ``to_dict`` has all."""
    first: dict[str, Failure] = {}
    for one in _once(found):
        first.setdefault(one.code, one)
    return [headline(found), *(f"{NBSP}{NBSP}{_line(one)}" for one in first.values())]


def _once(found: Outcomes) -> list[Failure]:
    """Failures; several places or Runs that state one in equal words count once."""
    return list({(one.code, one.level, message(one)): one for one in found.failed}.values())


def _line(one: Failure) -> str:
    """The message of a failure and the action."""
    text, advice = message(one).rstrip("."), _OPTION.sub(rf"\1{NBSP}", action(one))
    return f"{text}: {advice}" if advice and advice not in text else text


def to_dict(found: Outcomes) -> dict[str, Any]:
    """The object "trust" of JSON."""
    failed = [
        {"check": f.check, "level": f.level, "code": f.code, "message": message(f), "action": action(f) or None}
        for f in _once(found)
    ]
    return {"level": found.level, "passed": len(found.passed), "checks": len(found.asked), "failed": failed}
