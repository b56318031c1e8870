"""The native library, called by ctypes within a Python program, and its functions for hooks."""

import subprocess
import sys

import pytest

from traced import COPY, KERNEL, SYNC

LAUNCH = """
import ctypes, os, sys
library, cuda = ctypes.PyDLL(sys.argv[1]), ctypes.CDLL("libcuda.so.1")
library.jt_problem.restype = ctypes.c_char_p
library.jt_functions.restype = ctypes.py_object
name = ctypes.create_string_buffer(b"kernel")
def start(duty=None, folder=os.environ["TRACES"], after=0): return library.jt_start(folder.encode(), 0, duty, after)
def launch(n=1):
    for _ in range(n): cuda.cudaLaunchKernel(name)
def work(n=1): launch(n); cuda.cudaDeviceSynchronize()
cuda.cuInit(0)
"""


@pytest.fixture
def python(bench):
    """Runs code in a Python that can launch kernels, and returns what it printed."""

    def run(code, version=130001, **extra):
        environment = bench.environment(version, TRACES=bench.traces, **extra)
        for variable in ("JOULETRACE_TRACE", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
            del environment[variable]
        command = [sys.executable, "-c", LAUNCH + code, str(bench.built / "native.so")]
        done = subprocess.run(
            command, env=environment, cwd=bench.folder, capture_output=True, text=True, timeout=100, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split("\n")[:-1]

    return run


def test_tracing_starts_and_ends_on_demand(python, bench):
    python("work(5); start(); work(3); library.jt_stop(); work(7); start(); work(2); library.jt_stop(); work(1)")
    assert [one.counts() for one in bench.traced()] == [{"kernel": 3}, {"kernel": 2}]
    assert all(one.header["ended_ns"] for one in bench.traced())


def test_rows_can_be_read_while_it_goes_on(python):
    read = "f = os.path.join(os.environ['TRACES'], os.listdir(os.environ['TRACES'])[0], 'rows')\n"
    count = "print(int.from_bytes(open(f, 'rb').read(24)[16:], 'little'))\n"
    printed = python(
        "start(); work(100); library.jt_refresh()\n" + read + count + "work(10); library.jt_stop()\n" + count
    )
    assert [int(line) for line in printed] == [101, 112]  # the waits are rows too


def test_a_second_start_is_refused_and_harms_nothing(python, bench):
    printed = python("print(start()); print(start()); print(library.jt_problem().decode()); work(3); library.jt_stop()")
    assert printed[:2] == ["0", "1"]
    assert "already" in printed[2]
    assert [one.counts() for one in bench.traced()] == [{"kernel": 3}]


@pytest.mark.parametrize(
    ("code", "said", "how"),
    [
        (2, "version 17", {"version": 17}),
        (3, "another profiler", {"FAKE_FAIL": "cuptiSubscribe=39"}),
        (3, "no file", {"folder": "/nowhere"}),
    ],
)
def test_a_start_that_is_refused_leaves_a_reason(python, code, said, how):
    folder = f"folder={how.pop('folder')!r}" if "folder" in how else ""
    printed = python(f"print(start({folder})); print(library.jt_problem().decode()); work(3); library.jt_stop()", **how)
    assert printed[0] == str(code)
    assert said in printed[1]


@pytest.mark.parametrize("function", ["cuptiActivityEnable", "cuptiActivityRegisterCallbacks"])
def test_a_start_that_is_refused_leaves_cupti_to_others(python, function):
    subscribe = (
        "client = ctypes.c_void_p(); print(cupti.cuptiSubscribe(ctypes.byref(client), ctypes.c_void_p(1), None))"
    )
    code = "print(start()); cupti = ctypes.CDLL('libcupti.so.13'); " + subscribe
    assert python(code, FAKE_FAIL=f"{function}=35") == ["3", "0"]


def test_modules_and_operators_own_what_is_launched_in_them(python, bench):
    python("""
start(); globals().update(library.jt_functions())
m, n = mark(0, "m", "encoder"), mark(0, "m", "encoder.layer")
assert m == mark(0, "m", "encoder") != n
depth = enter(m); assert depth == 0; launch(1)
inner = enter(n); launch(2); sampling(True)
push("aten::linear, seq = 7, op_id = 1"); push("aten::addmm, seq = 8, op_id = 2"); launch(3); pop(); launch(4); pop()
leave(inner); launch(5); enter(n); enter(n); leave(depth); sampling(False); launch(6)
push("autograd::engine::evaluate_function: AddmmBackward0, seq = 8, op_id = 3")
push("AddmmBackward0, seq = 8, op_id = 4")
push("aten::mm, op_id = 5"); launch(7); pop(); launch(8); pop(); launch(9); pop(); launch(10)
push("step"); launch(11); pop(); work(1); library.jt_stop()
""")
    (traced,) = bench.traced()
    assert owners(traced) == {
        ("encoder", ""): 6,
        ("encoder.layer", ""): 2,
        ("encoder.layer", "aten::linear"): 4,
        ("encoder.layer", "aten::addmm"): 3,
        ("encoder.layer", "AddmmBackward0"): 17,
        ("encoder.layer", "aten::mm"): 7,
        ("", ""): 28,
    }
    assert traced.ranges() == {"": 56, "step": 11}


def owners(traced):
    """How many kernels there are of each module and its innermost operator, or backward of an operator."""
    names, marks = traced.said("n"), [line.split() for line in traced.said("m")]
    found = {}
    for owner in traced.of(KERNEL)["owner"].tolist():
        module, operator, number = "", "", owner
        while number and not module:
            parent, kind, name = marks[number - 1]
            module = names[int(name)] if kind == "m" else ""
            operator = operator or (names[int(name)] if kind in "ob" else "")
            number = int(parent)
        found[module, operator] = found.get((module, operator), 0) + 1
    return found


def test_a_launch_says_whether_operators_were_marked(python, bench):
    python("""
start(); globals().update(library.jt_functions()); launch(1); sampling(True); launch(2); sampling(False); launch(3)
cuda.cudaDeviceSynchronize(); library.jt_stop()
""")
    (traced,) = bench.traced()
    assert [int((traced.of(KERNEL)["sampled"] == k).sum()) for k in (0, 1)] == [4, 2]


def test_spans_lines_and_costs(python, bench):
    (printed,) = python("""
start(); globals().update(library.jt_functions()); span(4, 10**18, 10**18 + 5); text("i rank 3"); text("i two\\nlines")
push("aten::mm, op_id = 1"); pop(); events, ns = cost(); print(events, ns > 0); library.jt_stop()
""")
    assert printed == "1 True"
    (traced,) = bench.traced()
    assert [(row["start"], row["end"]) for row in traced.of(4)] == [(10**18, 10**18 + 5)]
    assert {"rank 3", "two lines"} <= set(traced.said("i"))


def test_a_graphs_kernels_belong_to_the_module_that_they_were_captured_in(python, bench):
    python("""
start(); globals().update(library.jt_functions()); graph, clone = ctypes.c_void_p(), ctypes.c_void_p()
cuda.cudaStreamBeginCapture(); enter(mark(0, "m", "a")); launch(2); leave(0); launch(3)
enter(mark(0, "m", "b")); launch(4)
cuda.cudaStreamEndCapture(ctypes.byref(graph)); cuda.cudaGraphInstantiate(ctypes.byref(clone), graph); leave(0)
enter(mark(0, "m", "root")); push("step"); cuda.cudaGraphLaunch(clone); pop(); launch(1); leave(0)
cuda.cudaDeviceSynchronize(); library.jt_stop()
""")
    (traced,) = bench.traced()
    assert owners(traced) == {("a", ""): 2, ("", ""): 3, ("b", ""): 4, ("root", ""): 1}
    assert traced.ranges() == {"step": 9, "": 1}


def test_cupti_is_left_to_another_client_and_taken_again(python, bench):
    """If the other one keeps it, records go on without owners."""
    python("""
start(); globals().update(library.jt_functions()); work(1)
cupti = ctypes.CDLL("libcupti.so.13"); client = ctypes.c_void_p()
called = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)(lambda *_: None)
assert cupti.cuptiSubscribe(ctypes.byref(client), called, None) == 39
pause(); assert cupti.cuptiSubscribe(ctypes.byref(client), called, None) == 0; work(10)
resume(); work(100); assert cupti.cuptiUnsubscribe(client) == 0
pause(); resume(); push("again"); work(1000); library.jt_stop()
""")
    (traced,) = bench.traced()
    assert traced.ranges() == {"": 101, "again": 1000}
    assert [line.split()[0] for line in traced.said("w")] == ["profiler_inside"]
    assert [line[0] for line in traced.lines if line[0] in "se"] == ["s", "e", "s", "e", "s", "e"]
    assert len(traced.of(SYNC)) == 2
    assert len(traced.of(COPY)) == 0
