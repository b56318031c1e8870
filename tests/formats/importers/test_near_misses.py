"""Files of a known format with columns of a user's own, quoted cells, and files of tools that aren't read."""

import csv
import io
import random

import pytest

from commands import command
from import_logs import SAMPLES
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, read_files, recognise
from places import DATA

FAULTS = DATA / "faults"


def test_times_of_a_users_own_are_those_of_the_rows(tmp_path):
    text = "epoch,power.draw [W]\n" + "".join(f"{1_786_553_852 + 5 * i},{200 + i} W\n" for i in range(10))
    (tmp_path / "smi.csv").write_text(text)
    run = read_files([tmp_path / "smi.csv"])
    assert run.series("imported:0", "power_w")[0].tolist() == [(1_786_553_852 + 5 * i) * 10**9 for i in range(10)]
    (tmp_path / "smi.csv").write_text(text.replace("1786553", ""))
    with pytest.raises(BadInputError, match="the unit of 'epoch' isn't stated"):
        read_files([tmp_path / "smi.csv"])


def test_quoted_cells_hold_commas(capsys, tmp_path):
    made = command(capsys, "import", str(FAULTS / "H1_quoted.csv"), "-o", str(tmp_path / "r"))
    assert made.code == 0
    assert "in 9 s, 100.93 ± 0.76 W on average" in made.out.replace("\xa0", " ")


@pytest.mark.parametrize("seed", range(25))
def test_tables_are_read_by_the_rules_of_csv(tmp_path, seed):
    draw = random.Random(seed)
    delimiter = draw.choice([",", ";", "\t"])
    quoting = draw.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC])
    header = ["time_s", "state", "power_w"]
    place = draw.sample(range(3), 3)
    rows = []
    for i in range(20):
        state = "".join(draw.choice(["a", ",", ";", '"', "\n", " ", "é", "1"]) for _ in range(draw.randint(0, 8)))
        rows.append([1_786_553_852 + i, f"x{state}", draw.randint(80, 300)])
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=draw.choice(["\n", "\r\n"]))
    writer.writerows([row[k] for k in place] for row in [header, *rows])
    (tmp_path / "t.csv").write_bytes((draw.choice(["", "a log\n\n"]) + text.getvalue()).encode())
    run = read_files([tmp_path / "t.csv"])
    time, watts = run.series("imported:0", "power_w")
    assert time.tolist() == [row[0] * 10**9 for row in rows]
    assert watts.tolist() == [row[2] for row in rows]


def test_numpys_numbers_and_header_are_read(tmp_path):
    rows = [f"{1_786_553_852 + i:.18e},{200 + i:.18e}" for i in range(5)]
    (tmp_path / "t.csv").write_text("\n".join(["# time_s,power_w", *rows]) + "\n")
    run = read_files([tmp_path / "t.csv"])
    assert run.series("imported:0", "power_w")[1].tolist() == [200, 201, 202, 203, 204]


UNREAD = {
    "tegrastats": "RAM 2274/6834MB (lfb 27x4MB) SWAP 0/3417MB CPU [9%@1189,off] EMC_FREQ 0% VDD_IN 5542mW/5542mW\n",
    "nvidia-smi -q`": "\n==============NVSMI LOG==============\n\nTimestamp       : Wed Nov 25 20:30:00 2026\n",
    "nvidia-smi -q -x": '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "x.dtd">\n<nvidia_smi_log>\n',
    "pmon": "# gpu        pid  type    sm\n# Idx          #   C/G     %\n    0       1234     C    40\n",
    "dcgmi dmon": "#Entity   POWER  \nID        W\nGPU 0     200.155\nGPU 0     201.155\n",
    "rocprofv3": '"Kind","Agent_Id","Kernel_Name","Start_Timestamp","End_Timestamp"\n"K",1,"g",6,9\n',
    "rocprofv3 ": '"Domain","Function","Process_Id","Start_Timestamp","End_Timestamp"\n"H","f",1,6,9\n',
    " rocprofv3": '{"rocprofiler-sdk-tool": [{"metadata": {"pid": 1}}]}',
    "rocprof,": '"Index","KernelName","gpu-id","BeginNs","EndNs"\n0,"gemm",0,100,200\n',
    "amd-smi": "gpu,socket_power,gfx_activity\n0,150,90\n1,151,91\n",
    "amd-smi ": '[{"gpu": 0, "power": {"socket_power": {"value": 150, "unit": "W"}}}]',
    "rocm-smi": "======= ROCm System Management Interface =======\n",
    "xpu-smi": "+------+\n| Device ID  | 0 |\n| GPU Power (W) | 14 |\n",
    "MLPerf's power meter": "Time,07-12-2024 23:12:00.830,Watts,23.9,Volts,239.1,Amps,3.44\n" * 3,
    "LoadGen": ':::MLLOG {"key": "loadgen_version"}\n',
    "nsys stats": "Time (%),Total Time (ns),Instances,Avg (ns),Name\n90.0,1000,3,333.3,gemm\n",
    "nsys stats ": "Start (ns),Duration (ns),CorrId,Name\n100,10,1,gemm\n200,10,2,gemm\n",
    " nsys stats": " ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n Time (%)  Total Time (ns)\n",
    "exportTimes": '[ { "startH2dMs" : 1.0, "endH2dMs" : 1.1, "startComputeMs" : 1.1, "latencyMs" : 4 } ]\n',
    "exportLayerInfo": '{"Layers": ["conv1", "fc1"], "Bindings": []}\n',
    "benchmark_app": "[Step 11/11] Measuring performance\n[ INFO ] Count:            1000 iterations\n",
    "perf stat": "\n Performance counter stats for 'sleep 1':\n\n     12.34 Joules power/energy-pkg/\n",
    "ipmitool dcmi": "Tue Mar  3 10:00:00 CET 2026\n\n    Instantaneous power reading:        812 Watts\n",
    "powermetrics": "*** Sampled system activity (Tue Mar  3 10:00:00 2026) (5003.02ms) ***\nGPU Power: 20 mW\n",
    "gpustat": "node-a  Tue Mar  3 10:00:00 2026\n[0] NVIDIA H100 | 45C,  98 %, 300 / 700 W | 40 / 81559 MB |\n",
    "gpustat ": '{"hostname": "a", "query_time": "2026-03-03", "gpus": [{"index": 0, "power.draw": 300}]}',
    "sacct": "JobID|Start|ElapsedRaw|ConsumedEnergyRaw|\n100|2026-03-03T10:00:00|3600|2520000|\n",
    "SGLang": '{"backend": "sglang", "duration": 300.0, "completed": 1200, "mean_ttft_ms": 100.0}\n',
    "GenAI-Perf": '{"request_throughput": {"unit": "requests/sec", "avg": 4.0}}',
    "llama-bench": '[{"build_commit": "x", "n_gen": 128, "avg_ns": 1000000000, "avg_ts": 128.0}]',
    "llama-bench ": "| model | size | params | backend | ngl | test | t/s |\n| llama 8B | 4 GiB | 8 B | CUDA | 99 |\n",
    "ZeusMonitor": '{"timestamp_start": 1772532000.0, "gpu_energy": {"0": 1000.0}, "time": 10.0}',
    "ZeusMonitor ": "start_time,window_name,elapsed_time,gpu0_energy\n1772532000.0,epoch,10.0,3000.0\n" * 2,
    "W&B": '{"_runtime": 0.0, "_timestamp": 1772532000.0, "_wandb": true, "system.gpu.0.powerWatts": 300}\n',
    "perf stat ": "1.000123,12.34,Joules,power/energy-pkg/,1,1,,\n2.000123,12.34,Joules,power/energy-pkg/,1,1,,\n",
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


@pytest.mark.parametrize("name", SAMPLES)
def test_files_that_are_read_stay_read(tmp_path, name):
    form, text = SAMPLES[name]
    (tmp_path / "file").write_text(text)
    assert recognise(tmp_path / "file") == form


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("Timestamp, DeviceId, GPU Utilization (%), GPU Power (W)", "06:14:4{}.000, 0, 0.00, 14.61"),
        ("timestamp,gpu,socket_power,gfx_voltage", "178655385{},0,150,N/A"),
    ],
)
def test_logs_of_other_vendors_with_times_are_tables(tmp_path, header, row):
    (tmp_path / "t.csv").write_text("\n".join([header, *(row.format(i) for i in range(5))]) + "\n")
    run = read_files([tmp_path / "t.csv"])
    assert len(run.series(run.devices[0].id, "power_w")[1]) == 5


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("gpu,timestamp,power_w", "0,178655385{},200"),
        ("GPU\tTime (s)\tPOWER (W)", "0\t{}\t200"),
        ("Node_Id,Timestamp,Power (W)", "n1,178655385{},200"),
        ("Time,Volts,Watts,Amps,PF", "2026-11-25 20:30:0{},230,200,1,0.9"),
        ("Start_Timestamp,time_s,power_w", "5,{},200"),
        ("device,time_s,Average Package Power (W)", "0,{},200"),
    ],
)
def test_tables_of_a_users_own_are_not_taken_for_those_of_a_tool(tmp_path, header, row):
    (tmp_path / "t.csv").write_text("\n".join([header, *(row.format(i) for i in range(5))]) + "\n")
    run = read_files([tmp_path / "t.csv"])
    assert run.series(run.devices[0].id, "power_w")[1].tolist() == [200] * 5


@pytest.mark.parametrize("text", ["name,city\nAnn 1,Rome\nBob 2,Oslo\n", "state,note\non 3x,9 lives left\noff,b\n"])
def test_no_mapping_is_advised_that_cannot_help(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(BadInputError) as refused:
        read_files([tmp_path / "t.csv"], ImportOptions(format="table"))
    assert "--map" not in str(refused.value)


@pytest.mark.parametrize(
    ("cell", "options", "assumed"),
    [("12.5", [], 1), ("12.5 W", [], 0), ("12.5", ["--map", "power_w=rack_power"], 0)],
)
def test_watts_that_nothing_states_are_an_assumption_that_is_stated(capsys, tmp_path, cell, options, assumed):
    rows = [f"2026-03-05T11:00:{i:02d},{cell}" for i in range(20)]
    (tmp_path / "rack.csv").write_text("\n".join(["time,rack_power", *rows]) + "\n")
    source, place = str(tmp_path / "rack.csv"), str(tmp_path / "r")
    assert command(capsys, "import", source, "-o", place, *options).code == 0
    said = " ".join(command(capsys, "show", place, "-v").out.split())
    assert said.count("watts were assumed; if it is in kilowatts, give --map power_kw=rack_power") == assumed


@pytest.mark.thorough
def test_two_powers_of_one_meter_can_be_added_as_is_advised(capsys, tmp_path):
    rows = [f"2026-03-05T11:00:{i:02d},6.0,5.0" for i in range(20)]
    (tmp_path / "pdu.csv").write_text("\n".join(["time,Feed 1 kW,Feed 2 kW", *rows]) + "\n")
    source = str(tmp_path / "pdu.csv")
    made = command(capsys, "import", source, "-o", str(tmp_path / "r"))
    assert "for the sum, --map power_w:0=COLUMN --map power_w:1=COLUMN" in " ".join(made.out.split())
    ways = ["--map", "power_w:0=Feed 1 kW", "--map", "power_w:1=Feed 2 kW"]
    made = command(capsys, "import", source, "-o", str(tmp_path / "q"), *ways)
    assert " W on average, 2 devices together" in made.out.replace("\xa0", " ")
