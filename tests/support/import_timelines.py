"""Small files of other tools, made here: Kineto traces, nsys exports and statistics, ncu pages."""

import gzip
import json
import sqlite3

BASE_NS = 1_700_000_000_000_000_000
GEMM = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_s161616gemm_f16_16x16_128x1_tn_align8>(cutlass::Params)"
RELU = "void at::native::vectorized_elementwise_kernel<4, at::native::relu(float)#1>(int, float)"


def event(cat, name, ts, dur, pid=7, tid=7, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def call(name, ts, dur, external, **more):
    """A runtime call; its correlation is its external id + 50."""
    return event("cuda_runtime", name, ts, dur, **{"External id": external, "correlation": 50 + external}, **more)


def kernel_args(correlation, external, grid=(8, 1, 1), block=(128, 1, 1), device=0, stream=7, registers=32):
    return {
        "External id": external,
        "queued": 0,
        "device": device,
        "context": 1,
        "stream": stream,
        "correlation": correlation,
        "registers per thread": registers,
        "shared memory": 0,
        "blocks per SM": 0.07,
        "warps per SM": 0.3,
        "grid": list(grid),
        "block": list(block),
        "est. achieved occupancy %": 0,
    }


def kineto_events(steps=2):
    """Each step: an annotation, two operators, each with a launch and a kernel, and a copy."""
    events = [{"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 0, "args": {"name": "python"}}]
    for k in range(steps):
        t = 1000.0 * k
        a, b, c = (10 * k + j for j in (1, 2, 3))
        flow = {"id": 50 + a, "cat": "ac2g", "name": "ac2g", "tid": 7}
        copied = {"External id": c, "device": 0, "context": 1, "stream": 7, "correlation": 50 + c, "bytes": 4096}
        events += [
            event("user_annotation", f"ProfilerStep#{k}", t, 900.5, **{"External id": 100 + k}),
            event("cpu_op", "aten::mm", t + 10, 100.125, **{"External id": a}),
            call("cudaLaunchKernel", t + 20.25, 10, a),
            event("kernel", GEMM, t + 200.001, 150.002, 0, 7, **kernel_args(50 + a, a)),
            {"ph": "s", **flow, "pid": 7, "ts": t + 20.25},
            {"ph": "f", **flow, "pid": 0, "ts": t + 200.001, "bp": "e"},
            event("cpu_op", "aten::relu", t + 150, 50, **{"External id": b}),
            call("cudaLaunchKernel", t + 160, 5.5, b),
            event("kernel", RELU, t + 360.5, 20.25, 0, 7, **kernel_args(50 + b, b, (16, 2, 1))),
            event("cpu_op", "aten::copy_", t + 300, 80, **{"External id": c}),
            call("cudaMemcpyAsync", t + 310, 8, c),
            event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", t + 400, 12.5, 0, 7, **copied),
            event("gpu_user_annotation", f"ProfilerStep#{k}", t + 200.001, 212.499, 0, 7, **{"External id": 100 + k}),
        ]
    events.append({"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 1000.0 * steps})
    return events


def number(value):
    """A time as the profiler writes it: three decimals."""
    return f"{value:.3f}" if isinstance(value, float) else json.dumps(value)


def native(events, base=BASE_NS, device="NVIDIA H100 80GB HBM3"):
    """A trace in the profiler's own layout."""
    properties = json.dumps([{"id": 0, "name": device}])
    lines = [f'{{\n  "schemaVersion": 1,\n  "deviceProperties": {properties},']
    lines.append('  "cuda_driver_version": 12090,\n  "traceEvents": [')
    shown = []
    for one in events:
        times = "".join(f',\n    "{k}": {number(one[k])}' for k in ("ts", "dur") if k in one)
        head = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in one.items() if k not in ("ts", "dur", "args"))
        args = ""
        if "args" in one:
            inner = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in one["args"].items())
            args = f',\n    "args": {{\n      {inner}\n    }}'
        if one["ph"] in "sf":
            order = ("ph", "id", "pid", "tid", "ts", "cat", "name", "bp")
            head = ", ".join(f'"{k}": {number(one[k])}' for k in order if k in one)
            times = ""
        shown.append(f"  {{\n    {head}{times}{args}\n  }}")
    lines.append(",\n".join(shown))
    end = f',\n  "baseTimeNanoseconds": {base}' if base is not None else ""
    lines.append(f'  ],\n  "traceName": "/tmp/trace.json",\n  "displayTimeUnit": "ms"{end}\n}}\n')
    return "\n".join(lines)


def write(path, text):
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def kineto(path, steps=2, **options):
    return write(path, native(kineto_events(steps), **options))


_KERNEL = (
    "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, "
    "globalPid INTEGER, demangledName INTEGER, shortName INTEGER, registersPerThread INTEGER, gridX INTEGER, "
    "gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER, "
    "dynamicSharedMemory INTEGER, graphNodeId INTEGER"
)
PID_A, PID_B = 1000 << 24, 2000 << 24


def nsys(path, launches=3, processes=1, skip=(), double=False, uuid="554a6988-03dd-6206-3dd1-f43fb60a3ed0"):
    """An export: each process launches ``launches`` times GEMM, then RELU, in NVTX ranges; one copy, one memset.

    Every process counts its correlations from 1. ``double`` writes two runtime rows a launch.
    """
    base = sqlite3.connect(path)
    base.executescript(
        f"""
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
        CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
        CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, busLocation TEXT, totalMemory INTEGER, uuid TEXT,
            cuDevice INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({_KERNEL});
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,
            correlationId INTEGER, nameId INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, bytes INTEGER);
        CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER,
            textId INTEGER);
        CREATE TABLE OSRT_API (start INTEGER, end INTEGER);
        INSERT INTO OSRT_API VALUES (1, 2);
        """
    )
    strings = [(1, GEMM), (2, RELU), (3, "Kernel2"), (4, "vec"), (5, "cudaLaunchKernel_v7000"), (6, "registered")]
    base.executemany("INSERT INTO StringIds VALUES (?, ?)", strings)
    base.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2025.1')")
    base.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", (BASE_NS,))
    for number in range(processes):
        name = f"{uuid[:-1]}{number}" if uuid else None
        gpu = (number, "NVIDIA H100 80GB HBM3", f"0000:0{number}:00.0", 80 << 30, name, number)
        base.execute("INSERT INTO TARGET_INFO_GPU VALUES (?, ?, ?, ?, ?, ?)", gpu)
    for number, pid in zip(range(processes), (PID_A, PID_B), strict=False):
        tid, correlation = pid + 5, 0
        for k in range(launches):
            t = 10_000 * k + number
            base.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, NULL)", (t, t + 9000, f"step {k}", tid))
            base.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, ?, 6)", (t + 100, t + 1000, tid))
            for name, at, grid in ((1, 200, 8), (2, 1200, 16)):
                correlation += 1
                call = (t + at, t + at + 50, tid, correlation, 5)
                base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", call)
                if double:
                    inner = (t + at + 10, t + at + 40, tid, correlation, 5)
                    base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", inner)
                row = (t + at + 100, t + at + 400 + k, number, 1, 7, correlation, pid, name, name + 2, 32)
                row += (grid, 1, 1, 128, 1, 1, 16, 0, None)
                base.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 19)})", row)
        correlation += 1
        copy = (200_000, 200_500, number, 7, correlation, pid, 4096, 2)
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, ?, ?)", copy)
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (?, ?, ?, ?, ?, ?, ?)", (*copy[:4], 0, pid, 64))
        marks = [
            (5, None, 34, "mark", tid, None),
            (6, None, 59, "never closed", tid, None),
            (7, 9, 75, "category", tid, None),
        ]
        base.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", marks)
    for table in skip:
        base.execute(f"DROP TABLE {table}")
    base.commit()
    base.close()
    return path


NCU_HEAD = [
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
]
NCU_HEAD += ["Device", "CC"]
PREAMBLE = "==PROF== Connected to process 42 (/usr/bin/python)\nhello, from the program\n"


def ncu_launch(k, name, grid, block=(128, 1, 1), process=42, device=0):
    axes = [f"({', '.join(map(str, one))})" for one in (block, grid)]
    return [str(k), str(process), "python", "127.0.0.1", name, "1", "7", *axes, str(device), "9.0"]


def row(cells):
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)


METRICS = [
    ("GPU Speed Of Light Throughput", "Memory Throughput", "%", "13.12"),
    ("GPU Speed Of Light Throughput", "DRAM Frequency", "cycle/nsecond", "2.50"),
    ("GPU Speed Of Light Throughput", "Duration", "usecond", "1,234.50"),
    ("Occupancy", "Achieved Occupancy", "%", "nan"),
    ("Memory Workload Analysis", "Memory Throughput", "Gbyte/second", "1.50"),
    ("Launch Statistics", "Function Cache Configuration", "", "CachePreferNone"),
    ("Launch Statistics", "Registers Per Thread", "register/thread", "32"),
]


def ncu_details(path, launches, rules=True, metrics=METRICS):
    """The details page: ``launches`` holds (name, grid) or what ``ncu_launch`` takes."""
    rule = ["Rule Name", "Rule Type", "Rule Description"] if rules else []
    lines = [row([*NCU_HEAD, "Section Name", "Metric Name", "Metric Unit", "Metric Value", *rule])]
    for k, one in enumerate(launches):
        head = ncu_launch(k, *one)
        for section, metric, unit, value in metrics:
            lines.append(row([*head, section, metric, unit, value]) + ("," if rules else ""))
        if rules:
            lines.append(row([*head, "Occupancy", "", "", "", "SOLBottleneck", "OPT", 'Do "more", and more']))
    lines.insert(5, "a line of the program")
    return write(path, PREAMBLE + "\n".join(lines) + "\n==PROF== Disconnected\n")


def ncu_raw(path, launches):
    names = {"dram__bytes.sum": "Mbyte", "sm__throughput.avg.pct_of_peak_sustained_elapsed": "%", "note": ""}
    lines = [row([*NCU_HEAD, *names]), row([""] * len(NCU_HEAD) + list(names.values()))]
    for k, one in enumerate(launches):
        lines.append(row([*ncu_launch(k, *one), "1,024.5", f"{k}.25", "some text"]))
    return write(path, PREAMBLE + "\n".join(lines) + "\n")


_COLUMNS = """start end deviceId contextId greenContextId streamId correlationId globalPid demangledName shortName
mangledName launchType cacheConfig registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory
dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted graphNodeId
sharedMemoryLimitConfig"""


def make_export(path, kernels):
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

    def kernel(i):
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


LAUNCHES = [(GEMM, (8, 1, 1))]
MAKERS = {"kineto": kineto, "nsys": nsys, "ncu": lambda path: ncu_details(path, LAUNCHES)}
"""Functions that write a file of a format, by its name."""
