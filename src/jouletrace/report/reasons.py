"""Codes in words: why a figure is missing, what a flag means, how a figure was obtained.

A code without words is printed as it is, so that nothing is lost when a new one appears.
"""

from __future__ import annotations

REASONS: dict[str, str] = {
    "not_measured": "not measured",
    "unknown": "no reason was recorded",
    "not_finite": "the stored figure is not a number",
    "not_resolved": "the readings don't determine it: it is too short, or always runs beside the same kernels",
    "not_attributed": "the readings give no energies of kernels (see the warnings)",
    "no_iterations": "no single iterations were timed",
    "no_samples": "the sensor gave no reading in that time",
    "implausible_readings": "all readings are beyond what the GPU can draw",
    "no_windows": "no energy window was measured",
    "no_power_sensor": "no power sensor here",
    "no_power_reading": "no reading of power",
    "power_all_zero": "power reads 0 W throughout",
    "counter_stuck": "the energy counter stood still",
    "not_a_counter": "its energies fall again and again: they are no counter's",
    "too_uncertain": "the readings are too few, or too far apart, for a figure",
    "too_few_windows": "too few windows for an interval",
    "context_exists": "deep idle can't be seen once a CUDA context exists",
    "other_processes": "other processes were using the device",
    "no_counter": "the device has no energy counter",
    "one_level": "there was one level only",
    "too_few_values": "too few readings",
    "counter_did_not_step": "too short for the energy counter's steps",
    "edges_too_dense": "loads changed faster than the sensor can distinguish",
    "outside_record": "the power record does not cover that time",
    "hole_in_record": "the power record has a hole there",
    "impossible_times": "the file gives some of it impossible times",
    "empty_window": "it took no time",
    "sensor_too_slow": "too short for this power sensor",
    "block_not_ended": "the block has not ended",
    "block_too_short": "the block took no time",
    "rapl_absent": "no RAPL energy counter here",
    "rapl_unreadable": "RAPL counters not readable",
    "mig_no_power": "a MIG instance has no power sensor of its own",
    "not_supported": "the device does not report it",
    "work_never_read": "the counter of work could not be read",
    "work_read_once": "the counter of work was read once only",
    "phases_not_spread": "it came always at the same point of the sensor's cycle, or filled all the time",
    "ranges_overlap": "ranges of several threads ran at once",
    "too_many_names": "there are too many names of ranges; those with the most time have energy",
    "ranks_share_device": "ranks share a device: what each drew of it can't be determined",
    "ran_beside_others": "other kernels ran meanwhile: what each drew can't be determined; see the rows beneath",
    "no_work_counted": "no work was counted",
    "no_requests": "no request was answered in that time",
    "not_distinguished": "this load doesn't distinguish it: vary lengths and rates",
    "denominator_near_zero": "what it would be divided by may be nothing",
    "one_run": "one run per side doesn't show the spread between runs",
    "not_given": "no price or carbon intensity was given",
    "load_not_valid": "the load is not valid",
    "sensor_gain": "not distinguishable from sensor gain",
    "spread_between_runs": "the spread between runs leaves it open",
    "few_blocks": "too few blocks for a verdict",
}
"""By reason code: why a value is null, or a verdict inconclusive."""

FLAGS: dict[str, str] = {
    "stored": "from an earlier measurement of the same GPU",
    "times_left_out": "without those of it that have impossible times in the file",
    "between_runs_stored": "± holds the scatter between runs as stored from another GPU: --repeats measures it",
    "hole_in_record": "the power record has a hole there",
    "counter_alone": "by the energy counter alone",
    "covered_alone": "energy, power and time are of what the power record covers, without its holes",
    "implausible_readings": "readings beyond what the GPU can draw were left out",
    "nominal_response": "the sensor's response is not calibrated",
    "unmodelled": "readings do not fit the model of the sensor's response",
    "baseline_drifted": "idle power before and after differ",
    "drifting": "was drifting while it was measured",
    "traced_at_cap": "at the power cap tracing moves the clock: energies of parts are scaled to the untraced whole",
    "pooled": "known with others alone: their row has the sum",
    "overlapped": "other kernels ran at the same time: the energy of that time is shared equally",
    "aliased_with_sensor": "its period aliases with the sensor's readings or their samples: one phase may weigh too "
    "much, and no interval holds that; another batch size or mode avoids it",
    "work_reset": "the counter of work started again: what it had counted just before that is lost",
    "host_time": "marks the host's time: what it launched on the GPU may have run later (sync=True waits)",
    "sensor_interval": "± of energy: what the sensor leaves open of those that ran, not how they differ",
    "ranges_crossed": "overlaps another range without one being inside the other: the warnings name them",
    "counts_differ": "ranks made different numbers of them",
    "traced": "in a segment in which kernels were traced, which costs a few percent",
    "whole_stretch": "of the whole traced segment: no steps were marked in it",
    "traced_whole": "the whole is the traced recording itself: what tracing costs doesn't show",
    "few_windows": "fewer windows than wanted",
    "windows_left_out": "windows without a figure were left out",
    "target_not_met": "the wanted interval was not reached in the time allowed",
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


def reason(code: str | None) -> str:
    """Why a figure is missing, in words."""
    return REASONS.get(code or "unknown", code or "")


def flag(code: str) -> str:
    """A flag in words."""
    return FLAGS.get(code, code)


def method(code: str) -> str:
    """A method in words."""
    return METHODS.get(code, code)


def throttle(name: str) -> str:
    """A throttle reason in words."""
    return THROTTLE.get(name, name)
