"""Doing something after each operator of an iteration. Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from jouletrace.steps.operator_mode import OperatorMode


class AfterOperators(OperatorMode):  # type: ignore[no-untyped-call]  # torch's __init_subclass__
    """Calls ``then`` with its place, from 0 on, after each operator.

    Args:
        device: Where the workload runs.
        then: What to do; no operators, which would be seen too.
    """

    def __init__(self, device: torch.device, then: Callable[[int], None]) -> None:
        super().__init__(device)
        self._then = then
        self._place = 0

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run it, then what follows."""
        out = func(*args, **kwargs)
        self._then(self._place)
        self._place += 1
        return out
