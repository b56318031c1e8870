"""Workloads that return before they have run, or end the process: refused in a line, never timed."""

import asyncio
import functools
import multiprocessing
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

import jouletrace as jt
from commands import command, start
from jouletrace.errors import BadInputError
from jouletrace.workloads.user_code import ExitRefused, check_ran, check_runs, deferred, no_silent_exit

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("short_passes")

QUICK = ("--warmup", "0.2", "--max-time", "1")


class Private:
    """A callable whose ``forward`` is a property that raises."""

    @property
    def forward(self):
        raise RuntimeError("not now")

    def __call__(self):
        return None


def test_a_property_that_raises_is_no_function():
    assert deferred(Private()) == ""


async def fetches(x):
    return x @ x


def yields(x):
    yield x @ x


async def streams(x):
    yield x @ x


class Async:
    async def __call__(self, x):
        return x @ x


class Generates(torch.nn.Module):
    def forward(self, x):
        yield x @ x


class Streams(torch.nn.Module):
    async def forward(self, x):
        return x @ x


def plain(call):
    """A function in which only the call shows what it is."""

    def inner(x):
        return call(x)

    return inner


def runs(x):
    return x @ x


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (fetches, "an async function"),
        (functools.partial(fetches, 1), "an async function"),
        (Async(), "an async function"),
        (Async().__call__, "an async function"),
        (Streams(), "an async function"),
        (yields, "a generator function"),
        (Generates(), "a generator function"),
        (Generates().forward, "a generator function"),
        (streams, "an async generator function"),
        (runs, ""),
        (functools.partial(runs, 1), ""),
        (torch.nn.Linear(1, 1), ""),
        (torch.matmul, ""),
        (max, ""),
        (dict, ""),
    ],
)
def test_what_returns_before_it_has_run_is_recognised(target, kind):
    assert deferred(target) == kind
    if kind:
        with pytest.raises(BadInputError, match=f"w: a call of {kind} returns before its body has run; give a func"):
            check_runs(target, "w")


@pytest.mark.thorough
@pytest.mark.parametrize("call", [*map(plain, (fetches, yields, streams)), Streams(), yields])
@pytest.mark.parametrize("device", ["cpu", "sim:h100"])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_none_of_them_is_profiled(call, device):
    """Python has no coroutine to complain about that no one awaited."""
    with pytest.raises(BadInputError, match=r"before (its body has run|the work is done)"):
        jt.profile(call, torch.ones(8, 8), device=device)


@pytest.mark.thorough
@pytest.mark.parametrize("device", ["cpu", "sim:h100"])
def test_the_same_work_run_to_its_end_is_profiled(device):
    run = jt.profile(
        lambda x: [asyncio.run(fetches(x)), list(yields(x))], torch.ones(8, 8), device=device, warmup=0.2, max_time=1
    )
    assert run.result("latency_s").value > 0


def test_what_a_pool_or_a_map_will_do_is_no_result_either():
    with ThreadPoolExecutor(1) as pool, pytest.raises(BadInputError, match="its call returns a Future before"):
        check_ran(pool.submit(max, 1, 2), "w")
    with pytest.raises(BadInputError, match=r"its call returns a map before .* list\(f\(x\)\)"):
        check_ran(map(str, [1]), "w")
    outputs = [torch.ones(1)]
    assert check_ran(outputs, "w") is outputs


PROGRAM = """
    import os

    async def fetches(x):
        return x

    def waits():
        return fetches, (1,)

    async def makes():
        return max, (1, 2)

    def leaves():
        return (lambda x: os._exit(0)), (1,)

    def leaves_later():
        calls = []
        def call(x):
            calls.append(x)
            if len(calls) > 50:
                os._exit(0)
        return call, (1,)

    def leaves_at_once():
        os._exit(0)
"""


@pytest.fixture
def program(workspace):
    (workspace / "toy.py").write_text(textwrap.dedent(PROGRAM))
    (workspace / "gone.py").write_text("import os\nos._exit(0)\n")
    return workspace


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["waits", "makes"])
@pytest.mark.parametrize("arguments", [("profile",), ("ab", "gemm")])
def test_an_async_workload_of_the_command_line_gets_one_line(capsys, program, name, arguments):
    said = command(capsys, *arguments, f"toy.py:{name}", "-d", "cpu", *QUICK)
    assert said.code == 2
    assert "a call of an async function returns before its body has run" in said.err.splitlines()[-1]
    assert "never awaited" not in said.err
    assert not list(program.glob("runs/*"))


@pytest.fixture
def survives(monkeypatch):
    """A process in which ``os._exit`` is not Python's: what calls that fails the test, and does not end it."""

    def failed(code):
        pytest.fail(f"os._exit({code}) would have ended the process")

    monkeypatch.setattr(os, "_exit", failed)


@pytest.mark.usefixtures("survives")
@pytest.mark.parametrize("workload", ["toy.py:leaves", "toy.py:leaves_at_once", "gone.py:any"])
@pytest.mark.parametrize("device", ["cpu", "sim:h100"])
def test_a_workload_that_calls_os_exit_does_not_end_well(capsys, program, workload, device):
    said = command(capsys, "profile", workload, "-d", device, *QUICK)
    assert said.code == 2
    assert said.out == ""
    last = said.err.splitlines()[-1]
    assert last.startswith("jouletrace: ")
    assert "os._exit(0) ends the process before it is measured" in last


@pytest.mark.thorough
def test_a_process_that_a_workload_would_end_does_not_end_well(program):
    process = start("profile", "toy.py:leaves_later", "-d", "cpu", *QUICK, cwd=program)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 2, err
    assert out == ""
    assert "Traceback" not in err
    assert "os._exit(0) ends the process before it is measured" in err.splitlines()[-1]
    (run,) = (program / "runs").iterdir()
    assert len(jt.load(run).spans) > 0, "what was recorded is kept"


@pytest.mark.usefixtures("survives")
@pytest.mark.parametrize(
    "arguments",
    [("ab", "toy.py:leaves", "toy.py:leaves"), pytest.param(("sweep", "toy.py:leaves"), marks=pytest.mark.slow)],
)
def test_nor_does_any_other_command(capsys, program, arguments):
    said = command(capsys, *arguments, "-d", "cpu", *QUICK)
    assert said.code in (2, 3)
    assert "os._exit(0) ends the process before it is measured" in said.err.splitlines()[-1]


def test_a_fork_may_end_by_os_exit_and_the_function_is_python_s_again_afterwards():
    before = os._exit
    with no_silent_exit():
        with no_silent_exit():
            process = multiprocessing.get_context("fork").Process(target=os.getpid)
            process.start()
            process.join()
            assert process.exitcode == 0
        with pytest.raises(ExitRefused, match=r"os\._exit\(3\)"):
            os._exit(3)
    assert os._exit is before


def test_another_thread_ends_the_process_but_not_well():
    script = """
import os, threading, time
from jouletrace.workloads.user_code import no_silent_exit
with no_silent_exit():
    threading.Thread(target=os._exit, args=(0,)).start()
    time.sleep(60)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert said.stderr == "jouletrace: os._exit(0) ends the process before it is measured\n"
