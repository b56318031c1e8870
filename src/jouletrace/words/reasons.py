"""Codes in words: why a figure is missing, what a flag means, how a figure was obtained, what to do about a failure.

A code without words is printed as it is, so that nothing is lost when a new one appears.
"""

from __future__ import annotations

from jouletrace.run.recording_names import IDLE_NAME

NO_KERNEL = "no kernel running"
"""The time between kernels, and its energy, as it is printed: in files it is ``IDLE_NAME``, which people take for the
power of an idle GPU."""

REASONS: dict[str, str] = {
    "not_measured": "not measured",
    "part_not_measured": "the file states 0 J of a part of it, or none, which wasn't measured",
    "parts_differ": "the total that the file states isn't the sum of its parts",
    "rows_overlap": "rows overlap in time, and may be of the same devices",
    "may_count_twice": "one device may measure what another draws, too",
    "times_differ": "devices have different times",
    "unknown": "no reason was recorded",
    "not_finite": "the stored figure is not a number",
    "not_resolved": "the readings don't determine it: it is too short, or always runs beside the same kernels",
    "not_attributed": "the readings give no energies of kernels (see the warnings)",
    "no_formula": "torch has no formula for its FLOPs",
    "no_best_rate": "calibrate measured no best rate of its number format on this GPU",
    "no_iterations": "no single iterations were timed",
    "no_samples": "the sensor gave no reading in that time",
    "implausible_readings": "all readings are beyond what the GPU can draw",
    "no_windows": "no energy window was measured",
    "no_power_sensor": "no power sensor here",
    "no_power_reading": "no reading of power",
    "which_power": "several powers and no choice of one",
    "power_all_zero": "power reads 0 W throughout",
    "counter_stuck": "the energy counter stood still",
    "not_a_counter": "its energies fall again and again: they are no counter's",
    "too_uncertain": "the readings are too few, or too far apart, for a figure",
    "too_few_windows": "too few windows for an interval",
    "spans_differ": "they differ so much that their mean says nothing of one",
    "context_exists": "deep idle can't be seen once a CUDA context exists",
    "other_processes": "other processes were using the device",
    "no_counter": "the device has no energy counter",
    "idle_apart": "idle power before and after does not explain what longer windows drew",
    "idle_unseen": "no idle time was recorded beside the windows",
    "one_level": "no steady level lies apart from the rest",
    "not_at_rest": "the lowest level is too near to that at work to be idle power",
    "used_throughout": "the GPU was in use at the lowest level too, by its utilisation",
    "too_few_values": "too few readings",
    "no_limit": "no limit on a percentile was given",
    "too_few_independent": "too few independent values: a p99 needs 368, a p95 72, a p90 36",
    "power_zero": "its sensor reads 0 W at times, though the device is on",
    "counter_did_not_step": "too short for the energy counter's steps",
    "aliased_with_log": "its load repeats in the log's own rhythm: readings don't show what lies between",
    "outside_record": "the power record does not cover that time",
    "hole_in_record": "the power record has a hole there",
    "impossible_times": "the file gives some of it impossible times",
    "empty_window": "it took no time",
    "sensor_too_slow": "too short for this power sensor",
    "block_not_ended": "the block has not ended",
    "block_too_short": "the block took no time",
    "rapl_absent": "no RAPL energy counter here",
    "rapl_unreadable": "RAPL counters not readable",
    "setting_not_in_force": "a power limit or clock that was set was not in force",
    "mig_no_power": "a MIG instance has no power sensor of its own",
    "not_supported": "the device does not report it",
    "work_never_read": "the counter of work could not be read",
    "work_read_once": "the counter of work was read once only",
    "phases_not_spread": "it came always at the same point of the sensor's cycle, or filled all the time",
    "ranges_overlap": "several ran at once, in threads or streams",
    "too_many_names": "there are too many names of ranges; those with the most time have energy",
    "ranks_share_device": "ranks share a device: what each drew of it can't be determined",
    "ran_beside_others": "other kernels ran meanwhile: what each drew can't be determined; see the rows beneath",
    "no_work_counted": "no work was counted",
    "no_requests": "no request was answered in that time",
    "jobs_overlap": "another job ran on its GPUs meanwhile",
    "gpus_unknown": "its table or log doesn't say which GPUs it had",
    "not_divided": "several servers shared the GPU, of which only the sum is measured",
    "not_distinguished": "this load doesn't distinguish it: vary lengths and rates",
    "denominator_near_zero": "what it would be divided by may be nothing",
    "length_of_record": "how long was recorded is no result of a workload",
    "one_run": "one run per side doesn't show the scatter between runs",
    "not_given": "no price or carbon intensity was given",
    "load_not_valid": "the load is not valid",
    "sensor_gain": "not distinguishable from sensor gain",
    "spread_between_runs": "the scatter between runs leaves it open",
    "few_blocks": "too few blocks for a verdict",
}
"""By reason code: why a value is null, or a verdict inconclusive."""

FLAGS: dict[str, str] = {
    "stored": "from an earlier measurement of the same GPU",
    "times_left_out": "without those of it that have impossible times in the file",
    "between_runs_stored": "± holds the scatter between runs as stored from others: --repeats measures it",
    "one_run": "one run each: ± holds the largest difference on record of two runs of one thing",
    "hole_in_record": "the power record has a hole there",
    "counter_alone": "by the energy counter alone",
    "covered_alone": "energy, power and time are of what was recorded, without holes and resets",
    "holes_bridged": "energy, power and time are of the whole span: holes of the record are bridged",
    "implausible_readings": "readings beyond what the GPU can draw were left out",
    "nominal_response": "the sensor's response is not calibrated",
    "unmodelled": "readings do not fit the model of the sensor's response",
    "baseline_drifted": "idle power before and after differ",
    "drifting": "was drifting while it was measured",
    "traced_at_cap": "at the power cap tracing moves the clock: energies of parts are scaled to the untraced whole",
    "pooled": "known with others alone: their row has the sum",
    "shared_power": "one power was measured for it and other such rows: they differ by their times alone",
    "powers_doubtful": "some kernels come out at powers that no GPU draws: at its limits, this row would leave its ±",
    "overlapped": "other kernels ran at the same time: the energy of that time is shared equally",
    "aliased_with_sensor": "its period aliases with the sensor's readings or samples: one phase may weigh too much",
    "equal_readings": "readings are equal but for one change at most: so would be those of a load that repeats in "
    "the log's own rhythm, which is unlikely",
    "work_reset": "the counter of work started again: what it had counted just before that is lost",
    "host_time": "marks the host's time: what it launched on the GPU may have run later (sync=True waits)",
    "sensor_interval": "± of energy: what the sensor leaves open of those that ran, not how they differ",
    "pods_edges": "± holds what the GPU took between the two answers of the kubelet in which it changed hands",
    "ranges_crossed": "overlaps another range without one being inside the other: the warnings name them",
    "counts_differ": "ranks made different numbers of them",
    "traced": "in a segment in which kernels were traced, which costs a few percent",
    "whole_stretch": "of the whole traced segment: no steps were marked in it",
    "traced_whole": "the whole is the traced recording itself: what tracing costs doesn't show",
    "few_windows": "fewer windows than wanted",
    "windows_left_out": "windows without a figure were left out",
    "target_not_met": "the wanted interval was not reached in the time allowed",
    "host_unsteady": "this host is too unsteady for the wanted interval",
    "interval_assumed": "the log has no times: its rows are taken to be equally far apart",
    "power_implausible": "more power than any GPU board draws: is its unit right?",
    "load_not_steady": "the load was not steady",
    "rate_not_seen": "over the steady window itself: its parts don't show what the offered rate would take",
    "modelled": "the GPU's power is divided among slices by their activity, which is a model",
    "device_assumed": "nothing says which device a part ran on: it is given to the only one with a power record",
    "dtype_differs": "matched though the types of its inputs differ",
    "shapes_differ": "matched though the shapes of its inputs differ",
    "kernel_differs": "another kernel under the same operator",
    "below_margin": "significant, but below the margin",
}
"""By flag code: what a reader must know about a figure."""

METHODS: dict[str, str] = {
    "windows": "mean of windows",
    "stated": "stated by the imported file",
    "timeline": "power record over the span",
    "spans": "durations of the spans",
    "median": "order statistics",
    "mean": "mean of iterations",
    "runs": "mean of runs",
    "idle": "idle phases",
    "window": "one window",
    "together": "all windows together, too few to say how they differ",
    "clock": "clock",
    "share": "apportioned by time",
    "record": "from the power record",
    "samples": "mean of readings",
    "stored": "stored from an earlier measurement",
    "counter": "energy counter",
    "counted": "counted from shapes",
    "counters": "hardware counters of launches",
    "derived": "from other figures here",
    "trace": "traced kernels",
    "counted work": "record between readings of the counter",
    "levels": "difference of levels",
    "levels x latency": "difference of levels times a latency",
    "ranks": "sum over ranks",
    "repeated": "repeated segments of the power record",
    "given": "as given",
    "requests": "from the requests",
    "request timeline": "regression of power on the timeline of requests",
    "offered rate": "regression of energy on tokens in ten parts, read at the offered rate",
    "blocks": "scatter of ten parts of the window",
    "bill": "sum of the bills of requests",
    "scheduler steps": "regression of power on the scheduler's steps",
    "streamed steps": "regression of power on the steps that the answers show",
    "traced steps": "regression of traced kernels' energy on the scheduler's steps",
}
"""By method: how a figure and its interval were obtained."""

THROTTLE: dict[str, str] = {
    "applications_clocks": "application clocks",
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware slowdown",
    "sync_boost": "sync boost",
    "sw_thermal": "software thermal limit",
    "hw_thermal": "hardware thermal limit",
    "hw_power_brake": "hardware power brake",
    "display_clocks": "display clocks",
}
"""By name in ``run.channels.THROTTLE_REASONS``: what held the clocks down."""

AGAIN = "run it again"

_CODES_BY_ACTION = {
    AGAIN: """
        failed run_failed record_hole hole_in_record record_clock_stepped_back not_finite
        windows_left_out rank_lost rank_missing rank_incomplete child_lost activity_lost clock_moved clock_stepped
        impossible_times before_launch rows_left_out""",
    "let it run to its end, unless that was meant": "program_ended",
    "mend the program, then run it again": "program_failed",
    "let the program wait for it": "child_runs",
    "give a smaller --batch": "out_of_memory",
    "give a longer --point-limit": "timed_out",
    "measure for longer": """
        no_windows no_samples empty_window counter_did_not_step sensor_too_slow too_few_values
        no_value no_activity denominator_near_zero one_window_a_run work_read_once""",
    "jouletrace doctor says what can be measured here": "no_power_sensor rapl_absent rapl_unreadable not_supported",
    "measure the whole GPU": "mig_no_power",
    "check the unit of the log (--map states it), and the GPU's name": "power_implausible power_impossible",
    "choose its column by --map": "which_power",
    "record power from before the start until after the end": "outside_record",
    "check how the file writes its times": "no_time stray_times",
    "read it after the block": "block_not_ended",
    "repeat the work inside the block": "block_too_short",
    "{calibrate}": "unmodelled",
    "run it again on an idle GPU, with a longer --seconds": "not_calibrated",
    "run it again on an idle GPU": "not_stored misfit_at_edges drifting",
    "wait until they end, or choose another GPU by --device": "other_processes",
    "give --warmup {warmup}": "not_settled",
    "let the GPU rest for a minute, then run it again": "baseline_drifted",
    "check the GPU's cooling and power supply": "hw_slowdown",
    "check the GPU's cooling": "sw_thermal hw_thermal",
    "check the machine's power supply": "hw_power_brake",
    "take another batch size or mode": "aliased_with_sensor",
    "log at another or uneven interval, or log the energy counter": "aliased_with_log",
    "record for longer, or vary the pauses between": "phases_not_spread",
    "give --max-time {max_time}": "target_not_met few_windows too_few_windows few_blocks",
    "give more --repeats": "no_spread spread_between_runs",
    "measure more GPUs": "few_gpus one_gpu",
    "profile both with the sensor calibrated on both, or on neither": "calibration_differs",
    "measure riser and cables of this GPU alone; --map names their column": "meter_of_more",
    "profile both with --repeats 3, or use jouletrace ab": "one_run",
    "measure both on one GPU, with jouletrace ab": "sensor_gain",
    "give inputs like those of real use": "constant_inputs",
    "check the model's inputs and number format": "nan_outputs inf_outputs",
    "record for longer: --detail-time, or --max-time": "closure",
    "use sums of rows, which are better known": "powers_doubtful",
    "trace a shorter part: --duty 5/60": "records_dropped few_records_dropped",
    "use inputs of one shape, or measure each branch alone": "kernels_not_joined",
    "run the program without its own profiler": "profiler_inside",
    "record the power of the others, too": "one_device",
    "mark the iterations around all kernels": "outside_of_iterations",
    "say which by --device": "device_assumed",
    "record the program's GPUs alone, by --device, if it used no other": "kernels_not_recorded",
    "open ranges in one thread": "ranges_overlap",
    "end the inner range before the outer one": "ranges_crossed",
    "mark fewer ranges inside others": "ranges_too_deep",
    "begin each range once, and end it once": "ranges_not_begun",
    "end each range before the recording": "ranges_not_ended",
    "mark fewer ranges": "spans_left_out",
    "give repeated ranges one name": "too_many_names",
    "record once around all": "record_within",
    "give each rank a GPU of its own": "ranks_share_device",
    "trace all ranks from the start": "collectives_unmatched",
    "send work while it is watched": "no_work_counted",
    "check the address given by --per": "work_never_read",
    "keep the server running while it is watched": "work_reset",
    "import a file with single requests": "no_single_requests",
    "import the client's own result file": "no_load_times",
    "see the warnings of that load": "load_not_valid",
    "see the server's log": "requests_failed requests_left_out",
    "give lower --rate": "given_up rate_not_reached",
    "give a longer --duration": "no_requests load_not_steady",
    "run the client on another machine": "client_late",
    "run bench with --device of the server's GPU": "gpu_not_loaded",
    "join the log by jouletrace bill": "steps_not_read",
    "give jouletrace bill the whole log": "steps_missing",
    "log the steps while the load runs": "steps_not_used",
    "keep other clients off the server": "steps_of_others",
    "turn the server's cache of prefixes off, and log all steps": "steps_too_few",
    "vary lengths and rates": "steps_not_closed",
    "check the server's usage figures": "more_tokens",
    "say how far apart their clocks are by --offset": "clock_assumed",
    "log with times": "interval_assumed",
    "check the times": "beyond_log",
    "give the date": "several_days",
    "record both at the same time, or give --offset": "no_common_time",
    "take the file as it was saved": "changed_since_saved",
    "copy the whole folder, or profile again": "repeat_lost",
    "export the file again": """
        unsound_requests no_times no_concurrency no_gpu_count bad_rows bad_times below_zero broken_layers
        layers_missing broken_rows cut_off damaged_gzip damaged_table unfinished_line""",
    "trace CUDA, too": "no_kernels",
    "if they are of several devices, log the device of each row": "repeated_rows",
    "write the cells in a known unit, such as W, MHz, C": "unknown_units",
}
"""By action: the codes about which it does something. What is in braces depends on the Run."""

ACTIONS = {code: action for action, codes in _CODES_BY_ACTION.items() for code in codes.split()}
"""By code: what to do; absent where the message says so, or nothing can be done."""

ACTIONS_OF_KIND = {
    ("closure", "program"): (
        "what --duty leaves out is estimated, or kernels are missing: trace more, or run it for longer"
    ),
    ("closure", "record"): "record for longer",
    ("records_dropped", "profile"): "trace a shorter part: a lower --detail-time",
    ("records_dropped", "record"): "record a shorter part",
    **dict.fromkeys(
        (("outside_record", "program"), ("outside_record", "monitor")),
        "the host was too busy to read the sensor in time: run it again while less else runs there",
    ),
}
"""By code and kind of Run: what to do where its command has other options."""


def stated(message: str) -> str:
    """The text of a warning without the words of trust in those of older Runs, whose rows alone they meant."""
    return message.replace("trust: no, ", "")


def printed(name: str | None) -> str:
    """A unit's name as it is printed, in parentheses or not."""
    if name is not None and name.strip("()") == IDLE_NAME:
        return name.replace(IDLE_NAME, NO_KERNEL)
    return str(name or "?")


def reason(code: str | None) -> str:
    """Why a figure is missing, in words."""
    return REASONS.get(code or "unknown", code or "")


def no_energy(*codes: str | None, whose: str = "", figure: str = "energy") -> str:
    """That there is no energy, or another figure, and why: in one phrase everywhere."""
    return f"{figure}{whose} unknown: {', '.join(dict.fromkeys(map(reason, codes)))}"


def flag(code: str) -> str:
    """A flag in words."""
    return FLAGS.get(code, code)


def method(code: str) -> str:
    """A method in words."""
    return METHODS.get(code, code)


def throttle(name: str) -> str:
    """A throttle reason in words."""
    return THROTTLE.get(name, name)
