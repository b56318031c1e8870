"""Codes of a comparison in words: how its sides differ, what decides a check, the verdict, and how far to trust it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jouletrace.analysis.checks import Circumstances, Failure, Outcomes, joined, of
from jouletrace.analysis.rules import CARE, NO, YES, rule
from jouletrace.comparing.pairs import (
    DIFFERENT,
    INCONCLUSIVE,
    LENGTH,
    LOAD,
    ONE_RUN,
    PER_SAMPLE,
    PER_STEP,
    SAME,
    UNMEASURED,
    Check,
    ComparedRow,
    Comparison,
    Note,
)
from jouletrace.comparing.source import Listed, Side
from jouletrace.errors import SIMULATED_TWICE
from jouletrace.report import trust
from jouletrace.report.facts import title
from jouletrace.run import Estimate
from jouletrace.run.parts import STORED_SCATTER
from jouletrace.words.reasons import ACTIONS, flag, no_energy, reason
from jouletrace.words.scale import NBSP, NONE, PERCENT, PrintedUnit, cell, figure, fixed

PER_ITERATION = "per iteration"

_NOTES = {
    PER_SAMPLE: "times back to back and energies are compared per sample, latency per iteration",
    PER_STEP: "numbers of steps differ, and figures are compared per step: of {} A made {}, B {}",
    "no_batch": "{} states no batch: iterations are compared",
    "no_figures": "{} holds no figures and is left out of {}",
    "incomplete": "{} is incomplete: its figures rest on the data recorded until it ended",
    "ended_early": "it was ended early: the figures rest on the data recorded until then",
    "no_parts": "{} lists no parts: only figures of the whole are compared",
    "other_parts": "no part of A is a part of B: the list of parts has changed completely",
    "few_parts_in_common": "more parts belong to one side only than to both: sums over parts can't be compared with "
    "each other",
    "gpus": "GPUs differ: {} in A, {} in B",
    "clocks_measured": "SM clock differs: {:.0f} MHz in A, {:.0f} MHz in B, on average, by the SMs' cycle counters",
    "clocks_reported": "SM clock differs: {:.0f} MHz in A, {:.0f} MHz in B, on average, as the driver reports it",
    "repeated_by_seed": f"{{}} and {{}} {SIMULATED_TWICE}",
    "same_run": "both sides are the same Run, so no difference can be detected: {}",
    "run_on_both_sides": "a Run is on both sides, which hides part of any difference: {}",
    "gpus_and_workloads_differ": "A and B differ in the workload and in the GPU: which of the two causes a difference "
    "is open",
    "without_kernels": "the energies of kernels aren't known in {}: --detail kernel, or jouletrace run, shows which "
    "make the difference",
    "not_resolved": "the energies of kernels aren't known in {}: a longer recording may show which make the difference",
    "unlike": "what makes the difference can't be said: {:.0f} % of the energy of kernels is of parts that both sides "
    "have; in common: {}",
    "most_in_no_part": "what makes the difference can't be said: most of it is in no part",
    "repeat_lost": "{} lacks runs that it states: {}",
    "calibration_differs": "the power sensor is calibrated in some Runs only, which moves their figures",
    "not_compared": "{} is not compared: {}",
    "more_not_compared": "{} more are not compared with the first: see jouletrace compare",
    # how the figures came about
    "loads": "Differences of loads in single runs, compared with the chance within each (of energies without that of "
    "arrivals and over the time that is steady in both, where both sides sent the same requests): the scatter between "
    "runs is unknown.",
    "stored_scatter": "Differences of single runs, by their intervals, which hold a scatter between runs that was "
    "stored from others.",
    "single_runs": "Differences of single runs: the scatter between runs is unknown, so chance can't be assessed.",
    "runs": "Differences of means over {} and {} runs, compared with the scatter between runs; half of the error is "
    "for the model's figures, half is shared by the levels of parts, by Holm within each.",
    "blocks": "A and B alternating on one GPU in one process, {} blocks of A B B A: each block's ratio is one figure, "
    "so drift and the sensor's gain cancel. The intervals don't include differences between processes.",
}
"""By code of a note, with its values."""

_SETUP = {
    "name": "workload",
    "seq_len": "sequence length",
    "new_tokens": "new tokens",
    "threads": "torch threads",
    "parameters": "number of parameters",
    "flops": "number of FLOPs of an iteration",
    "response": "response of the power sensor",
    "power_limit_w": "power limit (W)",
    "vbios": "VBIOS",
    "ecc": "ECC",
}
"""Names of what may differ between sides, where they aren't words."""

_KINDS = {"flag": "torch's {}", "config": "--config {}", "variable": "${}"}

_FOLD = 2.0
"""Change from which on a side takes so many times the other, in words."""

_SHOWN = 4
"""So many rows that decide a check are named."""

_MORE_RUNS = "give more runs a side: jouletrace compare A1,A2,A3 B1,B2,B3"
_MORE = {"profile": None, "ab": "give a longer --max-time"}
"""What shows the scatter, by kind of Run: the action of the code, this one, or by default more runs a side."""

_TOO_WIDE = ("target_not_met", "host_unsteady")
"""Codes of intervals that are wider than wanted."""


def note(of_note: Note) -> str:
    """A note, a warning or a method in words."""
    if of_note.code == "differs":
        kind, name, *sides = of_note.values
        return f"{_named(kind, name)} differs: {', '.join(sides[0])} in A, {', '.join(sides[1])} in B"
    if of_note.code == "warned":
        side, places, message = of_note.values
        which = f"{side} ({', '.join(places)})" if places else side
        return f"{which}: {message}" if which else str(message)
    if of_note.code == "other_things":
        ways = {"device": "measure both on one", "name": "measure the same on both sides, or use jouletrace ab"}
        return f"{note(of_note.values[0])}: {ways[of_note.values[0].values[1]]}"
    if of_note.code == "not_trusted":
        return f"trust: no, {trust.message(of_note.values[0]).rstrip('.')}"
    if of_note.code == "gpus_and_workloads_differ" and of_note.values[0]:
        return "A and B are of different GPUs, and nothing says that they ran the same"
    return _NOTES[of_note.code].format(*map(_listed, of_note.values))


def _listed(value: Any) -> Any:
    """Names with commas, those of one thing joined by "is"; other values as they are."""
    if not isinstance(value, tuple):
        return value
    return ", ".join(words if isinstance(words, str) else " is ".join(words) for words in value) or "none"


def _named(kind: str, name: str) -> str:
    """The name of what differs between sides: an option, a fact of the workload, a version, a setting of a GPU."""
    if kind in _KINDS:
        return _KINDS[kind].format(name)
    if kind != "setting":
        return _SETUP.get(name, name)
    words = "L2 cache" if name == "l2" else name.replace("_", " ")
    return f"{words.removesuffix(' s')} (s)" if words.endswith(" s") else words


def side_title(side: Side) -> str:
    """Workload, batch, dtype and so on of a side."""
    return side.title or title(side.run)


def side_devices(side: Side) -> list[str]:
    """Names and ids of a side's GPUs."""
    return [f"{device.name} ({device.id})" for device in side.boards.values()]


def placed(part: Listed, name: str | None = None) -> str:
    """The name of a part of one side only, or a shorter one, with its module and its shapes."""
    return f"{name or part.name}{f' in {part.where}' if part.where else ''}{f' ({part.shapes})' if part.shapes else ''}"


def says(check: Check) -> str:
    """The rows that decide a check: which rows, by how much, and the bound that it has tested; or why none does."""
    if check.because is not None:
        return note(check.because)
    said = [] if check.deciding else [f"neither side has {check.metric} there"]
    for row, level in list(zip(check.deciding, check.levels, strict=True))[:_SHOWN]:
        name = "" if row.level == "model" else f"{row.called}: "
        said.append(f"{name}{check.metric} {_decides(row, check, level)}")
    more = f"; and {len(check.deciding) - _SHOWN} more" if len(check.deciding) > _SHOWN else ""
    return "; ".join(said) + more


def _decides(row: ComparedRow, check: Check, level: float) -> str:
    """The change of a row with the one-sided bound that was tested, and not with the interval, which is two-sided.

    Of a row that leaves the check open: why, or the change from which on the check would fail nine times in ten.
    """
    if check.outcome == UNMEASURED:
        lacking = {name: estimate for name, estimate in (("A", row.a), ("B", row.b)) if estimate.value is None}
        return f"of {' and '.join(lacking)}: {reason(next(iter(lacking.values())).reason)}"
    change = NONE if row.change.value is None else f"{_signed(row.change.value)}{NBSP}%"
    if row.contrast is None:
        return f"{change}, {reason(row.reason)}"
    if check.outcome == INCONCLUSIVE:
        least = check.fails_from(row, level)
        return f"{change}, {'A may be zero' if least is None else f'it would fail from {_signed(least)}{NBSP}% on'}"
    bound = check.bound(row, level)
    if bound is None:
        return change
    return f"{change}, {'above' if check.lower else 'below'} {_signed(bound)}{NBSP}% at {100 * (1 - level):.3g}{NBSP}%"


def percent(share: float) -> str:
    """A share in percent, to two digits: "0.34 %"."""
    return f"{_number(100 * share)}{NBSP}%"


def signed(change: Estimate) -> str:
    """A relative change with its interval: "+3.1 % (+2.2 to +4.0)"; "–" where there is none."""
    if change.value is None:
        return NONE
    text = f"{_signed(change.value)}{NBSP}%"
    if change.low is None or change.high is None:
        return text
    return f"{text} ({_signed(change.low)}{NBSP}to{NBSP}{_signed(change.high)})"


def _signed(share: float) -> str:
    text = _number(100 * share)
    return text if text.startswith("−") or not text.strip("0.") else f"+{text}"


def _number(value: float) -> str:
    return fixed(value, 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2)


def verdict(comparison: Comparison) -> list[str]:
    """Lines on the differences of B from A in energy, time and power, and on the checks that were asked for."""
    rows = comparison.whole
    time = next((name for name in ("iteration_time_s", "latency_s") if name in rows), "time_s")
    checks = [f"check {check.text}: {check.outcome.upper()}: {says(check)}" for check in comparison.checks]
    if comparison.same:
        alike = all(row.a.value == row.b.value for row in rows.values())
        differs = "nothing differs, whatever it measured" if alike else "what differs is how it was analysed"
        return [f"A and B are the same Run: {differs}; give two Runs", *checks]
    lines = [_said(rows["energy_total_j"], "energy", comparison)] if "energy_total_j" in rows else []
    if lines and comparison.steps:
        row = rows["energy_total_j"]
        wholes = (
            figure(side_figure.scaled(n), "J") for side_figure, n in zip((row.a, row.b), comparison.steps, strict=True)
        )
        of_each = (
            f"{side} {whole} in {n} steps" for side, whole, n in zip("AB", wholes, comparison.steps, strict=True)
        )
        lines.append(f"as a whole: {', '.join(of_each)}")
    if comparison.watched and "power_w" in rows:
        lines.append(_said(rows["power_w"], "power", comparison, "on average"))
    lines += [_said(rows["energy_work_j"], "work", comparison)] if "energy_work_j" in rows else []
    lines += [_said(rows[time], "time", comparison)] if time in rows and rows[time].reason != LENGTH else []
    per_token = [row for row in comparison.rows if row.level == "load" and row.metric == "energy_per_output_token_j"]
    return [
        *lines,
        *(f"{row.name}: {_said(row, 'energy', comparison, 'per output token')}" for row in per_token),
        *checks,
    ]


def joint(comparison: Comparison) -> list[str]:
    """The line on what intervals of changes hold: all rows together, and no gain that isn't known."""
    if not any(row.change.half_width for row in comparison.rows):
        return []
    gain = "; the sensors' gain is not known, and not in it" if comparison.gain is None else ""
    return [f"± of a change is {100 * (1 - comparison.alpha):g}{NBSP}% over all rows together{gain}"]


def each(comparison: Comparison) -> str:
    """The unit of work that energies and times back to back are of."""
    if comparison.steps:
        return "per step"
    return (
        "per sample"
        if comparison.per_sample
        else "in all"
        if comparison.watched or comparison.programs
        else PER_ITERATION
    )


def _said(row: ComparedRow, noun: str, comparison: Comparison, per: str = "") -> str:
    """One figure's line: "B takes 37.3 ± 0.2 % less energy per iteration: better"."""
    change = row.change
    per = per or (each(comparison) if row.metric != "latency_s" else PER_ITERATION)
    if change.value is None:
        return no_energy(row.reason or change.reason, whose=f" {per}", figure=noun)
    if row.verdict == SAME:
        return f"B takes as much {noun} {per} as A: equal within {percent(comparison.margin)}"
    if row.verdict == INCONCLUSIVE:
        size = _size(change, noun)  # "0.0 ± 3.6 % less" says no more than that they are equal
        here = f"B took {size} in these runs" if size.split()[0].strip("0.") else "equal in these runs"
        least = "" if row.detectable is None else f"; {percent(row.detectable)} could have been detected"
        why = f", without ±: {reason(row.reason)}" if change.low is None and row.reason else ""
        return f"{noun} {per}: {INCONCLUSIVE}, {here}{why}{least}"
    size = _size(change, f"{noun} {per}")
    return (
        f"B took {size} in these runs: {row.verdict}" if comparison.single_loads else f"B takes {size}: {row.verdict}"
    )


def _size(change: Estimate, noun: str) -> str:
    """A change in words: "37.3 ± 0.2 % less energy", "4.00 ± 0.02 times the energy of A"."""
    value = change.value or 0.0
    if value >= _FOLD:
        low, high = (None if end is None else end + 1 for end in (change.low, change.high))
        return (
            f"{cell(replace(change, value=value + 1, low=low, high=high), PrintedUnit(1.0, ''))} times the {noun} of A"
        )
    shown = change.scaled(-1.0) if value < 0 else change
    size = percent(abs(value)) if shown.low is None else f"{cell(shown, PERCENT)}{NBSP}%"
    if shown.low is not None and shown.high is not None and shown.low > 0 and abs(value) <= (shown.half_width or 0.0):
        size = f"{percent(abs(value))} ({percent(shown.low)} to {percent(shown.high)})"  # ± would hold 0
    return f"{size} {'less' if value < 0 else 'more'} {noun}"


def trusted(comparison: Comparison) -> Outcomes:
    """Trust in both sides, and in the verdict on the energy."""
    doubts = [
        Failure(*rule(doubt_note.code), doubt_note.code, message=note(doubt_note)) for doubt_note in comparison.doubts
    ]
    sides = joined([comparison.outcomes, of([], doubts)])
    failed = [failure for failure in sides.failed if not (comparison.clear and failure.code in _TOO_WIDE)]
    return of([*sides.asked, "verdict"], [*failed, *_doubt(comparison)])


def _doubt(comparison: Comparison) -> list[Failure]:
    """Failures that qualify the verdict on the energy: one or none."""
    energy = None if comparison.same else comparison.whole.get("energy_total_j")
    if energy is not None and energy.verdict == INCONCLUSIVE:
        code = energy.reason or "unknown"
        level = NO if rule(code).level == YES else rule(code).level
        scatters = code in ("one_run", "spread_between_runs")
        action = _MORE.get(comparison.a.run.kind, _MORE_RUNS) if scatters else None
        if any(failure.code == "host_unsteady" for failure in comparison.outcomes.failed):
            action = ""  # no time that anyone has is enough
        made = Circumstances(max_time_s=80.0)
        return [Failure("verdict", level, code, message=reason(code), action=action, made=made)]
    if energy is not None and STORED_SCATTER in energy.flags:
        return [stored_scatter(ACTIONS["one_run"])]
    if energy is not None and ONE_RUN in energy.flags:
        action = _MORE.get(comparison.a.run.kind, _MORE_RUNS) or ACTIONS["one_run"]
        return [Failure("verdict", CARE, "one_run", message=flag(ONE_RUN), action=action)]
    if comparison.single_loads and any(row.level == LOAD and row.verdict in DIFFERENT for row in comparison.rows):
        return [Failure("verdict", CARE, "one_run", message=reason("one_run"), action=_MORE_RUNS)]
    return []


def stored_scatter(action: str) -> Failure:
    """The failure that qualifies a verdict on single runs: how runs differ is known from others only."""
    message = "one run each: the scatter between runs is a stored one"
    return Failure("verdict", CARE, STORED_SCATTER, message=message, action=action)
