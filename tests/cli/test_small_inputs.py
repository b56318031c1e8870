"""Environments and spellings that commands meet: no torch, a terminal of no width, digits of other scripts."""

import os
import sys

import pytest

from commands import PATIENCE_S, command, start
from jouletrace.run import save
from make_runs import profile_run
from thinned import thinned

NO_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "arguments",
    thinned(
        [
            "profile gemm -d sim:h100",
            "ab gemm gemm -d sim:h100",
            "mig sweep --profiles 1g.5gb --models gemm -d sim:a100-40 --seconds 1",
            "mig bench gemm --slices 1g.5gb -d sim:a100-40 --rate 1",
            "profile gemm -d sim:h100 --repeats 2",
            "sweep gemm -d sim:h100",
        ],
        2,
    ),
)
def test_without_torch_one_line_names_the_remedy(workspace, arguments):
    (workspace / "site").mkdir()
    (workspace / "site" / "sitecustomize.py").write_text(NO_TORCH)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(workspace / "site"), *sys.path])}
    process = start(*arguments.split(), cwd=workspace, env=environment)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3
    assert "Traceback" not in err
    assert "torch can't be imported" in err.splitlines()[-1]
    assert "pip install 'jouletrace[torch]'" in err.splitlines()[-1]


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
        "bench http://127.0.0.1:9 --rate ٣",
        "bench http://127.0.0.1:9 --rate 1 --input-tokens ٣",
        "mig sweep --profiles 1g.5gb --models gemm -d sim:a100-40 --batch ٣",
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
