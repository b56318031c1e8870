"""The meaning of cells and headings: blanks of drivers, units in words, states, two powers of one GPU."""

import random
import re

import pytest

from commands import command
from import_logs import left_out, query
from jouletrace.formats.importers import formats
from jouletrace.run import load
from logged_cells import csv_of_dcgm, imported, query_of_smi, refused, scrapes, table
from thinned import thinned

BLANKS = [
    *("", "-", "N/A", "[N/A]", "NaN", "[Not Supported]", "[Insufficient Permissions]"),
    *(str(first + k) for first in (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0, 1 << 47) for k in range(4)),
    *("9223372036854775807", "9223372036854775808", "18446744073709551615", "4294967295", "2147483647"),
    *("140737488355328.000000", "9.223372036854776e+18", "9.22337e+18", "1.40737e+14", "1.8446744073709552e+19"),
    *("1.4073749e+14", "2.14748e+09", "-9223372036854775808", "-2147483648"),
]
"""Texts of a cell where its driver has no value."""

FORMS = {"table": [table], "dcgm": [csv_of_dcgm, scrapes], "nvidia_smi": [query_of_smi]}

TRUSTED = "trust: yes"


def readings(run):
    """All that is measured in a Run, for comparison."""
    rows = run.samples.select(["time_ns", "device", "channel", "value"]).to_pylist()
    limits = [(device.power_limit_w, device.power_limits_w) for device in run.devices]
    return rows, limits, run.results.drop_columns(["method"]).to_pylist()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "form",
    [make for form, makers in FORMS.items() if form in formats() for make in makers],
)
@pytest.mark.parametrize("column", thinned(range(1, 8), 3))
def test_a_blank_in_any_column_is_an_empty_cell(capsys, tmp_path, form, column):
    draw = random.Random(column)
    cells = [
        [str(1786553852 + k), f"{150 + k % 3}", "50", "1410", "97", "512", f"{1000 + 150 * k}", "165"]
        for k in range(12)
    ]
    at = draw.sample(range(2, 10), 4)

    def written(*blanks):
        rows = [list(row) for row in cells]
        for k, blank in zip(at, blanks, strict=True):
            rows[k][column] = blank
        return form(rows)

    text, name = written("", "", "", "")
    expected, trust = imported(capsys, tmp_path, text, name=name)
    blanks_of = [blank for blank in BLANKS if " " not in blank] if form is scrapes else BLANKS
    for blanks in (draw.sample(blanks_of, 4) for _ in range(2)):
        text, name = written(*blanks)
        found, said = imported(capsys, tmp_path, text, name=name)
        assert readings(found) == readings(expected), blanks
        assert said.splitlines()[1:] == trust.splitlines()[1:]
    assert not {"not_a_number", "power_impossible"} & set(left_out(found))


@pytest.mark.thorough
@pytest.mark.parametrize(("column", "cell"), [("temperature_c", "1e5"), ("clock_mhz", "1e8")])
def test_readings_that_no_sensor_has_are_left_out(capsys, tmp_path, column, cell):
    text = f"time_s,power_w,{column}\n" + "".join(f"{k},150,{cell if k == 3 else 40}\n" for k in range(8))
    run, _ = imported(capsys, tmp_path, text)
    assert set(run.series("imported:0", column)[1]) == {40}


def powers(heading, cell="3", rows=12):
    return f"time_s,{heading}\n" + "".join(f"{k},{cell}\n" for k in range(rows))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("heading", "factor"),
    thinned(
        [
            *(("kilowatts", 1e3), ("Kilowatt", 1e3), ("kWatt", 1e3), ("Power (kWatts)", 1e3), ("power_kW", 1e3)),
            *(("Power (Kilowatts)", 1e3), ("Rack Power (kW)", 1e3), ("powerKW", 1e3), ("POWER_KW", 1e3), ("kW", 1e3)),
            *(("Milliwatts", 1e-3), ("Power (Milliwatts)", 1e-3), ("power_mWatts", 1e-3), ("powerMw", 1e-3)),
            *(("power_kW_total", 1e3), ("Power in kilo watts", 1e3), ("kilowatts total", 1e3), ("Leistung / kW", 1e3)),
            *(("Power (µW)", 1e-6), ("microwatts", 1e-6), ("Watts", 1), ("powerW", 1), ("Power (GPU) [W]", 1)),
            *(("gpuWatts", 1), ("Power (avg)", 1), ("wattage", 1)),
        ],
        3,
    ),
)
def test_units_of_power_in_headings_are_converted(capsys, tmp_path, heading, factor):
    run, _ = imported(capsys, tmp_path, powers(heading))
    assert run.series("imported:0", "power_w")[1][0] == pytest.approx(3 * factor)
    mapped, _ = imported(capsys, tmp_path, powers(heading), "--map", "power_w=2")
    assert mapped.series("imported:0", "power_w")[1][0] == pytest.approx(3 * factor)


UNKNOWN = [
    *("hectowatts", "HectoWatts", "power_hectowatts", "hecto watts", "Leistung (hW)", "Power (hW)", "Power hW"),
    *("powerMW", "power_MW", "Power (MW)", "MWatt", "decawatts", "Power (hp)", "Apparent Power (kVA)", "Power (dBm)"),
    *("Power (W/1000)", "Power (10 W)", "hW", "dekawatt total"),
]


@pytest.mark.parametrize("heading", thinned(UNKNOWN, 3))
def test_a_unit_of_power_that_is_not_known_is_asked_for(capsys, tmp_path, heading):
    for arguments in ((), ("--map", "power_w=2")):
        assert "--map power_" in refused(capsys, tmp_path, powers(heading), *arguments)
    run, _ = imported(capsys, tmp_path, powers(heading), "--map", "power_mw=2")
    assert run.series("imported:0", "power_w")[1][0] == pytest.approx(3e-3)


@pytest.mark.parametrize("heading", ["Power (x10)", "Power (/10)", "Power (foo)", "gpuwatts", "systemW", "powerkW"])
def test_what_may_be_a_unit_is_asked_for_and_a_mapping_settles_it(capsys, tmp_path, heading):
    assert "which column is the power" in refused(capsys, tmp_path, powers(heading))
    run, _ = imported(capsys, tmp_path, powers(heading), "--map", "power_w=2")
    assert run.series("imported:0", "power_w")[1][0] == 3


@pytest.mark.thorough
def test_every_word_before_watts_is_converted_or_asked_for(capsys, tmp_path):
    """No prefix is passed over: 3 of it are 3 W only where no prefix is there."""
    draw = random.Random(9)
    prefixes = ["femto", "pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "mega", "giga"]
    forms = ["{}watts", "Power ({}watts)", "power_{}watt", "Power {}Watts", "Power [{} watts]", "power{}Watts"]
    for prefix in draw.sample(prefixes, 9):
        text = powers(draw.choice(forms).format(draw.choice([prefix, prefix.title()])), cell="0.5")
        path = tmp_path / "log.csv"
        path.write_text(text)
        place = tmp_path / prefix
        said = command(capsys, "import", str(path), "-o", str(place))
        assert said.code in (0, 2), text
        if said.code == 0:
            assert load(place).series("imported:0", "power_w")[1][0] != 0.5, text


@pytest.mark.parametrize("target", ["power_hectowatts", "power_hw", "power_MW", "power_kwattage", "power"])
def test_a_mapping_to_a_unit_that_is_not_known_is_refused(capsys, tmp_path, target):
    assert "followed by its unit" in refused(capsys, tmp_path, powers("x"), "--map", f"{target}=x")


@pytest.mark.thorough
@pytest.mark.parametrize(("cell", "watts"), [("0.3 kW", 300), ("300 W", 300), ("300000 mW", 300), ("0.3 kWatt", 300)])
def test_units_of_cells_are_converted(capsys, tmp_path, cell, watts):
    run, _ = imported(capsys, tmp_path, powers("power", cell))
    assert run.series("imported:0", "power_w")[1][0] == pytest.approx(watts)


@pytest.mark.thorough
@pytest.mark.parametrize("cell", ["3 hW", "3 V", "3 hp", "3 MW"])
def test_cells_in_an_unknown_unit_or_of_another_quantity_are_no_watts(capsys, tmp_path, cell):
    assert "write W, mW or kW" in refused(capsys, tmp_path, powers("power_w", cell))
    run, said = imported(capsys, tmp_path, powers("power_w", "150") + f"12,{cell}\n")
    assert set(run.series("imported:0", "power_w")[1]) == {150}
    assert "with care" in said


@pytest.mark.parametrize("heading", ["tokens_per_watt", "FPS/W", "Efficiency (img/J)", "J/token"])
def test_a_ratio_is_no_power(capsys, tmp_path, heading):
    text = f"time_s,power_w,{heading}\n" + "".join(f"{k},150,3\n" for k in range(12))
    run, _ = imported(capsys, tmp_path, text)
    assert {channel.name for channel in run.channels} == {"power_w"}


def rack(heading="Rack Power (kW)", cells=("6.00", "6.01", "6.02"), rows=12):
    return f"Time,{heading}\n" + "".join(f"2026-11-25 20:30:{k:02d},{cells[k % 3]}\n" for k in range(rows))


WATTS = ("6000", "6001", "6002")


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (rack(), ()),
        (rack("p", WATTS), ("--map", "power_w=p")),
        (rack("Server Power (W)", WATTS), ()),
        (rack("power", ("6.00 kW", "6.01 kW", "6.02 kW")), ()),
        (rack("power_w", WATTS), ("--map", "power_w=power_w")),
    ],
)
def test_a_meter_of_a_rack_is_trusted_where_its_unit_is_stated(capsys, tmp_path, text, arguments):
    run, said = imported(capsys, tmp_path, text, *arguments)
    assert run.series("imported:0", "power_w")[1][0] == pytest.approx(6000)
    assert TRUSTED in said


def test_the_power_of_a_rack_without_a_unit_is_asked_for_and_can_be_stated(capsys, tmp_path):
    said = refused(capsys, tmp_path, rack("Power", WATTS))
    way = re.search(r"if it is in watts, (--map) (\S+)", said)
    assert TRUSTED in imported(capsys, tmp_path, rack("Power", WATTS), *way.groups())[1]


@pytest.mark.thorough
@pytest.mark.parametrize("header", ["time_s,gpu,power_w", "time_s,uuid,Power (W)"])
def test_one_gpu_above_any_other_is_not_trusted(capsys, tmp_path, header):
    text = header + "\n" + "".join(f"{k},GPU-1,{6800 + k % 3}\n" for k in range(12))
    assert "trust: no" in imported(capsys, tmp_path, text)[1]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "field",
    [
        *("clocks_event_reasons.hw_power_brake_slowdown", "clocks_throttle_reasons.sw_power_cap", "power.management"),
        *("persistence_mode", "compute_mode", "ecc.mode.current"),
    ],
)
def test_a_state_beside_the_power_is_no_damaged_reading(capsys, tmp_path, field):
    for states in (("Not Active", "Active"), ("Enabled", "[N/A]"), ("Disabled", "Disabled")):
        head, *rows = query([200.0 + k % 3 for k in range(12)]).splitlines()
        rows = [f"{row}, {states[k % 2]}" for k, row in enumerate(rows)]
        run, said = imported(capsys, tmp_path, "\n".join([f"{head}, {field}", *rows]) + "\n")
        assert "hold no number" not in said
        assert left_out(run) == {"unknown_columns": 1}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "field", ["hw_power_brake_slowdown", "power_state", "power_limit", "sw_power_cap", "Power Factor"]
)
def test_a_state_in_a_table_is_no_power(capsys, tmp_path, field):
    for states in (("Not Active", "Active"), ("0", "1")):
        text = f"time_s,meter_w,{field}\n" + "".join(f"{k},200,{states[k % 2]}\n" for k in range(12))
        run, said = imported(capsys, tmp_path, text)
        assert set(run.series("imported:0", "power_w")[1]) == {200}
        assert TRUSTED in said


def test_energy_is_computed_of_no_limit(capsys, tmp_path):
    text = "time_s,Chip (W),Power Limit (W)\n" + "".join(f"{k},200,400\n" for k in range(12))
    run, _ = imported(capsys, tmp_path, text)
    assert set(run.series("imported:0", "power_w")[1]) == {200}
    assert run.devices[0].power_limit_w == 400


@pytest.mark.thorough
@pytest.mark.parametrize(
    "header",
    [
        *("time_s,power_w,power_w", "time_s,power_w,Power_W", "time_s,power_w, POWER_W ", "time_s,power_w,Power (W)"),
        *("time_s,watts,power", "time_s,GPU0 Power (W),gpu0_power_w", "time_s,power_w,power_w.1"),
    ],
)
def test_two_columns_of_one_power_are_asked_about(capsys, tmp_path, header):
    text = header + "\n" + "".join(f"{k},300,100\n" for k in range(12))
    said = refused(capsys, tmp_path, text)
    assert "columns 2" in said
    assert "and 3" in said
    one, _ = imported(capsys, tmp_path, text, "--map", "power_w=3")
    assert set(one.series("imported:0", "power_w")[1]) == {100}
    both, said = imported(capsys, tmp_path, text, "--map", "power_w:0=2", "--map", "power_w:1=3")
    assert [set(both.series(device.id, "power_w")[1]) for device in both.devices] == [{300}, {100}]


def test_a_name_that_two_columns_have_is_no_choice(capsys, tmp_path):
    text = "time_s,power_w,power_w\n" + "".join(f"{k},300,100\n" for k in range(12))
    assert "give the number" in refused(capsys, tmp_path, text, "--map", "power_w=power_w")
    assert "both power_w" in refused(capsys, tmp_path, text, "--map", "power_w=2", "--map", "power_mw=3")
    assert "two values" in refused(capsys, tmp_path, text, "--map", "power_w=2", "--map", "power_w=3")


@pytest.mark.parametrize(
    "text",
    [
        "time_s,power_w\n" + "".join(f"{k},0,300,{k}\n" for k in range(1, 9)),
        "Time,Power (W)\n" + "".join(f"2026-11-25 20:30:0{k},300,5\n" for k in range(9)),
        "time_s,power_w,temperature_c\n" + "".join(f"{k},5,300,5,41,{k}\n" for k in range(9)),
    ],
)
def test_decimal_commas_between_commas_are_named(capsys, tmp_path, text):
    said = refused(capsys, tmp_path, text)
    assert "decimal commas" in said
    assert "semicolons" in said


@pytest.mark.thorough
def test_numbers_as_numpy_writes_them_are_read(capsys, tmp_path):
    rows = "".join(f"{1786553852 + k:.18e},{300.5 + k % 2:.18e}\n" for k in range(12))
    run, said = imported(capsys, tmp_path, "time_s,power_w\n" + rows)
    time, watts = run.series("imported:0", "power_w")
    assert (time[0], watts[0], watts[1]) == (1786553852 * 10**9, 300.5, 301.5)
    assert TRUSTED in said


@pytest.mark.thorough
@pytest.mark.parametrize(("heading", "target"), [("time_s", "time_s"), ("gpu", "device")])
def test_two_columns_of_one_heading_are_asked_about_where_they_differ(capsys, tmp_path, heading, target):
    def text(second):
        rows = "".join(f"{k},0,{second(k, gpu)},200\n" for k in range(12) for gpu in (0, 1))
        return f"time_s,gpu,{heading},power_w\n{rows}"

    differ = text(lambda k, gpu: 2 * k if heading == "time_s" else gpu)
    place = ["time_s", "gpu"].index(heading) + 1
    line = refused(capsys, tmp_path, differ)
    assert f"columns {place} and 3 are both {heading!r}" in line
    assert f"--map {target}={place}" in line
    if heading == "gpu":
        found, said = imported(capsys, tmp_path, differ, "--map", "device=3")
        assert len(found.devices) == 2
        assert "400.00 ± 0.86 W" in said
    alike = text(lambda k, gpu: k if heading == "time_s" else 0)
    assert "200.00 ± 0.61 W" in imported(capsys, tmp_path, alike)[1]


def test_the_number_of_a_column_is_in_ascii_digits(capsys, tmp_path):
    assert "no column '٢'" in refused(capsys, tmp_path, powers("power_w"), "--map", "power_w=٢")


@pytest.mark.thorough
@pytest.mark.parametrize("heading", ["power (kW)", "Rack Power (KW)"])
def test_a_meter_of_a_large_rack_has_its_energy(capsys, tmp_path, heading):
    _, said = imported(capsys, tmp_path, powers(heading, "60"))
    assert "60000.0 ± 0.7 W" in said
    assert TRUSTED in said


def test_a_glitch_of_a_meter_of_a_large_rack_is_left_out(capsys, tmp_path):
    text = powers("power (kW)", "60", 30).replace("\n7,60\n", "\n7,999\n")
    _, said = imported(capsys, tmp_path, text)
    assert "60000.0 ± 0.6 W" in said
    assert "left out" in said
