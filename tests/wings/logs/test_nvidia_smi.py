"""Logs of nvidia-smi in its three dialects."""

import re

import numpy as np
import pytest

from commands import command
from import_logs import boxes, codes, dmon, left_out, query, read, real, real_files, with_levels, write
from jouletrace import report
from jouletrace.analysis import analyse
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, importer, read_files, recognise
from jouletrace.run import load

GPU = "imported:0"


@pytest.mark.thorough
def test_dmon_without_times_is_taken_a_row_a_second_and_says_so(tmp_path):
    run = read(tmp_path, "nvidia_smi", dmon([61] * 50 + [87] * 50))
    time, watts = run.series(GPU, "power_w")
    assert len(watts) == 100
    assert watts.sum() == 61 * 50 + 87 * 50
    assert np.all(np.diff(time) == 1_000_000_000)
    assert run.settings["imported"][0]["clock"] == "relative"
    assert "interval_assumed" in codes(run)


def test_every_column_of_dmon_becomes_a_channel_in_its_unit(tmp_path):
    run = read(tmp_path, "nvidia_smi", dmon([61] * 3))
    assert {(c.name, c.unit) for c in run.channels} == {
        ("power_w", "W"),
        ("temperature_c", "Cel"),
        ("utilization_gpu_pct", "%"),
        ("utilization_memory_pct", "%"),
        ("clock_memory_mhz", "MHz"),
        ("clock_sm_mhz", "MHz"),
    }
    assert left_out(run) == {"missing_cells": 3}  # the memory's temperature
    assert run.channel(GPU, "power_w").source == "nvidia-smi dmon, pwr"


def test_dmon_with_dates_is_on_the_clock_of_the_world(tmp_path):
    run = read(tmp_path, "nvidia_smi", dmon(range(60, 72), time="DT", gpus=2), time_zone="Europe/Berlin")
    time, watts = run.series("imported:1", "power_w")
    assert list(watts) == list(range(61, 73))
    assert time[0] == 1_683_928_795 * 10**9  # 2023-05-12 21:59:55 UTC
    assert np.all(np.diff(time) == 10**9)  # over midnight
    assert run.settings["imported"][0]["clock"] == "unix"
    assert not codes(run) & {"time_zone_assumed", "no_date"}


def test_dmon_with_times_of_day_goes_on_over_midnight(tmp_path):
    run = read(tmp_path, "nvidia_smi", dmon(range(60, 72), time="T"))
    time, _ = run.series(GPU, "power_w")
    assert np.all(np.diff(time) == 10**9)
    assert run.settings["imported"][0]["clock"] == "relative"
    assert "no_date" in codes(run)


def test_rows_that_share_a_second_are_spread_over_it(tmp_path):
    text = "#Time gpu pwr\n#HH:MM:SS Idx W\n" + "".join(f" 10:00:0{i // 4} 0 {60 + i}\n" for i in range(12))
    time, watts = read(tmp_path, "nvidia_smi", text).series(GPU, "power_w")
    assert list(watts) == list(range(60, 72))
    assert np.all(np.diff(time) == 250_000_000)


def test_dmon_as_csv_is_read_too(tmp_path):
    run = read(tmp_path, "nvidia_smi", "#gpu, pwr, gtemp\n#Idx, W, C\n0, 61, 38\n0, 62, 39\n")
    assert list(run.series(GPU, "power_w")[1]) == [61, 62]


def test_pmon_is_not_dmon():
    assert not importer("nvidia_smi").sniff(
        b"# gpu        pid  type    sm\n# Idx          #   C/G     %\n    0       1234     C    40\n"
    )


def test_query_reads_units_in_cells_header_or_nowhere(tmp_path):
    runs = [read(tmp_path, "nvidia_smi", query([61.5, 62.5, 87.25], units=u)) for u in ("cells", "header", "none")]
    for run in runs:
        time, watts = run.series(GPU, "power_w")
        assert list(watts) == [61.5, 62.5, 87.25]
        assert list(time) == [1_745_510_400_000_000_000 + i * 100_000_000 for i in range(3)]
        assert "time_zone_assumed" in codes(run)


def test_query_knows_the_gpu_and_says_what_its_power_is(tmp_path):
    run = read(tmp_path, "nvidia_smi", query([61.0] * 30, extra=True))
    (device,) = run.devices
    assert (device.id, device.name, device.index) == ("GPU-1234", "NVIDIA H100 80GB HBM3", 1)
    power = run.channel("GPU-1234", "power_w")
    assert (power.period_s, power.window_s, power.gapless) == (pytest.approx(0.1), 1.0, True)
    assert power.response["origin"] == "nominal"
    assert "long_average" in codes(run)
    assert run.series("GPU-1234", "throttle_bits")[1][0] == 4
    assert run.series("GPU-1234", "memory_used_bytes")[1][0] == 512 * 2**20
    assert run.series("GPU-1234", "pstate")[1][0] == 0


@pytest.mark.parametrize(
    ("name", "window"),
    [("Tesla V100-SXM2-16GB", 0.01), ("NVIDIA A100-SXM4-40GB", 0.025), ("NVIDIA RTX A4500", 1.0), ("Tesla T4", None)],
)
def test_the_window_of_a_power_reading_is_that_of_the_gpu(tmp_path, name, window):
    run = read(tmp_path, "nvidia_smi", dmon([61] * 5), device=name)
    assert run.channel(GPU, "power_w").window_s == window
    assert ("sensor_unknown" in codes(run)) == (window is None)


def test_instant_power_stands_in_where_it_alone_was_asked_for(tmp_path):
    run = read(
        tmp_path,
        "nvidia_smi",
        "timestamp, power.draw.instant [W]\n2025/04/24 16:02:12.560, 21.76 W\n2025/04/24 16:02:12.660, 22 W\n",
    )
    assert run.channel(GPU, "power_w").source.endswith("power.draw.instant")


def test_tables_of_nvidia_smi_are_read_one_after_the_other(tmp_path):
    run = read(tmp_path, "nvidia_smi", boxes([61, 62, 87]))
    time, watts = run.series(GPU, "power_w")
    assert list(watts) == [61, 62, 87]
    assert np.all(np.diff(time) == 10**9)
    assert run.devices[0].power_limit_w == 400
    assert run.devices[0].driver == "535.54.03"
    assert run.devices[0].pci_bus == "00000000:07:00.0"
    assert left_out(run) == {"missing_cells": 3}  # the second GPU has no power


def test_broken_rows_are_counted_with_their_place(tmp_path):
    text = dmon([61, 62, 63]).replace("    0     62", "    0     6x", 1) + "    0     64\n"
    run = read(tmp_path, "nvidia_smi", text)
    assert list(run.series(GPU, "power_w")[1]) == [61, 63]
    assert left_out(run)["not_a_number"] == 1
    assert left_out(run)["broken_rows"] == 1
    (warning,) = [w for w in run.warnings if w.code == "broken_rows"]
    assert "line 6" in warning.message


@pytest.mark.parametrize("text", ["# gpu pwr\n# Idx W\n", "timestamp, power.draw [W]\n", "# gpu pwr\n# Idx W\n 0 -\n"])
def test_a_log_without_a_reading_is_refused_in_one_line(tmp_path, text):
    with pytest.raises(BadInputError, match=r"log\.txt") as error:
        read(tmp_path, "nvidia_smi", text)
    assert "\n" not in str(error.value)


def test_an_unknown_time_zone_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="Mars"):
        read(tmp_path, "nvidia_smi", query([61.0]), time_zone="Mars/Olympus")


@pytest.mark.samples
@real_files
def test_real_logs_hold_as_many_readings_and_as_many_watts_as_their_text():
    for path in [*real("lightening-transformer_profile/*/*.csv"), *real("flame/fluidsGL-smi.csv")]:
        assert recognise(path) == "nvidia_smi"
        run = importer("nvidia_smi").read(path, ImportOptions())
        rows = [line.replace(",", " ").split() for line in path.read_text().splitlines() if line[:1] not in ("#", "t")]
        expected = [float(row[1] if "power" in path.name else row[2]) for row in rows]
        assert list(run.series(GPU, "power_w")[1]) == expected
        assert not left_out(run)


@pytest.mark.parametrize("field", ["power.limit", "enforced.power.limit"])
def test_the_power_limit_is_that_of_the_gpu(tmp_path, field):
    text = query([61] * 5).replace("power.draw [W]", f"power.draw [W], {field} [W], power.max_limit [W]")
    run = read(tmp_path, "nvidia_smi", text.replace(" W\n", " W, 400.00 W, 450.00 W\n"))
    (device,) = run.devices
    assert device.power_limit_w == 400
    assert device.power_limits_w == {"max": 450}


@pytest.mark.parametrize("watts", ["1e308", "9" * 309, "1e31"])
def test_a_power_that_overflows_is_left_out_and_counted(tmp_path, watts):
    text = dmon([61, 62, 63]).replace("    0     62", f"    0     {watts}")
    run = analyse(read(tmp_path, "nvidia_smi", text))
    assert list(run.series("imported:0", "power_w")[1]) == [61, 63]
    assert left_out(run)["not_a_number"] == 1


def test_readings_that_no_device_can_draw_are_left_out_and_counted(tmp_path):
    text = dmon([61, 62, 63] * 10).replace("    0     62", "    0     1e29", 3)
    run = analyse(read(tmp_path, "nvidia_smi", text))
    (warning,) = [one for one in run.warnings if one.code == "power_impossible"]
    assert warning.message.startswith("3 of 30 readings of power_w")
    assert run.result("power_w", unit=1).value < 100


def test_a_unit_that_is_not_known_is_counted_apart_from_empty_cells(tmp_path):
    text = "timestamp, power.draw [W], clocks.sm [MHz]\n"
    text += "2024/03/01 12:00:00.000, 61.00 W, 3 furlong\n2024/03/01 12:00:01.000, 62.00 W, [N/A]\n"
    run = read(tmp_path, "nvidia_smi", text)
    assert list(run.series("imported:0", "power_w")[1]) == [61, 62]
    assert left_out(run) == {"unknown_units": 1, "missing_cells": 1}


def _without_header(identity, count=60):
    """Four GPUs of 70 to 370 W every 5 s, read up to 17 ms after each other in no order; file begins with the third."""
    late_ms = (5, 20, 16, 14)
    rows = [
        f"2026/11/23 08:{i // 12:02d}:{5 * (i % 12):02d}.1{late_ms[gpu]:02d}, {identity(gpu)}, "
        f"{70 + 100 * gpu}.{i % 10}0 W, 31, 1980 MHz\n"
        for i in range(count)
        for gpu in range(4)
    ]
    return "".join(rows[2:])


@pytest.mark.parametrize(
    "identity",
    [str, lambda gpu: f"GPU-{gpu}a-bb, NVIDIA H100 80GB HBM3", lambda gpu: f"00000000:{gpu + 1}B:00.0"],
    ids=["index", "uuid", "pci"],
)
def test_gpus_of_a_log_without_a_header_are_distinguished_by_their_cells(tmp_path, identity):
    run = read(tmp_path, "nvidia_smi", _without_header(identity))
    means = sorted(run.series(device.id, "power_w")[1].mean() for device in run.devices)
    np.testing.assert_allclose(means, [70.45, 170.45, 270.45, 370.45], atol=0.1)
    (said,) = (one.message for one in run.warnings if one.code == "unnamed_columns")
    assert re.fullmatch(r"2 columns have no name \(\d, \d\): add the header line to have their temperature, .*", said)


@pytest.mark.parametrize("identity", ["31, P0", "0 %"])
def test_gpus_of_a_log_without_a_header_are_never_taken_for_one(tmp_path, identity):
    way = "Name the columns in a first line, such as timestamp, index, power.draw"
    with pytest.raises(BadInputError, match=rf"4 readings of power: are they of 4 GPUs without an index\? {way}"):
        read(tmp_path, "nvidia_smi", _without_header(lambda _: identity))


def test_a_log_with_neither_header_nor_units_asks_for_the_header(tmp_path):
    with pytest.raises(BadInputError, match="no cell is in W: name the columns in a first line"):
        read(tmp_path, "nvidia_smi", _without_header(str).replace(" W", ""))


def test_a_log_with_neither_header_nor_units_is_read_as_its_refusal_says(tmp_path):
    path = write(tmp_path, "".join(f"2026/03/03 10:00:{k}.000, {k}.5\n" for k in range(10, 20)))
    with pytest.raises(BadInputError, match="--format table --map time=1 --map power=2 takes"):
        read_files([path])
    run = read_files([path], ImportOptions(format="table", map={"time": "1", "power": "2"}))
    assert run.series(run.devices[0].id, "power_w")[1].tolist() == [k + 0.5 for k in range(10, 20)]


@pytest.mark.parametrize("field", ["used", "free", "total"])
def test_memory_without_a_unit_is_in_mib(tmp_path, field):
    text = f"timestamp, power.draw, memory.{field}\n" + "".join(
        f"2026/03/03 10:00:{k}.000, 50, 9\n" for k in range(10, 20)
    )
    run = read(tmp_path, "nvidia_smi", text)
    assert run.series(GPU, f"memory_{field}_bytes")[1].tolist() == [9 * 2**20] * 10


@pytest.mark.parametrize("line", [3, 10, 40])
@pytest.mark.parametrize("time", ["", "DT"])
def test_a_row_of_dmon_behind_a_stray_mark_is_a_row(tmp_path, line, time):
    text = dmon([61] * 20 + [87] * 40, time=time)
    lines = text.splitlines()
    lines[line] = f"#{lines[line]}"
    run = read(tmp_path, "nvidia_smi", "\n".join(lines) + "\n")
    whole = read(tmp_path, "nvidia_smi", text)
    assert run.samples.equals(whole.samples)
    assert left_out(run) == left_out(whole)


def test_a_comment_in_dmon_is_neither_units_nor_a_row(tmp_path):
    lines = dmon([61] * 20).splitlines()
    lines.insert(7, "# started at 10")
    assert len(read(tmp_path, "nvidia_smi", "\n".join(lines) + "\n").series(GPU, "power_w")[1]) == 20


@pytest.mark.parametrize("printing", [0, 3])
def test_a_gpu_with_a_damaged_bus_in_the_table_is_known_by_its_number(tmp_path, printing):
    text = boxes([61.5] * 5).split("00000000:07:00.0")
    parts = [f"{part}{'300W:07:00.0' if k == printing else '00000000:07:00.0'}" for k, part in enumerate(text[:-1])]
    run = read(tmp_path, "nvidia_smi", "".join([*parts, text[-1]]))
    assert run.series(GPU, "power_w")[1].tolist() == [61.5] * 5
    assert run.devices[0].pci_bus in (None, "00000000:07:00.0")


def test_readings_below_no_gpu_are_counted(tmp_path):
    lines = boxes([61.5] * 5).splitlines()
    del lines[3]
    run = read(tmp_path, "nvidia_smi", "\n".join(lines) + "\n")
    assert left_out(run)["broken_rows"] == 1
    assert len(run.series(GPU, "power_w")[1]) == 4


def test_the_counter_of_nvidia_smi_is_in_the_unit_that_it_prints(tmp_path):
    rows = [f"2026/03/03 10:00:{k}.000, 0, {1000 * k}" for k in range(10, 20)]
    heading = "timestamp, index, total_energy_consumption [mJ]"
    (tmp_path / "t.csv").write_text("\n".join([heading, *rows]) + "\n")
    run = read_files([tmp_path / "t.csv"])
    assert run.settings["imported"][0]["format"] == "nvidia_smi"
    assert run.series("imported:0", "energy_counter_j")[1].tolist() == list(range(10, 20))


def test_control_characters_stay_in_their_own_row(tmp_path):
    text = dmon([61, 62, 63]).replace("    0     62", "    0\x0c\x1b[0m  62", 1)
    run = read(tmp_path, "nvidia_smi", text)
    assert list(run.series("imported:0", "power_w")[1]) == [61, 63]
    assert "broken_rows" in codes(run)


def test_power_above_the_limit_of_a_gpu_is_none_that_it_holds(tmp_path):
    watts = [(800 if 40 <= k < 240 else 200) + k % 7 for k in range(280)]
    rows = [
        f"2026/11/25 20:{30 + k // 120}:{k % 120 / 2:06.3f}, NVIDIA H100, {power:.2f} W"
        for k, power in enumerate(watts)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["timestamp, name, power.draw [W]", *rows]) + "\n")
    shown = " ".join(report.render([analyse(read_files([tmp_path / "t.csv"]))], width=200).split())
    assert "trust: no" in shown
    assert "more than the GPU's limit allows for so long" in shown


@pytest.mark.thorough
def test_energy_over_assumed_times_says_so(tmp_path):
    run = with_levels(write(tmp_path, dmon([61] * 30 + [75] + [87] * 60 + [70] + [61] * 20)))
    assert "interval_assumed" in run.result("energy_total_j", 1).flags
    stamped = with_levels(write(tmp_path, query([61.0] * 100)))
    seconds = stamped.result("time_s", 1).value
    assert seconds == pytest.approx(9.9, abs=0.5)
    assert stamped.result("energy_total_j", 1).value == pytest.approx(61 * seconds)
    assert stamped.result("energy_total_j", 1).flags == ("nominal_response",)


@pytest.mark.thorough
def test_tables_of_nvidia_smi_printed_in_a_loop_are_read(workspace, capsys):
    (workspace / "watch.txt").write_text(boxes([61] * 5 + [287] * 5))
    said = command(capsys, "import", "watch.txt", "-o", "watch")
    assert said.code == 0, said.err
    run = load("watch")
    assert list(run.series(run.devices[0].id, "power_w")[1]) == [61] * 5 + [287] * 5
