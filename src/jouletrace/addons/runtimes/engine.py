"""The interface of every runtime, and the description of a model's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from jouletrace.execution.steps.base import NodeTimes

Feed = Mapping[str, NDArray[Any]]
"""An array for each input, by name."""


@dataclass(frozen=True)
class TensorSpec:
    """An input of a model.

    Attributes:
        name: Its name.
        dtype: Type of its elements; None where NumPy has no such type.
        shape: Lengths; None where the model leaves one open.
        vocabulary: Rows of the table that it indexes; None if it is no index, or the number is unknown.
    """

    name: str
    dtype: np.dtype[Any] | None
    shape: tuple[int | None, ...]
    vocabulary: int | None = None

    def __str__(self) -> str:
        return f"{self.name!r} ({'x'.join('?' if length is None else str(length) for length in self.shape)})"


class Engine(Protocol):
    """A model loaded into a runtime. Call ``bind`` first, then ``infer`` any number of times.

    Attributes:
        name: Name of the runtime.
        inputs: Inputs of the model.
        streams: Number of concurrent inferences; set by ``bind``.
    """

    name: str
    inputs: list[TensorSpec]
    streams: int

    def bind(self, feeds: Sequence[Feed]) -> None:
        """Prepare runs on these input sets, in as many streams as it was opened for.

        Raises:
            BadInputError: If they don't fit the model, or it can't be prepared.
        """

    def infer(self, stream: int, number: int) -> None:
        """Run once, on input set ``number`` modulo their count; each stream may be used by a separate thread."""

    def results(self, number: int) -> list[NDArray[Any]]:
        """Run once in the first stream and return the outputs, in order."""

    def node_times(self, n: int) -> NodeTimes:
        """Run ``n`` times with the runtime's own counters on, in a separate instance."""

    def describe(self) -> dict[str, Any]:
        """Version, device, threads, streams, precision."""

    def close(self) -> None:
        """Release the model."""
