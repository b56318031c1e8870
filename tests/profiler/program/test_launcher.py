"""The cost of launching a program."""

import sys
import threading

import pytest

from jouletrace.devices import RealClock
from jouletrace.profiler.program.command import program_of
from jouletrace.profiler.program.launcher import Launcher


def fail():
    raise OSError("the disk is full")


@pytest.mark.parametrize("look", [None, fail], ids=["no look", "a look that fails"])
def test_waiting_without_looks_takes_no_cpu(monkeypatch, look):
    waits, join = [], threading.Thread.join

    def counted(thread, timeout=None):
        waits.append(timeout)
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", counted)
    with Launcher(program_of([sys.executable, "-c", "import time; time.sleep(0.5)"], False)) as launcher:
        launcher.start(RealClock())
        launcher.wait(look, every_s=0.1)
    assert launcher.code == 0
    assert len(waits) < 1000  # of 0.1 s; without a pause it is hundreds of thousands
