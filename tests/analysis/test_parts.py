"""Figures of a recording of a real GPU (DeiT-B, batch 64, H200), as they ship with the package."""

from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from jouletrace.analysis import analyse, kernel_powers, parts
from jouletrace.analysis.kernel_powers import models
from jouletrace.attribution import checks as trying
from jouletrace.attribution.checks import attempts
from jouletrace.bundled import bundled_runs
from jouletrace.run import MODEL_UNIT, RECORDINGS, load, recording_of, tables
from jouletrace.run.division import VARIATION
from places import TESTS


@pytest.fixture(scope="module")
def recorded():
    return analyse(next(entry.run for entry in bundled_runs() if "layers" in entry.name))


def units(run, level):
    return [unit for unit in run.units.to_pylist() if unit["level"] == level]


def energy(run, unit):
    return run.result("energy_total_j", unit["id"])


def copied(run):
    """The Run without its warnings, to be changed."""
    copy = type(run)(**{name: getattr(run, name) for name in run.__dataclass_fields__ if not name.startswith("_")})
    copy.warnings = []
    return copy


def changed(run, **columns):
    """The Run with other columns in its activity."""
    copy = copied(run)
    for name, values in columns.items():
        place = copy.activity.schema.get_field_index(name)
        copy.activity = copy.activity.set_column(place, name, pa.array(values))
    copy.activity = tables.conform(copy.activity, "activity")
    return analyse(copy)


@pytest.mark.thorough
def test_products_draw_most_and_their_intervals_are_narrow(recorded):
    ops = [unit for unit in units(recorded, "op") if unit["op"]]
    ranked = sorted(ops, key=lambda unit: -(energy(recorded, unit).value or 0))
    assert [unit["module"] for unit in ranked[:2]] == ["deit.layers.*.mlp.fc1", "deit.layers.*.mlp.fc2"]
    for unit in ranked[:6]:
        assert energy(recorded, unit).half_width < 0.08 * energy(recorded, unit).value


def test_layers_and_idle_make_the_whole(recorded):
    (top,) = (unit for unit in units(recorded, "layer") if unit["name"] == "deit")
    (rest,) = (unit for unit in units(recorded, "layer") if unit["name"] == "classifier")
    idle = next(unit for unit in units(recorded, "op") if unit["name"] == "idle")
    parts = sum(recorded.result("energy_total_j", unit["id"]).value or 0.0 for unit in (top, rest, idle))
    whole = recorded.result("energy_total_j").value
    assert parts == pytest.approx(whole, rel=0.005)
    times = sum(recorded.result("time_s", unit["id"]).value for unit in (top, rest, idle))
    assert times == pytest.approx(recorded.result("iteration_time_s").value, rel=1e-3)


def below_the_cap(run):
    """The same recording with no cap in its record."""
    below = copied(run)
    channel, value = below.samples["channel"], below.samples["value"]
    other = pc.if_else(pc.equal(channel.cast(pa.string()), "throttle_bits"), 0.0, value)
    below.samples = below.samples.set_column(below.samples.schema.get_field_index("value"), "value", other)
    return analyse(below)


@pytest.mark.thorough
def test_below_the_power_cap_what_tracing_changes_is_in_the_intervals(recorded, monkeypatch):
    found = below_the_cap(recorded)
    monkeypatch.setattr(parts, "TRACED", 0.0)
    without = below_the_cap(recorded)
    fc1 = next(unit["id"] for unit in units(recorded, "op") if unit["module"] == "deit.layers.*.mlp.fc1")
    for metric, unit in (("closure_kernels", MODEL_UNIT), ("energy_total_j", fc1)):
        one, other = found.result(metric, unit), without.result(metric, unit)
        assert one.half_width == pytest.approx(np.hypot(other.half_width, 1.96 * 0.006 * one.value), rel=1e-3)
        assert one.value == other.value


@pytest.mark.thorough
def test_at_the_power_cap_parts_are_scaled_to_the_untraced_whole(recorded, monkeypatch):
    """Tracing costs 1.7 % here: parts are scaled by it, half of it is in their intervals, the check states it."""
    monkeypatch.setattr(parts, "TRACED", 0.0)
    below = below_the_cap(recorded)
    closure, same = recorded.result("closure_kernels"), below.result("closure_kernels")
    assert closure.value == pytest.approx(1.021, abs=0.003)
    assert (closure.value, closure.low) == pytest.approx((same.value, same.low), abs=1e-4)
    flags = {row["metric"]: row["flags"] for row in recorded.results.to_pylist() if "closure" in row["metric"]}
    assert "traced_at_cap" in flags["closure_kernels"]
    fc1 = next(unit for unit in units(recorded, "op") if unit["module"] == "deit.layers.*.mlp.fc1")
    one, raw = energy(recorded, fc1), energy(below, fc1)
    factor = one.value / raw.value
    assert factor == pytest.approx(1 / closure.value, abs=0.003)
    whole = recorded.result("energy_total_j")
    common = np.hypot((1 - factor) / 2, whole.half_width / (whole.value * closure.value))
    assert one.half_width == pytest.approx(np.hypot(raw.half_width * factor, raw.value * common), rel=0.03)
    assert one.half_width > 1.02 * raw.half_width * factor


def test_blocks_differ_by_little_and_each_is_known(recorded):
    blocks = [u for u in units(recorded, "layer") if u["name"].startswith("deit.layers.") and u["name"].count(".") == 2]
    values = np.array([energy(recorded, unit).value for unit in blocks])
    assert len(values) == 12
    assert np.ptp(values) < 0.05 * values.mean()


def test_parts_that_run_in_each_iteration_have_no_time_of_their_own(recorded):
    assert not any(recorded.powers["varies_w"].to_pylist() + recorded.powers["scatter_w"].to_pylist())


def test_kernels_that_are_too_short_have_times_and_no_energy(recorded):
    fills = [unit for unit in units(recorded, "kernel") if "memset" in unit["name"]]
    assert fills
    for unit in fills:
        assert recorded.result("time_s", unit["id"]).value > 0
        assert energy(recorded, unit).reason in ("not_resolved", "pooled")


def test_repeats_count_for_the_power_alone(recorded):
    copies = pc.sum(pc.cast(recorded.activity["copy"], pa.int64())).as_py()
    assert copies > 0.02 * len(recorded.activity)
    fc1 = next(unit for unit in units(recorded, "op") if unit["module"] == "deit.layers.*.mlp.fc1")
    untouched = 1.14e-3  # s in an iteration of the same program without repetition
    assert recorded.result("time_s", fc1["id"]).value == pytest.approx(untouched, rel=0.02)


@pytest.mark.thorough
@pytest.mark.usefixtures("first_range_only")
def test_kernels_of_another_clock_give_times_and_one_line(recorded, monkeypatch):
    """That attempts with other parts and phases are refused, too: wings/traces/test_recording.py."""
    monkeypatch.setattr(trying, "attempts", lambda *of: islice(attempts(*of), 1))
    late = recorded.activity["start_ns"].to_numpy() + np.linspace(0, 3e6, len(recorded.activity)).astype(np.int64)
    length = recorded.activity["end_ns"].to_numpy() - recorded.activity["start_ns"].to_numpy()
    order = np.random.default_rng(1).permutation(len(late))
    strange = changed(recorded, start_ns=late, end_ns=late + length, unit=recorded.activity["unit"].to_numpy()[order])
    fc1 = next(unit for unit in units(strange, "op") if unit["module"] == "deit.layers.*.mlp.fc1")
    assert strange.result("time_s", fc1["id"]).value > 0
    assert energy(strange, fc1).reason in ("pooled", "not_resolved")
    (said,) = [warning.message for warning in strange.warnings if warning.code == "kernels_alike"]
    assert "\n" not in said
    assert strange.result("closure_kernels").value == pytest.approx(1.0, abs=0.02)
    assert all(
        energy(strange, unit).half_width > 0.2 * energy(strange, unit).value
        for unit in units(strange, "op")
        if unit["op"] and energy(strange, unit).value is not None
    )


@pytest.fixture(scope="module")
def unplaced():
    """Training of a graph network, of 15,000 kernels in which the times of samples aren't known."""
    return analyse(load(TESTS / "frozen" / "programs" / "gnn_train.zip"))


@pytest.mark.slow
def test_readings_count_as_averages_where_the_times_of_samples_are_not_known(unplaced):
    (said,) = [warning.message for warning in unplaced.warnings if warning.code == "samples_unplaced"]
    assert "rows are by readings as averages, and wider" in said
    assert not [warning for warning in unplaced.warnings if warning.code == "not_attributed"]
    some = [energy(unplaced, unit) for unit in units(unplaced, "op") + units(unplaced, "kernel")]
    some = [one for one in some if one.value is not None]
    assert len(some) > 20
    assert all(one.low <= one.value <= one.high for one in some)
    names = {row["metric"] for row in unplaced.results.to_pylist()}
    assert not names & {"sample_rate_hz", "residual_w"}
    closure = next(row for row in unplaced.results.to_pylist() if row["metric"] == "closure_kernels")
    assert closure["value"] == pytest.approx(1.0, abs=0.02)


@pytest.mark.slow
def test_a_run_whose_timeline_is_late_has_no_averages_either(unplaced):
    by_ns = 300_000_000
    late = changed(unplaced, **{edge: unplaced.activity[edge].to_numpy() + by_ns for edge in ("start_ns", "end_ns")})
    (said,) = [warning.message for warning in late.warnings if warning.code == "not_attributed"]
    assert "about averages of all time" in said
    assert not [warning for warning in late.warnings if warning.code == "samples_unplaced"]


def three_seconds(run):
    """Keep the kernels that begin in the first 3 s."""
    start = run.activity["start_ns"]
    run.activity = run.activity.filter(pc.less(start, pc.min(start).as_py() + 3_000_000_000))


def holes(run):
    """Take the readings of 40 % of the time away, in its middle."""
    first, last = (recording_of(run)[edge] for edge in ("start_ns", "end_ns"))
    since, until = (first + round(share * (last - first)) for share in (0.3, 0.7))
    time = run.samples["time_ns"]
    run.samples = run.samples.filter(pc.or_(pc.less(time, since), pc.greater(time, until)))


def sparse(run):
    """Keep one power reading of six: fewer than there are powers of kinds."""
    is_power = np.array([name == "power_w" for name in run.samples["channel"].to_pylist()])
    run.samples = run.samples.filter(pa.array(~is_power | (np.cumsum(is_power) % 6 == 0)))


@pytest.fixture(scope="module")
def trained():
    """Training of a ResNet, of which the times of samples are known."""
    return analyse(load(TESTS / "frozen" / "programs" / "resnet_train.zip"))


@pytest.mark.thorough
def test_a_range_that_is_not_all_of_its_kernels_states_that_they_differ(trained):
    """Kernels of a program that run at one time may draw what they don't at another: by some tenths of a percent."""
    varies, watts = (trained.powers[name].to_numpy()[:-1] for name in ("varies_w", "watts"))
    share = np.unique(np.round(varies[watts > 0] / watts[watts > 0], 9))
    assert len(share) == 1
    assert 0.001 < share[0] < 0.02
    budgets = [energy(trained, unit).budget for unit in units(trained, "layer")]
    assert any(VARIATION in budget for budget in budgets)
    idle = next(unit for unit in units(trained, "op") if unit["name"] == "idle")
    assert VARIATION not in energy(trained, idle).budget


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("less", "says"), [(three_seconds, "lasts 3.0 s"), (holes, "have readings"), (sparse, "38 for 123 powers")]
)
def test_rows_of_too_short_a_recording_are_by_averages_and_agree_with_those_of_all_of_it(trained, less, says):
    copy = copied(trained)
    less(copy)
    analyse(copy)
    (said,) = [warning.message for warning in copy.warnings if warning.code == "samples_unplaced"]
    assert says in said
    alike = [
        unit["id"] for level in ("op", "kernel") for unit in units(trained, level) if "together" not in unit["name"]
    ]
    both = [(copy.result("power_w", unit), trained.result("power_w", unit)) for unit in alike]
    both = [(short, whole) for short, whole in both if short.value is not None and whole.value is not None]
    assert len(both) >= 10
    agree = [abs(short.value - whole.value) <= np.hypot(short.half_width, whole.half_width) for short, whole in both]
    assert sum(agree) >= 0.9 * len(both)


@pytest.mark.thorough
def test_of_very_many_kinds_those_with_the_most_time_have_energies(trained, monkeypatch):
    monkeypatch.setattr(kernel_powers, "MOST_KINDS", 20)
    copy = copied(trained)
    three_seconds(copy)
    analyse(copy)
    (said,) = [warning.message for warning in copy.warnings if warning.code == "too_many_kinds"]
    assert "the 20 kinds of kernels with the most time have energies; the others take" in said
    some = [
        (one, trained.result("power_w", unit["id"]))
        for unit in units(trained, "kernel")
        for one in [copy.result("power_w", unit["id"])]
        if one.value is not None
    ]
    agree = [abs(one.value - was.value) <= np.hypot(one.half_width, was.half_width) for one, was in some if was.value]
    assert len(agree) >= 5
    assert sum(agree) >= 0.9 * len(agree)
    parts, whole = copy.result("closure_kernels"), trained.result("closure_kernels")
    assert parts.value < whole.value - 0.05  # what has no energy is in no sum


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "why", "counted_j", "counted_s", "within"),
    [
        pytest.param("product", "held-out readings are predicted", 13865.68, 20.1256, 0.01, marks=pytest.mark.slow),
        pytest.param("copy", "held-out readings are predicted", 1832.94, 10.1019, 0.1, marks=pytest.mark.slow),
        ("short-training", "without the times of samples, readings scatter by 21.6 W", 489.20, 1.1007, 0.03),
    ],
)
def test_kernels_that_readings_do_not_distinguish_have_their_energy_together(name, why, counted_j, counted_s, within):
    """Loops on an H200 between two steps of its energy counter: one product, a copy, 1.1 s of training."""
    run = analyse(load(TESTS / "data" / "counted" / f"{name}.zip"))
    (said,) = [warning.message for warning in run.warnings if warning.code == "kernels_alike"]
    assert f"one kernel's power can't be read apart from another's ({why}" in said
    (loop,) = [unit for unit in units(run, "layer") if unit["name"] == "loop"]
    found, time_s = energy(run, loop), run.result("time_s", loop["id"]).value
    assert found.half_width < within * found.value
    idle_j, unsure_j = 122 * (counted_s - time_s), 4 * (counted_s - time_s)  # idle power between kernels, +- 4 W
    assert abs(found.value - (counted_j - idle_j)) <= np.hypot(found.half_width, unsure_j)


@pytest.mark.thorough
@pytest.mark.parametrize(("edge", "by_s"), [("start_ns", -6 * 3600), ("end_ns", 3e7)])
def test_a_kernel_far_outside_of_the_recording_is_refused_at_once(recorded, edge, by_s):
    times = recorded.activity[edge].to_numpy().copy()
    times[0 if by_s < 0 else -1] += round(by_s * 1e9)
    strange = changed(recorded, **{edge: times})
    (said,) = [warning.message for warning in strange.warnings if warning.code == "not_attributed"]
    assert "a time of one is damaged" in said


@pytest.mark.thorough
@pytest.mark.usefixtures("first_range_only")
def test_dropped_records_are_reported_and_refused_where_they_are_many(recorded):
    copy = copied(recorded)
    copy.workload = {**copy.workload, RECORDINGS: [{**recording_of(copy), "dropped": len(recorded.activity)}]}
    analyse(copy)
    assert any("tracer missed" in warning.message for warning in copy.warnings)


@pytest.mark.slow
def test_a_stored_rate_that_is_no_longer_right_is_passed_by(recorded):
    rate = recorded.result("sample_rate_hz").value
    stale = copied(recorded)
    stale.stored = {**stale.stored, "sample_rate_hz": {stale.devices[0].id: {"value": rate - 20}}}
    assert len(models(stale, stale.channels[0])) == 3
    analyse(stale)
    assert stale.result("sample_rate_hz").value == pytest.approx(rate, abs=0.1)
    for impossible in (1e9, -5.0):
        stale.stored["sample_rate_hz"] = {stale.devices[0].id: {"value": impossible}}
        assert len(models(stale, stale.channels[0])) == 2
