"""A faulty recording gives right rows, or none and one line that says why."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from energy_tables import energy_table, rest_of
from gpu_recordings import load
from jouletrace.analysis import by_operator
from jouletrace.analysis.rules import doubt
from jouletrace.attribution import Kind, activity_of
from jouletrace.attribution.checks import checks
from jouletrace.attribution.lock import lock
from jouletrace.attribution.outcome import Outcome
from jouletrace.errors import BadInputError
from jouletrace.sensor import HOPPER_SENSOR, on_grid
from scenarios import draw

pytestmark = pytest.mark.thorough
SECONDS = 8.0


@cache
def simulated(group, seed=3):
    _, recording, truth = draw(seed, group, seconds=SECONDS)
    return recording, truth


def analysed(group="long_varied", start=lambda t: t, keep=None, watts=lambda w: w, seed=3):
    """Verdict, rows if it trusts, and what was recorded; ``start`` moves stamps of the timeline."""
    recording, truth = simulated(group, seed)
    readings = on_grid(recording.rows[:, 0] * 1000, watts(recording.rows[:, 1] / 1e3))
    kinds = [Kind(*of) for of in zip(recording.names, recording.operators, recording.modules, strict=True)]
    begin, length = start(recording.start_ns), recording.end_ns - recording.start_ns
    kept = slice(None) if keep is None else keep(recording)
    activity = activity_of(begin[kept], (begin + length)[kept], recording.kind[kept], kinds, readings.origin_ns)
    rate = truth.sensor.rate_hz
    found = lock(activity, replace(HOPPER_SENSOR, rates_hz=(rate - 3, rate + 3)), readings)
    asked = [*checks(found, readings, 1, 0), rest_of(found.fit)]
    trusted = all(check.passed for check in asked)
    return doubt(asked), energy_table(found.fit, by_operator) if trusted else [], recording, truth


def powers_hold(table, recording, truth):
    """Share of the rows whose power holds what kernels drew on average."""
    held = []
    for row in table:
        mine = [i for i, operator in enumerate(recording.operators) if operator in row.names]
        if mine and row.power.value is not None:
            held.append(row.power.low <= truth.kind_j[mine].sum() / truth.kind_s[mine].sum() <= row.power.high)
    return np.mean(held)


def refused(says, why):
    assert why in says
    assert "\n" not in says


def test_a_good_recording_is_trusted():
    says, table, recording, truth = analysed()
    assert says == ""
    assert powers_hold(table, recording, truth) >= 0.8


def test_no_readings_of_this_gpu():
    with pytest.raises(BadInputError, match="0 readings; 50 are needed"):
        on_grid([], [])


def test_readings_of_another_time():
    with pytest.raises(BadInputError, match="0 readings where kernels run"):
        analysed(start=lambda t: t + 60_000_000_000)


def test_readings_of_half_of_the_time():
    says, *_ = analysed(start=lambda t: t + 4_000_000_000)
    refused(says, "have readings")


def test_kernels_missing_where_the_gpu_is_always_busy():
    """Missing kernels look like idle time, which then draws as much as kernels."""
    drawn = np.random.default_rng(0)
    says, *_ = analysed(keep=lambda recording: drawn.random(len(recording.kind)) > 0.05)
    refused(says, "kernels are missing from the timeline")


def test_kernels_missing_that_the_tracer_counts():
    """Where the GPU mostly rests nothing in the readings shows it: the tracer has to."""
    recorded = load("vit-h100")
    found = lock(recorded.activity, replace(HOPPER_SENSOR, rates_hz=(1223.0, 1226.0)), recorded.readings)
    says = doubt(checks(found, recorded.readings, len(recorded.kind), len(recorded.kind) // 20))
    refused(says, "missed")


def test_kernels_that_overlap_at_random():
    recording, _ = simulated("long_varied")
    move = np.random.default_rng(0).integers(-400_000, 400_000, len(recording.kind))
    says, *_ = analysed(start=lambda t: t + move)
    refused(says, "samples per second of the power sensor")


def test_one_second():
    """Fewer readings than the heads, middles and tails of its kernels; with fewer kinds the verdict says no."""
    with pytest.raises(BadInputError, match=r"\d+ kinds .*, but \d+ readings; record for longer"):
        analysed(keep=lambda recording: recording.start_ns < recording.start_ns[0] + 1_000_000_000)
    says, *_ = analysed("one_kind", keep=lambda recording: recording.start_ns < recording.start_ns[0] + 1_000_000_000)
    refused(says, "the recording lasts 1.0 s")


def test_a_third_of_a_second():
    with pytest.raises(BadInputError, match="readings where kernels run"):
        analysed(keep=lambda recording: recording.start_ns < recording.start_ns[0] + 300_000_000)


def test_one_kind():
    says, table, recording, truth = analysed("one_kind")
    if says == "":
        assert powers_hold(table, recording, truth) == 1
    else:
        refused(says, ": ")


def test_a_gpu_whose_clock_jumps():
    says, table, recording, truth = analysed("drift", seed=2)
    assert says == ""
    assert powers_hold(table, recording, truth) >= 0.8


def test_another_process():
    says, *_ = analysed("foreign_load")
    refused(says, ": ")


def test_a_timeline_that_is_5_ms_late():
    says, table, recording, truth = analysed(start=lambda t: t + 5_000_000)
    if says == "":
        assert powers_hold(table, recording, truth) >= 0.8
    else:
        refused(says, ": ")


def test_a_timeline_that_drifts_by_100_ppm():
    says, table, recording, truth = analysed(start=lambda t: t + ((t - t[0]) // 10_000))
    assert says == ""
    assert powers_hold(table, recording, truth) >= 0.8


def test_a_timeline_whose_clock_jumps_by_2_ms():
    says, *_ = analysed(start=lambda t: t + np.where(t > (t[0] + t[-1]) // 2, 2_000_000, 0))
    refused(says, ": ")


def test_no_kernels_and_kernels_of_no_length():
    recording, _ = simulated("long_varied")
    none = np.zeros(0, np.int64)
    with pytest.raises(BadInputError, match="no kernel"):
        activity_of(none, none, none, [Kind("a")], 0)
    start = recording.start_ns
    with pytest.raises(BadInputError, match=f"none of its {len(start)} kernels lasts any time"):
        activity_of(start, start, 0 * recording.kind, [Kind("a")], 0)


def test_kernels_that_end_before_they_start():
    with pytest.raises(BadInputError, match="kernel 0 ends before it starts"):
        activity_of(np.array([10]), np.array([5]), np.array([0]), [Kind("a")], 0)


def test_readings_that_are_no_numbers():
    def broken(watts):
        watts = watts.copy()
        watts[[3, 50]] = np.nan, np.inf
        return watts

    with pytest.raises(BadInputError, match=r"2 of its \d+ readings are no numbers"):
        analysed(watts=broken)


def test_readings_that_never_change():
    with pytest.raises(BadInputError, match=r"all its \d+ readings are 300 W"):
        analysed(watts=lambda watts: 0 * watts + 300.0)


def test_steps_in_time_with_the_sensor():
    """Seed 1: nine in ten of a kernel's time is never seen, and two of six rows missed."""
    says, *_ = analysed("locked_period", seed=1)
    refused(says, "of the time among kinds of kernels")


def test_what_to_do_stands_before_the_reason():
    asked = [Outcome.without_interval("length", True, 9.0), Outcome.without_interval("traced", False, 0.02, most=0.01)]
    assert doubt(asked) == "trace with larger buffers: the tracer missed 2.00% of the kernels (at most 1.00%)"
