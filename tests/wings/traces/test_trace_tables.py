"""Tables of `nsys stats` and rocprofv3: kernels and copies are those of the file, by NumPy; changed files, too."""

import random

import numpy as np
import pytest

import jouletrace as jt
from import_logs import real, real_files
from jouletrace.errors import BadInputError

CHANGES = [8, pytest.param(1000, marks=pytest.mark.slow)]
"""How many changed files of each are read."""

START = np.cumsum(np.random.default_rng(3).integers(2_000, 90_000, 40)) + 63_855_948_165_371
LASTS = np.random.default_rng(4).integers(500, 2_000, 40)


def rocprof():
    header = (
        '"Kind","Agent_Id","Queue_Id","Dispatch_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp",'
    )
    header += '"VGPR_Count","Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z",'
    header += '"Grid_Size_X","Grid_Size_Y","Grid_Size_Z"'
    row = '"KERNEL_DISPATCH","Agent 4",1,{0},"gemm{1}(float*, int)",{0},{2},{3},32,64,4,1,512,8,1'
    rows = [
        row.format(k, k % 3, start, start + lasts) for k, (start, lasts) in enumerate(zip(START, LASTS, strict=True))
    ]
    return "\n".join([header, *rows]) + "\n"


def nsys():
    header = (
        "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    )
    header += "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name"
    row = '{2},{3},{0},8,2,1,64,4,1,32,0.000,0.000,,,,,NVIDIA RTX A4500 (0),1,,7,"gemm{1}(float*, int)"'
    begun = START - START[0] + 1_000
    rows = [row.format(k, k % 3, start, lasts) for k, (start, lasts) in enumerate(zip(begun, LASTS, strict=True))]
    return "\n".join([header, *rows]) + "\n"


TRACES = {"rocprofv3": rocprof, "nsys stats": nsys}


@pytest.mark.parametrize("name", TRACES)
def test_kernels_are_those_of_the_file(tmp_path, name):
    (tmp_path / "t.csv").write_text(TRACES[name]())
    run = jt.import_files(tmp_path / "t.csv")
    spans = run.spans.to_pylist()
    assert {span["kind"] for span in spans} == {"kernel"}
    assert [span["end_ns"] - span["start_ns"] for span in spans] == LASTS.tolist()
    assert np.diff([span["start_ns"] for span in spans]).tolist() == np.diff(START).tolist()
    assert {(span["grid_x"], span["grid_y"], span["block_x"], span["registers"]) for span in spans} == {(8, 2, 64, 32)}
    for kind in range(3):
        assert run.result("time_s", f"gemm{kind}(float*, int)").value == pytest.approx(LASTS[kind::3].sum() * 1e-9)


SUMMARIES = {
    "nsys stats": "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    '60.0,{},14,{},1,{},{},9,"gemm(float*, int)"\n40.0,100,1,100,100,100,100,0,relu\n',
    "rocprofv3": '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
    '"gemm(float*, int)",14,{},{},60.0,{},{},9\n"relu",1,100,100,40.0,100,100,0\n',
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_has_the_times_that_it_states(tmp_path, name):
    took = LASTS[::3]
    (tmp_path / "s.csv").write_text(SUMMARIES[name].format(took.sum(), took.mean(), took.min(), took.max()))
    run = jt.import_files(tmp_path / "s.csv")
    of = "gemm(float*, int)"
    assert run.result("time_s", of).value == pytest.approx(took.sum() * 1e-9)
    assert run.result("time_mean_s", of).value == pytest.approx(took.mean() * 1e-9)
    assert run.result("time_max_s", of).value == pytest.approx(took.max() * 1e-9)


@pytest.mark.parametrize("since_ns", [3 * 10**16, 1_772_532_000_123_456_789])
def test_kernels_last_as_long_after_a_year_of_uptime_and_since_1970(tmp_path, since_ns):
    text = rocprof()
    for time in {*START.tolist(), *(START + LASTS).tolist()}:
        text = text.replace(f",{time},", f",{time + since_ns},")
    (tmp_path / "t.csv").write_text(text)
    spans = jt.import_files(tmp_path / "t.csv").spans.to_pylist()
    assert [span["end_ns"] - span["start_ns"] for span in spans] == LASTS.tolist()


@pytest.mark.parametrize(
    "other",
    [
        "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
        "50.0,1000,2,500.0,500.0,400,600,1,cudaLaunchKernel\n",
        "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation\n"
        "100.0,3,33.0,33.0,30.0,36.0,1,[CUDA memcpy Host-to-Device]\n",
        nsys(),
    ],
    ids=["calls", "sizes", "trace"],
)
@pytest.mark.parametrize("behind", [True, False])
def test_reports_of_two_kinds_are_refused(tmp_path, other, behind):
    kernels = SUMMARIES["nsys stats"].format(9000, 642.8, 500, 900)
    (tmp_path / "s.csv").write_text("\n".join([kernels, other] if behind else [other, kernels]))
    with pytest.raises(BadInputError, match="of several kinds: print one: -r cuda_gpu_trace"):
        jt.import_files(tmp_path / "s.csv")


@pytest.mark.thorough
@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("name", TRACES)
def test_a_changed_trace_has_no_other_kernels(tmp_path, name, changes):
    lines, draw = TRACES[name]().splitlines(keepends=True), random.Random(name)
    for number in range(changes):
        way, first, second = draw.choice(["drop", "swap", "cut", "twice", "unit"]), *draw.sample(range(len(lines)), 2)
        now = lines.copy()
        if way == "swap":
            now[first], now[second] = now[second], now[first]
        else:
            now[first] = {"drop": "", "twice": 2 * now[first], "unit": now[first].replace("(ns)", "(us)")}.get(way, "")
        text = "".join(now) if way != "cut" else "".join(lines)[: draw.randrange(sum(map(len, lines)))]
        (tmp_path / "t.csv").write_text(text)
        try:
            run = jt.import_files(tmp_path / "t.csv")
        except BadInputError:
            continue
        spans = [span for span in run.spans.to_pylist() if span["start_ns"] is not None]
        lasts = [span["end_ns"] - span["start_ns"] for span in spans]
        factor = 1000 if way == "unit" and first == 0 and name == "nsys stats" else 1
        odd = set(lasts) - set((factor * LASTS).tolist())
        said = {warning.code for warning in run.warnings}
        assert not odd or (way == "cut" and len(odd) == 1 and "unfinished_line" in said), (number, way, odd)


@real_files
def test_a_real_trace_has_all_of_its_rows():
    (path,) = real("flame/fluidsGL_cuda_gpu_trace_base.csv")
    run = jt.import_files(path)
    assert len(run.spans) == len(path.read_text().splitlines()) - 1
