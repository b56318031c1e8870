"""Records in the buffers that CUPTI filled under CUDA 13.0, read without the tracer."""

import lzma

import numpy as np

from traced import RECORD_BYTES

KERNEL, MEMCPY, MEMSET, DRIVER, RUNTIME = 10, 1, 2, 4, 5
SIZES = {**RECORD_BYTES[130001], DRIVER: 40, RUNTIME: 40}


def records_of(buffers):
    """All records by kind, shape (n, bytes of one)."""
    found = {}
    for buffer in buffers:
        at = 0
        while at < len(buffer):
            kind = int(buffer[at])
            found.setdefault(kind, []).append(buffer[at : at + SIZES[kind]])
            at += SIZES[kind]
    return {kind: np.stack(records) for kind, records in found.items()}


def field(records, offset, kind):
    """One field of all records, shape (n,)."""
    return np.ascontiguousarray(records[:, offset : offset + np.dtype(kind).itemsize]).view(kind)[:, 0]


def _rows(file, kind, size):
    """The records of a kind, shape (n, size), in their order."""
    flat = np.frombuffer(lzma.decompress(file[f"kind_{kind}"].tobytes()), np.uint8)
    return np.cumsum(flat.reshape(size, -1).T, axis=0, dtype=np.uint8)


def _names(file):
    """The symbols by pointer."""
    symbols = lzma.decompress(file["names"].tobytes()).split(b"\n")
    return dict(zip(file["pointers"].tolist(), symbols, strict=True))


def records_by_kind(path):
    """The buffers by ``records_of``, and the symbols by pointer."""
    with np.load(path) as file:
        found = {kind: _rows(file, kind, size) for kind, size in file["sizes"].tolist()}
        return {kind: rows for kind, rows in found.items() if len(rows)}, _names(file)


def unpack(path):
    """The buffers as CUPTI filled them, the symbols by pointer, and CUPTI's version."""
    with np.load(path) as file:
        kinds = np.frombuffer(lzma.decompress(file["kinds"].tobytes()), np.uint8)
        sizes = dict(file["sizes"].tolist())
        starts = np.concatenate([[0], np.cumsum([sizes[kind] for kind in kinds.tolist()])])
        whole = np.empty(starts[-1], np.uint8)
        for kind, size in sizes.items():
            at = starts[:-1][kinds == kind]
            whole[at[:, None] + np.arange(size)] = _rows(file, kind, size)
        return np.split(whole, np.cumsum(file["lengths"])[:-1]), _names(file), int(file["version"])
