"""Memory layouts of CUPTI activity records, by record kind and CUPTI version, as NumPy dtypes.

Offsets are those of NVIDIA's public header ``cupti_activity.h``. Records of one kind keep their
leading fields between versions and grow at the end, so a layout is a set of offsets and a size.
A layout is not trusted until ``cupti.check_layouts`` has compared it with a live record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL, SYNC, EXTERNAL = 1, 2, 4, 5, 10, 38, 39
"""CUPTI_ACTIVITY_KIND_* of the records that are read; KERNEL is CONCURRENT_KERNEL."""

_KERNEL_FIELDS = {
    "registers": ("u2", 6),
    "start": ("u8", 16),
    "end": ("u8", 24),
    "device": ("u4", 40),
    "context": ("u4", 44),
    "stream": ("u4", 48),
    "grid": ("3i4", 52),
    "block": ("3i4", 64),
    "shared_static": ("i4", 76),
    "shared_dynamic": ("i4", 80),
    "correlation": ("u4", 92),
    "name": ("u8", 104),
    "graph_node": ("u8", 144),
    "graph": ("u4", 156),
}
_COPY_FIELDS = {
    "bytes": ("u8", 8),
    "start": ("u8", 16),
    "end": ("u8", 24),
    "device": ("u4", 32),
    "context": ("u4", 36),
    "stream": ("u4", 40),
    "correlation": ("u4", 44),
    "graph_node": ("u8", 64),
    "graph": ("u4", 72),
}
_MEMCPY_FIELDS = {"copy_kind": ("u1", 4), **_COPY_FIELDS}
_API_FIELDS = {
    "callback": ("u4", 4),
    "start": ("u8", 8),
    "end": ("u8", 16),
    "process": ("u4", 24),
    "thread": ("u4", 28),
    "correlation": ("u4", 32),
    "returned": ("u4", 36),
}
_SYNC_FIELDS = {"type": ("u4", 4), "start": ("u8", 8), "end": ("u8", 16)}
_EXTERNAL_FIELDS = {"external_kind": ("u4", 4), "external_id": ("u8", 8), "correlation": ("u4", 16)}


@dataclass(frozen=True)
class Layouts:
    """Record layouts for one range of CUPTI versions.

    Attributes:
        version: Result of ``cuptiGetVersion``.
        dtypes: Structured dtype by record kind; its itemsize is the size of the record.
    """

    version: int
    dtypes: dict[int, np.dtype[np.void]]

    def sizes(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Record size in bytes by kind, 0 where the kind isn't read; shape (max kind + 1,)."""
        table = np.zeros(max(self.dtypes) + 1, np.int64)
        for kind, dtype in self.dtypes.items():
            table[kind] = dtype.itemsize
        return table


def layouts_for(version: int) -> Layouts | None:
    """The layouts of a CUPTI version (``cuptiGetVersion``); None if it is older than CUDA 12.0.

    CUDA 12.0 to 12.6 report 18 to 25, 12.8 and 12.9 report 26 and up, 13.0 reports 130001. A newer
    version gets the newest known layouts: the check on a live record decides.
    """
    if version < 18:
        return None
    kernel_size = 216 if version >= 130000 else 208
    memcpy_size = 96 if version >= 26 else 88
    # Between these versions the record grew by an amount that isn't known here.
    sync = {SYNC: _dtype(_SYNC_FIELDS, 56 if version >= 130000 else 40)} if version >= 130000 or version < 26 else {}
    return Layouts(
        version,
        {
            **sync,
            KERNEL: _dtype(_KERNEL_FIELDS, kernel_size),
            MEMCPY: _dtype(_MEMCPY_FIELDS, memcpy_size),
            MEMSET: _dtype(_COPY_FIELDS, 88),
            DRIVER: _dtype(_API_FIELDS, 40),
            RUNTIME: _dtype(_API_FIELDS, 40),
            EXTERNAL: _dtype(_EXTERNAL_FIELDS, 24),
        },
    )


def _dtype(fields: dict[str, tuple[str, int]], size: int) -> np.dtype[np.void]:
    named = {"kind": ("u4", 0), **fields}
    return np.dtype(
        {
            "names": list(named),
            "formats": [kind for kind, _ in named.values()],
            "offsets": [offset for _, offset in named.values()],
            "itemsize": size,
        }
    )
