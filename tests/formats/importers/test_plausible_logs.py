"""Logs that are wrong in ways which leave a plausible figure: each is remarked on, refused, or read as it was meant."""

import numpy as np
import pytest

from jouletrace import report
from jouletrace.analysis import analyse
from jouletrace.formats.importers import read_files

TIMES = np.arange(280) / 2

DRAWN = np.where((TIMES >= 20) & (TIMES < 120), 400.0, 100.0)

WATTS = np.round(DRAWN + np.random.default_rng(1).normal(0, 1.5, 280), 2)

COUNT = 1e6 + np.cumsum(DRAWN) / 2

ROWS = np.arange(280)


def table(path, times, **columns):
    """The report of a table, and its energy in J."""
    names, cells = ["time_s", *columns], zip(times, *columns.values(), strict=True)
    path.write_text("\n".join([",".join(names), *(",".join(f"{one:.10g}" for one in row) for row in cells)]) + "\n")
    run = analyse(read_files([path]))
    return " ".join(report.render([run], width=200).split()), run.result("energy_total_j", 1).value


def small_steps(every, by_s):
    """Times of rows 1 s apart of a clock that steps back by less, again and again."""
    rows = np.arange(0, 280, 2)
    return rows, rows / 2 - by_s * (rows // 2 // every)


APPENDED = np.append(ROWS, ROWS[:100])

HOLED = ROWS[(TIMES % 10) < 5]

IDLE = np.where(DRAWN < 200, 68.0, np.round(WATTS))

SLOW = np.arange(0, 280, 2)

CASES = {
    "sound": (TIMES, {"power_w": WATTS}, "trust: yes", "", 43_950),
    "stuck": (TIMES, {"power_w": np.where(ROWS < 60, WATTS, WATTS[60])}, "trust: no", "stood still for 110 s", None),
    "stuck from the start of work": (
        TIMES,
        {"power_w": np.where(DRAWN > 200, WATTS[60], WATTS)},
        "trust: no",
        "stood still for 99.5 s",
        None,
    ),
    "at rest in whole watts": (
        np.arange(560) / 2,
        {"power_w": np.append(IDLE, np.full(280, 68.0))},
        "trust: yes",
        "",
        None,
    ),
    "clock back by most of a distance": (
        small_steps(3, 0.9)[1],
        {"power_w": WATTS[SLOW]},
        "trust: with care",
        "46 come sooner",
        None,
    ),
    "clock back by less than half": (
        small_steps(5, 0.4)[1],
        {"power_w": WATTS[SLOW]},
        "trust: with care",
        "27 come sooner",
        None,
    ),
    "late rows": (TIMES + 0.4 * (ROWS % 5 == 2), {"power_w": WATTS}, "trust: yes", "", 43_950),
    "appended in part": (
        TIMES[APPENDED],
        {"power_w": WATTS[APPENDED]},
        "trust: with care",
        "100 rows repeat another one",
        43_950,
    ),
    "holes": (TIMES[HOLED], {"power_w": WATTS[HOLED]}, "trust: with care", "13 holes", None),
    "counter": (TIMES, {"energy_counter_j": COUNT}, "trust: yes", "", 43_950),
    "counter of zeros first": (
        TIMES,
        {"energy_counter_j": np.where(ROWS < 3, 0, COUNT - 997_000)},
        "trust: with care",
        "3 reads of the energy counter were no counts",
        43_800,
    ),
    "counter that jumps last": (
        TIMES,
        {"energy_counter_j": COUNT + 5000 * (ROWS == 279)},
        "trust: with care",
        "jumped from",
        43_900,
    ),
    "two reads": ([0, 300], {"energy_counter_j": [1e6, 1.09e6]}, "trust: with care", "between two reads", 90_000),
    "two reads a day apart": ([0, 86_400], {"energy_counter_j": [1e6, 1.005e6]}, "trust: no", "0.058 W", None),
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_a_log_that_is_wrong_says_so_or_has_its_true_energy(tmp_path, case):
    times, columns, trust, said, joule = CASES[case]
    shown, energy = table(tmp_path / "t.csv", times, **columns)
    assert trust in shown
    assert said in shown
    assert "each stamp has" not in shown
    assert joule is None or energy == pytest.approx(joule, rel=3e-3)


@pytest.mark.parametrize("seed", range(4))
def test_readings_at_irregular_times_cover_all_of_it(tmp_path, seed):
    draw = np.random.default_rng(seed)
    times = np.cumsum(np.maximum(0.002, 10 ** draw.uniform(-2, 0, 200)))
    said, energy_j = table(tmp_path / "log.csv", times, power_w=np.full(200, 100.0))
    assert energy_j == pytest.approx(100 * np.ptp(times), rel=0.01)
    assert "hole" not in said


@pytest.mark.parametrize("lost_s", [(10, 14, 20), (7, 15, 40), (3, 3, 3, 30)])
def test_holes_of_a_regular_log_are_holes(tmp_path, lost_s):
    starts = np.cumsum([0, *(29 + lost for lost in lost_s)])
    times = np.concatenate([start + np.arange(30) for start in starts])
    said, energy_j = table(tmp_path / "log.csv", times, power_w=np.full(len(times), 100.0))
    assert f"{len(lost_s)} holes of {sum(lost_s) - len(lost_s)} s together" in said
    assert energy_j == pytest.approx(100 * 29 * len(starts), rel=0.05)


def test_pauses_between_many_short_sessions_are_holes(tmp_path):
    times = np.concatenate([3600 * k + np.arange(5) for k in range(8)])
    said, energy_j = table(tmp_path / "log.csv", times, power_w=np.full(40, 100.0))
    assert "7 holes of 25165 s together" in said
    assert energy_j == pytest.approx(100 * 5 * 8, rel=0.05)  # a reading stands for a second
