"""The check that each code of a Run (of a warning, a flag, a missing figure) fails, and how much that counts.

Words for codes, and what to do about them, are in ``words.reasons``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jouletrace.attribution.outcome import Outcome

YES, CARE, NO, NONE = "yes", "with care", "no", "none"
"""Levels: nothing is in doubt; a figure is qualified, or this machine can't measure it; a figure itself is in doubt, or
missing although it can be measured; there is no figure, and so nothing to trust."""


class Rule(NamedTuple):
    """Meaning of a code for trust.

    Attributes:
        check: Name of the check that it fails.
        level: How much it counts; ``YES`` for a remark that leaves figures as good as they are.
    """

    check: str
    level: str


_TABLE = """\
complete | no | failed run_failed out_of_memory timed_out no_windows
complete | with care | interrupted incomplete repeat_lost program_ended program_failed no_iterations
complete | yes | not_given
power sensor | no | unknown power_zero counter_differs counter_stuck simulated_idle power_implausible power_impossible
power sensor | no | power_stuck
power sensor | with care | no_power_sensor rapl_absent rapl_unreadable mig_no_power not_supported not_measured
power sensor | with care | no_power_reading no_power_logged power_all_zero meter_zero counter_reset
power sensor | with care | counter_implausible sensor_unknown long_average sparse_readings which_power
power sensor | with care | part_not_measured parts_differ pue_unknown power_of_a_part packages_left_out
power sensor | yes | pue_undone power_of_the_whole readings_repeated
power sensor | yes | no_counter counter_alone not_a_counter power_unit_assumed above_a_board meter_unknown
power record | no | no_samples outside_record too_uncertain empty_window not_finite sensor_too_slow
power record | no | too_few_values no_value no_activity block_not_ended block_too_short
power record | with care | record_shorter record_hole hole_in_record covered_alone holes_bridged implausible_readings
power record | with care | record_nan record_negative record_implausible record_clock_stepped_back
power record | with care | rows_overlap rows_repeat times_differ records_apart may_count_twice ends_without_power
power record | with care | record_conflicting_stamps counter_did_not_step no_time no_load_times power_not_valid
power record | yes | recorded_late ends_left_out idle_levels one_level not_at_rest used_throughout
sensor response | no | not_calibrated
sensor response | with care | unmodelled not_stored misfit_at_edges drops_samples drifting calibration_differs
sensor response | with care | meter_of_more
sensor response | yes | nominal_response
other processes | no | other_processes
other processes | yes | context_exists
warm-up | no | not_settled
idle power | with care | baseline_drifted
idle power | yes | stored
clocks | with care | hw_slowdown sw_thermal hw_thermal hw_power_brake setting_not_in_force
clocks | yes | sw_power_cap sync_boost display_clocks applications_clocks clock_not_as_told load_capped
aliasing | with care | aliased_with_sensor phases_not_spread
aliasing | no | aliased_with_log
aliasing | yes | equal_readings
precision | with care | target_not_met few_windows too_few_windows windows_left_out no_spread denominator_near_zero
precision | with care | host_unsteady
precision | with care | few_gpus one_gpu one_run_a_gpu one_window_a_run one_run sensor_gain spread_between_runs
precision | with care | few_blocks idle_apart idle_unseen
precision | yes | too_few_independent no_limit
precision | yes | length_of_record between_runs_stored did_not_vary one_node one_gpu_a_node below_margin
matching | with care | gpus_and_workloads_differ
matching | yes | dtype_differs shapes_differ kernel_differs
inputs and outputs | with care | constant_inputs nan_outputs inf_outputs train_mode
parts and whole | with care | closure
parts and whole | yes | traced_at_cap traced_whole traced whole_stretch
attribution | with care | not_attributed samples_unplaced kernels_alike too_many_kinds
attribution | with care | overlapped_processes
attribution | yes | no_formula no_best_rate not_resolved pooled shared_power overlapped
attribution | yes | ran_beside_others not_distinguished
powers of kernels | yes | powers_doubtful
tracing | no | records_dropped
tracing | with care | not_traced kernels_not_joined profiler_inside graphs_hide_kernels one_device
tracing | with care | outside_of_iterations device_assumed not_recorded kernels_not_recorded few_records_dropped
tracing | yes | took_turns no_gpu records_cut_off nodes_not_timed traced_by_torch kernels_overlap
ranges | with care | ranges_overlap ranges_crossed ranges_too_deep ranges_not_begun ranges_not_ended spans_left_out
ranges | with care | too_many_names record_within update_failed
ranges | with care | pods_unknown pods_elsewhere
ranges | yes | pods_edges
ranges | yes | more_names host_time sensor_interval spans_differ
ranks | no | ranks_share_device
ranks | with care | rank_lost rank_missing rank_incomplete child_lost child_runs collectives_unmatched
ranks | yes | counts_differ
counter of work | with care | no_work_counted work_never_read work_read_once work_not_read work_reset work_implausible
counter of work | yes | work_untyped
steady load | with care | no_single_requests load_not_steady load_not_valid
steady load | yes | rate_not_seen
files | no | changed_since_saved
files | with care | no_result rows_left_out facts_left_out counters_unmatched no_activity_log unsound_requests
files | with care | no_times no_concurrency no_gpu_count bad_rows bad_times below_zero broken_layers layers_missing
files | with care | broken_rows compare_table cut_off damaged_gzip damaged_table no_kernels no_state not_a_figure
files | with care | not_a_number not_a_row repeated_rows text_trace throughput_differs unclosed_ranges unfinished_line
files | with care | unknown_units no_device
files | yes | logged_twice not_checked no_reading no_record warm_up curves earlier_rows failed_rows instants marks
files | yes | missing_cells other_lines second_readings text_metrics unknown_columns unnamed_columns without_name
power of slices | with care | modelled activity_lost not_divided
jobs | with care | jobs_overlap gpus_unknown
requests answered | with care | requests_failed given_up no_requests rate_not_reached requests_left_out
requests answered | yes | sent_again
client on time | with care | client_late
the server's GPU | no | gpu_not_loaded
scheduler steps | no | steps_missing
scheduler steps | with care | steps_not_read steps_not_used steps_of_others steps_too_few steps_not_closed
scheduler steps | yes | steps_not_traced
tokens counted | no | more_tokens
tokens counted | with care | no_usage short_answers
stamps | with care | clock_moved clock_stepped clock_assumed interval_assumed no_common_time impossible_times
stamps | with care | before_launch time_unit_assumed date_order_assumed hour_assumed stamps_shared stray_times
stamps | with care | rows_sorted beyond_log several_days
stamps | yes | times_left_out time_zone_assumed"""

RULES = {
    code: Rule(check, level)
    for check, level, codes in (row.split(" | ") for row in _TABLE.splitlines())
    for code in codes.split()
}
"""By code."""

INVALID = ("load_not_steady", "requests_failed", "client_late", "rate_not_reached", "given_up", "gpu_not_loaded")
"""Warnings that make a load's figures invalid: what a request or token costs at it is not stated."""


class Words(NamedTuple):
    """Words of a check of an attribution.

    Attributes:
        check: Its name.
        says: Its result, with value, half-width, probability, and figures beside.
        advice: What to do if it failed.
    """

    check: str
    says: str
    advice: str


_LONGER = "record for longer"

ATTRIBUTION = {
    "length": Words(
        "length of the recording",
        "the recording lasts {value:.1f} s, of which {covered:.0%} have readings, {readings:.0f} for {powers:.0f} "
        "powers",
        "record for at least {least:.0f} s, with power all the while, and more readings than powers",
    ),
    "traced": Words(
        "all kernels traced",
        "the tracer missed {value:.2%} of the kernels (at most {most:.2%})",
        "trace with larger buffers",
    ),
    "sample_rate": Words(
        "sample rate of the sensor",
        "the residual is {residual_w:.3g} W at {rate_hz:.1f} samples per second of the power sensor, and "
        "{runner_up_w:.3g} W at the second best rate (evidence {value:.0f}, needed {least:.0f})",
        f"{_LONGER} (profile: --detail-time 60), or first another program on this GPU, whose sample rate is then "
        "stored",
    ),
    "rest": Words(
        "power between kernels",
        "between kernels the GPU draws {value:.0f} ± {half:.0f} W (at most {most:.0f} W)",
        "kernels are missing from the timeline, or another process uses the GPU",
    ),
    "seen": Words(
        "coverage by samples",
        "the readings misplace {value:.1%} of the time among kinds of kernels (at most {most:.0%})",
        "steps are aliased with the sensor: record with pauses between them",
    ),
    "held_out": Words(
        "prediction of other readings",
        "held-out readings are predicted to {value:.3g} W by kernels and to {plain_w:.3g} W by busy and idle alone "
        "(at most {most:g} times that)",
        f"{_LONGER}; otherwise kernels differ little in power, or the sensor is unknown",
    ),
    "placebo": Words(
        "phase of the samples",
        "samples half a period later have a residual of {value:.3g} W in place of {residual_w:.3g} W "
        "(at least {least:g} times that)",
        f"{_LONGER}, or with pauses between iterations",
    ),
    "averages": Words(
        "scatter about averages",
        "without the times of samples, readings scatter by {value:.3g} W about averages of all time, where samples of "
        "these powers scatter by {least:.3g} to {most:.3g} W",
        f"{_LONGER}, with pauses between iterations; otherwise times or names of kernels are wrong, or another process "
        "uses the GPU",
    ),
    "powers": Words(
        "powers of kernels",
        "powers of kernels are as far outside of 0 to {most:.0f} W, which this GPU can draw, by chance with a "
        "probability of {probability:.1g} (at least {least:g})",
        "use sums of rows, which are better known",
    ),
}
"""Checks of ``attribution`` as they are listed, by their codes; a Run states those that it failed in the warning
``not_attributed``, that of powers in ``powers_doubtful``."""


def says(outcome: Outcome) -> str:
    """The result of a check of an attribution, in words."""
    return _worded(outcome, ATTRIBUTION[outcome.code].says)


def doubt(outcomes: Sequence[Outcome]) -> str:
    """Why rows of kernels can't be trusted, after what to do: of the first check that failed; "" if none did."""
    failed = next((outcome for outcome in outcomes if not outcome.passed), None)
    return f"{_worded(failed, ATTRIBUTION[failed.code].advice)}: {says(failed)}" if failed else ""


def _worded(outcome: Outcome, words: str) -> str:
    value, low, _ = outcome.estimate
    return words.format(value=value, half=value - low, probability=outcome.probability, **outcome.beside)


def rule(code: str) -> Rule:
    """The rule of a code; one that isn't in the table qualifies figures, so that nothing is lost."""
    return RULES.get(code) or Rule(code.replace("_", " "), CARE)
