"""Times of imported logs: forms of dates, the hour that occurs twice, stamps far from all others."""

import random
import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from commands import command
from import_logs import codes
from jouletrace.analysis import analyse
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, import_files, read_files
from jouletrace.run import load
from places import DATA

FAULTS = DATA / "faults"

BERLIN = ZoneInfo("Europe/Berlin")

EVENING = datetime(2026, 11, 25, 20, 30, tzinfo=UTC)


def seconds(path, text, **options):
    """Import a table of power with these texts as times; returns its times in s since the epoch."""
    path.write_text(text)
    run = read_files([path], ImportOptions(**options))
    return [ns / 1e9 for ns in run.series(run.devices[0].id, "power_w")[0].tolist()]


def column(stamps):
    """A table of power at these stamps."""
    return "Time;Power (W)\n" + "".join(f"{stamp};200\n" for stamp in stamps)


def test_a_stamp_before_all_others_leaves_a_run_that_opens(capsys, tmp_path):
    made = command(capsys, "import", str(FAULTS / "A1_far_stamp.csv"), "-o", str(tmp_path / "r"))
    assert made.code == 0
    assert "1 row has a time that is years from the others" in " ".join(made.out.split())
    assert command(capsys, "show", str(tmp_path / "r")).code == 0


@pytest.mark.parametrize("seed", range(8))
def test_strays_cost_no_figure(tmp_path, seed):
    draw = random.Random(seed)
    rows = [f"{1_786_553_852 + i},{draw.randint(100, 300)}" for i in range(60)]
    clean, dirty = tmp_path / "clean.csv", tmp_path / "dirty.csv"
    clean.write_text("time_s,power_w\n" + "\n".join(rows) + "\n")
    for stray in draw.sample([0.5, 1, 86400, 31_536_000, 4_200_000_000, 1_900_000_000, 978_307_200], 3):
        rows.insert(draw.randint(0, len(rows)), f"{stray},250")
    dirty.write_text("time_s,power_w\n" + "\n".join(rows) + "\n")
    runs = [read_files([path]) for path in (clean, dirty)]
    assert runs[1].series("imported:0", "power_w")[0].tolist() == runs[0].series("imported:0", "power_w")[0].tolist()
    assert runs[1].settings["imported"][0]["left_out"]["stray_times"] == 3
    assert "stray_times" in {warning.code for warning in runs[1].warnings}


@pytest.mark.parametrize(
    "stamps",
    [
        ["1970-01-01 00:00:05", *(f"2026-11-25 20:30:0{i}" for i in range(5))],
        ["0", *(f"2026-11-25 20:30:0{i}" for i in range(5))],
        ["1", *(f"{EVENING.timestamp() + i:.0f}" for i in range(5))],
    ],
)
def test_a_clock_that_was_not_set_yet_is_no_hole_of_decades(tmp_path, stamps):
    found = seconds(tmp_path / "t.csv", column(stamps))
    assert found == [EVENING.timestamp() + i for i in range(5)]


@pytest.mark.parametrize("rows", ["0,100\n20000000000,100\n", "0,100\n1,100\n1000000000000,100\n"])
def test_readings_years_apart_never_make_a_run_that_cannot_be_opened(capsys, tmp_path, rows):
    (tmp_path / "t.csv").write_text("time_s,power_w\n" + rows)
    made = command(capsys, "import", str(tmp_path / "t.csv"), "-o", str(tmp_path / "r"))
    if made.code:
        assert "years" in made.complaint
    else:
        assert command(capsys, "show", str(tmp_path / "r")).code == 0


def test_two_records_years_apart_are_both_kept(tmp_path):
    stamps = [f"{1_500_000_000 + i}" for i in range(10)] + [f"{1_700_000_000 + i}" for i in range(10)]
    assert len(seconds(tmp_path / "t.csv", column(stamps))) == 20


@pytest.mark.parametrize(
    "form",
    [
        "%m/%d/%Y %I:%M:%S %p",
        "%m/%d/%Y, %I:%M:%S\u202f%p",
        "%Y-%m-%d %I:%M:%S%p",
        "%d.%m.%Y %H:%M:%S",
        "%m/%d/%y %H:%M:%S",
        "%Y/%m/%dT%H:%M:%S.000",
        "%Y-%m-%dT%H:%M:%S+00",
        "%d-%b-%Y %H:%M:%S",
        "%d/%b/%Y:%H:%M:%S +0000",
        "%b %d, %Y %I:%M:%S %p",
        "%B %d, %Y at %I:%M:%S %p",
        "%a, %d %b %Y %H:%M:%S GMT",
        "%a %d %b %Y %I:%M:%S %p UTC",
        "%a %b %d %H:%M:%S %Y",
        "%Y-%m-%d %H:%M:%S UTC",
    ],
)
def test_dates_are_read_in_usual_forms(tmp_path, form):
    moments = [EVENING + timedelta(hours=hours, seconds=7) for hours in range(0, 26)]
    found = seconds(tmp_path / "t.csv", column([moment.strftime(form) for moment in moments]))
    assert found == [moment.timestamp() for moment in moments]


def test_half_days_change_at_noon_and_midnight(tmp_path):
    stamps = ["11/25/2026 11:59:59 AM", "11/25/2026 12:00:00 PM", "11/25/2026 11:59:59 p.m.", "11/26/2026 12:00:00 AM"]
    hours = [
        second / 3600 - EVENING.timestamp() / 3600 + 20.5 for second in seconds(tmp_path / "t.csv", column(stamps))
    ]
    assert hours == pytest.approx([12, 12, 24, 24], abs=1e-3)
    assert np.diff(seconds(tmp_path / "t.csv", column(["11:59:59 AM", "12:00:00 PM", "1:00:00 PM"]))).tolist() == [
        1,
        3600,
    ]


def test_stamps_without_seconds_are_spread_over_their_minute(tmp_path):
    stamps = [f"2026-11-25 20:{30 + i // 4}" for i in range(12)]
    assert np.diff(seconds(tmp_path / "t.csv", column(stamps))).tolist() == [15.0] * 11


def test_am_and_pm_are_read(capsys, tmp_path):
    made = command(capsys, "import", str(FAULTS / "K1_am_pm.csv"), "-o", str(tmp_path / "r"))
    assert "in 9 s, 200.00 ± 0.66 W on average" in made.out.replace("\xa0", " ")


@pytest.mark.parametrize("text", ["11/25/2026 13:00:00 PM", "11/25/2026 0:30:00 AM", "Foo 25, 2026 08:30:00 PM"])
def test_impossible_dates_are_no_times(tmp_path, text):
    good = [f"11/25/2026 08:30:0{i} PM" for i in range(3)]
    assert len(seconds(tmp_path / "t.csv", column([*good, text]))) == 3


def test_the_hour_that_occurs_twice_is_no_hole(capsys, tmp_path):
    zone = ("--time-zone", "Europe/Berlin")
    made = command(capsys, "import", str(FAULTS / "L1_dst.csv"), "-o", str(tmp_path / "r"), *zone)
    assert made.code == 0
    assert "hole" not in made.out
    assert "stepped back" not in made.out
    time, _ = load(tmp_path / "r").series("imported:0", "power_w")
    assert set(np.diff(time).tolist()) == {600 * 10**9}
    assert len(time) == 19


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(20))
def test_order_settles_local_times_wherever_a_log_begins_and_ends(tmp_path, seed):
    draw = random.Random(seed)
    step = draw.choice([1, 10, 60, 300, 600])
    change = datetime(2026, 10, 25, 1, 0, tzinfo=UTC)
    first = change + timedelta(seconds=draw.randint(-5400, 3000))
    devices = draw.randint(1, 3)
    moments = [first + timedelta(seconds=i * step) for i in range(7200 // step + 2)]
    local = [moment.astimezone(BERLIN).strftime("%Y-%m-%d %H:%M:%S") for moment in moments]
    rows = [f"{stamp},{k},{100 + k}" for stamp in local for k in range(devices)]
    (tmp_path / "t.csv").write_text("time,gpu,power_w\n" + "\n".join(rows) + "\n")
    run = read_files([tmp_path / "t.csv"], ImportOptions(time_zone="Europe/Berlin"))
    wanted = [int(moment.timestamp()) * 10**9 for moment in moments]
    for device in run.devices:
        assert run.series(device.id, "power_w")[0].tolist() == wanted


def test_a_zone_in_letters_states_the_pass(tmp_path):
    stamps = ["Sun Oct 25 02:30:00 CEST 2026", "Sun Oct 25 02:30:00 CET 2026"]
    found = seconds(tmp_path / "t.csv", column(stamps), time_zone="Europe/Berlin")
    assert found[1] - found[0] == 3600


def test_a_log_within_the_hour_that_occurs_twice_says_which_was_assumed(tmp_path):
    (tmp_path / "t.csv").write_text(column([f"2026-10-25 02:30:0{i}" for i in range(5)]))
    run = read_files([tmp_path / "t.csv"], ImportOptions(time_zone="Europe/Berlin"))
    assert "hour_assumed" in {warning.code for warning in run.warnings}


@pytest.mark.thorough
@pytest.mark.parametrize("rows", [12, 30])
def test_the_newest_row_may_be_first(capsys, tmp_path, rows):
    lines = [f"{1786553852 + k},200\n" for k in range(rows)]
    oldest, newest = ("timestamp,power_w\n" + "".join(order) for order in (lines, lines[::-1]))
    found = []
    for name, text in (("oldest", oldest), ("newest", newest)):
        (tmp_path / f"{name}.csv").write_text(text)
        said = command(capsys, "import", str(tmp_path / f"{name}.csv"), "-o", str(tmp_path / name)).out
        found.append(said.replace(name, "log"))
    assert f"in {rows - 1} s" in found[0]
    assert found[0].splitlines()[:3] == found[1].splitlines()[:3]


@pytest.mark.parametrize("back_s", [3600, 20])
def test_where_the_clock_of_a_log_steps_back_its_rows_go_on(tmp_path, back_s):
    """By more than the log had lasted, or by less: some stamps then occur twice."""
    begun = EVENING.timestamp()
    rows = "".join(f"{begun + k - back_s * (k >= 40)},{200 + k % 2}\n" for k in range(100))
    (tmp_path / "t.csv").write_text("time_s,power_w\n" + rows)
    run = read_files([tmp_path / "t.csv"])
    time, watts = run.series("imported:0", "power_w")
    assert np.array_equal(time, round(1e9 * begun) + np.arange(100) * 10**9)
    assert np.array_equal(watts, 200 + np.arange(100) % 2)
    (said,) = [one.message for one in run.warnings if one.code == "clock_stepped"]
    assert said.startswith(f"the clock stepped back by {back_s} s after 2026-11-25 20:30:39.000 UTC")


@pytest.mark.parametrize("back_s", [0.5, 1, 1.7, 30])
@pytest.mark.parametrize("places", [(1,), (50,), (99,), (20, 40, 60, 98)])
@pytest.mark.parametrize("swapped", [(), (30, 31)])
def test_a_clock_may_step_back_anywhere_beside_rows_in_another_order(tmp_path, back_s, places, swapped):
    """By one interval, so that two rows share a stamp, or by more; at the first and last rows too."""
    begun, order = EVENING.timestamp(), np.arange(100)
    order[list(swapped)] = order[list(swapped[::-1])]
    stamps = begun + 0.5 * order - back_s * np.searchsorted(places, order, side="right")
    rows = "".join(f"{at:.3f},{200 + k % 7}\n" for at, k in zip(stamps, order, strict=True))
    (tmp_path / "t.csv").write_text("time_s,power_w\n" + rows)
    run = read_files([tmp_path / "t.csv"])
    time, watts = run.series("imported:0", "power_w")
    assert np.array_equal(np.sort(time), round(1e9 * begun) + np.arange(100) * 500_000_000)
    assert np.array_equal(watts[np.argsort(time)], 200 + np.arange(100) % 7)
    assert "clock_stepped" in {one.code for one in run.warnings}


def test_rows_that_come_late_or_at_once_are_no_step_of_the_clock(tmp_path):
    """One by four rows; after a pause of three rows, all of which then share a stamp."""
    order = [*range(30), 31, 32, 33, 34, 30, *range(35, 60)]
    stamps = [
        f"{EVENING.timestamp() + 0.5 * k + (0.5 * (63 - k) if 60 <= k < 63 else 0):.3f}"
        for k in [*order, *range(60, 90)]
    ]
    rows = "".join(f"{at},{200 + k}\n" for k, at in enumerate(stamps))
    (tmp_path / "t.csv").write_text("time_s,power_w\n" + rows)
    assert "clock_stepped" not in {one.code for one in read_files([tmp_path / "t.csv"]).warnings}


def test_rows_that_come_too_soon_are_counted_with_the_time_that_they_lack(tmp_path):
    """Eight times the clock was set back by 0.6 s between rows 1 s apart: 4.8 s of power are not in the log."""
    stamps = np.arange(100) - 0.6 * np.searchsorted(np.arange(10, 90, 10), np.arange(100), side="right")
    rows = "".join(f"{EVENING.timestamp() + at:.3f},{200 + k % 7}\n" for k, at in enumerate(stamps))
    (tmp_path / "t.csv").write_text("time_s,power_w\n" + rows)
    (said,) = [one.message for one in read_files([tmp_path / "t.csv"]).warnings if one.code == "clock_stepped"]
    assert said.startswith("rows are 1 s apart, but 8 come sooner, and none came late")
    assert said.endswith("4.8 s are missing in time and energy")


@pytest.mark.parametrize("hours", [(0, 24), (0, 24, 48), (0, 1 / 60)])
def test_two_readings_have_no_energy_and_neither_have_those_of_single_days(tmp_path, hours):
    """Of two no one knows whether others are missing between them."""
    rows = "".join(f"{EVENING.timestamp() + 3600 * hour:.0f},{300 + hour:.1f}\n" for hour in hours)
    (tmp_path / "t.csv").write_text("time_s,power_w\n" + rows)
    run = analyse(read_files([tmp_path / "t.csv"]))
    assert run.result("energy_total_j", 1).value is None
    assert ("hole_in_record" in {one.code for one in run.warnings}) == (hours[1] == 24)


def test_a_log_with_a_hole_before_its_last_row_keeps_the_energy_before_it(tmp_path):
    """Readings are means over a second: what the last one speaks of begins within the hole."""
    begun, name = datetime(2026, 11, 1, 12, tzinfo=UTC), "NVIDIA H100 80GB HBM3"
    watts = [100.0 + 200.0 * (100 < k < 300) + 0.1 * (k * 37 % 11) for k in range(600)]
    times = [*(begun + timedelta(seconds=0.1 * k) for k in range(600)), begun + timedelta(minutes=11)]
    rows = [
        f"{at:%Y/%m/%d %H:%M:%S.%f}"[:-3] + f", {name}, {w:.2f} W" for at, w in zip(times, [*watts, 100], strict=True)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["timestamp, name, power.draw [W]", *rows]) + "\n")
    energy = analyse(read_files([tmp_path / "t.csv"])).result("energy_total_j", 1)
    assert energy.value == pytest.approx(0.1 * sum(watts), rel=0.01)
    assert "covered_alone" in energy.flags


@pytest.mark.parametrize("digits", [0, 3])
def test_rows_in_no_order_are_sorted_with_a_remark(tmp_path, digits):
    rows = [f"{1_786_553_852 + i:.{digits}f},{300 if 20 <= i < 80 else 60}" for i in range(100)]
    random.Random(1).shuffle(rows)
    (tmp_path / "t.csv").write_text("\n".join(["time_s,power_w", *rows]) + "\n")
    run = analyse(read_files([tmp_path / "t.csv"]))
    assert run.result("energy_total_j", 1).value == pytest.approx(60 * 300 + 40 * 60, rel=0.02)
    assert "rows_sorted" in {one.code for one in run.warnings}
    assert not {"clock_stepped", "record_clock_stepped_back", "record_hole"} & {one.code for one in run.warnings}


def warned(run, code):
    return [one.message for one in run.warnings if one.code == code]


@pytest.fixture
def night(tmp_path):
    """A log from 22:00 to 02:00, a reading every ten seconds: 70 W, from 23:00 on 300 W."""
    rows = [
        f"2026/11/{25 + s // 86400} {s // 3600 % 24:02d}:{s // 60 % 60:02d}:{s % 60:02d}.000, 0, "
        f"{300 if s >= 23 * 3600 else 70}.{s // 10 % 3}0 W"
        for s in range(22 * 3600, 26 * 3600, 10)
    ]
    path = tmp_path / "smi.csv"
    path.write_text("\n".join(["timestamp, index, power.draw [W]", *rows]) + "\n")
    return path


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("since", "until", "joules"),
    [
        ("23:00", "01:00", 300.1 * 7200),
        ("2026-11-25 23:30", "2026-11-26T00:30:00", 300.1 * 3600),
        (None, "3590", 70.1 * 3590),
        ("7200", None, 300.1 * 7190),
        ("01:00", "01:30", 300.1 * 1800),
        ("2026-11-26", None, 300.1 * 7190),
        ("2026-11-25 23:00", "2026-11-25", 300.1 * 3590),
    ],
)
def test_a_part_of_a_log_has_the_energy_of_its_readings(night, since, until, joules):
    run = import_files(night, time_zone="UTC", since=since, until=until)
    assert run.result("energy_total_j").value == pytest.approx(joules, rel=2e-3)
    assert "readings were kept" in run.settings["imported"][0]["aligned"]
    assert not {"beyond_log", "several_days"} & codes(run)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"since": "noon"}, "--from 'noon': write a time as the log has it"),
        ({"until": "nan"}, "--to 'nan': write a time"),
        ({"since": "05:00"}, "no reading lies there; the log has 2026-11-25 22:00:00"),
        ({"since": "3600", "until": "60"}, "--from 3600 --to 60: the end lies before the beginning"),
        (
            {"since": "23:30", "until": "23:00"},
            "--from 23:30 --to 23:00: the end lies before the beginning; the log has",
        ),
        ({"since": "2026-11-27"}, "--from 2026-11-27: no reading lies there; the log has 2026-11-25 22:00:00"),
    ],
)
def test_a_part_that_a_log_lacks_is_refused(night, given, said):
    with pytest.raises(BadInputError, match=re.escape(said)):
        import_files(night, time_zone="UTC", **given)


def test_a_part_that_a_log_has_in_part_says_how_much_and_where_it_ends(night):
    (said,) = warned(import_files(night, time_zone="UTC", since="01:00", until="03:00"), "beyond_log")
    assert said == "--from 01:00 --to 03:00: the log ends at 2026-11-26 01:59:50.000 UTC: 3590 s of 7200 s are in it"
    (said,) = warned(import_files(night, since="2026-11-25 20:00", until="23:00"), "beyond_log")
    assert said.endswith("the log begins at 2026-11-25 22:00:00.000 UTC: 3600 s of 10800 s are in it")


def test_a_time_of_day_on_several_days_says_which_was_taken(tmp_path):
    path = tmp_path / "smi.csv"
    rows = [f"2026/11/{25 + h // 24} {h % 24:02d}:00:00.000, 0, {70 + h % 3}.00 W" for h in range(70)]
    path.write_text("\n".join(["timestamp, index, power.draw [W]", *rows]) + "\n")
    (said,) = warned(read_files([path], ImportOptions(since="10:00", until="20:00")), "several_days")
    taken = "taken from 2026-11-25 10:00:00.000 UTC to 2026-11-25 20:00:00.000 UTC"
    assert said == f"--from 10:00 --to 20:00: {taken}; 2 later days of the log match, too"
    assert "several_days" not in codes(read_files([path], ImportOptions(since="2026-11-26 10:00", until="20:00")))


def test_a_part_ends_at_the_first_reading_of_a_log_that_counts_from_zero(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("time_s,power_w\n" + "".join(f"{k},{100 + k % 3}\n" for k in range(60)))
    assert len(read_files([path], ImportOptions(until="0")).samples) == 1
    assert len(read_files([path], ImportOptions(since="0", until="9")).samples) == 10
