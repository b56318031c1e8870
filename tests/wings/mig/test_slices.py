"""Jobs in processes of their own: one a slice, at once."""

import os
import signal
import threading

import numpy as np
import pytest

from jouletrace.devices import open_device
from jouletrace.devices.base import Samples
from jouletrace.errors import NotPossibleError
from jouletrace.wings.mig.activity import ActivityRecorder
from jouletrace.wings.mig.bench import RealBench
from jouletrace.wings.mig.jobs import Job, JobFailedError, Slice
from jouletrace.wings.mig.point import PointSettings, measure_point
from jouletrace.wings.mig.simulated import profiles

pytest.importorskip("torch")

TOY = """
import time

def nap(batch=1):
    return (lambda x: time.sleep(0.01)), (1,)
"""


class Steady:
    """A source that says what slices do."""

    interval_s = 0.02

    def __init__(self, clock, activity):
        self._clock, self._activity = clock, activity

    def poll(self):
        now = np.array([self._clock.time_ns()])
        return [(uuid, Samples("graphics_active", now, np.array([a]))) for uuid, a in self._activity.items()]


class Gone:
    """A source whose GPU has fallen off the bus."""

    interval_s = 0.02

    def poll(self):
        raise NotPossibleError("the GPU is lost")


def slices():
    table = {one.name: one for one in profiles("a100-80")}
    return [Slice("MIG-a", table["3g.40gb"], 1), Slice("MIG-b", table["2g.20gb"], 2)]


@pytest.mark.slow
def test_two_slices_work_at_once_and_one_that_vanishes_is_reported_to(workspace):
    (workspace / "toy.py").write_text(TOY)
    board = open_device("sim:a100-80?realtime=1")
    activity = ActivityRecorder([Steady(board.clock, {"MIG-a": 0.9, "MIG-b": 0.4}), Gone()])
    bench = RealBench(board, slices(), activity, torch_device="cpu")
    try:
        rows = measure_point(bench, [Job("nap", "toy.py:nap")] * 2, PointSettings(1.0, 0.3, 0.1, 0.9))
        assert [row["status"] for row in rows] == ["done", "done"]
        assert [row["graphics_active"] for row in rows] == pytest.approx([0.9, 0.4])
        assert all(0 < row["requests_per_s"] < 100 for row in rows), "a nap takes 10 ms and more"
        assert all(row["fb_used_bytes"] is None for row in rows), "a CPU has none, which is not 0"
        assert rows[0]["power_active_w"] is not None
        assert activity.failures == ["the GPU is lost"], "the other source went on"
        assert rows[0]["flags"] == "modelled,activity_lost"

        first = bench.run([0, 1], 0.5)
        begun, ended = max(one.start_ns for one in first), min(one.end_ns for one in first)
        assert begun < ended, "they run at once"
        killer = threading.Timer(0.3, os.kill, (bench._workers[1].pid, signal.SIGKILL))
        killer.start()
        with pytest.raises(JobFailedError, match="may be gone") as error:
            bench.run([0, 1], 1.0)
        assert error.value.reason == "vanished"
        assert len(bench.run([0], 0.1)) == 1, "the other slice's answer was taken, and it goes on"
    finally:
        bench.close()
    assert not bench._workers
