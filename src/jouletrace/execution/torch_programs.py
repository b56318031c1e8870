"""Tracing a workload on a GPU or the CPU, as it is and with single operators repeated in place. Imports torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import count, cycle, islice, repeat
from typing import Any

import numpy as np
import torch

from jouletrace.errors import BrokenOffError, NotPossibleError
from jouletrace.execution.calls import UNKNOWN, Listing, RecordedLaunches
from jouletrace.execution.excitation import PLAIN, Excitation, Variant
from jouletrace.execution.marks import CallMarks, marked
from jouletrace.execution.operator_marks import Seen, calls_of, listing, repeated
from jouletrace.execution.steps.base import Interval
from jouletrace.execution.steps.cuda import CudaStep
from jouletrace.execution.steps.graph import capture, plain_path
from jouletrace.execution.steps.module_names import phases_of
from jouletrace.execution.steps.trial import user_code
from jouletrace.tracer.in_process import trace
from jouletrace.tracer.process_trace import Launched
from jouletrace.workloads.base import Built

_AHEAD_S = 0.1
"""Work that the host enqueues before it waits: long enough to keep the GPU busy, short enough to stop in time."""

_LISTED = 2
"""Iterations run under the tracer before the listed one, in which the tracer and libraries initialise themselves."""

_HOOKED_S = 0.1
"""Time in which the tracer writes the operators of compiled kernels: its thread waits for the interpreter's lock."""

_MOST_NODES = 400_000
"""Kernels of all graphs together: the tracer remembers a million nodes."""


class GpuTraceable:
    """A workload on one GPU, which has run once already; ``step`` runs it in the user's mode."""

    def __init__(self, built: Built, step: CudaStep, device: torch.device) -> None:
        self._built, self._step, self._device = built, step, device
        self._phase = phases_of(built)

    def listing(self) -> Listing:
        """See ``Traceable``; kernels that a compiler made have the operators that they fuse, its others have none."""
        seen: list[Seen] = []
        note = "compiled code: kernels have the compiler's names" if self._step.mode == "compile" else ""

        def listed(marks: CallMarks) -> None:
            nonlocal seen
            with (
                plain_path() if self._step.mode == "graph" else nullcontext(),
                listing(self._built.module, self._device, self._phase, marks.call) as seen,
            ):
                self._built.call(0)

        def once(marks: CallMarks) -> None:
            for _ in range(_LISTED):
                self._step.launch()
            marks.iteration(self._step.launch if note else partial(listed, marks))
            torch.cuda.synchronize(self._device)
            if note:
                time.sleep(_HOOKED_S)

        with torch.cuda.device(self._device), user_code(self._built, " while its operators were listed"):
            traced = trace(lambda tracer: once(CallMarks(tracer)))
        number, _, iteration = marked(traced.work)
        rows = np.flatnonzero(iteration == 0)
        work = traced.work.take(rows)
        if not len(work):
            raise NotPossibleError("kernel tracing: the workload ran nothing on the GPU")
        fused = np.where(number[rows] == UNKNOWN, np.array([op for op, _ in work.labels])[work.label], "")
        return Listing(calls_of(seen, work, number[rows], fused.tolist()), work.names, note)

    def record(
        self, listing: Listing, excitation: Excitation, iteration_s: float, advance: Callable[[float], None]
    ) -> RecordedLaunches:
        """See ``Traceable``."""
        log: list[Variant] = []
        edges: list[int] = []
        ahead = max(1, round(_AHEAD_S / iteration_s))

        def everything(marks: CallMarks) -> None:
            runs = self._made_ready(marks, listing, excitation)
            ready = replace(excitation, variants=tuple(drawn for drawn in excitation.variants if drawn in runs))

            def loop(draws: Iterator[Variant], seconds: float) -> None:
                began = last = time.monotonic()
                while last - began < seconds:
                    for variant in islice(draws, ahead):
                        marks.iteration(runs[variant])
                        log.append(variant)
                    torch.cuda.synchronize()
                    now = time.monotonic()
                    advance(now - last)
                    last = now

            torch.cuda.synchronize()
            edges.append(time.time_ns())
            loop(repeat(PLAIN), excitation.plain_s)
            if len(ready.variants) > 1:
                loop(ready.draws(iteration_s), excitation.repeated_s)
            edges.append(time.time_ns())

        with torch.cuda.device(self._device), user_code(self._built, failure=BrokenOffError):
            traced = trace(lambda tracer: everything(CallMarks(tracer)))
        number, copy, iteration = marked(traced.work)
        rows = np.flatnonzero(iteration >= 0)
        work, copy, iteration = traced.work.take(rows), copy[rows], iteration[rows]
        call = listing.owners(work, listing.places(number[rows]), copy, iteration)
        interval = Interval(edges[0], edges[1])
        return RecordedLaunches(work, call, copy, iteration, len(log), interval, traced.dropped, traced.notes)

    def _made_ready(
        self, marks: CallMarks, listing: Listing, excitation: Excitation
    ) -> dict[Variant, Callable[[], Any]]:
        """A function per variant that runs it; graphs are captured beforehand, and those that can't be are left out."""
        runs: dict[Variant, Callable[[], Any]] = {PLAIN: self._step.launch}
        if self._step.mode != "graph":
            turns = count()
            others = (variant for variant in excitation.variants if variant != PLAIN)
            return runs | {variant: partial(self._repeat, marks, listing, variant, turns) for variant in others}
        pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()  # type: ignore[no-untyped-call]

        def captured(variant: Variant, turn: int = 0) -> Callable[[], Any]:
            times = dict(variant.repeats)
            # the nodes of a graph keep the marks of the calls that make them
            calls = [(call, times.get(index, 1)) for index, call in enumerate(listing.calls) if call.op]
            once = partial(repeated, partial(self._built.call, turn), None, self._device, marks, calls)
            torch.cuda.synchronize()
            graph, _ = capture(once, self._device, pool, stream)
            return graph.replay

        with suppress(RuntimeError):  # an operator that can't be captured under a mode, or no memory left
            rotated = cycle([captured(PLAIN, turn) for turn in range(len(self._built.inputs))])
            runs[PLAIN] = lambda: next(rotated)()  # noqa: PLW0108  # each run takes the next
        most = _MOST_NODES // listing.kernels
        for variant in [drawn for drawn in excitation.variants if drawn != PLAIN][:most]:
            with suppress(RuntimeError):  # as above: omit the variant
                runs[variant] = captured(variant)
        return runs

    def _repeat(self, marks: CallMarks, listing: Listing, variant: Variant, turns: Iterator[int]) -> Any:
        """Run a variant; input sets rotate."""
        repeats = [(listing.calls[index], times) for index, times in variant.repeats]
        return repeated(partial(self._built.call, next(turns)), self._built.module, self._device, marks, repeats)


class CpuTraceable:
    """A workload on the CPU, which has run once already."""

    def __init__(self, built: Built) -> None:
        self._built = built
        self._phase = phases_of(built)

    def listing(self) -> Listing:
        """See ``Traceable``; the name of the work is that of its operator."""
        seen, edges = self._once()
        names = list(dict.fromkeys(operator.op for operator in seen))
        calls = [
            operator.call((names.index(operator.op),), (end - start) / 1e9, number)
            for number, (operator, (start, end)) in enumerate(zip(seen, edges, strict=True))
        ]
        return Listing(calls, names)

    def record(
        self, listing: Listing, excitation: Excitation, iteration_s: float, advance: Callable[[float], None]
    ) -> RecordedLaunches:
        """See ``Traceable``; the program runs without excitation."""
        began, last = time.time_ns(), time.monotonic()
        end = last + excitation.plain_s + excitation.repeated_s
        ops: list[str] = []
        edges: list[tuple[int, int]] = []
        iteration: list[int] = []
        iterations = 0
        while last < end or not iterations:
            seen, here = self._once(counted=False)  # which takes longer than a short operator
            ops += [operator.op for operator in seen]
            edges += here
            iteration += [iterations] * len(seen)
            iterations += 1
            now = time.monotonic()
            advance(now - last)
            last = now
        names = {op: i for i, op in enumerate(dict.fromkeys([*listing.names, *ops]))}
        start_ns, end_ns = np.array(edges, np.int64).reshape(-1, 2).T
        work = Launched.from_columns(list(names), np.array([names[op] for op in ops], np.int64), start_ns, end_ns)
        unmarked, copy, turn = np.full(len(work), UNKNOWN), np.zeros(len(work), bool), np.array(iteration, np.int64)
        call = listing.owners(work, unmarked, copy, turn)
        return RecordedLaunches(work, call, copy, turn, iterations, Interval(began, time.time_ns()))

    def _once(self, *, counted: bool = True) -> tuple[list[Seen], list[tuple[int, int]]]:
        """The operator calls of an iteration, and when each ran, ns."""
        edges: list[tuple[int, int]] = []

        def timed(_: int, call: Callable[[], Any]) -> Any:
            began = time.time_ns()
            try:
                return call()
            finally:
                edges.append((began, time.time_ns()))

        with user_code(self._built, failure=BrokenOffError):
            with listing(self._built.module, torch.device("cpu"), self._phase, timed, counted=counted) as seen:
                self._built.call(0)
            return seen, edges
