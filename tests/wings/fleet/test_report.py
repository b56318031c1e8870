"""A fleet's report, compared with fleets made from known numbers."""

import json
import re

import numpy as np
import pytest

from fleet_data import fleet, gpus, row, run_of, stored
from jouletrace import compare
from jouletrace.comparing import DIFFERENT
from jouletrace.errors import BadInputError
from jouletrace.report import tariff
from jouletrace.report.text import typeset
from jouletrace.wings.fleet import html
from jouletrace.wings.fleet.document import document, short
from jouletrace.wings.fleet.findings import BETWEEN, _correlation, correlates, find, to_dict
from jouletrace.wings.fleet.folder import Folder
from jouletrace.wings.fleet.plan import FleetGpu, FleetSettings, Task, gpu_names, is_meant
from jouletrace.wings.fleet.results import fleet_of, of_rows, read_fleet
from jouletrace.wings.fleet.spread import FleetSpread
from jouletrace.words import cell
from jouletrace.words.scale import PrintedUnit
from make_runs import monitor_run, profile_run

OFFSETS = (1.0, 1.004, 1.002, 0.998, 1.001, 0.999, 1.003, 1.08)


@pytest.fixture(scope="module")
def one():
    return fleet(OFFSETS)


def text_of(fleet, width=140, top=None):
    return typeset(document(fleet, [find(group) for group in fleet.groups], top), width=width)


@pytest.mark.thorough
def test_the_spread_holds_the_truth_and_the_slow_gpu_stands_out(one):
    spread = FleetSpread(one.groups[0], "time_s")
    truth = 1.08 / 0.998 - 1
    assert spread.range.low < truth < spread.range.high
    assert spread.range.half_width < 0.01
    last = spread.places[-1]
    assert one.groups[0].gpus[last.gpu].id == "GPU-0103"
    assert last.outlier == "high"
    assert (last.rank.low, last.rank.high) == (8, 8)
    assert sum(bool(place.outlier) for place in spread.places) == 1
    assert all(place.rank.low < place.rank.high for place in spread.places[:-1]), "they can't be distinguished"


def test_the_mean_is_of_such_gpus(one):
    """Its interval is of how GPUs differ, or hosts where there are several: of one GPU there is none."""
    four = fleet([1.0, 1.02, 0.99, 1.01], noise=0.0)
    group = four.groups[0]
    found = FleetSpread(group, "time_s").mean
    values = 2e-3 * np.array([1.0, 1.02, 0.99, 1.01])
    assert found.value == pytest.approx(values.mean(), rel=1e-3)
    assert found.half_width == pytest.approx(3.182 * values.std(ddof=1) / 2, rel=0.05)
    assert to_dict(four, [find(group)])["groups"][0]["spread"]["time_s"]["mean"]["of"] == "gpus"
    hosts = FleetSpread(one.groups[0], "time_s").mean
    assert hosts.half_width > 12.7 * 0.5 * abs(np.mean(OFFSETS[:4]) - np.mean(OFFSETS[4:])) * 2e-3 * 0.9
    assert FleetSpread(fleet([1.0]).groups[0], "time_s").mean.half_width is None


def test_the_variance_is_split_over_hosts_gpus_runs_and_windows(one):
    parts = {part.level: part for part in FleetSpread(one.groups[0], "time_s").split.components}
    assert parts["gpu"].share.value > 0.8
    for level, sd in (("run", 0.002 * 2e-3), ("within", 0.002 * 2e-3)):
        assert parts[level].sd.low < sd * 1.02 < parts[level].sd.high


@pytest.mark.thorough
def test_a_gpu_is_worth_asking_for_only_if_it_gains_more_than_the_limit(one):
    group = one.groups[0]
    slow = find(group, "node-1:3").worth
    assert slow.verdict == "no"
    assert slow.time.high < -0.06
    first = find(group).worth
    assert group.gpus[first.gpu].id == "GPU-0003", "unasked, the fastest is meant: it gains 1.4 %, by the one slow GPU"
    assert find(group, "GPU-0003", worth=0.005).worth.verdict == "yes"
    assert find(group, "GPU-0003", worth=0.03).worth.verdict == "no"
    assert find(group, "GPU-0003", worth=0.0145).worth.verdict == "undecided"


def test_two_gpus_never_share_a_name():
    names = gpu_names([("a", "GPU-1", 0), ("a", "GPU-2", 0), ("a", "GPU-3", 1), ("a", "GPU-4", None)])
    assert names == {("a", "GPU-1"): "GPU-1", ("a", "GPU-2"): "GPU-2", ("a", "GPU-3"): "GPU 1", ("a", "GPU-4"): "GPU 2"}


def test_a_gpu_without_a_place_takes_a_number_that_no_other_has():
    names = gpu_names([("a", "GPU-1", 0), ("a", "GPU-2", None), ("a", "GPU-3", 1), ("a", "GPU-4", None)])
    assert [names["a", f"GPU-{n}"] for n in (1, 2, 3, 4)] == ["GPU 0", "GPU 2", "GPU 1", "GPU 3"]
    apart = gpu_names([("a", "GPU-1", 0), ("b", "GPU-2", None), ("b", "GPU-3", 0)])
    assert sorted(apart.values()) == ["a:0", "b:0", "b:1"]


@pytest.mark.parametrize("ask", ["3", "GPU 3", "gpu 3", "node-1:3", "Node-1:GPU 3", "gpu-00a"])
def test_a_gpu_is_called_by_its_place_whether_there_are_other_hosts_or_not(ask):
    assert is_meant(ask, "node-1", "GPU-00a3", "node-1:3")
    assert is_meant(ask, "node-1", "GPU-00a3", "GPU 3")
    assert not is_meant(ask, "node-2", "GPU-00b3", "node-2:1")


@pytest.mark.thorough
def test_slowness_that_goes_with_a_low_clock_is_measured():
    found = correlates(fleet(np.linspace(1, 1.05, 8), clock_mhz=lambda gpu, repeat, time: 3.0 / time).groups[0])
    clock = next(one for one in found if one.condition == "clock_mhz" and one.where == BETWEEN)
    assert clock.r.high < -0.9
    flat = next(one for one in found if one.condition == "temperature_c" and one.where == BETWEEN)
    assert (flat.r.value, flat.r.reason) == (None, "did_not_vary")


@pytest.mark.thorough
def test_energies_no_further_apart_than_sensors_may_err_are_reported_to_be_so(one):
    assert find(one.groups[0]).hides_in_gain
    assert not find(fleet([1, 1, 1, 1.3]).groups[0]).hides_in_gain
    assert "±5 %" in text_of(one).replace("\u00a0", " ")


def test_mixed_models_and_loads_are_compared_each_with_their_own():
    boards = [*gpus(1, 3), FleetGpu("node-9", "GPU-other", 0, "GPU-other", "A100 40GB")]
    rng = np.random.default_rng(0)
    rows = {(gpu.node, gpu.id, n): row(gpu, rng.normal(2e-3, 1e-5, 8)) for gpu in boards for n in range(4)}
    read = of_rows(rows)
    assert [len(group.gpus) for group in read.groups] == [3, 1]
    assert "2 kinds of GPUs or loads" in text_of(read)
    assert FleetSpread(read.groups[1], "time_s").range.reason == "one_gpu"


@pytest.mark.thorough
def test_json_and_page_hold_the_same_figures_and_say_simulated(tmp_path):
    pytest.importorskip("plotly")
    read = fleet(OFFSETS, simulated=True, model="SIMULATED H100 <b>80GB</b>")
    found = [find(group) for group in read.groups]
    written = json.loads(json.dumps(to_dict(read, found), allow_nan=False))
    assert written["simulated"] is True
    assert written["groups"][0]["gpus"][7]["time_s"]["outlier"] == "high"
    html.write(read, found, tmp_path / "fleet.html")
    page = (tmp_path / "fleet.html").read_text()
    assert "<b>80GB</b>" not in page, "names are escaped"
    for words in (
        "SIMULATED",
        "node-1:3",
        "Where the spread comes from",
        "Each GPU, the fastest first",
        "Worth asking",
    ):
        assert words in page


def test_a_table_of_many_gpus_shows_the_best_and_the_worst_and_says_what_it_leaves_out(one):
    text = text_of(one, top=2)
    assert "4 GPUs between these are left out" in text


def test_an_outlier_is_remarked_in_its_own_row_of_gpus(one):
    rows = text_of(one).partition("GPUs, the fastest first")[2].partition("All GPUs")[0].splitlines()
    (mark,) = (row[:3] for row in rows if "is an outlier in time: its whole interval is above" in row)
    assert [row.split()[0] for row in rows if mark in row and not row.startswith(mark)] == ["node-1:3"]


def test_only_means_of_several_gpus_have_a_note_on_them(one):
    words = "max/min and IQR refer to the true means"
    assert words in text_of(one)
    assert words not in text_of(fleet([1.0]))


@pytest.mark.parametrize("ask", ["GPU-0", "gpu-0 "])
def test_a_gpu_whose_id_begins_those_of_others_is_meant_by_it(ask):
    boards = [FleetGpu("node-0", name, n, name, "H100 80GB") for n, name in enumerate(("GPU-0", "GPU-00", "GPU-01"))]
    group = of_rows({(gpu.node, gpu.id, 0): row(gpu, np.full(8, 2e-3)) for gpu in boards}).groups[0]
    assert group.gpus[find(group, ask).worth.gpu].id == "GPU-0"


def test_runs_that_report_less_than_others_are_named():
    whole, cut, idle = profile_run(), profile_run(), monitor_run()
    cut.complete = False
    found = fleet_of({"whole.zip": whole, "cut.zip": cut, "idle.zip": idle})
    assert len(found.groups[0].runs["gpu"]) == 2
    assert sorted(found.damaged) == [
        "cut.zip did not end by itself: its figures rest on the data recorded until then",
        "idle.zip has no time of an iteration: left out",
    ]


@pytest.mark.thorough
def test_gpus_are_named_by_the_drivers_number_also_without_a_result(tmp_path):
    """Two jobs are given a GPU each: both are CUDA's first, and the driver's third and sixth."""
    folder = stored(tmp_path / "f", [1, 1])
    jobs = [FleetGpu("node-0", f"GPU-{n}", 0, f"GPU-{n}", "H100 80GB", n) for n in (3, 6)]
    with folder.held(FleetSettings("deit-b", repeats=2), "", jobs):
        pass
    for job in jobs:
        folder.fail(Task(job, 0), "vanished", "killed by signal 9")
    read = read_fleet(tmp_path / "f")
    assert read.names["node-0", "GPU-6"] == "GPU 6"
    assert "1 result of GPU 3 missing: killed by signal 9" in text_of(read)
    written = to_dict(read, [find(group) for group in read.groups])
    assert [one["label"] for one in written["failures"]] == ["GPU 3", "GPU 6"]
    assert str(jobs[1]) == "GPU 6 of node-0"


def test_a_place_without_a_fleet_is_refused_in_a_line(tmp_path):
    with pytest.raises(BadInputError, match="no fleet in"):
        read_fleet(tmp_path)
    (tmp_path / "fleet.json").write_text("{}")
    with pytest.raises(BadInputError, match="does not describe a fleet"):
        read_fleet(tmp_path)
    (tmp_path / "fleet.json").write_text("{")
    with pytest.raises(BadInputError, match="can't be read"):
        read_fleet(tmp_path)
    for odd, words in (
        ({"schema": 1}, "another version"),
        ({"schema": 2, "settings": [], "gpus": []}, "does not hold settings"),
        ({"schema": 2, "settings": {}, "gpus": [1]}, "is damaged"),
    ):
        (tmp_path / "fleet.json").write_text(json.dumps({"format": "jouletrace-fleet", **odd}))
        with pytest.raises(BadInputError, match=words):
            read_fleet(tmp_path)


@pytest.mark.thorough
def test_a_reason_that_cannot_be_read_loses_nothing_else(tmp_path):
    folder = stored(tmp_path / "f", [1, 1.01])
    for note in ("[1]", "{}", "{"):
        (folder.root / "node-0" / "GPU-0000" / "repeat-0009.failed").write_text(note)
        assert folder.failures() == []
    assert len(folder.done()) == 4
    assert Folder(tmp_path / "none").done() == set()


def test_equal_gpus_share_their_places():
    places = find(fleet([1.0, 1.0, 1.0], repeats=1, noise=0.0).groups[0]).spreads["time_s"].places
    assert {(place.rank.low, place.rank.value, place.rank.high) for place in places} == {(1.0, 2.0, 3.0)}


def test_hardware_that_slows_a_gpu_down_is_remarked():
    found = fleet([1, 1, 1, 0.99], hardware_share=lambda gpu, repeat, time: 0.4 if gpu.index == 3 else 0.0)
    assert "slowed down by its hardware (heat or power brake)" in text_of(found)


def test_a_correlation_and_its_ends_are_within_one():
    rng = np.random.default_rng(2)
    for r in (0.4, -0.97, 1.0):
        x = rng.normal(size=8)
        y = r * x + np.sqrt(1 - r**2) * rng.normal(size=8)
        found = _correlation(x, y, 5)
        assert -1 <= found.low <= found.value <= found.high <= 1
        text = cell(found, PrintedUnit(1.0, ""))
        shown = [float(end.replace("−", "-")) for end in re.findall(r"−?\d\.\d+", text)]
        reach = abs(shown[0]) + shown[1] if "±" in text else max(map(abs, shown))
        assert reach <= 1


def test_one_sequence_of_letters_runs_through_the_tables_of_a_fleet():
    text = text_of(fleet([1.0, 1.01], repeats=1), width=160)
    meant = {}
    for letter, remark in re.findall(r"^\[([a-z]+)\] (.*)$", text, re.M):
        assert meant.setdefault(letter, remark) == remark
    assert len(set(meant.values())) == len(meant) > 1


def test_nothing_is_reported_of_ranks_where_there_is_one_gpu():
    text = text_of(fleet([1.0]), width=160)
    assert "ranks by energy" not in text
    assert "the fastest" not in text


@pytest.mark.thorough
@pytest.mark.parametrize(("more", "beyond"), [(0.03, False), (0.085, True)])
def test_a_fleet_and_a_comparison_judge_the_same_runs_alike(more, beyond):
    """Two GPUs' gains differ by 7.1 % in quadrature; the report of a fleet added them up to 10 %."""
    boards = gpus(1, 2)
    of_gpu = {
        board.id: [(run_of(Task(board, n), factor * (1 + 1e-3 * (n - 1))), f"{board.id}-{n}") for n in range(3)]
        for board, factor in zip(boards, (1.0, 1 + more), strict=True)
    }
    compared = compare(*of_gpu.values()).row("energy_total_j")
    read = fleet_of({place: run for runs in of_gpu.values() for run, place in runs})
    found = find(read.groups[0])
    assert found.gain == pytest.approx(0.05 * 2**0.5)
    assert (compared.verdict in DIFFERENT, not found.hides_in_gain) == (beyond, beyond)
    said = typeset(short(read, [found]), width=200).replace("\u00a0", " ")
    assert ("not distinguishable from sensor gain" in said) is not beyond
    assert ("with their sensors' gain (± 7.1 %) by" in said) is beyond


def test_all_gpus_together_and_what_an_hour_costs():
    read = fleet([1.0, 1.1])
    found = find(read.groups[0])
    given = tariff("0.50 EUR/kWh", "400 g")
    text = typeset(short(read, [found], tariff=given), width=120).replace("\u00a0", " ")
    assert re.search(r"^2 GPUs together: 1400 W, 2\.9\d+ (± \S+ )?J for an iteration on each$", text, re.M)
    cost = r"^≈ 1\.40 kWh, 0\.700 ± 0\.03\d EUR, 560 ± 2\d g CO2e per hour at 0\.5 EUR/kWh, 400 g/kWh"
    assert re.search(cost, text, re.M), "with the gain of their sensors"
    whole = to_dict(read, [found], given)["groups"][0]
    assert whole["total"]["power_w"]["value"] == pytest.approx(1400)
    assert whole["cost"]["co2e_g"]["value"] == pytest.approx(560)
    assert "2 GPUs together" in html.render(read, [found])
    assert "cost" not in to_dict(read, [found])["groups"][0], "nothing is assumed"


def test_the_slowest_gpu_is_named_and_the_whole_report_has_the_verdict():
    read = fleet([1.0, 1.0, 1.0, 1.3])
    found = find(read.groups[0])
    brief, whole = (
        typeset(page, width=200).replace("\u00a0", " ") for page in (short(read, [found]), document(read, [found]))
    )
    (slowest,) = re.findall(r"^slowest: (.*), [\d.]+ (?:± \S+ )?% above the median$", brief, re.M)
    assert slowest == read.groups[0].gpus[3].label
    for line in (f"slowest: {slowest}", "most energy: ", "trust: "):
        assert line in brief
        assert line in whole


def test_energies_within_the_sensors_gain_have_no_ranks():
    for factors, ranks in (([1.0, 1.0, 1.0, 1.01], 1), ([1.0, 1.0, 1.0, 1.3], 2)):
        read = fleet(factors)
        heads = typeset(short(read, [find(read.groups[0])]), width=200).splitlines()
        assert sum(line.split().count("rank") for line in heads) == ranks
        assert any("most energy: " in line for line in heads) == (ranks == 2)
