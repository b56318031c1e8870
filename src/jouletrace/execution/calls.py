"""The operator calls of a workload's iteration, and whose each recorded kernel is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jouletrace.arrays import Ints, Mask
from jouletrace.execution.steps.base import Interval
from jouletrace.tracer.labels import taught
from jouletrace.tracer.process_trace import Launched

UNKNOWN = -1


@dataclass(frozen=True)
class Call:
    """One call of an operator in an iteration.

    Attributes:
        op: Operator with its namespace ("aten.addmm"); those that a compiler's kernel fuses ("add+gelu"); "" for
            kernels that no operator of torch launches.
        shapes: Types and shapes of its tensor inputs.
        module: Qualified name of the innermost module; "" outside of all.
        site: Call of its module that contains it, as of ``module_names.CallSite``.
        phase: Phase of the iteration ("forward", "backward", "optimizer", "prefill", "decode", ...); "" where unknown.
        kernels: The kernels that it launches, as indices into the names of the listing, in launch order.
        seconds: Time for which these run.
        repeatable: Whether two runs leave the same state as one.
        number: Its position among all operator calls of the iteration, including those that launch nothing.
        inner: Its position among the operator calls of its module's call; ``UNKNOWN`` where no module's forward makes
            it.
        flops: Floating-point operations by torch's formulas; 0 for operators without one.
        bytes_moved: Bytes of its inputs read and of its outputs written.
    """

    op: str
    shapes: str
    module: str
    site: str
    phase: str
    kernels: tuple[int, ...]
    seconds: float
    repeatable: bool = True
    number: int = UNKNOWN
    inner: int = UNKNOWN
    flops: float = 0.0
    bytes_moved: float = 0.0


@dataclass(frozen=True)
class Listing:
    """The calls of one plain iteration.

    Attributes:
        calls: The calls in launch order.
        names: Names of kernels, which ``Call.kernels`` indexes.
        note: Why operators are unknown; "" if they are known.
    """

    calls: Sequence[Call]
    names: Sequence[str]
    note: str = ""

    @property
    def kernels(self) -> int:
        """Number of kernels per iteration; at least 1."""
        return max(1, sum(len(call.kernels) for call in self.calls))

    def codes(self, work: Launched) -> Ints:
        """The name of each launch as an index into ``names``, ``UNKNOWN`` for others; shape (n,)."""
        index = {name: i for i, name in enumerate(self.names)}
        return np.array([index.get(name, UNKNOWN) for name in work.names], np.int64)[work.name]

    def places(self, number: Ints) -> Ints:
        """Positions of the calls of these numbers, ``UNKNOWN`` where none is listed; shape (n,)."""
        numbers = {call.number: index for index, call in enumerate(self.calls) if call.number != UNKNOWN}
        table = np.full(max(number.max(initial=0), max(numbers, default=0)) + 2, UNKNOWN)
        table[list(numbers)] = list(numbers.values())
        return table[number]  # the last one is that of UNKNOWN

    def owners(self, work: Launched, call: Ints, copy: Mask, iteration: Ints) -> Ints:
        """Positions of the calls of launches, learned where they aren't marked; ``UNKNOWN`` for none. Shape (n,).

        A call has the kernels with which it is listed, and in each iteration no more of those that aren't marked.

        Args:
            work: The launches.
            call: Position of the marked call, ``UNKNOWN`` for none, shape (n,).
            copy: True for launches of a repetition, shape (n,).
            iteration: Number of its iteration, from 0 on, ascending, shape (n,).
        """
        owners, plain = call.copy(), np.flatnonzero(~copy)
        names = np.array([name for each in self.calls for name in each.kernels], np.int64)
        places = np.repeat(np.arange(len(self.calls)), [len(each.kernels) for each in self.calls])
        codes = self.codes(work)
        name = np.append(names, np.where(codes == UNKNOWN, len(self.names), codes)[plain])
        label, turn = np.append(places, call[plain]), np.append(np.full(len(names), -1), iteration[plain])
        owners[plain] = taught(name, label, turn)[len(names) :]
        listed = np.zeros((len(self.calls) + 1, len(self.names) + 1), np.int64)
        np.add.at(listed, (places, names), 1)
        owners[listed[owners, codes] == 0] = UNKNOWN
        learned = plain[(call[plain] == UNKNOWN) & (owners[plain] != UNKNOWN)]
        of = (iteration[learned] * len(listed) + owners[learned]) * listed.shape[1] + codes[learned]
        _, which, count = np.unique(of, return_inverse=True, return_counts=True)
        owners[learned[count[which] > listed[owners[learned], codes[learned]]]] = UNKNOWN
        return owners


@dataclass(frozen=True)
class RecordedLaunches:
    """The launches of a program while it was recorded.

    Attributes:
        work: Kernels, copies and sets in launch order.
        call: Position of the call of each; ``UNKNOWN`` for none. Shape (n,).
        copy: True for launches of a repetition, shape (n,).
        iteration: Number of its iteration, shape (n,).
        iterations: Number of iterations that ran.
        interval: Time of the recording.
        dropped: Number of missing records.
        notes: Codes and messages about what is missing.
    """

    work: Launched
    call: Ints
    copy: Mask
    iteration: Ints
    iterations: int
    interval: Interval
    dropped: int = 0
    notes: Sequence[tuple[str, str]] = ()

    @property
    def unknown(self) -> float:
        """Share of the kernels that belong to no call."""
        return float(np.mean(self.call == UNKNOWN)) if len(self.call) else 0.0
