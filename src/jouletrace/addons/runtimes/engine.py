"""What every runtime offers, and what is known of a model's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from jouletrace.execution.steps.nodes import NodeTimes

Feed = Mapping[str, NDArray[Any]]
"""An array for each input, by name."""


@dataclass(frozen=True)
class TensorSpec:
    """An input of a model.

    Attributes:
        name: Its name.
        dtype: Of its elements; None where NumPy has no such type.
        shape: Lengths; None where the model leaves one open.
        vocabulary: Rows of the table that it is looked up in; None if it is no index, or nobody knows.
    """

    name: str
    dtype: np.dtype[Any] | None
    shape: tuple[int | None, ...]
    vocabulary: int | None = None

    def __str__(self) -> str:
        return f"{self.name!r} ({'x'.join('?' if length is None else str(length) for length in self.shape)})"


class Engine(Protocol):
    """A model loaded into a runtime. First ``bind``, then ``infer`` as often as wanted.

    Attributes:
        name: Of the runtime.
        inputs: What the model takes.
        streams: How many inferences run at once; settled by ``bind``.
    """

    name: str
    inputs: list[TensorSpec]
    streams: int

    def bind(self, feeds: Sequence[Feed]) -> None:
        """Make ready to run on these input sets, in as many streams as it was opened for.

        Raises:
            BadInputError: If they don't fit the model, or it can't be made ready.
        """

    def infer(self, stream: int, number: int) -> None:
        """Run once, on input set ``number`` modulo their count; streams may be used by threads of their own."""

    def results(self, number: int) -> list[NDArray[Any]]:
        """Run once in the first stream and return the outputs, in order."""

    def node_times(self, n: int) -> NodeTimes:
        """Run ``n`` times with the runtime's own counters on, in an instance of its own."""

    def describe(self) -> dict[str, Any]:
        """Version, device, threads, streams, precision."""

    def close(self) -> None:
        """Let go of the model."""
