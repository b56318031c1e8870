"""Energy per unit of real work: ratios, their intervals, and what is flagged or missing."""

import numpy as np
import pytest

from covering import fewest
from jouletrace.analysis import analyse, ratio_of_sums
from jouletrace.stats import Z95
from records import DEVICE, channel, make_run, ns, phases, readings


def counted(work, *, took=0.0, resets=(), watts=300.0, seconds=42.0, **changes):
    """A recording with a counter that was read each second: ``work`` by reading, from second 1 on."""
    rows = readings(watts, seconds, noise=0.3)
    for i, done in enumerate(work):
        at = ns(1.0 + i)
        for name, value in (
            ("work_done", done),
            ("work_resets", sum(r <= i for r in resets)),
            ("work_read_s", took),
        ):
            rows.append({"time_ns": at, "device": DEVICE, "channel": name, "value": float(value)})
    channels = [channel(), *(channel(name) for name in ("work_done", "work_resets", "work_read_s"))]
    return analyse(
        make_run(rows, kind="monitor", spans=phases(("monitor", 0.5, seconds - 0.5)), channels=channels, **changes)
    )


@pytest.mark.thorough
def test_energy_per_unit_is_energy_between_readings_over_what_was_counted():
    run = counted(100.0 * np.arange(41))
    each = run.result("energy_per_work_j")
    assert each.value == pytest.approx(3.0, rel=1e-3)
    assert each.low <= 3.0 <= each.high
    assert each.half_width < 0.02
    assert each.n == 20
    assert run.result("work_done").value == 4000
    assert run.result("work_per_s").value == pytest.approx(100.0)


def test_the_interval_holds_the_ratio_when_work_comes_unevenly():
    """Power 100 W and 4 J each: in 200 recordings the interval of the ratio holds 4 J in about 95 %."""
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        work = rng.uniform(20, 80, 20)
        energy = 4.0 * work + rng.normal(0, 12.0, 20)
        found = ratio_of_sums(energy, work)
        held += found.low <= 4.0 <= found.high
    assert held >= fewest(200)


def test_what_blocks_share_stays_in_the_interval():
    energy, work = np.full(20, 40.0), np.full(20, 10.0)
    assert ratio_of_sums(energy, work).half_width == pytest.approx(0.0, abs=1e-9)
    shared = ratio_of_sums(energy, work, shared_sd_j=8.0)
    assert shared.half_width == pytest.approx(1.96 * 8.0 / 200, rel=0.01)


def test_one_block_has_a_value_and_no_interval():
    found = ratio_of_sums(np.array([30.0]), np.array([10.0]))
    assert (found.value, found.low) == (3.0, None)
    run = counted([0.0, 100.0])
    assert run.result("energy_per_work_j").low is None
    assert run.result("energy_per_work_j").flags == ("few_windows",)


@pytest.mark.thorough
def test_there_is_a_table_over_time():
    work = np.concatenate([np.arange(21) * 50.0, 1000 + np.arange(1, 21) * 150.0])
    run = counted(work)
    rows = [row for row in run.units.to_pylist() if row["level"] == "range"]
    assert len(rows) == 20
    assert [row["name"] for row in rows][:2] == ["0.0 to 2.0 s", "2.0 to 4.0 s"]
    first, last = (run.result("energy_per_work_j", rows[i]["id"]) for i in (0, -1))
    assert first.value == pytest.approx(6.0, rel=0.02)
    assert last.value == pytest.approx(2.0, rel=0.02)
    assert first.low <= 6.0 <= first.high
    each = [run.result("energy_total_j", row["id"]).value for row in rows]
    assert sum(each) == pytest.approx(300.0 * 40, rel=1e-3)


def test_a_reset_is_flagged_where_it_was_and_in_the_whole():
    run = counted(100.0 * np.arange(41), resets=[15])
    assert "work_reset" in run.result("energy_per_work_j").flags
    marked = [
        row["name"]
        for row in run.units.to_pylist()
        if row["level"] == "range" and "work_reset" in run.result("energy_per_work_j", row["id"]).flags
    ]
    assert marked == ["14.0 to 16.0 s"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("work", "reason"), [([], "work_never_read"), ([5.0], "work_read_once"), ([5.0] * 40, "no_work_counted")]
)
def test_without_work_the_figure_is_null_and_says_why(work, reason):
    run = counted(work)
    assert run.result("energy_per_work_j").value is None
    assert run.result("energy_per_work_j").reason == reason


@pytest.mark.thorough
def test_a_hole_in_the_record_leaves_its_blocks_out_of_energy_and_work():
    rows = readings(300.0, 42.0, noise=0.3, without=[(10.0, 15.0)])
    run = counted(100.0 * np.arange(41))
    whole = run.result("energy_per_work_j")
    run.samples = run.samples.filter(np.array([row["channel"] != "power_w" for row in run.samples.to_pylist()]))
    from jouletrace.run import tables

    run.samples = tables.from_rows(run.samples.to_pylist() + rows, "samples")
    analyse(run)
    each = run.result("energy_per_work_j")
    assert each.value == pytest.approx(3.0, rel=5e-3)
    assert each.n < whole.n
    assert "windows_left_out" in run.result("energy_per_work_j").flags


def test_a_slow_read_widens_the_interval():
    """With two-second reads no one knows to a fraction of a second when the count was right."""
    sharp, slow = (counted(100.0 * np.arange(41), took=took).result("energy_per_work_j") for took in (0.0, 2.0))
    assert slow.half_width > 5 * sharp.half_width
    # 300 W · 2 s / √12 at either end, over 4000 units
    assert slow.half_width > 1.96 * 300 * 2 / 12**0.5 / 4000


def test_a_device_without_power_makes_the_figure_null():
    run = counted(100.0 * np.arange(41))
    run.channels = [c for c in run.channels if c.name != "power_w"]
    analyse(run)
    assert run.result("energy_per_work_j").reason == "no_power_sensor"
    assert run.result("work_done").value == 4000


def test_a_block_is_no_surer_than_the_times_of_its_readings():
    run = counted(100.0 * np.arange(41), took=2.0)
    first = next(row["id"] for row in run.units.to_pylist() if row["level"] == "range")
    energy = run.result("energy_total_j", first)
    either_end = Z95 * energy.value / 2 * 2 / 12**0.5  # at its mean power over 2 s
    assert energy.half_width > 2**0.5 * either_end
