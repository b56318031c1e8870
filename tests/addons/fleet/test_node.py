"""What happens on a host: processes that begin at once or in turn, and what becomes of those that fail."""

import json
import tempfile
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from commands import PATIENCE_S, command
from fleet_data import gpus, tables_of
from jouletrace.addons.fleet import gpus as gpus_of_fleet
from jouletrace.addons.fleet import process
from jouletrace.addons.fleet.child import reason_of
from jouletrace.addons.fleet.dataset import Dataset
from jouletrace.addons.fleet.engine import local, run_fleet, todo_of
from jouletrace.addons.fleet.node import Node
from jouletrace.addons.fleet.open import Request, open_fleet, settle_size
from jouletrace.addons.fleet.plan import IN_TURN, FleetSettings, Noise, Task, parse_noise, rounds
from jouletrace.addons.fleet.ray_engine import Cluster
from jouletrace.addons.fleet.results import read_fleet
from jouletrace.addons.fleet.store import open_store
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.profiler.settings import ProfileSettings
from places import SUPPORT

HERE = SUPPORT


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    monkeypatch.setattr(process, "MODULE", "fake_fleet_child")
    monkeypatch.setattr("jouletrace.addons.fleet.node.HEAD_START_S", 0.1)
    monkeypatch.setenv("PYTHONPATH", str(HERE))


def do(tmp_path, workload="works", boards=None, others=(), repeats=1, heard=None, **more):
    settings = FleetSettings(workload, repeats=repeats, **more)
    measured = gpus(1, 3) if boards is None else boards
    node = Node(settings, [*measured, *others], str(tmp_path))
    outcomes = []
    for repeat in range(repeats):
        for group in rounds(measured, settings, repeat):
            node.at_once(group, outcomes.append, lambda gpu, said: heard.append(said) if heard is not None else None)
    return {(one.task.gpu.index, one.task.repeat): one for one in outcomes}


def seen(tmp_path, gpu, repeat=0):
    return json.loads((tmp_path / f"{gpu}-{repeat}").read_text())


def log(tmp_path):
    return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]


def test_gpus_that_run_together_begin_at_one_moment_and_overlap(tmp_path):
    heard = []
    found = do(tmp_path, heard=heard)
    assert not any(one.reason for one in found.values())
    runs = [seen(tmp_path, gpu) for gpu in range(3)]
    assert len({run["at_ns"] for run in runs}) == 1
    assert all(run["start_ns"] >= run["at_ns"] for run in runs)
    assert max(run["at_ns"] for run in runs) < min(run["end_ns"] for run in runs), "none waits for another's end"
    assert {"is": "phase", "name": "warming up", "seconds": 1.0} in heard


@pytest.mark.thorough
def test_gpus_that_take_turns_never_overlap_and_go_in_an_order_that_the_seed_says(tmp_path):
    do(tmp_path, placement=IN_TURN, repeats=2)
    for repeat in range(2):
        runs = sorted((seen(tmp_path, gpu, repeat) for gpu in range(3)), key=lambda run: run["order"])
        assert [run["order"] for run in runs] == [0, 1, 2]
        assert all(a["end_ns"] <= b["at_ns"] for a, b in pairwise(runs))
    settings = FleetSettings("works", placement=IN_TURN, seed=4)
    boards = gpus(1, 8)
    orders = [tuple(group[0].gpu.index for group in rounds(boards, settings, n)) for n in range(10)]
    assert len(set(orders)) > 5
    assert orders[0] == tuple(group[0].gpu.index for group in rounds(boards, settings, 0))
    there = {("node-0", gpu.id, repeat) for gpu in boards for repeat in range(settings.repeats)}
    ((only,),) = todo_of(settings, boards, there - {("node-0", boards[3].id, 0)})["node-0"]
    assert (only.gpu.index, only.order) == (3, orders[0].index(3))


def test_each_process_is_shown_its_own_gpu_by_uuid_whatever_else_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0002,GPU-0000,GPU-0001")
    do(tmp_path)
    assert {line["gpu"]: line["shown"] for line in log(tmp_path)} == {n: f"GPU-{0:02d}{n:02d}" for n in range(3)}


@pytest.mark.thorough
def test_later_repeats_wait_for_the_temperature_that_each_gpu_began_with(tmp_path):
    do(tmp_path, repeats=2)
    assert {line["repeat"]: line["cool_to_c"] for line in log(tmp_path)} == {0: None, 1: 45.0}


@pytest.mark.parametrize(
    ("workload", "reason", "text"),
    [
        ("dies", "vanished", "the process on GPU 1 of node-0 was killed by signal 9"),
        ("dies late", "vanished", "was killed by signal 9"),
        ("memory", "out_of_memory", "gemm: out of memory"),
    ],
)
def test_a_gpu_that_falls_off_costs_its_own_result_only(tmp_path, workload, reason, text):
    found = do(tmp_path, workload)
    assert (found[1, 0].reason, found[0, 0].reason, found[2, 0].reason) == (reason, "", "")
    assert text in found[1, 0].text
    assert seen(tmp_path, 0)["at_ns"] == seen(tmp_path, 2)["at_ns"]


def test_a_process_that_is_killed_leaves_nothing_in_the_temporary_folder(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    assert do(tmp_path, "dies", gpus(1, 2))[1, 0].reason == "vanished"
    assert list(scratch.iterdir()) == []
    monkeypatch.setattr(tempfile, "tempdir", str(scratch / "none"))
    with pytest.raises(BadInputError, match="no temporary folder on node-0: No such file"):
        do(tmp_path)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NotPossibleError("NVML: the GPU is lost: it has fallen off the bus"), "lost_gpu"),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), "lost_gpu"),
        (BadInputError("cannot write /data/f/raw/x: No space left on device"), "disk_full"),
        (OSError(28, "No space left on device"), "disk_full"),
        (NotPossibleError("gemm: out of memory"), "out_of_memory"),
        (NotPossibleError("no driver"), "not_possible"),
        (BadInputError("--batch 0"), "bad_input"),
        (ValueError("No space left on device"), "failed"),
    ],
)
def test_why_a_gpu_gave_no_result_is_distinguished(error, reason):
    assert reason_of(error) == reason


@pytest.mark.thorough
def test_a_process_that_hangs_is_ended_and_the_others_go_on(tmp_path, monkeypatch):
    def patient(children, until, limit_s, hear):
        """The limit counts once the others are there: a busy machine takes long to start them."""
        process.listen([child for child in children if child.gpu.index != 1], until, PATIENCE_S, hear)
        process.listen(children, until, limit_s, hear)

    monkeypatch.setattr("jouletrace.addons.fleet.node.listen", patient)
    found = do(tmp_path, "hangs", limit_s=1, cool_limit_s=0)
    assert found[1, 0].reason == "timed_out"
    assert "no result after 1 s" in found[1, 0].text
    assert not found[0, 0].reason


def test_an_interruption_ends_every_process_at_once(tmp_path, monkeypatch):
    made = []

    class Watched(process.Child):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

    def interrupt(gpu, message):
        if message["is"] == "ready" and len(made) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("jouletrace.addons.fleet.node.Child", Watched)
    boards = gpus(1, 3)
    node = Node(FleetSettings("hangs", noise=(Noise("loud", (0,)),)), boards, str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        node.at_once([Task(gpu, 0) for gpu in boards], lambda outcome: None, interrupt)  # one of them hangs for an hour
    assert len(made) == 4
    assert not any(child.alive for child in made)


def test_noise_runs_on_the_gpus_named_and_ends_with_the_measurement(tmp_path):
    boards = gpus(1, 3)
    found = do(tmp_path, boards=boards[:1], others=boards[1:], noise=(Noise("loud", (1, 2)),))
    assert list(found) == [(0, 0)]
    assert not found[0, 0].reason


@pytest.mark.parametrize(("noise", "words"), [("hoarse", "failed: out of memory"), ("short", "ended before")])
def test_without_the_noise_that_was_asked_for_there_is_no_result(tmp_path, noise, words):
    found = do(tmp_path, boards=gpus(1, 1), noise=(Noise(noise, (0,)),))
    assert found[0, 0].reason == "no_noise"
    assert words in found[0, 0].text


def test_processes_of_a_collective_load_learn_of_one_another(tmp_path):
    do(tmp_path, "allreduce")
    assert sorted(line["rank"] for line in log(tmp_path)) == ["0", "1", "2"]
    assert {line["rank"] for line in log(tmp_path)} != {None}


def test_the_best_size_is_determined_on_one_gpu_and_used_on_all():
    auto = FleetSettings("gemm", ProfileSettings(config={"size": "auto", "iterations": "2"}))
    assert settle_size(auto, gpus()[0]).profile.config == {"size": "4096", "iterations": "2"}
    given = FleetSettings("gemm", ProfileSettings(config={"size": "512"}))
    assert settle_size(given, gpus()[0]) is given
    boards = gpus_of_fleet.simulated("sim:h100", "1", 1)
    assert settle_size(auto, boards[0]).profile.config == {"iterations": "2"}
    over_ray = open_fleet(auto, Request(engine="ray"))
    with pytest.raises(BadInputError, match="over Ray all hosts must run the same"):
        over_ray.__enter__()


def test_noise_is_written_as_a_workload_at_gpus():
    assert parse_noise("resnet50@2,0") == Noise("resnet50", (0, 2))
    assert parse_noise("pkg.mod:make@all") == Noise("pkg.mod:make")
    for wrong in ("resnet50", "@1", "resnet50@", "resnet50@x"):
        with pytest.raises(BadInputError, match="--noise"):
            parse_noise(wrong)


def fake_work(dataset, boards, fails=()):
    """An engine that measures nothing: results are there, or aren't."""
    done = []

    def work(todo, note, hear):
        from jouletrace.addons.fleet.node import Outcome

        own = {gpu.id for gpu in boards}
        for task in [task for groups in todo.values() for group in groups for task in group if task.gpu.id in own]:
            done.append((task.gpu.id, task.repeat))
            if done[-1] in fails:
                note(Outcome(task, "vanished", "gone"))
            else:
                dataset.put(task, tables_of(task, [1.0, 1.1]))
                note(Outcome(task))

    return work, done


def test_a_second_run_does_only_what_is_missing(tmp_path):
    boards = gpus(1, 2)
    settings = FleetSettings("gemm", repeats=3, placement=IN_TURN)
    dataset = Dataset(open_store(tmp_path / "f"))
    work, _ = fake_work(dataset, boards, fails={("GPU-0001", 1)})
    first = run_fleet(settings, boards, dataset, work)
    assert (first.measured, len(first.failed), first.before) == (5, 1, 0)
    assert dataset.failures()[0]["text"] == "gone"
    work, done = fake_work(dataset, boards)
    second = run_fleet(settings, boards, dataset, work)
    assert done == [("GPU-0001", 1)]
    assert (second.measured, second.before, second.failed) == (1, 5, ())
    assert dataset.failures() == []


def test_a_result_that_was_half_written_when_its_host_went_down_is_measured_again(tmp_path):
    boards = gpus(1, 2)
    settings = FleetSettings("gemm", repeats=2, placement=IN_TURN)
    dataset = Dataset(open_store(tmp_path / "f"))
    work, _ = fake_work(dataset, boards)
    run_fleet(settings, boards, dataset, work)
    folder = Path("node=node-0/gpu=GPU-0001")
    for table, repeat in (("runs", 0), ("windows", 1)):
        path = tmp_path / "f" / table / folder / f"repeat-000{repeat}.parquet"
        path.write_bytes(path.read_bytes()[:-20])
    work, done = fake_work(dataset, boards)
    again = run_fleet(settings, boards, dataset, work)
    assert done == [("GPU-0001", 0), ("GPU-0001", 1)]
    assert (again.before, again.measured) == (2, 2)


def test_results_that_a_host_has_put_where_no_one_else_sees_them_are_missed(tmp_path):
    """As with ``--engine ray`` and a folder of each host's own."""
    boards = gpus(2, 1)
    own = Dataset(open_store(tmp_path / "of-another-host"))
    settings = FleetSettings("gemm", repeats=1)
    shared = Dataset(open_store(tmp_path / "f"))

    def work(todo, note, hear):
        for gpu, dataset in zip(boards, (shared, own), strict=True):
            fake_work(dataset, [gpu])[0](todo, note, hear)

    found = run_fleet(settings, boards, shared, work)
    assert (found.measured, [one.reason for one in found.failed]) == (1, ["elsewhere"])
    assert "a place that all hosts share" in shared.failures()[0]["text"]


def test_gpus_that_run_together_are_measured_together_again(tmp_path):
    boards = gpus(2, 2)
    there = {(gpu.node, gpu.id, 0) for gpu in boards} - {("node-1", "GPU-0101", 0)}
    found = todo_of(FleetSettings("gemm", repeats=1), boards, there)
    assert {node: [{task.gpu.id for task in group} for group in groups] for node, groups in found.items()} == {
        "node-1": [{"GPU-0100", "GPU-0101"}]
    }


def test_a_place_with_another_fleet_in_it_is_left_alone(tmp_path):
    boards = gpus(1, 1)
    dataset = Dataset(open_store(tmp_path / "f"))
    work, _ = fake_work(dataset, boards)
    run_fleet(FleetSettings("gemm", repeats=1), boards, dataset, work)
    run_fleet(FleetSettings("gemm", repeats=2), boards, dataset, work)
    with pytest.raises(BadInputError, match=r"other settings .seconds: 10.0, not 4"):
        run_fleet(FleetSettings("gemm", repeats=1, seconds=4), boards, dataset, work)


def test_where_no_result_could_be_had_the_reason_is_reported(tmp_path):
    boards = gpus(1, 2)
    dataset = Dataset(open_store(tmp_path / "f"))
    work, _ = fake_work(dataset, boards, fails={(gpu.id, 0) for gpu in boards})
    with pytest.raises(NotPossibleError, match="none of 2 results could be measured: gone"):
        run_fleet(FleetSettings("gemm", repeats=1), boards, dataset, work)


def test_busy_gpus_are_listed_and_left_alone(tmp_path):
    boards = gpus(1, 2)
    dataset = Dataset(open_store(tmp_path / "f"))
    work, done = fake_work(dataset, boards)
    excluded = {"GPU-0001": "GPU 1 of node-0 is in use by python (pid 7)"}
    found = run_fleet(FleetSettings("gemm", repeats=2), boards, dataset, work, excluded=excluded)
    assert {gpu for gpu, _ in done} == {"GPU-0000"}
    assert {one.reason for one in found.failed} == {"busy"}
    assert "pid 7" in dataset.failures()[0]["text"]


def test_a_busy_gpu_is_not_measured_with_those_that_run_together(tmp_path, monkeypatch):
    monkeypatch.setattr("jouletrace.addons.fleet.open.find_gpus", lambda *asked: (gpus(1, 3)[:2], gpus(1, 3)[2:]))
    monkeypatch.setattr("jouletrace.addons.fleet.open.busy", lambda gpus: {gpus[1].id: "in use", gpus[2].id: "in use"})
    with open_fleet(FleetSettings("memcpy", repeats=1), Request()) as fleet:
        dataset = Dataset(open_store(tmp_path / "f"))
        work, done = fake_work(dataset, fleet.gpus)
        found = run_fleet(fleet.settings, fleet.gpus, dataset, work, excluded=fleet.excluded)
    assert done == [("GPU-0000", 0)]
    assert [(one.task.gpu.id, one.reason) for one in found.failed] == [("GPU-0001", "busy")]
    for place in (1, 2):
        noise = (Noise("memcpy", (place,)),)
        with (
            pytest.raises(NotPossibleError, match=f"--noise memcpy@{place}: in use"),
            open_fleet(FleetSettings("memcpy", noise=noise), Request()),
        ):
            pass


@contextmanager
def a_cluster(busy=()):
    """Two hosts, of two GPUs and of one."""
    boards = [*gpus(1, 2), *gpus(2, 1)[1:]]
    yield Cluster(FleetSettings("gemm"), boards, [], {}, {gpu: f"{gpu} is in use" for gpu in busy})


def opened(monkeypatch, busy=(), noise=(), **more):
    monkeypatch.setattr("jouletrace.addons.fleet.ray_engine.open_ray", lambda *given: a_cluster(busy))
    with open_fleet(FleetSettings("gemm", noise=noise), Request(engine="ray", **more)) as fleet:
        return fleet.excluded


def test_over_ray_noise_must_find_its_gpu_on_every_host(monkeypatch):
    assert opened(monkeypatch, noise=(Noise("memcpy", (0,)),)) == {}
    with pytest.raises(BadInputError, match=r"--noise memcpy@1: node-1 has no GPU 1; it has \[0\]"):
        opened(monkeypatch, noise=(Noise("memcpy", (1,)),))


def test_over_ray_gpus_that_others_use_are_left_alone_too(monkeypatch):
    assert opened(monkeypatch, ["GPU-0001"]) == {"GPU-0001": "GPU-0001 is in use"}
    assert opened(monkeypatch, ["GPU-0001"], allow_busy=True) == {}
    with pytest.raises(NotPossibleError, match="--allow-busy"):
        opened(monkeypatch, ["GPU-0000", "GPU-0001", "GPU-0100"])


def test_a_disk_that_takes_nothing_is_reported_in_a_line(tmp_path, monkeypatch):
    dataset = Dataset(open_store(tmp_path / "f"))
    full = OSError(28, "No space left on device")

    def no_room(*args):
        raise full

    monkeypatch.setattr(Path, "write_bytes", no_room)
    with pytest.raises(BadInputError, match=r"cannot write .*No space left on device"):
        run_fleet(FleetSettings("gemm", repeats=1), gpus(1, 1), dataset, local(FleetSettings("gemm"), [], [], ""))
    assert not list((tmp_path / "f").rglob("*.part"))


def test_results_go_to_any_place_that_fsspec_reaches():
    pytest.importorskip("fsspec")
    boards = gpus(1, 2)
    dataset = Dataset(open_store("memory://jouletrace-test/fleet"))
    work, _ = fake_work(dataset, boards)
    run_fleet(FleetSettings("gemm", repeats=2), boards, dataset, work)
    assert len(Dataset(open_store("memory://jouletrace-test/fleet")).done()) == 4
    assert sum(map(len, dataset.read("windows")[0].values())) == 8
    with pytest.raises(NotPossibleError, match="nosuch"):
        open_store("nosuch://x")


# --- results that can't be right, or are another's ------------------------------------------------------


def two_gpus(tmp_path):
    boards = gpus(1, 2)
    settings = FleetSettings("gemm", repeats=2, placement=IN_TURN)
    dataset = Dataset(open_store(tmp_path / "f"))
    run_fleet(settings, boards, dataset, fake_work(dataset, boards)[0])
    return boards, settings, dataset


def file_of(tmp_path, table, gpu, repeat=0):
    return tmp_path / "f" / table / "node=node-0" / f"gpu={gpu}" / f"repeat-{repeat:04d}.parquet"


@pytest.mark.parametrize("table", ["runs", "windows"])
@pytest.mark.parametrize("value", [-1.0, 0.0, float("inf"), 1e308])
def test_a_time_that_no_measurement_gives_is_no_result(tmp_path, table, value):
    """Written past us, as by a damaged disk or another program: its columns have no units."""
    boards, settings, dataset = two_gpus(tmp_path)
    path = file_of(tmp_path, table, "GPU-0001")
    damaged = pq.ParquetFile(path).read().to_pandas().assign(time_s=value)
    damaged.to_parquet(path)
    fleet = read_fleet(tmp_path / "f")
    assert len(fleet.damaged) >= 1
    assert f"{path} can't be read: time_s is {value:g}, which no measurement gives" in fleet.damaged
    times = fleet.groups[0].windows["time_s"] if table == "windows" else fleet.groups[0].runs["time_s"]
    assert 0 < times.min() <= times.max() < 2
    work, done = fake_work(dataset, boards)
    assert run_fleet(settings, boards, dataset, work).measured == 1
    assert done == [("GPU-0001", 0)]


@pytest.mark.parametrize(("name", "value"), [("energy_j", -1.0), ("power_w", 65535.0), ("temperature_c", 1e20)])
def test_a_figure_that_no_measurement_gives_is_not_put_away(tmp_path, name, value):
    dataset = Dataset(open_store(tmp_path / "f"))
    task = Task(gpus(1, 1)[0], 0)
    tables = tables_of(task, [1.0, 1.1], **{name: value})
    with pytest.raises(NotPossibleError, match=rf"GPU 0 of node-0: the result is implausible: {name} is"):
        dataset.put(task, tables)
    assert dataset.done() == set()


def test_windows_of_more_power_than_any_gpu_draws_are_not_put_away(tmp_path):
    task = Task(gpus(1, 1)[0], 0)
    with pytest.raises(NotPossibleError, match="W, which no GPU draws"):
        Dataset(open_store(tmp_path / "f")).put(task, tables_of(task, [1e-3, 1e-3], [700.0, 700.0], power_w=700.0))


@pytest.mark.parametrize("table", ["runs", "windows"])
def test_a_file_of_another_gpu_under_this_one_s_name_is_no_result(tmp_path, table):
    boards, settings, dataset = two_gpus(tmp_path)
    path = file_of(tmp_path, table, "GPU-0001")
    path.write_bytes(file_of(tmp_path, table, "GPU-0000").read_bytes())
    assert f"{path} can't be read: it is repeat 0 of GPU-0000 of node-0" in read_fleet(tmp_path / "f").damaged
    work, done = fake_work(dataset, boards)
    run_fleet(settings, boards, dataset, work)
    assert done == [("GPU-0001", 0)]


def test_a_file_of_another_repeat_is_no_result_though_nothing_says_whose_it_is(tmp_path):
    """As of a fleet that an earlier version has written."""
    two_gpus(tmp_path)
    path = file_of(tmp_path, "runs", "GPU-0001")
    table = pq.ParquetFile(file_of(tmp_path, "runs", "GPU-0001", 1)).read()
    pq.write_table(table.replace_schema_metadata(None), path)
    assert f"{path} can't be read: it holds another repeat" in read_fleet(tmp_path / "f").damaged


# --- two at once, and children that are killed ------------------------------------------------------------


def test_two_fleets_into_one_folder_do_not_both_run(tmp_path):
    boards = gpus(1, 1)
    settings = FleetSettings("gemm", repeats=1)
    dataset = Dataset(open_store(tmp_path / "f"))
    inner, done = fake_work(dataset, boards)

    def work(todo, note, hear):
        with pytest.raises(NotPossibleError, match=r"another jouletrace \(pid \d+\) is running a fleet into"):
            run_fleet(settings, boards, Dataset(open_store(tmp_path / "f")), inner)
        assert done == []
        inner(todo, note, hear)

    run_fleet(settings, boards, dataset, work)
    assert done == [("GPU-0000", 0)]


def test_a_fleet_with_a_killed_process_does_not_end_well(tmp_path, capsys, monkeypatch):
    boards = gpus(1, 2)

    def fails(settings, boards, others, place, command):
        return fake_work(Dataset(open_store(place)), boards, fails={("GPU-0001", 0)})[0]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("jouletrace.addons.fleet.open.local", fails)
    monkeypatch.setattr("jouletrace.addons.fleet.open.find_gpus", lambda *asked: (boards, []))
    monkeypatch.setattr("jouletrace.addons.fleet.open.busy", lambda boards: {})
    said = command(capsys, "fleet", "run", "gemm", "--repeats", "1", "-o", "f", "--json")
    assert said.code == 3
    assert json.loads(said.out)["failures"][0]["text"] == "gone"
    line = "1 of 2 results are missing: gone; repeat the command with -o f for the missing ones"
    assert said.err.splitlines()[-1] == f"jouletrace: {line}"
