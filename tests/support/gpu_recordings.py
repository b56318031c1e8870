"""Recordings of real GPUs that ship with the tests: power record and kernel timeline of a few seconds."""

import json
import lzma
from dataclasses import dataclass
from functools import cache

import numpy as np

from jouletrace.attribution.activity import Activity, Kind, activity_of
from jouletrace.run.readings import Readings
from jouletrace.sensor.readout import on_grid
from places import DATA

FOLDER = DATA / "attribution"


@dataclass(frozen=True)
class Recorded:
    """A recording as an estimator gets it."""

    readings: Readings
    activity: Activity
    start_ns: np.ndarray
    end_ns: np.ndarray
    kind: np.ndarray
    kinds: tuple[Kind, ...]


def save(name, rows, start_ns, end_ns, kind, kinds):
    """Write one: rows (stamp us, mW), kernels, and (name, operator) of each kind."""
    previous = np.r_[start_ns[:1], end_ns[:-1]]
    columns = {
        "stamp": np.diff(rows[:, 0], prepend=rows[0, 0]).astype(np.int32),
        "milliwatts": rows[:, 1].astype(np.int32),
        "gap": (start_ns - previous).astype(np.int32),
        "length": (end_ns - start_ns).astype(np.int32),
        "kind": kind.astype(np.int16),
    }
    meta = {"first_stamp": int(rows[0, 0]), "first_ns": int(start_ns[0]), "kinds": kinds}
    packed = {key: np.frombuffer(lzma.compress(value.tobytes(), preset=9), np.uint8) for key, value in columns.items()}
    np.savez(FOLDER / f"{name}.npz", meta=np.frombuffer(lzma.compress(json.dumps(meta).encode()), np.uint8), **packed)


@cache
def load(name) -> Recorded:
    """Read one by its name."""
    with np.load(FOLDER / f"{name}.npz") as file:
        raw = {key: lzma.decompress(file[key].tobytes()) for key in file.files}
    meta = json.loads(raw.pop("meta"))
    column = {key: np.frombuffer(data, np.int16 if key == "kind" else np.int32) for key, data in raw.items()}
    end = meta["first_ns"] + np.cumsum(column["gap"].astype(np.int64) + column["length"])
    start = end - column["length"]
    stamps = meta["first_stamp"] + np.cumsum(column["stamp"].astype(np.int64))
    readings = on_grid(stamps * 1000, column["milliwatts"] / 1e3)
    kinds = tuple(Kind(*names) for names in meta["kinds"])
    kind = column["kind"].astype(np.int64)
    return Recorded(readings, activity_of(start, end, kind, kinds, readings.origin_ns), start, end, kind, kinds)
