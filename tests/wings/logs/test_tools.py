"""Logs of other tools: every figure is that of the powers in the file, by NumPy; a changed file has no other readings."""

import random

import numpy as np
import pytest
from tool_logs import COUNT, LOGS, START, powers

import jouletrace as jt
from commands import command
from jouletrace.errors import BadInputError


def imported(path, mapping):
    return jt.import_files(path, map=mapping)


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
@pytest.mark.parametrize("name", LOGS)
def test_a_changed_log_has_no_other_readings(tmp_path, name):
    make, gpus, decimals, mapping = LOGS[name]
    watts = powers(gpus, decimals)
    text = make(watts)
    draw = random.Random(name)
    path = tmp_path / "a.log"
    for number in range(200):
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
            time_ns, read = run.series(device.id, "power_w")
            odd = [w for w in read.tolist() if round(w, 6) not in allowed]
            assert not odd or (way == "cut" and len(odd) == 1 and "unfinished_line" in said), (name, number, way, odd)
            assert len(read) <= COUNT + 1, (name, number, way)


UNREAD = {
    "pmon": "# gpu        pid  type    sm\n# Idx          #   C/G     %\n    0       1234     C    40\n",
    "rocprofv3": '"Kind","Agent_Id","Kernel_Name","Start_Timestamp","End_Timestamp"\n"K",1,"g",6,9\n',
    "rocprofv3 ": '"Domain","Function","Process_Id","Start_Timestamp","End_Timestamp"\n"H","f",1,6,9\n',
    " rocprofv3": '{"rocprofiler-sdk-tool": [{"metadata": {"pid": 1}}]}',
    "rocprof,": '"Index","KernelName","gpu-id","BeginNs","EndNs"\n0,"gemm",0,100,200\n',
    "amd-smi": "gpu,socket_power,gfx_activity\n0,150,90\n1,151,91\n",
    "amd-smi ": '[{"gpu": 0, "power": {"socket_power": {"value": 150, "unit": "W"}}}]',
    "rocm-smi": "======= ROCm System Management Interface =======\n",
    "xpu-smi": "+------+\n| Device ID  | 0 |\n| GPU Power (W) | 14 |\n",
    "LoadGen": ':::MLLOG {"key": "loadgen_version"}\n',
    "nsys stats": "Time (%),Total Time (ns),Instances,Avg (ns),Name\n90.0,1000,3,333.3,gemm\n",
    "nsys stats ": "Start (ns),Duration (ns),CorrId,Name\n100,10,1,gemm\n200,10,2,gemm\n",
    " nsys stats": " ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n Time (%)  Total Time (ns)\n",
    "exportTimes": '[ { "startH2dMs" : 1.0, "endH2dMs" : 1.1, "startComputeMs" : 1.1, "latencyMs" : 4 } ]\n',
    "exportLayerInfo": '{"Layers": ["conv1", "fc1"], "Bindings": []}\n',
    "benchmark_app": "[Step 11/11] Measuring performance\n[ INFO ] Count:            1000 iterations\n",
    "perf stat": "\n Performance counter stats for 'sleep 1':\n\n     12.34 Joules power/energy-pkg/\n",
    "gpustat": '{"hostname": "a", "query_time": "2026-03-03", "gpus": [{"index": 0, "power.draw": 300}]}',
    "sacct": "JobID|Start|ElapsedRaw|ConsumedEnergyRaw|\n100|2026-03-03T10:00:00|3600|2520000|\n",
    "SGLang": '{"backend": "sglang", "duration": 300.0, "completed": 1200, "mean_ttft_ms": 100.0}\n',
    "GenAI-Perf": '{"request_throughput": {"unit": "requests/sec", "avg": 4.0}}',
    "llama-bench": '[{"build_commit": "x", "n_gen": 128, "avg_ns": 1000000000, "avg_ts": 128.0}]',
    "llama-bench ": "| model | size | params | backend | ngl | test | t/s |\n| llama 8B | 4 GiB | 8 B | CUDA | 99 |\n",
    "ZeusMonitor": '{"timestamp_start": 1772532000.0, "gpu_energy": {"0": 1000.0}, "time": 10.0}',
    "ZeusMonitor ": "start_time,window_name,elapsed_time,gpu0_energy\n1772532000.0,epoch,10.0,3000.0\n" * 2,
    "perf stat ": "1.000123,12.34,Joules,power/energy-pkg/,1,1,,\n2.000123,12.34,Joules,power/energy-pkg/,1,1,,\n",
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
