"""CUDA graphs for the CPU: a capture is a tape of what was launched, on the memory where it was."""

import warnings
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from jouletrace.steps.cuda.graph_nodes import Node
from jouletrace.steps.operator_mode import OperatorMode
from jouletrace.steps.operators import describe, tensors_in

CPU = torch.device("cpu")
SPUN = torch.zeros(1)


class Tape(OperatorMode):
    """Notes what is launched and can launch it again.

    Attributes:
        launches: (operator, arguments, keyword arguments, outputs) of each launch.
    """

    def __init__(self):
        super().__init__(CPU)
        self.launches = []

    def operator(self, func, args, kwargs):
        out = func(*args, **kwargs)
        self.launches.append((func, args, kwargs, out))
        return out

    @property
    def names(self):
        """Operators with their overloads, in order."""
        return [func.name().removeprefix("aten::") for func, *_ in self.launches]

    def replay(self):
        """Launch all again; outputs go where they went."""
        with torch.inference_mode():
            for func, args, kwargs, out in self.launches:
                inputs = {id(leaf) for leaf in tree_leaves((args, kwargs))}
                again = func(*args, **kwargs)
                for old, new in zip(tree_leaves(out), tree_leaves(again), strict=True):
                    if isinstance(old, torch.Tensor) and id(old) not in inputs:
                        old.data.copy_(new)


class FakeGraph:
    """``torch.cuda.CUDAGraph``."""

    def __init__(self):
        self.tape = None

    def replay(self):
        self.tape.replay()

    def reset(self):
        self.tape = None


class FakeNodes:
    """``GraphNodes`` of the tape that is being recorded."""

    tape = None

    def __init__(self, stream):
        assert stream == 5
        self._seen = 0

    def new(self):
        before, self._seen = self._seen, len(self.tape.launches)
        return np.arange(before, self._seen, dtype=np.uint64)

    def read(self, handle):
        func, args, kwargs, _ = self.tape.launches[handle]
        # the forms of an operator that write elsewhere or in place are one kernel
        name = func.overloadpacket.__name__.rstrip("_")
        shapes = describe(tensors_in((args, {key: one for key, one in kwargs.items() if key != "out"})))
        return Node("kernel", hash((name, shapes)), name=name)


def install(monkeypatch):
    """Put the fakes where torch has its own."""
    from jouletrace.steps import pacing
    from jouletrace.steps.cuda import graph_variants

    @contextmanager
    def graph(one, pool, stream, capture_error_mode):
        assert capture_error_mode == "thread_local"
        one.tape = FakeNodes.tape = Tape()
        try:
            with one.tape:
                yield
        finally:
            FakeNodes.tape = None
        if not one.tape.launches:
            warnings.warn("The CUDA Graph is empty. This usually means ...", stacklevel=1)

    def sleep(cycles):
        if FakeNodes.tape is not None:  # torch launches the kernel without an operator
            spin = torch.ops.aten.full.default
            FakeNodes.tape.launches.append((spin, ((1,), float(cycles)), {}, SPUN))

    def stream(*_):
        return SimpleNamespace(cuda_stream=5, wait_stream=lambda _: None)

    for name, fake in {
        "CUDAGraph": FakeGraph,
        "graph": graph,
        "Stream": stream,
        "current_stream": stream,
        "stream": nullcontext,
        "device": nullcontext,
        "synchronize": lambda *_: None,
        "graph_pool_handle": lambda: "pool",
        "_sleep": sleep,
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(graph_variants, "GraphNodes", FakeNodes)
    monkeypatch.setattr(pacing, "cycles_per_second", lambda _device: 2e9)
