"""Tables of any origin: meters, BMC and PDU logs, timed rows."""

import numpy as np
import pytest

from import_logs import codes, left_out, meter, read, real, real_files
from jouletrace.analysis import analyse
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, importer, read_files

WATTS = [100.0, 1250.5, 99.5, 101.0]


@pytest.mark.thorough
def test_a_meter_is_read_by_the_names_of_its_columns(tmp_path):
    run = read(tmp_path, "table", meter(WATTS))
    time, watts = run.series("imported:0", "power_w")
    assert list(watts) == WATTS
    assert list(np.diff(time)) == [10**9] * 3
    assert list(run.series("imported:0", "voltage_v")[1]) == [230.5] * 4
    assert run.channel("imported:0", "power_w").source == "column Power (W)"
    assert not codes(run)


def test_comma_decimals_are_understood(tmp_path):
    run = read(tmp_path, "table", meter(WATTS, decimal=",", delimiter=";"))
    assert list(run.series("imported:0", "power_w")[1]) == WATTS


def test_points_as_thousands_are_distinguished_from_decimals(tmp_path):
    text = "Zeit;Leistung\n2024-03-01 12:00:00;1.234,5\n2024-03-01 12:00:01;99,0\n"
    run = read(tmp_path, "table", text, map={"time": "Zeit", "power_w": "Leistung"})
    assert list(run.series("imported:0", "power_w")[1]) == [1234.5, 99.0]


@pytest.mark.parametrize(
    ("delimiter", "cells", "watts", "warned"),
    [
        (";", ("1,234", "2,345"), [1.234, 2.345], True),
        ("\t", ("1,234", "2,345"), [1234, 2345], True),
        (",", ("1.234", "2.345"), [1.234, 2.345], False),
        (",", ('"1,234"', '"2,345"'), [1234, 2345], True),
        (";", ("1,234", "2,34"), [1.234, 2.34], False),
    ],
)
def test_numbers_that_leave_their_decimal_sign_open_are_warned_of(tmp_path, delimiter, cells, watts, warned):
    text = f"time_s{delimiter}power_w\n" + "".join(f"{1 + i}{delimiter}{cell}\n" for i, cell in enumerate(cells))
    run = read(tmp_path, "table", text)
    assert list(run.series("imported:0", "power_w")[1]) == watts
    assert ("decimal_assumed" in codes(run)) == warned


def test_a_mapping_names_columns_and_units(tmp_path):
    text = "TIME\tTOTAL\tSOC\n.0077\t6364\t914\n.4789\t5223\t838\n"
    run = read(tmp_path, "table", text, map={"time_s": "TIME", "power_mw": "TOTAL"})
    time, watts = run.series("imported:0", "power_w")
    assert list(watts) == [6.364, 5.223]
    assert list(time) == [7_700_000, 478_900_000]
    assert run.settings["imported"][0]["clock"] == "relative"
    assert left_out(run) == {"unknown_columns": 1}


def test_several_devices_in_a_row_are_devices_of_their_own(tmp_path):
    text = "time_ms,GPU0 Power (W),GPU1 Power (W)\n0,100,200\n500,101,201\n"
    run = read(tmp_path, "table", text)
    assert list(run.series("imported:1", "power_w")[1]) == [200, 201]
    assert list(run.series("imported:0", "power_w")[0]) == [0, 500_000_000]
    mapped = read(tmp_path, "table", text, map={"time_ms": "time_ms", "power_w:0": "GPU0 Power (W)", "power_w:1": "3"})
    assert mapped.samples.equals(run.samples)


def test_a_column_of_devices_reports_whose_row_it_is(tmp_path):
    text = "timestamp,outlet,watts\n1709294400,1,10\n1709294400,2,20\n1709294401,1,11\n1709294401,2,21\n"
    run = read(tmp_path, "table", text)
    assert list(run.series("imported:2", "power_w")[1]) == [20, 21]


def test_date_and_time_of_day_in_two_columns_are_one_time(tmp_path):
    text = "Date,Time,Power [mW]\n2024-03-01,12:00:00,1500\n2024-03-01,12:00:01,2500\n"
    time, watts = read(tmp_path, "table", text).series("imported:0", "power_w")
    assert time[0] == 1_709_294_400 * 10**9
    assert list(watts) == [1.5, 2.5]


def test_lines_before_the_header_are_passed_over(tmp_path):
    text = "Meter: WT310E\nSerial number: 12, 13\n\nElapsed Time (s),Power (W)\n0.0,5.5\n0.1,6.5\nbroken\n"
    run = read(tmp_path, "table", text)
    assert list(run.series("imported:0", "power_w")[1]) == [5.5, 6.5]
    (warning,) = [w for w in run.warnings if w.code == "broken_rows"]
    assert "line 7" in warning.message


def test_the_sensor_of_a_meter_is_not_taken_for_known(tmp_path):
    power = read(tmp_path, "table", meter([100.0] * 10)).channel("imported:0", "power_w")
    assert (power.window_s, power.gain_pct, power.gapless) == (None, None, None)
    assert power.response["covariance"][1][1] > 0.05


def test_cells_that_hold_nothing_are_counted(tmp_path):
    text = meter(WATTS).replace("1250.5", "").replace("99.5", "n/a").replace("101.0", "hot")
    run = read(tmp_path, "table", text)
    assert list(run.series("imported:0", "power_w")[1]) == [100.0]
    assert left_out(run) == {"missing_cells": 2, "not_a_number": 1}


@pytest.mark.parametrize(
    ("text", "mapping", "words"),
    [
        ("a,b\n1,2\n3,4\n", {}, "--map time_s="),
        ("time,b\n1,2\n3,4\n", {}, "--map power_w="),
        ("time,b\n1,2\n3,4\n", {"time": "time", "power_w": "c"}, "no column 'c'"),
        ("time,b\n1,2\n3,4\n", {"time": "time", "power": "b"}, "its unit"),
        ("time,power\nx,2\ny,4\n", {}, "not one row"),
        ("ts,power\n25536,2\n25536,4\n25536,3\n", {}, "is it the time"),
    ],
)
def test_what_is_missing_is_named(tmp_path, text, mapping, words):
    with pytest.raises(BadInputError, match=r"log\.txt.*" + words) as error:
        read(tmp_path, "table", text, map=mapping)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "head", [b"", b"\x00\x01\x02", b'{"a": 1}', b"one word", b"a,b\n", b"no numbers, here\nnone, at all\n"]
)
def test_what_is_no_table_is_not_taken_for_one(head):
    assert not importer("table").sniff(head)


@pytest.mark.parametrize(
    ("header", "cells", "watts"),
    [
        ("time_s,Power (milliwatts)", "1,1500", 1.5),
        ("time_s,Power mW", "1,1500", 1.5),
        ("time_s,powerMilliwatts", "1,1500", 1.5),
        ("Elapsed Time (seconds),Power (Watts)", "1,1500", 1500),
        ("t / s,P / mW", "1,1500", 1.5),
        ("timeMs,power_kw", "1000,0.25", 250),
        ("Time [milliseconds],Power (mW) total", "1000,1500", 1.5),
    ],
)
def test_units_are_read_from_headings_however_they_are_written(tmp_path, header, cells, watts):
    run = read(tmp_path, "table", f"{header}\n{cells}\n{cells.replace('1', '2', 1)}\n")
    time, power = run.series("imported:0", "power_w")
    assert (time[0], power[0]) == (10**9, pytest.approx(watts))


def test_a_power_whose_unit_is_not_known_is_not_taken_for_watts(tmp_path):
    with pytest.raises(BadInputError, match="which column is the power"):
        read(tmp_path, "table", "time_s,Power (MW)\n1,2\n2,3\n")


@pytest.mark.parametrize("step", [1, 1000, 10**6, 5 * 10**8, 10**9])
def test_a_unit_that_nothing_states_is_asked_for(tmp_path, step):
    """True if they come to seconds since 1970 by accident or not."""
    rows = "".join(f"{step * k},{step * (k + 1)}\n" for k in range(1, 5))
    with pytest.raises(BadInputError, match=r"the unit of .* isn't stated.*--map time_s=time"):
        read(tmp_path, "table", f"time,power_w\n{rows}")


def test_a_mapping_without_a_unit_takes_that_of_the_heading(tmp_path):
    text = "when (ms),w\n1000,5\n2000,6\n"
    run = read(tmp_path, "table", text, map={"time": "when (ms)", "power_w": "w"})
    assert list(run.series("imported:0", "power_w")[0]) == [10**9, 2 * 10**9]


def test_what_a_mapping_does_not_say_is_determined_from_the_names(tmp_path):
    text = "t,gpu,power_w\n0,0,50\n0,1,60\n1,0,51\n1,1,61\n"
    run = read(tmp_path, "table", text, map={"time_s": "t"})
    assert list(run.series("imported:1", "power_w")[1]) == [60, 61]


def test_milliseconds_since_1970_are_known_by_their_size_and_reported_to_be(tmp_path):
    text = "timestamp,power_w\n1709294400000,5\n1709294400100,6\n"
    run = read(tmp_path, "table", text)
    assert list(run.series("imported:0", "power_w")[0]) == [1709294400 * 10**9, 1709294400 * 10**9 + 10**8]
    assert "time_unit_assumed" in codes(run)
    assert "time_unit_assumed" not in codes(read(tmp_path, "table", text.replace("timestamp", "timestamp_ms")))
    seconds = read(tmp_path, "table", "timestamp,power_w\n1709294400,5\n1709294401,6\n")
    assert not codes(seconds)


def test_milliwatts_read_as_watts_are_asked_about(tmp_path):
    text = "time_s,power\n" + "".join(f"{k},{6800 + k}\n" for k in range(5))
    with pytest.raises(BadInputError, match=r"the unit of 'power' isn't stated.*--map power_mw=power.*power_w=power"):
        read(tmp_path, "table", text)
    run = read(tmp_path, "table", text, map={"power_mw": "power"})
    assert run.series("imported:0", "power_w")[1][0] == pytest.approx(6.8)


def test_power_beyond_any_gpu_is_flagged_with_what_to_do(tmp_path):
    text = "time_s,gpu,TOTAL\n" + "".join(f"{k},0,{6800 + 100 * (k % 2)}\n" for k in range(20))
    run = analyse(read(tmp_path, "table", text, map={"power_w": "TOTAL"}))
    (warning,) = [one for one in run.warnings if one.code == "power_implausible"]
    assert "--map power_mw=TOTAL" in warning.message
    assert "power_implausible" in run.result("power_w", unit=1).flags
    assert "power_implausible" in run.result("energy_total_j", unit=1).flags


def test_power_beyond_anything_is_refused(tmp_path):
    with pytest.raises(BadInputError, match=r"more than anything behind a single meter draws.*--map power_mw=x"):
        read(tmp_path, "table", "time_s,x\n1,1e20\n2,1e20\n", map={"power_w": "x"})


@pytest.mark.parametrize(
    ("header", "rows", "ids"),
    [
        ("time_s,node,gpu,power_w", ["1,a,0,10", "1,a,1,20", "1,b,0,30", "1,b,1,40"], 4),
        ("time_s,node,uuid,power_w", ["1,a,GPU-1,10", "1,a,GPU-2,20", "1,b,GPU-3,30"], 3),
        ("time_s,gpu,node,uuid,power_w", ["1,0,a,GPU-1,10", "1,0,b,GPU-2,20", "1,1,b,GPU-3,30"], 3),
        ("time_s,uuid,index,power_w", ["1,GPU-1,0,10", "1,GPU-2,0,20"], 2),
        ("time_s,cabinet,node,device,power_w", ["1,c1,1,0,10", "1,c2,1,0,20", "1,c1,2,0,30"], 3),
        ("time_s,gpu,mig_profile,power_w", ["1,0,1g.5gb,10", "1,0,2g.10gb,20"], 2),
    ],
)
def test_all_columns_that_name_a_device_count(tmp_path, header, rows, ids):
    later = [row.replace("1,", "2,", 1) for row in rows]
    run = read(tmp_path, "table", "\n".join([header, *rows, *later]) + "\n")
    assert len({device.id for device in run.devices}) == ids
    values = [set(run.series(device.id, "power_w")[1].tolist()) for device in run.devices]
    assert values == [{float(row.rsplit(",", 1)[1])} for row in rows]


def test_devices_that_a_mapping_leaves_out_are_asked_about_where_rows_share_times(tmp_path):
    text = "t,node,gpu,p\n0,a,0,50\n0,b,0,60\n1,a,0,51\n1,b,0,61\n"
    with pytest.raises(BadInputError, match=r"--map device=node\+gpu"):
        read(tmp_path, "table", text, map={"time_s": "t", "power_w": "p"})
    mapped = read(tmp_path, "table", text, map={"time_s": "t", "power_w": "p", "device": "node+gpu"})
    assert [(device.host, device.index) for device in mapped.devices] == [("a", 0), ("b", 0)]


def test_eight_digits_are_a_number_unless_they_are_a_day(tmp_path):
    run = read(tmp_path, "table", "time_ns,power_w\n12345678,5\n22345678,6\n")
    assert list(run.series("imported:0", "power_w")[0]) == [12345678, 22345678]
    with pytest.raises(BadInputError, match="the unit of 'time' isn't stated"):
        read(tmp_path, "table", "time,power_w\n12345678,5\n22345678,6\n")


@pytest.mark.samples
@real_files
def test_real_gpu_logs_hold_every_row():
    for path in real("mlsys-gpu-power-variability/jetson_power_logs/dgemm_logs/0/*power*_8192.tsv"):
        rows = [line.split("\t") for line in path.read_text().splitlines()[1:]]
        run = importer("table").read(path, ImportOptions(map={"time_s": "TIME", "power_mw": "TOTAL"}))
        assert list(run.series("imported:0", "power_w")[1]) == pytest.approx([int(row[1]) / 1e3 for row in rows])


def test_a_log_of_a_simulated_gpu_is_marked(tmp_path):
    rows = [f"2026-11-27T15:12:{k:02d}.797,SIM-h100-80-0,{300 + k}.5" for k in range(10)]
    (tmp_path / "t.csv").write_text("\n".join(["time,device,power_W", *rows]) + "\n")
    assert read_files([tmp_path / "t.csv"]).simulated
