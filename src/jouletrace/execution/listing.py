"""The operators that an iteration calls on a GPU, with their modules and kernels. Imports torch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from jouletrace.execution.steps.module_names import ModuleNames, Phase, phase_of_step
from jouletrace.execution.steps.operators import OperatorMode, describe, is_idempotent, op_name, tensors_in, written
from jouletrace.execution.traceable import UNKNOWN, Call
from jouletrace.tracing.trace import Trace

_SLACK_NS = 20_000
"""Largest error of a kernel's stamp against the host's clock, to which the driver converts it."""

_WRITE_UNSAID = ("batch_norm", "instance_norm")
"""Parts of the names of operators that write running statistics, which their schemas don't state."""


@dataclass(frozen=True)
class Seen:
    """An operator call, and the interval in which the GPU did only its work: from before its launch until its end."""

    op: str
    shapes: str
    module: str
    site: str
    phase: str
    backward: bool
    repeatable: bool
    before_ns: int
    after_ns: int

    def call(self, kernels: tuple[int, ...], seconds: float, number: int, inner: int = UNKNOWN) -> Call:
        """The call with the kernels that it launches; see ``Call``."""
        named = self.op, self.shapes, self.module, self.site, self.phase
        return Call(*named, kernels, seconds, self.repeatable, number, inner)


class Lister(OperatorMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Lists operator calls and waits after each, so that the tracer's stamps identify the kernels of each call."""

    def __init__(self, names: ModuleNames, device: torch.device, phase: Phase) -> None:
        super().__init__(device)
        self.seen: list[Seen] = []
        self._names, self._phase = names, phase

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See ``OperatorMode``."""
        site, backward = self._names.locate()
        self._wait()
        before = time.time_ns()
        out = func(*args, **kwargs)
        self._wait()
        after = time.time_ns()
        self.seen.append(
            Seen(
                op_name(func),
                describe(tensors_in((args, kwargs))),
                site.module,
                site.call,
                self._phase(site, backward),
                backward,
                repeatable(func, args, kwargs),
                before,
                after,
            )
        )
        return out

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def repeatable(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether two runs of a call leave the same state as one."""
    training = any(value is True for value in (*args, *kwargs.values()))
    if training and any(part in op_name(func) for part in _WRITE_UNSAID):
        return False
    return is_idempotent(func, args, kwargs) or not any(True for _ in written(func, args, kwargs))


@contextmanager
def listing(module: torch.nn.Module | None, device: torch.device, phase: Phase = phase_of_step) -> Iterator[list[Seen]]:
    """List the calls made inside, in order."""
    with ModuleNames(module) as names, Lister(names, device, phase) as lister:
        yield lister.seen


def calls_of(seen: Sequence[Seen], trace: Trace) -> list[Call]:
    """Operator calls of an iteration with their kernels, in launch order; kernels without one are separate calls."""
    start, length = trace.start_ns, (trace.end_ns - trace.start_ns) / 1e9
    before, after = (np.array([getattr(one, edge) for one in seen], np.int64) for edge in ("before_ns", "after_ns"))
    owner = np.full(len(trace), -1, np.int64)
    if seen:
        nearest = np.searchsorted((after[:-1] + before[1:]) // 2, start)
        inside = (start >= before[nearest] - _SLACK_NS) & (start <= after[nearest] + _SLACK_NS)
        owner[inside] = nearest[inside]
    inner = _inner(seen)
    calls: list[Call] = []
    for at in range(len(trace)):
        if owner[at] < 0:
            calls.append(Call("", "", "", "", "forward", (int(trace.name[at]),), float(length[at]), repeatable=False))
        elif not at or owner[at] != owner[at - 1]:
            last = at + 1
            while last < len(trace) and owner[last] == owner[at]:
                last += 1
            kernels = tuple(int(name) for name in trace.name[at:last])
            number = int(owner[at])
            calls.append(seen[number].call(kernels, float(length[at:last].sum()), number, inner[number]))
    return calls


def _inner(seen: Sequence[Seen]) -> list[int]:
    """Position of each operator call among those of its module's call; ``UNKNOWN`` where no forward makes it."""
    first: dict[tuple[str, str], int] = {}
    found = []
    for at, one in enumerate(seen):
        module, turn = one.module.split("."), one.site.split(".")
        if one.backward or not one.site or len(module) != len(turn) or turn[-1] == "0":
            found.append(UNKNOWN)
            continue
        for depth in range(len(module)):
            first.setdefault((".".join(module[: depth + 1]), turn[depth]), at)
        found.append(at - first[one.module, turn[-1]])
    return found
