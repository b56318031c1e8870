"""The interface of every runtime, and the inputs of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.execution.steps.base import NodeTimes
from jouletrace.workloads.options import WorkloadOptions


def require(name: str) -> Any:
    """Import "onnx", "onnxscript", "onnxruntime" or "openvino".

    Raises:
        NotPossibleError: If it isn't installed or can't be imported; the message states how to install it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        extra = "openvino" if name == "openvino" else "onnx"
        raise NotPossibleError(f"{name} can't be imported ({error}): pip install 'jouletrace[{extra}]'") from error


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


class RuntimeModel(Protocol):
    """A model loaded into the runtime ``name``. Call ``bind`` first, then ``infer`` any number of times.

    ``bind`` sets ``streams``, the number of concurrent inferences.
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


def random_feeds(specs: Sequence[TensorSpec], options: WorkloadOptions, where: str) -> list[Feed]:
    """Random inputs for a model known only as a file: normal deviates, tokens of its vocabulary, masks of ones.

    They are never zeros: products of zeros draw less power. The first open length of an input is the batch, 1 by
    default; the second is the length of a sequence, which must be given. ``where`` names the file in messages.

    Raises:
        BadInputError: If the batch or length doesn't fit the model, is missing, or a type is unknown.
    """
    shapes = [_shape(spec, options, where) for spec in specs]
    if options.batch is not None and specs and not any(shape and shape[0] == options.batch for shape in shapes):
        raise BadInputError(
            f"--batch {options.batch}: {where} takes {', '.join(map(str, specs))}; export it with that batch"
        )
    if options.seq_len is not None and not any(options.seq_len in shape[1:] for shape in shapes):
        raise BadInputError(
            f"--seq-len {options.seq_len}: {where} takes {', '.join(map(str, specs))}; export it with that length"
        )
    draws = np.random.default_rng(options.seed)
    return [
        {spec.name: _draw(draws, spec, shape, where) for spec, shape in zip(specs, shapes, strict=True)}
        for _ in range(options.input_sets)
    ]


def batch_of(feeds: Sequence[Feed]) -> int:
    """The first length of the first input with a shape; 1 without one."""
    return next((array.shape[0] for array in feeds[0].values() if array.ndim), 1)


def _shape(spec: TensorSpec, options: WorkloadOptions, where: str) -> tuple[int, ...]:
    shape = list(spec.shape)
    for place, length in enumerate(shape):
        if length is not None:
            continue
        if place == 0:
            shape[0] = options.batch or 1
        elif options.seq_len is None:
            raise BadInputError(f"{where}: its input {spec} leaves a length open: give --seq-len")
        else:
            shape[place] = options.seq_len
    return tuple(length for length in shape if length is not None)


def _draw(draws: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...], where: str) -> NDArray[Any]:
    if spec.dtype is None:
        raise BadInputError(f"{where}: its input {spec} has a type without random numbers here")
    if spec.dtype.kind == "f":
        return draws.standard_normal(shape).astype(spec.dtype)
    if spec.dtype.kind == "b" or "mask" in spec.name.lower():
        return np.ones(shape, spec.dtype)
    most = spec.vocabulary if spec.vocabulary is not None and spec.vocabulary > 1 else 2
    return draws.integers(1 if most > 2 else 0, most, shape).astype(spec.dtype)
