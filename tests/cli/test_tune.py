"""``tune`` from the command line, with real child processes on a simulated GPU."""

import csv
import json

import pytest

from commands import command
from jouletrace.cli.options import parse_duration
from jouletrace.errors import BadInputError


@pytest.mark.thorough
def test_a_campaign_says_what_to_choose_and_leaves_all_of_it_in_files(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    folder = tmp_path / "tuned"
    words = ["tune", "deit-t", "-d", "sim:h100", "--mode", "graph", "--over", "batch=1,64", "-o", str(folder)]
    words += ["--config", "num_hidden_layers=1"]
    said = command(capsys, *words)
    assert "batch 64: " in said.out
    assert "saves" in said.out
    assert "against batch 1" in said.out
    assert "apply it: jouletrace profile deit-t --device sim:h100 --batch 64 --mode graph" in said.out
    assert "jouletrace compare" in said.err
    stated = json.loads((folder / "result.json").read_text())
    assert stated["simulated"]
    assert stated["best"] == {"batch": 64}
    assert {row["batch"] for row in csv.DictReader((folder / "settings.csv").open())} == {"1", "64"}
    page = (folder / "tune.html").read_text()
    assert "SIMULATED" in page
    assert command(capsys, "show", str(folder)).out == said.out
    compared = command(capsys, "compare", str(folder / "reference"), str(folder / "chosen"))
    assert "less energy per sample: better" in compared.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--over"),
        (("--over", "batch=1,8", "--limit", "p99<20"), "--limit"),
        (("--over", "batch=1,8", "--limit", ""), "--limit ''"),
        (("--over", "batch=1,8", "--budget", "soon"), "--budget"),
        (("--over", "batch=1,8", "--against", "mode=graph"), "names no dimension"),
        (("--over", "mode=eager,fast"), "--mode fast"),
        (("--over", "batch=1,8", "--objective", "power"), "--objective"),
    ],
)
def test_what_is_wrong_is_one_line_before_anything_is_measured(tmp_path, capsys, words, says):
    folder = tmp_path / "tuned"
    said = command(capsys, "tune", "deit-t", "-d", "sim:h100", *words, "-o", str(folder))
    assert said.code == 2
    assert says in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert not folder.exists()


@pytest.mark.parametrize(("text", "seconds"), [("5min", 300), ("90s", 90), ("1.5h", 5400)])
def test_durations_are_read(text, seconds):
    assert parse_duration(text, "--budget") == seconds


@pytest.mark.parametrize("text", ["5", "min", "-1s", "0s", "nans", "infh", ""])
def test_durations_without_a_unit_or_sense_are_refused(text):
    with pytest.raises(BadInputError, match="5min"):
        parse_duration(text, "--budget")
