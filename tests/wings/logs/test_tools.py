"""Logs and results of other tools: figures are those of the file, by NumPy; a changed file has no other readings."""

import json
import random
import re
import time
import tomllib

import numpy as np
import pytest

import jouletrace as jt
import tool_logs
from commands import command
from damaged import MOST_LOOPS
from jouletrace.errors import BadInputError
from pace import within
from places import REPOSITORY
from tool_logs import COUNT, LOGS, START, gpustat, ipmi, powers, stamp, tegrastats_of_tx2

CHANGES = [8, pytest.param(1000, marks=pytest.mark.slow)]
"""How many changed files of each are read."""


def imported(path, mapping):
    return jt.import_files(path, map=mapping)


def test_the_table_of_tools_has_a_row_for_each_case():
    page = (REPOSITORY / "docs" / "reference" / "tools.md").read_text()
    cases = [case for row in page.splitlines() if row.count("|") == 6 for case in row.split("|")[-2].split(",")]
    assert {case.strip() for case in cases} - {"case", "---"} == set(LOGS)


@pytest.mark.parametrize("name", LOGS)
def test_figures_are_those_of_the_powers_in_the_file(tmp_path, name):
    make, gpus, decimals, mapping = LOGS[name]
    watts = powers(gpus, decimals)
    (tmp_path / "a.log").write_text(make(watts))
    run = imported(tmp_path / "a.log", mapping)
    assert len(run.devices) == gpus
    for unit, (device, column) in enumerate(zip(run.devices, watts.T, strict=True), start=1):
        time_ns, read = run.series(device.id, "power_w")
        assert read.tolist() == pytest.approx(column.tolist(), rel=1e-12)
        seconds = time_ns / 1e9
        assert seconds - seconds[0] == pytest.approx(np.arange(COUNT), abs=1e-6)
        assert run.settings["imported"][0]["clock"] == "relative" or seconds[0] == pytest.approx(START, abs=1)
        assert run.result("energy_total_j", unit).value == pytest.approx(np.trapezoid(column), rel=0.01)


ZEUS = "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n1772532000.0,epoch,10.5,3000.25,2000.5\n"

PERF = """
 Performance counter stats for 'system wide':

          1,234.50 Joules power/energy-pkg/
             56.70 Joules power/energy-ram/

      10.001234567 seconds time elapsed
"""

LOADGEN = """================================================
MLPerf Results Summary
================================================
Samples per second: 123.45
Result is : VALID
Mean latency (ns)               : 8100443
50.00 percentile latency (ns)   : 8000000
99.00 percentile latency (ns)   : 9500000
"""

SGLANG = {
    "backend": "sglang",
    "duration": 300.5,
    "completed": 1200,
    "request_throughput": 4.25,
    "max_concurrency": None,
}
SGLANG |= {"output_throughput": 4096.5, "mean_e2e_latency_ms": 9000.5, "median_ttft_ms": 100.25}

GENAI = {
    "request_throughput": {"unit": "requests/sec", "avg": 4.25},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 4096.5},
    "request_latency": {"unit": "ms", "avg": 900.5, "p50": 890, "p99": 990},
    "gpu_power_usage": {"unit": "W", "avg": {"gpu0": 300.5, "gpu1": 200.25}},
}

RESULTS = {
    "Zeus, CSV": (ZEUS, {"time_s": 10.5, "energy_gpu_j": 3000.25 + 2000.5}),
    "Zeus, JSON": (
        '{"time": 10.0, "gpu_energy": {"0": 1000.5, "3": 999.25}, "cpu_energy": null}',
        {"time_s": 10.0, "energy_gpu_j": 1000.5 + 999.25},
    ),
    "perf stat": (PERF, {"time_s": 10.001234567, "energy_cpu_j": 1234.5, "energy_memory_j": 56.7}),
    "perf stat of a German": (
        PERF.replace(",", "?").replace(".", ",").replace("?", "."),
        {"time_s": 10.001234567, "energy_cpu_j": 1234.5, "energy_memory_j": 56.7},
    ),
    "LoadGen": (
        LOADGEN,
        {"throughput_per_s": 123.45, "latency_mean_s": 0.008100443, "latency_p50_s": 8e-3, "latency_p99_s": 9.5e-3},
    ),
    "SGLang": (
        json.dumps(SGLANG) + "\n",
        {"time_s": 300.5, "requests_per_s": 4.25, "latency_mean_s": 9.0005, "time_to_first_token_s": 0.10025},
    ),
    "GenAI-Perf": (
        json.dumps(GENAI),
        {"requests_per_s": 4.25, "tokens_per_s": 4096.5, "latency_mean_s": 0.9005, "latency_p99_s": 0.99}
        | {"power_w": 300.5 + 200.25},
    ),
    "GenAI-Perf in seconds": (
        json.dumps(GENAI).replace('"ms", "avg": 900.5', '"s", "avg": 0.9005'),
        {"latency_mean_s": 0.9005},
    ),
    "llama-bench": (
        '[{"model_type": "llama 8B Q4_K", "n_prompt": 0, "n_gen": 128, "avg_ns": 1250000000, "avg_ts": 102.4}]',
        {"time_mean_s": 1.25, "tokens_per_s": 102.4},
    ),
    "llama-bench, CSV": (
        'model_type,n_prompt,n_gen,avg_ns,stddev_ns,avg_ts\n"llama 8B","0","128","1250000000","5","102.4"\n',
        {"time_mean_s": 1.25, "tokens_per_s": 102.4},
    ),
}
"""What a tool states at the end of a run, and the figures in it, in SI units."""


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_those_that_the_tool_states(tmp_path, name):
    text, figures = RESULTS[name]
    (tmp_path / "result").write_text(text)
    run = jt.import_files(tmp_path / "result")
    for metric, value in figures.items():
        assert run.result(metric).value == pytest.approx(value, rel=1e-9), metric
        assert run.result(metric).method.startswith("stated by ")


@pytest.mark.thorough
@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("name", RESULTS)
def test_changed_results_have_no_other_figures(tmp_path, name, changes):
    text, figures = RESULTS[name]
    draw = random.Random(name)
    for number in range(changes):
        now, way = changed(text, draw)
        (tmp_path / "result").write_text(now)
        try:
            run = jt.import_files(tmp_path / "result")
        except BadInputError:
            continue
        said = {warning.code for warning in run.warnings}
        for metric, value in figures.items():
            read = run.result(metric).value
            alike = read is None or read == pytest.approx(value, rel=1e-9)
            assert alike or (way == "cut" and "unfinished_line" in said), (number, way, metric, read)


AGX = (
    "RAM 10642/62817MB (lfb 1x2MB) CPU [23%@2201] GR3D_FREQ 12%@[1300,1300] gpu@47.625C VDD_GPU_SOC {}mW/5139mW/5139mW "
)
AGX += "VDD_CPU_CV {}mW/3268mW/3268mW VIN_SYS_5V0 5500mW/5500mW/5500mW\n"


@pytest.mark.parametrize("form", ["%m-%d-%Y %H:%M:%S ", "%Y-%m-%dT%H:%M:%S.0 ", "[%Y-%m-%d %H:%M:%S] "])
def test_rails_are_summed_as_the_user_says_at_the_times_that_stand_before(tmp_path, form):
    watts = powers(2, 0)
    lines = [stamp(form, k, step=3) + AGX.format(*(1000 * row).astype(int)) for k, row in enumerate(watts)]
    (tmp_path / "a.log").write_text("".join(lines))
    run = jt.import_files(tmp_path / "a.log")
    assert "give --map" in " ".join(warning.message for warning in run.warnings)
    run = jt.import_files(tmp_path / "a.log", map={"power_mw:0": "VDD_GPU_SOC [mW]", "power_mw:1": "VDD_CPU_CV [mW]"})
    for device, column in zip(run.devices, watts.T, strict=True):
        time_ns, read = run.series(device.id, "power_w")
        assert (time_ns / 1e9).tolist() == [START + 3 * k for k in range(COUNT)]
        assert read.tolist() == column.tolist()


def test_alike_columns_of_two_gpus_are_asked_for_by_number(tmp_path):
    rows = [stamp("%-d.%-m.%Y,%H:%M:%S", k) + f".1,{w},{v}" for k, (w, v) in enumerate(powers(2))]
    (tmp_path / "a.csv").write_text("\n".join(['Date,Time,"GPU Power [W]","GPU Power [W]"', *rows]) + "\n")
    with pytest.raises(BadInputError, match=r"columns 3 and 4 are powers .*--map power_w:0=3 --map power_w:1=4"):
        jt.import_files(tmp_path / "a.csv")
    run = jt.import_files(tmp_path / "a.csv", map={"power_w:0": "3", "power_w:1": "4"})
    assert [run.series(device.id, "power_w")[1].tolist() for device in run.devices] == powers(2).T.tolist()


def test_what_has_no_times_is_refused_but_where_the_tool_has_an_interval(tmp_path):
    text = "".join(
        line for line in ipmi(powers(1, 0)).splitlines(keepends=True) if "UTC" not in line and "IPMI" not in line
    )
    (tmp_path / "a.log").write_text(text)
    with pytest.raises(BadInputError, match="nothing says when a log of `ipmitool dcmi power reading` was written"):
        jt.import_files(tmp_path / "a.log")
    (tmp_path / "a.log").write_text(tegrastats_of_tx2(powers(1, 0)))
    codes = {warning.code for warning in jt.import_files(tmp_path / "a.log").warnings}
    assert "interval_assumed" in codes


def test_series_of_influxdb_are_put_in_the_order_of_time(tmp_path, capsys):
    """A tag that changes, as Telegraf's pstate, begins another series of the same GPU, and another table."""
    above = "#group,false,false,true,false,true,true,true\n,result,table,_time,_value,_field,index,pstate\n"
    texts = []
    for table, state in enumerate(("P0", "P8")):
        rows = [k for k in range(40) if (k // 10) % 2 == table]
        texts += [f",,{table},2026-03-03T10:00:{k:02d}Z,{100.0 + 200 * table},power_draw,0,{state}\n" for k in rows]
        texts[-len(rows)] = above + texts[-len(rows)]
    (tmp_path / "influx.csv").write_text("".join(texts))
    words = " ".join(command(capsys, "import", str(tmp_path / "influx.csv"), "-o", str(tmp_path / "r")).out.split())
    assert "in 39 s" in words
    assert "trust: yes" in words
    whole = json.loads(command(capsys, "show", str(tmp_path / "r"), "--json").out)["model"]["energy_j"]["total"]
    assert whole["low"] <= 39 * 200 <= whole["high"]


def changed(text, draw):
    """A text that is changed in one way, and which: lines that trade places begin alike."""
    lines = text.splitlines(keepends=True)
    way = draw.choice(["drop", "swap", "cut", "twice", "unit"])
    first = draw.randrange(len(lines))
    second = draw.choice([k for k, line in enumerate(lines) if line[:8] == lines[first][:8]])
    if way == "drop":
        del lines[first]
    elif way == "swap":
        lines[first], lines[second] = lines[second], lines[first]
    elif way == "twice":
        lines.insert(first, lines[first])
    elif way == "cut":
        return text[: draw.randrange(len(text))], way
    else:
        unit, other = draw.choice([("mW", "W"), (" W", " mW"), ("[W]", "[mW]"), ("Watts", "mWatts"), ("Watt", "kW")])
        lines[first] = lines[first].replace(unit, other)
    return "".join(lines), way


@pytest.mark.thorough
@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("name", LOGS)
def test_a_changed_log_has_no_other_readings(tmp_path, name, changes):
    make, gpus, decimals, mapping = LOGS[name]
    watts = powers(gpus, decimals)
    text = make(watts)
    draw = random.Random(name)
    path = tmp_path / "a.log"
    for number in range(changes):
        now, way = changed(text, draw)
        path.write_text(now)
        try:
            run = imported(path, mapping)
        except BadInputError:
            continue
        said = {warning.code for warning in run.warnings}
        factors = (1.0, 1e-3, 1e3) if way == "unit" else (1.0,)
        allowed = {round(factor * w, 6) for w in watts.flat for factor in factors}
        for device in run.devices:
            read = run.series(device.id, "power_w")[1]
            odd = [w for w in read.tolist() if round(w, 6) not in allowed]
            assert not odd or (way == "cut" and len(odd) == 1 and "unfinished_line" in said), (name, number, way, odd)
            assert len(read) <= COUNT + 1, (name, number, way)


UNREAD = {
    "pmon": "# gpu        pid  type    sm\n# Idx          #   C/G     %\n    0       1234     C    40\n",
    " rocprofv3": '{"rocprofiler-sdk-tool": [{"metadata": {"pid": 1}}]}',
    "rocprof,": '"Index","KernelName","gpu-id","BeginNs","EndNs"\n0,"gemm",0,100,200\n',
    "amd-smi": "gpu,socket_power,gfx_activity\n0,150,90\n1,151,91\n",
    "amd-smi ": '[{"gpu": 0, "power": {"socket_power": {"value": 150, "unit": "W"}}}]',
    "rocm-smi": "======= ROCm System Management Interface =======\n",
    "xpu-smi": "+------+\n| Device ID  | 0 |\n| GPU Power (W) | 14 |\n",
    " nsys stats": " ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n Time (%)  Total Time (ns)\n",
    "exportTimes": '[ { "startH2dMs" : 1.0, "endH2dMs" : 1.1, "startComputeMs" : 1.1, "latencyMs" : 4 } ]\n',
    "exportLayerInfo": '{"Layers": ["conv1", "fc1"], "Bindings": []}\n',
    "benchmark_app": "[Step 11/11] Measuring performance\n[ INFO ] Count:            1000 iterations\n",
    "gpustat": '{"hostname": "a", "query_time": "2026-03-03", "gpus": [{"index": 0, "power.draw": 300}]}',
    "sacct": "JobID|Start|ElapsedRaw|ConsumedEnergyRaw|\n100|2026-03-03T10:00:00|3600|2520000|\n",
    "llama-bench ": "| model | size | params | backend | ngl | test | t/s |\n| llama 8B | 4 GiB | 8 B | CUDA | 99 |\n",
    "perf stat ": "1.000123,12.34,Joules,power/energy-pkg/,1,1,,\n2.000123,12.34,Joules,power/energy-pkg/,1,1,,\n",
    "LoadGen": ':::MLLOG {"key": "loadgen_version"}\n',
    "SGLang": '{"prefill_throughput": 1000.0, "decode_throughput": 10.0}',
    "ZeusMonitor": "Measurement(time=10.0, gpu_energy={0: 1000.0})\n",
    "GenAI-Perf": "Metric,avg,min,max\nRequest Latency (ms),900,800,990\n",
    "powermetrics": "<dict><key>gpu_power</key><integer>20</integer></dict>",
    "W&B": '{"_runtime": 0.0, "_wandb": true, "system.gpu.0.powerWatts": 300}\n',
    "dcgmi dmon": "GPU 0     200.155\nGPU 0     201.155\n",
}
"""Beginnings of files, as their tools write them, by a part of the name that the refusal has."""


@pytest.mark.parametrize("tool", UNREAD)
@pytest.mark.parametrize("mapped", [False, True])
def test_a_known_file_that_is_not_read_is_named_with_what_to_give_instead(capsys, tmp_path, tool, mapped):
    (tmp_path / "file").write_text(UNREAD[tool])
    more = ("--map", "time=Time", "--map", "power_w=Watts") if mapped else ()
    complaint = command(capsys, "import", str(tmp_path / "file"), "-o", str(tmp_path / "r"), *more).complaint
    assert tool.strip() in complaint
    assert "which isn't read: " in complaint
    assert "--map" not in complaint


COUNTER = "timestamp,gpu,total_energy_consumption"

AMD_SMI = "'CTRL' + 'C' to stop watching output:\n"


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("above", [AMD_SMI, ""])
def test_the_counter_of_amd_smi_is_in_joules(capsys, tmp_path, above, repeated):
    rows = [f"{1722959154 + k},0,{20909145.914 + 42.7 * k:.3f}" for k in range(10)]
    lines = [line for row in rows for line in (*([COUNTER] if repeated else []), row, "")]
    (tmp_path / "t.csv").write_text(above + "\n".join([COUNTER, *lines]) + "\n")
    assert command(capsys, "import", str(tmp_path / "t.csv"), "-o", str(tmp_path / "r")).code == 0
    said = " ".join(command(capsys, "show", str(tmp_path / "r"), "-v").out.split())
    assert "384 ± 35 J in 9 s, 42.7 ± 3.8 W on average" in said
    assert ("joules were assumed; if not, give --map energy_counter_mj=" in said) == (above == "")


LONG = [
    *(
        ",",
        " ",
        "\n",
        " \n",
        ",,,,,\n",
        "|",
        "[0] ",
        "[0] |C,%",
        "[0] |a, 1 / 1",
        ", 1",
        "RAM 1/1MB ",
        "1:11 ",
        "1.1,",
        "1",
    ),
    *(
        ".",
        "=",
        "*",
        "a",
        "a ",
        "A.",
        "A\n",
        '"',
        "{ ",
        "<uuid>",
        "<gpu_power_readings>",
        "<clocks><graphics_clock>",
        "Mar 1 ",
    ),
    *(
        "    Power Readings\n",
        "    Power Readings\n        x\n",
        "Time,1:11",
        '"_timestamp"',
        "GPU 1 ",
        "CPU Power : ",
        "[ ",
    ),
    *("1:11:11 ", "GPU: 1\n", "Kind,", " - ", "\t", "2026-03-03 ", "** (a_", "power"),
]
"""Texts that patterns with several repeats find many beginnings in."""

BEFORE = ["[0] |1C,", "<clocks>\n<graphics_clock>", "Date,Time,", "A", "RAM 1/1MB ", "GPU 0"]
"""Texts before as many blanks."""

SIZE = 1 << 16


@pytest.mark.thorough
def test_no_pattern_of_a_tool_takes_long_over_any_text():
    """Each is linear in the length of a text, and takes milliseconds: a quadratic one takes half a minute."""
    tools = tomllib.loads((REPOSITORY / "src/jouletrace/wings/logs/tools.toml").read_text())
    patterns, headings = [tool["mark"] for tool in tools.values()], []
    for tool in tools.values():
        printed = tool.get("printed", {})
        patterns += [printed[key] for key in ("record", "time", "device", "lines") if key in printed]
        patterns += printed.get("values", {})
        headings += [*tool.get("columns", {}), *printed.get("figures", {})]
    for text in [part * (SIZE // len(part)) + "!" for part in LONG] + [before + " " * SIZE + "!" for before in BEFORE]:
        for pattern in patterns:
            began = time.process_time()
            assert sum(1 for _ in re.finditer(pattern, text, re.M)) < SIZE
            assert within(time.process_time() - began, MOST_LOOPS), pattern
        assert not any(re.fullmatch(pattern, text) for pattern in headings)


@pytest.mark.parametrize("below", [",,\n" * 1000, "\n" * 8000, "1" * SIZE + "!,,\n"])
def test_a_spreadsheet_with_nothing_in_its_last_rows_is_read(tmp_path, below):
    rows = [stamp("%Y-%m-%d %H:%M:%S", k) + f",{w},50\n" for k, (w,) in enumerate(powers(1))]
    (tmp_path / "a.csv").write_text("time,power_w,temperature_c\n" + "".join(rows) + below)
    began = time.process_time()
    run = jt.import_files(tmp_path / "a.csv")
    assert within(time.process_time() - began, MOST_LOOPS)
    assert run.series(run.devices[0].id, "power_w")[1].tolist() == powers(1)[:, 0].tolist()


def of_turbostat(columns):
    """Rows of the sum and of two packages, 1 ms apart, by turbostat without ``--Summary``."""
    text = ""
    for k, (w,) in enumerate(powers(1)):
        text += f"Time_Of_Day_Seconds\t{columns}PkgWatt\n"
        for part, name in enumerate("-01"):
            cell = f"{name}\t" if columns else ""
            text += f"{START + k}.{900 + part}\t{cell}{w / (2 if part else 1):.3f}\n"
    return text


ASKED = {
    "turbostat without Summary": (of_turbostat(""), r"come in bursts.*`turbostat --quiet --Summary"),
    "HWiNFO of two makers": (
        'Date,Time,"GPU Power [W]","Total Board Power (TBP) [W]"\n3.3.2026,1:2:3.456,90,50\n3.3.2026,1:2:4.456,90,50\n',
        r"columns 3 and 4 are powers in a log of HWiNFO: choose one, --map power_w=3, or",
    ),
    "W&B, two runs": (
        "Step,run-a - system/gpu.0.powerWatts,run-b - system/gpu.1.powerWatts\n0,205.0,315.9\n1,211.0,289.0\n",
        r"columns 2 and 3 are powers in a log of W&B",
    ),
    "ipmitool of two hosts": (
        re.sub(r"( +Inst[^+]*?activated\n\n)", r"\1\1", ipmi(powers(1, 0))),
        r"several readings .* stand below one time",
    ),
    "negative time": ('{"time": -10.0, "gpu_energy": {"0": 1000.5}}', r"states a negative 'time'"),
    "metrics at times of their own": (
        "time,metric,value\n" + "".join(f"{1000 * START + k},m{k % 900}_w,50\n" for k in range(40000)),
        r"900 metrics, each at times of its own",
    ),
}
"""Files that allow several readings, and what is asked."""


@pytest.mark.parametrize("name", ASKED)
def test_what_allows_several_readings_is_asked_for(tmp_path, name):
    text, words = ASKED[name]
    (tmp_path / "a.log").write_text(text)
    with pytest.raises(BadInputError, match=words):
        jt.import_files(tmp_path / "a.log")


def test_of_the_rows_of_turbostat_those_of_the_sum_count(tmp_path):
    (tmp_path / "a.log").write_text(of_turbostat("Package\t"))
    run = jt.import_files(tmp_path / "a.log")
    assert run.series(run.devices[0].id, "power_w")[1].tolist() == pytest.approx(powers(1)[:, 0].tolist(), rel=1e-5)


@pytest.mark.parametrize("energies", ['{"0": 1000.5, "1": 0.0}', '{"0": 1000.5, "1": -500}'])
def test_a_total_with_a_part_that_was_not_measured_is_unknown(tmp_path, energies):
    (tmp_path / "a.json").write_text('{"time": 10.0, "gpu_energy": ' + energies + "}")
    run = jt.import_files(tmp_path / "a.json")
    assert run.result("energy_gpu_j").reason == "part_not_measured"
    assert run.result("time_s").value == 10.0
    assert "part_not_measured" in {warning.code for warning in run.warnings}


def test_each_output_in_a_file_is_a_result_and_what_a_program_prints_is_none(tmp_path):
    again = PERF.replace("1,234.50", "9,000.00").replace("10.001234567 sec", "10.0012 +- 0.0034 sec")
    (tmp_path / "a.txt").write_text("  99 Joules power/energy-pkg/\n" + PERF + again)
    run = jt.import_files(tmp_path / "a.txt")
    assert [run.result("energy_cpu_j", unit).value for unit in (1, 2)] == [1234.5, 9000]
    assert [run.result("time_s", unit).value for unit in (1, 2)] == [10.001234567, 10.0012]


def test_readings_of_tegrastats_within_a_second_are_spaced_evenly(tmp_path):
    watts = np.repeat(powers(1, 0), 10, axis=0)
    lines = tegrastats_of_tx2(watts).splitlines(keepends=True)
    (tmp_path / "a.log").write_text(
        "".join(stamp("%m-%d-%Y %H:%M:%S ", k // 10) + line for k, line in enumerate(lines))
    )
    run = jt.import_files(tmp_path / "a.log")
    time_ns, read = run.series(run.devices[0].id, "power_w")
    assert (time_ns / 1e9).tolist() == pytest.approx([START + k / 10 for k in range(10 * COUNT)])
    assert read.tolist() == watts[:, 0].tolist()


@pytest.mark.parametrize("form", ["{:.1f} ", "[{:.0f}] ", "{:.3f}: "])
def test_seconds_since_1970_before_a_line_are_its_time(tmp_path, form):
    watts = powers(1, 0)[:, 0]
    lines = tegrastats_of_tx2(watts[:, None]).splitlines(keepends=True)
    (tmp_path / "a.log").write_text("".join(form.format(START + 3 * k) + line for k, line in enumerate(lines)))
    run = jt.import_files(tmp_path / "a.log")
    time_ns, read = run.series(run.devices[0].id, "power_w")
    assert (time_ns / 1e9).tolist() == [START + 3 * k for k in range(COUNT)]
    assert read.tolist() == watts.tolist()


def test_no_other_percent_temperature_or_watt_is_taken_for_the_gpus(tmp_path):
    """A fan before the load, a process after a draw that isn't known, an integrated GPU of another maker."""
    shown = gpustat(powers(2, 0)).replace("98 %,", "30 %,  98 % (E:   0 %  D:   0 %),")
    (tmp_path / "a.log").write_text(shown)
    run = jt.import_files(tmp_path / "a.log")
    assert set(run.series(run.devices[0].id, "utilization_gpu_pct")[1]) == {98.0}
    unknown = re.sub(r", \d+ / 700 W", ", ?? / 700 W", shown).replace("me(9M)", "me:python, 5 / 9 W (9M)")
    (tmp_path / "a.log").write_text(unknown)
    assert jt.import_files(tmp_path / "a.log").result("energy_total_j").value is None
    ids = ",/gpu-intel-integrated/0/temperature/0,/gpu-nvidia/0/temperature/0,/gpu-nvidia/0/power/0\n"
    rows = [[stamp("%m/%d/%Y %H:%M:%S", k), 99, 50, w] for k, (w,) in enumerate(powers(1))]
    (tmp_path / "b.log").write_text(ids + tool_logs.table(rows, ["Time", "GPU Core", "GPU Core", "GPU Package"]))
    run = jt.import_files(tmp_path / "b.log")
    assert set(run.series(run.devices[0].id, "temperature_c")[1]) == {50.0}


@pytest.mark.parametrize("form", ["%a %d %b %Y %H:%M:%S", "%a %d %b %Y %I:%M:%S %p UTC"])
def test_gpustat_of_the_united_states_and_in_colour_is_read(tmp_path, form):
    text = gpustat(powers(2, 0)).replace("[1]", "\x1b[36m[1]\x1b(B\x1b[m").replace("98 %", "\x1b[1m\x1b[32m 98 %\x1b[m")
    for k in range(COUNT):
        text = text.replace(stamp("%a %b %e %H:%M:%S %Y", k), stamp(form, k))
    (tmp_path / "a.log").write_text(text)
    run = jt.import_files(tmp_path / "a.log")
    for device, column in zip(run.devices, powers(2, 0).T, strict=True):
        time_ns, read = run.series(device.id, "power_w")
        assert (time_ns / 1e9).tolist() == [START + k for k in range(COUNT)]
        assert read.tolist() == column.tolist()
