"""Gain and offset against a meter: intervals that hold, each term of them, logs that can't be used, what follows."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from boards import profiled, recording, true_energy_j
from commands import command
from jouletrace import BadInputError, compare, import_files, load
from jouletrace.analysis import Accuracy, against_meter, analyse, budgets, line, window_estimate
from jouletrace.bundled import bundled_runs
from jouletrace.profiler.monitoring.monitor import monitor
from jouletrace.recording import calibrations
from jouletrace.run import save
from jouletrace.simulator.boards import SimulatedGpu
from make_runs import GPU, profile_run
from metered import logged, recorded

GAIN, OFFSET_W = 1 / 0.97, -2 / 0.97
EXACT = Accuracy(0.0)
SPEC = "sim:h100?seed=4&reads=0.97&offset=2"


@pytest.fixture
def against(tmp_path):
    """The calibration of a recording of some seed against a log of the same."""

    def calibrated(seed=0, accuracy=EXACT, shift_s=None, *, run=None, **log):
        (tmp_path / "meter.csv").write_text(logged(seed, **log))
        return against_meter(
            run or recorded(seed), import_files(tmp_path / "meter.csv"), "meter.csv", accuracy, shift_s
        )

    return calibrated


def meter_of(**changes):
    """A calibration that is known well."""
    found = {"time_ns": 1_796_000_000_000_000_000, "gain": GAIN, "offset_w": OFFSET_W, "scatter_w": 0.0}
    found |= {"gain_half": 0.002, "offset_half_w": 0.4, "covariance": [[0.04, -9e-5], [-9e-5, 1e-6]]}
    found |= {
        "accuracy_pct": 0.5,
        "accuracy_w": 0.0,
        "gain_pct": 0.6,
        "shift_s": 0.0,
        "meter": "spl.txt",
        "levels": [[80.0, 0.1, 80.5, 0.1]],
    }
    return found | changes


@pytest.mark.slow  # of three seeds the same is tested below
def test_intervals_of_gain_and_offset_hold_the_truth(against):
    cases = [(GAIN, OFFSET_W, 0.3, 0.5), (0.95, 5.0, 1.0, 0.5), (1.04, 0.0, 0.3, 1.0)]
    for gain, offset_w, noise_w, every_s in cases:
        held = []
        for seed in range(20):
            found = against(seed, run=recorded(seed, gain, offset_w), noise_w=noise_w, every_s=every_s)
            held.append(abs(found["gain"] - gain) <= found["gain_half"])
            held.append(abs(found["offset_w"] - offset_w) <= found["offset_half_w"])
            assert found["gain_pct"] < 1.5
        assert np.mean(held) >= 0.9


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_gain_and_offset_are_those_of_the_sensor_whatever_the_meters_clock(against, seed):
    found = against(seed, clock_s=3.3)
    assert abs(found["gain"] - GAIN) <= found["gain_half"] < 0.005
    assert abs(found["offset_w"] - OFFSET_W) <= found["offset_half_w"] < 1.5
    assert found["shift_s"] == pytest.approx(-3.3, abs=0.6)
    assert found["covariance"][0][1] < 0, "more gain, less offset"


@pytest.mark.thorough
def test_a_log_that_counts_from_its_own_start_is_aligned_and_a_stated_shift_is_kept(against):
    assert against(relative=True)["gain"] == pytest.approx(GAIN, abs=0.003)
    assert against(clock_s=-3600, shift_s=3600)["shift_s"] == 3600


X_W = np.linspace(80.0, 620.0, 9)


@pytest.mark.parametrize(("ux", "uy", "u"), [(1.0, 0.0, GAIN), (0.0, 1.0, 1.0)], ids=["of the sensor", "of the meter"])
def test_an_error_that_is_stated_counts_though_no_point_lies_off_the_line(ux, uy, u):
    gain, offset_w, covariance, scatter_w = line(X_W, OFFSET_W + GAIN * X_W, np.full(9, ux), np.full(9, uy))
    assert (gain, offset_w, scatter_w) == (pytest.approx(GAIN), pytest.approx(OFFSET_W), 0.0)
    design = np.stack([np.ones(9), X_W], axis=1)
    expected = u**2 * np.linalg.inv(design.T @ design) * (2.3646 / 1.96) ** 2  # Student's t of 7
    assert covariance == pytest.approx(expected, rel=1e-3)


def test_an_interval_holds_where_points_scatter_beyond_their_errors():
    rng, held, one = np.random.default_rng(1), [], np.ones(9)
    for _ in range(200):
        y = OFFSET_W + GAIN * X_W + rng.normal(0, 3.2, 9)
        gain, offset_w, covariance, _ = line(X_W, y, 0 * one, one)
        held.append(np.abs([offset_w - OFFSET_W, gain - GAIN]) <= 1.96 * np.sqrt(np.diag(covariance)))
    assert np.mean(held, axis=0).min() > 0.92


def test_a_sensor_that_bends_has_a_wider_interval_by_its_scatter(against):
    straight, bent = against(), against(run=recorded(bend_w=5.0))
    assert straight["scatter_w"] < 0.3
    assert 1.0 < bent["scatter_w"] < 4.0
    assert bent["gain_half"] > 3 * straight["gain_half"]
    assert abs(bent["gain"] - GAIN) < bent["gain_half"]


def test_the_meters_own_accuracy_is_in_the_power_and_not_in_the_line(against):
    exact, stated, watts = against(), against(accuracy=Accuracy(2.0)), against(accuracy=Accuracy(0.0, 4.0))
    assert stated["gain_half"] == exact["gain_half"]
    assert exact["gain_pct"] < 0.5 < 1.9 < stated["gain_pct"] < 2.5
    assert watts["gain_pct"] > exact["gain_pct"] + 0.5


# --- logs that can't be used ---


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ({"seconds": 30}, "covers .* and the levels lasted from .*: log it from before calibrate to after it$"),
        ({"clock_s": 3600}, "of another time zone: --shift -3600$"),
        ({"every_s": 5.0}, "has a reading each 5 s: log it each second or more often"),
        ({"gain": 0.0, "offset_w": 200.0}, "doesn't follow the levels .* is it of this GPU"),
        ({"noise_w": 60.0}, "leaves ± .* %, no less than without it"),
    ],
)
def test_a_log_that_cannot_be_used_is_refused_in_one_line(against, log, said):
    with pytest.raises(BadInputError, match=said) as refused:
        against(**log)
    assert "\n" not in str(refused.value)


def test_a_run_without_levels_is_refused(against):
    run = recorded()
    run.spans = run.spans.slice(0, 0)
    with pytest.raises(BadInputError, match="no levels of load"):
        against(run=run)


@pytest.fixture
def calibrate(workspace, capsys):
    """Runs ``calibrate --run`` of the recording against a log of these rows."""
    save(recorded(), workspace / "levels")

    def calibrated(text, *more, accuracy=("--meter-accuracy", "0.1%")):
        (workspace / "spl.csv").write_text(text)
        return command(capsys, "calibrate", "--run", "levels", "--meter", "spl.csv", *accuracy, "-o", "out", *more)

    return calibrated


def test_empty_logs_two_channels_and_a_meter_without_accuracy_are_refused(calibrate, capsys):
    _, *rows = logged().splitlines()
    two = "\n".join(["timestamp,a power [W],b power [W]", *(f"{row},5" for row in rows), ""])
    for text, said in (
        ("timestamp,power [W]\n", "spl.csv"),
        (two, "--map power_w=COLUMN"),
    ):
        refused = calibrate(text)
        assert refused.code == 2
        assert said in refused.err
    assert "state its accuracy" in calibrate(logged(), accuracy=()).err
    assert "0.5% or 0.1%+0.2W" in calibrate(logged(), accuracy=("--meter-accuracy", "good")).err
    assert "needs --meter" in command(capsys, "calibrate", "--run", "levels").err


def test_a_meter_of_the_whole_server_is_warned_of_and_not_applied(calibrate):
    printed = " ".join(calibrate(logged(gain=1.1, offset_w=150.0)).out.split())
    assert "measures more than this GPU: measure riser and cables of this GPU alone" in printed
    run = load("out")
    assert (run.channels[0].gain, run.channels[0].gain_pct) == (1.0, 5.0)
    assert "meter" not in run.calibration[GPU]


def test_the_command_states_gain_and_offset_and_stores_them_for_the_gpu(calibrate):
    printed = " ".join(calibrate(logged()).out.split())
    assert "against spl.csv: gain 1.03" in printed
    assert "offset -1.9" in printed
    assert "correlation -0." in printed
    run = load("out")
    assert run.channels[0].gain == pytest.approx(GAIN, abs=0.003)
    board = calibrations.RecordedBoard(run.devices[0], "")
    assert calibrations.stored_calibration(board)["meter"]["gain"] == run.channels[0].gain
    # a calibration without a meter leaves it in force; again against one it isn't applied twice
    assert calibrations.store_calibration(board, {"time_ns": 1, "channels": {}})
    assert "meter" in calibrations.stored_calibration(board)
    save(run, "again")
    calibrate(logged(), "--run", "again", "-o", "out2")
    assert load("out2").channels[0].gain == run.channels[0].gain


# --- in force ---


def test_figures_are_as_drawn_samples_as_read():
    bare = SimulatedGpu(SPEC)
    calibrations.store_calibration(bare, {"time_ns": 1, "channels": {}, "meter": meter_of()})
    off = {}
    for calibrated in (False, True):
        device = SimulatedGpu(SPEC)
        with recording(device, calibrated=calibrated) as session:
            device.board.wait(1.0)
            start, end = device.board.load(500.0, 6.0)
            device.board.wait(1.0)
        run, uuid = session.run, device.info.id
        true_j = device.truth.energy_j(start, end)
        read_w = np.median(run.series(uuid, "power_w")[1][np.abs(run.series(uuid, "power_w")[0] - start - 3e9) < 2e9])
        assert read_w == pytest.approx(0.97 * true_j / 6 + 2, rel=0.01), "as read"
        record = window_estimate(run, uuid, start, end).value / true_j - 1
        ratio = json.loads(json.dumps(analyse(run).result("counter_ratio").value))
        off[calibrated] = (record, ratio)
    assert abs(off[False][0]) > 0.02
    assert abs(off[True][0]) < 0.005
    assert off[True][1] == pytest.approx(off[False][1], abs=0.002), "the counter is corrected as its record is"


@pytest.mark.thorough
def test_what_a_monitor_shows_and_records_is_as_drawn():
    device, shown = SimulatedGpu(SPEC + "&load=100:400"), []
    calibrations.store_calibration(device, {"time_ns": 1, "channels": {}, "meter": meter_of()})
    run = monitor([device], duration_s=12.0, displays=[lambda readings, _: shown.append(readings[0])])
    (phase,) = run.spans.to_pylist()
    truth_j = device.truth.energy_j(phase["start_ns"], phase["end_ns"])
    assert run.result("energy_total_j", 1).value == pytest.approx(truth_j, rel=3e-3)
    assert shown[-1].values["power_w"] == pytest.approx(400, rel=0.01)
    assert shown[-1].values["power_average_w"] == pytest.approx(400, rel=0.01)
    seconds = (shown[-1].energy_ns - phase["start_ns"]) / 1e9
    assert shown[-1].energy_j == pytest.approx(400 * seconds, rel=0.01)


@pytest.fixture
def budget():
    """The budget of a figure of a profile on an H100 with such a calibration in force, and that profile."""

    def of(meter=None, metric="energy_total_j"):
        run = next(each.run for each in bundled_runs() if not len(each.run.activity))
        run = replace(run, channels=[replace(channel) for channel in run.channels], calibration={})
        if meter is not None:
            calibrations.apply(run, run.devices[0].id, {"time_ns": 1, "channels": {}, "meter": meter})
        run = analyse(run)
        return next(each for each in budgets(run) if each.metric == metric), run

    return of


@pytest.mark.thorough
def test_a_budget_has_what_the_calibration_leaves_open(budget):
    energy, run = budget(meter_of())
    unstated = {term.source: term.u for term in energy.terms if not term.stated}
    seconds = run.result("energy_total_j").value / run.result("power_w").value
    read_j = (energy.figure.value - OFFSET_W * seconds) / GAIN
    both = math.sqrt(0.04 * seconds**2 + 1e-6 * read_j**2 - 2 * 9e-5 * seconds * read_j)
    assert unstated["gain and offset of the sensor, against a meter, 2026-11-30"] == pytest.approx(both, rel=1e-3)
    assert unstated["accuracy of the meter, ± 0.5 %"] == pytest.approx(0.005 * energy.figure.value / math.sqrt(3))
    assert len(unstated) == 2
    assert energy.expanded < 0.02 * energy.figure.value < budget()[0].expanded
    assert energy.figure.value == pytest.approx(GAIN * budget()[0].figure.value + OFFSET_W * seconds, rel=2e-3)
    above = budget(meter_of(), "energy_active_over_context_idle_j")[0]
    u = next(term.u for term in above.terms if term.normal)
    assert u == pytest.approx(1e-3 * above.figure.value / GAIN, rel=1e-3), "of idle power, too, the offset is"


@pytest.mark.parametrize(
    "more",
    [{"scatter_w": 4.0}, {"accuracy_w": 8.0}, {"accuracy_pct": 1.5}, {"covariance": [[9.0, 0.0], [0.0, 1e-6]]}],
    ids=lambda more: next(iter(more)),
)
def test_each_term_of_a_calibration_widens_the_absolute_interval(budget, more):
    assert budget(meter_of(**more))[0].expanded > 1.1 * budget(meter_of())[0].expanded


def test_runs_of_a_gpu_on_two_scales_are_not_said_to_share_a_gain():
    a, b = profile_run(), profile_run(scale=1.03)
    alike = compare(a, b)
    calibrations.apply(b, GPU, {"time_ns": 1, "channels": {}, "meter": meter_of()})
    apart = compare(a, b)
    assert alike.gain == 0.0
    assert apart.gain == pytest.approx(math.hypot(0.05, 0.006))
    assert "calibrated in some Runs only" in " ".join(str(apart).split())
    calibrations.apply(a, GPU, {"time_ns": 1, "channels": {}, "meter": meter_of()})
    assert compare(a, b).gain == 0.0


@pytest.mark.slow
def test_after_a_calibration_the_interval_of_a_profile_holds_the_truth_and_is_narrower(monkeypatch):
    pytest.importorskip("torch")
    calibrations.store_calibration(SimulatedGpu(SPEC), {"time_ns": 1, "channels": {}, "meter": meter_of()})
    run, device = profiled(monkeypatch, SPEC, calibrated=True)
    energy = next(each for each in budgets(run) if each.metric == "energy_total_j")
    assert abs(energy.figure.value - true_energy_j(run, device)) < energy.expanded < 0.02 * energy.figure.value
