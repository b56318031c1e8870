"""The energy counter as a witness of live recordings: what it contradicts fails a check, whatever kind of Run it is."""

import pytest

from jouletrace import report
from jouletrace.analysis import analyse
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
