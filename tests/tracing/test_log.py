"""Marks between launches."""

from jouletrace.tracing.log import _Marker


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
