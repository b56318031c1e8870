"""An imported log states its devices: those without a reading are named, counters are used, trust follows."""

import json
import re
from pathlib import Path

import pytest

from commands import command
from import_logs import TORCH, dmon
from shown import rows

START_S = 1_786_553_852
SMI = "timestamp, index, name, power.draw [W], utilization.gpu [%]"


def table(columns, rows, first_s=START_S):
    """A table with a row a second."""
    lines = [",".join(map(str, (first_s + k, *row))) for k, row in enumerate(rows)]
    return "\n".join([f"time_s,{columns}", *lines]) + "\n"


def smi(rows, head=SMI):
    """A log of nvidia-smi from (second, cells)."""
    return "\n".join([head, *(f"2026/08/24 22:19:{second:02d}.000, {cells}" for second, cells in rows)]) + "\n"


def dcgm(seconds, power, milliwatts=None):
    labels = '{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA A30",Hostname="n1"}'
    lines = []
    for k in range(seconds):
        stamp = (START_S + k) * 1000
        lines.append(f"DCGM_FI_DEV_POWER_USAGE{labels} {power} {stamp}")
        if milliwatts is not None:
            counted = 126_272_101_025 + k * milliwatts
            lines.append(f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{labels} {counted} {stamp}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def said(workspace, capsys):
    """Imports a text; returns what is printed in one line, and the JSON of the same."""

    def read(text, *more, name="log.csv"):
        (workspace / name).write_text(text)
        printed = command(capsys, "import", name, *more, "-o", f"run-{name}").out
        found = json.loads(command(capsys, "show", f"run-{name}", "--json").out)
        return " ".join(printed.split()), found

    return read


def test_a_gpu_without_a_reading_of_power_is_named(said):
    rows = [(k, f"{gpu}, NVIDIA A100-SXM4-80GB, {watts}, 97 %") for k in range(10) for gpu, watts in enumerate(E1)]
    words, found = said(smi(rows))
    assert "1 of 2 devices" in words
    assert "no reading of power: NVIDIA A100-SXM4-80GB #1" in words
    assert "trust: with care, 1 remark" in words
    assert found["trust"]["level"] == "with care"


E1 = ("200.00 W", "[N/A]")


@pytest.mark.parametrize(
    "text",
    [
        smi([(k, "0, NVIDIA GeForce GTX 1050 Ti, [N/A], 100 %") for k in range(10)]),
        table("gpu,power_w,utilization_pct", [(0, "", 98)] * 10),
        dmon([61] * 10).replace(" 61 ", "  - "),
    ],
    ids=["query", "table", "dmon"],
)
def test_a_log_without_a_reading_of_power_is_not_trusted(said, text):
    words, _ = said(text)
    assert "energy unknown: no reading of power" in words
    assert "trust: no" in words


def test_of_several_columns_the_empty_one_is_a_device(said):
    words, _ = said(table("gpu0_power_w,gpu1_power_w,gpu2_power_w", [(200, "", 100)] * 10))
    assert "300.00 ± 0.87 W on average, 2 of 3 devices together" in words
    assert "no reading of power: device 1" in words


def test_an_exporter_that_leaves_out_the_power_of_a_gpu_loses_no_gpu(said):
    other = dcgm(10, 60).replace("POWER_USAGE", "GPU_TEMP").replace('gpu="0"', 'gpu="1"').replace("GPU-1", "GPU-2")
    both = zip(dcgm(10, 165).splitlines(), other.splitlines(), strict=True)
    words, _ = said("\n".join(line for lines in both for line in lines) + "\n", name="page.prom")
    assert "1 of 2 devices" in words
    assert "trust: with care" in words


def test_columns_of_others_make_no_device_without_power(said):
    words, _ = said(table("gpu1_power_w,gpu2_power_w,ambient_temp_c", [(100, 200, 21)] * 10))
    assert "300.00 ± 0.87 W on average, 2 devices together" in words
    assert "trust: yes" in words


def test_power_from_another_file_is_a_reading(workspace, capsys):
    head = SMI.replace("index", "index, uuid")
    (workspace / "a.csv").write_text(smi([(k, "0, GPU-1, NVIDIA A100, [N/A], 97 %") for k in range(10)], head))
    (workspace / "b.csv").write_text(smi([(k, "0, GPU-1, NVIDIA A100, 200.00 W, 97 %") for k in range(10)], head))
    words = " ".join(command(capsys, "import", "a.csv", "b.csv").out.split())
    assert "200.00 ± 0.66 W on average" in words
    assert "no reading of power" not in words


def test_another_channel_without_a_reading_is_named_and_costs_no_trust(said):
    rows = [(k, "0, NVIDIA A100-SXM4-80GB, 200.00 W, [N/A]") for k in range(10)]
    words, found = said(smi(rows))
    assert "trust: yes" in words
    assert any("no reading of utilization.gpu" in warning["message"] for warning in found["warnings"])


def test_zero_watts_at_work_are_not_averaged_silently(said):
    watts = ["0.00" if k % 3 == 1 else "247.00" for k in range(30)]
    words, _ = said(smi([(k, f"0, NVIDIA A100-SXM4-80GB, {one} W, 100 %") for k, one in enumerate(watts)]))
    assert "trust: no" in words
    assert "10 of 30 readings of power are 0 W, though the device was up to 100 % busy" in words
    words, _ = said(
        table("power_w", [(0 if k % 3 == 1 else 247,) for k in range(30)]), "--device", "A100", name="b.csv"
    )
    assert "which no GPU draws" in words


@pytest.mark.parametrize(
    ("text", "power", "seconds"),
    [
        (table("energy_counter_j", [(1000 + 200 * k,) for k in range(11)]), 200, 10),
        (table("energy_mj", [(1000 + 200_000 * k,) for k in range(11)]), 200, 10),
        (table("energy_kwh", [(20 + 0.01 * k,) for k in range(11)]), 36_000, 10),
        (
            smi(
                [(k, f"0, NVIDIA L4, {7_000_000 + 70_000 * k} mJ, 97 %") for k in range(21)],
                SMI.replace("power.draw [W]", "total_energy_consumption [mJ]"),
            ),
            70,
            20,
        ),
        (dcgm(20, 0, 150_000), 150, 19),
        (dcgm(20, 0, 150_000).replace("POWER_USAGE", "SM_CLOCK").replace("} 0", "} 1410"), 150, 19),
    ],
    ids=["joules", "millijoules", "kWh", "query", "dcgm with power of 0 W", "dcgm without power"],
)
def test_an_energy_counter_alone_gives_the_figure(said, text, power, seconds):
    words, found = said(text, name="log.prom" if "DCGM" in text else "log.csv")
    (device,) = rows(found, "whole", "device")
    energy = device["energy_j"]
    assert energy["value"] == pytest.approx(power * seconds, rel=1e-6)
    assert energy["low"] < power * seconds < energy["high"]
    assert energy["high"] - energy["low"] < 2 * power * 1.2  # two updates of a second
    assert device["power_w"]["value"] == pytest.approx(power, rel=1e-6)
    assert "by the energy counter" in words
    assert "trust: no" not in words


def test_power_that_reads_zero_throughout_is_the_reason(said):
    words, found = said(dcgm(20, 0), name="page.prom")
    assert "energy unknown: power reads 0 W throughout" in words
    assert "measure for longer" not in words
    assert found["trust"]["level"] == "no"
    words, found = said(dcgm(20, 0, 150_000), name="more.prom")
    assert "all 20 readings of power are 0 W" in words
    assert found["trust"]["level"] == "with care"


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([(247, 1000)] * 11, "counter stood still for 10 s in which the power record has 2470 J"),
        ([(247, 0)] * 11, "counter stood still for 10 s in which the power record has 2470 J"),
        ([(247, 1000 + 247 * min(k, 10)) for k in range(21)], "counter stood still for 10 s"),
        ([(247, 1000 + 247 * max(k, 10)) for k in range(21)], "counter stood still for 10 s"),
        ([(200, 1000 + 100 * k) for k in range(11)], "2 times the energy that the energy counter gained"),
        ([(200, 1000 + 400 * k) for k in range(11)], "0.5 times the energy that the energy counter gained"),
    ],
    ids=["stuck", "stuck at zero", "from then on", "until then", "half", "double"],
)
def test_a_counter_that_contradicts_the_power_fails_a_check(said, rows, what):
    words, _ = said(table("power_w,energy_counter_j", rows))
    assert "trust: no" in words
    assert what in words


def test_readings_that_come_late_are_compared_with_a_counter_too(said):
    log = dcgm(30, 300, 150_000).replace("NVIDIA A30", "NVIDIA H100 80GB HBM3")  # a mean over the second before
    words, _ = said(log, name="late.prom")
    assert "trust: no" in words
    assert "2 times the energy that the energy counter gained" in words


def test_energies_of_rows_with_a_start_and_an_end_are_no_counter(workspace, capsys):
    rows = "".join(f"layer{k},{START_S + k},{START_S + k + 0.5},{3 + k % 2}\n" for k in range(3))
    Path("layers.csv").write_text(f"layer,start_time,end_time,energy_j\n{rows}")
    assert "which column is the power?" in command(capsys, "import", "layers.csv", "--map", "time_s=start_time").err


@pytest.mark.parametrize(
    "text",
    [
        table("power_w,energy_counter_j", [(200, 1000 + 200 * k) for k in range(30)]),
        table("power_w,energy_kwh", [(200, 12.34)] * 30),  # 0.01 kWh are 36 kJ: three minutes
        table("power_w,energy_kwh", [(200, 12.34 + 0.01 * (k // 180)) for k in range(1000)]),
        dcgm(30, 150, 150_000),
        table("power_w,energy_j", [(200 + k % 3, 200 + k % 3) for k in range(30)]),  # of each second: no counter
    ],
    ids=["joules", "coarse", "coarse steps", "dcgm", "energies of seconds"],
)
def test_a_counter_that_agrees_says_nothing(said, text):
    words, _ = said(text, name="log.prom" if "DCGM" in text else "log.csv")
    assert "trust: yes" in words
    assert "on average" in words
    assert "by the energy counter" not in words


def test_a_fall_of_a_counter_is_stated_and_not_counted(said):
    counts = [4_294_000 + 200 * k for k in range(5)] + [100 + 200 * k for k in range(16)]
    words, found = said(table("energy_counter_j", [(one,) for one in counts]))
    assert "the energy counter fell from 4.2948e+06 to 100 J after 5 s" in words
    assert "trust: with care" in words
    (device,) = rows(found, "whole", "device")
    assert device["energy_j"]["value"] == pytest.approx(200 * 19)
    assert device["power_w"]["value"] == pytest.approx(200)
    beside = table("power_w,energy_counter_j", [(200, one) for one in counts])
    words, _ = said(beside, name="beside.csv")
    assert "fell from" in words
    assert "one of the two is wrong" not in words


def test_a_jump_of_a_counter_is_stated(said):
    counts = [1000 + 200 * k + (5e9 if k > 9 else 0) for k in range(20)]
    words, _ = said(table("power_w,energy_counter_j", [(200, f"{one:.0f}") for one in counts]))
    assert "the energy counter jumped" in words
    assert "4.0" not in words.partition(" in ")[2]  # its energy is that of the power


def test_records_of_unequal_length_have_the_power_of_each(said):
    rows = ["time_s,device,power_w", *(f"{START_S + k},a,100" for k in range(21))]
    rows += [f"{START_S + k},b,100" for k in range(16)]
    words, _ = said("\n".join(rows) + "\n")
    assert (
        "3.500 ± 0.015 kJ in 15 s to 20 s, 200.00 ± 0.84 W on average, 2 devices together, each over its own time"
        in words
    )
    assert "of 20 s the power records lack 5 s of device b" in words
    assert "trust: with care" in words


def test_records_one_after_the_other_lack_each_others_time(said):
    rows = ["time_s,device,power_w", *(f"{START_S + k},a,100" for k in range(21))]
    rows += [f"{START_S + k},b,100" for k in range(20, 41)]
    words, _ = said("\n".join(rows) + "\n")
    assert "of 40 s the power records lack 20 s of device a, 20 s of device b" in words


def test_nothing_is_trusted_where_nothing_is_claimed(said):
    words, found = said(table("temperature_c", [(40 + k % 2,) for k in range(10)]))
    assert "trust" not in words
    assert "no figure" in words
    assert found["trust"]["level"] == "none"


def test_what_was_asked_for_comes_first(workspace, capsys):
    (workspace / "dmon.log").write_text(dmon([61] * 30 + [87] * 60 + [61] * 20))
    (workspace / "bench.txt").write_text(TORCH)
    for more in (["bench.txt"], ["--latency", "4.37ms"]):
        printed = command(capsys, "import", "dmon.log", *more).out.replace("\u00a0", " ")
        lines = [line for line in printed.splitlines() if " J" in line or "mJ" in line or "kJ" in line]
        assert re.search(r"mJ per inference \(± [\d.]+ % absolute\): ", lines[0])
        assert "above idle in 4.37 ms" in " ".join(printed.split())
        assert " kJ in " in lines[1]
        assert printed.count("per inference") == 1
        assert "energy unknown" not in printed


def test_no_import_is_asked_to_measure_for_longer(said):
    words, _ = said(table("power_w", [(200,)]) + f"{START_S + 1},200\n")
    assert "for longer" not in words
    rows = [f"2026/08/24 22:19:{k:02d}.000, {100 + k}.00 W" for k in range(2)]
    words, _ = said("\n".join(["timestamp, power.draw [W]", *rows]) + "\n", name="two.csv")
    assert "for longer" not in words
    assert "too short" not in words


def test_a_log_in_no_order_of_time_is_sorted_and_says_so(said):
    seconds = (13, 18, 15, 2, 7, 9, 19, 11, 0, 12)
    rows = "".join(f"2024-03-01T12:00:{k:02d}Z,{100 + k}\n" for k in seconds)
    words, _ = said(f"time,power_w\n{rows}", name="shuffled.csv")
    assert "2.081 ± 0.019 kJ in 19 s" in words  # 109.5 W
    assert "trust: with care, 1 remark rows are in no order of time: they were sorted" in words


def test_energies_of_three_rows_that_fall_are_no_counter(said):
    words, found = said(table("energy_j", [(3.46,), (2.09,), (2.16,)]))
    assert "energy unknown" in words
    assert found["trust"]["level"] == "no"


@pytest.mark.parametrize("milliwatts", [152, 838])
def test_a_rail_that_draws_less_than_a_watt_has_its_energy(said, milliwatts):
    words, found = said(table("power_mw", [(milliwatts + k % 3 - 1,) for k in range(30)]))
    assert rows(found, "whole", "device")[0]["energy_j"]["value"] == pytest.approx(29 * milliwatts / 1000, rel=0.02)
    assert "trust: yes" in words


def test_a_sensor_that_no_one_states_is_one_remark_though_readings_fit_no_guess(said):
    watts = [22] * 5 + list(range(25, 66, 4)) + [67] * 7 + [66] * 4 + [65] * 4 + [64] * 110
    rows = [f"2026/08/24 22:19:{k // 10:02d}.{k % 10}00, {one:.2f} W" for k, one in enumerate(watts)]
    words, _ = said("\n".join(["timestamp, power.draw [W]", *rows]) + "\n", name="swings.csv")
    assert "trust: with care, 1 remark" in words
    assert "the file doesn't state which GPU's sensor" in words
