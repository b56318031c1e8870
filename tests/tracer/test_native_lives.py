"""The native library in programs that fork, die, fill the disk or can't be traced: it never harms them."""

import os
import shutil
import signal
import stat
import subprocess
import time

import pytest

from jouletrace.run.steady import OFFSET, offset_ns
from traced import FAKES, KERNEL


def test_a_child_forked_from_a_program_on_the_gpu_writes_nothing(bench):
    traced = bench.one("launch 100 fork 4 launch 50 say child launch 100 sync")
    assert sum(traced.counts().values()) == 200
    assert traced.header["ended_ns"] > 0
    assert len(traced.said("e")) == 1


def test_a_child_forked_among_threads_ends(bench):
    assert len(bench.run("init " + "threads 4 50 fork 2 launch 1 " * 10 + "sync")) == 1


def test_a_child_forked_before_writes_its_own(bench):
    child, parent = bench.run("push both fork 3 launch 50 sync launch 100 sync")
    assert sum(child.counts().values()) == 50
    assert parent.ranges() == {"both": 100}
    assert child.ranges() == {"both": 50}
    assert child.header["pid"] != parent.header["pid"]


def test_a_program_that_another_one_replaces_loses_nothing(bench):
    process = bench.start("push old launch 100 sync wait exec launch 7 sync")
    wait_for_rows(bench, 100)
    process.communicate("x", timeout=60)
    old, new = bench.traced()
    assert process.returncode == 0
    assert old.ranges() == {"old": 100}
    assert new.ranges() == {"": 7}
    assert old.header["pid"] == new.header["pid"]
    assert (old.header["ended_ns"], new.header["ended_ns"] > 0) == (0, True)


def test_a_child_that_runs_another_program_leaves_its_parents_file(bench):
    """As Python's subprocess does after a program has begun on the GPU."""
    parent, child = bench.run("push mine launch 5 sync fork 4 exec launch 7 sync launch 2 sync")
    assert parent.ranges() == {"mine": 7}
    assert child.ranges() == {"": 7}
    assert parent.header["ended_ns"] > child.header["ended_ns"] > 0


def wait_for_rows(bench, number):
    """Until a program's file holds so many kernels, which its library writes at least every half second."""
    for _ in range(600):
        if (
            (traced := bench.traced())
            and (traced[-1].folder / "text").exists()
            and len(traced[-1].of(KERNEL)) >= number
        ):
            return
        time.sleep(0.05)
    raise AssertionError(f"{number} kernels weren't written")


@pytest.mark.parametrize(
    ("end", "code"),
    [("kill", -signal.SIGKILL), ("segv", -signal.SIGSEGV), ("abort", -signal.SIGABRT), ("_exit 3", 3)],
)
def test_a_sudden_end_loses_only_what_was_launched_just_before(bench, end, code):
    process = bench.start(f"push step launch 20000 sync wait launch 500 {end}")
    wait_for_rows(bench, 20000)
    _, errors = process.communicate("x", timeout=60)
    assert (process.returncode, errors) == (code, "")
    (traced,) = bench.traced()
    assert 20000 <= traced.ranges()["step"] <= 20500
    assert traced.header["ended_ns"] == 0
    assert (traced.rows["end"] > traced.rows["start"]).all()


@pytest.mark.parametrize("limit", [0, 4096, 5_000, 1_000_000, 4_000_000])
def test_a_full_disk_costs_rows_and_never_the_program(bench, limit):
    traced = bench.run(f"limit {limit} launch 100000 sync")
    for one in traced:
        if (one.folder / "rows").stat().st_size >= 4096:
            assert one.header["rows"] + one.header["dropped"] >= (100_000 if limit >= 4096 else 0)
            assert one.header["rows"] == len(one.rows)
            assert len(one.of(KERNEL)) < 100_000


def test_rows_that_find_no_space_say_why_once(bench):
    traced = bench.one("limit 1000000 launch 100000 sync")
    assert [line for line in traced.said("i") if line.startswith("full ")] == [
        "full its file couldn't grow: a full disk, or a limit of the process"
    ]
    assert traced.header["dropped"] >= 100_000


ON_A_SMALL_DISK = """
mount -t tmpfs -o size=$SIZE none traces && { "$0" "$@"; code=$?; cp -r traces kept; exit $code; }
"""


@pytest.mark.thorough
@pytest.mark.parametrize("size", ["8k", "100k", "5m"])
def test_a_disk_that_is_full_costs_rows_and_never_the_program(bench, size):
    """On a file system of its own, in a namespace of its own."""
    if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", bench.traces], check=False).returncode:
        pytest.skip("file systems can't be mounted here")
    bench.run("launch 200000 sync", before=("unshare", "-rm", "sh", "-c", ON_A_SMALL_DISK), SIZE=size)
    bench.traces = bench.folder / "kept"
    (traced,) = bench.traced()
    assert traced.header["rows"] + traced.header["dropped"] >= 200_000
    assert len(traced.rows) == traced.header["rows"] < 200_000
    assert (traced.rows["end"] > traced.rows["start"]).all()


@pytest.mark.thorough
def test_pages_may_be_of_64_kib(bench):
    """As on Grace."""
    library = bench.folder / "pages.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, FAKES / "pages.c", "-ldl"], check=True)
    traced = bench.one("launch 200000 sync", LD_PRELOAD=library, FAKE_KERNEL_NS=1)
    assert sum(traced.counts().values()) == 200_000
    assert (traced.rows["end"] > traced.rows["start"]).all()


def test_times_are_by_the_clock_of_the_recording_though_the_hosts_was_set(bench):
    library = bench.folder / "set.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, FAKES / "clock_set.c", "-ldl"], check=True)
    begin_ns, own = time.time_ns(), {OFFSET: offset_ns()}
    traced = bench.one("launch 1 sync", LD_PRELOAD=library, SET_FILE=library, SET_S=3600, **own)
    assert begin_ns <= traced.header["ended_ns"] <= time.time_ns()


@pytest.mark.parametrize("mask", ["0", "777"])
def test_files_are_the_users_alone_whatever_the_mask(bench, mask):
    traced = bench.one(f"umask {mask} launch 1 sync")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (traced.folder, *traced.folder.iterdir())]
    assert all(mode & 0o077 == 0 for mode in modes)
    if mask == "0":
        assert sorted(modes) == [0o600, 0o600, 0o700]


@pytest.mark.parametrize("trace", [None, "", "/nowhere/at/all", "relative"])
def test_a_program_runs_without_a_folder_to_write_in(bench, trace):
    environment = {} if trace is None else {"JOULETRACE_TRACE": trace}
    if trace is None:
        bench.environment = without(bench.environment, "JOULETRACE_TRACE")
    assert bench.run("push a launch 10 pop start b end sync", **environment) == []


def without(environment, name):
    return lambda *arguments, **extra: {
        key: value for key, value in environment(*arguments, **extra).items() if key != name
    }


REFUSALS = {
    "old": ({"version": 17}, "version 17"),
    "held": ({"FAKE_FAIL": "cuptiSubscribe=39"}, "another profiler"),
    "held activity": ({"FAKE_FAIL": "cuptiActivityEnable=39"}, "another profiler"),
    "no permission": ({"FAKE_FAIL": "cuptiActivityEnable=35"}, ""),
    "no buffers": ({"FAKE_FAIL": "cuptiActivityRegisterCallbacks=1"}, "cuptiActivityRegisterCallbacks"),
    "no version": ({"FAKE_FAIL": "cuptiGetVersion=999"}, "cuptiGetVersion failed"),
}


@pytest.mark.parametrize(("how", "said"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_one_line_and_the_program_goes_on(bench, how, said):
    traced = bench.one("push a launch 1000 sync pop", **how)
    (line,) = traced.said("w")
    assert line.startswith("not_traced kernels: ")
    assert said in line
    assert len(traced.rows) == 0


@pytest.mark.thorough
def test_records_that_make_no_sense_are_one_line_and_the_program_goes_on(bench):
    """As in a version of CUPTI whose fields lie elsewhere: kernels that end before they start."""
    traced = bench.one("launch 100000 sync sleep 300 launch 100000 sync", FAKE_KERNEL_NS=-1000)
    assert traced.said("w") == ["not_traced kernels: records of this version of CUPTI make no sense"]
    assert len(traced.of(KERNEL)) == 0
    assert traced.header["ended_ns"] > 0


def test_without_cupti_the_program_goes_on(bench, built, tmp_path):
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver/libcuda.so.1").symlink_to(built / "libcuda.so.1")
    for major in (12, 13, 14):  # that of a toolkit on this machine isn't taken in their place
        (tmp_path / f"driver/libcupti.so.{major}").write_text("no library")
    traced = bench.one("push a launch 1000 sync pop", LD_LIBRARY_PATH=tmp_path / "driver")
    where = "CUDA builds of torch and the CUDA Toolkit include it"
    assert traced.said("w") == [f"not_traced kernels: libcupti is not installed; {where}"]


def test_the_cupti_of_the_programs_runtime_comes_before_newer_ones_of_others(bench, built, tmp_path):
    for folder, major, library in (("own", 12, "libcupti.so.13"), ("others", 13, "libcuda.so.1"), ("driver", 0, "")):
        (tmp_path / folder).mkdir()
        if library:
            (tmp_path / folder / f"libcupti.so.{major}").symlink_to(built / library)
    (tmp_path / "driver/libcuda.so.1").symlink_to(built / "libcuda.so.1")
    source = tmp_path / "empty.c"
    source.write_text("")
    runtime = tmp_path / "own/libcudart.so.12"
    subprocess.run(["gcc", "-shared", "-o", runtime, source], check=True)
    traced = bench.one(
        "launch 10 sync",
        LD_LIBRARY_PATH=tmp_path / "driver",
        LD_PRELOAD=runtime,
        JOULETRACE_CUPTI=f"/nowhere:{tmp_path / 'others'}",
    )
    assert sum(traced.counts().values()) == 10


def test_a_program_whose_files_are_removed_is_traced_no_further(bench):
    """As one that a recorded program leaves behind: its Run has been saved without it."""
    process = bench.start("launch 100 sync wait launch 100 sync")
    wait_for_rows(bench, 100)
    (traced,) = bench.traced()
    with (traced.folder / "text").open() as text:
        shutil.rmtree(traced.folder)
        said = ""
        for _ in range(600):
            if "\ne " in (said := said + text.read()):
                break
            time.sleep(0.05)
        assert "\ne " in said
    assert process.communicate("x", timeout=60)[1] == ""
    assert (process.returncode, bench.traced()) == (0, [])


@pytest.mark.parametrize("function", ["FlushAll", "GetNumDroppedRecords", "Disable"])
def test_functions_that_fail_do_no_harm(bench, function):
    bench.one("launch 1000 sync", FAKE_FAIL=f"cuptiActivity{function}=999,cuptiEnableCallback=1,cuptiUnsubscribe=1")


def test_a_program_that_launches_nothing_has_files_too(bench):
    traced = bench.one("init")
    assert (len(traced.rows), traced.header["ended_ns"] > 0, traced.said("w")) == (0, True, [])


def test_a_programs_own_files_are_not_written_to(bench):
    """It closes descriptors that it doesn't know, and their numbers are its own files' from then on."""
    traced = bench.one("push before launch 10 sync own-files push after launch 100000 sync names gamma launch 5 sync")
    assert (bench.folder / "own").stat().st_size == 0
    assert traced.ranges() == {"before": 10, "before/after": 100_005}
    assert traced.counts()["gamma"] == 5


def test_a_programs_signals_are_its_own_threads(bench):
    """A signal that its threads block isn't taken by one of ours."""
    traced = bench.one("launch 1 signal launch 1 sync")
    assert sum(traced.counts().values()) == 2


def test_a_program_that_ends_while_it_launches_ends(bench):
    traced = bench.one("endless endless endless launch 1000 sync sleep 50", FAKE_KERNEL_NS=1)
    assert traced.header["ended_ns"] > 0
    assert len(traced.rows) >= 1000


@pytest.mark.thorough
@pytest.mark.parametrize("within", ["write 3", "write 5", "posix_fallocate 1"], ids=["name", "range", "row"])
def test_a_program_ends_though_a_signal_came_while_a_line_or_a_row_was_written(bench, within):
    """The handler calls exit, and the thread that it interrupted holds locks for ever."""
    process = bench.start("handle names gamma sync push a launch 100 sync wait", FAKE_INTERRUPT=within)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == signal.SIGTERM
    (traced,) = bench.traced()
    assert (traced.rows["end"] > traced.rows["start"]).all()
    assert traced.header["ended_ns"] == 0


def test_processes_that_run_at_once_write_their_own(bench):
    processes = [bench.start("launch 1000 sync") for _ in range(4)]
    for process in processes:
        process.communicate(timeout=60)
    assert [sum(one.counts().values()) for one in bench.traced()] == [1000] * 4
    assert {one.header["pid"] for one in bench.traced()} == {process.pid for process in processes}
    assert os.listdir(bench.folder) == ["traces"]
