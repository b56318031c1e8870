"""Spans, samples and counters assembled by columns from NumPy arrays, without an object per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from jouletrace.arrays import Mask
from jouletrace.run import tables

LAUNCH_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
"""Columns of the grid and block of a launch."""


class Coded(NamedTuple):
    """A column of text: an index into ``values`` for each row, negative where the text is missing.

    Attributes:
        codes: Integers, shape (n,).
        values: The distinct texts.
    """

    codes: NDArray[np.integer]
    values: Sequence[str]


class Partly(NamedTuple):
    """A column of numbers with missing values.

    Attributes:
        values: Numbers, shape (n,); arbitrary where missing.
        valid: Booleans, shape (n,).
    """

    values: NDArray[np.generic]
    valid: Mask


def coded(texts: Sequence[str | None]) -> Coded:
    """A column of texts, one per row, None where it is missing."""
    codes: dict[str, int] = {}
    found = [-1 if text is None else codes.setdefault(text, len(codes)) for text in texts]
    return Coded(np.array(found, np.int32), list(codes))


def known(values: NDArray[np.integer], least: int = 0, most: int = (1 << 63) - 1) -> Partly:
    """A column of integers; those below ``least`` or above ``most`` are missing."""
    return Partly(values, (values >= least) & (values <= most))


def launch_shape(axes: NDArray[np.integer]) -> dict[str, Partly]:
    """The six columns of grid and block with 32 bits, from integers of shape (6, n), -1 where unknown."""
    return {name: known(values, most=(1 << 31) - 1) for name, values in zip(LAUNCH_SHAPE, axes, strict=True)}


Column = ArrayLike | Coded | Partly | str | None


_DTYPES: dict[pa.DataType, np.dtype[Any]] = {
    pa.int32(): np.dtype(np.int32),
    pa.int64(): np.dtype(np.int64),
    pa.float32(): np.dtype(np.float32),
    pa.float64(): np.dtype(np.float64),
    pa.bool_(): np.dtype(np.bool_),
    pa.string(): np.dtype(object),
}
"""NumPy's types of columns: ``to_pandas_dtype`` of older pyarrow imports pandas, which commands hide."""


def block(name: str, n: int, /, **columns: Column) -> pa.Table:
    """``n`` rows of the table ``name`` ("spans", ...); absent columns are null.

    A column is an array of length n, one value for all rows, a ``Coded`` text column, or a
    ``Partly`` missing column.

    Raises:
        KeyError: If the table has no such column.
    """
    schema = tables.TABLES[name]
    unknown = set(columns) - set(schema.names)
    if unknown:
        raise KeyError(f"{name} has no column {sorted(unknown)[0]}")
    arrays = [
        _array(columns[f.name], f.type, n) if columns.get(f.name) is not None else tables.nulls(n, f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def join(name: str, blocks: Sequence[pa.Table]) -> pa.Table:
    """Concatenate blocks and unify their dictionaries."""
    if not blocks:
        return tables.empty(name)
    return pa.concat_tables(blocks).unify_dictionaries()  # in chunks: a copy would double a large file


def _array(column: Column, kind: pa.DataType, n: int) -> pa.Array:
    if pa.types.is_dictionary(kind):
        if isinstance(column, str):
            column = Coded(np.zeros(n, np.int32), [column])
        if isinstance(column, Coded):
            codes = np.asarray(column.codes).astype(np.int32, copy=False)
            missing = codes < 0
            indices = pa.array(codes, mask=missing) if missing.any() else pa.array(codes)
            return pa.DictionaryArray.from_arrays(indices, tables.array(list(column.values), pa.string()))
        return tables.array(list(np.asarray(column, dtype=object)), kind)
    dtype = _DTYPES[kind]
    if isinstance(column, Partly):
        if not np.any(column.valid):
            return tables.nulls(n, kind)
        values = np.where(column.valid, column.values, 0).astype(dtype, copy=False)
        missing = ~np.asarray(column.valid)
        return pa.array(values, type=kind, mask=missing if missing.any() else None)
    return pa.array(np.broadcast_to(np.asarray(column), (n,)).astype(dtype, copy=False), type=kind)
