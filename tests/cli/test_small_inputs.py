"""Environments and spellings that commands meet: no torch, a terminal of no width, digits of other scripts."""

import pytest

from commands import command
from jouletrace.run import save
from make_runs import profile_run
from scripts import check_that_torch_is_named
from thinned import thinned


@pytest.mark.thorough
@pytest.mark.parametrize(
    "arguments",
    thinned(
        [
            "profile gemm -d sim:h100",
            "ab gemm gemm -d sim:h100",
            "profile gemm -d sim:h100 --repeats 2",
            "sweep gemm -d sim:h100",
        ],
        2,
    ),
)
def test_without_torch_one_line_names_the_remedy(workspace, arguments):
    check_that_torch_is_named(workspace, *arguments.split())


@pytest.mark.thorough
@pytest.mark.parametrize("columns", ["0", "1", "-5", "x", "٣٠"])
def test_a_width_in_which_nothing_can_be_read_is_not_taken(capsys, workspace, monkeypatch, columns):
    save(profile_run(), workspace / "R")
    monkeypatch.delenv("COLUMNS", raising=False)
    usual = command(capsys, "show", "R", "-v")
    monkeypatch.setenv("COLUMNS", columns)
    assert command(capsys, "show", "R", "-v") == usual
    monkeypatch.setenv("COLUMNS", "40")
    narrow = command(capsys, "show", "R", "-v")
    assert narrow != usual
    assert max(map(len, narrow.out.splitlines())) <= 40


@pytest.mark.parametrize(
    "arguments",
    [
        "monitor -d sim:h100 --duration 1 --serve ٣٤٥٦",
        "monitor -d sim:h100?seed=٣ --duration 1",
        "monitor -d sim:h100?noise=٣ --duration 1",
        "profile gemm -d sim:h100 --max-time ٣",
        "profile gemm -d sim:h100 --target-ci ٣%",
        "sweep gemm -d sim:h100 --batch ٣",
        "sweep gemm -d sim:h100 --power-limit 1_0",
        "run --duty ٣/60 -d cpu true",
        "show R --price ٣EUR",
        "compare R R --fail-if energy>٣%",
    ],
)
def test_numbers_are_written_in_ascii_digits(capsys, workspace, arguments):
    save(profile_run(), workspace / "R")
    said = command(capsys, *arguments.split())
    assert said.code == 2
    assert "jouletrace: " in said.err.splitlines()[-1]
    assert not (workspace / "runs").exists()
