"""Output of nvprof: summaries, traces, metrics and system profiling, as text and CSV."""

import pytest

from commands import command, done
from import_logs import (
    NVPROF_METRICS,
    NVPROF_METRICS_CSV,
    NVPROF_SUMMARY,
    NVPROF_SUMMARY_CSV,
    NVPROF_TRACE_CSV,
    codes,
    left_out,
    read,
    real,
    real_files,
)
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, importer
from jouletrace.run import load


@pytest.mark.thorough
@pytest.mark.parametrize("text", [NVPROF_SUMMARY, NVPROF_SUMMARY_CSV])
def test_a_summary_gives_each_kernel_and_call_its_times(tmp_path, text):
    run = read(tmp_path, "nvprof", text)
    units = {row["name"]: row for row in run.units.to_pylist()}
    kernel, call = units["void reduce<float>(float*, unsigned int)"], units["cudaLaunch"]
    assert (kernel["level"], kernel["count"]) == ("kernel", 77000)
    assert (call["level"], call["count"]) == ("range", 88041)
    assert run.result("time_s", kernel["id"]).value == pytest.approx(0.3)
    assert run.result("time_mean_s", kernel["id"]).value == pytest.approx(3.896e-6)
    assert run.result("share", kernel["id"]).value == pytest.approx(0.75)
    assert run.result("time_max_s", call["id"]).value == pytest.approx(706.81e-6)
    assert run.result("time_s", call["id"]).method == "stated by nvprof"
    assert not left_out(run)


def test_a_trace_in_csv_has_spans_with_their_launches(tmp_path):
    run = read(tmp_path, "nvprof", NVPROF_TRACE_CSV)
    copy, kernel = run.spans.to_pylist()
    assert (copy["kind"], copy["bytes"], copy["start_ns"], copy["end_ns"]) == (
        "memcpy",
        8_000_000,
        1_000_000,
        1_002_000,
    )
    assert (kernel["kind"], kernel["name"], kernel["correlation"]) == ("kernel", "volta_sgemm_128x64_nn", 11)
    assert (kernel["start_ns"], kernel["end_ns"]) == (2_000_000, 3_500_000)
    assert [kernel[f"grid_{axis}"] for axis in "xyz"] == [80, 2, 1]
    assert (kernel["registers"], kernel["shared_static_bytes"], kernel["shared_dynamic_bytes"]) == (128, 49152, 16)
    assert kernel["lane"] == "stream 7"


def test_system_profiling_in_a_trace_becomes_samples(tmp_path):
    run = read(tmp_path, "nvprof", NVPROF_TRACE_CSV)
    time, watts = run.series("imported:0", "power_w")
    assert list(watts) == [295.702, 290.0]
    assert list(time) == [2_500_000, 52_500_000]
    assert list(run.series("imported:0", "clock_sm_mhz")[1]) == [1425, 1417]
    assert run.channel("imported:0", "power_w").window_s == 0.01  # Volta's
    assert run.devices[0].name == "Tesla V100-SXM2-16GB"
    assert not codes(run)


def test_metrics_of_each_launch_are_its_counters(tmp_path):
    text = '"Start","Duration","Grid X","Device","Context","Stream","Name","sm_efficiency","dram_read_throughput"\n'
    text += "ms,us,,,,,,%,GB/s\n"
    text += '1.0,2.0,8,"V100 (0)","1","7","gemm",95.5,80.0\n2.0,2.0,8,"V100 (0)","1","7","gemm",94.5,81.0\n'
    rows = read(tmp_path, "nvprof", text).counters.to_pylist()
    assert [(r["span"], r["metric"], r["value"], r["value_unit"]) for r in rows] == [
        (0, "sm_efficiency", 95.5, "%"),
        (0, "dram_read_throughput", 80e9, "B/s"),
        (1, "sm_efficiency", 94.5, "%"),
        (1, "dram_read_throughput", 81e9, "B/s"),
    ]


def test_metrics_by_kernel_are_figures_in_si_units(tmp_path):
    run = read(tmp_path, "nvprof", NVPROF_METRICS)
    assert run.units["name"].to_pylist()[1] == "blend(unsigned char*, int)"
    stated = {
        "dram_read_throughput_bytes_per_s": 85e9,
        "dram_read_throughput_min_bytes_per_s": 80e9,
        "sm_efficiency_pct": 95,
        "dram_utilization": 7,
        "dram_utilization_max": 10,
    }
    assert {name: run.result(name, 1).value for name in stated} == pytest.approx(stated)
    run = read(tmp_path, "nvprof", NVPROF_METRICS_CSV)
    assert run.result("achieved_occupancy", 1).value == 0.5
    assert run.result("achieved_occupancy", 1).n == 3


def test_rows_that_cannot_be_read_are_counted(tmp_path):
    text = NVPROF_SUMMARY.replace("100.00ms", "many") + "      nonsense\n"
    assert left_out(read(tmp_path, "nvprof", text)) == {"broken_rows": 2}
    text = NVPROF_TRACE_CSV.replace("2.000000,1500.000000", "soon,1500.000000")
    assert left_out(read(tmp_path, "nvprof", text)) == {"broken_rows": 1}


def test_output_without_results_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="without a single figure"):
        read(
            tmp_path,
            "nvprof",
            "==1== NVPROF is profiling process 1, command: ./a\n==1== Profiling result:\nNo kernels\n",
        )


@pytest.mark.samples
@real_files
def test_real_summaries_hold_every_row_and_all_of_their_time():
    for path in real("nvprof/*.txt"):
        run = importer("nvprof").read(path, ImportOptions())
        lines = path.read_text().splitlines()
        rows = [line.split() for line in lines if line[:8].strip().endswith("%")]
        metrics = [line for line in lines if "throughput" in line]
        assert not left_out(run)
        assert len(run.units) - 1 == len(rows) + bool(metrics)
        scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}
        time = sum(float(row[1][:-2]) * scale[row[1][-2:]] for row in rows)
        found = [row["value"] for row in run.results.to_pylist() if row["metric"] == "time_s"]
        assert sum(found) == pytest.approx(time)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (NVPROF_TRACE_CSV, "void gemm<float, 128>(float*, float const *, int)"),
        (NVPROF_SUMMARY_CSV, "void gemm<float, 128>(float*, float const *, int)"),
        (NVPROF_METRICS_CSV, "void gemm<float, 128>(float*, float const *, int)"),
    ],
)
def test_names_without_quotes_that_hold_commas_stay_whole(tmp_path, text, name):
    for kernel in ("volta_sgemm_128x64_nn", "void reduce<float>(float*, unsigned int)", "gemm(float*, int)"):
        text = text.replace(f'"{kernel}', f'"{name}')
    quoted = read(tmp_path, "nvprof", text)
    bare = read(tmp_path, "nvprof", text.replace('"', ""))
    names = {row["name"] for row in bare.units.to_pylist() + bare.spans.to_pylist()}
    assert name in names
    assert bare.spans.equals(quoted.spans)
    assert bare.results.equals(quoted.results)
    assert "broken_rows" not in codes(bare)


def test_the_power_limit_beside_the_draw_is_that_of_the_gpu(tmp_path):
    assert read(tmp_path, "nvprof", NVPROF_TRACE_CSV).devices[0].power_limit_w == 300


@pytest.mark.thorough
def test_a_trace_of_nvprof_has_kernels_power_clocks_and_temperature(workspace, capsys):
    (workspace / "sgemm.csv").write_text(NVPROF_TRACE_CSV)
    done("import", "sgemm.csv", "-o", "traced")
    traced = load("traced")
    kernel = next(span for span in traced.spans.to_pylist() if span["kind"] == "kernel")
    assert (kernel["name"], kernel["end_ns"] - kernel["start_ns"]) == ("volta_sgemm_128x64_nn", 1_500_000)
    device = traced.devices[0]
    assert device.power_limit_w == 300
    for channel, values in (("power_w", [295.702, 290]), ("clock_sm_mhz", [1425, 1417]), ("temperature_c", [70, 71])):
        assert list(traced.series(device.id, channel)[1]) == values
    assert "volta_sgemm_128x64_nn" in command(capsys, "show", "traced").out


@pytest.mark.thorough
def test_metrics_of_nvprof_are_figures_of_the_kernel(workspace, capsys):
    more = '"Tesla V100 (0)","gemm(float*, int)",3,"sm_efficiency","Multiprocessor Activity",90.0%,99.0%,95.0%\n'
    (workspace / "metrics.csv").write_text(NVPROF_METRICS_CSV + more)
    said = command(capsys, "import", "metrics.csv", "-o", "metrics")
    assert said.code == 0, said.err
    run = load("metrics")
    (unit,) = [unit["id"] for unit in run.units.to_pylist() if unit["level"] == "kernel"]
    found = {row["metric"]: row["value"] for row in run.results.to_pylist() if row["unit"] == unit}
    assert (found["achieved_occupancy"], found["sm_efficiency_pct"]) == (0.5, 95.0)
