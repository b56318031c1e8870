"""Names of devices, files, kernels and servers come from anywhere: they steer neither a terminal nor a spreadsheet."""

import csv
import io

import pytest

from commands import command
from compare_runs import thing
from jouletrace import compare
from jouletrace.cli.failures import complain
from jouletrace.cli.output import say
from jouletrace.formats import exporters
from jouletrace.report import comparison, render
from jouletrace.spreadsheets import csv_text
from make_runs import gpu, profile_run, tables
from steering import ESC, FORMULAS, controls, formulas


@pytest.mark.parametrize("speak", [say, complain])
def test_what_is_reported_steers_no_terminal(capsys, speak):
    speak(f"the server answers 500 {ESC}")
    said = capsys.readouterr().err
    assert not controls(said)
    assert "\\x1b]0;owned\\x07" in said


@pytest.mark.thorough
def test_an_import_prints_names_without_their_escapes(capsys, workspace):
    (workspace / f"a{ESC[:3]}.txt").write_text(
        "time_s,device,power_w\n" + "".join(f"{k},NVIDIA {ESC}A100,60\n" for k in range(3))
    )
    done = command(capsys, "import", f"a{ESC[:3]}.txt", "-o", "made")
    assert done.code == 0
    assert not controls(done.out + done.err)
    shown = command(capsys, "show", "made")
    assert not controls(shown.out + shown.err)
    assert "\\x1b]0;owned" in shown.out


def test_an_error_prints_names_without_their_escapes(capsys, workspace):
    (workspace / "a.csv").write_text(f"a{ESC},b\n1,2\n3,4\n")
    assert not controls(command(capsys, "import", "a.csv").err)
    assert not controls(command(capsys, "show", f"no{ESC}where").err)


def test_python_shows_control_characters_spelled_out():
    run = profile_run(name=f"a{ESC}")
    run.devices = [gpu(name=ESC)]
    assert not controls(repr(run))


@pytest.mark.parametrize("name", FORMULAS)
def test_no_cell_of_a_name_is_a_formula(tmp_path, name):
    run = profile_run(kernels=2, name=name)
    run.devices = [gpu(name=name)]
    rows = [{**row, "name": name, "module": name} for row in run.units.to_pylist()]
    run.units = tables.from_rows(rows, "units")
    other = thing(1.5, parts={name: 0.4})
    found = compare([(thing(parts={name: 0.2}), "a")], [(other, "b")])
    texts = [render([run], "csv", detail="kernel"), comparison.render(found, "csv")]
    folder = exporters.export(run, "csv", tmp_path / "csv")
    texts += [path.read_text() for path in folder.glob("*.csv")]
    cells = [cell for text in texts for row in csv.reader(io.StringIO(text)) for cell in row]
    assert not formulas(cells)
    assert csv_text(name) in cells


def test_numbers_stay_numbers_in_csv(tmp_path):
    run = profile_run()
    rows = run.results.to_pylist()
    rows[0] |= {"value": -1.5, "low": -2.0, "high": -1.0}
    run.results = tables.from_rows(rows, "results")
    folder = exporters.export(run, "csv", tmp_path / "csv")
    first = next(csv.DictReader(io.StringIO((folder / "results.csv").read_text())))
    assert "-1.5" in first.values()
    assert "'-" not in render([run], "csv")


def test_names_of_metrics_steer_nothing_either():
    run = profile_run()
    rows = run.results.to_pylist()
    rows[-1] |= {"metric": f"odd{ESC}", "value": None, "reason": f"why{ESC}", "flags": ESC}
    run.results = tables.from_rows(rows, "results")
    for form in ("table", "csv", "markdown", "latex", "json"):
        assert not controls(render([run], form).replace("\t", " "))
