"""A Python program that records itself on a GPU that isn't there: real native tracer, fake driver and CUPTI."""

import os
import subprocess
import sys
from pathlib import Path

import jouletrace
from places import SUPPORT
from preloaded import Popen

REAL = "sim:h100?realtime=1&load=0.5:300"

PRELUDE = f"""
import ctypes, os, subprocess, sys, threading, time
from pathlib import Path
from jouletrace.without_pandas import hide_pandas
hide_pandas()  # which pyarrow imports where it is installed
import jouletrace as jt
from jouletrace.profiler.record import recording as recordings
from jouletrace.tracer import launching
launching.__file__ = os.environ["BUILT"] + "/launching.py"
recordings.has_kernels = lambda devices: True
REAL = {REAL!r}
cuda = ctypes.CDLL(os.environ["BUILT"] + "/libcuda.so.1")
names = dict()
def init(): assert cuda.cuInit(0) == 0
def launch(name, n=1):
    raw = names.setdefault(name, ctypes.create_string_buffer(name.encode()))
    for _ in range(n): cuda.cudaLaunchKernel(raw)
def sync(): cuda.cudaDeviceSynchronize()
def left(): return [name for name in os.environ if name.startswith(("JOULETRACE_TRACE", "CUDA_INJ", "NVTX_INJ"))]
def counts(recording):
    rows = [] if recording.split is None else recording.split.units.to_pylist()
    return {{row["name"]: row["count"] for row in rows if row["level"] == "kernel"}}
def inside(recording):
    rows = [] if recording.split is None else recording.split.units.to_pylist()
    return {{(row["module"], row["op"] or row["name"]): row["count"] for row in rows if row["level"] == "site"}}
def warned(recording, code="not_traced"):
    return [one.message for one in recording.run.warnings if one.code == code]
def record(label="tiny", **options): return jt.record(label, **{{"device": REAL, **options}})
"""


def run(bench, code, **extra):
    """The lines that a program prints; the environment is that of an untraced one, and ``extra``."""
    environment = bench.environment(FAKE_UNKNOWN=1, BUILT=bench.built, JOULETRACE_CUPTI=bench.built)
    for variable in ("JOULETRACE_TRACE", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
        del environment[variable]
    package = Path(jouletrace.__file__).parent.parent
    environment |= {"PYTHONPATH": os.pathsep.join([str(package), str(SUPPORT)]), "TMPDIR": str(bench.folder)}
    environment |= {name: str(value) for name, value in extra.items()}
    command = [sys.executable, "-c", PRELUDE + code]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = Popen(command, env=environment, cwd=bench.folder, text=True, **pipes)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    left = [path.name for path in bench.folder.glob("jouletrace-*")]
    assert not left, "what the tracer wrote is removed"
    return out.split("\n")[:-1]
