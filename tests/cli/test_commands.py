"""Commands: what they print and leave behind."""

import csv
import importlib
import io
import json
import zipfile

import pytest
from jsonschema import Draft202012Validator

from commands import TOY, check_that_lines_fit, command, only_run
from jouletrace import load
from jouletrace.cli.output import in_width
from jouletrace.errors import NotPossibleError
from jouletrace.report import json_schema
from jouletrace.run import save, save_header
from make_runs import cpu_run, profile_run
from places import REPOSITORY
from records import iterations, make_run, phases, readings, windows

pytestmark = pytest.mark.usefixtures("short_passes")

VALIDATOR = Draft202012Validator(json.loads(json_schema()))
QUICK = ("--warmup", "0.3", "--max-time", "1")


@pytest.fixture(autouse=True)
def place(workspace):
    (workspace / "toy.py").write_text(TOY)
    return workspace


def valid(text):
    found = json.loads(text)
    assert [error.message for error in VALIDATOR.iter_errors(found)] == []
    return found


def small_run():
    run = profile_run()
    run.samples = run.samples.slice(0, 40)
    return run


def unfinished():
    """A profile that ended before its figures were computed."""
    spans = phases(("energy", 1.0, 9.0)) + iterations(50, 0.01, 0.2)
    rows = windows([(1.0 + i, 2.0 + i) for i in range(8)], replays=100)
    facts = {"workload": {"name": "toy", "items": 4}, "settings": {"first_stage": 8}, "complete": False}
    return make_run(readings(300.0, 10, noise=0.3), spans=spans, window_rows=rows, **facts)


# profile


@pytest.mark.thorough
def test_a_profile_on_the_cpu_validates(capsys, place, no_rapl):
    pytest.importorskip("torch")
    arguments = ("--config", "num_hidden_layers=1", "--config", "image_size=32")
    said = command(capsys, "profile", "deit-t", "--device", "cpu", "--json", *arguments, *QUICK)
    assert said.code == 0
    found = valid(said.out)
    assert found["workload"]["name"] == "deit-tiny"
    assert found["workload"]["weights"] == "random, seed 0"
    assert found["model"]["latency_ms"]["median"] > 0
    assert found["model"]["energy_j"]["total"]["value"] is None
    assert found["model"]["energy_j"]["total"]["reason"] == "rapl_absent"
    assert found["simulated"] is False
    saved = only_run(place)
    assert said.err == f"saved runs/{saved.name}\n"
    assert saved.name.endswith("deit-tiny")
    assert load(saved).complete


@pytest.mark.thorough
def test_without_power_the_table_has_one_line_for_it_and_says_what_it_needs(capsys, no_rapl):
    pytest.importorskip("torch")
    said = command(capsys, "profile", "toy.py:toy", "-d", "cpu", *QUICK, "-o", "run")
    assert " ".join(said.out.split()).count("no RAPL energy counter here") == 1
    said = command(capsys, "show", "run", "-v")
    assert [line[:16] for line in said.out.splitlines()].count("Power and energy") == 1
    assert "Baseline" not in said.out
    assert "no RAPL package counter under" in said.out


@pytest.mark.thorough
def test_a_profile_on_a_simulated_gpu_validates_and_says_simulated(capsys, place):
    pytest.importorskip("torch")
    said = command(capsys, "profile", "deit-t", "-d", "sim:h100", "--batch", "8", "--json", "--mode", "graph")
    found = valid(said.out)
    assert found["simulated"] is True
    assert found["workload"]["mode"] == "graph"
    assert all(found["model"]["energy_j"][key]["value"] > 0 for key in found["model"]["energy_j"])
    assert only_run(place).name.endswith("deit-tiny-b8")
    assert command(capsys, "show", str(only_run(place))).out.startswith("SIMULATED: ")
    table = command(capsys, "show", str(only_run(place)), "-v").out
    assert "SIMULATED: a simulated GPU, no hardware was measured" in table


@pytest.mark.thorough
def test_a_profile_prints_in_the_format_asked_for(capsys):
    pytest.importorskip("torch")
    said = command(capsys, "profile", "toy.py:toy", "-d", "cpu", "--format", "markdown", *QUICK)
    assert said.code == 0
    assert "| Latency, median" in said.out.replace("\u00a0", " ")


@pytest.mark.thorough
def test_a_profile_goes_where_it_is_wanted(capsys, place):
    pytest.importorskip("torch")
    said = command(capsys, "profile", "toy.py:toy", "-d", "cpu", "-o", "mine", *QUICK)
    assert said.err == "saved mine · more: jouletrace show mine -v\n"
    assert load("mine").command.startswith("jouletrace")
    packed = command(capsys, "profile", "toy.py:toy", "-d", "cpu", "-o", "mine.zip", *QUICK)
    assert packed.err == "saved mine.zip · more: jouletrace show mine.zip -v\n"
    assert load("mine.zip").complete
    assert sorted(path.name for path in place.iterdir() if path.name != "__pycache__") == ["mine", "mine.zip", "toy.py"]


@pytest.mark.thorough
def test_options_reach_the_run(capsys):
    pytest.importorskip("torch")
    arguments = ("--batch", "4", "--dtype", "bf16", "--seed", "3", "--target-ci", "2%", "--block", "7", "-o", "run")
    command(capsys, "profile", "toy.py:toy", "-d", "cpu", *arguments, *QUICK)
    run = load("run")
    wanted = {"batch": 4, "dtype": "bf16", "seed": 3, "target_ci": 0.02, "block": 7, "device": "cpu", "mode": "eager"}
    assert {key: run.settings[key] for key in wanted} == wanted
    assert run.workload["batch"] == 4
    assert run.workload["dtype"] == "bf16"


# show


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown", "latex"])
def test_a_run_is_shown_in_every_format(capsys, place, form):
    save(small_run(), place / "run")
    said = command(capsys, "show", "run", "--format", form)
    assert (said.code, said.err) == (0, "")
    assert "deit-base" in said.out
    assert "SIMULATED" not in said.out


def test_json_is_short_for_its_format(capsys, place):
    save(small_run(), place / "run.zip")
    assert command(capsys, "show", "run.zip", "--json").out == command(capsys, "show", "run.zip", "-f", "json").out
    valid(command(capsys, "show", "run.zip", "--json").out)


def test_several_runs_are_shown_side_by_side(capsys, place):
    save(small_run(), place / "a")
    save(cpu_run(), place / "b.zip")
    assert "2 runs" in command(capsys, "show", "a", "b.zip").out
    assert len(json.loads(command(capsys, "show", "a", "b.zip", "--json").out)) == 2


@pytest.mark.thorough
def test_a_run_that_was_cut_off_gets_its_figures_when_it_is_shown(capsys, place):
    save(unfinished(), place / "run")
    found = valid(command(capsys, "show", "run", "--json").out)
    assert found["complete"] is False
    assert found["model"]["energy_j"]["total"]["value"] == pytest.approx(3.0, rel=1e-3)
    assert found["model"]["throughput_per_s"] == pytest.approx(400, rel=1e-2)
    table = command(capsys, "show", "run").out
    assert "the recording was cut off" in table


def test_a_run_killed_before_its_first_reading_is_shown(capsys, place):
    run = unfinished()
    save_header(run, place / "run")
    said = command(capsys, "show", "run")
    assert said.code == 0
    assert "the recording was cut off" in said.out
    valid(command(capsys, "show", "run", "--json").out)


# export


def test_a_run_is_exported_beside_itself(capsys, place):
    save(small_run(), place / "run.v2")
    for form, name in (("csv", "run.v2-csv"), ("parquet", "run.v2-parquet"), ("zip", "run.v2.zip")):
        said = command(capsys, "export", "run.v2/", "--format", form)
        assert (said.code, said.out) == (0, "")
        assert said.err == f"wrote {'the folder ' * (place / name).is_dir()}{place / name}\n"
        assert (place / name).exists()
    rows = list(csv.DictReader(io.StringIO((place / "run.v2-csv" / "results.csv").read_text())))
    assert any(row["metric"] == "energy_total_j" for row in rows)
    assert load("run.v2-parquet").result("energy_total_j").value == pytest.approx(4.652)
    assert "run.json" in zipfile.ZipFile(place / "run.v2.zip").namelist()
    again = command(capsys, "export", "run.v2", "--format", "zip")
    assert again.code == 2
    assert "exists" in again.complaint


def test_an_export_goes_where_it_is_wanted(capsys, place):
    save(small_run(), place / "run.zip")
    assert command(capsys, "export", "run.zip", "-f", "csv", "-o", "tables").code == 0
    assert (place / "tables" / "samples.csv").exists()


# doctor


def test_doctor_names_every_sensor_and_what_is_missing(capsys):
    said = command(capsys, "doctor", "-d", "sim:h100")
    assert said.code == 0
    text = " ".join(said.out.split())
    assert "SIMULATED H100 80GB" in text
    assert "every 20 ms" in text
    assert "a read costs" in text
    assert "power limit 700 W (min 200 W, max 700 W, default 700 W)" in text
    assert "not calibrated: run jouletrace calibrate" in text
    for library in ("torch", "plotly"):
        assert library in text


def test_a_long_name_of_a_library_stands_apart_from_its_note(capsys, monkeypatch):
    from jouletrace.profiler import doctor

    monkeypatch.setattr(doctor, "LIBRARIES", {"a.library.with.a.long.name": "nothing"})
    said = command(capsys, "doctor", "-d", "sim:h100").out
    assert "✗ a.library.with.a.long.name  not installed" in said


def test_lines_of_doctor_fit_a_terminal_of_80_columns(monkeypatch):
    check_that_lines_fit(monkeypatch, "doctor", "-d", "sim:h100")


def test_doctor_says_why_there_is_no_gpu(capsys, monkeypatch, no_rapl):
    from jouletrace.devices import CpuHost
    from jouletrace.profiler import doctor

    monkeypatch.setattr(doctor, "no_gpu_reason", lambda: "the driver [sic] is not installed")
    monkeypatch.setattr(doctor, "list_devices", lambda: [CpuHost().info])
    said = " ".join(command(capsys, "doctor").out.split())
    assert "no NVIDIA GPU: the driver [sic] is not installed --device sim:h100 simulates a GPU" in said
    assert "CPU energy can't be read" in said
    found = json.loads(command(capsys, "doctor", "--json").out)
    assert found["no_gpu"] == "the driver [sic] is not installed"
    assert found["devices"][0]["info"]["kind"] == "cpu"


def test_doctor_names_processes_and_ends_none(capsys, monkeypatch):
    from jouletrace.devices import Process
    from jouletrace.simulator.boards import SimulatedGpu

    monkeypatch.setattr(SimulatedGpu, "processes", lambda self: [Process(4711, "python3", 512 * 2**20)])
    said = command(capsys, "doctor", "-d", "sim:h100").out
    assert "in use by python3 (pid 4711, 512 MiB); to end it: kill 4711" in said


# calibrate


@pytest.mark.thorough
def test_calibrate_prints_its_sensors_and_doctor_remembers(capsys, place):
    said = command(capsys, "calibrate", "-d", "sim:a100", "--seconds", "10")
    assert said.code == 0
    assert "Sensors" in said.out
    assert "calibrated" in said.out
    assert only_run(place).name.endswith("calibration")
    assert "calibrated less than an hour ago" in command(capsys, "doctor", "-d", "sim:a100").out
    valid(command(capsys, "show", str(only_run(place)), "--json").out)


# demo


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """A package with one recorded Run."""
    from jouletrace import bundled as package

    folder = tmp_path / "recorded"
    run = unfinished()
    run.complete = True
    run.results = profile_run().results
    save(run, folder / "h100.zip")
    manifest = {"runs": [{"file": "h100.zip", "command": "jouletrace profile toy"}]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    monkeypatch.setattr(package.resources, "files", lambda name: folder)
    return folder


def test_demo_shows_what_the_recorded_run_states(capsys, recorded, place):
    said = command(capsys, "demo", "-v")
    assert said.code == 0
    assert "Recorded on GPU by hand: jouletrace profile toy" in said.err
    assert "4.652" in said.out
    found = json.loads(command(capsys, "demo", "--json").out)
    assert found["model"]["energy_j"]["total"]["value"] == pytest.approx(4.652)
    assert not (place / "runs").exists()


def test_demo_without_recorded_runs_says_so(capsys, recorded):
    (recorded / "manifest.json").unlink()
    said = command(capsys, "demo")
    assert said.code == 3
    assert "no recorded Run ships with this installation" in said.complaint


def test_demo_shows_a_profile_made_here_too(capsys, recorded, monkeypatch):
    from jouletrace.cli import profile

    called = []
    monkeypatch.setattr(profile, "profile", lambda workload, form, verbose: called.append((workload, form)))
    assert command(capsys, "demo", "--with-profile").code == 0
    assert called == [("deit-tiny", "table")]


@pytest.mark.thorough
def test_a_run_whose_analysis_is_refused_keeps_what_was_recorded(capsys, monkeypatch, workspace):
    def refuse(*_):
        raise NotPossibleError("no two readings agree")

    monkeypatch.setattr(importlib.import_module("jouletrace.analysis.analyse"), "add_model", refuse)
    said = command(capsys, "profile", "toy.py:toy", "-d", "cpu", *QUICK, "-o", "kept", "--price", "0.3EUR")
    assert said.code == 2
    assert "it was recorded, but its figures can't be computed: no two readings agree" in said.err
    assert "the data recorded so far is in" in said.err
    monkeypatch.undo()
    run = load(workspace / "kept")
    assert len(run.spans) > 0
    assert (run.settings["price_per_kwh"], run.settings["currency"]) == (0.3, "EUR")


def test_lines_too_wide_for_a_terminal_are_divided():
    assert in_width(["saved a", "more: show a"]) == "saved a · more: show a"
    long = "x" * 60
    assert in_width([f"saved {long}", f"more: show {long}"]) == f"saved {long}\nmore: show {long}"


@pytest.mark.thorough
def test_budgets_of_several_runs_are_one_document_and_one_without_keeps_none_back(capsys):
    runs = REPOSITORY / "docs" / "results" / "runs"
    ddp, resnet, bursts = (str(runs / f"{name}-h200.zip") for name in ("ddp-run", "resnet50-run", "bursts"))
    said = command(capsys, "show", "--budget", "--json", ddp, resnet)
    assert [one[0]["metric"] for one in json.loads(said.out)] == ["energy_total_j"] * 2
    said = command(capsys, "show", "--budget", ddp, bursts)
    assert "gain of the sensor" in said.out
    assert (said.code, said.err.count("\n")) == (2, 1)


@pytest.mark.thorough
def test_a_profile_by_operators_lists_them(capsys):
    asked = ("--device", "sim:h100", "--detail", "op", "--detail-time", "2", *QUICK)
    text = command(capsys, "profile", "toy.py:toy", *asked).out
    assert "\nOperators\n" in text
    assert "aten.addmm" in text
