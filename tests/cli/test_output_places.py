"""Where results go: where they were asked for, though the program changes its folder, and never over an input."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

import jouletrace as jt
from commands import command, wait_for
from jouletrace.cli.output import Destination
from jouletrace.errors import BadInputError
from jouletrace.profiler.calibrate import calibrate
from jouletrace.profiler.detail.rows import layer_rows, write_files
from jouletrace.recording import Session
from jouletrace.run import save
from live_runs import REAL, spans_of
from make_runs import profile_run
from wanders import WANDERS

QUICK = ("-d", "sim:h100", "--warmup", "0.2", "--max-time", "1")


@pytest.fixture
def program(workspace):
    pytest.importorskip("torch")
    (workspace / "toy.py").write_text(WANDERS)
    return workspace


def move(folder):
    (folder / "elsewhere").mkdir()
    os.chdir(folder / "elsewhere")


# --- a program that changes its folder ----------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["myrun", "myrun.zip"])
def test_a_recording_is_saved_where_it_began(workspace, name):
    with jt.record("loop", device=REAL, save_to=name) as recording:
        jt.step()
        with jt.range("half"):
            time.sleep(0.05)
        move(workspace)
        with jt.range("half"):
            time.sleep(0.05)
        jt.step()
    saved = jt.load(workspace / name)
    assert saved.complete
    assert len(spans_of(saved, "range")) == 2
    assert saved.spans.equals(recording.run.spans)
    assert list((workspace / "elsewhere").iterdir()) == []


def test_the_command_that_shows_more_can_be_pasted_into_a_shell(capsys, workspace):
    with Destination(Path("my folder/run"), "toy") as place:
        place.done(profile_run(), more=True)
    assert capsys.readouterr().err == "saved my folder/run · more: jouletrace show 'my folder/run' -v\n"


@pytest.mark.thorough
def test_the_recording_of_a_rank_is_saved_where_it_began(workspace, monkeypatch):
    for variable, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(variable, value)
    with jt.record("loop", device=REAL, save_to="myrun"):
        move(workspace)
    assert jt.load(workspace / "myrun" / "rank-1").complete


@pytest.mark.thorough
def test_a_recording_whose_spans_were_removed_does_not_claim_to_be_complete(workspace):
    def cleans_up():
        with jt.record(device=REAL, save_to="r"):
            jt.step()
            wait_for(lambda: list((workspace / "r" / "spool").glob("spans.live*")))
            shutil.rmtree(workspace / "r")
            (workspace / "r").mkdir()

    with pytest.raises(jt.RecorderDiedError, match="another process removed the spans"):
        cleans_up()
    assert not jt.load(workspace / "r").complete


@pytest.mark.thorough
@pytest.mark.parametrize(("what", "name"), [("profile", "out.zip"), ("ab", "out")])
def test_a_function_that_changes_the_folder_is_saved_where_it_was_asked_for(workspace, what, name):
    torch = pytest.importorskip("torch")

    def wanders(x):
        (workspace / "elsewhere").mkdir(exist_ok=True)
        os.chdir(workspace / "elsewhere")
        return x @ x

    options = {"device": "sim:h100", "save_to": name, "warmup_s": 0.2, "max_time_s": 1.0}
    if what == "profile":
        jt.profile(wanders, torch.ones(64, 64), **options)
    else:
        del options["max_time_s"]
        jt.ab(wanders, lambda x: x @ x, torch.ones(64, 64), max_time=1.0, **options)
    assert jt.load(workspace / name).complete
    assert len(jt.load(workspace / name).results) > 0
    assert list((workspace / "elsewhere").iterdir()) == []


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["out", None])
def test_profile_of_a_workload_that_changes_the_folder(program, capsys, name):
    output = ("-o", name) if name else ()
    said = command(capsys, "profile", "toy.py:wanders", *QUICK, *output, "--json")
    assert said.code == 0, said.err
    (place,) = [program / name] if name else (program / "runs").iterdir()
    assert jt.load(place).complete
    assert list((program / "elsewhere").iterdir()) == []
    assert said.err.splitlines()[-1] in (f"saved {place}", f"saved {place.relative_to(program)}")


@pytest.mark.slow
def test_repeats_of_a_workload_that_changes_the_folder(program, capsys):
    said = command(capsys, "profile", "toy.py:wanders", *QUICK, "-o", "out", "--repeats", "2", "--json")
    assert said.code == 0, said.err
    assert jt.load(program / "out").complete


@pytest.mark.thorough
def test_sweep_over_a_workload_that_changes_the_folder(program, capsys):
    said = command(capsys, "sweep", "toy.py:wanders", *QUICK, "-o", "s", "--json")
    assert said.code == 0, said.err
    (point,) = json.loads(said.out)["points"]
    assert point["outcome"] == "done"
    assert jt.load(program / "s" / "points" / "toy.py-wanders").complete


@pytest.mark.thorough
def test_a_session_saves_where_it_began(workspace, monkeypatch):
    """The kind of Run on which every other one rests."""
    save_header = Session.save_header

    def wander(session):
        save_header(session)
        (workspace / "elsewhere").mkdir(exist_ok=True)
        os.chdir(workspace / "elsewhere")

    monkeypatch.setattr(Session, "save_header", wander)
    calibrate("sim:v100", seconds=10, folder=type(workspace)("out"))  # one sensor of power, an H100 has three
    assert jt.load(workspace / "out").calibration


# --- outputs that would go over an input --------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    save(profile_run(), folder / "R")
    save(profile_run(scale=2.0), folder / "other")
    save(profile_run(), folder / "z.zip")
    return folder


@pytest.fixture
def there(workspace, made):
    """Runs, whose bytes must stay as they are."""
    shutil.copytree(made, workspace, dirs_exist_ok=True)
    (workspace / "thesis.html").write_text("<!DOCTYPE html><title>My thesis</title>")
    (workspace / "empty.html").touch()
    os.link(workspace / "R" / "run.json", workspace / "hard.html")
    os.symlink(workspace / "z.zip", workspace / "soft.html")
    return workspace


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


INPUTS = ["R/run.json", "R/windows.parquet", "other/run.json", "z.zip", "thesis.html"]


@pytest.mark.parametrize("place", [*INPUTS, "hard.html", "soft.html"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "R", "-o"),
        ("report", "z.zip", "-o"),
    ],
    ids=["report", "report-zip"],
)
def test_a_report_goes_over_no_other_file(there, capsys, arguments, place):
    pytest.importorskip("plotly")
    before = contents(there)
    said = command(capsys, *arguments, place)
    assert said.code == 2
    complaint = f"jouletrace: {place} exists and is not a report of jouletrace: only such a file is replaced"
    assert said.err.splitlines()[-1] == complaint
    assert contents(there) == before


@pytest.mark.parametrize("form", ["csv", "parquet", "zip", "chrome", "svg"])
@pytest.mark.parametrize(("run", "place"), [("R", "R"), ("R", "R/run.json"), ("z.zip", "z.zip"), ("R", "other")])
def test_an_export_goes_over_nothing(there, capsys, form, run, place):
    before = contents(there)
    said = command(capsys, "export", run, "-f", form, "-o", place)
    if said.code == 0:  # zip adds its own ending
        assert contents(there).items() > before.items()
    else:
        assert (said.code, contents(there)) == (2, before)


@pytest.mark.thorough
def test_what_a_report_writes_it_replaces_as_before(there, capsys):
    pytest.importorskip("plotly")
    for place in ("new.html", "empty.html", "R/report.html"):
        for run in ("R", "other"):
            assert command(capsys, "report", run, "-o", place).code == 0
    assert (there / "new.html").read_text().startswith("<!DOCTYPE html>")
    assert command(capsys, "report", "R", "-o", "/dev/null").code == 0
    assert jt.load("R").complete


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("report.pdf", "cannot write report.pdf: a report is HTML, so its name must end in .html"),
        ("no/x.html", "cannot write no/x.html: there is no folder no"),
    ],
)
def test_a_report_makes_no_folder_and_no_file_of_another_kind(there, capsys, place, said):
    before = contents(there)
    assert command(capsys, "report", "R", "-o", place).err.splitlines()[-1] == f"jouletrace: {said}"
    with pytest.raises(BadInputError, match=said):
        jt.load("R").report(place)
    assert contents(there) == before
    assert not (there / "no").exists()


def test_tables_of_parts_go_over_older_ones_only(there):
    run = profile_run(kernels=2)
    write_files("parts", [run], [layer_rows(run)], "layer")
    write_files("parts", [run], [layer_rows(run)], "layer", overwrite=True)
    (there / "mine.csv").write_text("a thesis")
    before = contents(there)
    with pytest.raises(BadInputError, match=r"mine.csv exists and is not a table of layers"):
        write_files("mine", [run], [layer_rows(run)], "layer", overwrite=True)
    assert contents(there) == before


@pytest.mark.thorough
def test_the_command_line_advises_no_argument_of_python(there, capsys, monkeypatch):
    """Another command may write there between the check and the end."""
    (there / "log.csv").write_text("time_s,power_w\n" + "".join(f"{n},100\n" for n in range(20)))
    for place in ("R", "taken.zip"):
        (there / "taken.zip").touch()
        said = command(capsys, "import", "log.csv", "-o", place)
        assert said.complaint == (
            f"jouletrace: {place} exists; results are never overwritten: name another place, or remove it"
        )
    monkeypatch.setattr("jouletrace.run.places.check_free", lambda path, *_: Path(path))
    said = command(capsys, "monitor", "-d", "sim:h100", "--duration", "1", "-o", "taken.zip")
    assert said.code == 2
    assert "taken.zip exists; results are never overwritten: name another place, or remove it\n" in said.err
    assert "overwrite=True" not in said.err
    with pytest.raises(jt.TakenError, match="or pass overwrite=True"):
        jt.load("R").save("taken.zip")
