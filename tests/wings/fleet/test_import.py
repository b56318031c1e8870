"""Studies that others made: traces of a GPU each, read in and compared."""

import json

import pytest

from commands import command
from jouletrace.recording import board_store
from jouletrace.run import ChannelInfo, DeviceInfo, Run, tables
from jouletrace.wings.fleet.power_step import in_words, power_step

HEADER = (
    "==7== NVPROF is profiling process 7\n"
    '"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Device","Context","Stream","Name"\n'
    "s,ms,,,,,,,,,,\n"
)
NAME = "void sgemm<float, int=4, (Layout)1>(float*, float, int)"


def trace(path, seconds):
    """As ``nvprof --print-gpu-trace --csv`` writes it, of one kernel with commas in its name, and a short one."""
    lines = []
    for number, ms in enumerate(1e3 * s for s in seconds):
        for start, took, name in ((number, ms, NAME), (number + 0.5, 0.01, "fill(float*)")):
            cells = [start, took, 8, 8, 1, 16, 16, 1]
            lines.append(",".join(f"{c:.6f}" if isinstance(c, float) else str(c) for c in cells))
            lines[-1] += f',"Tesla V100 (0)","1","7","{name} [{number}]"'
    path.write_text(HEADER + "\n".join(lines) + "\n")


@pytest.mark.thorough
def test_traces_of_nvprof_make_a_fleet(tmp_path, workspace, capsys):
    for gpu, factor in enumerate((1.0, 1.02, 0.99)):
        for repeat in range(2):
            file = tmp_path / f"gpu{gpu}-{repeat}.csv"
            trace(file, [0.2 * factor * (1 + 0.001 * ((number * 7 + repeat) % 5)) for number in range(6)])
            said = command(capsys, "import", str(file), "--device", f"V100 {gpu}", "-o", f"gpu{gpu}-{repeat}.zip")
            assert said.code == 0, said.err
    runs = [f"gpu{gpu}-{repeat}.zip" for gpu in range(3) for repeat in range(2)]
    said = command(capsys, "fleet", "report", *runs, "--json")
    assert said.code == 0, said.err
    (group,) = json.loads(said.out)["groups"]
    assert group["facts"]["model"] == "V100"
    assert "sgemm" in group["facts"]["workload"], "the kernel that takes the most time"
    assert {gpu["gpu"]: gpu["runs"] for gpu in group["gpus"]} == {"V100 0": 2, "V100 1": 2, "V100 2": 2}
    times = {gpu["gpu"]: gpu["time_s"]["value"]["value"] for gpu in group["gpus"]}
    assert times["V100 1"] / times["V100 2"] == pytest.approx(1.02 / 0.99, rel=0.001)
    spread = group["spread"]["time_s"]["range"]
    assert spread["low"] < 1.02 / 0.99 - 1 < spread["high"]


def stepped(watts_at) -> Run:
    run = Run(devices=[DeviceInfo("gpu", "GPU")])
    run.channels = [ChannelInfo("gpu", "power_w", "W", "sensor", period_s=0.02)]
    rows = [
        {"time_ns": ms * 1_000_000, "device": "gpu", "channel": "power_w", "value": float(watts_at(ms))}
        for ms in range(0, 3000, 20)
    ]
    run.samples = tables.from_rows(rows, "samples")
    rest = {"id": 0, "kind": "phase", "name": "context idle before", "device": "gpu", "start_ns": 0, "end_ns": 10**9}
    load = {**rest, "id": 1, "name": "energy", "start_ns": 10**9, "end_ns": 3 * 10**9}
    run.spans = tables.from_rows([rest, load], "spans")
    return run


def test_a_step_of_power_reports_its_rise_its_overshoot_and_its_return():
    found = power_step(stepped(lambda ms: 120 if ms <= 1000 else 930 if ms <= 1140 else 700 + ms // 20 % 2))
    assert found["step_rest_w"] == 120
    assert found["step_settled_w"] == pytest.approx(700.5, abs=0.5)
    assert found["step_peak_w"] == 930
    assert found["step_rise_s"] == pytest.approx(0.02)
    assert found["step_return_s"] == pytest.approx(0.16)


def test_doctor_says_what_power_did_when_a_load_began(capsys):
    step = {"step_rest_w": 122.0, "step_settled_w": 700.0, "step_peak_w": 926.0, "step_rise_s": 0.031}
    step["step_return_s"] = 0.15
    board_store.remember("SIM-h100-80-0", power_step={**step, "text": in_words(step, "gemm"), "time_ns": 0})
    said = " ".join(command(capsys, "doctor", "--device", "sim:h100").out.split())
    assert "(gemm): 122 to 700 W, 90 % after 31 ms, peak 926 W, back after 150 ms; measured" in said
    assert "power limit 700 W (min 200 W, max 700 W, default 700 W)" in said
    printed = json.loads(command(capsys, "doctor", "--device", "sim:h100", "--json").out)
    assert printed["devices"][0]["remembered"]["power_step"]["step_peak_w"] == 926


def test_a_step_without_an_overshoot_has_no_peak():
    found = power_step(stepped(lambda ms: 120 if ms <= 1000 else 400 + 3 * (ms // 20 % 3)))
    assert (found["step_peak_w"], found["step_return_s"]) == (None, None)
    assert found["step_settled_w"] == pytest.approx(403, abs=1)


def test_where_a_step_cannot_be_seen_nothing_is_reported_of_it():
    slow = stepped(lambda ms: 120 if ms <= 1000 else 400)
    slow.channels[0].period_s = 0.1
    assert set(power_step(slow).values()) == {None}
    assert set(power_step(stepped(lambda ms: 400)).values()) == {None}, "nothing rose"
