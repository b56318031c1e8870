"""Marks between launches, and calls in which the host waits."""

import pytest

from cupti_records import made
from jouletrace.tracing import cupti
from jouletrace.tracing.decode import KERNEL, RUNTIME, layouts_for
from jouletrace.tracing.log import KernelLog, _Marker


class Driver:
    """libcuda, with one context, in a thread that captures a graph (mode 0 forbids to allocate)."""

    def __init__(self):
        self.mode, self.set = 0, []

    def cuCtxGetCurrent(self, context):
        context._obj.value = 1
        return 0

    def cuThreadExchangeStreamCaptureMode(self, mode):
        self.mode, mode._obj.value = mode._obj.value, self.mode
        return 0

    def cuMemAlloc_v2(self, memory, size):
        return 0 if self.mode == 2 else 900

    def cuStreamCreate(self, stream, flags):
        return 0

    def cuMemsetD8Async(self, memory, value, size, stream):
        self.set.append(size.value)
        return 0


def test_the_first_mark_of_a_thread_that_captures_a_graph_does_not_break_the_capture():
    marker = _Marker()
    marker._driver = driver = Driver()
    assert marker.set(3)
    assert marker.set(4)
    assert driver.set == [3, 4]
    assert driver.mode == 0


class Library:
    """CUPTI of CUDA 13, which notes what is enabled."""

    layouts = layouts_for(130001)
    knows_calls = True

    def __init__(self):
        self.enabled = set()

    def has(self, function):
        return self.knows_calls

    def call(self, function, *arguments):
        values = [getattr(one, "value", one) for one in arguments]
        if function in ("cuptiActivityEnable", "cuptiActivityDisable"):
            (self.enabled.add if function == "cuptiActivityEnable" else self.enabled.discard)(("kind", values[0]))
        elif function.endswith("Api"):
            (self.enabled.add if values[1] else self.enabled.discard)((function, values[0]))


@pytest.fixture
def library(monkeypatch):
    found = Library()
    monkeypatch.setattr(cupti, "Cupti", lambda: found)
    return found


def test_the_calls_in_which_the_host_waits_are_recorded_and_no_kind_that_slows_each_launch(library):
    log = KernelLog()
    log.start()
    assert {number for kind, number in library.enabled if kind == "kind"} == {1, 2, KERNEL}
    assert {number for kind, number in library.enabled if kind != "kind"} == {131, 137, 165}
    log._tracer._filled.append((bytes(made(RUNTIME, start=5, end=9)) + bytes(made(RUNTIME, start=1, end=3)), 80))
    log.stop()
    assert not library.enabled
    assert log.syncs().tolist() == [[1, 3], [5, 9]]


def test_a_library_without_them_records_kernels_alone(library):
    library.knows_calls = False
    log = KernelLog()
    log.start()
    assert library.enabled == {("kind", 1), ("kind", 2), ("kind", KERNEL)}
