"""Names of devices, files, kernels and servers come from anywhere: they steer neither a terminal nor a spreadsheet."""

import csv
import io
import re

import pytest

from commands import command
from compare_runs import thing
from import_logs import scrape
from jouletrace.cli.failures import complain
from jouletrace.cli.output import say
from jouletrace.comparing.compare import compare
from jouletrace.formats import exporters
from jouletrace.report import comparison, render
from jouletrace.spreadsheets import csv_text
from jouletrace.wings.mig.simulated import SimulatedMig
from jouletrace.wings.mig.sweep import to_csv
from jouletrace.wings.mig.tables import listing
from jouletrace.wings.mig.tables import render as mig_text
from make_runs import gpu, profile_run, tables

ESC = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
FORMULAS = ["=1+2", "+1", "-1+2", "@SUM(A1)", "\t=1", "＝1"]


def controls(text):
    return re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)


@pytest.mark.parametrize("speak", [say, complain])
def test_what_is_reported_steers_no_terminal(capsys, speak):
    speak(f"the server answers 500 {ESC}")
    said = capsys.readouterr().err
    assert not controls(said)
    assert "\\x1b]0;owned\\x07" in said


def test_an_import_prints_names_without_their_escapes(capsys, workspace):
    (workspace / f"a{ESC[:3]}.txt").write_text(scrape(60).replace("NVIDIA A100", f"NVIDIA {ESC}A100") * 3)
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


def test_other_tables_spell_control_characters_out():
    found = listing(SimulatedMig("sim:a100-80"))
    found["profiles"][0]["name"] = f"GPU-{ESC}"
    assert "GPU-\\x1b]0;owned" in mig_text(found)
    assert not controls(mig_text(found))
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
    texts.append(to_csv([{"model": name, "profile": name}]))
    folder = exporters.export(run, "csv", tmp_path / "csv")
    texts += [path.read_text() for path in folder.glob("*.csv")]
    cells = [cell for text in texts for row in csv.reader(io.StringIO(text)) for cell in row]
    wrong = [cell for cell in cells if cell[:1] in "=+-@\t＝" and cell and not re.fullmatch(r"-?[\d.e+-]+", cell)]
    assert not wrong
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
