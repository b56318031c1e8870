"""Files of a known format with columns of a user's own, quoted cells, and files of tools that aren't read."""

import csv
import io
import random

import pytest

from commands import command
from import_logs import SAMPLES
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, read_files, recognise
from places import DATA

FAULTS = DATA / "faults"


def test_times_of_a_users_own_are_those_of_the_rows(tmp_path):
    text = "epoch,power.draw [W]\n" + "".join(f"{1_786_553_852 + 5 * i},{200 + i} W\n" for i in range(10))
    (tmp_path / "smi.csv").write_text(text)
    run = read_files([tmp_path / "smi.csv"])
    assert run.series("imported:0", "power_w")[0].tolist() == [(1_786_553_852 + 5 * i) * 10**9 for i in range(10)]
    (tmp_path / "smi.csv").write_text(text.replace("1786553", ""))
    with pytest.raises(BadInputError, match="the unit of 'epoch' isn't stated"):
        read_files([tmp_path / "smi.csv"])


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


@pytest.mark.thorough
def test_two_powers_of_one_meter_can_be_added_as_is_advised(capsys, tmp_path):
    rows = [f"2026-03-05T11:00:{i:02d},6.0,5.0" for i in range(20)]
    (tmp_path / "pdu.csv").write_text("\n".join(["time,Feed 1 kW,Feed 2 kW", *rows]) + "\n")
    source = str(tmp_path / "pdu.csv")
    made = command(capsys, "import", source, "-o", str(tmp_path / "r"))
    assert "for the sum, --map power_w:0=COLUMN --map power_w:1=COLUMN" in " ".join(made.out.split())
    ways = ["--map", "power_w:0=Feed 1 kW", "--map", "power_w:1=Feed 2 kW"]
    made = command(capsys, "import", source, "-o", str(tmp_path / "q"), *ways)
    assert " W on average, 2 devices together" in made.out.replace("\xa0", " ")
