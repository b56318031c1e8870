"""The native library: which rows and lines it writes of what a program does on the GPU."""

import os

import numpy as np
import pytest

from traced import COPY, KERNEL, RECORD_BYTES, SET, SYNC


@pytest.mark.thorough
@pytest.mark.parametrize("version", RECORD_BYTES)
def test_records_of_each_version_are_read_whole(bench, version):
    """Several buffers, of records of several sizes."""
    words = "launch 1001 driver 10 copy 1 4096 copy 2 10 copy 8 77 copy 10 5 copy 1 9000000000 set 100 launch 1000 sync"
    traced = bench.one(words, version=version)
    assert traced.counts() == {"alpha": 1006, "beta": 1005}
    assert traced.counts(COPY) == {"memcpy HtoD": 2, "memcpy DtoH": 1, "memcpy DtoD": 1, "memcpy PtoP": 1}
    assert traced.counts(SET) == {"memset": 1}
    assert sorted(traced.of(COPY)["extra"].tolist()) == [5, 10, 77, 4096, 2**32 - 1]
    assert traced.of(SET)["extra"].tolist() == [100]
    assert traced.header["dropped"] == 0


def test_rows_say_when_where_and_in_which_order(bench):
    before, traced, after = os.times().elapsed, bench.one("launch 5 stream 3 launch 5 sync"), os.times().elapsed
    kernels = np.sort(traced.of(KERNEL), order="correlation")
    began, ended = (int(traced.said(letter)[0]) for letter in "se")
    assert (kernels["end"] - kernels["start"] == 1000).all()
    assert kernels["start"].min() > began
    assert kernels["end"].max() < ended <= traced.header["ended_ns"]
    assert (ended - began) / 1e9 < after - before + 0.1
    assert (np.diff(kernels["start"].astype(np.int64)) > 0).all()
    assert kernels["stream"].tolist() == [7] * 5 + [10] * 5
    assert set(kernels["device"]) == {0}
    assert (kernels["extra"] == 1).all()
    assert traced.said("c") == ["8 2 1 128 1 1 32 1024 4096"]


def test_each_device_and_instance_is_known_by_its_uuid(bench):
    traced = bench.one("launch 3 device 1 launch 4 set 1 sync")
    assert np.bincount(traced.of(KERNEL)["device"]).tolist() == [3, 4]
    assert traced.of(SET)["device"].tolist() == [1]
    facts = [line for line in traced.said("i") if line.startswith("device")]
    assert facts == [
        "device 0 GPU-00010203-0405-0607-0809-0a0b0c0d0e0f",
        "device 1 MIG-10111213-1415-1617-1819-1a1b1c1d1e1f",
    ]


def test_work_belongs_to_the_innermost_range_of_its_launch(bench):
    words = "launch 1 push a launch 2 push-ex b driver 3 pop copy 1 9 pop set 8 push c launch 4 sync"
    traced = bench.one(words)
    assert traced.ranges() == {"": 1, "a": 2, "a/b": 3, "c": 4}
    assert traced.ranges(COPY) == {"a": 1}
    assert traced.ranges(SET) == {"": 1}
    assert set(traced.rows["owner"]) == {0}


def test_ranges_that_end_too_often_or_never_do_no_harm(bench):
    traced = bench.one("pop pop push a launch 1 pop pop pop launch 2 push b launch 3 push c launch 4 sync")
    assert traced.ranges() == {"a": 1, "": 2, "b": 3, "b/c": 4}


def test_ranges_nest_deeper_than_a_stack_holds(bench):
    traced = bench.one("push a " * 400 + "launch 1 " + "pop " * 399 + "launch 2 pop launch 3 sync")
    found = {path.count("a"): count for path, count in traced.ranges().items()}
    assert {0: 3, 1: 2}.items() <= found.items()
    assert sum(found.values()) == 6


def test_ranges_of_domains_count_unless_a_library_made_them(bench):
    traced = bench.one(
        "domain mine domain-push a launch 1 domain-registered b launch 2 domain-pop domain-pop "
        "domain NCCL domain-push all-reduce launch 3 domain-pop sync"
    )
    assert traced.ranges() == {"a": 1, "a/b": 2, "": 3}


def test_a_range_that_starts_and_ends_is_of_all_threads(bench):
    traced = bench.one("start epoch launch 1 threads 2 3 end launch 2 sync")
    assert traced.ranges().items() >= {"epoch": 1, "": 2}.items()
    assert sum(count for path, count in traced.ranges().items() if path.endswith(("thread 0", "thread 1"))) == 6


def test_threads_have_ranges_of_their_own(bench):
    traced = bench.one("push main threads 8 500 launch 7 sync")
    assert traced.ranges() == {"main": 7, **{f"thread {k}": 500 for k in range(8)}}
    kernels = traced.of(KERNEL)
    assert len(np.unique(kernels["thread"])) == 9
    for mark in np.unique(kernels["range"]):
        assert len(np.unique(kernels["thread"][kernels["range"] == mark])) == 1
    assert (kernels["thread"] > 0).all()


def test_a_graphs_kernels_belong_to_the_range_that_launches_them_else_to_where_they_were_captured(bench):
    traced = bench.one(
        "capture push a launch 3 pop push b launch 2 set 4 pop captured push c node pop instantiate "
        "graph 10 push replay graph 7 pop launch 1 sync"
    )
    assert traced.ranges() == {"a": 30, "b": 20, "c": 10, "replay": 42, "": 1}
    assert traced.ranges(SET) == {"b": 10, "replay": 7}
    kernels = np.sort(traced.of(KERNEL), order="correlation")
    assert np.unique(kernels["correlation"], return_counts=True)[1].tolist() == [6] * 17 + [1]


def test_kernels_of_graphs_without_functions_for_nodes_are_still_rows(bench):
    traced = bench.one("capture launch 3 captured instantiate graph 2 sync", FAKE_FAIL="cuptiGetGraphNodeId=1")
    assert sum(traced.counts().values()) == 6


@pytest.mark.parametrize("sync", ["sync", "sync-stream", "sync-event", "sync-driver"])
def test_a_wait_for_the_gpu_is_one_row_of_its_thread(bench, sync):
    traced = bench.one(f"launch 20 {sync} launch 1", FAKE_KERNEL_NS=1_000_000)
    (wait,) = traced.of(SYNC)
    kernels = np.sort(traced.of(KERNEL), order="start")
    assert kernels["end"][19] <= wait["end"]
    assert wait["start"] < wait["end"]
    assert wait["thread"] == kernels["thread"][0]


def test_waits_while_the_library_ends_are_not_the_programs(bench):
    assert len(bench.one("launch 10 sync").of(SYNC)) == 1


def test_dropped_records_are_counted(bench):
    traced = bench.one("launch 1000 sync", FAKE_DROP=10)
    assert len(traced.of(KERNEL)) == 900
    assert traced.header["dropped"] == 100


@pytest.mark.parametrize(
    "second", ["gamma", "void gemm<float>(float const*; float*)", ""], ids=["short", "same end", "none"]
)
def test_a_name_that_lies_where_another_lay_is_another_name(bench, second):
    first = "void norm<float>(float const*; float*)"
    words = ["names", "FIRST", "launch", "3", "sync", "unload", "SECOND", "launch", "4", "sync"]
    traced = bench.one([{"FIRST": first, "SECOND": second}.get(word, word) for word in words])
    assert traced.counts() == {first: 3, second: 4}


def test_work_that_never_ended_is_no_row_without_times(bench):
    """The program ends while kernels run: their records have no times."""
    traced = bench.one("launch 3 sync-event names gamma launch 2", FAKE_KERNEL_NS=50_000_000)
    rows = traced.rows
    assert (rows["start"] > 0).all()
    assert (rows["end"] > rows["start"]).all()
    assert traced.counts() == {"alpha": 2, "beta": 1, "gamma": 2}


@pytest.mark.thorough
def test_a_program_ends_though_its_gpu_does_not(bench):
    traced = bench.one("launch 1 driver 3", FAKE_KERNEL_NS=10**13)
    assert (traced.rows["end"] >= traced.rows["start"]).all()
    assert (traced.rows["start"] > 0).all()
    assert traced.header["ended_ns"] > 0


NAMES = ["two\nlines", "tab\there", "bell\x07", "ünï", "\udcff\udcfe not UTF-8", "x" * 3000, "y" * 40_000, "%s%n%d"]


def test_lines_of_text_are_whole_whatever_a_name_holds(bench):
    words = [part for name in NAMES for part in ("push", name, "launch", "1", "pop")]
    traced = bench.one(
        ["names", ",".join(reversed(NAMES)), *words, "launch", str(len(NAMES)), "threads", "40", "2", "sync"]
    )
    assert {line[:2] for line in traced.lines} <= {"n ", "m ", "s ", "e ", "i ", "w ", "c "}
    names = traced.said("n")
    assert {"two lines", "tab here", "bell ", "ünï", "x" * 3000, "%s%n%d"} <= set(names)
    assert len(names) == len(set(names))
    assert len(traced.said("s")) == len(traced.said("e")) == 1
    assert all(int(line.split()[0]) < number for number, line in enumerate(traced.said("m"), 1))
    assert traced.counts()["x" * 3000] > 0
    assert {f"thread {k}" for k in range(40)} <= set(traced.ranges())


def test_the_command_line_is_a_fact(bench):
    (line,) = [line for line in bench.one("launch 1 say hi sync").said("i") if line.startswith("cmdline")]
    assert line.split("\x1f")[1:] == ["launch", "1", "say", "hi", "sync"]


@pytest.mark.thorough
@pytest.mark.parametrize("duty", ["0.3 1e9 0.1 0.3 1e9", "1e9 200 0.1 0.3 1e9"], ids=["by time", "by kernels"])
def test_parts_of_a_program_are_traced_by_its_duty(bench, duty):
    traced = bench.one("rate 2000 1.5 sync", JOULETRACE_DUTY=duty)
    marks = [line.split() for line in traced.lines if line[0] in "se"]
    assert [kind for kind, _ in marks] == ["s", "e"] * (len(marks) // 2)
    assert len(marks) >= 4
    begin, end = np.array([int(at) for _, at in marks]).reshape(-1, 2).T
    kernels = traced.of(KERNEL)
    start = kernels["start"].astype(np.int64)[:, None]  # some of the last were launched, and waited for others
    assert ((start >= begin) & (start <= end + 10_000_000)).any(axis=1).all()
    assert len(kernels) > 0


@pytest.mark.thorough
def test_graphs_captured_while_tracing_pauses_are_known_afterwards(bench):
    begin = "launch 1 sync-driver sleep 300 names gamma capture push a launch 3 pop captured instantiate "
    traced = bench.one(begin + "graph 1 sleep 20 " * 60 + "sync", JOULETRACE_DUTY="0.1 1e9 0.2 0.6 1e9")
    assert traced.ranges().keys() == {"", "a"}
    assert traced.counts()["gamma"] == traced.ranges()["a"]


@pytest.mark.thorough
def test_a_pause_during_a_wait_does_not_hide_the_waits_after_it(bench):
    traced = bench.one(
        "launch 40 sync " + "launch 1 sync " * 60, FAKE_KERNEL_NS=20_000_000, JOULETRACE_DUTY="0.3 1e9 0.3 0.5 1e9"
    )
    assert len(traced.of(SYNC)) > 10


@pytest.mark.thorough
def test_graphs_of_many_nodes_are_known_whole(bench):
    """As those of a server of a large language model, which captures hundreds."""
    traced = bench.one("capture push a launch 150000 pop captured instantiate graph 1 sync", FAKE_KERNEL_NS=1)
    assert traced.ranges() == {"a": 150_000}


@pytest.mark.thorough
def test_graphs_captured_again_and_again_are_known_to_the_last(bench):
    once = "push a capture push b launch 20000 pop captured instantiate pop graph 1 destroy "
    traced = bench.one(once * 40 + "sync", FAKE_KERNEL_NS=1)
    assert traced.ranges() == {"a/b": 800_000}


@pytest.mark.thorough
def test_a_gpu_that_is_never_idle_does_not_keep_its_records(bench):
    """Then the open buffer holds a record of work under way, and comes when it is full alone."""
    process = bench.start("rate 8000 2 say done wait", FAKE_KERNEL_NS=120_000)
    assert process.stdout.readline() == "done\n"
    (traced,) = bench.traced()
    assert traced.header["rows"] > 2000
    process.communicate("x", timeout=60)
    assert process.returncode == 0


@pytest.mark.thorough
@pytest.mark.parametrize(("words", "kernel_us", "least"), [("both", 600, 5000), ("rate 60 3", 20_000, 80)])
def test_busy_gpus_keep_few_records(bench, words, kernel_us, least):
    """Two at once, each with buffers of its own; and one whose kernels are long and few."""
    process = bench.start(f"{words} say done wait", FAKE_KERNEL_NS=1000 * kernel_us)
    assert process.stdout.readline() == "done\n"
    (traced,) = bench.traced()
    assert traced.header["rows"] > least
    process.communicate("x", timeout=60)
    assert process.returncode == 0
