"""Running one operator of an iteration several times in place, and knowing which kernel is whose."""

from contextlib import nullcontext

import torch

from jouletrace.execution.steps.graph import plain_path
from jouletrace.execution.steps.module_names import ModuleNames
from jouletrace.execution.steps.operators import OperatorMode, describe, is_idempotent, op_name, tensors_in, written


class Lister(OperatorMode):
    """Lists the operators of an iteration and waits after each: the tracer's stamps then say whose a kernel is."""

    def __init__(self, names, clock):
        super().__init__(torch.device("cuda"))
        self.rows, self._names, self._clock = [], names, clock

    def operator(self, func, args, kwargs):
        torch.cuda.synchronize()
        before = self._clock()
        out = func(*args, **kwargs)
        torch.cuda.synchronize()
        once = is_idempotent(func, args, kwargs) or not any(True for _ in written(func, args, kwargs))
        shapes = describe(tensors_in((args, kwargs)))
        self.rows.append((op_name(func), shapes, self._names.current.module, once, before, self._clock()))
        return out


class Repeater(OperatorMode):
    """Runs the operator at one place ``times`` times; outputs of the copies are dropped."""

    def __init__(self, place, times):
        super().__init__(torch.device("cuda"))
        self._place, self._times, self._at = place, times, 0

    def operator(self, func, args, kwargs):
        if self._at == self._place:
            for _ in range(self._times - 1):
                func(*args, **kwargs)
        self._at += 1
        return func(*args, **kwargs)


def variant_call(call, place, times):
    """One iteration with the operator at ``place`` run ``times`` times; as it is with place -1."""
    if place < 0:
        return call()
    with Repeater(place, times):
        return call()


def capture(call, place, times, pool, stream):
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with (
        plain_path(),
        torch.cuda.stream(stream),
        torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"),
    ):
        variant_call(call, place, times)
    return graph


__all__ = ["Lister", "ModuleNames", "Repeater", "capture", "nullcontext", "variant_call"]
