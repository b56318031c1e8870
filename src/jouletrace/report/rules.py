"""What each code that a Run can hold (of a warning, of a flag, of a missing figure) means for trust in figures."""

from __future__ import annotations

from typing import NamedTuple

YES, CARE, NO, NONE = "yes", "with care", "no", "none"
"""Levels: nothing is in doubt; a figure is qualified, or this machine can't measure it; a figure itself is in doubt, or
missing although it can be measured; there is no figure, and so nothing to trust."""


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


AGAIN = "run it again"
_SENSORS = "jouletrace doctor says what can be measured here"
_LONGER = "measure for longer"
_ALONE = "wait until they end, or choose another GPU by --device"
_IDLE = "let the GPU rest for a minute, then run it again"
_EXPORT = "export the file again"

RULES: dict[str, Rule] = {
    # how it ended
    "interrupted": Rule("complete", CARE, AGAIN),
    "incomplete": Rule("complete", CARE, AGAIN),
    "failed": Rule("complete", NO, AGAIN),
    "command_failed": Rule("complete", CARE, "mend the command, then run it again"),
    "program_ended": Rule("complete", CARE, "let it run to its end, unless that was meant"),
    "program_failed": Rule("complete", CARE, "mend the program, then run it again"),
    "run_failed": Rule("complete", NO, AGAIN),
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
    "no_power_reading": Rule("power sensor", CARE),
    "power_all_zero": Rule("power sensor", CARE),
    "power_zero": Rule("power sensor", NO),
    "meter_zero": Rule("power sensor", CARE),
    "counter_alone": Rule("power sensor", YES),
    "counter_differs": Rule("power sensor", NO),
    "counter_stuck": Rule("power sensor", NO),
    "counter_reset": Rule("power sensor", CARE),
    "counter_implausible": Rule("power sensor", CARE),
    "not_a_counter": Rule("power sensor", YES),
    "simulated_idle": Rule("power sensor", NO),
    "power_implausible": Rule("power sensor", NO, "check the unit of the log: --map states it"),
    "above_a_board": Rule("power sensor", YES),
    "power_impossible": Rule("power sensor", NO, "check the unit of the log: --map states it"),
    "sensor_unknown": Rule("power sensor", CARE),
    "long_average": Rule("power sensor", CARE),
    "sparse_readings": Rule("power sensor", CARE),
    "which_power": Rule("power sensor", CARE, "choose its column by --map"),
    # the record of power
    "no_samples": Rule("power record", NO, _LONGER),
    "outside_record": Rule("power record", NO, "record power from before the start until after the end"),
    "record_shorter": Rule("power record", CARE),
    "too_uncertain": Rule("power record", NO),
    "record_hole": Rule("power record", CARE, AGAIN),
    "hole_in_record": Rule("power record", CARE, AGAIN),
    "covered_alone": Rule("power record", CARE),
    "recorded_late": Rule("power record", YES),
    "ends_left_out": Rule("power record", YES),
    "implausible_readings": Rule("power record", CARE),
    "record_nan": Rule("power record", CARE),
    "record_negative": Rule("power record", CARE),
    "record_implausible": Rule("power record", CARE),
    "record_clock_stepped_back": Rule("power record", CARE, AGAIN),
    "record_conflicting_stamps": Rule("power record", CARE),
    "empty_window": Rule("power record", NO, _LONGER),
    "not_finite": Rule("power record", NO, AGAIN),
    "counter_did_not_step": Rule("power record", CARE, _LONGER),
    "sensor_too_slow": Rule("power record", NO, _LONGER),
    "edges_too_dense": Rule("power record", NO, _LONGER),
    "too_few_values": Rule("power record", NO, _LONGER),
    "no_value": Rule("power record", NO, _LONGER),
    "no_time": Rule("power record", CARE, "check how the file writes its times"),
    "no_activity": Rule("power record", NO, _LONGER),
    "block_not_ended": Rule("power record", NO, "read it after the block"),
    "block_too_short": Rule("power record", NO, "repeat the work inside the block"),
    "idle_levels": Rule("power record", YES),
    "one_level": Rule("power record", YES),
    # the sensor's response
    "nominal_response": Rule("sensor response", YES),  # its wider uncertainty is in the intervals
    "unmodelled": Rule("sensor response", CARE, "run jouletrace calibrate on an idle GPU"),
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
    "windows_left_out": Rule("precision", CARE, AGAIN),
    "between_runs_stored": Rule("precision", YES),
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
    "calibration_differs": Rule(
        "sensor response", CARE, "profile both with the sensor calibrated on both, or on neither"
    ),
    "one_run": Rule("precision", CARE, "profile both with --repeats 3, or use jouletrace ab"),
    "sensor_gain": Rule("precision", CARE, "measure both on one GPU, with jouletrace ab"),
    "spread_between_runs": Rule("precision", CARE, "give more --repeats"),
    "few_blocks": Rule("precision", CARE, "give --max-time {max_time}"),
    "below_margin": Rule("precision", YES),
    "gpus_and_workloads_differ": Rule("matching", CARE),
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
    "no_gpu": Rule("tracing", YES),
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
    "rank_lost": Rule("ranks", CARE, AGAIN),
    "rank_missing": Rule("ranks", CARE, AGAIN),
    "rank_incomplete": Rule("ranks", CARE, AGAIN),
    "counts_differ": Rule("ranks", YES),
    "child_lost": Rule("ranks", CARE, AGAIN),
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
    "no_single_requests": Rule("steady load", CARE, "import a file with single requests"),
    "no_result": Rule("files", CARE),
    "no_load_times": Rule("power record", CARE, "import the client's own result file"),
    "power_not_valid": Rule("power record", CARE),
    "modelled": Rule("power of slices", CARE),
    "activity_lost": Rule("power of slices", CARE, AGAIN),
    "load_not_steady": Rule("steady load", CARE, "give a longer --duration"),
    "rate_not_seen": Rule("steady load", YES),
    "not_given": Rule("complete", YES),
    "load_not_valid": Rule("steady load", CARE, "see the warnings of that load"),
    "requests_failed": Rule("requests answered", CARE, "see the server's log"),
    "given_up": Rule("requests answered", CARE, "give lower --rate"),
    "no_requests": Rule("requests answered", CARE, "give a longer --duration"),
    "rate_not_reached": Rule("requests answered", CARE, "give lower --rate"),
    "client_late": Rule("client on time", CARE, "run the client on another machine"),
    "gpu_not_loaded": Rule("the server's GPU", NO, "run bench with --device of the server's GPU"),
    "steps_not_read": Rule("scheduler steps", CARE, "join the log by jouletrace bill"),
    "steps_missing": Rule("scheduler steps", NO, "give jouletrace bill the whole log"),
    "steps_not_traced": Rule("scheduler steps", YES),
    "steps_not_used": Rule("scheduler steps", CARE, "log the steps while the load runs"),
    "steps_of_others": Rule("scheduler steps", CARE, "keep other clients off the server"),
    "steps_too_few": Rule("scheduler steps", CARE, "turn the server's cache of prefixes off, and log all steps"),
    "steps_not_closed": Rule("scheduler steps", CARE, "vary lengths and rates"),
    "no_usage": Rule("tokens counted", CARE),
    "short_answers": Rule("tokens counted", CARE),
    "more_tokens": Rule("tokens counted", NO, "check the server's usage figures"),
    "sent_again": Rule("requests answered", YES),
    "requests_left_out": Rule("requests answered", CARE, "see the server's log"),
    "load_capped": Rule("clocks", YES),
    "not_distinguished": Rule("attribution", YES),
    # clocks of stamps
    "clock_moved": Rule("stamps", CARE, AGAIN),
    "clock_stepped": Rule("stamps", CARE, AGAIN),
    "clock_assumed": Rule("stamps", CARE, "say how far apart their clocks are by --offset"),
    "interval_assumed": Rule("stamps", CARE, "log with times"),
    "logged_twice": Rule("files", YES),
    "no_common_time": Rule("stamps", CARE, "record both at the same time, or give --offset"),
    "impossible_times": Rule("stamps", CARE, AGAIN),
    "times_left_out": Rule("stamps", YES),
    "before_launch": Rule("stamps", CARE, AGAIN),
    "time_unit_assumed": Rule("stamps", CARE),
    "time_zone_assumed": Rule("stamps", YES),
    "date_order_assumed": Rule("stamps", CARE),
    "hour_assumed": Rule("stamps", CARE),
    "stamps_shared": Rule("stamps", CARE),
    "stray_times": Rule("stamps", CARE, "check how the file writes its times"),
    # files
    "rows_left_out": Rule("files", CARE, AGAIN),
    "changed_since_saved": Rule("files", NO, "take the file as it was saved"),
    "not_checked": Rule("files", YES),
    "counters_unmatched": Rule("files", CARE),
    "no_activity_log": Rule("files", CARE),
    "unsound_requests": Rule("files", CARE, _EXPORT),
    "no_times": Rule("files", CARE, _EXPORT),
    "no_concurrency": Rule("files", CARE, _EXPORT),
    "no_gpu_count": Rule("files", CARE, _EXPORT),
    "no_reading": Rule("files", YES),
    "no_record": Rule("files", YES),
    "warm_up": Rule("files", YES),
    "bad_rows": Rule("files", CARE, _EXPORT),
    "bad_times": Rule("files", CARE, _EXPORT),
    "below_zero": Rule("files", CARE, _EXPORT),
    "broken_layers": Rule("files", CARE, _EXPORT),
    "layers_missing": Rule("files", CARE, _EXPORT),
    "broken_rows": Rule("files", CARE, _EXPORT),
    "compare_table": Rule("files", CARE),
    "curves": Rule("files", YES),
    "cut_off": Rule("files", CARE, _EXPORT),
    "damaged_gzip": Rule("files", CARE, _EXPORT),
    "damaged_table": Rule("files", CARE, _EXPORT),
    "earlier_rows": Rule("files", YES),
    "failed_rows": Rule("files", YES),
    "instants": Rule("files", YES),
    "marks": Rule("files", YES),
    "missing_cells": Rule("files", YES),
    "no_kernels": Rule("files", CARE, "trace CUDA, too"),
    "no_state": Rule("files", CARE),
    "not_a_figure": Rule("files", CARE),
    "not_a_number": Rule("files", CARE),
    "not_a_row": Rule("files", CARE),
    "other_lines": Rule("files", YES),
    "repeated_rows": Rule("files", CARE, "if they are of several devices, log the device of each row"),
    "second_readings": Rule("files", YES),
    "text_metrics": Rule("files", YES),
    "text_trace": Rule("files", CARE),
    "throughput_differs": Rule("files", CARE),
    "unclosed_ranges": Rule("files", CARE),
    "unfinished_line": Rule("files", CARE, _EXPORT),
    "unknown_columns": Rule("files", YES),
    "unknown_units": Rule("files", CARE, "write the cells in a known unit, such as W, MHz, C"),
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


def rule(code: str) -> Rule:
    """What a code means; one that isn't in the table qualifies figures, so that nothing is lost."""
    return RULES.get(code) or Rule(code.replace("_", " "), CARE)
