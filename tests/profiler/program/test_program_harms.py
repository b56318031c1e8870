"""Programs on a GPU that isn't there, which harm what shares their process, or can't be traced: the shell sees no
difference, and the Run has each kernel, or says why it has none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import jouletrace
from commands import command
from jouletrace.run import load
from jouletrace.tracer import launching

SIMULATED = "sim:h100?realtime=1&load=1:300"

LAUNCH = """
import ctypes, os, sys
cuda, name = ctypes.CDLL("libcuda.so.1"), ctypes.create_string_buffer(b"gemm")
def launch(n):
    for _ in range(n): cuda.cudaLaunchKernel(name)
    cuda.cudaDeviceSynchronize()
"""


@pytest.fixture
def both(workspace, monkeypatch, capfd, bench):
    """Runs a program by itself, then under ``run``; returns the Run, after a comparison of what the shell sees."""
    monkeypatch.setattr(launching, "__file__", str(bench.built / "launching.py"))
    environment = bench.environment(FAKE_UNKNOWN=1, JOULETRACE_CUPTI=bench.built)
    for variable in ("LD_LIBRARY_PATH", "FAKE_UNKNOWN", "FAKE_VERSION", "FAKE_SIZES", "JOULETRACE_CUPTI"):
        monkeypatch.setenv(variable, environment[variable])
    for variable in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(jouletrace.__file__).parents[1]))

    def run(text, *words):
        (workspace / "main.py").write_text(LAUNCH + text)
        plain = subprocess.run(
            list(words) or [sys.executable, "main.py"], cwd=workspace, capture_output=True, text=True, check=False
        )
        said = command(capfd, "run", "-d", SIMULATED, "-o", "kept", *(words or ["main.py"]))
        assert said.out.startswith(plain.stdout + "SIMULATED: ")
        assert said.err.startswith(plain.stderr + "saved kept")
        assert said.code == plain.returncode
        found = load(workspace / "kept")
        assert found.complete
        return found

    return run


def kernels(found):
    return {unit["name"]: unit["count"] for unit in found.units.to_pylist() if unit["level"] == "kernel"}


def missing(found):
    codes = ("not_traced", "child_lost", "records_dropped", "few_records_dropped", "hooks_failed")
    return [one.message for one in found.warnings if one.code in codes]


HARMS = {
    "closes what it does not know": "os.closerange(3, 1000)",
    "waits for all children": """
try:
    while True: os.wait()
except ChildProcessError: print("none", flush=True)
""",
    "ends all below it": """
import signal, time
time.sleep(0.5)
below = open(f"/proc/self/task/{os.getpid()}/children").read().split()
for child in below: os.kill(int(child), signal.SIGKILL)
print(below, flush=True)
""",
    "has little memory left": """
import resource
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20), used + (32 << 20)))
""",
    "unloads modules": "for each in list(sys.modules.keys() - {'sys', 'builtins', '__main__'}): del sys.modules[each]",
    "ignores signals": "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    "becomes another user": "os.setgid(65534); os.setuid(65534); print(os.getuid(), flush=True)",
    "leaves for another root": "os.makedirs('root', exist_ok=True); os.chroot('root'); os.chdir('/')",
}


@pytest.mark.thorough
@pytest.mark.parametrize("how", HARMS)
def test_a_program_that_harms_its_process_has_each_kernel(both, workspace, how):
    if os.geteuid() and "another" in how:
        pytest.skip("only root can")
    found = both(f"launch(100)\n{HARMS[how]}\nlaunch(50)\n")
    assert kernels(found) == {"gemm": 150}
    assert missing(found) == []


@pytest.mark.thorough
def test_modules_of_the_program_are_not_those_that_trace_it(both, workspace):
    for name in ("queue", "json", "rich"):
        (workspace / f"{name}.py").write_text("OWN = True\n")
    found = both("import queue, json, rich\nprint(queue.OWN, json.OWN, rich.OWN, flush=True)\nlaunch(150)\n")
    assert (kernels(found), missing(found)) == ({"gemm": 150}, [])


WHY_NOT = {
    "CUPTI is held": ({"FAKE_FAIL": "cuptiSubscribe=39"}, "another profiler holds CUPTI in this process"),
    "CUPTI is old": ({"FAKE_VERSION": "17"}, "libcupti is version 17; CUDA 12 or later is required"),
    "the user's library": ({"CUDA_INJECTION64_PATH": "none"}, "CUDA_INJECTION64_PATH is set to none, in place of the"),
}


@pytest.mark.thorough
@pytest.mark.parametrize(("variables", "said"), WHY_NOT.values(), ids=WHY_NOT)
def test_a_program_that_cannot_be_traced_has_power_and_a_line_says_why(both, monkeypatch, variables, said):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = both("launch(150)\nsys.exit(3)\n")
    (line,) = missing(found)
    assert line.startswith(f"kernels: {said}")
    assert (kernels(found), len(found.samples) > 0) == ({}, True)


@pytest.mark.thorough
def test_a_program_without_shared_libraries_runs_as_without_us(both, workspace):
    (workspace / "main.c").write_text('#include <stdio.h>\nint main(void) { puts("static"); return 4; }\n')
    if subprocess.run(["gcc", "-static", "-o", "static", "main.c"], cwd=workspace, check=False).returncode:
        pytest.skip("no static library of C is here")
    found = both("", "./static")
    assert (kernels(found), len(found.samples) > 0) == ({}, True)
