"""The client's real-time priority: taken where permitted, and given back."""

import os
import sys

import pytest

from jouletrace.wings.serving.client import priority
from jouletrace.wings.serving.client.priority import RealTime

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's scheduler")


@pytest.fixture
def asked(monkeypatch):
    """Policies that were asked for; nothing is changed."""
    found = []
    monkeypatch.setattr(os, "sched_setscheduler", lambda pid, policy, param: found.append(policy))
    return found


def test_it_is_taken_and_given_back(asked):
    with RealTime() as found:
        assert found.on
    assert not found.on
    assert asked == [os.SCHED_RR, os.SCHED_OTHER]


def test_without_the_right_to_it_nothing_happens(monkeypatch):
    def refused(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    with RealTime() as found:
        assert not found.on
        found.check()


@pytest.mark.parametrize(("cpu_s", "kept"), [(1.5, True), (1.7, False)])
def test_a_client_that_takes_most_of_a_core_gives_it_back(asked, monkeypatch, cpu_s, kept):
    clock = {"cpu": 5.0, "wall": 100.0}
    monkeypatch.setattr(priority.time, "process_time", lambda: clock["cpu"])
    monkeypatch.setattr(priority.time, "monotonic", lambda: clock["wall"])
    with RealTime() as found:
        clock.update(cpu=5.0 + cpu_s, wall=101.0)
        found.check()  # a burst is too short to count
        assert found.on
        clock.update(wall=102.0)
        found.check()
        assert found.on is kept
        assert asked[1:] == ([] if kept else [os.SCHED_OTHER])
    assert asked.count(os.SCHED_OTHER) == 1
