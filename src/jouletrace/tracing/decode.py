"""Raw buffers of CUPTI as NumPy arrays of records by kind: pure, and fast enough for millions of records.

Offsets are those of NVIDIA's public header ``cupti_activity.h``. Records of one kind keep their leading fields between
versions and grow at the end, so a layout is a set of offsets and a size. A layout is not trusted until
``cupti.check_layouts`` has compared it with a live record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Chunks = dict[int, list[NDArray[np.void]]]
"""Records by kind, in pieces; views into CUPTI's buffers where possible."""

MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL = 1, 2, 4, 5, 10
"""CUPTI_ACTIVITY_KIND_* of the records that are read; KERNEL is CONCURRENT_KERNEL."""

_KERNEL_FIELDS = {
    "registers": ("u2", 6),
    "start": ("u8", 16),
    "end": ("u8", 24),
    "device": ("u4", 40),
    "stream": ("u4", 48),
    "grid": ("3i4", 52),
    "block": ("3i4", 64),
    "shared_static": ("i4", 76),
    "shared_dynamic": ("i4", 80),
    "correlation": ("u4", 92),
    "name": ("u8", 104),
    "graph_node": ("u8", 144),
}
_SET_FIELDS = {
    "bytes": ("u8", 8),
    "start": ("u8", 16),
    "end": ("u8", 24),
    "device": ("u4", 32),
    "stream": ("u4", 40),
    "correlation": ("u4", 44),
    "graph_node": ("u8", 64),
}
_COPY_FIELDS = {"copy_kind": ("u1", 4), **_SET_FIELDS}
_API_FIELDS = {"start": ("u8", 8), "end": ("u8", 16), "correlation": ("u4", 32)}


Layouts = dict[int, np.dtype[np.void]]
"""Record layouts for one range of CUPTI versions: structured dtype by record kind, of the size of the record."""


def layouts_for(version: int) -> Layouts | None:
    """The layouts of a CUPTI version (``cuptiGetVersion``); None if it is older than CUDA 12.0.

    CUDA 12.0 to 12.6 report 18 to 25, 12.8 and 12.9 report 26 and up, 13.0 reports 130001. A newer
    version gets the newest known layouts: the check on a live record decides.
    """
    if version < 18:
        return None
    return {
        KERNEL: _dtype(_KERNEL_FIELDS, 216 if version >= 130000 else 208),
        MEMCPY: _dtype(_COPY_FIELDS, 96 if version >= 26 else 88),
        MEMSET: _dtype(_SET_FIELDS, 88),
        DRIVER: _dtype(_API_FIELDS, 40),
        RUNTIME: _dtype(_API_FIELDS, 40),
    }


def _dtype(fields: dict[str, tuple[str, int]], size: int) -> np.dtype[np.void]:
    formats = ["u4", *(kind for kind, _ in fields.values())]
    offsets = [0, *(offset for _, offset in fields.values())]
    return np.dtype({"names": ["kind", *fields], "formats": formats, "offsets": offsets, "itemsize": size})


class UnknownRecordError(ValueError):
    """A buffer holds a record of unknown size, so that the following records can't be located."""


def decode(buffers: Sequence[NDArray[np.uint8]], layouts: Layouts) -> Chunks:
    """Split the valid part of buffers, uint8, into structured arrays by kind, each in the order of writing.

    Buffers of one kind are not copied: read their columns with ``column``.

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
    first = int(buffer[:4].view(np.uint32)[0])
    dtype = layouts.get(first)
    if dtype is not None and len(buffer) % dtype.itemsize == 0:
        records = buffer.view(dtype)
        if (records["kind"] == first).all():  # one kind only: no copy
            return [(first, records)]
    # Every record's size is a multiple of 8. For each 8-byte offset, the kind there gives the offset of the next
    # record, if a record started there; the chain from offset 0 is the real one.
    words = buffer[: len(buffer) // 8 * 8].view(np.uint32)[::2].astype(np.int64)
    sizes = np.zeros(max(layouts) + 1, np.int64)  # in words; 0 where the kind isn't read
    for kind, known in layouts.items():
        sizes[kind] = known.itemsize // 8
    steps = np.where(words < len(sizes), sizes[np.minimum(words, len(sizes) - 1)], 0)
    following = (np.arange(len(words)) + steps).tolist()
    places: list[int] = []
    at, end = 0, len(words)
    while at < end:
        places.append(at)
        after = following[at]
        if after == at:
            raise UnknownRecordError(f"buffer {number}, byte {8 * at}: record of unknown kind {words[at]}")
        at = after
    if at > end:
        raise UnknownRecordError(f"buffer {number}, byte {8 * places[-1]}: the last record is cut off")
    place = np.array(places)
    kinds = words[place]
    found = []
    for kind in np.unique(kinds).tolist():
        rows = np.lib.stride_tricks.sliding_window_view(buffer, layouts[kind].itemsize)[8 * place[kinds == kind]]
        found.append((kind, np.ascontiguousarray(rows).view(layouts[kind])[:, 0]))
    return found
