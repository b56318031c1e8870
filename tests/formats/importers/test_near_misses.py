"""Files of a known format with columns of a user's own, quoted cells, and files of tools that aren't read."""

import csv
import io
import random

import pytest

from commands import command
from import_logs import EMISSIONS, SAMPLES
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import read_files, recognise
from jouletrace.formats.importers.base import ImportOptions
from places import DATA

FAULTS = DATA / "faults"

ROWS = [
    {
        "timestamp": f"2026/03/05 11:00:{i // 10:02d}.{i % 10}00",
        "index": "0",
        "name": "NVIDIA A100-SXM4-40GB",
        "power.draw [W]": f"{300 + i % 3}.00 W",
        "utilization.gpu [%]": "97 %",
    }
    for i in range(100)
]


def query(columns, own, case=str, before=""):
    """A log of nvidia-smi with these columns, and others of a user's own: heading -> cell."""
    rows = [", ".join(map(case, columns))]
    rows += [", ".join(own.get(name, row.get(name, "")) for name in columns) for row in ROWS]
    return before + "\n".join(rows) + "\n"


@pytest.mark.parametrize("seed", range(16))
def test_a_log_of_nvidia_smi_stays_one_whatever_a_user_adds(tmp_path, seed):
    draw = random.Random(seed)
    own = {"hostname": "node7", "note": "a b", "job id": "4711", "": "3", "Phase": "training"}
    added = draw.sample(list(own), draw.randint(1, 4))
    columns = [
        "timestamp",
        "power.draw [W]",
        *draw.sample(["index", "name", "utilization.gpu [%]"], draw.randint(1, 3)),
    ]
    columns += added
    draw.shuffle(columns)
    case = draw.choice([str, str.upper, str.title])
    before = draw.choice(["", "# measured on Tuesday\n", "\n\n"])
    (tmp_path / "smi.csv").write_text(query(columns, own, case, before))
    assert recognise(tmp_path / "smi.csv") == "nvidia_smi"
    run = read_files([tmp_path / "smi.csv"])
    (device,) = run.devices
    assert run.series(device.id, "power_w")[1].tolist() == [300 + i % 3 for i in range(100)]
    assert run.channel(device.id, "power_w").gain_pct == 5.0
    known = {"long_average", "sensor_unknown"} & {warning.code for warning in run.warnings}
    assert bool(known) == ("name" not in columns)  # an A100 averages over 25 ms
    assert "not_a_number" not in run.settings["imported"][0]["left_out"]
    assert device.host == ("node7" if "hostname" in added else "")


def test_times_of_a_users_own_are_those_of_the_rows(tmp_path):
    text = "epoch,power.draw [W]\n" + "".join(f"{1_786_553_852 + 5 * i},{200 + i} W\n" for i in range(10))
    (tmp_path / "smi.csv").write_text(text)
    run = read_files([tmp_path / "smi.csv"])
    assert run.series("imported:0", "power_w")[0].tolist() == [(1_786_553_852 + 5 * i) * 10**9 for i in range(10)]
    (tmp_path / "smi.csv").write_text(text.replace("1786553", ""))
    with pytest.raises(BadInputError, match="the unit of 'epoch' isn't stated"):
        read_files([tmp_path / "smi.csv"])


def test_a_mapping_that_nothing_uses_is_refused(capsys, tmp_path):
    (tmp_path / "smi.csv").write_text(query(["timestamp", "index", "power.draw [W]"], {}))
    asked = ("import", str(tmp_path / "smi.csv"), "-o", str(tmp_path / "r"), "--map", "power_w=index")
    assert "is read as nvidia_smi" in command(capsys, *asked).complaint


@pytest.mark.parametrize(
    "header",
    [
        "gpu,pwr,gtemp,sm",
        "time gpu pwr sm mem",
        "# host gpu pwr gtemp sm",
        "#GPU PWR GTEMP SM",
        '"gpu","pwr","sm","mem"',
    ],
)
def test_dmon_is_known_by_its_columns(tmp_path, header):
    sign = "," if "," in header else " "
    cells = {"gpu": "0", "pwr": "61", "time": "10:00:0{}", "host": "node7"}
    names = header.lstrip("# ").replace('"', "").lower().split(sign)
    rows = [sign.join(cells.get(name, "40") for name in names).format(i) for i in range(5)]
    (tmp_path / "dmon.log").write_text("\n".join([header, *rows]) + "\n")
    assert recognise(tmp_path / "dmon.log") == "nvidia_smi"
    run = read_files([tmp_path / "dmon.log"])
    assert run.series("imported:0", "power_w")[1].tolist() == [61] * 5
    assert run.channel("imported:0", "power_w").source == "nvidia-smi dmon, pwr"


def test_fields_of_dcgm_are_known_without_an_entity(tmp_path):
    rows = [f"node7,{1_786_553_852 + i},{200 + i}" for i in range(10)]
    (tmp_path / "dcgm.csv").write_text("\n".join(["Hostname,Time,DCGM_FI_DEV_POWER_USAGE", *rows]) + "\n")
    assert recognise(tmp_path / "dcgm.csv") == "dcgm"
    run = read_files([tmp_path / "dcgm.csv"])
    assert run.series(run.devices[0].id, "power_w")[1].tolist() == [200 + i for i in range(10)]


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


def test_rows_of_codecarbon_are_runs_with_its_own_figures(capsys, tmp_path):
    source = str(FAULTS / "P1_emissions.csv")
    made = command(capsys, "import", source, "-o", str(tmp_path / "r"))
    assert "energy stated by codecarbon unknown: rows overlap in time" in made.out.replace(
        "\xa0", " "
    )  # 60 s each, 10 s apart
    run = read_files([source])
    assert len(run.samples) == 0
    stated = {"energy_gpu_j": 15001.2, "energy_total_j": 18000, "time_s": 60, "co2_g": 1}
    assert {name: run.result(name, 1).value for name in stated} == pytest.approx(stated)
    assert {run.result(name, 1).method for name in stated} == {"stated by codecarbon"}
    refused = command(capsys, "import", source, "-o", str(tmp_path / "q"), "--map", "power_w=gpu_power").complaint
    assert "is read as codecarbon" in refused


def test_power_that_was_measured_stands_beside_what_codecarbon_states(capsys, tmp_path):
    (tmp_path / "smi.csv").write_text(query(list(ROWS[0]), {}))
    source = str(FAULTS / "P1_emissions.csv")
    made = command(capsys, "import", source, str(tmp_path / "smi.csv"), "-o", str(tmp_path / "r"))
    said = " ".join(made.out.split())
    assert "energy stated by codecarbon unknown: rows overlap in time" in said
    assert "2.9798 ± 0.0058 kJ (± 5 % absolute) in 9.9 s, 300.99 ± 0.59 W on average" in said


@pytest.mark.parametrize("columns", ["timestamp, index, utilization.gpu [%]", "EntityId,GRACT,FBUSD,TimeStamp"])
def test_a_log_without_power_says_that_it_has_none(capsys, tmp_path, columns):
    first = columns.startswith("timestamp")
    rows = [f"2026/03/05 11:00:{i:02d}.000, 0, 97 %" if first else f"0,0.5,3,{1656761213 + i}" for i in range(20)]
    (tmp_path / "log.csv").write_text("\n".join([columns, *rows]) + "\n")
    made = command(capsys, "import", str(tmp_path / "log.csv"), "-o", str(tmp_path / "r"))
    assert made.code == 0, made.err
    for said in (made.out, command(capsys, "show", str(tmp_path / "r")).out):
        assert "no figure, 1 remark" in said
        assert "none of the columns is a power or an energy counter" in said


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


def test_two_powers_of_one_meter_can_be_added_as_is_advised(capsys, tmp_path):
    rows = [f"2026-03-05T11:00:{i:02d},6.0,5.0" for i in range(20)]
    (tmp_path / "pdu.csv").write_text("\n".join(["time,Feed 1 kW,Feed 2 kW", *rows]) + "\n")
    source = str(tmp_path / "pdu.csv")
    made = command(capsys, "import", source, "-o", str(tmp_path / "r"))
    assert "for the sum, --map power_w:0=COLUMN --map power_w:1=COLUMN" in " ".join(made.out.split())
    ways = ["--map", "power_w:0=Feed 1 kW", "--map", "power_w:1=Feed 2 kW"]
    made = command(capsys, "import", source, "-o", str(tmp_path / "q"), *ways)
    assert " W on average, 2 devices together" in made.out.replace("\xa0", " ")


def test_the_last_row_of_a_run_of_codecarbon_counts(tmp_path):
    rows = ["00,a,30,1,0.5", "30,a,60,2,1", "50,b,10,1,0.25"]
    cells = [row.split(",") for row in rows]
    lines = [f"2026-01-01T00:00:{at},p,{id},{s},{kg},0,{kwh},{kwh},A100,1.0" for at, id, s, kg, kwh in cells]
    (tmp_path / "e.csv").write_text(EMISSIONS + "\n".join(lines) + "\n")
    run = read_files([tmp_path / "e.csv"])
    assert run.result("energy_gpu_j").value == pytest.approx(1.25 * 3.6e6)
    assert run.result("time_s").value == 70
    assert run.settings["imported"][0]["left_out"]["earlier_rows"] == 1


def test_a_figure_that_codecarbon_lacks_is_none(tmp_path):
    lines = ["2026-01-01T00:00:00,p,a,60,1,0,,0.5,,1.0", "2026-01-01T00:01:00,p,b,60,1,0,0.25,0.5,,1.0"]
    (tmp_path / "e.csv").write_text(EMISSIONS + "\n".join(lines) + "\n")
    run = read_files([tmp_path / "e.csv"])
    assert run.result("energy_gpu_j").value is None
    assert run.result("energy_total_j").value == pytest.approx(3.6e6)
