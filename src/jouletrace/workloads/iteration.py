"""One iteration of a workload: what is called, on which inputs, under which settings of torch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

Inputs = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of one call."""


@dataclass(frozen=True)
class Iteration:
    """The ``call`` of a ``Built``: calls its target on one input set after the other.

    The settings are entered and left in each iteration, so that workloads of different
    precision can take turns in one process; that costs about 5 µs of host time, 8 with autocast.

    Attributes:
        target: The model or callable; ``steps`` puts a compiled one in its place.
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
