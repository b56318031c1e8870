"""Tracing a workload on a GPU: eager, as a CUDA graph, or compiled. Imports torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import torch

from jouletrace.errors import BrokenOffError
from jouletrace.execution.calls import PLAIN, Call, Variant, match
from jouletrace.execution.listing import Seen, calls_of, listing
from jouletrace.execution.program import Excitation, Listing, Traced
from jouletrace.execution.repeating import captured, repeated
from jouletrace.execution.steps.base import Interval
from jouletrace.execution.steps.cuda.graph import plain_path
from jouletrace.execution.steps.cuda.step import CudaStep
from jouletrace.execution.steps.module_names import phases_of
from jouletrace.execution.steps.trial import user_code
from jouletrace.tracing.cuda import with_cupti
from jouletrace.tracing.trace import Trace
from jouletrace.workloads.base import Built

_AHEAD_S = 0.1
"""Work that the host enqueues before it waits: long enough to keep the GPU busy, short enough to stop in time."""

_LISTED = 2
"""Iterations run under the tracer before the listed one, in which the tracer and libraries initialise themselves."""


class GpuProgram:
    """A workload on one GPU.

    Args:
        built: The workload, which has run once already.
        step: Runs it in the user's mode.
        device: The GPU.
    """

    def __init__(self, built: Built, step: CudaStep, device: torch.device) -> None:
        self._built, self._step, self._device = built, step, device
        self._phase = phases_of(built)

    def listing(self) -> Listing:
        """See ``Program``; the operators behind the kernels of a compiled workload are unknown."""
        seen: list[Seen] = []
        note = "compiled code: kernels have the compiler's names" if self._step.mode == "compile" else ""

        def once() -> None:
            nonlocal seen
            for _ in range(_LISTED):
                self._step.launch()
            torch.cuda.synchronize(self._device)
            began.append(time.time_ns())
            if note:
                self._step.launch()
            else:
                with (
                    plain_path() if self._step.mode == "graph" else nullcontext(),
                    listing(self._built.module, self._device, self._phase) as seen,
                ):
                    self._built.call(0)
            torch.cuda.synchronize(self._device)

        began: list[int] = []
        with torch.cuda.device(self._device), user_code(self._built, " while its operators were listed"):
            trace = with_cupti(once)
        trace = trace.take(np.flatnonzero(trace.start_ns >= began[0]))
        return Listing(calls_of(seen, trace), trace.names, note)

    def record(
        self, listing: Listing, excitation: Excitation, iteration_s: float, advance: Callable[[float], None]
    ) -> Traced:
        """See ``Program``."""
        log: list[Variant] = []
        edges: list[int] = []
        with torch.cuda.device(self._device), user_code(self._built, failure=BrokenOffError):
            runs = self._made_ready(listing, excitation)
            ready = replace(excitation, variants=tuple(one for one in excitation.variants if one in runs))

            def everything() -> None:
                torch.cuda.synchronize()
                edges.append(time.time_ns())
                draws = ready.draws(iteration_s)
                self._loop(runs, lambda: PLAIN, excitation.plain_s, iteration_s, log, advance)
                if len(ready.variants) > 1:
                    self._loop(runs, lambda: next(draws), excitation.repeated_s, iteration_s, log, advance)
                edges.append(time.time_ns())

            trace = in_launch_order(with_cupti(everything))
        matched = match(listing.codes(trace), listing.calls, log)
        return Traced(trace, matched, len(log), Interval(edges[0], edges[1]))

    def _loop(
        self,
        runs: dict[Variant, Callable[[], Any]],
        draw: Callable[[], Variant],
        seconds: float,
        iteration_s: float,
        log: list[Variant],
        advance: Callable[[float], None],
    ) -> None:
        """Run drawn variants for a time, with regular waits for the GPU."""
        ahead = max(1, round(_AHEAD_S / iteration_s))
        began = last = time.monotonic()
        while last - began < seconds:
            for _ in range(ahead):
                variant = draw()
                runs[variant]()
                log.append(variant)
            torch.cuda.synchronize()
            now = time.monotonic()
            advance(now - last)
            last = now

    def _made_ready(self, listing: Listing, excitation: Excitation) -> dict[Variant, Callable[[], Any]]:
        """A function per variant that runs it; graphs are captured beforehand, and those that can't be are left out."""
        runs: dict[Variant, Callable[[], Any]] = {PLAIN: self._step.launch}
        graphs, turns = self._step.mode == "graph", count()
        pool, stream = (torch.cuda.graph_pool_handle(), torch.cuda.Stream()) if graphs else (None, None)  # type: ignore[no-untyped-call]
        for variant in excitation.variants:
            if variant == PLAIN:
                continue
            repeats = [(listing.calls[place], times) for place, times in variant.repeats]

            def once(repeats: Sequence[tuple[Call, int]] = repeats) -> Any:
                turn = 0 if graphs else next(turns)
                return repeated(lambda: self._built.call(turn), self._built.module, self._device, repeats)

            if not graphs:
                runs[variant] = once
                continue
            assert stream is not None
            try:
                runs[variant] = captured(once, self._device, pool, stream).replay
            except RuntimeError:  # an operator that can't be repeated in a capture, or no memory left: omit the variant
                continue
        return runs


def in_launch_order(trace: Trace) -> Trace:
    """Entries in the order of their launches, which with several streams differs from that of their starts."""
    alone = len(np.unique(trace.stream)) == 1
    inside = trace.start_ns if alone else np.where(trace.graph_node > 0, trace.graph_node, trace.start_ns)
    return trace.take(np.lexsort((inside, trace.correlation)))
