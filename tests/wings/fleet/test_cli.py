"""``jouletrace fleet`` from end to end, on simulated GPUs in processes of their own."""

import json
import os

import pytest

from commands import command, options
from fleet_data import run_of, stored
from jouletrace.campaign.loop import PointOutcome
from jouletrace.cli import main
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.run import load, save
from jouletrace.wings.fleet import engine, plan
from jouletrace.wings.fleet.engine import open_host
from jouletrace.wings.fleet.plan import FleetGpu, FleetSettings, Task
from jouletrace.wings.fleet.progress import FleetProgress
from make_runs import profile_run

SIZE = ("--config", "size=4096")
NOISE = ("--noise", "gemm@1")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A fleet of two GPUs: what was printed, and where the results are."""
    pytest.importorskip("torch")
    import contextlib
    import io

    from jouletrace.cli import main

    place = tmp_path_factory.mktemp("fleet") / "f"
    short = ["--repeats", "1", "--seconds", "1", "--warmup", "0.5", "--idle", "0.3", "--mode", "graph"]
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setenv("JOULETRACE_CACHE", str(tmp_path_factory.mktemp("cache")))  # not what is known of GPUs here
        code = main.run(
            [
                "fleet",
                "run",
                "gemm",
                *SIZE,
                "--device",
                "sim:h100",
                "--gpus",
                "2",
                *NOISE,
                *short,
                "--price",
                "0.3EUR",
                "-o",
                str(place),
                "-v",
            ]
        )
    assert code == 0, err.getvalue()
    return place, out.getvalue(), err.getvalue()


@pytest.mark.thorough
def test_a_fleet_runs_prints_its_report_and_says_simulated(measured):
    _, out, err = measured
    assert "2 new results, 0 existed, 0 missing" in err
    assert "SIMULATED" in out
    assert "gemm 4096" in out
    assert "noise gemm@1 isn't simulated: figures are without it" in " ".join(out.split())
    assert "beside" not in out
    for words in ("GPU 0", "GPU 1", "between GPUs", "Worth asking for?", "Power limits"):
        assert words in out


@pytest.mark.thorough
def test_every_result_is_a_run_whose_figures_are_those_of_the_report(measured, capsys):
    place, _, _ = measured
    run = load(next(place.rglob("*1/repeat-0000.zip")))
    assert run.settings["fleet"]["placement"] == "together"
    assert (run.settings["price_per_kwh"], run.settings["currency"]) == (0.3, "EUR")
    assert len({load(path).settings["fleet"]["at_ns"] for path in place.rglob("*.zip")}) == 1, "a common start"
    assert len({load(path).devices[0].id for path in place.rglob("*.zip")}) == 2
    (group,) = json.loads(command(capsys, "fleet", "report", str(place), "--json").out)["groups"]
    row = next(gpu for gpu in group["gpus"] if gpu["gpu"] == run.devices[0].id)
    assert row["idle_w"] == run.result("baseline_deep_idle_w").value
    assert 50 < row["idle_w"] < 100
    assert row["clock_mhz"] > 600
    assert row["energy_j"]["value"]["value"] == pytest.approx(run.result("energy_total_j").value, rel=0.05)


@pytest.mark.thorough
def test_the_report_is_read_again_as_json_and_page(measured, capsys, tmp_path):
    pytest.importorskip("plotly")
    place, _, _ = measured
    page = tmp_path / "fleet.html"
    said = command(capsys, "fleet", "report", str(place), "--json", "--ask", "1", "-o", str(page))
    assert said.code == 0, said.err
    found = json.loads(said.out)["groups"][0]
    assert found["worth"]["label"] == "GPU 1"
    assert "GPU 1" in page.read_text()
    assert "SIMULATED" in page.read_text()


@pytest.mark.thorough
def test_runs_from_anywhere_make_a_fleet(measured, capsys):
    place, _, _ = measured
    runs = sorted(str(path) for path in place.rglob("*.zip"))
    said = command(capsys, "fleet", "report", *runs, "--json")
    assert said.code == 0, said.err
    assert [gpu["runs"] for gpu in json.loads(said.out)["groups"][0]["gpus"]] == [1, 1]


@pytest.mark.thorough
def test_a_run_that_is_cut_off_is_named_and_the_others_count(measured, capsys, tmp_path):
    place, _, _ = measured
    for number, path in enumerate(sorted(place.rglob("*.zip"))):
        (tmp_path / f"{number}.zip").write_bytes(path.read_bytes())
    (tmp_path / "cut.zip").write_bytes((tmp_path / "0.zip").read_bytes()[:-300])
    runs = [str(tmp_path / name) for name in ("0.zip", "cut.zip", "1.zip")]
    said = command(capsys, "fleet", "report", *runs, "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert [gpu["runs"] for gpu in found["groups"][0]["gpus"]] == [1, 1]
    (line,) = found["damaged"]
    assert line.startswith(f"{runs[1]} is neither a folder nor a readable zip file")
    assert line.endswith("left out")
    alone = command(capsys, "fleet", "report", runs[1])
    assert (alone.code, alone.complaint.startswith(f"jouletrace: {runs[1]} is neither")) == (2, True)
    missing = command(capsys, "fleet", "report", runs[0], f"{tmp_path}/no.zip")
    assert (missing.code, "no Run at" in missing.complaint) == (2, True)


@pytest.mark.thorough
def test_the_same_command_again_measures_nothing_new(measured, capsys):
    place, _, _ = measured
    about = json.loads((place / "fleet.json").read_text())
    assert len(about["gpus"]) == 2
    said = command(
        capsys, "fleet", "run", "gemm", *SIZE, "--device", "sim:h100", "--gpus", "2", *NOISE, "-o", str(place)
    )
    assert said.code == 2
    assert 'holds a fleet with other settings (profile mode: "graph", not "eager")' in said.complaint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("gem",), "unknown workload 'gem'"),
        (
            ("deit-t", "--detail", "phase", "-d", "sim:h100"),
            "--detail phase: an inference has no phases; --task train (",
        ),
        (("gemm", "--device", "sim:h100", "--gpus", "x"), "give their number"),
        (("gemm", "--device", "sim:h100?seed=1", "--gpus", "2"), "a fleet chooses the seed and the run itself"),
        (("gemm", "--device", "sim:h100?realtime=1"), "run in virtual time"),
        (("gemm", "--device", "cuda:1"), "choose GPUs by --gpus"),
        (("gemm", "--device", "sim:h100", "--noise", "gemm@1"), "has no GPU 1; it has [0]"),
        (("gemm", "--device", "sim:h100", "--placement", "at-once"), "together, in-turn"),
        (("gemm", "--device", "sim:h100", "--repeats", "0"), "must be at least 1"),
        (("memcpy", "--config", "size=auto"), "--config size=auto: memcpy needs a whole number"),
        (("gemm", "--config", "size=auto"), "find it by profile gemm --config size=auto"),
        (("gemm", "--config", "size=0"), "--config size=0: gemm needs a whole number of 1 or more"),
        (("memcpy", "--config", "iterations=-1"), "--config iterations=-1: memcpy needs a whole number"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line_before_anything_runs(arguments, complaint, capsys, workspace):
    said = command(capsys, "fleet", "run", *arguments)
    assert said.code == 2
    assert complaint in said.complaint
    assert not (workspace / "runs").exists()


def test_a_run_counts_once(capsys, tmp_path, monkeypatch):
    """Given twice it would make a fleet of two repeats that agree."""
    (tmp_path / "a.zip").touch()
    monkeypatch.chdir(tmp_path)
    said = command(capsys, "fleet", "report", "a.zip", f"{tmp_path}/a.zip")
    assert said.code == 2
    assert said.complaint.endswith("a.zip is given twice")


@pytest.mark.thorough
def test_asking_for_a_gpu_that_is_not_there_names_those_that_are(tmp_path, capsys):
    stored(tmp_path / "f", [1, 1.01], repeats=1)
    said = command(capsys, "fleet", "report", str(tmp_path / "f"), "--ask", "7")
    assert said.code == 2
    assert "GPU 0, GPU 1" in said.complaint
    for ask in ("1", "gpu 1", "GPU 1", "node-0:1", "gpu-0001"):
        said = command(capsys, "fleet", "report", str(tmp_path / "f"), "--ask", ask)
        assert "worth asking for GPU 1: " in said.out


@pytest.mark.thorough
def test_of_several_hosts_the_host_must_be_asked_for_too(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = []
    for node in range(2):
        for place in range(2):
            gpu = FleetGpu(f"node-{node}", f"GPU-{node}{place}", place, "")
            runs.append(f"{node}{place}.zip")
            save(run_of(Task(gpu, 0), 1 + 0.01 * place), runs[-1])
    for ask, candidates in (("1", "node-0:1, node-1:1"), ("GPU-0", "node-0:0, node-0:1")):
        said = command(capsys, "fleet", "report", *runs, "--ask", ask)
        assert said.code == 2
        assert f"--ask {ask}: several are meant; write one of {candidates}" in said.complaint
    for ask in ("node-1:1", "node-1:GPU 1"):
        assert "worth asking for node-1:1: " in command(capsys, "fleet", "report", *runs, "--ask", ask).out


def watched(capsys, quiet=False):
    """The report of three results, of which one is missing twice."""
    boards = [FleetGpu("a", "GPU-a", 0, "GPU-a"), FleetGpu("b", "GPU-b", 0, "GPU-b")]
    progress = FleetProgress(boards, quiet)
    with progress:
        progress.begin(4, 1)
        progress.outcome(PointOutcome(Task(boards[1], 0)))
        progress.outcome(PointOutcome(Task(boards[0], 1), "timed_out", "it took too long"))
        progress.outcome(PointOutcome(Task(boards[1], 1), "timed_out", "it took too long"))
    return capsys.readouterr()


def test_without_a_terminal_each_result_is_a_line_on_stderr(capsys):
    said = watched(capsys)
    assert said.out == ""
    assert said.err.splitlines() == ["2 of 4 done: b:0, repeat 0", "a:0, repeat 1: it took too long"]


def test_beside_json_only_failures_are_reported(capsys):
    assert watched(capsys, quiet=True).err.splitlines() == ["a:0, repeat 1: it took too long"]


HERE = [FleetGpu("host", f"GPU-{name}", n, f"GPU-{name}") for n, name in enumerate(("aa11", "aa22", "bb33"))]


def test_gpus_are_named_by_place_or_beginning_of_uuid():
    taken, rest = plan.chosen(HERE, "2,gpu-aa1")
    assert ([gpu.id for gpu in taken], [gpu.id for gpu in rest]) == (["GPU-bb33", "GPU-aa11"], ["GPU-aa22"])
    assert plan.chosen(HERE, "all") == (HERE, [])
    for wrong, words in (("3", "there is no GPU '3'"), ("GPU-aa", "several begin with"), ("0,,1", "no GPU ''")):
        with pytest.raises(BadInputError, match=words):
            plan.chosen(HERE, wrong)


def test_cuda_order_counts_and_hidden_gpus_are_left_out(monkeypatch):
    from jouletrace.run import DeviceInfo

    infos = [DeviceInfo(f"GPU-{n}", "H200", host="host", index=n) for n in range(3)]
    monkeypatch.setattr(plan, "no_gpu_reason", lambda: None)
    monkeypatch.setattr(plan, "list_devices", lambda: infos)
    monkeypatch.setattr(plan, "cuda_uuids", lambda: ["GPU-2", "GPU-0"])
    assert [(gpu.index, gpu.id) for gpu in plan.visible()] == [(0, "GPU-2"), (1, "GPU-0")]
    monkeypatch.setattr(plan, "cuda_uuids", list)
    with pytest.raises(NotPossibleError, match="CUDA shows no whole GPU"):
        plan.visible()


def test_a_fleet_of_which_every_gpu_is_busy_is_not_begun(monkeypatch):
    monkeypatch.setattr(engine, "find_gpus", lambda *asked: (HERE, []))
    monkeypatch.setattr(engine, "busy", lambda gpus: {gpu.id: f"{gpu} is in use" for gpu in gpus})
    with pytest.raises(NotPossibleError, match="--allow-busy"):
        open_host(FleetSettings("gemm"))
    assert open_host(FleetSettings("gemm"), allow_busy=True).excluded == {}


def test_a_fleet_does_not_go_into_the_folder_of_a_run(capsys, workspace):
    (workspace / "old").mkdir()
    (workspace / "old" / "run.json").write_text("{}")
    said = command(capsys, "fleet", "run", "gemm", "--device", "sim:h100", "-o", "old")
    assert said.code == 2
    assert said.complaint == "jouletrace: old is not empty and holds no fleet"
    assert os.listdir(workspace / "old") == ["run.json"]


@pytest.mark.parametrize("arguments", [("--worth", "nan"), ("--worth", "-5%"), ("--worth", "200%")])
def test_shares_of_a_report_lie_between_0_and_all(capsys, arguments):
    said = command(capsys, "fleet", "report", "anything", *arguments)
    assert said.code == 2
    assert said.complaint == f"jouletrace: {' '.join(arguments)}: must lie between 0 and 100 %"


def test_one_run_and_a_folder_of_runs_are_answered_with_what_to_give(capsys, workspace):
    for name in ("one", "two"):
        save(profile_run(), workspace / "mine" / name)
    assert main.run(["fleet", "report", "mine"]) == 2
    assert "no fleet in mine, but 2 Runs: jouletrace fleet report mine/*" in capsys.readouterr().err
    assert main.run(["fleet", "report", "mine/one"]) == 0
    assert "one GPU: nothing to compare it with; give Runs of several GPUs" in capsys.readouterr().out


def test_a_fleet_takes_the_options_of_profile():
    own = {"--target-ci", "--max-time", "--backend", "--threads", "--streams", "--hint", "--format", "--advice"}
    own |= {"--absolute"}  # a fleet compares GPUs, between which gains differ
    assert {"--config", "--detail", "--l2"} <= options("fleet", "run")
    assert options("profile") - options("fleet", "run") <= own
