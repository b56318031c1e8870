"""An imported log states its devices: those without a reading are named, counters are used, trust follows."""

import json
from pathlib import Path

import pytest

from commands import command
from import_logs import dmon, where_read
from logged_devices import SMI, START_S, dcgm, smi, table
from shown import rows

W_AND_B = "system.gpu"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(smi([(k, "0, NVIDIA GeForce GTX 1050 Ti, [N/A], 100 %") for k in range(10)]), id="query"),
        pytest.param(table("gpu,power_w,utilization_pct", [(0, "", 98)] * 10), id="table"),
        *where_read("nvidia_smi", pytest.param(dmon([61] * 10).replace(" 61 ", "  - "), id="dmon")),
    ],
)
def test_a_log_without_a_reading_of_power_is_not_trusted(said, text):
    words, _ = said(text)
    assert "energy unknown: no reading of power" in words
    assert "trust: no" in words


@pytest.mark.thorough
def test_of_several_columns_the_empty_one_is_a_device(said):
    words, _ = said(table("gpu0_power_w,gpu1_power_w,gpu2_power_w", [(200, "", 100)] * 10))
    assert "300.00 ± 0.87 W on average, 2 of 3 devices together" in words
    assert "no reading of power: device 1" in words


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


@pytest.mark.parametrize("of_other", ["index,uuid,power_w\n", "gpu,power_w\n"])
def test_one_gpu_in_logs_of_two_tools_is_not_added_to_itself(workspace, capsys, of_other):
    stamps = [f"2026/08/24 22:19:{k:02d}.000" for k in range(10)]
    head, cells = ("timestamp,index,uuid,power.draw [W]", "0,GPU-1,200.00 W")
    (workspace / "a.csv").write_text("\n".join([head, *(f"{stamp},{cells}" for stamp in stamps)]) + "\n")
    other = "1,GPU-2,100.0" if "uuid" in of_other else "gpu0,200.0"
    (workspace / "b.csv").write_text(f"time,{of_other}" + "".join(f"{stamp},{other}\n" for stamp in stamps))
    words = " ".join(command(capsys, "import", "a.csv", "b.csv", "-o", "both").out.split())
    assert ("they aren't added up" in words) == ("uuid" not in of_other)
    assert ("300.0" in words) == ("uuid" in of_other)


def test_a_row_of_the_total_is_no_device(said):
    words, _ = said(
        table("gpu,power_w", [cells for _ in range(10) for cells in (("gpu0", 100), ("gpu1", 200), ("total", 300))])
    )
    assert "2 devices together" in words
    assert "300.0" in words


def test_rows_at_the_end_without_a_reading_are_stated(said):
    words, _ = said(table("power_w", [(200,)] * 40 + [("",)] * 60))
    assert "rows of 60 s at the ends hold no reading" in words
    assert "trust: with care" in words


def test_a_meter_that_may_see_a_gpu_of_another_file_is_not_added_to_it(workspace, capsys):
    head = SMI.replace("index", "index, uuid")
    (workspace / "gpu.csv").write_text(smi([(k, "0, GPU-1, NVIDIA A100, 200.00 W, 97 %") for k in range(10)], head))
    (workspace / "server.csv").write_text(
        "time,power_w\n" + "".join(f"2026/08/24 22:19:{k:02d}.000,650.0\n" for k in range(10))  # of all of the machine
    )
    words = " ".join(command(capsys, "import", "gpu.csv", "server.csv", "-o", "both").out.split())
    assert "energy unknown: one device may measure what another draws, too" in words
    assert "meter of server.csv" in words
    assert "trust: with care" in words
    whole = json.loads(command(capsys, "show", "both", "--json").out)["model"]["energy_j"]["total"]
    assert (whole["value"], whole["reason"]) == (None, "may_count_twice")


def test_another_channel_without_a_reading_is_named_and_costs_no_trust(said):
    rows = [(k, "0, NVIDIA A100-SXM4-80GB, 200.00 W, [N/A]") for k in range(10)]
    words, found = said(smi(rows))
    assert "trust: yes" in words
    assert any("no reading of utilization.gpu" in warning["message"] for warning in found["warnings"])


@pytest.mark.thorough
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
        pytest.param(table("energy_counter_j", [(1000 + 200 * k,) for k in range(11)]), 200, 10, id="joules"),
        pytest.param(table("energy_mj", [(1000 + 200_000 * k,) for k in range(11)]), 200, 10, id="millijoules"),
        pytest.param(table("energy_kwh", [(20 + 0.01 * k,) for k in range(11)]), 36_000, 10, id="kWh"),
        pytest.param(
            smi(
                [(k, f"0, NVIDIA L4, {7_000_000 + 70_000 * k} mJ, 97 %") for k in range(21)],
                SMI.replace("power.draw [W]", "total_energy_consumption [mJ]"),
            ),
            70,
            20,
            id="query",
        ),
        *where_read(
            "dcgm",
            pytest.param(dcgm(20, 0, 150_000), 150, 19, id="dcgm with power of 0 W"),
            pytest.param(
                dcgm(20, 0, 150_000).replace("POWER_USAGE", "SM_CLOCK").replace("} 0", "} 1410"),
                150,
                19,
                id="dcgm without power",
            ),
        ),
    ],
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


@pytest.mark.thorough
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


def test_energies_of_rows_with_a_start_and_an_end_are_no_counter(workspace, capsys):
    rows = "".join(f"layer{k},{START_S + k},{START_S + k + 0.5},{3 + k % 2}\n" for k in range(3))
    Path("layers.csv").write_text(f"layer,start_time,end_time,energy_j\n{rows}")
    assert "which column is the power?" in command(capsys, "import", "layers.csv", "--map", "time_s=start_time").err


@pytest.mark.thorough
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(table("power_w,energy_counter_j", [(200, 1000 + 200 * k) for k in range(30)]), id="joules"),
        # 0.01 kWh are 36 kJ: three minutes
        pytest.param(table("power_w,energy_kwh", [(200, 12.34)] * 30), id="coarse"),
        pytest.param(table("power_w,energy_kwh", [(200, 12.34 + 0.01 * (k // 180)) for k in range(1000)]), id="steps"),
        *where_read("dcgm", pytest.param(dcgm(30, 150, 150_000), id="dcgm")),
        # of each second: no counter
        pytest.param(table("power_w,energy_j", [(200 + k % 3, 200 + k % 3) for k in range(30)]), id="of seconds"),
    ],
)
def test_a_counter_that_agrees_says_nothing(said, text):
    words, _ = said(text, name="log.prom" if "DCGM" in text else "log.csv")
    assert "trust: yes" in words
    assert "on average" in words
    assert "by the energy counter" not in words


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_a_jump_of_a_counter_is_stated(said):
    counts = [1000 + 200 * k + (5e9 if k > 9 else 0) for k in range(20)]
    words, _ = said(table("power_w,energy_counter_j", [(200, f"{one:.0f}") for one in counts]))
    assert "the energy counter jumped" in words
    assert "4.0" not in words.partition(" in ")[2]  # its energy is that of the power


@pytest.mark.thorough
def test_records_of_unequal_length_have_the_power_of_each(said):
    rows = ["time_s,device,power_w", *(f"{START_S + k},a,100" for k in range(21))]
    rows += [f"{START_S + k},b,100" for k in range(16)]
    words, _ = said("\n".join(rows) + "\n")
    assert (
        "3.500 ± 0.015 kJ in 20 s and 15 s, 200.00 ± 0.84 W on average, 2 devices together, each over its own time"
        in words
    )
    assert "of 20 s the power records lack 5 s of device b" in words
    assert "trust: with care" in words


def test_records_one_after_the_other_lack_each_others_time(said):
    rows = ["time_s,device,power_w", *(f"{START_S + k},a,100" for k in range(21))]
    rows += [f"{START_S + k},b,100" for k in range(20, 41)]
    words, _ = said("\n".join(rows) + "\n")
    assert "of 40 s the power records lack 20 s of device a, 20 s of device b" in words
    assert "4.000 ± 0.017 kJ in 20 s and 20 s, 2 devices at different times" in words


def of_each(*seconds, watts=100):
    """A table with a row a second of each device in its seconds."""
    rows = [f"{START_S + k},{name},{watts}" for name, own in zip("abc", seconds, strict=False) for k in own]
    return "\n".join(["time_s,device,power_w", *rows]) + "\n"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        (of_each(range(6), range(4)), "of 5 s the power records lack 2 s of device b"),
        (of_each(range(41), range(39)), "of 40 s the power records lack 2 s of device b"),
        (of_each(range(6), range(2, 8)), "of 7 s the power records lack 2 s of device a, 2 s of device b"),
        (of_each(range(41), [*range(15), *range(30, 41)]), "of device b: energies are of what each covers"),
    ],
    ids=["short", "shorter", "later", "hole"],
)
def test_no_time_stands_beside_an_energy_that_does_not_cover_it(said, capsys, text, lacks):
    words, found = said(text)
    assert "2 devices together, each over its own time" in words
    assert lacks in words
    assert "trust: with care" in words
    whole, *devices = found["parts"]["whole"]
    assert (whole["time_s"]["value"], whole["time_s"]["reason"]) == (None, "times_differ")
    assert whole["energy_j"]["value"] == pytest.approx(sum(one["energy_j"]["value"] for one in devices))
    lines = command(capsys, "show", "run-log.csv", "--format", "csv").out.splitlines()
    assert "time_s: times_differ" in lines[1]
    assert command(capsys, "report", "run-log.csv", "-o", "page.html").code == 0
    assert "each over its own time" in " ".join(Path("page.html").read_text().replace("&nbsp;", " ").split())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("seconds", "lasted"),
    [
        ((range(20), range(30, 50)), "in 19 s and 19 s"),
        ((range(30, 50), range(20)), "in 19 s and 19 s"),
        ((range(30), range(10), range(40, 50)), "in 9 s to 29 s"),
        ((range(30), range(28, 50)), "in 29 s and 21 s"),
    ],
    ids=["two", "later first", "the last of three", "but for a second"],
)
def test_devices_that_are_on_at_different_times_have_no_power_of_all(said, seconds, lasted):
    words, found = said(of_each(*seconds))
    assert lasted in words
    assert f"{len(seconds)} devices at different times trust" in words.replace(
        "± is of this run; the sensor's gain is not known, and not in it ", ""
    )
    assert "together" not in words
    assert "on average" not in words
    assert "no power is of all, which were watched at different times" in words
    assert "100.00 ± " in words  # each in the table of devices
    assert "trust: with care" in words
    whole = found["model"]["power_w"]
    assert (whole["value"], whole["reason"]) == (None, "times_differ")


@pytest.mark.thorough
def test_three_devices_have_the_shortest_and_the_longest_of_their_times(said):
    words, _ = said(of_each(range(31), range(21), range(11)))
    assert "in 10 s to 30 s, 300.0 ± " in words
    assert "3 devices together, each over its own time" in words
    assert "power (W)" in words


LATER = {
    "table": ("time_s,power_w", "time_s,temperature_c", lambda k: f"{START_S + k},{50 + k % 2}"),
    "query": (SMI, "timestamp, index, name, utilization.gpu [%]", lambda k: f"{smi_time(k)}, 0, NVIDIA A100, 97 %"),
}


def smi_time(k):
    return f"2026/08/24 22:{19 + k // 60:02d}:{k % 60:02d}.000"


@pytest.mark.parametrize("form", LATER)
@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_a_section_without_power_is_reported_to_be_in_no_figure(said, form, first):
    powered, other, cells = LATER[form]
    power = [
        f"{START_S + k},200" if form == "table" else f"{smi_time(k)}, 0, NVIDIA A100, 200.00 W, 97 %"
        for k in (range(60, 120) if first else range(60))
    ]
    without = [cells(k) for k in (range(60) if first else range(60, 120))]
    parts = [[other, *without], [powered, *power]] if first else [[powered, *power], [other, *without]]
    words, _ = said("\n".join(parts[0] + parts[1]) + "\n")
    assert " in 59 s, 200.00 ± " in words
    assert "of 119 s, rows of 60 s at the ends have other readings and no power: they are in no figure" in words
    assert "trust: with care" in words


@pytest.mark.thorough
def test_devices_that_are_read_in_turn_have_one_time(said):
    rows = [f"{START_S + k + beside},{name},100" for k in range(11) for name, beside in (("a", 0), ("b", 0.5))]
    words, found = said("\n".join(["time_s,device,power_w", *rows]) + "\n")
    assert "in 10 s, 200.00 ± 0.86 W on average, 2 devices together" in words
    assert "trust: yes" in words
    assert found["parts"]["whole"][0]["time_s"]["value"] == pytest.approx(10)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("columns", "cells", "why"),
    [
        (f"{W_AND_B}.0.powerWatts,{W_AND_B}.1.powerWatts,{W_AND_B}.process.0.powerWatts", "300,200,3", "which_power"),
        (f"{W_AND_B}.0.powerWatts,{W_AND_B}.1.powerWatts", "300,N/A", "no_power_reading"),
    ],
    ids=["choice", "no reading"],
)
def test_the_energy_of_some_devices_is_no_total(said, capsys, columns, cells, why):
    words, found = said(table(columns, [cells.split(",")] * 20))
    assert "1 of 2 devices" in words
    assert found["headline"]["devices"] == {"counted": 1, "all": 2}
    assert found["headline"]["path"] == [{"kind": "device", "name": f"device {int(why == 'which_power')}"}]
    for total in (found["model"]["energy_j"]["total"], found["model"]["power_w"]):
        assert (total["value"], total["reason"]) == (None, why)
    lines = command(capsys, "show", "run-log.csv", "--format", "csv").out.splitlines()
    assert f"energy_total_j: {why}" in lines[1]
    cost = command(capsys, "show", "run-log.csv", "--price", "1000EUR/kWh").out
    assert "of some of the devices" in " ".join(cost.split())
    assert command(capsys, "report", "run-log.csv", "-o", "page.html").code == 0
    assert "1 of 2 devices" in " ".join(Path("page.html").read_text().replace("&nbsp;", " ").split())


PARTS = [
    "GPU Chip Power Draw [W]",
    "CPU Package Power [W]",
    "MVDDC Power Draw [W]",
    "Memory Power (W)",
    "Total DRAM Power [W]",
    "SoC Power [W]",
    "SoC_power_W",
    "SoCPower (W)",
    "VDD_SOC [W]",
    "CPUPower [W]",
    "GPUChipPower [W]",
    "HBM2 Power [W]",
]

WHOLES = ["Socket Power [W]", "SOCKET_POWER_W", "GPU Power [W]", "chipset_fan_board_power_w"]


@pytest.mark.thorough
@pytest.mark.parametrize("heading", PARTS)
@pytest.mark.parametrize("mapped", [[], ["--map", "time_s=time_s", "--map", "power_w=2"]], ids=["alone", "mapped"])
def test_the_power_of_a_part_is_named_as_one(said, heading, mapped):
    words, found = said(table(heading, [(120,)] * 20), *mapped)
    assert f"120.00 ± 0.61 W on average, of {heading} alone" in words
    assert "what the rest of the device draws isn't in it" in words
    assert found["trust"]["level"] == "with care"


@pytest.mark.parametrize("heading", WHOLES)
def test_the_power_of_a_whole_is_that_of_no_part(said, heading):
    words, _ = said(table(heading, [(120,)] * 20))
    assert "120.00 ± 0.61 W on average" in words
    assert "alone" not in words


@pytest.mark.thorough
@pytest.mark.parametrize("whole", ["Board Power Draw [W]", "Total GPU Power [W]"])
def test_of_several_powers_that_of_the_whole_counts_and_the_others_are_named(said, capsys, whole):
    words, found = said(table(f"{PARTS[0]},{whole},{PARTS[2]}", [(160, 250, 40)] * 20))
    assert "250.00 ± 0.61 W on average" in words
    assert "alone" not in words
    text = f"energy is that of '{whole}', the whole; other powers are {PARTS[0]}, {PARTS[2]}"
    assert text in [one["message"] for one in found["warnings"]]
    assert text in " ".join(command(capsys, "show", "run-log.csv", "-v").out.split())


def test_the_total_of_a_part_is_not_that_of_the_whole(said):
    words, _ = said(table("CPU Package Power [W],Total DRAM Power [W]", [(90, 8)] * 20))
    assert "powers of meter (CPU Package Power [W], Total DRAM Power [W]) without a choice" in words


@pytest.mark.parametrize(
    "plug", ["GPU 8-Pin #1 Input Power [W]", "GPU 12VHPWR Input Power [W]", "GPU 16-pin Power [W]"]
)
def test_the_number_of_a_plug_is_not_that_of_a_device(said, plug):
    words, _ = said(table(f"GPU Power [W],{plug}", [(300, 220)] * 20))
    assert f"powers of meter ({plug}, GPU Power [W]) without a choice" in words


def test_powers_without_a_choice_are_named(said):
    words, _ = said(table(f"GPU Power [W],{PARTS[1]}", [(250, 45)] * 20))
    assert "2 powers of meter (CPU Package Power [W], GPU Power [W]) without a choice of one for energy" in words


def test_nothing_is_trusted_where_nothing_is_claimed(said):
    words, found = said(table("temperature_c", [(40 + k % 2,) for k in range(10)]))
    assert "trust" not in words
    assert "no figure" in words
    assert found["trust"]["level"] == "none"


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
