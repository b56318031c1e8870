"""Tracing a workload on a GPU or the CPU, and repetition of single operators in place. Imports torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from itertools import count, islice, repeat
from typing import Any

import numpy as np
import torch

from jouletrace.errors import BrokenOffError
from jouletrace.execution.listing import Seen, calls_of, listing, repeatable
from jouletrace.execution.steps.base import Interval
from jouletrace.execution.steps.cuda import CudaStep
from jouletrace.execution.steps.graph import capture, plain_path
from jouletrace.execution.steps.module_names import phases_of
from jouletrace.execution.steps.operators import OperatorMode, op_name
from jouletrace.execution.steps.trial import user_code
from jouletrace.execution.traceable import PLAIN, UNKNOWN, Call, Excitation, Listing, MatchedTrace, Variant, match
from jouletrace.tracing.trace import Trace, with_cupti
from jouletrace.workloads.base import Built

_AHEAD_S = 0.1
"""Work that the host enqueues before it waits: long enough to keep the GPU busy, short enough to stop in time."""

_LISTED = 2
"""Iterations run under the tracer before the listed one, in which the tracer and libraries initialise themselves."""


class GpuTraceable:
    """A workload on one GPU, which has run once already; ``step`` runs it in the user's mode."""

    def __init__(self, built: Built, step: CudaStep, device: torch.device) -> None:
        self._built, self._step, self._device = built, step, device
        self._phase = phases_of(built)

    def listing(self) -> Listing:
        """See ``Traceable``; the operators behind the kernels of a compiled workload are unknown."""
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
    ) -> MatchedTrace:
        """See ``Traceable``."""
        log: list[Variant] = []
        edges: list[int] = []
        ahead = max(1, round(_AHEAD_S / iteration_s))
        with torch.cuda.device(self._device), user_code(self._built, failure=BrokenOffError):
            runs = self._made_ready(listing, excitation)
            ready = replace(excitation, variants=tuple(one for one in excitation.variants if one in runs))

            def loop(draws: Iterator[Variant], seconds: float) -> None:
                began = last = time.monotonic()
                while last - began < seconds:
                    for variant in islice(draws, ahead):
                        runs[variant]()
                        log.append(variant)
                    torch.cuda.synchronize()
                    now = time.monotonic()
                    advance(now - last)
                    last = now

            def everything() -> None:
                torch.cuda.synchronize()
                edges.append(time.time_ns())
                loop(repeat(PLAIN), excitation.plain_s)
                if len(ready.variants) > 1:
                    loop(ready.draws(iteration_s), excitation.repeated_s)
                edges.append(time.time_ns())

            trace = in_launch_order(with_cupti(everything))
        matched = match(listing.codes(trace), listing.calls, log)
        return MatchedTrace(trace, matched, len(log), Interval(edges[0], edges[1]))

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
            torch.cuda.synchronize()
            try:
                graph, _ = capture(once, self._device, pool, stream)
            except RuntimeError:  # an operator that can't be repeated in a capture, or no memory left: omit the variant
                continue
            runs[variant] = graph.replay
        return runs


def in_launch_order(trace: Trace) -> Trace:
    """Entries in the order of their launches, which with several streams differs from that of their starts."""
    alone = len(np.unique(trace.stream)) == 1
    inside = trace.start_ns if alone else np.where(trace.graph_node > 0, trace.graph_node, trace.start_ns)
    return trace.take(np.lexsort((inside, trace.correlation)))


MOST_S = 8.0
"""Upper bound in seconds: operators are timed singly, so that more time would yield no more information."""


class CpuTraceable:
    """A workload on the CPU, which has run once already."""

    def __init__(self, built: Built) -> None:
        self._built = built
        self._phase = phases_of(built)

    def listing(self) -> Listing:
        """See ``Traceable``; the name of the work is that of its operator."""
        seen = self._once()
        names = list(dict.fromkeys(one.op for one in seen))
        calls = [
            one.call((names.index(one.op),), (one.after_ns - one.before_ns) / 1e9, number)
            for number, one in enumerate(seen)
        ]
        return Listing(calls, names)

    def record(
        self, listing: Listing, excitation: Excitation, iteration_s: float, advance: Callable[[float], None]
    ) -> MatchedTrace:
        """See ``Traceable``; the program runs without excitation."""
        began, last = time.time_ns(), time.monotonic()
        end = last + min(excitation.plain_s + excitation.repeated_s, MOST_S)
        seen: list[Seen] = []
        iterations = 0
        while last < end or not iterations:
            seen += self._once()
            iterations += 1
            now = time.monotonic()
            advance(now - last)
            last = now
        names = list(dict.fromkeys([*listing.names, *(one.op for one in seen)]))
        index = {name: i for i, name in enumerate(names)}
        trace = Trace.of(
            names,
            "timer",
            name=[index[one.op] for one in seen],
            start_ns=np.array([one.before_ns for one in seen], np.int64),
            end_ns=np.array([one.after_ns for one in seen], np.int64),
        )
        matched = match(listing.codes(trace), listing.calls, [PLAIN] * iterations)
        return MatchedTrace(trace, matched, iterations, Interval(began, time.time_ns()))

    def _once(self) -> list[Seen]:
        with user_code(self._built, failure=BrokenOffError):
            with listing(self._built.module, torch.device("cpu"), self._phase) as seen:
                self._built.call(0)
            return seen


class Repeater(OperatorMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Runs some operator calls several times; the outputs of the repeats are dropped.

    Args:
        device: Device of the workload.
        repeats: Operator and number of runs, by the number of a call among those made under this mode, whether they
            launch or not. A different operator at that position, as in programs that branch, runs once.
    """

    _repeating = False

    def __init__(self, device: torch.device, repeats: Mapping[int, tuple[str, int]]) -> None:
        super().__init__(device)
        self._repeats, self._at = repeats, 0

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See ``OperatorMode``; calls that a repeat makes aren't counted."""
        if Repeater._repeating:
            return func(*args, **kwargs)
        op, times = self._repeats.get(self._at, ("", 1))
        self._at += 1
        out = func(*args, **kwargs)
        if op and op_name(func) == op and repeatable(func, args, kwargs):
            Repeater._repeating = True
            try:
                for _ in range(times - 1):
                    func(*args, **kwargs)
            finally:
                Repeater._repeating = False
        return out


def repeated(
    iteration: Callable[[], Any],
    module: torch.nn.Module | None,
    device: torch.device,
    repeats: Sequence[tuple[Call, int]],
) -> Any:
    """One iteration in which some operator calls run several times.

    A mode costs the host 10 µs per operator. A GPU that waits for it is idle and, at a power cap, runs at a higher
    clock. The mode is therefore active only in the module call that makes the operator call, where that is known.
    """
    of: dict[tuple[str, int], dict[int, tuple[str, int]]] = {}
    for call, times in repeats:
        known = module is not None and call.inner != UNKNOWN
        key = (call.module, int(call.site.rpartition(".")[2])) if known else ("", 0)
        of.setdefault(key, {})[call.inner if known else call.number] = (call.op, times)
    with ExitStack() as modes:
        if whole := of.pop(("", 0), None):
            modes.enter_context(Repeater(device, whole))
        for (name, turn), inside in of.items():
            assert module is not None
            modes.enter_context(_around(module.get_submodule(name), turn, Repeater(device, inside)))
        return iteration()


@contextmanager
def _around(module: torch.nn.Module, turn: int, mode: Repeater) -> Iterator[None]:
    """Run the ``turn``-th call of a module from now on under a mode."""
    own, forward = module.__dict__.get("forward"), module.forward
    turns = count(1)

    def under(*args: Any, **kwargs: Any) -> Any:
        with mode if next(turns) == turn else nullcontext():
            return forward(*args, **kwargs)

    module.forward = under  # not a hook: some modules take another path where they have hooks
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own
