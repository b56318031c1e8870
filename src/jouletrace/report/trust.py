"""Whether to trust the figures of a Run: which checks it passed, which it failed, and what to do about these.

One table, ``RULES``, has every code that a Run can hold (of a warning, of a flag, of why a figure is missing): the
check that it fails, how much that counts, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from jouletrace.analysis.conditions import conditions
from jouletrace.report import reasons, serving
from jouletrace.report.facts import endings, others
from jouletrace.report.results import OF_PARTS, Results
from jouletrace.report.scale import NBSP, figure
from jouletrace.run import MODEL_UNIT, Run, RunWarning
from jouletrace.run.channels import POWER

YES, CARE, NO = "yes", "with care", "no"
"""Levels: nothing is in doubt; a figure is qualified; a figure itself is in doubt, or missing."""

_LEVELS = (YES, CARE, NO)

CLOSED = 0.02
"""Parts whose sum is that close to the whole make it up; tracing itself costs as much (docs/results)."""

_LONG_THROTTLE = 0.02
"""Share of the time from which lowered clocks qualify a figure."""


class Rule(NamedTuple):
    """What a code means for trust.

    Attributes:
        check: Name of the check that it fails.
        level: How much it counts; ``YES`` for a remark that leaves figures as good as they are.
        action: What to do; "" where the message says so, or nothing can be done.
    """

    check: str
    level: str
    action: str = ""


_AGAIN = "run it again"
_SENSORS = "jouletrace doctor says what can be measured here"
_LONGER = "measure for longer"
_ALONE = "wait until they end, or choose another GPU by --device"
_IDLE = "let the GPU rest for a minute, then run it again"
_EXPORT = "export the file again"

RULES: dict[str, Rule] = {
    # how it ended
    "interrupted": Rule("complete", CARE, _AGAIN),
    "incomplete": Rule("complete", CARE, _AGAIN),
    "failed": Rule("complete", NO, _AGAIN),
    "command_failed": Rule("complete", CARE, "mend the command, then run it again"),
    "program_failed": Rule("complete", CARE, "mend the program, then run it again"),
    "run_failed": Rule("complete", NO, _AGAIN),
    "out_of_memory": Rule("complete", NO, "give a smaller --batch"),
    "timed_out": Rule("complete", NO, "give a longer --point-limit"),
    "no_windows": Rule("complete", NO, _LONGER),
    "no_iterations": Rule("complete", CARE),
    # a power sensor
    "no_power_sensor": Rule("power sensor", CARE, _SENSORS),
    "rapl_absent": Rule("power sensor", CARE, _SENSORS),
    "rapl_unreadable": Rule("power sensor", CARE, _SENSORS),
    "mig_no_power": Rule("power sensor", CARE, "measure the whole GPU, or jouletrace mig sweep"),
    "not_supported": Rule("power sensor", CARE, _SENSORS),
    "not_measured": Rule("power sensor", CARE),
    "unknown": Rule("power sensor", NO),
    "no_counter": Rule("power sensor", YES),
    "power_implausible": Rule("power sensor", NO, "check the unit of the log: --map states it"),
    "power_impossible": Rule("power sensor", NO, "check the unit of the log: --map states it"),
    "sensor_unknown": Rule("power sensor", CARE),
    "long_average": Rule("power sensor", CARE),
    "which_power": Rule("power sensor", CARE, "choose its column by --map"),
    # the record of power
    "no_samples": Rule("power record", NO, _LONGER),
    "outside_record": Rule("power record", NO, "record power from before the start until after the end"),
    "record_hole": Rule("power record", CARE, _AGAIN),
    "hole_in_record": Rule("power record", CARE, _AGAIN),
    "recorded_late": Rule("power record", YES),
    "implausible_readings": Rule("power record", CARE),
    "record_nan": Rule("power record", CARE),
    "record_negative": Rule("power record", CARE),
    "record_implausible": Rule("power record", CARE),
    "record_clock_stepped_back": Rule("power record", CARE, _AGAIN),
    "record_conflicting_stamps": Rule("power record", CARE),
    "empty_window": Rule("power record", NO, _LONGER),
    "not_finite": Rule("power record", NO, _AGAIN),
    "counter_did_not_step": Rule("power record", CARE, _LONGER),
    "sensor_too_slow": Rule("power record", NO, _LONGER),
    "edges_too_dense": Rule("power record", NO, _LONGER),
    "too_few_values": Rule("power record", NO, _LONGER),
    "no_value": Rule("power record", NO, _LONGER),
    "no_time": Rule("power record", NO, _LONGER),
    "no_activity": Rule("power record", NO, _LONGER),
    "block_not_ended": Rule("power record", NO, "read it after the block"),
    "block_too_short": Rule("power record", NO, "repeat the work inside the block"),
    "one_level": Rule("power record", YES),
    # the sensor's response
    "nominal_response": Rule("sensor response", CARE, "run jouletrace calibrate once"),
    "unmodelled": Rule("sensor response", CARE, "run jouletrace calibrate again on an idle GPU"),
    "not_calibrated": Rule("sensor response", NO, "run it again on an idle GPU, with a longer --seconds"),
    "not_stored": Rule("sensor response", CARE, "run it again on an idle GPU"),
    "misfit_at_edges": Rule("sensor response", CARE, "run it again on an idle GPU"),
    "drops_samples": Rule("sensor response", CARE),
    "drifting": Rule("sensor response", CARE, "run it again on an idle GPU"),
    # who else was there
    "other_processes": Rule("other processes", NO, _ALONE),
    "context_exists": Rule("other processes", YES),
    # the state of the GPU
    "not_settled": Rule("warm-up", NO, "give --warmup {warmup}"),
    "baseline_drifted": Rule("idle power", CARE, _IDLE),
    "temperature_did_not_vary": Rule("idle power", YES),
    "stored": Rule("idle power", YES),
    "hw_slowdown": Rule("clocks", CARE, "check the GPU's cooling and power supply"),
    "sw_thermal": Rule("clocks", CARE, "check the GPU's cooling"),
    "hw_thermal": Rule("clocks", CARE, "check the GPU's cooling"),
    "hw_power_brake": Rule("clocks", CARE, "check the machine's power supply"),
    "sw_power_cap": Rule("clocks", YES),
    "sync_boost": Rule("clocks", YES),
    "display_clocks": Rule("clocks", YES),
    "applications_clocks": Rule("clocks", YES),
    "clock_not_as_told": Rule("clocks", YES),  # of earlier versions
    # precision
    "aliased_with_sensor": Rule("aliasing", CARE, "take another batch size or mode"),
    "phases_not_spread": Rule("aliasing", CARE, "record for longer, or vary the pauses between"),
    "target_not_met": Rule("precision", CARE, "give --max-time {max_time}"),
    "few_windows": Rule("precision", CARE, "give --max-time {max_time}"),
    "too_few_windows": Rule("precision", CARE, "give --max-time {max_time}"),
    "windows_left_out": Rule("precision", CARE, _AGAIN),
    "no_spread": Rule("precision", CARE, "give more --repeats"),
    "denominator_near_zero": Rule("precision", CARE, _LONGER),
    "did_not_vary": Rule("precision", YES),
    "few_gpus": Rule("precision", CARE, "measure more GPUs"),
    "one_gpu": Rule("precision", CARE, "measure more GPUs"),
    "one_node": Rule("precision", YES),
    "one_gpu_a_node": Rule("precision", YES),
    "one_run_a_gpu": Rule("precision", CARE),
    "one_window_a_run": Rule("precision", CARE, _LONGER),
    # a comparison
    "one_run": Rule("precision", CARE, "profile both with --repeats 3, or use jouletrace ab"),
    "sensor_gain": Rule("precision", CARE, "measure both on one GPU, with jouletrace ab"),
    "spread_between_runs": Rule("precision", CARE, "give more --repeats"),
    "few_blocks": Rule("precision", CARE, "give --max-time {max_time}"),
    "below_margin": Rule("precision", YES),
    "dtype_differs": Rule("matching", YES),
    "shapes_differ": Rule("matching", YES),
    "kernel_differs": Rule("matching", YES),
    # what was run
    "constant_inputs": Rule("inputs and outputs", CARE, "give inputs like those of real use"),
    "nan_outputs": Rule("inputs and outputs", CARE, "check the model's inputs and number format"),
    "inf_outputs": Rule("inputs and outputs", CARE, "check the model's inputs and number format"),
    "train_mode": Rule("inputs and outputs", CARE),
    # parts
    "closure": Rule("parts and whole", CARE, "record for longer: --detail-time, or --max-time"),
    "not_attributed": Rule("attribution", NO),
    "not_resolved": Rule("attribution", YES),
    "pooled": Rule("attribution", YES),
    "overlapped": Rule("attribution", YES),
    "ran_beside_others": Rule("attribution", YES),
    "traced_at_cap": Rule("parts and whole", YES),
    "traced_whole": Rule("parts and whole", YES),
    "traced": Rule("parts and whole", YES),
    "whole_stretch": Rule("parts and whole", YES),
    "not_traced": Rule("tracing", CARE),
    "records_dropped": Rule("tracing", NO, "trace a shorter part: --duty 5/60"),
    "kernels_not_joined": Rule("tracing", CARE, "use inputs of one shape"),
    "nodes_not_timed": Rule("tracing", YES),
    "profiler_inside": Rule("tracing", CARE, "run the program without its own profiler"),
    "traced_by_torch": Rule("tracing", YES),
    "graphs_hide_kernels": Rule("tracing", CARE),
    "one_device": Rule("tracing", CARE, "record the power of the others, too"),
    "outside_of_iterations": Rule("tracing", CARE, "mark the iterations around all kernels"),
    "kernels_overlap": Rule("tracing", YES),
    "device_assumed": Rule("tracing", CARE, "say which by --device"),
    "not_recorded": Rule("tracing", CARE),
    # ranges of a recording
    "ranges_overlap": Rule("ranges", CARE, "open ranges in one thread"),
    "ranges_crossed": Rule("ranges", CARE, "end the inner range before the outer one"),
    "ranges_too_deep": Rule("ranges", CARE, "mark fewer ranges inside others"),
    "ranges_not_begun": Rule("ranges", CARE, "begin each range once, and end it once"),
    "ranges_not_ended": Rule("ranges", CARE, "end each range before the recording"),
    "spans_left_out": Rule("ranges", CARE, "mark fewer ranges"),
    "too_many_names": Rule("ranges", CARE, "give repeated ranges one name"),
    "more_names": Rule("ranges", YES),
    "host_time": Rule("ranges", YES),
    "sensor_interval": Rule("ranges", YES),
    "record_within": Rule("ranges", CARE, "record once around all"),
    "update_failed": Rule("ranges", CARE),
    # several processes
    "ranks_share_device": Rule("ranks", NO, "give each rank a GPU of its own"),
    "rank_lost": Rule("ranks", CARE, _AGAIN),
    "rank_missing": Rule("ranks", CARE, _AGAIN),
    "rank_incomplete": Rule("ranks", CARE, _AGAIN),
    "counts_differ": Rule("ranks", YES),
    "child_lost": Rule("ranks", CARE, _AGAIN),
    "collectives_unmatched": Rule("ranks", CARE, "trace all ranks from the start"),
    # a counter of work
    "no_work_counted": Rule("counter of work", CARE, "send work while it is watched"),
    "work_never_read": Rule("counter of work", CARE, "check the address given by --per"),
    "work_read_once": Rule("counter of work", CARE, _LONGER),
    "work_not_read": Rule("counter of work", CARE),
    "work_untyped": Rule("counter of work", YES),
    "work_reset": Rule("counter of work", CARE, "keep the server running while it is watched"),
    "work_implausible": Rule("counter of work", CARE),
    # a server under load
    "load_not_steady": Rule("steady load", CARE, "give a longer --duration"),
    "requests_failed": Rule("requests answered", CARE, "see the server's log"),
    "given_up": Rule("requests answered", CARE, "give lower --rate"),
    "no_requests": Rule("requests answered", CARE, "give a longer --duration"),
    "rate_not_reached": Rule("requests answered", CARE, "give lower --rate"),
    "client_late": Rule("client on time", CARE, "run the client on another machine"),
    "gpu_not_loaded": Rule("the server's GPU", NO, "choose it by --device"),
    "steps_not_read": Rule("scheduler steps", CARE, "join the log by jouletrace bill"),
    "steps_not_traced": Rule("scheduler steps", YES),
    "steps_not_used": Rule("scheduler steps", CARE, "log the steps while the load runs"),
    "steps_of_others": Rule("scheduler steps", CARE, "let nobody else use the server"),
    "steps_not_closed": Rule("scheduler steps", CARE, "vary lengths and rates"),
    "no_usage": Rule("tokens counted", CARE),
    "short_answers": Rule("tokens counted", CARE),
    "load_capped": Rule("clocks", YES),
    "not_distinguished": Rule("attribution", YES),
    # clocks of stamps
    "clock_moved": Rule("stamps", CARE, _AGAIN),
    "clock_stepped": Rule("stamps", CARE, _AGAIN),
    "clock_assumed": Rule("stamps", CARE, "say how far apart their clocks are by --offset"),
    "interval_assumed": Rule("stamps", CARE, "log with times"),
    "no_common_time": Rule("stamps", CARE, "record both at the same time, or give --offset"),
    "time_unit_assumed": Rule("stamps", CARE),
    "time_zone_assumed": Rule("stamps", YES),
    "date_order_assumed": Rule("stamps", CARE),
    # files
    "rows_left_out": Rule("files", CARE, _AGAIN),
    "changed_since_saved": Rule("files", NO, "take the file as it was saved"),
    "not_checked": Rule("files", YES),
    "counters_unmatched": Rule("files", CARE),
    "no_activity_log": Rule("files", CARE),
    "unsound_requests": Rule("files", CARE, _EXPORT),
    "no_times": Rule("files", CARE, _EXPORT),
    "no_record": Rule("files", YES),
    "warm_up": Rule("files", YES),
    "bad_rows": Rule("files", CARE, _EXPORT),
    "bad_times": Rule("files", CARE, _EXPORT),
    "below_zero": Rule("files", CARE, _EXPORT),
    "broken_layers": Rule("files", CARE, _EXPORT),
    "broken_rows": Rule("files", CARE, _EXPORT),
    "compare_table": Rule("files", CARE),
    "curves": Rule("files", YES),
    "cut_off": Rule("files", CARE, _EXPORT),
    "damaged_gzip": Rule("files", CARE, _EXPORT),
    "damaged_table": Rule("files", CARE, _EXPORT),
    "failed_rows": Rule("files", YES),
    "instants": Rule("files", YES),
    "marks": Rule("files", YES),
    "missing_cells": Rule("files", CARE),
    "no_kernels": Rule("files", CARE, "trace CUDA, too"),
    "no_state": Rule("files", CARE),
    "not_a_figure": Rule("files", CARE),
    "not_a_number": Rule("files", CARE),
    "not_a_row": Rule("files", CARE),
    "other_lines": Rule("files", YES),
    "text_metrics": Rule("files", YES),
    "text_trace": Rule("files", CARE),
    "throughput_differs": Rule("files", CARE),
    "unclosed_ranges": Rule("files", CARE),
    "unfinished_line": Rule("files", CARE, _EXPORT),
    "unknown_columns": Rule("files", YES),
    "unknown_units": Rule("files", CARE, "name the unit by --map"),
    "without_name": Rule("files", YES),
}
"""By code."""

ATTRIBUTION: dict[str, Rule] = {
    "length": Rule("length of the recording", NO, "give --detail-time 30"),
    "traced": Rule("all kernels traced", NO, "trace a shorter part: --duty 5/60"),
    "sample_rate": Rule("sample rate of the sensor", NO, "give --detail-time 30"),
    "rest": Rule("power between kernels", NO, "end other processes on this GPU"),
    "seen": Rule("coverage by samples", NO, "take another batch size or mode"),
    "held_out": Rule("prediction of other readings", NO, "give --detail-time 30"),
    "placebo": Rule("phase of the samples", NO, "give --detail-time 30"),
}
"""By name of a check of ``attribution.checks``; a Run states those that it failed in the warning ``not_attributed``."""

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
        text = self.message.rstrip(".")
        return f"{text}: {self.action}" if self.action and self.action not in text else text


@dataclass(frozen=True)
class Trust:
    """How far figures can be trusted.

    Attributes:
        passed: Names of the checks that were passed.
        failed: What was not, the worst first; a check may fail for several reasons.
        note: What the checks are about in a figure: how far parts make the whole; "" where there are none.
    """

    passed: tuple[str, ...] = ()
    failed: tuple[Failed, ...] = ()
    note: str = ""

    @property
    def level(self) -> str:
        """The worst level of what failed; ``YES`` if nothing did."""
        return max((one.level for one in self.failed), key=_LEVELS.index, default=YES)

    @property
    def asked(self) -> int:
        """How many checks there were."""
        return len(self.passed) + len({one.check for one in self.failed})

    def headline(self) -> str:
        """One line: "trust: yes, all 8 checks passed"."""
        lost = self.asked - len(self.passed)
        said = f"{lost} of {self.asked} checks failed" if self.failed else f"all {self.asked} checks passed"
        return f"trust: {self.level}, {said}{f'; {self.note}' if self.note else ''}"

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


def rule(code: str) -> Rule:
    """What a code means; one that isn't in the table qualifies figures, so that nothing is lost."""
    return RULES.get(code) or Rule(code.replace("_", " "), CARE)


def trust(run: Run, results: Results | None = None) -> Trust:
    """How far the figures of a Run can be trusted."""
    results = results or Results(run)
    failed: dict[tuple[str, str], Failed] = {}
    for code, message in _raised(run, results):
        own = rule(code)
        level = _level(run, code, own.level)
        if level != YES:
            action = own.action.format(**_suggested(run))
            if run.kind == "import" and own.check == "sensor response":
                action = ""  # the GPU may be anywhere
            failed.setdefault((code, message), Failed(own.check, level, code, message, action))
    closure = results.get("closure_kernels")
    note = "" if closure.value is None else f"parts are {figure(closure, '')} of the whole"
    note = "" if any(code == "closure" for code, _ in failed) else note
    return replace(of(asked(run, results), _once(failed.values())), note=note)


def of(names: Iterable[str], failed: Sequence[Failed]) -> Trust:
    """Trust from the names of the checks that were made and what failed."""
    lost = {one.check for one in failed}
    ranked = sorted(failed, key=lambda one: -_LEVELS.index(one.level))
    return Trust(tuple(name for name in dict.fromkeys(names) if name not in lost), tuple(ranked))


def joined(parts: Sequence[Trust]) -> Trust:
    """The trust of several together: what failed in any failed."""
    failed = {(one.code, one.message): one for part in parts for one in part.failed}
    names = [name for part in parts for name in (*part.passed, *(one.check for one in part.failed))]
    return of(names, list(failed.values()))


def _once(failed: Iterable[Failed]) -> list[Failed]:
    """Without what a flag repeats of a warning: messages of warnings come first and say more."""
    found: dict[str, list[Failed]] = {}
    for one in failed:
        known = found.setdefault(one.code, [])
        if not known or one.message != reasons.flag(one.code):
            known.append(one)
    return [one for some in found.values() for one in some]


def asked(run: Run, results: Results) -> list[str]:
    """Names of the checks that are made of a Run: what its kind and its sensors allow."""
    power = any(run.channel(device.id, POWER) is not None for device in run.devices)
    measured = run.kind != "import"
    timed = run.kind in ("profile", "ab")
    there = results.metrics()
    made = {
        "complete": measured,
        "power sensor": True,
        "power record": power,
        "sensor response": power and measured,
        "other processes": run.kind in ("profile", "ab", "calibrate", "program"),
        "warm-up": timed,
        "idle power": run.kind == "profile" and power,
        "clocks": power and conditions(run)["throttle_reasons"] is not None,
        "aliasing": power and timed,
        "precision": timed,
        "inputs and outputs": timed,
        "tracing": run.kind == "program" or bool(results.units("kernel")),
        "parts and whole": any(there[name].estimate.value is not None for name in OF_PARTS if name in there),
        "ranges": bool(results.units("range")) and run.kind in ("record", "monitor", "measure"),
        "ranks": bool(run.settings.get("ranks") or run.workload.get("gpus")),
        "counter of work": bool(run.settings.get("per")),
        **dict.fromkeys(_OF_LOADS, bool(results.units("load"))),
        "stamps": bool(run.clock_pairs) or not measured,
        "files": not measured,
    }
    names = [name for name, is_made in made.items() if is_made]
    if results.get("closure_kernels").value is not None and "residual_w" in there:
        sampled = "sample_rate_hz" in there
        names += [own.check for name, own in ATTRIBUTION.items() if sampled or name not in _OF_SAMPLES]
    return names


def _raised(run: Run, results: Results) -> Iterator[tuple[str, str]]:
    """Codes and messages: of warnings, of what is missing from the whole, of flags, of clocks, of parts."""
    for warning in endings(run):  # how stands at the head of all that is shown
        yield warning.code, "it did not end by itself"
    for warning in others(run):
        yield warning.code, _worded(warning)
    for metric in _headline(run):
        for unit in _wholes(run, results):
            own = results.figure(metric, unit)
            if own.estimate.value is None and metric in results.metrics(unit):
                yield own.estimate.reason or "unknown", f"the energy{_whose(results, unit)} is missing"
    flags = dict.fromkeys(
        code
        for unit in (MODEL_UNIT, *(unit["id"] for unit in results.all()))
        for one in results.metrics(unit).values()
        if one.estimate.value is not None
        for code in one.flags
    )
    for code in flags:
        yield code, reasons.flag(code)
    if run.kind in ("profile", "ab", "program", "import"):
        for name, share in (conditions(run)["throttle_reasons"] or {}).items():
            if share >= _LONG_THROTTLE:
                yield name, f"clocks lowered {100 * share:.0f}{NBSP}% of the time ({reasons.throttle(name)})"
    yield from _closure(results)


def _closure(results: Results) -> Iterator[tuple[str, str]]:
    """Parts that don't make the whole, beyond their interval and what tracing costs."""
    own = results.figure("closure_kernels")
    low, high = own.estimate.low, own.estimate.high
    if low is None or high is None or "traced_at_cap" in own.flags:
        return
    if low > 1 + CLOSED or high < 1 - CLOSED:
        yield "closure", f"parts are {figure(own.estimate, '')} of the whole"


def _headline(run: Run) -> tuple[str, ...]:
    """The metric that a kind of Run is made for."""
    logged = run.kind == "import" and any(run.channel(device.id, POWER) is not None for device in run.devices)
    return ("energy_total_j",) if logged or run.kind in ("profile", "program", "monitor", "record") else ()


def _wholes(run: Run, results: Results) -> list[int]:
    """Units that are wholes: the model, or the devices where each was watched."""
    if "energy_total_j" in results.metrics():
        return [MODEL_UNIT]
    return [unit["id"] for unit in results.units("device")]


def _whose(results: Results, unit: int) -> str:
    """Of which device, where there are several, and why."""
    devices = {one["id"]: str(one["name"]) for one in results.units("device")}
    if unit not in devices or len(devices) < 2:
        return ""
    why = reasons.reason(results.get("energy_total_j", unit).reason)
    return f" of {devices[unit]} ({why})"


def _worded(warning: RunWarning) -> str:
    """A warning in words, without its own words of trust and of what to do, which ``RULES`` has."""
    return warning.message.replace("trust: no, ", "").removesuffix(": see --max-time")


def _level(run: Run, code: str, level: str) -> str:
    """The level of a code in this Run."""
    if code in serving.DOUBTFUL and not serving.any_valid(run):
        return NO
    if code != "not_settled":
        return level
    # What was seen to drift spoils a mean; too short to see it may be harmless, and A and B alternating cancels it.
    about: Any = run.workload.get("warm_up") or {}
    drifting = False in (about.get("latency_settled"), about.get("power_settled"))
    return NO if drifting and run.kind != "ab" else CARE


def _suggested(run: Run) -> dict[str, str]:
    """What to give in place of the times that were too short."""
    settings: Any = run.settings
    found = {}
    for name, usual in (("warmup", 5.0), ("max_time", 20.0)):
        given = settings.get(f"{name}_s")
        found[name] = f"{3 * given if isinstance(given, int | float) and given > 0 else 3 * usual:g}"
    return found
