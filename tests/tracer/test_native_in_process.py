"""The native library, called by ctypes within a Python program, and its functions for hooks."""

import shutil
import subprocess
import sys
from pathlib import Path

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
    """Runs code in a Python that can launch kernels, and returns what it printed; ``hooks`` are others than those."""

    def run(code, version=130001, hooks=None, interpreter=sys.executable, **extra):
        environment = bench.environment(version, TRACES=bench.traces, **extra)
        for variable in ("JOULETRACE_TRACE", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
            del environment[variable]
        library = bench.built / "native.so"
        if hooks:
            library = Path(shutil.copy(library, bench.folder))
            library.with_name("hooks.py").write_text(hooks)
        command = [interpreter, "-c", LAUNCH + code, str(library)]
        done = subprocess.run(
            command, env=environment, cwd=bench.folder, capture_output=True, text=True, timeout=100, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split("\n")[:-1]

    return run


def test_tracing_starts_and_ends_on_demand(python, bench):
    python("work(5); start(); work(3); library.jt_stop(); work(7); start(); work(2); library.jt_stop(); work(1)")
    assert [one.counts() for one in bench.traced()] == [{"kernel": 3}, {"kernel": 2}]
    devices = [[line for line in one.said("i") if line.startswith("device")] for one in bench.traced()]
    assert devices == [["device 0 GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"]] * 2
    assert all(one.header["ended_ns"] for one in bench.traced())


@pytest.mark.thorough
def test_rows_can_be_read_while_it_goes_on(python):
    printed = python("""
start(); work(100)
(folder,) = os.listdir(os.environ["TRACES"])
rows = os.path.join(os.environ["TRACES"], folder, "rows")
def count(): return int.from_bytes(open(rows, "rb").read(24)[16:], "little")
while count() < 101: pass
work(10); library.jt_stop()
print(count())
""")
    assert printed == ["112"]  # the waits are rows too


def test_ranges_of_a_recording_process_are_its_own_though_the_driver_loads_the_library(python, bench):
    python("""
functions = library.jt_functions()
os.environ["JOULETRACE_TRACE"] = os.environ["TRACES"]
library.InitializeInjection(); work(1)
(folder,) = os.listdir(os.environ["TRACES"])
while "\\ni ranges" not in open(os.path.join(os.environ["TRACES"], folder, "text")).read(): pass
""")
    (traced,) = bench.traced()
    assert "ranges 0" in traced.said("i")


def test_recordings_that_follow_one_another_leave_no_threads(python):
    python("""
import time
def threads(): return len(os.listdir("/proc/self/task"))
start(); library.jt_end_hooks(); library.jt_stop()
for _ in range(10): start(); work(1); library.jt_end_hooks(); library.jt_stop()
start()
until = time.monotonic() + 30
while threads() > 4 and time.monotonic() < until: time.sleep(0.01)
assert threads() <= 4, threads()  # the program's, CUPTI's, and ours that flushes and that looks
""")


SLOW_HOOKS = """
import time
time.sleep(0.3)
def look(): library.append("look")
def end(): library.append("end")
import builtins
library = builtins.__dict__.setdefault("calls", [])
library.append("began")
"""


def test_hooks_that_begin_while_a_recording_ends_are_ended(python):
    (printed,) = python(
        """
import builtins, time
start(); time.sleep(0.1); library.jt_end_hooks(); library.jt_stop()
while not hasattr(builtins, "calls"): time.sleep(0.01)
time.sleep(0.5); print(*builtins.calls)
""",
        hooks=SLOW_HOOKS,
    )
    assert printed == "began end"


def test_hooks_that_have_ended_are_forgotten(python):
    python(
        """
import gc, time
for _ in range(5):
    start()
    while not any(isinstance(one, dict) and "MINE" in one for one in gc.get_objects()): time.sleep(0.01)
    library.jt_end_hooks(); library.jt_stop()
    for _ in range(500):
        gc.collect()
        if not any(isinstance(one, dict) and "MINE" in one for one in gc.get_objects()): break
        time.sleep(0.01)
    else:
        raise AssertionError
""",
        hooks="MINE = 1\ndef look(): pass\ndef end(): pass\n",
    )


@pytest.mark.thorough
def test_the_duty_is_understood_in_a_program_whose_numbers_have_commas(python, bench):
    command = ("localedef", "-i", "de_DE", "-f", "UTF-8", bench.folder / "de_DE.UTF-8")
    if not shutil.which("localedef") or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("locales can't be made here")
    python(
        "import locale, time; locale.setlocale(locale.LC_ALL, 'de_DE.UTF-8')\n"
        "start(b'0.2 1e9 0.1 0.3 1e9'); time.sleep(2); library.jt_stop()",
        LOCPATH=bench.folder,
    )
    (traced,) = bench.traced()
    assert len(traced.said("s")) > 2


def test_a_second_start_is_refused_and_harms_nothing(python, bench):
    printed = python("print(start()); print(start()); print(library.jt_problem().decode()); work(3); library.jt_stop()")
    assert printed[:2] == ["0", "1"]
    assert "already" in printed[2]
    assert [one.counts() for one in bench.traced()] == [{"kernel": 3}]


WITHOUT_THREADS = {"FAKE_NO_THREADS": 1, "LD_PRELOAD": "libcuda.so.1"}


@pytest.mark.parametrize(
    ("code", "said", "how"),
    [
        (2, "version 17", {"version": 17}),
        (3, "another profiler", {"FAKE_FAIL": "cuptiSubscribe=39"}),
        (3, "no file", {"folder": "/nowhere"}),
        (3, "no thread", WITHOUT_THREADS),
    ],
)
def test_a_start_that_is_refused_leaves_a_reason(python, code, said, how):
    folder = f"folder={how.pop('folder')!r}" if "folder" in how else ""
    printed = python(f"print(start({folder})); print(library.jt_problem().decode()); work(3); library.jt_stop()", **how)
    assert printed[0] == str(code)
    assert said in printed[1]


@pytest.mark.parametrize(
    "how",
    [
        {"FAKE_FAIL": "cuptiActivityEnable=35"},
        {"FAKE_FAIL": "cuptiActivityRegisterCallbacks=35"},
        WITHOUT_THREADS,
    ],
)
def test_a_start_that_is_refused_leaves_cupti_to_others(python, how):
    subscribe = (
        "client = ctypes.c_void_p(); print(cupti.cuptiSubscribe(ctypes.byref(client), ctypes.c_void_p(1), None))"
    )
    code = "print(start()); cupti = ctypes.CDLL('libcupti.so.13'); " + subscribe
    assert python(code, **how) == ["3", "0"]


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


def test_calls_of_modules_outside_of_others_are_counted(python, bench):
    """Counts are written each second, hence the pause, and at the end: a later line replaces an earlier one."""
    python("""
import time; start(); globals().update(library.jt_functions()); model, block = object(), object()
names = mark(0, "m", "Model"), mark(0, "m", "Model.block")
remember(id(model), names[0]); remember(id(block), names[1])
def step(times):
    for _ in range(times): depth = within(model); within(block); launch(1); leave(depth)
leave(enter(names[0])); step(2); time.sleep(1.5); step(3); leave(within(block)); library.jt_stop()
start(); step(4); library.jt_stop()
""")
    first, second = bench.traced()
    assert [line for line in first.said("r") if line.startswith("1 ")][-1] == "1 6"
    assert first.said("r")[-1] == "2 1"
    assert second.said("r") == ["1 4"]


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


@pytest.mark.thorough
def test_a_module_has_its_mark_until_it_is_gone_and_too_many_have_none(python, bench):
    python("""
start(); globals().update(library.jt_functions()); module, other = object(), object(); number = mark(0, "m", "encoder")
assert within(module) == -1; launch(1); remember(id(module), number); assert marked(id(module)) == number
assert within(module) == 0; launch(2); assert within(other) == -1; assert within(module) == 1; leave(0)
remember(id(module), 0); assert within(module) == -1; launch(4)
for address in range(1, 600_000): remember(address << 4, number)
known = sum(marked(address << 4) == number for address in range(1, 600_000)); assert 250_000 < known <= 1 << 18, known
for address in range(1, 600_000): remember(address << 4, 0)
remember(id(module), number); assert within(module) == 0; launch(8); leave(0); library.jt_stop()
""")
    (traced,) = bench.traced()
    assert owners(traced) == {("", ""): 5, ("encoder", ""): 10}


CALLS = """
import threading
start(); globals().update(library.jt_functions()); frames, seen = [], []
class Module:
    _compiled_call_impl = None
    def _call_impl(self, *args, **options): return self.forward(*args, **options)
    def forward(self, *inner, fault=None, **options):
        launch()
        for one in inner: one()
        if fault: raise fault
        launch()
        seen.append(options)
class Sub(Module):
    def __call__(self, *args): return super().__call__(*args, sub=1)
def call(self, *args, **options):
    depth = within(self); frames.append(depth)
    try: return (self._compiled_call_impl or self._call_impl)(*args, **options)
    finally: depth < 0 or leave(depth)
def pair(name, kind=Module):
    made = Module(), kind()
    for module, own in zip(made, (name, name + ".child")): remember(id(module), mark(0, "m", own))
    return made
def ran(quick, plain):
    assert frames == (quick if sys.version_info >= (3, 12) else plain), frames
    assert enter(0) == 0; leave(0); frames.clear()
def fails(*args, **options):
    try: child(*args, **options)
    except (KeyError, TypeError, RecursionError) as error: seen.append(error)
quicken(call); Module.__call__ = call

root, child = pair("options"); root(lambda: child(a=1, b=[2])); ran([0], [0, 1]); assert seen[0] == {"a": 1, "b": [2]}
root, child = pair("again"); root(lambda: child(root), child); ran([0], [0, 1, 2, 1])
root, child = pair("bound"); root(child.__call__); ran([0], [0, 1])
root, child = pair("super", Sub); root(child); ran([0], [0, 1]); assert seen[-2:] == [{"sub": 1}, {}]
root, child = pair("unknown"); remember(id(child), 0); root(child); ran([0, -1], [0, -1])
root, child = pair("compiled"); child._compiled_call_impl = lambda: launch(5); root(child); ran([0, 1], [0, 1])
root, child = pair("own"); child._call_impl = launch; root(lambda: child(3)); ran([0], [0, 1])
root, child = pair("thread"); one = threading.Thread(target=child); root(one.start, one.join); ran([0, 0], [0, 0])
root, child = pair("fault"); root(lambda: fails(fault=KeyError("x"))); ran([0], [0, 1]); assert seen[-2].args == ("x",)
root, child = pair("one more"); child._call_impl = lambda: 0; root(lambda: fails(1)); ran([0], [0, 1])
assert isinstance(seen[-2], TypeError)
child = Module.__call__; root(fails); ran([0], [0]); assert "self" in str(seen[-2])
root, child = pair("deep"); child._call_impl = lambda: child(); root(fails); assert isinstance(seen[-2], RecursionError)
frames.clear(); ran([], []); library.jt_stop()
"""
INTERPRETERS = [sys.executable, *sorted(map(str, Path(sys.base_prefix).parent.glob("*/bin/python3.1[2-9]")))]
"""This one, and later ones beside it, if any."""


@pytest.mark.parametrize("interpreter", INTERPRETERS, ids=lambda path: Path(path).name)
def test_modules_are_called_as_by_the_function_that_c_stands_for(python, bench, interpreter):
    """From Python 3.12 on a marked module that is called within another has no frame of that function."""
    python(CALLS, interpreter=interpreter)
    (traced,) = bench.traced()
    launched = {"options": 2, "again": 4, "bound": 2, "super": 2, "unknown": 4, "compiled": 2, "own": 2, "thread": 2}
    launched |= {"fault": 2, "one more": 4, "deep": 2}
    inner = {"options": 2, "again": 4, "bound": 2, "super": 2, "compiled": 5, "own": 3, "thread": 2, "fault": 1}
    launched |= {f"{name}.child": count for name, count in inner.items()}
    assert owners(traced) == {(name, ""): count for name, count in launched.items()}
    outermost = dict(line.split() for line in traced.said("r"))
    assert sorted(outermost.values()) == ["1"] * 11 + ["2"], "one root is called twice, one child in a thread"


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


@pytest.mark.parametrize("paused", [False, True])
def test_stamps_after_anothers_profiler_are_of_the_hosts_clock(python, bench, paused):
    """torch's profiler leaves its subscription and its clock behind, here also while tracing pauses."""
    begin = (
        "start(after=1)" if not paused else "start(after=1); f = library.jt_functions(); f['pause'](); f['resume']()"
    )
    held = {"FAKE_FAIL": "cuptiSubscribe=39", "FAKE_TICKS": 1}
    printed = python(
        f"import time; a = time.time_ns(); {begin}; work(5); library.jt_stop(); print(a, time.time_ns())", **held
    )
    (traced,) = bench.traced()
    rows = traced.of(KERNEL)
    since, until = map(int, printed[0].split())
    assert len(rows) == 5
    assert since < rows["start"].min() <= rows["end"].max() < until
    assert [line.split()[0] for line in traced.said("w")] == ["profiler_inside"] * (1 + paused)
