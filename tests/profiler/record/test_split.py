"""Where the energy of a recorded loop went, with what it launches on a GPU that isn't there."""

import ast
import os

import numpy as np
import pytest

import jouletrace as jt
from jouletrace.profiler.record import split
from jouletrace.profiler.record.ranks import merge_ranks
from jouletrace.profiler.record.split import largest, totals
from jouletrace.report.content import summary
from jouletrace.run import DeviceInfo, recording_of
from jouletrace.tracer import Launched, ProcessTrace
from places import REPOSITORY
from recorded_program import REAL, run
from records import channel, make_run, ns, phases, readings
from thinned import thinned


@pytest.fixture
def printed(bench):
    """Runs a program that records itself, and returns what it prints, one value a line."""
    return lambda code, **extra: [ast.literal_eval(line) for line in run(bench, code, **extra)]


LOOP = """
def loop(steps=20):
    for _ in range(steps):
        with jt.range("forward"):
            launch("gemm")
            with jt.range("head"): launch("softmax")
        launch("adam"); sync(); time.sleep(0.01)
        jt.step()
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "start", ["init()\nwith record(save_to='run') as r:\n", "with record(save_to='run') as r:\n init()\n"]
)
def test_a_recording_is_split_by_range_and_kernel(printed, bench, start):
    counts, inside, left, warned = printed(
        f"{LOOP}{start} loop()\nprint(counts(r)); print(inside(r)); print(left()); print(warned(r))"
    )
    assert counts == {"gemm": 20, "softmax": 20, "adam": 20}
    assert inside == {("forward", "gemm"): 20, ("forward.head", "softmax"): 20, (None, "adam"): 20}
    assert (left, warned) == ([], [])
    found, run = jt.load(bench.folder / "run" / "kernels"), jt.load(bench.folder / "run")
    assert (found.kind, found.workload["name"]) == ("program", "tiny")
    assert run.complete
    assert not run.warnings
    spans = {unit["name"]: unit["count"] for unit in run.units.to_pylist() if unit["level"] == "range"}
    assert spans == {"forward": 20, "forward/head": 20, "step": 20}
    total, whole = found.result("energy_total_j").value, run.result("energy_total_j", 1).value
    assert total == pytest.approx(whole, rel=0.2), "of nearly the same time"
    assert sum(recording_of(found)["idle_by"].values()) == pytest.approx(1)


@pytest.mark.thorough
def test_recordings_follow_one_another_and_only_their_own_kernels_count(printed):
    first, between, second, third = printed("""
with record() as r: launch("before CUDA's start, which begins here")
print(list(counts(r).values())); launch("between"); print(left())
for n in (1, 2):
    with record() as r:
        opened = r.marks.begin("left open")
        with jt.range("range"): launch(f"gemm{n}", n)
        launch("late")
    launch("between"); sync(); print(inside(r))
""")
    assert (first, between) == ([1], [])
    assert second == {("left open.range", "gemm1"): 1, ("left open", "late"): 1}
    assert third == {("left open.range", "gemm2"): 2, ("left open", "late"): 1}


@pytest.mark.thorough
def test_ranges_of_threads_hold_what_each_launches(printed):
    (inside,) = printed("""
init()
def work(name):
    for _ in range(50):
        with jt.range(name): launch(f"of {name}")
with record() as r:
    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
    for one in threads: one.start()
    for one in threads: one.join()
    opened = r.marks.begin("across")
    launch("within")
    one = threading.Thread(target=lambda: r.marks.end(opened)); one.start(); one.join()
    with jt.range("after"): launch("then")
    outer, inner = r.marks.begin("outer"), r.marks.begin("inner")
    r.marks.end(outer); launch("crossing"); r.marks.end(inner)
    launch("outside"); sync()
print(inside(r))
""")
    assert inside == {
        **{("a", "of a"): 50, ("b", "of b"): 50, ("across", "within"): 1, ("after", "then"): 1},
        **{("outer.inner", "crossing"): 1, (None, "outside"): 1},
    }


@pytest.mark.thorough
def test_ranges_that_began_before_cuda_hold_kernels(printed):
    (inside,) = printed("""
with record() as r, jt.range("all"):
    with jt.range("set up"): pass
    with jt.range("run"): init(); launch("gemm", 3); sync()
print(inside(r))
""")
    assert inside == {("all.run", "gemm"): 3}


@pytest.mark.thorough
@pytest.mark.parametrize("first", ["init()", ""])
def test_a_fork_traces_nothing_and_leaves_the_files(printed, first):
    code, counts = printed(f"""
{first}
with record() as r:
    child = os.fork()
    if not child:
        with jt.range("forked"):
            if not {first!r}: init(); launch("forked")
            os._exit(3 if left() else 5)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    launch("gemm", 7); sync()
print(counts(r))
""")
    assert code == 5
    assert counts == {"gemm": 7}


@pytest.mark.thorough
@pytest.mark.parametrize("first", ["init()", ""])
def test_kernels_of_a_process_that_is_started_belong_to_the_recording(printed, first):
    (inside,) = printed(f"""
{first}
child = 'import ctypes; cuda = ctypes.CDLL("libcuda.so.1"); name = ctypes.create_string_buffer(b"child"); '
child += 'cuda.cuInit(0); [cuda.cudaLaunchKernel(name) for _ in range(4)]; cuda.cudaDeviceSynchronize()'
with record() as r:
    subprocess.run([sys.executable, "-c", child], check=True)
    launch("own", 2); sync()
print(inside(r))
""")
    assert {(name, count) for (_, name), count in inside.items()} == {("own", 2), ("child", 4)}
    assert all("(" in path for path, _ in inside), "processes that share a GPU are told apart"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("first", "why", "said"),
    thinned(
        [
            ("init()", {"FAKE_FAIL": "cuptiSubscribe=39"}, "another profiler holds CUPTI"),
            ("", {"FAKE_FAIL": "cuptiActivityEnable=35"}, "no permission"),
            ("init()", {"FAKE_VERSION": 17}, "version 17"),
            ("", {"BUILT": "/nowhere"}, "isn't built"),
            ("", {"CUDA_INJECTION64_PATH": "none"}, "CUDA_INJECTION64_PATH is set to none"),
        ],
        2,
    ),
)
def test_what_cannot_be_traced_is_reported_and_power_recorded(printed, first, why, said):
    left, (warning,), split, complete = printed(
        f"""
{first}
before = left()
with record() as r, jt.range("work"): init(); launch("gemm"); sync(); time.sleep(0.2)
print(left() == before); print(warned(r)); print(counts(r)); print(r.run.complete)
""",
        **why,
    )
    assert (left, split, complete) == (True, {}, True)
    assert said in warning


@pytest.mark.thorough
def test_a_process_that_is_traced_already_is_not_traced_twice(printed, bench):
    native = bench.built / "native.so"
    counts, (warning,) = printed(
        'with record() as r: launch("gemm", 3); sync()\nprint(counts(r)); print(warned(r))',
        JOULETRACE_TRACE=bench.traces,
        CUDA_INJECTION64_PATH=native,
    )
    assert counts == {}
    assert "this process is traced already, and its kernels are in that Run" in warning
    (outer,) = bench.traced()
    assert outer.counts() == {"gemm": 3}


@pytest.mark.thorough
def test_kernels_are_recorded_after_torch_s_profiler_which_keeps_cupti(printed):
    inside, (note,) = printed(
        """
import torch
init()
with record(annotations=False) as r:
    with jt.range("range"): launch("gemm", 3); sync()
print(inside(r)); print([one.message for one in r.split.warnings if one.code == "profiler_inside"])
""",
        FAKE_FAIL="cuptiSubscribe=39",
    )
    assert inside == {(None, "gemm"): 3}
    assert "keeps CUPTI: kernels have no modules and ranges" in note


@pytest.mark.thorough
def test_faults_do_not_lose_the_recording(printed, bench):
    complete, said, counts, left, warned, updates = printed("""
from jouletrace.profiler.record import split
init(); seen = []
try:
    with record(save_to="failed", on_update=seen.append, update_s=0.2) as r:
        launch("gemm", 3); sync()
        while not seen: time.sleep(0.05)
        raise ValueError("the loop's own")
except ValueError: pass
print(r.run.complete); print("early by ValueError: the loop's own" in r.summary()); print(counts(r)); print(left())
split.gpus_of = lambda *_: 1 / 0
with record(save_to="run") as r: launch("gemm"); sync()
print(warned(r, "not_attributed")); print(len(seen) > 0)
""")
    assert (complete, said, counts, left, updates) == (False, True, {"gemm": 3}, [], True)
    assert "ZeroDivisionError" in warned[0]
    assert jt.load(bench.folder / "run").complete
    assert not jt.load(bench.folder / "failed").complete


@pytest.mark.thorough
def test_a_cell_of_a_notebook_is_split(printed):
    (counts,) = printed("""
import io, types
from contextlib import redirect_stdout
magics, shell = {}, types.SimpleNamespace(user_ns=globals())
shell.register_magic_function = lambda function, kind, name: magics.update({name: function})
def run_cell(cell):
    exec(cell, globals())
    return types.SimpleNamespace(error_before_exec=None, error_in_exec=None)
shell.run_cell, shell.transform_cell = run_cell, str
jt.load_ipython_extension(shell)
with redirect_stdout(io.StringIO()) as shown: magics["joules"](f"cell --device '{REAL}'", "launch('gemm', 4); sync()")
print({row["name"]: row["count"] for row in _joules_split.units.to_pylist() if row["level"] == "kernel"})
""")
    assert counts == {"gemm": 4}


@pytest.mark.thorough
def test_the_split_of_a_zip_lies_beside_it(printed, bench):
    printed("init()\nwith record(save_to='run.zip'): launch('gemm'); sync()")
    assert sorted(path.name for path in bench.folder.iterdir()) == ["run.kernels", "run.zip", "traces"]
    assert jt.load(bench.folder / "run.kernels").kind == "program"


@pytest.mark.thorough
@pytest.mark.parametrize("options", [{"kernels": False}, {"device": "cpu"}])
def test_without_kernels_there_is_no_split(tmp_path, options):
    with jt.record(**{"device": REAL, "save_to": tmp_path / "run", **options}) as recording, jt.range("work"):
        assert "JOULETRACE_TRACE" not in os.environ
    assert recording.split is None
    assert not (tmp_path / "run" / "kernels").exists()
    assert not [warning for warning in recording.run.warnings if warning.code == "not_traced"]


@pytest.mark.thorough
def test_the_largest_parts_are_printed_and_logged():
    found = jt.load(REPOSITORY / "docs" / "results" / "runs" / "resnet50-run-h200.zip")
    assert "backward 56 %" in summary(found).splitlines()[1]
    shares = [int(line.split(" %")[0].split()[-1]) for line in largest(found)]
    assert len(shares) == 6
    assert shares == sorted(shares, reverse=True)
    logged = totals(found, found)
    assert logged["energy_backward_j"] == pytest.approx(0.56 * 7575, rel=0.02)
    assert logged["energy_idle_j"] == pytest.approx(0.08 * 7575, rel=0.1)


SUM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"


def part_of_rank(place, rank, late_s, since=1.0):
    """The part of a rank: for 2 s products of 5 ms, each with a sum after it that ends once both ranks have come."""
    device = f"GPU-{rank}"
    at = since + 0.02 * np.arange(100)
    gemm, all_reduce = (at, at + 0.005 + late_s), (at + 0.005 + late_s, at + 0.016)
    start, end = (
        np.array([np.vectorize(ns)(one) for one in edges]).T.ravel() for edges in zip(gemm, all_reduce, strict=True)
    )
    work = Launched.from_columns(("gemm", SUM), np.arange(200) % 2, start.astype(np.int64), end.astype(np.int64))
    run = make_run(
        readings(300.0, 10.0, noise=0.3, device=device),
        kind="record",
        spans=[{**row, "device": device} for row in phases(("monitor", 0.5, 9.5), ("program", 0.5 + 0.1 * rank, 9.5))],
        channels=[channel(device=device)],
    )
    run.devices, run.clock_pairs = [DeviceInfo(device, "GPU by hand")], []
    run.workload = {"name": "x", "rank": rank, "world_size": 2, "restart": 0}
    run.save(str(place / f"rank-{rank}"))
    split.leave([ProcessTrace(100 + rank, "x", rank, [device], work, [(ns(0.5), ns(9.5))])], place / f"rank-{rank}")


@pytest.mark.thorough
def test_the_first_rank_says_how_long_each_waits_for_the_other(tmp_path):
    part_of_rank(tmp_path, 0, 0.0)
    part_of_rank(tmp_path, 1, 0.002)
    run = merge_ranks(tmp_path)
    assert not [warning for warning in run.warnings if warning.code in ("not_attributed", "child_lost")]
    found = jt.load(tmp_path / "kernels")
    ranks = {row["id"]: row["name"].partition(":")[0] for row in found.units.to_pylist() if row["level"] == "device"}
    seconds = {
        (ranks[row["parent"]], row["name"]): found.result("time_s", row["id"]).value
        for row in found.units.to_pylist()
        if row["level"] == "phase"
    }
    assert seconds["rank-0", "waiting for other ranks"] == pytest.approx(100 * 0.002, rel=0.01)
    assert seconds["rank-0", "communication"] == pytest.approx(100 * 0.009, rel=0.01)
    assert ("rank-1", "waiting for other ranks") not in seconds
    assert [(gpu["last"], gpu["collectives"]) for gpu in found.workload["recordings"]] == [(0, 100), (100, 100)]
    assert not list((tmp_path / "kernels").glob("*/")), "one Run holds both"
    lines = [*summary(found).splitlines(), *largest(found)]
    assert "rank-1 comes last in 100 % of 100 collectives" in "\n".join(lines)
    assert "rank-0 waits longest, 200 ms in all" in "\n".join(lines), "without an energy, which 2 s don't give"
    assert len(lines) <= 12


@pytest.mark.thorough
def test_the_kernels_of_a_rank_that_cannot_be_read_are_named(tmp_path):
    for rank in (0, 1):
        part_of_rank(tmp_path, rank, 0.0)
    (tmp_path / "rank-1" / split.TRACED).write_bytes(b"x")
    run = merge_ranks(tmp_path)
    assert any("what rank-1 ran can't be read" in warning.message for warning in run.warnings)
    assert recording_of(jt.load(tmp_path / "kernels"))["device"] == "GPU-0"


@pytest.mark.thorough
def test_a_rank_leaves_its_kernels_in_its_part(printed, bench):
    (left,) = printed(
        "init()\nwith record(save_to='run') as r: launch('gemm', 6); sync()\nprint(counts(r))",
        RANK=1,
        LOCAL_RANK=1,
        WORLD_SIZE=2,
    )
    assert left == {}
    traced = ProcessTrace.load(bench.folder / "run" / "rank-1" / split.TRACED)
    assert (traced.rank, len(traced.work)) == (1, 6)
