"""Times and numbers as logs write them."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from jouletrace.errors import BadInputError
from jouletrace.formats.importers import RELATIVE, UNIX, ImportOptions, read_stamps, units
from jouletrace.formats.importers.log import Log
from jouletrace.formats.importers.stamps import spread

NOON = 1_709_294_400  # 2024-03-01 12:00:00 UTC


@pytest.mark.parametrize(
    ("text", "resolution"),
    [
        ("2024-03-01T12:00:00Z", 1.0),
        ("2024-03-01 12:00:00", 1.0),
        ("2024/03/01 12:00:00.000", 1e-3),
        ("2024-03-01T13:00:00.000000+01:00", 1e-6),
        ("2024-03-01 07:00:00,000 -0500", 1e-3),
        ("20240301 12:00:00", 1.0),
        ("Fri Mar  1 12:00:00 2024", 1.0),
        ("Fri Mar  1 12:00:00 UTC 2024", 1.0),
        ("Fri  1 Mar 12:00:00 UTC 2024", 1.0),
        (str(NOON), 1.0),
        (f"{NOON}.000", 1e-3),
        (f"{NOON}000", 1e-3),
        (f"{NOON}000000", 1e-6),
        (f"{NOON}000000000", 1e-9),
    ],
)
def test_a_time_is_read_in_whatever_form(text, resolution):
    stamps = read_stamps([text])
    assert stamps.valid.all()
    assert stamps.time_ns[0] == NOON * 10**9
    assert stamps.clock == UNIX
    assert stamps.resolution_s == pytest.approx(resolution)


def test_nanoseconds_are_exact():
    assert read_stamps(["1763676000123456789"]).time_ns[0] == 1763676000123456789
    assert read_stamps(["1763508239.3469439"]).time_ns[0] == 1763508239346943900
    assert read_stamps(["1763508239346943.9"]).time_ns[0] == 1763508239346943900


def test_the_order_of_day_and_month_is_determined_from_the_other_rows():
    assert read_stamps(["04/12/2022 10:00:00", "04/13/2022 10:00:00"]).time_ns[0] == 1_649_757_600 * 10**9
    assert read_stamps(["04/12/2022 10:00:00", "13/12/2022 10:00:00"]).time_ns[0] == 1_670_148_000 * 10**9
    assert "date_order_assumed" in read_stamps(["04/12/2022 10:00:00"]).notes
    assert read_stamps(["04.12.2022 10:00:00"]).time_ns[0] == 1_670_148_000 * 10**9


@pytest.mark.parametrize("sep", ["-", ".", "/"])
@pytest.mark.parametrize(("first", "form"), [("month", "%m{0}%d{0}%Y"), ("day", "%d{0}%m{0}%Y")])
def test_the_order_of_day_and_month_that_leaves_no_hole_is_certain(sep, first, form):
    begin = datetime(2026, 3, 11, 23, 59, 40, tzinfo=UTC)
    texts = [(begin + timedelta(seconds=k)).strftime(form.format(sep) + " %H:%M:%S") for k in range(40)]
    stamps = read_stamps(texts)
    assert stamps.time_ns[0] == begin.timestamp() * 1e9
    assert np.ptp(stamps.time_ns) == 39 * 10**9
    assert "date_order_assumed" not in stamps.notes


@pytest.mark.parametrize("texts", [["03-11-2026 10:00:00"] * 3, ["03-11-2026 10:00:00", "05-12-2026 10:00:00"]])
def test_where_both_orders_leave_a_hole_or_none_one_is_assumed(texts):
    assert read_stamps(texts).notes["date_order_assumed"].endswith("day first was assumed")


def test_small_numbers_count_from_some_start():
    stamps = read_stamps(["0.5", "1.0"], unit="ms")
    assert list(stamps.time_ns) == [500_000, 1_000_000]
    assert stamps.clock == RELATIVE


def test_a_zero_among_epoch_times_is_none():
    stamps = read_stamps(["1657289532", "0", "0", "0"])
    assert stamps.clock == UNIX
    assert list(stamps.valid) == [True, False, False, False]


def test_a_local_time_is_put_into_its_zone():
    assert read_stamps(["2024-03-01 13:00:00"], "Europe/Berlin").time_ns[0] == NOON * 10**9
    assert read_stamps(["2024-07-01 13:00:00"], "Europe/Berlin").time_ns[0] == 1_719_831_600 * 10**9
    with pytest.raises(BadInputError, match="Nowhere"):
        read_stamps(["2024-03-01 13:00:00"], "Nowhere/Land")


def test_what_is_no_time_is_marked_and_not_guessed():
    texts = ["2024-03-01T12:00:00Z", "2024-13-01T12:00:00Z", "2024-03-01T25:00:00Z", "", "soon", "\x00", "9" * 400]
    stamps = read_stamps(texts)
    assert list(stamps.valid) == [True] + [False] * 6
    assert not read_stamps(["", "x"]).valid.any()
    assert not read_stamps(["9" * 30]).valid.any()


def test_spread_keeps_single_stamps_and_divides_shared_ones():
    time = np.array([0, 10, 10, 20, 20, 20, 20], np.int64) * 10**8
    assert list(spread(time, 1.0)) == [0, 10**9, 15 * 10**8, 2 * 10**9, 225 * 10**7, 25 * 10**8, 275 * 10**7]


@pytest.mark.parametrize(
    ("cell", "value", "si"),
    [
        ("21.76 W", 21.76, "W"),
        ("512 MiB", 2**29, "B"),
        ("1 250 mW", 1.25, "W"),
        ("85.5GB/s", 85.5e9, "B/s"),
        ("97 %", 97, "%"),
    ],
)
def test_a_cell_is_split_into_number_and_unit(cell, value, si):
    digits, printed = units.split(cell)
    unit = units.unit(printed)
    assert unit.si == si
    assert float(digits.replace(" ", "")) * unit.factor == pytest.approx(value)


def test_an_unknown_unit_is_none_and_no_unit_is_one():
    assert units.unit("furlong") is None
    assert units.unit("") is units.NO_UNIT
    assert units.unit("mW").factor == 1e-3
    assert units.unit("MW") is None  # a megawatt is more likely a slip than a GPU


@pytest.mark.parametrize(
    "text", ["." + "5" + "9" * 400, "1." + "0" * 5000, "1e400", "-1e400", "9" * 5000, "-" + "9" * 30, "1e" + "9" * 20]
)
@pytest.mark.parametrize("unit", ["", "s", "ns"])
def test_no_number_of_any_size_overflows(text, unit):
    stamps = read_stamps([text, "1.5", "2.5"], unit=unit)
    assert stamps.valid[1:].all()
    assert 0 < stamps.resolution_s <= 1


def test_a_stated_unit_says_what_numbers_are_since_1970_and_what_not():
    assert read_stamps(["1709294400000"], unit="ms").time_ns[0] == NOON * 10**9
    uptime = read_stamps(["1709294400000"], unit="ns")
    assert (uptime.clock, uptime.time_ns[0]) == (RELATIVE, 1709294400000)


def test_stamps_that_are_not_one_a_row_are_refused(tmp_path):
    log = Log(tmp_path / "log.txt", ImportOptions())
    for _ in range(3):
        log.row("")
    with pytest.raises(ValueError, match="2 stamps for 3 rows"):
        log.run("table", "rows", stamps=read_stamps(["1", "2"], unit="s"))
