"""What a fleet's report says, compared with fleets made from known numbers."""

import csv
import io
import json
import re
import zipfile
from dataclasses import asdict

import numpy as np
import pyarrow.compute as pc
import pytest

from commands import command
from fleet_data import fleet, gpus, tables_of, vars_of
from jouletrace.addons.fleet import html
from jouletrace.addons.fleet.actions import INSPECT, KEEP, UNDECIDED, actions, to_csv
from jouletrace.addons.fleet.dataset import Dataset
from jouletrace.addons.fleet.document import document, facts
from jouletrace.addons.fleet.findings import find, start_skew, to_dict
from jouletrace.addons.fleet.names import gpu_names, is_meant
from jouletrace.addons.fleet.plan import FleetGpu, FleetSettings, Task
from jouletrace.addons.fleet.results import fleet_of, read_fleet
from jouletrace.addons.fleet.slowness import BETWEEN, at_equal_temperature, correlates, temperature_slope
from jouletrace.addons.fleet.spread import Spread
from jouletrace.addons.fleet.store import open_store
from jouletrace.errors import BadInputError
from jouletrace.report.table import typeset
from make_runs import monitor_run, profile_run

OFFSETS = (1.0, 1.004, 1.002, 0.998, 1.001, 0.999, 1.003, 1.08)


def acted(fleet, limit=0.03):
    return actions(fleet, [find(group) for group in fleet.groups], limit)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    place = tmp_path_factory.mktemp("one") / "fleet"
    fleet(place, OFFSETS)
    return read_fleet(place)


@pytest.mark.thorough
def test_the_spread_holds_the_truth_and_the_slow_gpu_stands_out(one):
    spread = Spread(one.groups[0], "time_s")
    truth = 1.08 / 0.998 - 1
    assert spread.range.low < truth < spread.range.high
    assert spread.range.half_width < 0.01
    last = spread.places[-1]
    assert one.groups[0].gpus[last.gpu].id == "GPU-0103"
    assert last.outlier == "high"
    assert (last.rank.low, last.rank.high) == (8, 8)
    assert sum(bool(place.outlier) for place in spread.places) == 1
    assert all(place.rank.low < place.rank.high for place in spread.places[:-1]), "they can't be distinguished"


def test_the_variance_is_split_over_hosts_gpus_runs_and_windows(one):
    parts = {part.level: part for part in Spread(one.groups[0], "time_s").split.components}
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


@pytest.mark.thorough
def test_actions_say_inspect_keep_or_undecided_with_the_evidence(one):
    found = {action.gpu: action for action in acted(one, limit=0.03)}
    assert found["GPU-0103"].action == INSPECT
    assert "8.0" in found["GPU-0103"].evidence or "7.9" in found["GPU-0103"].evidence
    assert found["GPU-0000"].action == KEEP
    close = {action.action for action in acted(one, limit=0.0785)}
    assert UNDECIDED in close
    rows = list(csv.DictReader(to_csv(acted(one), simulated=False).splitlines()))
    assert rows[0]["serial"] == "SGPU-0103"
    assert (rows[0]["host"], rows[0]["slot"], rows[0]["action"]) == ("node-1", "0000:03:00.0", "inspect")
    assert len(rows) == 8


def test_hardware_that_slows_itself_down_is_inspected_however_fast_it_is(tmp_path):
    fleet(tmp_path / "f", [1, 1, 1, 0.99], hardware_share=lambda gpu, repeat, time: 0.4 if gpu.index == 3 else 0.0)
    found = {action.gpu: action for action in acted(read_fleet(tmp_path / "f"))}
    assert found["GPU-0003"].action == INSPECT
    assert "40 %" in found["GPU-0003"].evidence


@pytest.mark.thorough
def test_a_gpu_that_fell_off_is_listed_and_inspected_though_it_has_no_result(tmp_path):
    dataset, _ = fleet(tmp_path / "f", [1, 1, 1])
    lost = FleetGpu("node-0", "GPU-lost", 3, "GPU-lost")
    dataset.fail(Task(lost, 0), "vanished", "the process on it was killed by signal 9")
    read = read_fleet(tmp_path / "f")
    assert {a.gpu: a.action for a in acted(read)}["GPU-lost"] == INSPECT
    text = typeset(document(read, [find(group) for group in read.groups]), 140)
    assert "1 result of GPU-lost missing: the process on it was killed by signal 9" in text


@pytest.mark.thorough
def test_a_gpu_has_one_name_in_report_actions_and_failures_also_if_it_has_no_result(tmp_path):
    dataset, boards = fleet(tmp_path / "f", [1, 1, 1, 1, 1.2, 1, 1, 1])
    lost = FleetGpu("node-1", "GPU-lost", 4, "GPU-lost")
    dataset.begin(FleetSettings("gemm", repeats=4), "", [vars_of(board) for board in [*boards, lost]])
    dataset.fail(Task(lost, 0), "vanished", "killed by signal 9")
    read = read_fleet(tmp_path / "f")
    found = [find(group) for group in read.groups]
    text = typeset(document(read, found), 140)
    names = {one.gpu: one.name for one in acted(read)}
    assert names["GPU-0100"] == "node-1:0"
    assert names["GPU-lost"] == "node-1:4"
    assert set(names.values()) >= {gpu.label for group in read.groups for gpu in group.gpus}
    assert "node-1:0" in text
    assert "1 result of node-1:4 missing: killed by signal 9" in text
    assert to_dict(read, found)["failures"][0]["label"] == "node-1:4"
    rows = list(csv.DictReader(to_csv(acted(read), simulated=False).splitlines()))
    assert [(row["name"], row["host"], row["gpu"]) for row in rows[:2]] == [
        ("node-1:0", "node-1", "GPU-0100"),
        ("node-1:4", "node-1", "GPU-lost"),
    ]


def test_what_cuda_shows_a_process_renames_no_gpu(tmp_path):
    """Two jobs are given a GPU each: both are CUDA's first, and the driver's third and sixth."""
    dataset, _ = fleet(tmp_path / "f", [1, 1])
    jobs = [FleetGpu("node-0", f"GPU-{n}", 0, f"GPU-{n}", "H100 80GB", n) for n in (3, 6)]
    dataset.begin(FleetSettings("gemm", repeats=4), "", [asdict(job) for job in jobs])
    for job in jobs:
        dataset.fail(Task(job, 0), "vanished", "killed by signal 9")
    assert {a.gpu: a.name for a in acted(read_fleet(tmp_path / "f"))} == {
        "GPU-0000": "GPU 0",
        "GPU-0001": "GPU 1",
        "GPU-3": "GPU 3",
        "GPU-6": "GPU 6",
    }
    assert str(jobs[1]) == "GPU 6 of node-0"


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
@pytest.mark.parametrize(("rate", "said"), [(0.002, "longer"), (-0.004, "shorter")])
def test_what_a_degree_costs_or_gains_is_reported_without_a_sign(tmp_path, rate, said):
    dataset, boards = fleet(tmp_path / "f", [1.0] * 4, repeats=1)
    rng = np.random.default_rng(1)
    for board in boards:
        for repeat in range(8):
            times = 2e-3 * np.exp(rate * repeat) * (1 + rng.normal(0, 2e-4, 8))
            dataset.put(Task(board, repeat), tables_of(Task(board, repeat), times, temperature_c=50.0 + repeat))
    (line,) = [text for name, text in facts(find(read_fleet(tmp_path / "f").groups[0])) if name == "Temperature"]
    assert re.match(rf"an iteration takes 0\.\d+ ±\s0\.\d+ % {said} a degree hotter", line)


@pytest.mark.thorough
def test_slowness_that_goes_with_a_low_clock_is_detected(tmp_path):
    fleet(tmp_path / "f", np.linspace(1, 1.05, 8), clock_mhz=lambda gpu, repeat, time: 3.0 / time)
    found = correlates(read_fleet(tmp_path / "f").groups[0])
    clock = next(one for one in found if one.condition == "clock_mhz" and one.where == BETWEEN)
    assert clock.r.high < -0.9
    flat = next(one for one in found if one.condition == "temperature_c" and one.where == BETWEEN)
    assert (flat.r.value, flat.r.reason) == (None, "did_not_vary")


@pytest.mark.thorough
def test_times_are_compared_at_equal_temperature(tmp_path):
    """GPU 3 runs 10 degrees hotter and is slower by just what heat costs: 0.2 % a degree, compounded."""

    def warm(gpu, repeat):
        return 50.0 + (10 if gpu.index == 3 else 0) + repeat

    dataset, boards = fleet(tmp_path / "f", [1.0] * 4, repeats=1)
    rng = np.random.default_rng(1)
    for board in boards:
        for repeat in range(8):
            heat = warm(board, repeat)
            times = 2e-3 * np.exp(0.002 * (heat - 50)) * (1 + rng.normal(0, 2e-4, 8))
            dataset.put(Task(board, repeat), tables_of(Task(board, repeat), times, temperature_c=heat))
    group = read_fleet(tmp_path / "f").groups[0]
    slope = temperature_slope(group)
    assert slope.low < 0.002 < slope.high
    assert Spread(group, "time_s").observed_range > 0.015
    level = at_equal_temperature(group)
    assert all(abs(one.value) < 0.001 for one in level.values())
    assert all(one.low < 0.0005 and one.high > -0.0005 for one in level.values())


@pytest.mark.thorough
def test_without_any_change_of_temperature_there_is_no_correction(one):
    assert temperature_slope(one.groups[0]).reason == "temperature_did_not_vary"
    assert at_equal_temperature(one.groups[0]) == {}


@pytest.mark.thorough
def test_energies_no_further_apart_than_sensors_may_err_are_reported_to_be_so(one, tmp_path):
    assert find(one.groups[0]).hides_in_gain
    fleet(tmp_path / "far", [1, 1, 1, 1.3])
    assert not find(read_fleet(tmp_path / "far").groups[0]).hides_in_gain
    text = typeset(document(one, [find(one.groups[0])]), 140)
    assert "±5 %" in text.replace("\u00a0", " ")


def test_mixed_models_and_loads_are_compared_each_with_their_own(tmp_path):
    dataset, _ = fleet(tmp_path / "f", [1, 1.01, 1.02])
    other = FleetGpu("node-9", "GPU-other", 0, "GPU-other", "A100 40GB")
    for repeat in range(4):
        dataset.put(Task(other, repeat), tables_of(Task(other, repeat), [0.004] * 8))
    read = read_fleet(tmp_path / "f")
    assert [len(group.gpus) for group in read.groups] == [3, 1]
    text = typeset(document(read, [find(group) for group in read.groups]), 140)
    assert "2 kinds of GPUs or loads" in text
    assert Spread(read.groups[1], "time_s").range.reason == "one_gpu"


def test_start_skew_is_of_processes_that_began_at_once_on_one_host(tmp_path):
    base = 1_767_225_600_000_000_000
    late = {0: 0, 1: 1_500_000, 2: 700_000}
    fleet(tmp_path / "f", [1, 1, 1], start_ns=lambda gpu, repeat, time: base + repeat * 10**10 + late[gpu.index])
    skew = start_skew(read_fleet(tmp_path / "f").groups[0])
    assert skew.most == pytest.approx(1.5e-3)
    assert skew.n == 4
    fleet(tmp_path / "v", [1, 1], virtual_time=True)
    assert start_skew(read_fleet(tmp_path / "v").groups[0]).reason == "virtual_time"


@pytest.mark.thorough
def test_json_and_page_hold_the_same_figures_and_say_simulated(tmp_path):
    pytest.importorskip("plotly")
    fleet(tmp_path / "f", OFFSETS, simulated=True, model="SIMULATED H100 <b>80GB</b>")
    read = read_fleet(tmp_path / "f")
    told = json.loads(json.dumps(to_dict(read, [find(group) for group in read.groups]), allow_nan=False))
    assert told["simulated"] is True
    assert told["groups"][0]["gpus"][7]["time_s"]["outlier"] == "high"
    page = html.write(read, [find(group) for group in read.groups], tmp_path / "fleet.html").read_text()
    assert "SIMULATED" in page
    assert "GPU-0103" in page
    assert "<b>80GB</b>" not in page, "names are escaped"
    for words in ("Where the spread comes from", "What to do", "Each GPU, the fastest first", "Worth asking for?"):
        assert words in page


def test_a_table_of_many_gpus_shows_the_best_and_the_worst_and_says_what_it_leaves_out(one):
    text = typeset(document(one, [find(one.groups[0])], top=2), 140)
    assert "4 GPUs between these are left out" in text


def test_half_written_and_damaged_results_are_left_out_and_said(tmp_path):
    fleet(tmp_path / "f", [1, 1.01])
    folder = tmp_path / "f" / "runs" / "node=node-0" / "gpu=GPU-0000"
    (folder / ".repeat-0009.parquet.123.part").write_bytes(b"half")
    (folder / "repeat-0001.parquet").write_bytes(b"PAR1 broken")
    read = read_fleet(tmp_path / "f")
    assert len(read.groups[0].runs["gpu"]) == 7
    assert len(read.damaged) == 1
    assert "repeat-0001.parquet can't be read" in read.damaged[0]


@pytest.mark.parametrize("place", ["folder", "memory://cut-fleet"])
@pytest.mark.parametrize("cut", [1, 200])
def test_a_file_that_is_cut_off_is_named_though_no_figure_rests_on_it(tmp_path, place, cut):
    if "://" in place:
        pytest.importorskip("fsspec")
    root = f"{place}-{cut}" if "://" in place else tmp_path / place
    dataset, _ = fleet(root, [1, 1.01], repeats=2)
    inside = "node-0/GPU-0000/repeat-0001"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("run.json", "{}" * 200)
    for number in (0, 1):
        dataset.store.write(f"raw/node-0/GPU-0000/repeat-000{number}.zip", archive.getvalue())
    assert read_fleet(root).damaged == [], "all is whole"
    names = [f"{table}/node=node-0/gpu=GPU-0000/repeat-0001.parquet" for table in ("samples", "iterations")]
    for name in (*names, f"raw/{inside}.zip"):
        dataset.store.write(name, dataset.store.read(name)[:-cut])
    dataset.store.write(f"failed/{inside}.json", b'{"node": "node')
    found = read_fleet(root)
    assert len(found.groups[0].runs["gpu"]) == 4, "nothing else is lost"
    assert [line.partition(";")[0].removeprefix(f"{root}/") for line in found.damaged] == [
        f"{names[0]} is cut off: readings of that run are missing from the page",
        f"{names[1]} is cut off: single iterations of that run can't be read",
        f"raw/{inside}.zip is cut off: that Run can't be opened by itself",
        f"failed/{inside}.json can't be read: the reason for that missing result is unknown",
    ]


def test_windows_that_resemble_one_another_are_flagged_and_count_for_less(tmp_path, capsys):
    rng = np.random.default_rng(3)
    boards = gpus(1, 4)
    dataset = Dataset(open_store(tmp_path / "f"))
    dataset.begin(FleetSettings("gemm", repeats=6), "", [vars_of(board) for board in boards])
    for board in boards:
        for repeat in range(6):
            steps = rng.normal(0, 0.004, 20)
            for k in range(1, 20):
                steps[k] = 0.7 * steps[k - 1] + np.sqrt(1 - 0.7**2) * steps[k]
            times = 2e-3 * (1 + steps)
            dataset.put(
                Task(board, repeat), tables_of(Task(board, repeat), times, 1.4 * (1 + rng.normal(0, 0.004, 20)))
            )
    said = command(capsys, "fleet", "report", str(tmp_path / "f"), "--json")
    spread = json.loads(said.out)["groups"][0]["spread"]
    assert spread["time_s"]["windows"]["flags"] == ["autocorrelated_windows"]
    assert spread["time_s"]["windows"]["per_run"] == 20
    assert 2.5 < spread["time_s"]["windows"]["effective_per_run"] < 7
    assert spread["time_s"]["windows"]["autocorrelation"]["value"] == pytest.approx(0.7, abs=0.12)
    assert spread["time_s"]["variance"]["run"]["sd"]["low"] == 0
    assert spread["energy_j"]["windows"]["flags"] == []
    assert spread["energy_j"]["windows"]["effective_per_run"] > 15
    text = " ".join(command(capsys, "fleet", "report", str(tmp_path / "f")).out.split())
    assert "successive windows of a run are correlated in time of an iteration (correlation 0." in text
    assert "are correlated in energy" not in text


def test_a_run_that_cannot_be_right_is_left_out_and_said():
    absurd = profile_run()
    for name in ("value", "low", "high"):
        index = absurd.results.schema.get_field_index(name)
        field, values = absurd.results.schema.field(index), absurd.results[name]
        absurd.results = absurd.results.set_column(index, field, pc.multiply(values, 1e20))
    found = fleet_of([profile_run(), absurd], places=["good.zip", "absurd.zip"])
    assert len(found.groups[0].runs["gpu"]) == 1
    (line,) = found.damaged
    assert line.startswith("absurd.zip is implausible: time_s is 6.7")
    assert line.endswith("which no measurement gives: left out")


def test_runs_that_show_less_than_others_are_named():
    whole, cut, idle = profile_run(), profile_run(), monitor_run()
    cut.complete = False
    found = fleet_of([whole, cut, idle], places=["whole.zip", "cut.zip", "idle.zip"])
    assert len(found.groups[0].runs["gpu"]) == 2
    assert sorted(found.damaged) == [
        "cut.zip did not end by itself: its figures rest on the data recorded until then",
        "idle.zip has no time of an iteration: left out",
    ]


def test_readings_that_are_damaged_are_named_once_on_the_page(tmp_path):
    pytest.importorskip("plotly")
    dataset, _ = fleet(tmp_path / "f", [1, 1.01], repeats=2, whole=True)
    names = [f"samples/node=node-0/gpu=GPU-0000/repeat-000{number}.parquet" for number in range(2)]
    whole = dataset.store.read(names[0])
    dataset.store.write(names[0], whole[:4] + bytes(64) + whole[68:])
    dataset.store.write(names[1], whole[:-50])
    found = read_fleet(tmp_path / "f")
    page = html.render(found, [find(group) for group in found.groups])
    for name, words in zip(names, ("can't be read", "is cut off"), strict=True):
        assert page.count(f"{tmp_path}/f/{name}") == 1
        assert f"{tmp_path}/f/{name} {words}".replace("'", "&#39;") in page


def test_a_place_without_a_fleet_is_refused_in_a_line(tmp_path):
    with pytest.raises(BadInputError, match="no fleet in"):
        read_fleet(tmp_path)
    (tmp_path / "fleet.json").write_text("[]")
    with pytest.raises(BadInputError, match="does not describe a fleet"):
        read_fleet(tmp_path)
    (tmp_path / "fleet.json").write_text("{")
    with pytest.raises(BadInputError, match="not valid JSON"):
        read_fleet(tmp_path)
    for odd in ({"schema": "x"}, {"schema": 1, "settings": [], "gpus": []}, {"schema": 1, "settings": {}, "gpus": [1]}):
        (tmp_path / "fleet.json").write_text(json.dumps({"format": "jouletrace-fleet", **odd}))
        with pytest.raises(BadInputError, match="is damaged"):
            read_fleet(tmp_path)


def test_what_does_not_belong_into_a_fleet_is_named_and_left_out(tmp_path):
    dataset, _ = fleet(tmp_path / "f", [1, 1.01], repeats=2)
    rows = tmp_path / "f" / "runs" / "node=node-0" / "gpu=GPU-0000"
    whole = (rows / "repeat-0000.parquet").read_bytes()
    (rows / "repeat-0000 (copy).parquet").write_bytes(whole)
    (rows.parent / "all.parquet").write_bytes(whole)
    windows = tmp_path / "f" / "windows" / "node=node-0" / "gpu=GPU-0000"
    (rows / "repeat-0001.parquet").write_bytes((windows / "repeat-0001.parquet").read_bytes())
    (windows / "repeat-0000.parquet").write_bytes(b"")
    for note in ("[1]", "{}", "{"):
        dataset.store.write("failed/node-0/GPU-0000/repeat-0001.json", note.encode())
        assert dataset.failures() == []
    found = read_fleet(tmp_path / "f")
    assert len(found.groups[0].runs["gpu"]) == 3
    said = "\n".join(found.damaged)
    for words in (
        "all.parquet isn't named",
        "(copy).parquet isn't named",
        "8 rows, not one",
        "1 result has no readable windows",
    ):
        assert words in said
    assert dataset.done() == {("node-0", "GPU-0001", 0), ("node-0", "GPU-0001", 1)}


def test_the_dataset_opens_with_pandas_with_host_and_gpu_as_columns(tmp_path):
    pandas = pytest.importorskip("pandas")
    fleet(tmp_path / "f", [1, 1.01], whole=True)
    for table, rows in (("runs", 8), ("windows", 64), ("iterations", 64), ("samples", 80)):
        frame = pandas.read_parquet(tmp_path / "f" / table)
        assert len(frame) == rows
        assert set(frame["gpu"]) == {"GPU-0000", "GPU-0001"}
        assert set(frame["node"]) == {"node-0"}


def test_the_dataset_opens_with_duckdb(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    fleet(tmp_path / "f", [1, 1.01])
    files = f"read_parquet('{tmp_path}/f/runs/*/*/*.parquet', hive_partitioning=true)"
    assert len(duckdb.sql(f"select gpu, avg(time_s) from {files} group by 1").fetchall()) == 2


def test_names_of_hosts_that_are_no_file_names_come_back_as_they_were(tmp_path):
    dataset = Dataset(open_store(tmp_path / "f"))
    gpu = FleetGpu("rack 3/ü=1", "GPU-1", 0, "GPU-1")
    dataset.put(Task(gpu, 0), tables_of(Task(gpu, 0), [1.0, 2.0]))
    assert dataset.done() == {("rack 3/ü=1", "GPU-1", 0)}
