"""``jt.KernelProfiler``: which kernels time and energy go to."""

from __future__ import annotations

from jouletrace.profiler.detail.part_profiler import PartProfiler


class KernelProfiler(PartProfiler):
    """What each kernel of a model, or of any callable, takes: a row a kernel, operator, input shapes and module.

    Equal layers share a row. On a CPU the rows are operators.
    """

    noun = "kernel"
