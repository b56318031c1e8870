"""Recordings of real GPUs as other tools would have written them: a Kineto trace, an nsys export, a table of power."""

import json
import lzma
import sqlite3

import msgspec
import numpy as np

from gpu_recordings import FOLDER, load


def power_rows(name):
    """The power record: stamps in us since the Unix epoch, and mW; shape (n, 2)."""
    with np.load(FOLDER / f"{name}.npz") as file:
        raw = {key: lzma.decompress(file[key].tobytes()) for key in ("meta", "stamp", "milliwatts")}
    stamps = np.cumsum(np.frombuffer(raw["stamp"], np.int32).astype(np.int64)) + json.loads(raw["meta"])["first_stamp"]
    return np.column_stack([stamps, np.frombuffer(raw["milliwatts"], np.int32)])


def write_power(path, rows, header="stamp_us,power_mw", line=lambda us, mw: f"{us},{mw}"):
    """A table of readings."""
    path.write_text("\n".join([header, *(line(int(us), int(mw)) for us, mw in rows), ""]))
    return path


def events_of(name, operators=False, kernels=slice(None), stream=7):
    """Events of a Kineto trace, in ns, and the time that they count from; operators are launched all before."""
    recorded = load(name)
    start, end, kind = (column[kernels].tolist() for column in (recorded.start_ns, recorded.end_ns, recorded.kind))
    base = start[0] // 10**9 * 10**9 - 100 * 10**9
    events = []
    for number, (since, until, code) in enumerate(zip(start, end, kind, strict=True), 1):
        of = recorded.kinds[code]
        ids = {"External id": number, "correlation": number}
        if operators:
            host = 4000 * number
            if of.operator:
                events.append(event("cpu_op", of.operator, host, 3500, 7, 7, {"External id": number}))
            events.append(event("cuda_runtime", "cudaLaunchKernel", host + 500, 2000, 7, 7, ids))
        events.append(
            event("kernel", of.name, since - base, until - since, 0, stream, {"device": 0, "stream": stream, **ids})
        )
    return events, base


def event(category, name, start_ns, length_ns, pid, tid, args):
    """One event, its times in ns."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start_ns,
        "dur": length_ns,
        "args": args,
    }


def write_kineto(path, events, base):
    """A trace in the layout of PyTorch's profiler."""
    rows = [{**one, "ts": one["ts"] / 1000, "dur": one["dur"] / 1000} for one in events]  # exact to the nanosecond
    head = '"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]'
    body = msgspec.json.format(msgspec.json.encode(rows), indent=1).decode()
    path.write_text(f'{{{head}, "baseTimeNanoseconds": {base}, "traceEvents": {body}}}\n')
    return path


def write_nsys(path, name):
    """An export of nsys with kernels alone."""
    recorded = load(name)
    base = int(recorded.start_ns[0]) - 10**9
    database = sqlite3.connect(path)
    database.executescript(
        """
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);
        """
    )
    database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", (base,))
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, k.name) for i, k in enumerate(recorded.kinds)])
    columns = zip(
        (recorded.start_ns - base).tolist(), (recorded.end_ns - base).tolist(), recorded.kind.tolist(), strict=True
    )
    rows = [(start, end, i, kind) for i, (start, end, kind) in enumerate(columns, 1)]
    database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, ?, 16777216, ?)", rows)
    database.commit()
    database.close()
    return path
