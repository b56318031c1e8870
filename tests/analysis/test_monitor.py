"""Figures of a recording of any program: levels, mean power and energy of each device."""

import numpy as np
import pytest

from jouletrace.analysis import analyse
from jouletrace.run import ENERGY_COUNTER, DeviceInfo, device_labels
from jouletrace.stats import Z95
from records import DEVICE, channel, make_run, phases, readings
from shown import verdict_of

OTHER = "GPU-other"


def square(t):
    return np.where(np.floor(t / 2) % 2 == 0, 100.0, 500.0)


def monitored(rows, start=0.1, end=12.0, **changes):
    return analyse(make_run(rows, kind="monitor", spans=phases(("monitor", start, end)), **changes))


def test_levels_and_their_difference():
    run = monitored(readings(square, 12.2, noise=1.0))
    assert run.result("power_idle_w", 1).value == pytest.approx(100.0, rel=5e-3)
    assert run.result("power_working_w", 1).value == pytest.approx(500.0, rel=5e-3)
    assert run.result("power_difference_w", 1).value == pytest.approx(400.0, rel=5e-3)


def with_glitches(value, every=50, limits=None, enforced=None, name="a GPU", drawn=300.0):
    """A GPU that draws 300 W, every 50th reading of which is something else."""
    rows = readings(drawn, 12.2, noise=0.3)
    for i in range(100, len(rows) - 50, every):
        rows[i]["value"] = value
    device = DeviceInfo(DEVICE, name, power_limits_w=limits or {}, power_limit_w=enforced)
    run = make_run(rows, kind="monitor", spans=phases(("monitor", 0.1, 12.0)))
    run.devices = [device]
    return analyse(run)


@pytest.mark.parametrize(
    ("value", "limits", "enforced"),
    [
        (65_535.0, {"max": 700.0}, 700.0),
        (2_200.0, {"max": 700.0}, 300.0),
        (65_535.0, None, None),
        (1e20, None, None),
        (1e200, {"max": 700.0}, 700.0),
        (1e300, None, None),
        (8_000.0, None, 700.0),
    ],
)
def test_readings_that_no_gpu_draws_are_left_out_counted_and_flagged(value, limits, enforced):
    run = with_glitches(value, limits=limits, enforced=enforced)
    assert run.result("power_w", 1).value == pytest.approx(300.0, rel=2e-3)
    assert run.result("power_working_w", 1).value in (None, pytest.approx(300.0, rel=2e-3))
    for metric in ("power_w", "energy_total_j", "power_idle_w"):
        assert "implausible_readings" in run.result(metric, 1).flags
    (warning,) = [warning for warning in run.warnings if warning.code == "record_implausible"]
    assert "readings of power were beyond what the GPU can draw and were left out, the first at" in warning.message


@pytest.mark.parametrize(("value", "left_out"), [(5_000.0, True), (1_100.0, False)])
def test_a_stated_limit_bounds_what_a_gpu_of_known_name_can_draw(value, left_out):
    """Whose largest limit isn't stated: 700 W by its name, of which kernels draw up to 1.6 times."""
    run = with_glitches(value, every=500, enforced=350.0, name="NVIDIA H100 80GB HBM3")
    assert ("implausible_readings" in run.result("power_w", 1).flags) == left_out


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Tesla T4", 150.0),
        ("NVIDIA H100 80GB HBM3", 1_200.0),
        ("Jetson AGX Orin", 250.0),
        ("NVIDIA GH200", 2_500.0),
    ],
)
def test_where_no_limit_is_known_the_name_says_what_a_gpu_can_draw(name, value):
    run = with_glitches(value, name=name, drawn=70.0)
    assert run.result("power_w", 1).value == pytest.approx(70.0, rel=1e-2)
    assert "implausible_readings" in run.result("power_w", 1).flags
    kept = with_glitches(value, name="NVIDIA Something", drawn=70.0)
    assert "implausible_readings" not in kept.result("power_w", 1).flags


@pytest.mark.parametrize(("value", "limits"), [(1000.0, {"max": 700.0}), (1900.0, None)])
def test_a_peak_above_the_limit_is_kept(value, limits):
    run = with_glitches(value, limits=limits)
    assert run.result("power_w", 1).value > 310
    assert "implausible_readings" not in run.result("power_w", 1).flags


def test_of_a_gpu_of_which_no_reading_can_be_there_are_no_figures():
    run = monitored(readings(65_535.0, 12.2))
    assert run.result("power_w", 1).value is None


def test_energy_is_that_of_the_recording_not_of_what_the_driver_remembered():
    run = monitored(readings(300.0, 12.2, noise=0.3), start=4.0, end=12.0)
    assert run.result("time_s", 1).value == pytest.approx(8.0, abs=0.01)
    assert run.result("energy_total_j", 1).value == pytest.approx(2400.0, rel=2e-3)
    assert run.result("power_w", 1).value == pytest.approx(300.0, rel=1e-3)


def test_a_recording_that_was_cut_off_speaks_for_all_it_has():
    run = analyse(make_run(readings(300.0, 5, noise=0.3), kind="monitor", complete=False))
    assert run.result("time_s", 1).value == pytest.approx(5.0, abs=0.05)
    assert run.result("energy_total_j", 1).value == pytest.approx(1500.0, rel=0.02)


def test_one_level_is_no_two():
    run = monitored(readings(300.0, 12.2, noise=0.5))
    assert run.result("power_idle_w", 1).reason == "one_level"
    assert run.result("power_difference_w", 1).reason == "one_level"
    assert run.result("energy_total_j", 1).value is not None


def test_several_devices_are_units_of_their_own():
    rows = readings(100.0, 12.2, noise=0.3) + readings(400.0, 12.2, noise=0.3, device=OTHER)
    run = make_run(rows, kind="monitor", spans=phases(("monitor", 2.0, 12.0)))
    run.devices.append(DeviceInfo(OTHER, "Other GPU"))
    run.channels.append(channel(device=OTHER))
    analyse(run)
    assert [row["module"] for row in run.units.to_pylist() if row["level"] == "device"] == [DEVICE, OTHER]
    assert run.result("energy_total_j", 1).value == pytest.approx(1000.0, rel=3e-3)
    assert run.result("energy_total_j", 2).value == pytest.approx(4000.0, rel=3e-3)


@pytest.mark.parametrize(
    ("rows", "channels", "reason"),
    [([], [], "no_power_sensor"), ([], None, "no_samples"), (readings(100.0, 0.01), None, "no_samples")],
)
def test_a_device_without_readings_says_why(rows, channels, reason):
    run = monitored(rows, channels=channels)
    for metric in ("power_idle_w", "power_w", "energy_total_j"):
        assert run.result(metric, 1).reason == reason
    assert run.result("time_s", 1).value == pytest.approx(11.9)
    assert run.result("energy_total_j").reason == reason


def test_a_recording_shorter_than_the_sensor_is_null():
    run = monitored(readings(300.0, 3, noise=0.3), start=2.0, end=2.0)
    assert run.result("energy_total_j", 1).reason == "empty_window"
    assert run.result("power_w", 1).reason == "empty_window"


@pytest.mark.parametrize(("start", "end", "joules"), [(4.0, 4.003, None), (4.0, 4.099, None), (4.0, 8.0, 1200.0)])
def test_by_the_counter_alone_the_figures_are_of_the_recording_and_not_of_all_reads(start, end, joules):
    rows = [row | {"value": 3e3 + row["value"]} for row in readings(lambda t: 300 * t, 12, name=ENERGY_COUNTER)]
    alone = channel(ENERGY_COUNTER, period_s=0.1)
    run = monitored(rows, start=start, end=end, channels=[alone])
    energy = run.result("energy_total_j", 1)
    assert energy.value == pytest.approx(joules, rel=0.02) if joules else energy.reason == "sensor_too_slow"
    assert run.result("time_s", 1).value == pytest.approx(end - start, rel=0.02 if joules else 1e-6)


@pytest.mark.parametrize("with_counter", [False, True])
def test_a_block_shorter_than_an_update_of_the_sensor_has_its_time_and_no_energy(with_counter):
    power = readings(300.0, 12, noise=0.3)
    counted = readings(lambda t: 300 * t, 12, name=ENERGY_COUNTER)
    channels = [channel(), *[channel(ENERGY_COUNTER, period_s=0.1)] * with_counter]
    run = monitored(power + counted * with_counter, start=6.0, end=6.003, channels=channels)
    assert run.result("energy_total_j", 1).reason == run.result("power_w", 1).reason == "sensor_too_slow"
    assert run.result("time_s", 1).value == pytest.approx(0.003, abs=1e-6)


def test_with_a_long_hole_the_energy_is_that_of_the_time_covered():
    run = monitored(readings(300.0, 12.2, noise=0.3, without=[(4.0, 7.0)]))
    assert run.result("time_s", 1).value == pytest.approx(8.9, abs=0.05)
    assert run.result("energy_total_j", 1).value == pytest.approx(300 * 8.9, rel=0.01)
    assert run.result("power_w", 1).value == pytest.approx(300, rel=0.005)
    assert "covered_alone" in run.result("energy_total_j", 1).flags
    (warning,) = run.warnings
    assert warning.code == "hole_in_record"
    assert "a hole of 2.98 s" in warning.message
    assert warning.message.endswith("75.6 % of its time is covered")
    assert " to " in warning.message


def test_watts_that_were_printed_whole_are_no_surer_than_that():
    """A log without a decimal, and no scatter: all readings of a level may be off by the same half watt."""
    run = monitored(readings(square, 12.2))
    for metric, rounded in (("power_idle_w", 1), ("power_working_w", 1), ("power_difference_w", 2)):
        least = Z95 * np.sqrt(rounded / 12)
        assert least * (1 - 1e-9) <= run.result(metric, 1).half_width < 1.05 * least
    total = run.result("energy_total_j", 1)
    assert total.half_width >= 11.9 * 1.96 / np.sqrt(12)


def test_a_gpu_that_rests_at_two_levels_idles_at_the_lower():
    """Finished at 71 W and waiting with a context at 124 W: nothing ever ran at 84 W."""

    def power(t):
        return np.select([t < 3, t < 5, t < 9], [71.0, 124.0, 320.0], 71.0)

    run = monitored(readings(power, 12.2, noise=0.5))
    assert run.result("power_idle_w", 1).value == pytest.approx(71, abs=1)
    assert run.result("power_idle_w", 1).half_width < 1
    (warning,) = run.warnings
    assert warning.message == "the power rests at 71 W and at 124 W: idle is the lower level"
    assert warning.message in verdict_of(run)


@pytest.mark.parametrize("slope", [0.0, 2.0])
def test_rounding_and_cooling_are_no_second_level(slope):
    def power(t):
        return np.round(np.where(t < 6, 71 + slope * np.sin(t) + 0.6 * (np.floor(3 * t) % 2), 320.0))

    run = monitored(readings(power, 12.2))
    assert not run.warnings
    assert run.result("power_idle_w", 1).value == pytest.approx(71.5, abs=1.5)


def test_gpus_of_one_name_are_distinguished_and_say_why_they_have_no_level():
    rows = readings(100.0, 12.2, noise=0.3) + readings(400.0, 12.2, noise=0.3, device=OTHER)
    run = make_run(rows, kind="monitor", spans=phases(("monitor", 2.0, 12.0)))
    run.devices = [DeviceInfo(DEVICE, "H100", index=0), DeviceInfo(OTHER, "H100", index=3)]
    run.channels.append(channel(device=OTHER))
    analyse(run)
    assert [row["name"] for row in run.units.to_pylist() if row["level"] == "device"] == ["H100 #0", "H100 #3"]
    assert "no idle and working level: no steady level lies apart from the rest" in verdict_of(run)
    far = [
        DeviceInfo("a", "H100", index=0, host="n1"),
        DeviceInfo("b", "H100", index=0, host="n2"),
        DeviceInfo("c", "A100"),
    ]
    assert list(device_labels(far).values()) == ["H100 #0 on n1", "H100 #0 on n2", "A100"]


def test_an_idle_level_says_whether_a_process_was_there():
    run = monitored(readings(square, 12.2, noise=1.0))
    run.devices[0].details["processes"] = False
    assert "99.98 ± 0.11 W idle (no CUDA context at start and end), " in " ".join(verdict_of(run)).replace(
        "\u00a0", " "
    )


def test_the_whole_of_a_recording_is_all_its_devices_in_its_unit():
    run = monitored(readings(300.0, 12.2, noise=0.3))
    for metric, unit in (("energy_total_j", "kJ"), ("power_w", "W"), ("time_s", "s")):
        assert run.result(metric) == run.result(metric, 1)
        assert str(run.result(metric)).endswith(f" {unit}")
