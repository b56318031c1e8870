"""A fleet's report as people read it: loads in which GPUs wait for one another, ties, lopsided figures, footnotes."""

import re

import numpy as np
import pytest

from fleet_data import fleet, gpus, tables_of, vars_of
from jouletrace.addons.fleet.actions import actions
from jouletrace.addons.fleet.dataset import Dataset
from jouletrace.addons.fleet.document import document, gpu_table
from jouletrace.addons.fleet.findings import find
from jouletrace.addons.fleet.html import render
from jouletrace.addons.fleet.plan import FleetSettings, Task
from jouletrace.addons.fleet.results import read_fleet
from jouletrace.addons.fleet.slowness import _correlation
from jouletrace.addons.fleet.store import open_store
from jouletrace.report.scale import Unit, cell
from jouletrace.report.table import typeset


def collective(folder, repeats=3):
    """Four GPUs that wait for one another: one time for all, and each its own energy."""
    rng = np.random.default_rng(5)
    boards = gpus(1, 4)[::-1]
    dataset = Dataset(open_store(folder))
    dataset.begin(FleetSettings("allreduce", repeats=repeats), "jouletrace", [vars_of(board) for board in boards])
    for repeat in range(repeats):
        times = 1.3e-3 * (1 + rng.normal(0, 0.0005, 6))
        for board in boards:
            facts = {"workload": "allreduce", "temperature_c": 40.0 + rng.normal(0, 2)}
            joules = 0.45 * (1 + 0.02 * board.index) * (1 + rng.normal(0, 0.002, 6))
            dataset.put(Task(board, repeat), tables_of(Task(board, repeat), times, joules, **facts))
    return read_fleet(folder)


@pytest.mark.thorough
def test_gpus_that_wait_for_one_another_are_not_ranked_by_the_time_that_all_take(tmp_path):
    whole = collective(tmp_path / "fleet")
    found = find(whole.groups[0])
    time, energy = found.spreads["time_s"], found.spreads["energy_j"]
    for nowhere in (time.range, time.quartiles, *(place.rank for place in time.places), *(p.off for p in time.places)):
        assert (nowhere.value, nowhere.reason) == (None, "collective")
    assert [whole.groups[0].gpus[place.gpu].label for place in time.places] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    assert energy.range.low > 0.04
    text = " ".join(typeset(document(whole, [found]), width=200).split())
    assert "less time" not in text
    assert "GPU 0: no; times are equal by construction" in text
    assert re.search(r"it takes \d[^%]* % less energy \(sensor gain apart\) than", text)
    assert "the fastest first" not in text
    assert {one.action for one in actions(whole, [found])} == {"undecided"}
    page = render(whole, [found])
    assert "the fastest first" not in page
    assert "Times are equal by construction" in page


def test_the_time_that_all_share_counts_once_however_many_gpus_repeat_it(tmp_path):
    found = find(collective(tmp_path / "fleet").groups[0])
    components = {part.level: part for part in found.spreads["time_s"].components}
    assert components["gpu"].sd.reason == "collective"
    assert (components["run"].sd.n, components["within"].sd.n) == (3, 16)
    assert {one.r.reason for one in found.correlates} == {"collective"}
    assert found.slope.reason == "collective"


def test_equal_gpus_share_their_places(tmp_path):
    fleet(tmp_path / "fleet", [1.0, 1.0, 1.0], repeats=1, noise=0.0)
    places = find(read_fleet(tmp_path / "fleet").groups[0]).spreads["time_s"].places
    assert {(place.rank.low, place.rank.value, place.rank.high) for place in places} == {(1.0, 2.0, 3.0)}


def test_a_correlation_and_its_ends_are_within_one():
    rng = np.random.default_rng(2)
    for r in (0.4, -0.97, 1.0):
        x = rng.normal(size=8)
        y = r * x + np.sqrt(1 - r**2) * rng.normal(size=8)
        found = _correlation(x, y, 5)
        assert -1 <= found.low <= found.value <= found.high <= 1
        text = cell(found, Unit(1.0, ""))
        shown = [float(end.replace("−", "-")) for end in re.findall(r"−?\d\.\d+", text)]
        reach = abs(shown[0]) + shown[1] if "±" in text else max(map(abs, shown))
        assert reach <= 1


def test_one_sequence_of_letters_runs_through_the_tables_of_a_fleet(tmp_path):
    fleet(tmp_path / "one", [1.0, 1.01], repeats=1, clock_mhz=np.nan)
    found = read_fleet(tmp_path / "one")
    text = typeset(document(found, [find(group) for group in found.groups]), width=160)
    meant = {}
    for letter, remark in re.findall(r"^\[([a-z]+)\] (.*)$", text, re.M):
        assert meant.setdefault(letter, remark) == remark
    assert len(set(meant.values())) == len(meant) > 1


def test_nothing_is_reported_of_ranks_where_there_is_one_gpu(tmp_path):
    fleet(tmp_path / "one", [1.0])
    found = read_fleet(tmp_path / "one")
    text = typeset(document(found, [find(group) for group in found.groups]), width=160)
    assert "ranks by energy" not in text
    assert "the fastest" not in text


@pytest.mark.thorough
def test_the_page_has_each_gpus_time_and_calls_it_the_same_in_what_to_do(tmp_path):
    fleet(tmp_path / "one", [0.99, 1.05, 1.0], noise=0.0001)
    whole = read_fleet(tmp_path / "one")
    found = find(whole.groups[0])
    table = gpu_table(found)
    column = [heading.key for heading in table.headings].index("time_s")
    assert table.headings[column].name == "time (ms)"
    assert [row[column].value for row in table.rows] == [place.value.value for place in found.spreads["time_s"].places]
    page = words(render(whole, [found]))
    assert re.search(r"inspect.{0,200}GPU 1.{0,900} % \([\d.]+ to [\d.]+\) slower than the median", page)
    assert re.search(r"keep.{0,200}GPU 0.{0,900} % \([\d.]+ to [\d.]+\) faster than the median", page)


def words(text):
    return re.sub(r"(<[^>]*>|\s|\u00a0)+", " ", text)
