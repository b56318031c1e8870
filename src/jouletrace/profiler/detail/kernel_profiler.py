"""``jt.KernelProfiler``: time and energy by kernel."""

from __future__ import annotations

from jouletrace.profiler.detail.part_profiler import PartProfiler


class KernelProfiler(PartProfiler):
    """Time and energy of each kernel of a model or callable: one row per kernel, operator, input shapes and module.

    Equal layers share a row. On a CPU the rows are operators.
    """

    noun = "kernel"
