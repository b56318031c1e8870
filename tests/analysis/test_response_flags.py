"""Profiles are flagged whose readings don't fit the sensor's response, and no others."""

import pytest

import jouletrace as jt
from jouletrace.analysis import analyse
from jouletrace.profiler.calibrate import calibrate
from jouletrace.simulator.boards.presets import draw, find
from places import REPOSITORY, SAMPLES

PROFILES = SAMPLES / "h100" / "runs3"


def doubted(run):
    """How many windows of a Run carry the flag."""
    return sum("unmodelled" in (flags or "") for flags in run.windows["flags"].to_pylist())


def restated(run, factor):
    """The Run with a response that states times ``factor`` times as long, analysed again."""
    channel = run.channel(run.devices[0].id, "power_w")
    channel.response = channel.response | {key: factor * channel.response[key] for key in ("window_s", "rise_s")}
    return analyse(run)


def test_windows_between_which_the_power_dips_are_not_doubted():
    """MiniLM, compiled: recorded on an H100 that wasn't calibrated, with dips between some windows."""
    run = analyse(jt.load(REPOSITORY / "docs" / "results" / "runs" / "minilm-256-compile-h100.zip"))
    assert doubted(run) == 0


@pytest.mark.parametrize(("factor", "doubts"), [(1.0, 0), (1 / 1.2, 1)])
def test_a_calibrated_h100_shows_if_its_response_is_20_percent_wider_than_stated(factor, doubts):
    """At the end of its last window, where the power falls from the cap to idle."""
    run = jt.load(REPOSITORY / "src" / "jouletrace" / "bundled" / "deit-b-64-graph-h100.zip")
    assert doubted(restated(run, factor)) == doubts


@pytest.mark.samples
@pytest.mark.skipif(not PROFILES.is_dir(), reason="no recorded profiles beside the repository")
@pytest.mark.parametrize("name", ["whisper", "moe", "p", "e1", "e2", "chain"])
def test_recorded_profiles_are_not_doubted(name):
    """Of Whisper, right after ``calibrate``, the ramp before the first window was taken for idle time."""
    assert doubted(analyse(jt.load(PROFILES / f"{name}.zip"))) == 0


@pytest.mark.slow
def test_simulated_h100s_are_doubted_only_if_they_are_20_percent_wider_than_calibrated():
    """Nine in ten of the wider ones must be (chance of fewer than 8 of 12: 0.4 %).

    Of sound ones 1 % may be (chance of more than 2 of 36: 0.6 %).
    """
    found, false = 0, 0
    for seed in range(12):
        device = f"sim:h100?seed={seed}"
        load = ("memcpy", "gemm", "sgemm")[seed % 3]
        hidden = draw(find("h100"), seed)
        wider = f"record_window_s:{1.2 * hidden.record_window_s},record_rise_s:{1.2 * hidden.record_rise_s}"
        calibrate(device)
        for run in (1, 2):
            false += doubted(jt.profile(load, device=f"{device}&run={run}", detail="model")) > 0
        false += doubted(jt.profile(load, device=f"{device}&run=3", detail="model", calibrated=False)) > 0
        found += doubted(jt.profile(load, device=f"{device}&run=4&given={wider}", detail="model")) > 0
    assert false <= 2
    assert found >= 8
