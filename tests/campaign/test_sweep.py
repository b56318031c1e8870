"""Grids of profiles: resumed, with points that fail, and under power limits that come back."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import jouletrace as jt
from commands import PATIENCE_S, command, wait_for
from fake_nvml import FakeNvml, NVMLError, h100
from jouletrace.analysis import analyse
from jouletrace.campaign import SweepGrid, parse_limits, run_sweep
from jouletrace.campaign.limits import judge
from jouletrace.campaign.sweep import _settings_of, varied
from jouletrace.devices import open_device
from jouletrace.devices.nvml import Nvml, NvmlGpu
from jouletrace.errors import BadInputError, NotPossibleError, RecorderDiedError, TerminatedError
from jouletrace.processes import journal_of, locks
from jouletrace.profiler import GpuSettings, ProfileSettings, restore
from jouletrace.report.sweep import Entry, Sweep, render
from jouletrace.run import MODEL_UNIT, DeviceInfo, Estimate, load, save, tables
from jouletrace.workloads import resolve
from make_runs import START, profile_run
from places import SUPPORT
from records import DEVICE, iterations, make_run, phases, readings, windows

HERE = SUPPORT
SETTINGS = ProfileSettings(device="sim:h100")
GRID = SweepGrid(("deit-t",), batch=(1, 8, 64))

TOY = """
import torch

def toy(batch=16):
    return torch.nn.Linear(256, 256).half(), torch.randn(batch, 256).half()

def hangs(batch=16):
    while True:
        pass
"""


class Runner:
    """Stands in for fresh processes: saves a Run, or fails as reported by batch."""

    def __init__(self, **failures):
        self.failures = {int(key[1:]): error for key, error in failures.items()}
        self.ran, self.limits_w = [], []

    def __call__(self, workload, settings, folder, limit_s):
        self.ran.append((settings.batch, settings.device))
        self.limits_w.append(open_device(settings.device).limit_w())
        if settings.batch in self.failures:
            raise self.failures[settings.batch]
        run = profile_run(batch=settings.batch, scale=settings.batch / 64)
        run.workload |= {"items": settings.batch, "name": resolve(workload).name}
        run.settings = settings.to_dict()
        save(run, folder)


@pytest.mark.thorough
def test_every_point_gets_a_run_of_its_own(tmp_path):
    runner = Runner()
    found, _ = run_sweep(GRID, SETTINGS, tmp_path / "s", runner=runner)
    assert [entry.point["batch"] for entry in found] == [1, 8, 64]
    assert {entry.outcome for entry in found} == {"done"}
    assert [load(entry.place).workload["batch"] for entry in found] == [1, 8, 64]
    assert [device for _, device in runner.ran] == ["sim:h100?run=0", "sim:h100?run=1", "sim:h100?run=2"]


@pytest.mark.thorough
def test_a_sweep_is_resumed_where_it_ended(tmp_path):
    first = Runner(b8=KeyboardInterrupt())
    assert isinstance(run_sweep(GRID, SETTINGS, tmp_path / "s", runner=first)[1].ended_by, KeyboardInterrupt)
    second = Runner()
    found, _ = run_sweep(GRID, SETTINGS, tmp_path / "s", runner=second)
    assert [batch for batch, _ in second.ran] == [8, 64]
    assert {entry.outcome for entry in found} == {"done"}


@pytest.mark.thorough
def test_a_point_interrupted_before_its_figures_is_measured_again(tmp_path):
    first = Runner(b64=KeyboardInterrupt())
    assert isinstance(run_sweep(GRID, SETTINGS, tmp_path / "s", runner=first)[1].ended_by, KeyboardInterrupt)
    (place,) = [run.parent for run in (tmp_path / "s").rglob("run.json") if load(run).workload["batch"] == 8]
    recorded = load(place)
    recorded.results = tables.empty("results")
    save(recorded, place, overwrite=True)
    second = Runner()
    run_sweep(GRID, SETTINGS, tmp_path / "s", runner=second)
    assert [batch for batch, _ in second.ran] == [8, 64]


def test_a_point_that_runs_out_of_memory_is_reported_to(tmp_path):
    runner = Runner(b64=NotPossibleError("deit: out of memory; try a smaller --batch"))
    found, _ = run_sweep(GRID, SETTINGS, tmp_path / "s", runner=runner)
    assert [entry.outcome for entry in found] == ["done", "done", "out_of_memory"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("error", "outcome", "said"),
    [
        (BadInputError("no such thing"), "bad_input", "no such thing"),
        (RuntimeError("a run failed:\nTraceback\nValueError: bug"), "failed", "ValueError: bug"),
        (TimeoutError("deit-t: no result after 5 s"), "timed_out", "no result after 5 s"),
    ],
)
def test_a_point_that_fails_is_recorded_and_tried_again_when_resumed(tmp_path, error, outcome, said):
    found, _ = run_sweep(GRID, SETTINGS, tmp_path / "s", limit_s=5, runner=Runner(b8=error))
    assert found[1].outcome == outcome
    assert said in found[1].reason
    assert found[2].outcome == "done"
    again = Runner()
    run_sweep(GRID, SETTINGS, tmp_path / "s", runner=again)
    assert [batch for batch, _ in again.ran] == [8]


class Repeated(Runner):
    """Saves Runs whose energy differs by run, as their samples and windows say."""

    def __call__(self, workload, settings, folder, limit_s):
        self.ran.append((settings.batch, folder.name))
        error = self.failures.get(settings.batch)
        if error is not None:
            raise error
        watts = 100.0 * settings.batch + int(folder.name)
        spans = phases(("energy", 1.0, 3.0)) + iterations(10, 0.01)
        run = make_run(readings(watts, 4), spans=spans, window_rows=windows([(1.0, 2.0), (2.0, 3.0)]))
        run.devices = [DeviceInfo(DEVICE, "GPU by hand", simulated=True)]
        run.workload["name"], run.settings = resolve(workload).name, settings.to_dict()
        save(analyse(run), folder)


@pytest.mark.thorough
def test_repeats_go_through_the_grid_in_turn_and_give_each_point_the_spread_of_its_runs(tmp_path):
    grid, first = SweepGrid(("deit-t",), batch=(1, 2)), Repeated(b2=NotPossibleError("lost"))
    found, tally = run_sweep(grid, SETTINGS, tmp_path / "s", repeats=3, runner=first)
    assert first.ran == [(1, "1"), (2, "1"), (1, "2"), (1, "3")], "what failed is not tried twice"
    assert [(entry.outcome, entry.run is not None) for entry in found] == [("done", True), ("not_possible", False)]
    assert len(tally.missing) == 3
    energy = found[0].run.result("energy_total_j")
    assert energy.method == "runs"
    assert energy.value == pytest.approx(0.1 * 102, rel=1e-3)
    assert energy.high - energy.value == pytest.approx(0.1 * 4.303 / 3**0.5, rel=0.1), "of runs 1 W apart, t of 2"
    second = Repeated()
    found, _ = run_sweep(grid, SETTINGS, tmp_path / "s", repeats=3, runner=second)
    assert second.ran == [(2, "1"), (2, "2"), (2, "3")]
    assert {entry.outcome for entry in found} == {"done"}
    assert load(tmp_path / "s" / "points" / "deit-t-b1").settings["repeats"] == 3
    with pytest.raises(BadInputError, match="repeats: 3, not 1"):
        run_sweep(grid, SETTINGS, tmp_path / "s", runner=second)


@pytest.mark.thorough
def test_repeats_of_a_sweep_that_is_interrupted_go_on_with_the_next_run(tmp_path):
    class Breaks(Repeated):
        def __call__(self, *given):
            if len(self.ran) == 3:
                raise KeyboardInterrupt
            super().__call__(*given)

    grid = SweepGrid(("deit-t",), batch=(1, 2))
    found, _ = run_sweep(grid, SETTINGS, tmp_path / "s", repeats=2, runner=Breaks())
    assert [entry.outcome for entry in found] == ["done", "interrupted"]
    assert not found[1].run.complete
    again = Repeated()
    found, _ = run_sweep(grid, SETTINGS, tmp_path / "s", repeats=2, runner=again)
    assert again.ran == [(2, "2")]
    assert found[1].run.complete
    assert found[1].run.result("energy_total_j").value == pytest.approx(0.1 * 201.5, rel=1e-3)


@pytest.mark.thorough
def test_a_run_that_has_gone_missing_is_measured_again(tmp_path):
    import shutil

    found, _ = run_sweep(GRID, SETTINGS, tmp_path / "s", runner=Runner())
    shutil.rmtree(found[0].place)
    again = Runner()
    run_sweep(GRID, SETTINGS, tmp_path / "s", runner=again)
    assert [batch for batch, _ in again.ran] == [1]


@pytest.mark.thorough
def test_a_grid_can_grow(tmp_path):
    run_sweep(GRID, SETTINGS, tmp_path / "s", runner=Runner())
    again = Runner()
    found, _ = run_sweep(SweepGrid(("deit-t",), batch=(1, 8, 64, 128)), SETTINGS, tmp_path / "s", runner=again)
    assert [batch for batch, _ in again.ran] == [128]
    assert len(found) == 4


def test_where_nothing_could_be_measured_the_reasons_are_reported(tmp_path):
    runner = Runner(b1=BadInputError("it is broken"))
    with pytest.raises(BadInputError, match="none of 1 points could be measured: it is broken"):
        run_sweep(SweepGrid(("deit-t",), batch=(1,)), SETTINGS, tmp_path / "s", runner=runner)


@pytest.mark.parametrize(
    ("grid", "settings", "said"),
    [
        (SweepGrid(()), SETTINGS, "no workload"),
        (SweepGrid(("nothing-like-it",)), SETTINGS, "unknown workload"),
        (SweepGrid(("deit-t",), batch=(0,)), SETTINGS, "--batch 0"),
        (SweepGrid(("deit-t",), dtype=("int3",)), SETTINGS, "--dtype int3"),
        (SweepGrid(("deit-t",), batch=(1, 1)), SETTINGS, "occurs twice"),
        (SweepGrid(("deit-t",), power_limit_w=(300.0,)), SETTINGS, "add --yes"),
        (SweepGrid(("deit-t",), power_limit_w=(50.0,)), SETTINGS, "allows 200 to 700 W"),
        (SweepGrid(("deit-t",), power_limit_w=(300.0,)), ProfileSettings(device="cpu"), "only a whole GPU"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(tmp_path, grid, settings, said):
    runner = Runner()
    with pytest.raises(BadInputError, match=said):
        run_sweep(grid, settings, tmp_path / "s", runner=runner)
    assert runner.ran == []


@pytest.mark.thorough
def test_another_sweep_or_anything_else_in_the_folder_is_not_touched(tmp_path):
    run_sweep(GRID, SETTINGS, tmp_path / "s", runner=Runner())
    with pytest.raises(BadInputError, match=r"holds a sweep with other settings .warmup_s: 5.0, not 1.0"):
        run_sweep(GRID, ProfileSettings(device="sim:h100", warmup_s=1.0), tmp_path / "s", runner=Runner())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("x")
    with pytest.raises(BadInputError, match="is not empty and holds no sweep"):
        run_sweep(GRID, SETTINGS, tmp_path / "other", runner=Runner())
    (tmp_path / "s" / "sweep.json").write_text("{")
    with pytest.raises(BadInputError, match=r"sweep\.json can't be read"):
        run_sweep(GRID, SETTINGS, tmp_path / "s", runner=Runner())


@pytest.mark.parametrize("option", [{"repeats": 0}, {"repeats": 1.5}, {"limit_s": -1}, {"limit_s": "a"}])
def test_a_number_that_is_none_is_named_before_anything_is_measured(tmp_path, option):
    with pytest.raises(BadInputError, match="must be"):
        run_sweep(GRID, SETTINGS, tmp_path / "s", runner=Runner(), **option)
    assert not (tmp_path / "s").exists()


@pytest.mark.thorough
def test_two_sweeps_into_one_folder_do_not_both_run(tmp_path):
    def runner(workload, settings, folder, limit_s):
        with pytest.raises(NotPossibleError, match=r"is running a sweep into .*s: wait for it to end"):
            run_sweep(GRID, SETTINGS, tmp_path / "s", runner=Runner())
        Runner()(workload, settings, folder, limit_s)

    assert len(run_sweep(GRID, SETTINGS, tmp_path / "s", runner=runner)[0]) == 3


@pytest.mark.thorough
def test_a_sweep_with_points_that_failed_does_not_end_well(capsys, workspace, monkeypatch):
    runner = Runner(b8=RecorderDiedError("a run was killed by signal 9"))
    monkeypatch.setattr(run_sweep, "__kwdefaults__", {**run_sweep.__kwdefaults__, "runner": runner})
    said = command(capsys, "sweep", "deit-t", "--batch", "1,8", "-d", "sim:h100", "-o", "s", "--json")
    assert said.code == 3
    assert [point["outcome"] for point in json.loads(said.out)["points"]] == ["done", "vanished"]
    assert command(capsys, "show", "s", "--json").out == said.out
    line = "1 of 2 points could not be measured: a run was killed by signal 9; the same command with -o s tries again"
    assert said.err.splitlines()[-1] == f"jouletrace: {line}"


@pytest.mark.thorough
@pytest.mark.parametrize("error", [KeyboardInterrupt(), TerminatedError()])
def test_a_sweep_that_is_broken_off_prints_the_points_so_far_and_how_to_go_on(capsys, workspace, monkeypatch, error):
    monkeypatch.setitem(run_sweep.__kwdefaults__, "runner", Runner(b8=error))
    arguments = ("sweep", "deit-t", "--batch", "1,8,64", "-d", "sim:h100", "-o", "s", "--json")
    said = command(capsys, *arguments)
    assert said.code == 130
    points = json.loads(said.out)["points"]
    assert [point["outcome"] for point in points] == ["done", "interrupted", "interrupted"]
    assert points[0]["energy_per_sample_j"]["value"] > 0
    assert "1 of 3 points are measured; the same command with -o s goes on" in said.err
    again = Runner()
    monkeypatch.setitem(run_sweep.__kwdefaults__, "runner", again)
    assert command(capsys, *arguments).code == 0
    assert [batch for batch, _ in again.ran] == [8, 64]


# the table


@pytest.mark.thorough
def test_the_table_says_why_points_are_missing(tmp_path):
    runner = Runner(b64=NotPossibleError("deit: out of memory; try a smaller --batch"))
    found, _ = run_sweep(GRID, SETTINGS, tmp_path / "s", runner=runner)
    for form in ("table", "markdown"):
        text = " ".join(render(found, form).split())
        assert "out of memory: deit: out of memory" in text
        assert "batch" in text
    data = json.loads(render(found, "json"))
    assert [point["outcome"] for point in data["points"]] == ["done", "done", "out_of_memory"]
    assert data["points"][0]["energy_per_sample_j"]["value"] == pytest.approx(4.652 / 64)


# power limits and clocks

LIMIT, CLOCK = {"power_limit": [300.0]}, {"clock": [1200.0]}


def limited(tmp_path, runner, limits=(300.0, 400.0)):
    grid = SweepGrid(("deit-t",), batch=(1,), power_limit_w=limits)
    return run_sweep(grid, SETTINGS, tmp_path / "s", permitted=True, runner=runner)


@pytest.mark.thorough
def test_power_limits_are_set_in_turn_and_brought_back(tmp_path):
    runner = Runner()
    limited(tmp_path, runner)
    assert [device for _, device in runner.ran] == ["sim:h100?run=0", "sim:h100?run=1"]
    assert runner.limits_w == [300.0, 400.0]
    limiter = open_device("sim:h100")
    assert limiter.limit_w() == 700.0
    assert not journal_of(limiter.info).exists()


@pytest.mark.thorough
def test_a_point_whose_clock_is_not_in_force_is_a_row_that_is_not_recommended(tmp_path):
    class Locked(Runner):
        def __call__(self, workload, settings, folder, limit_s):
            self.ran.append(mhz := open_device(settings.device).clock_mhz())
            mhz = min(mhz, 1500.0)  # by the power cap
            run = profile_run(batch=1, scale=mhz / 1980)
            run.workload |= {"items": 1, "name": resolve(workload).name}
            run.settings = settings.to_dict()
            run.windows = tables.from_rows([{**one, "counted_mhz": mhz} for one in windows([(0, 1)])], "windows")
            save(run, folder)

    grid = SweepGrid(("deit-t",), batch=(1,), clock_mhz=(1700.0, 1500.0))
    runner = Locked()
    found, _ = run_sweep(grid, SETTINGS, tmp_path / "s", permitted=True, runner=runner)
    assert runner.ran == [1695.0, 1500.0]
    assert [bool(entry.not_taken) for entry in found] == [True, False]
    said = " ".join(render(found).split())
    assert "1700: SM clock of 1695 MHz not in force: the power cap lowered it; measured: 1500 MHz" in said
    assert re.search("least energy.*: clock .MHz. 1500: ", said)
    points = json.loads(render(found, "json"))["points"]
    assert points[0]["point"]["clock_mhz"] == 1700.0
    assert points[0]["read"] == {"clock read (MHz)": 1695.0, "SM clock (MHz)": 1500.0}
    assert [point["not_in_force"] is None for point in points] == [False, True]
    again, _ = run_sweep(grid, SETTINGS, tmp_path / "s", permitted=True, runner=runner)
    assert len(runner.ran) == 2, "as resumed, without measuring again"
    assert [entry.not_taken for entry in again] == [entry.not_taken for entry in found]
    assert open_device("sim:h100").clock_mhz() == 345.0


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError("a bug")])
def test_the_power_limit_comes_back_after_ctrl_c_and_after_a_bug(tmp_path, error):
    assert limited(tmp_path, Runner(b1=error))[1].ended_by is error
    assert open_device("sim:h100").limit_w() == 700.0


CRASH = """
import os
import shutil
from commands import children_of
from jouletrace.profiler.gpu_settings import GpuSettings
settings = GpuSettings("sim:h100", {"power_limit": [300.0]})
with settings.changing():
    settings.set({"power_limit": 300.0})
    for watcher in children_of(os.getpid()):
        os.kill(watcher, 9)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.thorough
def test_after_a_crash_of_all_the_next_sweep_or_restore_brings_the_power_limit_back(tmp_path, capsys):
    """As after a power cut: the watcher is gone too."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, "-c", CRASH], check=False, env=environment)
    limiter = open_device("sim:h100")
    assert limiter.limit_w() == 300.0
    assert command(capsys, "sweep", "--restore", "-d", "sim:h100").err == "the power limit is 700 W again\n"
    assert limiter.limit_w() == 700.0
    assert restore("sim:h100") == []
    subprocess.run([sys.executable, "-c", CRASH], check=False, env=environment)
    assert limiter.limit_w() == 300.0
    limited(tmp_path, Runner())
    assert limiter.limit_w() == 700.0


def test_two_at_once_are_refused(tmp_path):
    with (
        GpuSettings("sim:h100", LIMIT).changing(),
        pytest.raises(NotPossibleError, match="another jouletrace"),
        GpuSettings("sim:h100", CLOCK).changing(),
    ):
        pass


def test_a_damaged_journal_is_not_overwritten():
    limiter = open_device("sim:h100")
    journal_of(limiter.info).parent.mkdir(parents=True, exist_ok=True)
    journal_of(limiter.info).write_text("{")
    with pytest.raises(BadInputError, match="can't be read"), GpuSettings("sim:h100", LIMIT).changing():
        pass
    assert journal_of(limiter.info).read_text() == "{"


def test_a_journal_that_cannot_be_written_changes_nothing(monkeypatch):
    limiter = open_device("sim:h100")
    monkeypatch.setattr(locks.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "no space left")))
    settings = GpuSettings("sim:h100", LIMIT)
    with pytest.raises(NotPossibleError, match="nothing was changed"), settings.changing():
        settings.set({"power_limit": 300.0})
    assert limiter.limit_w() == 700.0


class Limited(FakeNvml):
    """A driver that sets limits, or refuses."""

    refusal = 0

    def nvmlDeviceSetPowerManagementLimit(self, board, milliwatts):
        if self.refusal:
            raise NVMLError(self.refusal)
        self.was_set = milliwatts

    def nvmlDeviceGetPowerManagementLimit(self, board):
        return getattr(self, "was_set", 700_000)


def test_an_nvidia_gpu_takes_its_limit_in_milliwatts():
    board = h100()
    limiter = NvmlGpu(board.uuid, Nvml(Limited(board)))
    assert limiter.limit_w() == 700.0
    limiter.set_limit(450.0)
    assert limiter.limit_w() == 450.0
    limiter.close()


@pytest.mark.parametrize(("code", "said"), [(4, "needs root"), (3, "not supported")])
def test_an_nvidia_gpu_that_refuses_a_limit_says_why(code, said):
    board = h100()
    library = Limited(board)
    library.refusal = code
    with pytest.raises(NotPossibleError, match=said):
        NvmlGpu(board.uuid, Nvml(library)).set_limit(450.0)


# the command, with real processes


@pytest.fixture
def toy(workspace):
    pytest.importorskip("torch")
    (workspace / "toy.py").write_text(TOY)
    return workspace


@pytest.mark.thorough
def test_python_sweeps_as_the_command_does(capsys, workspace, monkeypatch):
    """One call: the table that the command prints of the same folder, the Runs, a frame, and a refusal."""
    runner = Runner(_8=NotPossibleError("8 is too much"))
    monkeypatch.setitem(run_sweep.__kwdefaults__, "runner", runner)
    found = jt.sweep("deit-t", batch=[1, 8], dtype="fp16", device="sim:h100", folder="s", progress=False)
    terminal = command(capsys, "sweep", "deit-t", "--batch", "1,8", "--dtype", "fp16", "-d", "sim:h100", "-o", "s")
    assert (f"{found}\n", terminal.code) == (terminal.out, 3)
    assert "8: not possible: 8 is too much" in str(found)
    assert [run.workload["batch"] for run in found.runs] == [1]
    rows = found.to_pandas().to_dict("records")
    assert [(row["batch"], row["outcome"]) for row in rows] == [(1, "done"), (8, "not_possible")]
    assert rows[0]["power_w_low"] < rows[0]["power_w"] == found.runs[0].result("power_w").value
    assert repr(found) == "Sweep(2 points, 1 with a Run, 's')"


@pytest.mark.parametrize(
    ("workloads", "options", "said"),
    [
        ((), {}, "no workload is named"),
        ((len,), {}, "name what each process builds"),
        (("deit-t",), {"batch": "many"}, "--batch 'many': must be a whole number"),
        (("deit-t",), {"warm_up": 1}, "sweep.. has no option 'warm_up'; did you mean 'warmup_s'"),
        (("deit-t",), {"power_limit": "low"}, "--power-limit 'low': must be a number of watts"),
        (("deit-t",), {"repeats": 0}, "--repeats 0"),
    ],
)
def test_what_python_can_not_sweep_is_refused_in_one_line_and_leaves_nothing(workspace, workloads, options, said):
    with pytest.raises(BadInputError, match=said) as caught:
        jt.sweep(*workloads, device="sim:h100", progress=False, **options)
    assert "\n" not in str(caught.value)
    assert not list(workspace.glob("runs/*"))


def test_values_of_a_configuration_are_points_of_a_grid():
    fixed, config = varied({"size": "1024, 4096", "iterations": "2", "alpha": [1, 2]})
    assert fixed == {"iterations": "2"}
    assert config[0] == "size=1024,alpha=1"
    assert [point["config"] for point in SweepGrid(("gemm",), config=config).points()] == list(config)
    given = _settings_of(SweepGrid(("gemm",), config=config).points()[-1], ProfileSettings(config=fixed))
    assert given.config == {"iterations": "2", "size": "4096", "alpha": "2"}


@pytest.mark.slow
def test_the_command_prints_a_table_and_its_runs_can_be_shown(capsys, toy):
    options = ("-d", "sim:h100", "--warmup", "0.3", "--max-time", "1", "-o", "s")
    said = command(capsys, "sweep", "toy.py:toy", "--batch", "64,2147483647", *options, "--json")
    assert said.code == 0
    points = json.loads(said.out)["points"]
    assert [point["outcome"] for point in points] == ["done", "out_of_memory"]
    assert command(capsys, "show", points[0]["run"]).code == 0


@pytest.mark.thorough
def test_a_point_that_hangs_is_ended(capsys, toy):
    said = command(capsys, "sweep", "toy.py:hangs", "-d", "sim:h100", "--point-limit", "1", "-o", "s")
    assert said.code == 3
    assert "no result after 1 s" in said.err


@pytest.mark.thorough
def test_ctrl_c_leaves_a_sweep_that_can_be_resumed(toy):
    arguments = [sys.executable, "-m", "jouletrace", "sweep", "toy.py:hangs", "-d", "sim:h100", "-o", "s"]
    process = subprocess.Popen(
        [*arguments, "--power-limit", "300", "--yes"], cwd=toy, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: journal_of(open_device("sim:h100").info).exists())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "interrupted" in err
    assert open_device("sim:h100").limit_w() == 700.0
    assert (toy / "s" / "sweep.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["deit-t", "--batch", "1,x"], "'x' is not a number"),
        (["deit-t", "--dtype", "fp16,"], "a value is missing"),
        ([], "no workload"),
        (["deit-t", "--format", "yaml"], "it is one of table"),
    ],
)
def test_wrong_use_gets_one_line_and_leaves_nothing(capsys, workspace, arguments, said):
    found = command(capsys, "sweep", *arguments)
    assert found.code == 2
    assert said in found.complaint
    assert not list(workspace.glob("runs/*"))


@pytest.mark.thorough
def test_points_of_which_compare_shows_no_difference_from_the_best_are_named():
    def entry(batch, joules, half, work=None):
        run = profile_run()
        run.workload["items"] = 1
        rows = [row for row in run.results.to_pylist() if row["metric"] != "energy_total_j"]
        for metric, value in (("energy_total_j", joules), ("energy_work_j", work)):
            if value is not None:
                energy = Estimate(value, value - half, value + half, 9, "windows").to_dict()
                stated = {"unit": MODEL_UNIT, "metric": metric, "flags": "between_runs_stored"}
                rows.append({**dict.fromkeys(rows[0]), **energy, **stated})
        run.results = tables.from_rows(rows, "results")
        return Entry({"workload": "deit-b", "batch": batch}, "done", "", "", run)

    said = " ".join(render([entry(1, 1.0, 0.05), entry(8, 1.02, 0.05), entry(64, 1.5, 0.05)]).split())
    assert "no difference in energy seen from batch 8" in said
    assert "% absolute)" in said
    assert "least work" not in said
    near, far = (render([entry(1, 1.0, 0.001), entry(8, joules, 0.001)]) for joules in (1.02, 1.1))
    assert "in energy" in near, "single runs scatter by up to 1 %"
    assert "in energy" not in far
    apart = " ".join(render([entry(1, 1.0, 0.001, 0.9), entry(8, 1.1, 0.001, 0.8)]).split())
    assert "least work: batch 8" in apart
    assert "of it work" in apart


def test_rows_name_their_gpu_where_points_ran_on_several():
    def entry(batch, gpu):
        run = profile_run()
        run.devices[0].id, run.devices[0].index = f"GPU-{gpu}", gpu
        return Entry({"workload": "deit-b", "batch": batch}, "done", "", "", run)

    two, one = [entry(1, 0), entry(8, 3)], [entry(1, 0), entry(8, 0)]
    said = " ".join(render(two).split())
    assert "points ran on 2 GPUs, whose sensors differ by up to 7 %" in said
    assert {"#0", "#3"} <= set(said.split())
    assert [point["gpu"] for point in json.loads(render(two, "json"))["points"]] == ["GPU-0", "GPU-3"]
    assert "sensors differ" not in render(one)
    assert "gpu" not in json.loads(render(one, "json"))["points"][0]


def test_points_are_judged_with_care_where_their_intervals_hold_a_stored_scatter():
    def entries(flags):
        found = []
        for batch in (1, 8):
            run = profile_run()
            rows = [{**row, "flags": flags if row["unit"] == MODEL_UNIT else ""} for row in run.results.to_pylist()]
            run.results = tables.from_rows(rows, "results")
            found.append(Entry({"workload": "deit-b", "batch": batch}, "done", "", "", run))
        return found

    said = "the scatter between runs is a stored one"
    both = " ".join(render(entries("between_runs_stored")).split())
    assert "trust: with care" in both
    assert said in both
    assert said not in " ".join(render(entries("")).split())
    assert said not in " ".join(render(entries("between_runs_stored")[:1]).split())


@pytest.mark.thorough
def test_single_runs_in_a_sweep_come_with_the_way_to_compare_them(capsys, workspace, monkeypatch):
    class Stored(Runner):
        def __call__(self, workload, settings, folder, limit_s):
            run = profile_run(batch=settings.batch)
            rows = [{**row, "flags": "between_runs_stored"} for row in run.results.to_pylist()]
            run.results = tables.from_rows(rows, "results")
            save(run, folder)

    monkeypatch.setattr(run_sweep, "__kwdefaults__", {**run_sweep.__kwdefaults__, "runner": Stored()})
    said = command(capsys, "sweep", "deit-t", "--batch", "1,8", "-d", "sim:h100", "-o", "s")
    assert said.code == 0
    assert "compare two points with jouletrace ab, or sweep with --repeats 3" in " ".join(said.out.split())
    assert "profile both" not in said.out


@pytest.mark.thorough
def test_a_run_of_another_point_is_refused(tmp_path):
    run_sweep(GRID, SETTINGS, tmp_path / "s", runner=Runner())
    points = tmp_path / "s" / "points"
    shutil.rmtree(points / "deit-t-b8")
    shutil.copytree(points / "deit-t-b1", points / "deit-t-b8")
    with pytest.raises(BadInputError, match="b8 holds a Run of something else: remove it"):
        run_sweep(GRID, SETTINGS, tmp_path / "s", runner=Runner())


@pytest.mark.thorough
def test_points_whose_long_names_begin_alike_are_two(tmp_path):
    folder = tmp_path / ("d" * 90)
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.py").write_text("def make(): pass")
    grid = SweepGrid(tuple(f"{folder}/{name}.py:make" for name in "ab"), batch=(1,))
    found, _ = run_sweep(grid, SETTINGS, tmp_path / "s", runner=Runner())
    assert len({entry.place for entry in found}) == 2


def under_limit(batch, joules, milliseconds, limits, reference=None):
    """A point whose iterations were timed one by one, judged by limits."""
    run = profile_run(batch=batch)
    run.workload["items"] = batch
    run.spans = tables.from_rows(
        [
            {"id": i, "kind": "iteration", "name": "iteration", "lane": "latency"}
            | {"start_ns": START + i * 10**9, "end_ns": START + i * 10**9 + round(ms * 1e6)}
            for i, ms in enumerate(milliseconds)
        ],
        "spans",
    )
    time_s = float(np.mean(milliseconds)) / 1e3
    figures = {"energy_total_j": joules * batch, "iteration_time_s": time_s, "throughput_per_s": batch / time_s}
    rows = [
        {
            "unit": MODEL_UNIT,
            "metric": name,
            "value": one,
            "low": one * 0.999,
            "high": one * 1.001,
            "n": 12,
            "method": "windows",
        }
        for name, one in figures.items()
    ]
    run.results = tables.from_rows(rows, "results")
    judged = tuple(judge(run, one, reference or run) for one in parse_limits(limits))
    return Entry({"workload": "deit-b", "batch": batch}, "done", "", f"b{batch}", run, judged)


def milliseconds(mean, slow, n=2000):
    """Iterations of which a share takes twice as long, one by one at equal distances."""
    return np.where(np.arange(n) % round(1 / slow) == 0, 2 * mean, mean) + 1e-3 * (np.arange(n) % 7)


@pytest.mark.thorough
def test_the_least_energy_is_recommended_of_points_that_meet_the_limit(tmp_path):
    points = [
        under_limit(1, 3.0, milliseconds(0.5, 0.004), "p99<15ms"),
        under_limit(8, 2.0, milliseconds(8.0, 0.004), "p99<15ms"),
        under_limit(32, 1.5, milliseconds(12.0, 0.01), "p99<15ms"),
        under_limit(64, 1.0, milliseconds(14.0, 0.05), "p99<15ms"),
    ]
    assert [one.verdict for one in points] == ["meets", "meets", "undecided", "exceeds"]
    text = " ".join(render(points).split())
    assert "least energy of what meets p99<15ms: batch 8:" in text
    assert "fastest of what meets p99<15ms: batch 1:" in text
    assert re.search(r"misses: batch 64 \(p99 28.0\S* .*ms, 4\.\d to 6\.\d % of iterations over it\)", text)
    assert re.search(r"undecided: batch 32 \(p99 ", text)
    data = json.loads(render(points, "json"))
    assert data["recommended"] == "b8"
    (one,) = data["points"][3]["limits"]
    assert (one["limit"], one["verdict"]) == ("p99<15ms", "exceeds")
    assert one["figure"]["low"] <= one["figure"]["value"] <= one["figure"]["high"]
    assert 0.03 < one["share_over"]["low"] < 0.05 < one["share_over"]["high"]
    assert "| p99 (ms) | limits |" in render(points, "markdown")
    heads, *rows = render(points, "csv").splitlines()
    assert heads.startswith("batch,latency_s,latency_s_low,latency_s_high,")
    assert heads.endswith(",p99,p99_low,p99_high,limits")
    assert [row.rpartition(",")[2] for row in rows] == ["meets", "meets", "undecided", "exceeds"]
    table = Sweep(points, tmp_path).to_pandas()
    assert list(table["limits"]) == ["meets", "meets", "undecided", "exceeds"]


def test_where_no_point_meets_the_limit_the_nearest_is_named():
    points = [
        under_limit(8, 2.0, milliseconds(9.0, 0.05), "p99<5ms"),
        under_limit(64, 1.0, milliseconds(14.0, 0.05), "p99<5ms"),
    ]
    text = " ".join(render(points).split())
    assert "no point surely meets p99<5ms; nearest: batch 8: p99 18.0" in text
    assert "least energy" not in text
    assert json.loads(render(points, "json"))["recommended"] is None


def test_a_relative_limit_is_on_the_time_per_sample_above_the_first_point():
    first = under_limit(8, 2.0, milliseconds(8.0, 0.01), "time<+3%")
    points = [first] + [
        under_limit(8, joules, milliseconds(ms, 0.01), "time<+3%", first.run)
        for joules, ms in ((1.8, 8.1), (1.5, 8.24), (1.0, 9.0))
    ]
    assert [one.verdict for one in points] == ["meets", "meets", "undecided", "exceeds"]
    assert points[1].judged[0].figure.value == pytest.approx(8.1e-3 * 1.0103 / 8, rel=1e-3)


def test_a_limit_that_is_none_is_refused_before_anything_is_measured(tmp_path):
    runner = Runner()
    with pytest.raises(BadInputError, match="limit 'p99<20'"):
        jt.sweep("deit-t", limit="p99<20", folder=tmp_path / "s", progress=False)
    assert not runner.ran
    assert not (tmp_path / "s").exists()
