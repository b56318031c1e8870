"""Tables of any origin: meters, BMC and PDU logs, timed rows."""

import numpy as np
import pytest

from import_logs import codes, left_out, meter, read, real, real_files
from jouletrace.errors import BadInputError
from jouletrace.importers import importer
from jouletrace.importers.base import ImportOptions

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


def test_points_as_thousands_are_told_from_decimals(tmp_path):
    text = "Zeit;Leistung\n2024-03-01 12:00:00;1.234,5\n2024-03-01 12:00:01;99,0\n"
    run = read(tmp_path, "table", text, map={"time": "Zeit", "power_w": "Leistung"})
    assert list(run.series("imported:0", "power_w")[1]) == [1234.5, 99.0]


@pytest.mark.parametrize(
    ("delimiter", "cells", "watts", "warned"),
    [
        (";", ("1,234", "2,345"), [1.234, 2.345], True),
        ("\t", ("1,234", "2,345"), [1234, 2345], True),
        (",", ("1.234", "2.345"), [1.234, 2.345], False),
        (";", ("1,234", "2,34"), [1.234, 2.34], False),
    ],
)
def test_numbers_that_leave_their_decimal_sign_open_are_warned_of(tmp_path, delimiter, cells, watts, warned):
    text = f"time{delimiter}power_w\n" + "".join(f"{1 + i}{delimiter}{cell}\n" for i, cell in enumerate(cells))
    run = read(tmp_path, "table", text)
    assert list(run.series("imported:0", "power_w")[1]) == watts
    assert ("decimal_assumed" in codes(run)) == warned


def test_a_mapping_names_columns_and_units(tmp_path):
    text = "TIME\tTOTAL\tSOC\n.0077\t6364\t914\n.4789\t5223\t838\n"
    run = read(tmp_path, "table", text, map={"time": "TIME", "power_mw": "TOTAL"})
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


def test_a_column_of_devices_tells_whose_row_it_is(tmp_path):
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


def test_rows_with_a_start_and_an_end_are_spans(tmp_path):
    text = "layer_name,start_time,end_time,avg_power_w\n"
    text += "conv,1763508239.3469439,1763508239.3470585,30.2\nfc,1763508239.5,1763508239.6,30\n"
    run = read(tmp_path, "table", text)
    spans = run.spans.to_pylist()
    assert [(s["kind"], s["name"], s["end_ns"] - s["start_ns"]) for s in spans] == [
        ("layer", "conv", 114_600),
        ("layer", "fc", 10**8),
    ]


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
        ("a,b\n1,2\n3,4\n", {}, "--map time="),
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


@pytest.mark.samples
@real_files
def test_real_board_logs_hold_every_row():
    for path in real("mlsys-gpu-power-variability/jetson_power_logs/dgemm_logs/0/*power*_8192.tsv"):
        rows = [line.split("\t") for line in path.read_text().splitlines()[1:]]
        run = importer("table").read(path, ImportOptions(map={"time": "TIME", "power_mw": "TOTAL"}))
        assert list(run.series("imported:0", "power_w")[1]) == pytest.approx([int(row[1]) / 1e3 for row in rows])
