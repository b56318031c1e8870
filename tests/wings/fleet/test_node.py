"""Processes on a host, that begin at once or in turn, and what becomes of those that fail."""

import json
import tempfile
import time
from itertools import pairwise

import pytest

from commands import PATIENCE_S, command
from fleet_data import gpus, run_of
from jouletrace.campaign import worker
from jouletrace.campaign.child import wait_until
from jouletrace.campaign.loop import PointOutcome
from jouletrace.campaign.worker import reason_of
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError, BrokenOffError, NotPossibleError
from jouletrace.run import files, load, save
from jouletrace.wings.fleet import engine
from jouletrace.wings.fleet.engine import FleetHost, Host, groups_of, open_host, run_fleet
from jouletrace.wings.fleet.folder import Folder
from jouletrace.wings.fleet.plan import IN_TURN, FleetGpu, FleetSettings, Noise, Task, parse_noise, rounds
from jouletrace.wings.fleet.results import read_fleet
from make_runs import profile_run
from places import SUPPORT

HERE = SUPPORT


@pytest.fixture(autouse=True)
def fake(monkeypatch, tmp_path):
    """Processes that measure nothing, and a GPU that isn't opened."""
    monkeypatch.setattr(worker, "MODULE", "fake_campaign_child")
    monkeypatch.setattr("jouletrace.wings.fleet.engine.HEAD_START_S", 0.1)
    monkeypatch.setattr("jouletrace.wings.fleet.engine.open_device", lambda spec: open_device("cpu"))
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("FAKE_CAMPAIGN", str(tmp_path))
    save(profile_run(), tmp_path / "template")


def do(tmp_path, workload="works", boards=None, others=(), repeats=1, heard=None, **more):
    settings = FleetSettings(workload, repeats=repeats, **more)
    measured = gpus(1, 3) if boards is None else boards
    node = FleetHost(settings, [*measured, *others], str(tmp_path))
    outcomes = []
    for repeat in range(repeats):
        for group in rounds(measured, settings, repeat):
            node.at_once(group, outcomes.append, lambda gpu, said: heard.append(said) if heard is not None else None)
    return {(one.point.gpu.index, one.point.repeat): one for one in outcomes}


def log(tmp_path):
    return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]


def seen(tmp_path, gpu, repeat=0):
    """When a GPU was measured, and its place in the order of the fleet."""
    name = gpus(1, 8)[gpu].device
    run = load(tmp_path / "node-0" / name / f"repeat-{repeat:04d}.zip")
    return {**[line for line in log(tmp_path) if line["gpu"] == name][repeat], "order": run.settings["fleet"]["order"]}


@pytest.mark.thorough
def test_gpus_that_run_together_begin_at_one_moment_and_overlap(tmp_path):
    heard = []
    found = do(tmp_path, heard=heard)
    assert not any(one.reason for one in found.values())
    runs = [seen(tmp_path, gpu) for gpu in range(3)]
    assert len({run["at_ns"] for run in runs}) == 1
    assert all(run["start_ns"] >= run["at_ns"] for run in runs)
    assert max(run["at_ns"] for run in runs) < min(run["end_ns"] for run in runs), "none waits for another's end"
    assert {"is": "phase", "name": "warm-up", "seconds": 1.0} in heard


def test_the_start_is_waited_for_on_the_clock_of_the_host():
    at_ns = time.time_ns() + 20_000_000
    wait_until(at_ns)
    assert time.time_ns() >= at_ns


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
    groups = groups_of(settings, Host(boards, [], {}))
    assert [group[0].gpu.index for group in groups[: len(boards)]] == list(orders[0])
    assert [group[0].order for group in groups[: len(boards)]] == list(range(len(boards)))


@pytest.mark.thorough
def test_each_process_is_shown_its_own_gpu_by_uuid_whatever_else_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-0002,GPU-0000,GPU-0001")
    do(tmp_path)
    assert {line["gpu"]: line["shown"] for line in log(tmp_path)} == {gpu.device: gpu.id for gpu in gpus(1, 3)}


@pytest.mark.thorough
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


@pytest.mark.thorough
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
    listen = engine.listen

    def patient(workers, until="done", limit_s=None, hear=None):
        """The limit counts once the others are there: a busy machine takes long to start them."""
        listen([one for one in workers if one.name != "GPU 1 of node-0"], until, PATIENCE_S, hear)
        listen(workers, until, limit_s, hear)

    monkeypatch.setattr(engine, "listen", patient)
    found = do(tmp_path, "hangs", limit_s=1)
    assert found[1, 0].reason == "timed_out"
    assert "no result after 1 s" in found[1, 0].text
    assert not found[0, 0].reason


@pytest.mark.thorough
def test_an_interruption_ends_every_process_at_once(tmp_path, monkeypatch):
    made = []

    class Watched(engine.Worker):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

    def interrupt(gpu, message):
        if message["is"] == "ready" and len(made) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("jouletrace.wings.fleet.engine.Worker", Watched)
    boards = gpus(1, 3)
    node = FleetHost(FleetSettings("hangs", noise=(Noise("loud", (0,)),)), boards, str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        node.at_once([Task(gpu, 0) for gpu in boards], lambda outcome: None, interrupt)  # one of them hangs for an hour
    assert len(made) == 4
    assert not any(child.alive for child in made)


@pytest.mark.thorough
def test_noise_runs_on_the_gpus_named_and_ends_with_the_measurement(tmp_path):
    boards = gpus(1, 3)
    found = do(tmp_path, boards=boards[:1], others=boards[1:], noise=(Noise("loud", (1, 2)),))
    assert list(found) == [(0, 0)]
    assert not found[0, 0].reason


@pytest.mark.thorough
@pytest.mark.parametrize(("noise", "words"), [("hoarse", "failed: out of memory"), ("short", "ended before")])
def test_without_the_noise_that_was_asked_for_there_is_no_result(tmp_path, noise, words):
    found = do(tmp_path, boards=gpus(1, 1), noise=(Noise(noise, (0,)),))
    assert found[0, 0].reason == "no_noise"
    assert words in found[0, 0].text


def test_noise_is_written_as_a_workload_at_gpus():
    assert parse_noise("resnet50@2,0") == Noise("resnet50", (0, 2))
    assert parse_noise("pkg.mod:make@all") == Noise("pkg.mod:make")
    for wrong in ("resnet50", "@1", "resnet50@", "resnet50@x"):
        with pytest.raises(BadInputError, match="--noise"):
            parse_noise(wrong)


@pytest.fixture
def works(monkeypatch):
    """Hosts that measure nothing: results are there, but for those that shall fail; what was done."""
    done, fails = [], set()

    class Works(FleetHost):
        def at_once(self, group, note, hear):
            for task in group:
                done.append((task.gpu.id, task.repeat))
                if done[-1] in fails:
                    note(PointOutcome(task, "vanished", "gone"))
                else:
                    self._store.add(task, run_of(task))
                    note(PointOutcome(task))

    monkeypatch.setattr(engine, "FleetHost", Works)
    return done, fails


def host(count=2, excluded=None):
    return Host(gpus(1, count), [], excluded or {})


@pytest.mark.thorough
def test_a_second_run_does_only_what_is_missing(tmp_path, works):
    done, fails = works
    fails.add(("GPU-0001", 1))
    settings, folder = FleetSettings("gemm", repeats=3, placement=IN_TURN), Folder(tmp_path / "f")
    first = run_fleet(settings, host(), folder)
    assert (len(first.outcomes), len(first.missing), first.before) == (6, 1, 0)
    assert folder.failures()[0]["text"] == "gone"
    fails.clear()
    done.clear()
    second = run_fleet(settings, host(), folder)
    assert done == [("GPU-0001", 1)]
    assert (second.before, second.missing) == (5, [])
    assert folder.failures() == []


@pytest.mark.thorough
def test_a_result_that_is_half_written_or_anothers_is_measured_again(tmp_path, works):
    done, _ = works
    settings, folder = FleetSettings("gemm", repeats=2, placement=IN_TURN), Folder(tmp_path / "f")
    run_fleet(settings, host(), folder)
    place = tmp_path / "f" / "node-0"
    cut, other = place / "GPU-0001" / "repeat-0000.zip", place / "GPU-0001" / "repeat-0001.zip"
    cut.write_bytes(cut.read_bytes()[:-200])
    other.write_bytes((place / "GPU-0000" / "repeat-0001.zip").read_bytes())
    fleet = read_fleet(tmp_path / "f")
    assert len(fleet.groups[0].runs["gpu"]) == 2
    assert fleet.damaged[0].startswith(f"{cut} is neither a folder nor a readable zip file")
    assert fleet.damaged[1] == f"{other} is the Run of another GPU or repeat: left out"
    done.clear()
    again = run_fleet(settings, host(), folder)
    assert done == [("GPU-0001", 0), ("GPU-0001", 1)]
    assert (again.before, again.missing) == (2, [])


def test_gpus_that_run_together_are_measured_together_again(tmp_path, works):
    done, fails = works
    fails.add(("GPU-0001", 0))
    run_fleet(FleetSettings("gemm", repeats=1), host(), Folder(tmp_path / "f"))
    fails.clear()
    done.clear()
    run_fleet(FleetSettings("gemm", repeats=1), host(), Folder(tmp_path / "f"))
    assert sorted(done) == [("GPU-0000", 0), ("GPU-0001", 0)]


def test_a_place_with_another_fleet_in_it_is_left_alone(tmp_path, works):
    folder = Folder(tmp_path / "f")
    run_fleet(FleetSettings("gemm", repeats=1), host(1), folder)
    run_fleet(FleetSettings("gemm", repeats=2), host(1), folder)
    with pytest.raises(BadInputError, match=r"holds a fleet with other settings .seconds: 10.0, not 4"):
        run_fleet(FleetSettings("gemm", repeats=1, seconds=4), host(1), folder)


def test_where_no_result_could_be_had_the_reason_is_reported(tmp_path, works):
    works[1].update((gpu.id, 0) for gpu in gpus(1, 2))
    with pytest.raises(NotPossibleError, match="none of 2 results could be measured: gone"):
        run_fleet(FleetSettings("gemm", repeats=1), host(), Folder(tmp_path / "f"))


def test_busy_gpus_are_listed_and_left_alone(tmp_path, works):
    excluded = {"GPU-0001": "GPU 1 of node-0 is in use by python (pid 7)"}
    folder = Folder(tmp_path / "f")
    found = run_fleet(FleetSettings("gemm", repeats=2), host(2, excluded), folder)
    assert {gpu for gpu, _ in works[0]} == {"GPU-0000"}
    assert {one.reason for one in found.missing} == {"busy"}
    assert "pid 7" in folder.failures()[0]["text"]


def test_noise_is_not_put_on_a_busy_gpu(monkeypatch):
    monkeypatch.setattr(engine, "find_gpus", lambda *asked: (gpus(1, 3)[:2], gpus(1, 3)[2:]))
    monkeypatch.setattr(engine, "busy", lambda gpus: {gpus[1].id: "in use", gpus[2].id: "in use"})
    assert "GPU-0001" in open_host(FleetSettings("memcpy")).excluded
    for place in (1, 2):
        with pytest.raises(NotPossibleError, match=f"--noise memcpy@{place}: in use"):
            open_host(FleetSettings("memcpy", noise=(Noise("memcpy", (place,)),)))
    with pytest.raises(BadInputError, match=r"--noise memcpy@3: node-0 has no GPU 3; it has \[0, 1, 2\]"):
        open_host(FleetSettings("memcpy", noise=(Noise("memcpy", (3,)),)))


def test_a_disk_that_takes_nothing_is_reported_in_a_line(tmp_path, monkeypatch):
    full = OSError(28, "No space left on device")

    def no_room(*args):
        raise full

    monkeypatch.setattr(files, "write_content", no_room)
    with pytest.raises(BadInputError, match=r"cannot write .*No space left on device"):
        run_fleet(FleetSettings("gemm", repeats=1), host(1), Folder(tmp_path / "f"))
    assert not list((tmp_path / "f").rglob("*.part"))


class Nodes:
    """A cluster of two nodes in this process, of which some are lost."""

    def __init__(self, *lost):
        self.lost = lost

    def nodes(self, device):
        return ["a", "b"]

    def each(self, function, calls, device, nodes=()):
        for number, call in enumerate(calls):
            lost = BrokenOffError("its node was lost") if nodes[number] in self.lost else None
            yield number, lost or function(*call)


def test_gpus_of_a_lost_node_are_named_and_measured_once_it_is_back(tmp_path, monkeypatch, works):
    monkeypatch.setattr(engine, "find_gpus", lambda device, gpus, number: (boards[2 * number :][:2], []))
    monkeypatch.setattr(engine, "busy", lambda gpus: {})
    boards, settings, folder = gpus(2, 2), FleetSettings("gemm", repeats=2), Folder(tmp_path / "f")
    host = open_host(settings, on=Nodes())
    tally = run_fleet(settings, host, folder, on=Nodes("b"))
    lost = [(board.id, "vanished", "node-1: its node was lost") for board in boards[2:]]
    assert sorted({(one["gpu"], one["reason"], one["text"]) for one in folder.failures()}) == lost
    assert len(tally.missing) == 4
    assert not run_fleet(settings, host, folder, on=Nodes()).missing
    assert folder.failures() == []
    assert sorted(works[0]) == [(board.id, repeat) for board in boards for repeat in range(2)]
    assert folder.done() == {(board.node, board.id, repeat) for board in boards for repeat in range(2)}


def test_a_gpu_that_two_nodes_have_is_refused(monkeypatch):
    monkeypatch.setattr(engine, "find_gpus", lambda device, which, number: (gpus(1, 2), []))
    monkeypatch.setattr(engine, "busy", lambda gpus: {})
    with pytest.raises(NotPossibleError, match=r"GPU 0 of node-0 \(GPU-0000\) is on two nodes of the cluster"):
        open_host(FleetSettings("gemm"), on=Nodes())


def test_names_of_hosts_that_are_no_file_names_come_back_as_they_were(tmp_path):
    gpu = FleetGpu("rack 3/ü=1", "GPU-1", 0, "GPU-1")
    folder = Folder(tmp_path / "f")
    folder.add(Task(gpu, 0), run_of(Task(gpu, 0)))
    assert folder.done() == {("rack 3/ü=1", "GPU-1", 0)}


def test_two_fleets_into_one_folder_do_not_both_run(tmp_path, monkeypatch, works):
    settings, folder = FleetSettings("gemm", repeats=1), Folder(tmp_path / "f")
    inner = engine.FleetHost

    class Twice(inner):
        def at_once(self, group, note, hear):
            with pytest.raises(NotPossibleError, match=r"another jouletrace \(pid \d+\) is running a fleet into"):
                run_fleet(settings, host(1), Folder(tmp_path / "f"))
            assert works[0] == []
            super().at_once(group, note, hear)

    monkeypatch.setattr(engine, "FleetHost", Twice)
    run_fleet(settings, host(1), folder)
    assert works[0] == [("GPU-0000", 0)]


def test_a_fleet_with_a_killed_process_does_not_end_well(tmp_path, capsys, monkeypatch, works):
    works[1].add(("GPU-0001", 0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engine, "find_gpus", lambda *asked: (gpus(1, 2), []))
    monkeypatch.setattr(engine, "busy", lambda boards: {})
    said = command(capsys, "fleet", "run", "gemm", "--repeats", "1", "-o", "f", "--json")
    assert said.code == 3
    assert json.loads(said.out)["failures"][0]["text"] == "gone"
    line = "1 of 2 results could not be measured: gone; the same command with -o f tries again"
    assert said.err.splitlines()[-1] == f"jouletrace: {line}"
