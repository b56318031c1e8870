"""One iteration of a workload: the called object, its inputs, and the settings of torch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

Inputs = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of one call."""


@dataclass(frozen=True)
class Iteration:
    """The ``call`` of a ``Built``: calls its target on each input set in turn.

    The settings are entered and left in each iteration, so that workloads of different
    precision can alternate in one process; that takes about 5 µs of host time, 8 with autocast.

    Attributes:
        target: The model or callable; ``steps`` replaces it by a compiled one.
        inputs: The input sets.
        settings: Makes the context of one iteration (see ``precision.Precision.settings``).
    """

    target: Callable[..., Any]
    inputs: list[Inputs]
    settings: Callable[[], AbstractContextManager[None]]

    def __call__(self, i: int) -> Any:
        """Run on input set ``i % len(inputs)`` and return the target's outputs."""
        args, kwargs = self.inputs[i % len(self.inputs)]
        with self.settings():
            return self.target(*args, **kwargs)
