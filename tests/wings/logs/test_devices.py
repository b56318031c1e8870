"""An imported log of nvidia-smi or DCGM states its devices: those without a reading are named, counters are used."""

import re

import pytest

from commands import command
from import_logs import dmon
from logged_devices import dcgm, smi


@pytest.mark.thorough
def test_a_gpu_without_a_reading_of_power_is_named(said):
    rows = [(k, f"{gpu}, NVIDIA A100-SXM4-80GB, {watts}, 97 %") for k in range(10) for gpu, watts in enumerate(E1)]
    words, found = said(smi(rows))
    assert "1 of 2 devices" in words
    assert "no reading of power: NVIDIA A100-SXM4-80GB #1" in words
    assert "trust: with care, 1 remark" in words
    assert found["trust"]["level"] == "with care"


E1 = ("200.00 W", "[N/A]")


@pytest.mark.thorough
def test_an_exporter_that_leaves_out_the_power_of_a_gpu_loses_no_gpu(said):
    other = dcgm(10, 60).replace("POWER_USAGE", "GPU_TEMP").replace('gpu="0"', 'gpu="1"').replace("GPU-1", "GPU-2")
    both = zip(dcgm(10, 165).splitlines(), other.splitlines(), strict=True)
    words, _ = said("\n".join(line for lines in both for line in lines) + "\n", name="page.prom")
    assert "1 of 2 devices" in words
    assert "trust: with care" in words


def test_power_that_reads_zero_throughout_is_the_reason(said):
    words, found = said(dcgm(20, 0), name="page.prom")
    assert "energy unknown: power reads 0 W throughout" in words
    assert "measure for longer" not in words
    assert found["trust"]["level"] == "no"
    words, found = said(dcgm(20, 0, 150_000), name="more.prom")
    assert "all 20 readings of power are 0 W" in words
    assert found["trust"]["level"] == "with care"


@pytest.mark.thorough
def test_readings_that_come_late_are_compared_with_a_counter_too(said):
    log = dcgm(30, 300, 150_000).replace("NVIDIA A30", "NVIDIA H100 80GB HBM3")  # a mean over the second before
    words, _ = said(log, name="late.prom")
    assert "trust: no" in words
    assert "2 times the energy that the energy counter gained" in words


@pytest.mark.thorough
def test_a_sensor_that_no_one_states_is_one_remark_though_readings_fit_no_guess(said):
    watts = [22] * 5 + list(range(25, 66, 4)) + [67] * 7 + [66] * 4 + [65] * 4 + [64] * 110
    rows = [f"2026/08/24 22:19:{k // 10:02d}.{k % 10}00, {one:.2f} W" for k, one in enumerate(watts)]
    words, _ = said("\n".join(["timestamp, power.draw [W]", *rows]) + "\n", name="swings.csv")
    assert "trust: with care, 1 remark" in words
    assert "the file doesn't state which GPU's sensor" in words


def test_what_was_asked_for_comes_first(workspace, capsys):
    (workspace / "dmon.log").write_text(dmon([61] * 30 + [87] * 60 + [61] * 20))
    printed = command(capsys, "import", "dmon.log", "--latency", "4.37ms").out.replace("\u00a0", " ")
    lines = [line for line in printed.splitlines() if " J" in line or "mJ" in line or "kJ" in line]
    assert re.search(r"mJ per inference \(± [\d.]+ % absolute\): ", lines[0])
    assert "above idle in 4.37 ms" in " ".join(printed.split())
    assert " kJ in " in lines[1]
    assert printed.count("per inference") == 1
    assert "energy unknown" not in printed
