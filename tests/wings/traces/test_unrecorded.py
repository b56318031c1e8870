"""Launches whose kernels a timeline lacks: one outcome in all formats."""

import sqlite3

import pytest

import import_timelines
from commands import command
from foreign import event, write_kineto

LAUNCH, GRAPH = "cudaLaunchKernel", "cudaGraphLaunch"


def launches(calls, name=LAUNCH, process=1, took=10**4):
    """A call each 100 µs, with its number as the correlation."""
    return [event("cuda_runtime", name, 10**5 * k, took, process, process, {"correlation": k + 1}) for k in calls]


def kernels(calls, device=0, each=1):
    """The kernels of these calls."""
    return [
        event("kernel", f"k{n}", 10**5 * k + 20_000 * (n + 1), 15_000, device, 7, {
            "device": device, "stream": 7, "correlation": k + 1
        })
        for k in calls
        for n in range(each)
    ]  # fmt: skip


def capture(begins, ends):
    return launches([begins], "cudaStreamBeginCapture") + launches([ends], "cudaStreamEndCapture_v10000")


CASES = {
    "all": (launches(range(200)) + kernels(range(200)), "yes", None),
    "none of a graph's but the first": (launches(range(10), GRAPH) + kernels([0], each=4), "no", "9 of 10"),
    "graphs": (launches(range(10), GRAPH) + kernels(range(10), each=4), "yes", None),
    "half": (launches(range(20)) + kernels(range(10, 20)), "no", "10 of 20"),
    "the second half": (launches(range(20)) + kernels(range(10)), "no", "10 of 20"),
    "none beside copies": (launches(range(134)) + launches(range(134, 268), "cudaMemcpyAsync"), "no", "134 of 134"),
    "none, without numbers": ([one | {"args": {}} for one in launches(range(30))], "no", "30 of 30"),
    "a few": (launches(range(200)) + kernels(sorted({*range(200)} - {50, 90, 91})), "with care", "3 of 200"),
    "the last": (launches(range(200)) + kernels(range(199)), "yes", "1 of 200"),
    "of one of two processes": (
        launches(range(50)) + launches(range(50), process=2) + kernels(range(50), device=1), "no", "50 of 100",
    ),
    "of both of two processes": (
        launches(range(50)) + launches(range(50), process=2) + kernels(range(50)) + kernels(range(50), device=1),
        "yes", None,
    ),
    "sets of nothing and calls of the host": (
        launches(range(50)) + kernels(range(50)) + launches(range(50, 90), "cudaMemsetAsync", took=900)
        + launches(range(90, 120), "cudaLaunchHostFunc"), "yes", None,
    ),
    "captured": (
        capture(10, 40) + launches(range(11, 40)) + launches(range(41, 90), GRAPH) + kernels(range(41, 90), each=2),
        "yes", None,
    ),
    "captured by a call before the trace": (
        launches([40], "hipStreamEndCapture") + launches(range(40), "hipLaunchKernel")
        + launches(range(41, 90), "hipGraphLaunch") + kernels(range(41, 90)), "yes", None,
    ),
    "after a capture": (
        capture(10, 20) + launches(range(11, 20)) + launches(range(21, 61)) + kernels(range(21, 31)), "no", "30 of 40",
    ),
    "kernels without numbers": (
        launches(range(50)) + [one | {"args": {"device": 0, "stream": 7}} for one in kernels(range(50))], "yes", None,
    ),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_launches_without_a_kernel_cost_trust_by_how_many_they_are(workspace, capsys, case):
    events, trust, lost = CASES[case]
    write_kineto(workspace / "t.json", events, 10**18)
    said = command(capsys, "import", "t.json", "-o", "run", "-v")
    assert said.code == 0, said.err
    assert f"trust: {trust}, " in said.out
    assert ("launches have no kernel" in said.out) == (lost is not None)
    assert lost is None or f"{lost} launches have no kernel: " in said.out


def copies(calls, category="gpu_memcpy"):
    """The records of these copies or sets."""
    return [one | {"cat": category, "name": "Memcpy HtoD (Pinned -> Device)"} for one in kernels(calls)]


COPIES = {
    "half of the copies": (launches(range(40), "cudaMemcpyAsync") + copies(range(20)), "no", "20 of 40"),
    "half of the sets": (
        launches(range(40), "cudaMemsetAsync") + copies(range(0, 40, 2), "gpu_memset"), "no", "20 of 40"
    ),
    "all copies of a driver": (launches(range(40), "cuMemcpyHtoDAsync_v2"), "no", "40 of 40"),
    "a few": (launches(range(200), "cudaMemcpyAsync") + copies({*range(200)} - {50, 90}), "with care", "2 of 200"),
    "the last": (launches(range(200), "cudaMemcpyAsync") + copies(range(199)), "yes", "1 of 200"),
    "none": (launches(range(200), "cudaMemcpyAsync") + copies(range(200)), "yes", None),
    "of 0 bytes": (launches(range(40), "cudaMemcpyAsync", took=990) + copies(range(20)), "yes", None),
    "captured": (
        capture(0, 30) + launches(range(1, 30), "cudaMemcpyAsync") + launches(range(40, 60), "cudaMemcpyAsync")
        + copies(range(40, 60)), "yes", None,
    ),
    "without numbers": (
        launches(range(40), "cudaMemcpyAsync")
        + [one | {"args": {"device": 0, "stream": 7}} for one in copies(range(40))], "yes", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", COPIES)
def test_copies_without_a_record_cost_trust_by_how_many_they_are(workspace, capsys, case):
    events, trust, lost = COPIES[case]
    write_kineto(workspace / "t.json", [*events, *launches([1000]), *kernels([1000])], 10**18)
    said = command(capsys, "import", "t.json", "-o", "run", "-v")
    assert said.code == 0, said.err
    assert f"trust: {trust}, " in said.out
    assert ("copies and sets have no record" in said.out) == (lost is not None)
    assert lost is None or f"{lost} copies and sets have no record: " in said.out


def test_an_export_of_nsys_that_lost_kernels_says_how_many(workspace, capsys):
    import_timelines.nsys("a.sqlite", launches=20, processes=2)
    with sqlite3.connect("a.sqlite") as base:
        base.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE correlationId % 4 = 1")
    said = command(capsys, "import", "a.sqlite", "-o", "run")
    assert "trust: no, " in said.out
    assert "20 of 80 launches have no kernel: what they ran is in no figure" in said.out


def test_traces_of_nvprof_that_lost_kernels_say_how_many(workspace, capsys):
    calls = "".join(f'{k}.0,5.0,"cudaLaunchKernel (add(float*, int) [{k}])",\n' for k in range(1, 21))
    ran = "".join(f'{k}.5,90.0,"Tesla V100 (0)","1","7","add(float*, int) [{k}]"\n' for k in range(1, 21) if k % 2)
    (workspace / "p.csv").write_text(
        "==1== NVPROF is profiling process 1, command: ./add\n==1== Profiling result:\n"
        f'"Start","Duration","Device","Context","Stream","Name"\nms,us,,,,\n{ran}'
        f'==1== API trace:\n"Start","Duration","Name","Correlation_ID"\nms,us,,\n{calls}'
    )
    said = command(capsys, "import", "p.csv", "-o", "run")
    assert "trust: no, " in said.out
    assert "10 of 20 launches have no kernel: " in said.out


GRID = '"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Size",'
MIXED = {
    "grid": (GRID, "1,1,1,256,1,1,", ",,,,,,8", ",,,,,,", "ms,us,,,,,,,KB,"),
    "no grid": ('"Start","Duration",', "", "", "", "ms,us,"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("columns", MIXED)
@pytest.mark.parametrize("of_call", ['"","",""', '"Tesla V100 (0)","1","7"', '"Tesla V100 (0)","1",""', '"-","-","-"'])
@pytest.mark.parametrize("lost", [0, 5])
def test_calls_among_the_kernels_of_nvprof_are_no_kernels(workspace, capsys, columns, of_call, lost):
    header, grid, size, none, in_units = MIXED[columns]
    grid, size, none = (f"{cells}," if cells else "" for cells in (grid, size, none))
    rows = []
    for k in range(1, 11):
        rows.append(f'{k}.0,5.0,{none}{of_call},"cudaLaunchKernel (add(float*, int) [{k}])"')
        rows += [f'{k}.2,40.0,{grid}"Tesla V100 (0)","1","7","add(float*, int) [{k}]"'] if k > lost else []
        rows += [f'{k}.4,5.0,{none}{of_call},"cudaMemcpyAsync"', f'{k}.5,2.0,{none}{of_call},"cudaFree"']
    rows.append(f'30.0,10.0,{size}"Tesla V100 (0)","1","7","[CUDA memcpy HtoD]"')
    (workspace / "p.csv").write_text(
        "==1== NVPROF is profiling process 1, command: ./add\n==1== Profiling result:\n"
        f'{header}"Device","Context","Stream","Name"\n{in_units},,,\n' + "\n".join(rows) + "\n"
    )
    said = command(capsys, "import", "p.csv", "-o", "run")
    assert f"{11 - lost} kernels and copies" in said.out
    listed = said.out.partition("Operators and kernels")[2]
    assert "add" in listed
    assert "cuda" not in listed
    assert (f"{lost} of 10 launches have no kernel" in said.out) == bool(lost)
