"""How fast importers are and what they hold in memory, beside the nearest thing to compare them with.

    python benchmarks/import_speed.py [TRACE ...] [--hta PYTHON] [--kernels N]

Kineto traces are generated unless named; ``--hta`` is a Python that has Holistic Trace Analysis
(``pip install traceinsight``), which then reads the same files. The nsys export is generated and
compared with a bare scan by sqlite3. Every reading runs in a process of its own. Times are of the
processor (all of these use one core), of the call alone, imports not counted, the least of several;
memory is the peak of the process less what it had before the call.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

REPEATS = 3

MEASURE = """
import json, resource, sys, time
{prepare}
path = sys.argv[1]
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
began = time.process_time()
{call}
print(json.dumps(dict(seconds=time.process_time() - began, bytes=peak() - before, rows=rows)))
"""

OURS = MEASURE.format(
    prepare="from jouletrace.formats.importers import FORMATS, importer, read_file\n"
    "for name in FORMATS:\n    importer(name)  # all are asked whether it is theirs\n"
    "from jouletrace.run import Run\nRun()  # the first Arrow table imports pandas, where there is one",
    call="rows = len(read_file(path).spans)",
)
HTA = MEASURE.format(
    prepare="import logging\nlogging.disable(100)\nfrom hta.common.trace import parse_trace_file\n"
    "import contextlib, io",
    call="with contextlib.redirect_stdout(io.StringIO()):\n    rows = len(parse_trace_file(path)[1])",
)
SCAN = MEASURE.format(
    prepare="import sqlite3",
    call="base = sqlite3.connect(path)\n"
    "tables = ('CUPTI_ACTIVITY_KIND_KERNEL', 'CUPTI_ACTIVITY_KIND_RUNTIME', 'NVTX_EVENTS')\n"
    "rows = sum(1 for table in tables for _ in base.execute(f'SELECT * FROM {table}'))",
)


def measured(python: str, code: str, path: Path) -> dict[str, float]:
    """The least time and memory of several runs."""
    found = []
    for _ in range(REPEATS):
        done = subprocess.run([python, "-c", code, str(path)], check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout.strip().splitlines()[-1]))
    return {key: min(one[key] for one in found) for key in found[0]}


_OPERATOR = """  {{
    "ph": "X", "cat": "cpu_op", "name": "aten::op_{j}", "pid": 9, "tid": 9,
    "ts": {t:.3f}, "dur": 90.125,
    "args": {{
      "External id": {i},"Record function id": 0, "Concrete Inputs": ["", "", ""], "Input type": ["float", "float", \
"float"], "Input Dims": [[64, 128, 768], [768, 768], [768]], "Ev Idx": {i}
    }}
  }}"""
_LAUNCH = """  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9,
    "ts": {call:.3f}, "dur": 8.500,
    "args": {{
      "External id": {i},
      "cbid": 211, "correlation": {c}
    }}
  }}"""
_KERNEL = """  {{
    "ph": "X", "cat": "kernel", "name": "void at::native::kernel_{j}<4, float>(int, float)", "pid": 0, "tid": 7,
    "ts": {work:.3f}, "dur": 40.250,
    "args": {{
      "External id": {i},
      "queued": 0, "device": 0, "context": 1,
      "stream": 7, "correlation": {c},
      "registers per thread": 32,
      "shared memory": 0,
      "blocks per SM": 5.818182,
      "warps per SM": 23.272728,
      "grid": [768, 1, 1],
      "block": [128, 1, 1],
      "est. achieved occupancy %": 37
    }}
  }}"""
_ARROWS = """  {{
    "ph": "s", "id": {c}, "pid": 9, "tid": 9, "ts": {call:.3f},
    "cat": "ac2g", "name": "ac2g"
  }},
  {{
    "ph": "f", "id": {c}, "pid": 0, "tid": 7, "ts": {work:.3f},
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }}"""


def make_trace(path: Path, operators: int) -> None:
    """A trace in the profiler's own layout: operators, each with a launch, a kernel and two arrows."""
    one = ",\n".join((_OPERATOR, _LAUNCH, _KERNEL, _ARROWS))
    events = []
    for i in range(operators):
        t = 1e6 + 100.0 * i
        events.append(one.format(i=i, c=i + 7, j=i % 4, t=t, call=t + 10, work=t + 50))
    head = '{\n  "schemaVersion": 1,\n  "deviceProperties": [],\n  "traceEvents": [\n'
    tail = '\n  ],\n  "traceName": "made.json",\n  "baseTimeNanoseconds": 1700000000000000000\n}'
    path.write_text(head + ",\n".join(events) + tail)


_COLUMNS = """start end deviceId contextId greenContextId streamId correlationId globalPid demangledName shortName
mangledName launchType cacheConfig registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory
dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted graphNodeId
sharedMemoryLimitConfig"""


def make_export(path: Path, kernels: int) -> None:
    """An nsys export: a runtime call for each kernel, a range around each ten, in the columns of nsys 2024."""
    base = sqlite3.connect(path)
    names = _COLUMNS.split()
    base.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({', '.join(f'{name} INTEGER' for name in names)})")
    base.execute(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, "
        "globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER)"
    )
    base.execute(
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, "
        "textId INTEGER)"
    )
    base.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    base.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)")
    base.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000)")
    base.executemany("INSERT INTO StringIds VALUES (?, ?)", ((i, f"void kernel_{i}<float>(int)") for i in range(300)))
    pid, tid = 1000 << 24, (1000 << 24) + 7

    def kernel(i: int) -> tuple[int | None, ...]:
        t = 2000 * i
        ids = (i % 200, i % 200, i % 200)
        shape = (768 + i % 50, 1, 1, 128, 1, 1, 0, 1024 * (i % 8))
        return (t + 900, t + 2500, 0, 1, None, 7, i + 1, pid, *ids, 1, 1, 32, *shape, 0, 0, i, 32768, None, 0)

    marks = ", ".join("?" * len(names))
    base.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({marks})", map(kernel, range(kernels)))
    calls = ((2000 * i, 2000 * i + 600, 0, tid, i + 1, 250, 0, None) for i in range(kernels))
    base.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?, ?, ?)", calls)
    ranges = ((20000 * i, 20000 * i + 19999, 59, f"layer {i % 48}", tid, None) for i in range(kernels // 10))
    base.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", ranges)
    base.commit()
    base.close()


def raw_bytes(path: Path) -> int:
    """Bytes of a file, unpacked."""
    data = path.read_bytes()
    return len(gzip.decompress(data)) if data[:2] == b"\x1f\x8b" else len(data)


def main() -> None:
    """Print a table for traces and one for the export."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--hta", help="a Python that has Holistic Trace Analysis")
    parser.add_argument("--kernels", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        traces = arguments.traces
        if not traces:
            traces = [Path(folder) / "made.json"]
            make_trace(traces[0], 40_000)
        print(
            "| trace | raw MB | spans | s | MB/s | peak / raw |"
            + (" HTA s | HTA rows | HTA / ours |" if arguments.hta else "")
        )
        print("|---|---|---|---|---|---|" + ("---|---|---|" if arguments.hta else ""))
        for trace in traces:
            raw = raw_bytes(trace)
            ours = measured(sys.executable, OURS, trace)
            line = f"| {trace.name} | {raw / 1e6:.1f} | {ours['rows']:.0f} | {ours['seconds']:.3f} "
            line += f"| {raw / 1e6 / ours['seconds']:.0f} | {ours['bytes'] / raw:.1f} |"
            if arguments.hta:
                theirs = measured(arguments.hta, HTA, trace)
                line += f" {theirs['seconds']:.3f} | {theirs['rows']:.0f} | {theirs['seconds'] / ours['seconds']:.1f} |"
            print(line, flush=True)
        if arguments.kernels:
            export = Path(folder) / "made.sqlite"
            make_export(export, arguments.kernels)
            scan = measured(sys.executable, SCAN, export)
            ours = measured(sys.executable, OURS, export)
            print("\n| export | MB | spans | s | scan s | ours / scan | peak MB |\n|---|---|---|---|---|---|---|")
            line = f"| {arguments.kernels} kernels | {export.stat().st_size / 1e6:.0f} | {ours['rows']:.0f} "
            line += f"| {ours['seconds']:.2f} | {scan['seconds']:.2f} | {ours['seconds'] / scan['seconds']:.2f} "
            print(line + f"| {ours['bytes'] / 1e6:.0f} |")


if __name__ == "__main__":
    main()
