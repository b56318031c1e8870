"""ncu pages: SI units whatever the version and the locale, and matching launches to a timeline."""

import csv
import random

import numpy as np
import pyarrow as pa
import pytest

import check_trace
import import_timelines as make
from commands import command
from damaged import read_damaged
from jouletrace.analysis import analyse
from jouletrace.errors import BadInputError
from jouletrace.formats.exporters import export
from jouletrace.formats.importers import Coded, ImportOptions, block, read_files
from jouletrace.formats.importers.units import decimal_sign, number
from jouletrace.run import ChannelInfo, DeviceInfo, Run, load, tables
from jouletrace.wings.traces import match_launches, ncu
from jouletrace.wings.traces.ncu import to_si
from jouletrace.wings.traces.ncu_match import base_name
from places import DATA, SAMPLES

PAGES = sorted((SAMPLES / "h100").glob("ncu*.csv"))
LAUNCHES = [(make.GEMM, (8, 1, 1)), (make.RELU, (16, 1, 1))]


def read(path):
    return ncu.read(path, ImportOptions())


def readings(run, span=0):
    return {
        (r["section"], r["metric"]): (r["value"], r["value_unit"])
        for r in run.counters.to_pylist()
        if r["span"] == span
    }


def codes(run):
    return {warning.code: warning.message for warning in run.warnings}


def test_the_details_page_becomes_counters_in_si_units(tmp_path):
    run = read(make.ncu_details(tmp_path / "a.csv", LAUNCHES))
    found = readings(run)
    speed, memory = "GPU Speed Of Light Throughput", "Memory Workload Analysis"
    assert found[speed, "Memory Throughput"] == (13.12, "%")
    assert found[speed, "DRAM Frequency"] == (pytest.approx(2.5e9), "Hz")
    assert found[speed, "Duration"] == (pytest.approx(1234.5e-6), "s")
    assert found[memory, "Memory Throughput"] == (1.5e9, "B/s")
    assert found["Occupancy", "Achieved Occupancy"] == (None, "%")
    assert found["Launch Statistics", "Registers Per Thread"] == (32.0, "register/thread")
    assert len(run.counters) == 12
    spans = run.spans.to_pylist()
    assert [(s["name"], s["grid_x"], s["block_x"], s["start_ns"]) for s in spans] == [
        (make.GEMM, 8, 128, None),
        (make.RELU, 16, 128, None),
    ]


def test_a_text_with_a_comma_changes_no_number(tmp_path):
    metrics = [("S", "kernel", "", "f<4, 2>"), ("S", "a", "ns", "1,234"), ("S", "b", "ns", "(!) 2,345")]
    found = readings(read(make.ncu_details(tmp_path / "a.csv", LAUNCHES, metrics=metrics)))
    assert (found["S", "a"][0], found["S", "b"][0]) == (pytest.approx(1234e-9), pytest.approx(2345e-9))


def test_a_percentage_below_zero_is_null_and_counted(tmp_path):
    metrics = [("S", "a", "%", "-0.51"), ("S", "b", "cycle", "-3"), ("S", "c", "%", "0")]
    run = read(make.ncu_details(tmp_path / "a.csv", LAUNCHES, metrics=metrics))
    assert [value for value, _ in readings(run).values()] == [None, -3.0, 0.0]
    assert codes(run)["below_zero"].startswith("2 ")


def test_what_isnt_a_reading_is_counted(tmp_path):
    run = read(make.ncu_details(tmp_path / "a.csv", LAUNCHES))
    assert run.settings["imported"][0]["rules"] == 2
    assert codes(run)["text_metrics"].startswith("2 ")
    assert codes(run)["other_lines"].startswith("2 ")


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ('"' + "x" * 200_000 + '"\n', 1),  # longer than a cell may be
        ('"' + "x" * 200_000 + '"\n' + '"' + "y" * 200_000 + '"\n', 2),
        ('"never closed\n' + "text\n" * 2000, 1),
    ],
)
def test_rows_that_cannot_be_read_are_counted_once(tmp_path, rows, count):
    path = make.ncu_details(tmp_path / "a.csv", LAUNCHES)
    header, _, rest = path.read_text().partition("\n")
    path.write_text(f"{header}\n{rest}{rows}")
    found = read(path)
    assert len(found.spans) == 2
    assert codes(found)["bad_rows"].split()[0] == str(count)


def test_an_older_page_without_rules_reads_the_same(tmp_path):
    new = read(make.ncu_details(tmp_path / "a.csv", LAUNCHES))
    old = read(make.ncu_details(tmp_path / "b.csv", LAUNCHES, rules=False))
    assert old.counters.equals(new.counters)


def test_the_raw_page_becomes_counters_in_si_units(tmp_path):
    run = read(make.ncu_raw(tmp_path / "a.csv", LAUNCHES))
    assert readings(run, 1) == {
        (None, "dram__bytes.sum"): (1024.5e6, "B"),
        (None, "sm__throughput.avg.pct_of_peak_sustained_elapsed"): (1.25, "%"),
    }
    assert codes(run)["text_metrics"].startswith("2 ")


def test_a_raw_page_without_needless_quotation_marks_keeps_its_units(tmp_path):
    page = make.ncu_raw(tmp_path / "page.csv", LAUNCHES)
    again = tmp_path / "again.csv"
    with again.open("w", newline="") as file:
        csv.writer(file).writerows(csv.reader(page.open(newline="")))  # as a spreadsheet saves it
    assert read_files([again]).counters.equals(read_files([page]).counters)


def test_numbers_of_another_locale_are_read(tmp_path):
    metrics = [("S", "a", "ns", "1.234"), ("S", "b", "%", "13,12"), ("S", "c", "", "1.234.567,5")]
    found = readings(read(make.ncu_details(tmp_path / "a.csv", LAUNCHES, metrics=metrics)))
    assert found["S", "a"] == (pytest.approx(1234e-9), "s")
    assert (found["S", "b"][0], found["S", "c"][0]) == (13.12, 1234567.5)


@pytest.mark.parametrize(("texts", "sign"), [
    (["1,234"], "."), (["1,234", "0.5"], "."), (["0,5"], ","), (["1.234", "1,5"], ","), (["1.234,5"], ","),
    (["0.123"], "."), ([], "."), (["1.234.567"], "."), (["f<4, 2>", "1,234"], "."), (["a,b", "0,5"], ","),
])  # fmt: skip
def test_the_decimal_sign_is_determined_from_what_leaves_no_doubt(texts, sign):
    assert decimal_sign(texts) == sign


@pytest.mark.parametrize("text", ["1_000", "inf", "twelve", "1,2x"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match="not a"):
        number(text)


@pytest.mark.parametrize(("unit", "factor", "si"), [
    ("nsecond", 1e-9, "s"), ("ns", 1e-9, "s"), ("usecond", 1e-6, "s"), ("ms", 1e-3, "s"), ("second", 1.0, "s"),
    ("Gbyte/second", 1e9, "B/s"), ("GB/s", 1e9, "B/s"), ("Kbyte", 1e3, "B"), ("byte/block", 1.0, "B/block"),
    ("Kbyte/block", 1e3, "B/block"), ("hz", 1.0, "Hz"), ("Mhz", 1e6, "Hz"), ("cycle/nsecond", 1e9, "Hz"),
    ("cycle/usecond", 1e6, "Hz"), ("%", 1.0, "%"), ("inst/cycle", 1.0, "inst/cycle"), ("", 1.0, "1"),
    ("cycle", 1.0, "cycle"),
])  # fmt: skip
def test_units_of_all_versions_go_to_si(unit, factor, si):
    assert to_si(unit) == (pytest.approx(factor), si)


@pytest.mark.parametrize(("name", "base"), [
    ("void at::native::vectorized_elementwise_kernel<4, f(int)#1>(int, float)", "vectorized_elementwise_kernel"),
    ("void at::f_kernel<8, g(at::X &)::[lambda(float) (instance 1)], std::array<char *, 2>>(int, T2)", "f_kernel"),
    ("void at::native::(anonymous namespace)::softmax<float>(float*)", "softmax"),
    ("void <unnamed>::softmax<float>(float*)", "softmax"),
    ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
    ("nvjet_hsh_128x8_64x11_2x1_v_bz_TNT", "nvjet_hsh_128x8_64x11_2x1_v_bz_TNT"),
    ("std::enable_if<true, void>::type internal::gemvx::kernel<int, (bool)1>(T13)", "kernel"),
    ("", ""),
])  # fmt: skip
def test_the_base_name_is_the_same_for_all_demanglers(name, base):
    assert base_name(name) == base


def spans(kernels, timed=True):
    """Kernels (name, grid) one after the other."""
    names = sorted({name for name, _ in kernels})
    start = np.arange(len(kernels)) * 10
    ones = dict.fromkeys(("grid_y", "grid_z", "block_x", "block_y", "block_z"), np.ones(len(kernels)))
    return block(
        "spans",
        len(kernels),
        id=np.arange(len(kernels)),
        kind="kernel",
        name=Coded(np.array([names.index(name) for name, _ in kernels]), names),
        device="imported:0",
        start_ns=start if timed else None,
        end_ns=start + 5 if timed else None,
        **ones,
        grid_x=np.array([grid for _, grid in kernels]),
    )


def test_the_same_program_is_matched_launch_by_launch():
    kernels = [("a<1>(x)", 1), ("b", 1), ("a<1>(x)", 2), ("a<1>(x)", 1)]
    rows, facts = match_launches(
        spans([(n.replace("a<", "void q::a<"), g) for n, g in kernels], timed=False), spans(kernels)
    )
    assert rows.tolist() == [0, 1, 2, 3]
    assert facts["rate"] == 1.0


def test_names_that_repeat_with_other_grids_are_never_mixed_up():
    timeline = spans([("a", 1), ("a", 2), ("a", 3), ("b", 1)])
    rows, _ = match_launches(spans([("a", 3), ("b", 1), ("a", 1), ("a", 2)], timed=False), timeline)
    assert rows.tolist() == [2, 3, 0, 1]


def test_launches_that_cant_be_distinguished_are_ambiguous_and_left():
    timeline = spans([("a", 1), ("b", 1)] * 3)
    rows, facts = match_launches(spans([("a", 1), ("b", 1), ("c", 1)], timed=False), timeline)
    assert rows.tolist() == [-1, -1, -1]
    assert (facts["ambiguous"], facts["unknown"]) == (2, 1)


def test_an_unbroken_segment_of_the_timeline_is_detected():
    timeline = spans([("a", 1), ("b", 1), ("a", 2), ("b", 1), ("a", 1)])
    rows, _ = match_launches(spans([("b", 1), ("a", 2), ("b", 1)], timed=False), timeline)
    assert rows.tolist() == [1, 2, 3]


@pytest.mark.parametrize("seed", range(5))
def test_a_deterministic_program_is_matched_wholly_and_rightly(seed):
    draw = random.Random(seed)
    kernels = [(draw.choice("abcd"), draw.randint(1, 4)) for _ in range(300)]
    assert match_launches(spans(kernels, timed=False), spans(kernels))[0].tolist() == list(range(300))


def test_counters_move_to_the_kernels_of_a_timeline(tmp_path):
    timeline = make.nsys(tmp_path / "a.sqlite", launches=2)
    page = make.ncu_details(tmp_path / "a.csv", [(make.GEMM, (8, 1, 1)), (make.RELU, (16, 1, 1))] * 2)
    run = read_files([timeline, page])
    kernels = [row for row in run.spans.to_pylist() if row["kind"] == "kernel"]
    assert len(kernels) == 4
    assert {row["span"] for row in run.counters.to_pylist()} == {row["id"] for row in kernels}
    assert run.settings["imported"][1]["match"] == {
        "launches": 4,
        "matched": 4,
        "rate": 1.0,
        "ambiguous": 0,
        "unknown": 0,
    }


def test_launches_that_arent_in_the_timeline_stay_with_their_counters(tmp_path):
    timeline = make.nsys(tmp_path / "a.sqlite", launches=2)
    page = make.ncu_details(tmp_path / "a.csv", [("other", (1, 1, 1))])
    run = read_files([timeline, page])
    alone = [row for row in run.spans.to_pylist() if row["kind"] == "kernel" and row["start_ns"] is None]
    assert [row["name"] for row in alone] == ["other"]
    assert {row["span"] for row in run.counters.to_pylist()} == {alone[0]["id"]}
    assert "1 are not in it" in codes(run)["counters_unmatched"]


def test_counters_are_brought_to_a_trace_of_another_tool(tmp_path):
    trace = make.kineto(tmp_path / "t.json", steps=1)
    page = make.ncu_raw(tmp_path / "a.csv", [(make.GEMM, (8, 1, 1)), (make.RELU, (16, 2, 1))])
    assert read_files([page, trace]).settings["imported"][0]["match"]["matched"] == 2


@pytest.mark.parametrize("text", ["==PROF== Connected to process 1\n", '"ID","Process ID","Kernel Name"\n'])
def test_a_page_without_launches_is_one_line(tmp_path, text):
    with pytest.raises(BadInputError, match=r"a\.csv: no"):
        read(make.write(tmp_path / "a.csv", text))


def test_a_page_that_breaks_off_is_imported_up_to_there(tmp_path):
    text = make.ncu_details(tmp_path / "a.csv", LAUNCHES).read_text()
    run = read(make.write(tmp_path / "a.csv", text[: text.index("Registers Per") + 4]))
    assert len(run.counters) == 5
    assert "cut_off" in codes(run)


ITERATION = [("gemm", (8, 1, 1)), ("relu", (4, 1, 1)), ("gemm", (8, 1, 1)), ("gemm", (2, 1, 1)), ("sum", (1, 1, 1))]


def live(path, iterations=3):
    """A Run that jouletrace measured itself: iterations of the same kernels, and power."""
    run = Run(kind="profile", workload={"name": "toy"}, devices=[DeviceInfo("GPU-1", "NVIDIA H100", index=3)])
    made = []
    for k in range(iterations):
        t, top = make.BASE_NS + 10**6 * k, len(made)
        step = {"kind": "iteration", "name": "step", "lane": "tracing", "start_ns": t, "end_ns": t + 900_000}
        made.append({"id": top, **step})
        for i, (name, grid) in enumerate(ITERATION):
            row = {
                "id": top + 1 + i,
                "parent": top,
                "kind": "kernel",
                "name": name,
                "device": "GPU-1",
                "lane": "stream 7",
            }
            axes = {"grid_x": grid[0], "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
            made.append({**row, "start_ns": t + 10**5 * i, "end_ns": t + 10**5 * i + 50_000, **axes})
    run.spans = tables.from_rows(made, "spans")
    times = np.arange(make.BASE_NS, make.BASE_NS + iterations * 10**6, 10**5)
    run.samples = block("samples", len(times), time_ns=times, device="GPU-1", channel="power_w", value=300.0)
    run.channels = [ChannelInfo("GPU-1", "power_w", "W", "made", period_s=1e-4)]
    run.save(path)
    return path


@pytest.mark.parametrize("live_first", [True, False])
def test_counters_join_a_live_run_whose_iterations_are_alike(tmp_path, live_first):
    page = make.ncu_details(tmp_path / "ncu.csv", [("fill", (3, 1, 1)), ITERATION[0], *ITERATION, *ITERATION])
    files = [live(tmp_path / "live.zip"), page]
    run = read_files(files if live_first else files[::-1])
    assert run.kind == "profile"
    assert run.settings["imported"][1]["match"] == {
        "launches": 12, "matched": 10, "rate": 10 / 12, "ambiguous": 1, "unknown": 1,
    }  # fmt: skip
    assert {row["name"] for row in run.spans.to_pylist() if row["start_ns"] is None} == {"fill", "gemm"}
    kernels = [row for row in run.spans.to_pylist() if row["kind"] == "kernel"][:15]
    counted = set(run.counters["span"].to_pylist())
    assert [row["id"] in counted for row in kernels] == [True] * 10 + [False] * 5
    assert [device.id for device in run.devices] == ["GPU-1"]


def test_kernels_counters_and_power_of_a_live_run_are_in_one_trace(tmp_path):
    page = make.ncu_details(tmp_path / "ncu.csv", ITERATION)
    run = analyse(read_files([live(tmp_path / "live"), page]))
    assert run.settings["imported"][1]["match"]["rate"] == 1
    export(run, "chrome", tmp_path / "t.json")
    trace = check_trace.read(tmp_path / "t.json")
    assert check_trace.problems(trace) == []
    events = trace["traceEvents"]
    kernels = [one for one in events if one["ph"] == "X" and one["name"] in ("gemm", "relu", "sum")]
    assert len(kernels) == 15
    assert sum("Memory Throughput (%)" in one["args"] for one in kernels) == 5
    assert {"Memory (%)", "Power (W)"} <= {one["name"] for one in events if one["ph"] == "C"}


def test_a_short_iteration_is_not_recognised_by_chance():
    fills = spans([("fill", 1)] * 3, timed=False)
    timeline = spans([("fill", 1)] * 2)
    timeline = pa.concat_tables([timeline, block("spans", 1, id=[9], kind="iteration", name="step")])
    parents = pa.chunked_array([pa.array([9, 9, None], pa.int64())])
    rows, facts = match_launches(fills, timeline.set_column(1, timeline.schema.field("parent"), parents))
    assert (rows.tolist(), facts["ambiguous"]) == ([-1, -1, -1], 3)


def test_two_measured_runs_are_not_one(tmp_path):
    with pytest.raises(BadInputError, match="compare"):
        read_files([live(tmp_path / "a"), live(tmp_path / "b.zip")])


@pytest.mark.thorough
def test_mutated_pages_end_in_one_line_or_a_partial_import(tmp_path):
    made = (make.ncu_details(tmp_path / "a.csv", LAUNCHES), make.ncu_raw(tmp_path / "b.csv", LAUNCHES))
    found = read_damaged(ncu, [path.read_bytes() for path in made], tmp_path / "c.csv", 400)
    assert found["read"] > 200


@pytest.mark.samples
@pytest.mark.skipif(not PAGES, reason="no sample files here")
def test_a_page_recorded_on_an_h100_agrees_with_a_plain_count():
    lines = PAGES[0].read_text().splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith('"ID"'))
    table = list(csv.DictReader(lines[first:]))
    metrics = [row for row in table if row["Metric Name"]]
    run = read(PAGES[0])
    assert len(run.spans) == len({row["ID"] for row in table})
    kept = [row for row in metrics if row["Metric Value"].replace(",", "").replace(".", "").isdigit()]
    assert len(run.counters) == len(kept)
    percent = [float(row["Metric Value"]) for row in kept if row["Metric Unit"] == "%"]
    assert [r["value"] for r in run.counters.to_pylist() if r["value_unit"] == "%"] == percent


def figures_of(run):
    """Count, and figures in SI units and per cent, of each kernel."""
    kernels = [row for row in run.units.to_pylist() if row["level"] == "kernel"]
    metrics = ("time_s", "time_mean_s", "memory_throughput_pct", "achieved_occupancy_pct")
    return {row["name"]: (row["count"], *(run.result(name, row["id"]).value for name in metrics)) for row in kernels}


def test_a_page_alone_lists_its_kernels_with_count_and_duration(workspace, capsys):
    page = str(DATA / "faults" / "R1_ncu_alone.csv")
    assert "trust: yes" in command(capsys, "import", page, "-o", "run").out
    run = load("run")
    assert figures_of(run) == {"gemm": (3, pytest.approx(3.702e-6), pytest.approx(1.234e-6), None, None)}
    shown = command(capsys, "show", "run", "--detail", "kernel").out
    assert next(line for line in shown.splitlines() if line.startswith("gemm")).split() == [
        "gemm",
        "3",
        "3.702",
        "1.234",
    ]


@pytest.mark.parametrize("page", ["details", "raw"])
def test_figures_of_a_page_alone_are_means_of_its_counters(tmp_path, page):
    names = ("Duration", "Memory Throughput", "Achieved Occupancy")
    if page == "raw":
        names = ("gpu__time_duration.sum", "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
                 "sm__warps_active.avg.pct_of_peak_sustained_active")  # fmt: skip
    rows = [("a", "1,000", 10, 30), ("b", "500", 20, 40), ("a", "3,000", 30, "")]
    head = ["ID", "Process ID", "Process Name", "Kernel Name", "Stream", "Block Size", "Grid Size", "Device"]
    same = ["42", "app"], ["7", "(128, 1, 1)", "(8, 1, 1)", "0"]
    if page == "details":
        table = [[*head, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]]
        for k, (kernel, *values) in enumerate(rows):
            for name, unit, value in zip(names, ("ns", "%", "%"), values, strict=True):
                if value != "":
                    table.append([str(k), *same[0], kernel, *same[1], "S", name, unit, str(value)])
    else:
        table = [[*head, *names], [""] * len(head) + ["ns", "%", "%"]]
        table += [[str(k), *same[0], name, *same[1], *map(str, rest)] for k, (name, *rest) in enumerate(rows)]
    lines = "\n".join(",".join(f'"{cell}"' for cell in row) for row in table)
    run = analyse(read_files([make.write(tmp_path / "a.csv", lines + "\n")]))
    assert figures_of(run) == {
        "a": (2, pytest.approx(4e-6), pytest.approx(2e-6), pytest.approx(20), pytest.approx(30)),
        "b": (1, pytest.approx(0.5e-6), pytest.approx(0.5e-6), pytest.approx(20), pytest.approx(40)),
    }


def test_a_sum_that_lacks_durations_is_null(tmp_path):
    text = (DATA / "faults" / "R1_ncu_alone.csv").read_text()
    last = text.rindex('"Duration"')
    run = analyse(read_files([make.write(tmp_path / "a.csv", text[:last] + text[last:].replace("Duration", "Other"))]))
    count, whole, each, *_ = figures_of(run)["gemm"]
    assert (count, whole, each) == (3, None, pytest.approx(1.234e-6))


def test_counters_beside_a_timeline_add_no_kernels(tmp_path):
    timeline = make.nsys(tmp_path / "a.sqlite", launches=2)
    page = make.ncu_details(tmp_path / "a.csv", [("other", (1, 1, 1))])
    run = analyse(read_files([timeline, page]))
    assert "other" not in figures_of(run)
    assert "times_left_out" not in set(run.results["flags"].to_pylist())


@pytest.mark.parametrize("unit", ["usecond", "ns", "s"])
def test_a_duration_below_zero_is_in_no_mean(tmp_path, unit):
    metrics = [("S", "Duration", unit, "-5"), ("S", "Elapsed Cycles", "cycle", "-3")]
    run = read(make.ncu_details(tmp_path / "a.csv", LAUNCHES, metrics=metrics))
    assert [value for value, _ in readings(run).values()] == [None, -3.0]
    assert codes(run)["below_zero"].startswith("2 readings are below 0")
