"""Rows that share a time: written twice, of several devices that nothing distinguishes, or under coarse stamps."""

import random

import numpy as np
import pytest

from commands import command
from import_logs import sessions
from jouletrace.analysis import analyse
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, read_files
from places import DATA

FAULTS = DATA / "faults"

START = 1_786_553_852


def imported(path, text, **options):
    path.write_text(text)
    return read_files([path], ImportOptions(**options))


def table(rows, header="time_s,power_w"):
    return "\n".join([header, *(",".join(str(cell) for cell in row) for row in rows)]) + "\n"


def figures(run):
    """Energy in J and mean power in W of the only device."""
    analyse(run)
    unit = next(row["id"] for row in run.units.to_pylist() if row["level"] == "device")
    return run.result("energy_total_j", unit).value, run.result("power_w", unit).value


def test_no_mean_exceeds_all_readings(capsys, tmp_path):
    made = command(capsys, "import", str(FAULTS / "M1_rows_twice.csv"), "-o", str(tmp_path / "r"))
    assert "in 19.5 s, 200.00 ± 0.59 W on average" in made.out.replace("\xa0", " ")


@pytest.mark.thorough
@pytest.mark.parametrize("each", [1, 2, 3, 4, 7, 10])
@pytest.mark.parametrize("step", [1, 2, 5])
def test_a_steady_load_has_its_own_mean_however_many_rows_share_a_stamp(tmp_path, each, step):
    rows = [(START + i * step, 200) for i in range(60) for _ in range(each)]
    energy, power = figures(imported(tmp_path / "t.csv", table(rows)))
    assert power == pytest.approx(200, rel=1e-6)
    assert energy == pytest.approx(200 * 60 * step, rel=0.03)


@pytest.mark.parametrize("seed", range(6))
def test_rows_written_twice_count_once(tmp_path, seed):
    draw = random.Random(seed)
    step = draw.choice([0.1, 0.5, 2, 10])
    rows = [(f"{START + i * step:.3f}", draw.randint(80, 300), draw.randint(30, 60)) for i in range(40)]
    header = "time_s,power_w,temperature_c"
    once = imported(tmp_path / "once.csv", table(rows, header))
    twice = [row for row in rows for _ in range(draw.choice([2, 3]))]
    again = imported(tmp_path / "twice.csv", table(twice, header))
    whole = imported(tmp_path / "whole.csv", table(rows + rows, header))
    for run, more in ((again, len(twice)), (whole, 2 * len(rows))):
        assert run.samples.equals(once.samples)
        assert run.settings["imported"][0]["left_out"]["repeated_rows"] == more - len(rows)
        assert "repeated_rows" in {warning.code for warning in run.warnings}


def test_equal_readings_of_one_second_are_not_the_same_row(tmp_path):
    run = imported(tmp_path / "t.csv", table([(START + i // 4, 61) for i in range(40)]))
    assert np.diff(run.series("imported:0", "power_w")[0]).tolist() == [250_000_000] * 39


def test_two_gpus_without_an_index_are_asked_about(capsys, tmp_path):
    complaint = command(capsys, "import", str(FAULTS / "twogpus.csv"), "-o", str(tmp_path / "r")).complaint
    assert "2 GPUs without an index?" in complaint
    assert "--query-gpu=timestamp,index," not in complaint
    assert "--map" not in complaint
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("seed", range(20))
def test_readings_of_several_devices_are_never_mixed(tmp_path, seed):
    draw = random.Random(seed)
    count, step = draw.randint(2, 8), draw.choice([0.1, 0.5, 1, 5])
    levels = draw.sample(range(80, 400, 15), count)
    digits = 0 if step >= 1 and seed % 2 else 3
    close = 0 if digits == 0 else draw.choice([0, 0, 0.001, 0.002])
    rows = [
        (f"{START + i * step + k * close:.{digits}f}", round(levels[k] + draw.gauss(0, 3), 2))
        for i in range(30)
        for k in range(count)
    ]
    if seed % 3 == 1 and not close:
        rows = [row for k in range(count) for row in rows[k::count]]  # one device after the other
    with pytest.raises(BadInputError, match="without an index"):
        imported(tmp_path / "t.csv", table(rows))


@pytest.mark.parametrize("kind", ["noise", "rise", "fall", "slow load", "before and after"])
@pytest.mark.parametrize("seed", range(3))
def test_a_single_device_is_not_taken_for_several(tmp_path, kind, seed):
    draw = random.Random(seed)
    each = 4
    watts = {
        "noise": lambda i: draw.gauss(200, 5),
        "rise": lambda i: 100 + i,
        "fall": lambda i: 400 - i,
        "slow load": lambda i: 300 if i // 17 % 2 else 90,
        "before and after": lambda i: draw.choice([90, 300]),
    }[kind]
    rows = [(START + i // each, round(watts(i), 1)) for i in range(200)]
    if kind == "before and after":  # at the end of each step, and at the start of the next
        rows = [(f"{START + i // 2 + 0.01 * (i % 2):.3f}", round(draw.gauss(200, 5), 1)) for i in range(200)]
    run = imported(tmp_path / "t.csv", table(rows))
    assert len(run.series("imported:0", "power_w")[0]) == 200


@pytest.mark.parametrize("number", [10, 100])
def test_a_column_that_distinguishes_devices_is_named(tmp_path, number):
    rows = [(START + i, card, watts) for i in range(number) for card, watts in (("left", 100), ("right", 300))]
    with pytest.raises(BadInputError, match="--map device=card"):
        imported(tmp_path / "t.csv", table(rows, "time_s,card,power_w"))
    run = imported(tmp_path / "t.csv", table(rows, "time_s,card,power_w"), map={"device": "card"})
    assert len(run.devices) == 2


def test_coarse_stamps_with_several_rows_each_say_how_they_were_read(tmp_path):
    run = imported(tmp_path / "t.csv", table([(START + i // 2, 200 + i % 3) for i in range(40)]))
    (warning,) = [one for one in run.warnings if one.code == "stamps_shared"]
    assert "each stamp has 2 rows" in warning.message


def test_logs_of_two_machines_that_number_their_gpus_alike_are_asked_about(tmp_path):
    row = "2026/08/24 22:19:{:02d}.000, 0, {:.2f} W"
    lines = [row.format(i, watts) for i in range(30) for watts in (100, 300)]
    with pytest.raises(BadInputError, match="2 machines"):
        imported(tmp_path / "t.csv", "\n".join(["timestamp, index, power.draw [W]", *lines]) + "\n")


def test_a_gpu_that_is_logged_for_a_second_each_minute_is_one(tmp_path):
    rows = [(f"2026/08/24 22:{i // 10:02d}:{i % 10 / 10:06.3f}", f"{300 + i % 7} W") for i in range(200)]
    imported(tmp_path / "t.csv", table(rows, "timestamp, power.draw [W]"))


@pytest.mark.parametrize("size", [3, 5, 10])
def test_sessions_of_one_length_in_any_table_are_remarked_on(tmp_path, size):
    run = imported(tmp_path / "t.csv", table([(f"{at:.3f}", watts) for at, watts in sessions(size)]))
    assert len(run.series("imported:0", "power_w")[1]) == 6 * size
    (warning,) = [one for one in run.warnings if one.code == "stamps_shared"]
    assert warning.message.startswith(f"rows come in groups of {size}, which are taken for readings that followed")


def test_a_question_about_devices_says_what_was_seen(tmp_path):
    rows = [(f"{START + i + 0.06 * k:.3f}", 100 + 200 * k) for i in range(30) for k in range(2)]
    with pytest.raises(
        BadInputError, match="each group of rows has 2 readings of power: are they of 2 GPUs without an index"
    ):
        imported(tmp_path / "t.csv", table(rows))
