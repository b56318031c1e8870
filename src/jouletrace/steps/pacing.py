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
        import torch

        outputs = self.call(i)
        torch.cuda._sleep(self.cycles)  # type: ignore[no-untyped-call]  # untyped in torch
        return outputs


def with_spin(built: Built, spin_s: float, device: torch.device) -> Built:
    """The same workload with a spin of about ``spin_s`` at the end of each iteration.

    The kernel counts clock cycles: at a lower clock it takes longer.

    Raises:
        BadInputError: If ``spin_s`` is negative.
    """
    if not spin_s >= 0:
        raise BadInputError(f"a spin must take 0 seconds or more, not {spin_s}")
    if spin_s == 0:
        return built
    return replace(built, call=SpinAfter(built.call, max(1, round(spin_s * cycles_per_second(device)))))


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
