"""The command line of ``mig``: where results go, what is printed, what is refused."""

import pytest

from commands import check_that_lines_fit, command
from jouletrace.run import save
from make_runs import profile_run
from scripts import check_that_torch_is_named
from wanders import WANDERS

BOARD = ("-d", "sim:a100-40")


@pytest.mark.thorough
def test_a_sweep_over_a_workload_that_changes_the_folder(workspace, capsys):
    pytest.importorskip("torch")
    (workspace / "toy.py").write_text(WANDERS)
    arguments = ("--profiles", "1g.5gb", "--models", "toy.py:wanders", *BOARD, "--seconds", "1")
    said = command(capsys, "mig", "sweep", *arguments, "-o", "s", "--json")
    assert said.code == 0, said.err
    assert (workspace / "s" / "sweep.csv").is_file()
    assert list((workspace / "elsewhere").iterdir()) == []


def test_a_sweep_goes_into_no_run(workspace, capsys):
    save(profile_run(), workspace / "R")
    before = {path: path.read_bytes() for path in (workspace / "R").iterdir()}
    said = command(capsys, "mig", "sweep", "--profiles", "1g.5gb", "--models", "gemm", *BOARD, "-o", "R")
    assert (said.code, said.complaint) == (2, "jouletrace: R is not empty and holds no sweep")
    assert {path: path.read_bytes() for path in (workspace / "R").iterdir()} == before


@pytest.mark.thorough
@pytest.mark.parametrize("board", ["a100-80", "h100", "h200"])
def test_lines_of_a_list_fit_a_terminal_of_80_columns(monkeypatch, board):
    check_that_lines_fit(monkeypatch, "mig", "list", "-d", f"sim:{board}")


@pytest.mark.thorough
def test_without_torch_one_line_names_the_remedy(workspace):
    check_that_torch_is_named(workspace, "mig", "bench", "gemm", "--slices", "1g.5gb", *BOARD, "--rate", "1")


def test_numbers_are_written_in_ascii_digits(capsys, workspace):
    said = command(capsys, "mig", "sweep", "--profiles", "1g.5gb", "--models", "gemm", *BOARD, "--batch", "٣")
    assert said.code == 2
    assert "jouletrace: " in said.err.splitlines()[-1]
    assert not (workspace / "runs").exists()
