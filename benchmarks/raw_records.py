"""Records a program under ``jouletrace run`` and keeps CUPTI's raw buffers beside the Run.

    python benchmarks/raw_records.py OUT/NAME PROGRAM [ARGUMENT ...]     # OUT/NAME.zip and OUT/NAME.npz

``unpack`` gives the buffers back byte by byte, so that a decoder or a tracer can be tried on what CUPTI wrote.
"""

from __future__ import annotations

import ctypes
import lzma
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def pack(path: Path, buffers: list[Bytes], layouts: dict[int, np.dtype], names: dict[int, bytes], version: int) -> None:
    """Write buffers, each record's bytes less those of the one before of its kind, byte by byte of a record.

    Args:
        path: A ``.npz`` file.
        buffers: The valid part of each, uint8.
        layouts: The dtype of each kind of record.
        names: Symbols of kernels by the pointer in their records.
        version: What ``cuptiGetVersion`` returns.
    """
    kinds, records = [], {}
    for buffer in buffers:
        at = 0
        while at < len(buffer):
            kind = int(buffer[at : at + 4].view(np.uint32)[0])
            size = layouts[kind].itemsize
            kinds.append(kind)
            records.setdefault(kind, []).append(buffer[at : at + size])
            at += size
    packed = {f"kind_{kind}": _squeeze(np.stack(rows)) for kind, rows in records.items()}
    np.savez(
        path,
        lengths=np.array([len(buffer) for buffer in buffers]),
        kinds=_compressed(np.array(kinds, np.uint8)),
        sizes=np.array([[kind, layouts[kind].itemsize] for kind in records]),
        pointers=np.array(list(names), np.uint64),
        names=_compressed(np.frombuffer(b"\n".join(names.values()), np.uint8)),
        version=version,
        **packed,
    )


def unpack(path: Path) -> tuple[list[Bytes], dict[int, bytes], int]:
    """The buffers as CUPTI filled them, the symbols by pointer, and CUPTI's version."""
    with np.load(path) as file:
        kinds = np.frombuffer(lzma.decompress(file["kinds"].tobytes()), np.uint8)
        sizes = dict(file["sizes"].tolist())
        starts = np.concatenate([[0], np.cumsum([sizes[kind] for kind in kinds.tolist()])])
        whole = np.empty(starts[-1], np.uint8)
        for kind, size in sizes.items():
            flat = np.frombuffer(lzma.decompress(file[f"kind_{kind}"].tobytes()), np.uint8)
            rows = np.cumsum(flat.reshape(size, -1).T, axis=0, dtype=np.uint8)
            at = starts[:-1][kinds == kind]
            whole[at[:, None] + np.arange(size)] = rows
        symbols = lzma.decompress(file["names"].tobytes()).split(b"\n")
        names = dict(zip(file["pointers"].tolist(), symbols, strict=True))
        return np.split(whole, np.cumsum(file["lengths"])[:-1]), names, int(file["version"])


def _squeeze(rows: Bytes) -> Bytes:
    """Differences from record to record, all first bytes first; shape (n, size) before."""
    return _compressed(np.ascontiguousarray(np.diff(rows, axis=0, prepend=np.uint8(0)).T))


def _compressed(values: Bytes) -> Bytes:
    return np.frombuffer(lzma.compress(values.tobytes(), preset=6), np.uint8)


def main() -> None:
    """Run the program, then write what was kept."""
    from jouletrace.cli.main import run
    from jouletrace.tracing.cupti import CuptiTracer
    from jouletrace.tracing.decode import KERNEL, decode

    place, command = Path(sys.argv[1]), sys.argv[2:]
    kept: list[Bytes] = []
    names: dict[int, bytes] = {}
    seen: list[CuptiTracer] = []
    take = CuptiTracer.take

    def keeping(self: CuptiTracer) -> list[Bytes]:
        buffers = take(self)
        seen[:] = [self]
        for buffer in buffers:
            kept.append(buffer.copy())
            for chunk in decode([buffer], self.cupti.layouts).get(KERNEL, []):
                for pointer in np.unique(chunk["name"]).tolist():
                    if pointer and pointer not in names:
                        names[pointer] = ctypes.string_at(pointer)
        return buffers

    CuptiTracer.take = keeping
    code = run(["run", "-o", f"{place}.zip", *command])
    if seen:
        version = ctypes.c_uint32()
        seen[0].cupti.call("cuptiGetVersion", ctypes.byref(version))
        pack(place.with_suffix(".npz"), kept, seen[0].cupti.layouts, names, version.value)
    sys.exit(code)


if __name__ == "__main__":
    main()
