"""Columns of numbers as a short text that a browser unpacks fast: bytes of equal weight together, gzip, Base64."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import numpy as np

_MILD = 6


class Packer:
    """Collects columns of one Run; each is referred to by its place.

    A column of whole numbers not below zero is stored as planes: all lowest bytes, then all next
    ones, as many as the largest number needs. High planes are nearly constant and compress to almost nothing.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 0

    def whole(self, values: Any) -> dict[str, int]:
        """Add whole numbers from 0 to 2⁵³; returns where they are: "at", "n", "bytes"."""
        column = np.ascontiguousarray(values, dtype="<u8")
        most = int(column.max()) if len(column) else 0
        width = max(1, -(-most.bit_length() // 8))
        planes = column.view(np.uint8).reshape(-1, 8)[:, :width].T
        return self._add(np.ascontiguousarray(planes).tobytes(), len(column), width)

    def rising(self, values: Any) -> dict[str, int]:
        """Add whole numbers in rising order, as differences."""
        column = np.asarray(values, dtype=np.int64)
        return {**self.whole(np.diff(column, prepend=0)), "sum": 1}

    def real(self, values: Any) -> dict[str, int]:
        """Add real numbers in single precision."""
        column = np.ascontiguousarray(values, dtype="<f4")
        planes = column.view(np.uint8).reshape(-1, 4).T
        return {**self._add(np.ascontiguousarray(planes).tobytes(), len(column), 4), "real": 1}

    def text(self) -> str:
        """All columns."""
        return squeezed(b"".join(self._parts))

    def _add(self, data: bytes, n: int, width: int) -> dict[str, int]:
        place = {"at": self._at, "n": n, "bytes": width}
        self._parts.append(data)
        self._at += len(data)
        return place


def squeezed(data: bytes) -> str:
    """Bytes as Base64 of their gzip; the same for the same bytes."""
    return base64.b64encode(gzip.compress(data, _MILD, mtime=0)).decode("ascii")
