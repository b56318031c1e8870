"""Ranges of a program without a GPU, by the command line, against the program's own clock."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import time
import torch
from torch.profiler import record_function

spent = [0.0, 0.0]
a = torch.randn(300, 300)
for _ in range(4):
    with record_function("outer"):
        outer = time.perf_counter()
        for _ in range(2):
            with record_function("matmul"):
                inner = time.perf_counter()
                while time.perf_counter() < inner + 0.1:
                    a @ a
                spent[1] += time.perf_counter() - inner
        spent[0] += time.perf_counter() - outer
print(*spent)
"""


def jouletrace(tmp_path, *words):
    command = [sys.executable, "-m", "jouletrace", *words]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=100).stdout


def test_ranges_have_count_and_time_of_the_programs_clock(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "prog.py").write_text(PROGRAM)
    printed = jouletrace(tmp_path, "run", "-d", "cpu", "-o", "made", "--", sys.executable, "prog.py")
    spent = dict(zip(("outer", "matmul"), map(float, printed.splitlines()[0].split()), strict=True))
    assert "outer/matmul" in printed
    rows = json.loads(jouletrace(tmp_path, "show", "made", "--json"))["parts"]["range"]
    assert [(row["path"][-1]["name"], row["count"]) for row in rows] == [("outer", 4), ("matmul", 8)]
    for row in rows:
        name = row["path"][-1]["name"]
        assert row["time_s"]["value"] == pytest.approx(spent[name], rel=0.02)
        assert row["energy_j"]["value"] is not None or row["energy_j"]["reason"]


def test_a_sitecustomize_of_the_users_runs_as_before(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("mine = 1\n")
    (tmp_path / "prog.py").write_text("import sitecustomize, sys\nprint(sitecustomize.mine, 'torch' in sys.modules)\n")
    command = [sys.executable, "-m", "jouletrace", "run", "-d", "cpu", "-o", "made", "--", sys.executable, "prog.py"]
    done = subprocess.run(
        ["env", f"PYTHONPATH={tmp_path}", *command], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0] == "1 False"
