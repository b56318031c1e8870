"""A kernel that waits and draws little power, to keep a step and its variants below the power cap."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jouletrace.errors import BadInputError
from jouletrace.workloads.base import Built

if TYPE_CHECKING:
    import torch

_TRIAL_CYCLES = 2_000_000
_TRIALS = 10
_WARM_UP = 50
"""Trials before those that count, 1 ms each: an idle board's clock rises in that time."""


@dataclass(frozen=True)
class SpinAfter:
    """An iteration with a spinning kernel at its end.

    Attributes:
        call: The iteration.
        cycles: Clock cycles of the SM that the kernel counts.
    """

    call: Callable[[int], Any]
    cycles: int

    def __call__(self, i: int) -> Any:
        """Enqueue both and return the iteration's outputs."""
        outputs = self.call(i)
        spin(self.cycles)
        return outputs


@dataclass(frozen=True)
class SpinBetween:
    """An iteration with short spins spread over its operators.

    One long pause would swing the board's power by hundreds of watts in every iteration, which the
    sensor sees aliased; of many short ones it sees the mean.

    Attributes:
        call: The iteration.
        cycles: Clock cycles of the SM that each kernel counts.
        pieces: How many spins.
        calls: Operators of an iteration.
        device: Where it runs.
    """

    call: Callable[[int], Any]
    cycles: int
    pieces: int
    calls: int
    device: torch.device

    def __call__(self, i: int) -> Any:
        """Enqueue all and return the iteration's outputs."""
        from jouletrace.steps.after_operators import AfterOperators

        due = spread(self.pieces, self.calls)
        with AfterOperators(self.device, lambda place: spin(self.cycles) if place in due else None):
            return self.call(i)


def spread(pieces: int, calls: int) -> frozenset[int]:
    """Places of the operators after which the pieces of a pause go: evenly spread, one after the last."""
    return frozenset(place for place in range(calls) if (place + 1) * pieces // calls > place * pieces // calls)


def spin(cycles: int) -> None:
    """Enqueue a kernel that waits for so many clock cycles of the SM."""
    import torch

    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]  # untyped in torch


def with_spin(built: Built, spin_s: float, device: torch.device, pieces: int = 1, calls: int = 0) -> Built:
    """The same workload with a spin of about ``spin_s`` in each iteration.

    The kernel counts clock cycles: at a lower clock it takes longer.

    Args:
        built: The workload.
        spin_s: Seconds, all pieces together.
        device: Where it runs.
        pieces: One goes to the end of an iteration, several are spread over it.
        calls: Operators of an iteration, at least ``pieces``; not needed for one piece.

    Raises:
        BadInputError: If ``spin_s`` is negative.
    """
    cycles = spin_cycles(spin_s, device, pieces)
    if cycles == 0:
        return built
    spinning = SpinAfter(built.call, cycles) if pieces == 1 else SpinBetween(built.call, cycles, pieces, calls, device)
    return replace(built, call=spinning)


def spin_cycles(spin_s: float, device: torch.device, pieces: int) -> int:
    """Cycles of each piece of a spin of about ``spin_s``; 0 of none.

    Raises:
        BadInputError: If ``spin_s`` is negative.
    """
    if not spin_s >= 0:
        raise BadInputError(f"a spin must take 0 seconds or more, not {spin_s}")
    return max(1, round(spin_s * cycles_per_second(device) / pieces)) if spin_s else 0


@functools.cache
def cycles_per_second(device: torch.device) -> float:
    """Cycles that the spinning kernel counts in a second, at the clock of a busy board.

    Found once for each device: pauses are compared with one another, so all must go by one clock, and
    after a load that a power cap holds down it would be another one.
    """
    import torch

    with torch.cuda.device(device):
        event: Any = torch.cuda.Event  # untyped in torch
        start, end = event(enable_timing=True), event(enable_timing=True)
        for _ in range(_WARM_UP):
            torch.cuda._sleep(_TRIAL_CYCLES)  # type: ignore[no-untyped-call]  # untyped in torch
        rates = []
        for _ in range(_TRIALS):
            start.record()
            torch.cuda._sleep(10 * _TRIAL_CYCLES)  # type: ignore[no-untyped-call]  # untyped in torch
            end.record()
            end.synchronize()
            rates.append(10 * _TRIAL_CYCLES / (float(start.elapsed_time(end)) / 1e3))
        return max(rates)
