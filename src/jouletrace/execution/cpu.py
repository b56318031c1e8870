"""Timing the operators of a workload on the CPU, where they run sequentially. Imports torch."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from jouletrace.errors import BrokenOffError
from jouletrace.execution.calls import PLAIN, match
from jouletrace.execution.listing import Seen, listing
from jouletrace.execution.program import Excitation, Listing, Traced
from jouletrace.execution.steps.base import Interval
from jouletrace.execution.steps.module_names import phases_of
from jouletrace.execution.steps.trial import user_code
from jouletrace.tracing.trace import Trace
from jouletrace.workloads.base import Built

MOST_S = 8.0
"""Upper bound in seconds: operators are timed singly, so that more time would yield no more information."""


class CpuProgram:
    """A workload on the CPU.

    Args:
        built: The workload, which has run once already.
    """

    def __init__(self, built: Built) -> None:
        self._built = built
        self._phase = phases_of(built)

    def listing(self) -> Listing:
        """See ``Program``; the name of the work is that of its operator."""
        seen = self._once()
        names = list(dict.fromkeys(one.op for one in seen))
        calls = [
            one.call((names.index(one.op),), (one.after_ns - one.before_ns) / 1e9, number)
            for number, one in enumerate(seen)
        ]
        return Listing(calls, names)

    def record(
        self, listing: Listing, excitation: Excitation, iteration_s: float, advance: Callable[[float], None]
    ) -> Traced:
        """See ``Program``; the program runs without excitation."""
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
        return Traced(trace, matched, iterations, Interval(began, time.time_ns()))

    def _once(self) -> list[Seen]:
        with user_code(self._built, failure=BrokenOffError):
            with listing(self._built.module, torch.device("cpu"), self._phase) as seen:
                self._built.call(0)
            return seen
