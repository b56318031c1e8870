"""The energy counter as a witness of live recordings: what it contradicts fails a check, whatever kind of Run it is."""

import numpy as np
import pytest

from jouletrace import report
from jouletrace.analysis import analyse
from jouletrace.formats.importers import read_files
from jouletrace.run import ChannelInfo
from records import DEVICE, START, channel, make_run, phases, readings

COUNTER = "energy_counter_j"


def recorded(count, kind="monitor"):
    """A live recording of a GPU at 300 W, with a counter that steps every 0.1 s; ``count`` is of seconds."""
    rows = readings(300.0, 12.2, noise=0.5)
    for step in range(122):
        stamp = START + step * 100_000_000
        rows.append({"time_ns": stamp, "device": DEVICE, "channel": COUNTER, "value": float(count(step / 10))})
    run = make_run(
        rows,
        kind=kind,
        spans=phases(("monitor", 0.1, 12.0)),
        channels=[channel(), ChannelInfo(DEVICE, COUNTER, "J", "nvmlDeviceGetTotalEnergyConsumption")],
    )
    return " ".join(report.render([analyse(run)], width=200).split())


@pytest.mark.parametrize("kind", ["monitor", "record"])
def test_a_counter_that_agrees_fails_nothing(kind):
    assert "trust: yes" in recorded(lambda s: 1e6 + 300 * s, kind)


@pytest.mark.parametrize(
    ("count", "what"),
    [
        (lambda s: 1e6 + 150 * s, "2 times the energy that the energy counter gained"),
        (lambda s: 1e6 + 360 * s, "0.833 times the energy"),
        (lambda s: 1e6, "stood still"),
    ],
)
@pytest.mark.parametrize("kind", ["monitor", "record"])
def test_one_that_contradicts_the_record_does(count, what, kind):
    said = recorded(count, kind)
    assert "trust: no" in said
    assert what in said


def test_one_that_falls_is_stated_and_compared_before_or_after():
    said = recorded(lambda s: 1e6 + 300 * s if s < 8 else 300 * (s - 8))
    assert "the energy counter fell" in said
    assert "trust: with care" in said
    assert "one of the two is wrong" not in said


def logged(path, times, joules):
    """The report of a log of an H100's counter alone, and its energy."""
    rows = [
        f"2026/11/25 20:{30 + int(at // 60)}:{at % 60:06.3f}, NVIDIA H100, {1e3 * one:.0f} mJ"
        for at, one in zip(times, joules, strict=True)
    ]
    path.write_text("\n".join(["timestamp, name, total_energy_consumption [mJ]", *rows]) + "\n")
    run = analyse(read_files([path]))
    return " ".join(report.render([run], width=200).split()), run.result("energy_total_j", 1).value


SECONDS = np.arange(0, 100, 0.5)
DRAWN = 5000 + 300 * SECONDS
LATE = np.where((SECONDS > 40) & (SECONDS < 60), DRAWN[80], DRAWN)


@pytest.mark.parametrize(
    ("joules", "left_out", "said", "joule"),
    [
        (DRAWN, [], "trust: yes", 29_850),
        (LATE, [], "trust: yes", 29_850),
        (DRAWN - np.clip(DRAWN - DRAWN[80], 0, 6000), [], "stood still for 20 s in which a GPU that is on draws", None),
        (np.minimum(DRAWN, 22_000), [], "stood still for 42.5 s in which a GPU that is on draws more", None),
        (
            DRAWN + 3000 * (SECONDS > 50),
            [],
            "jumped from 20000 to 23150 J after 50.5 s: more than can have been",
            29_700,
        ),
        (DRAWN * (SECONDS > 0), [], "1 reads of the energy counter were no counts", 29_700),
        ((DRAWN - 4500) * (SECONDS > 0), [], "1 reads of the energy counter were no counts", 29_700),
        (DRAWN, range(80, 140), "holes of the record are bridged", 29_850),
    ],
    ids=["sound", "late", "lost", "stuck", "jump", "zero", "small zero", "gap"],
)
def test_a_counter_alone_is_compared_with_what_a_gpu_can_draw(tmp_path, joules, left_out, said, joule):
    """300 W all the time; reads are each half second."""
    rows = np.delete(np.arange(200), left_out)
    shown, energy = logged(tmp_path / "t.csv", SECONDS[rows], joules[rows])
    assert said in shown
    assert ("trust: yes" in shown) == (said == "trust: yes")
    assert joule is None or energy == pytest.approx(joule, abs=1)
