"""Decodes raw CUPTI buffers into arrays of records by kind: pure, and fast enough for millions of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.tracing.layouts import Layouts

Chunks = dict[int, list[NDArray[np.void]]]
"""Records by kind, in pieces; views into CUPTI's buffers where possible."""


class UnknownRecordError(ValueError):
    """A buffer holds a record of unknown size, so that the following records can't be located."""


def decode(buffers: Sequence[NDArray[np.uint8]], layouts: Layouts) -> Chunks:
    """Split buffers into structured arrays by kind, each in the order of writing.

    Buffers of one kind are not copied: read their columns with ``column``.

    Args:
        buffers: The valid part of each buffer, uint8, starting on a record.
        layouts: Layouts of the CUPTI version that wrote them.

    Raises:
        UnknownRecordError: With the kind and the offset of the record.
    """
    chunks: Chunks = {}
    for number, buffer in enumerate(buffers):
        for kind, records in _split(buffer, layouts, number):
            chunks.setdefault(kind, []).append(records)
    return chunks


def column(chunks: Sequence[NDArray[np.void]], name: str) -> NDArray[Any]:
    """One field of all records of a kind, shape (n,) or (n, 3)."""
    return np.concatenate([chunk[name] for chunk in chunks])


def _split(buffer: NDArray[np.uint8], layouts: Layouts, number: int) -> list[tuple[int, NDArray[np.void]]]:
    if len(buffer) < 8:
        return []
    uniform = _uniform(buffer, layouts)
    if uniform is not None:
        return [uniform]
    # Every record's size is a multiple of 8. For each 8-byte offset, the kind there gives the offset of the next
    # record, if a record started there; the chain from offset 0 is the real one.
    words = buffer[: len(buffer) // 8 * 8].view(np.uint32)[::2].astype(np.int64)
    sizes = layouts.sizes() // 8
    steps = np.where(words < len(sizes), sizes[np.minimum(words, len(sizes) - 1)], 0)
    following = (np.arange(len(words)) + steps).tolist()
    places: list[int] = []
    at, end = 0, len(words)
    append = places.append
    while at < end:
        append(at)
        after = following[at]
        if after == at:
            raise UnknownRecordError(f"buffer {number}, byte {8 * at}: record of unknown kind {words[at]}")
        at = after
    if at > end:
        raise UnknownRecordError(f"buffer {number}, byte {8 * places[-1]}: the last record is cut off")
    place = np.array(places)
    kinds = words[place]
    found = []
    for kind in np.unique(kinds):
        dtype = layouts.dtypes[int(kind)]
        starts = 8 * place[kinds == kind]
        rows = np.lib.stride_tricks.sliding_window_view(buffer, dtype.itemsize)[starts]
        found.append((int(kind), np.ascontiguousarray(rows).view(dtype)[:, 0]))
    return found


def _uniform(buffer: NDArray[np.uint8], layouts: Layouts) -> tuple[int, NDArray[np.void]] | None:
    """The whole buffer as records of its first kind, without a copy, if it holds no other kind."""
    kind = int(buffer[:4].view(np.uint32)[0])
    dtype = layouts.dtypes.get(kind)
    if dtype is None or len(buffer) % dtype.itemsize:
        return None
    records = buffer.view(dtype)
    return (kind, records) if bool((records["kind"] == kind).all()) else None
