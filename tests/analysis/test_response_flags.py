"""A response that is somewhat wrong changes no figure of a profile, and sound profiles aren't flagged."""

import pytest

import jouletrace as jt
from jouletrace.analysis import analyse
from places import REPOSITORY, SAMPLES

PROFILES = SAMPLES / "h100" / "runs3"


def doubted(run):
    """How many windows of a Run carry the flag."""
    return sum("unmodelled" in (flags or "") for flags in run.windows["flags"].to_pylist())


@pytest.mark.thorough
def test_windows_between_which_the_power_dips_are_not_doubted():
    """MiniLM, compiled: recorded on an H100 that wasn't calibrated, with dips between some windows."""
    run = analyse(jt.load(REPOSITORY / "docs" / "results" / "runs" / "minilm-256-compile-h100.zip"))
    assert doubted(run) == 0


@pytest.mark.thorough
@pytest.mark.parametrize("factor", [1 / 1.2, 1.2])
def test_a_response_that_is_20_percent_off_changes_no_window(factor):
    """Readings themselves show how long the sensor remembers, and a window of a second has few of its edges."""
    runs = [jt.load(REPOSITORY / "src" / "jouletrace" / "bundled" / "deit-b-64-graph-h100.zip") for _ in range(2)]
    response = runs[1].channel(runs[1].devices[0].id, "power_w").response
    response |= {key: factor * response[key] for key in ("window_s", "rise_s")}
    one, other = (analyse(run).result("energy_total_j") for run in runs)
    assert other.value == pytest.approx(one.value, abs=0.05 * one.half_width)


@pytest.mark.samples
@pytest.mark.skipif(not PROFILES.is_dir(), reason="no recorded profiles beside the repository")
@pytest.mark.parametrize("name", ["whisper", "moe", "p", "e1", "e2", "chain"])
def test_recorded_profiles_are_not_doubted(name):
    """Of Whisper, right after ``calibrate``, the ramp before the first window was taken for idle time."""
    assert doubted(analyse(jt.load(PROFILES / f"{name}.zip"))) == 0
