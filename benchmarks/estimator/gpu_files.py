"""Files of ``gpu.py``: a section's readings, spans and timelines of kernels, a byte or two each.

Times of kernels are kept in units of 32 ns from an origin: no reading resolves less, and no error adds up.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

UNIT_NS = 32


@dataclass
class Kernels:
    """Kernels, copies and sets of one tracing, by their starts."""

    start_ns: Ints  # shape (n,)
    end_ns: Ints  # shape (n,)
    name: Ints  # index into names, shape (n,)
    stream: Ints  # shape (n,)
    shape: Ints  # index into shapes, shape (n,)
    names: list[str]
    shapes: list[list[int]]  # grid and block of each launch, zeros where it isn't a kernel's


@dataclass
class Recorded:
    """One section."""

    about: dict = field(default_factory=dict)  # GPU, driver, power limit, and what went wrong
    # What ran from when to when: name, start_ns, end_ns, iterations, and what the section says of it
    spans: list[dict] = field(default_factory=list)
    kernels: dict[str, Kernels] = field(default_factory=dict)  # by the tracing's name
    # Arrays by name: power, steps and conditions of ``gpu_power``; iterations of the host, shape (n, 2), in ns
    arrays: dict[str, Ints] = field(default_factory=dict)


def write(found: Recorded, path: Path) -> None:
    """Write a section's file."""
    arrays, tracings = dict(found.arrays), {}
    for number, (name, one) in enumerate(found.kernels.items()):
        origin = int(one.start_ns[0]) if len(one.start_ns) else 0
        start, end = (one.start_ns - origin) // UNIT_NS, (one.end_ns - origin) // UNIT_NS
        columns = {"gap": np.diff(start, prepend=0), "length": end - start}
        columns |= {"name": one.name, "stream": one.stream, "shape": one.shape}
        arrays |= {f"kernels.{number}.{column}": _planes(values) for column, values in columns.items()}
        tracings[name] = {"origin_ns": origin, "names": one.names, "shapes": one.shapes}
    text = json.dumps({"about": found.about, "spans": found.spans, "tracings": tracings})
    np.savez_compressed(path, text=np.frombuffer(text.encode(), np.uint8), **arrays)


def read(path: Path) -> Recorded:
    """Read it again."""
    with np.load(path) as file:
        text = json.loads(file["text"].tobytes())
        arrays = {name: file[name] for name in file.files if name != "text"}
    kernels = {}
    for number, (name, one) in enumerate(text["tracings"].items()):
        columns = {
            column: _whole(arrays.pop(f"kernels.{number}.{column}"))
            for column in ("gap", "length", "name", "stream", "shape")
        }
        start = np.cumsum(columns.pop("gap"))
        end = start + columns.pop("length")
        start, end = (one["origin_ns"] + UNIT_NS * at for at in (start, end))
        kernels[name] = Kernels(start, end, **columns, names=one["names"], shapes=one["shapes"])
    return Recorded(text["about"], text["spans"], kernels, arrays)


def _planes(values: Ints) -> NDArray[np.uint8]:
    """Their bytes, the lowest of all first, shape (8, n): they compress better so."""
    return np.ascontiguousarray(np.asarray(values, "<i8").view(np.uint8).reshape(-1, 8).T)


def _whole(planes: NDArray[np.uint8]) -> Ints:
    return np.ascontiguousarray(planes.T).view("<i8").ravel().astype(np.int64)
