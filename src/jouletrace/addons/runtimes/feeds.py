"""Random inputs for a model known only as a file. They are never zeros: products of zeros draw less power."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.addons.runtimes.engine import Feed, TensorSpec
from jouletrace.errors import BadInputError
from jouletrace.workloads.options import WorkloadOptions


def random_feeds(specs: Sequence[TensorSpec], options: WorkloadOptions, where: str) -> list[Feed]:
    """Input sets for a model: normal deviates, uniform tokens of its vocabulary, masks of ones.

    The first open length of an input is the batch, 1 by default; the second is the length of
    a sequence, which must be given.

    Args:
        specs: Inputs of the model.
        options: Batch, sequence length, seed and number of sets.
        where: The file, for messages.

    Raises:
        BadInputError: If the batch or length doesn't fit the model, is missing, or a type is unknown.
    """
    shapes = [_shape(spec, options, where) for spec in specs]
    if options.batch is not None and specs and not any(shape and shape[0] == options.batch for shape in shapes):
        raise BadInputError(f"--batch {options.batch}: {where} takes {_all(specs)}; export it with that batch")
    fixed = options.seq_len is not None and not any(options.seq_len in shape[1:] for shape in shapes)
    if fixed:
        raise BadInputError(f"--seq-len {options.seq_len}: {where} takes {_all(specs)}; export it with that length")
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


def _all(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(map(str, specs))
