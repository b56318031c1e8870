"""A sweep in parts: examples/slurm/sweep_array.sh against a stub of sbatch that runs two tasks at the same time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands import command, done
from places import REPOSITORY

GRID = ["toy.py:toy", "--batch", "1,2,4,8,16", "-d", "sim:h100"]
TOY = "def toy(batch=16):\n    return (lambda x: x @ x.T), (__import__('torch').ones(batch, 64),)\n"

SBATCH = """#!/bin/bash
task() { SLURM_ARRAY_TASK_ID=$1 SLURM_ARRAY_TASK_COUNT=4 bash "${@:2}" > "task$1.txt" || echo "$1" >> failed; }
for first in 1 3; do
    task $first "$@" &
    task $((first + 1)) "$@"
    wait
done
"""


@pytest.mark.slow
def test_the_tasks_of_an_array_measure_each_point_once_into_one_grid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("toy.py").write_text(TOY)
    Path("sbatch").write_text(SBATCH)
    script = str(REPOSITORY / "examples" / "slurm" / "sweep_array.sh")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "RESULTS": str(tmp_path / "parts")}
    subprocess.run(["bash", "sbatch", script, *GRID, "--json"], env=environment, check=True, timeout=240)
    assert not Path("failed").exists()
    printed = [json.loads(Path(f"task{number}.txt").read_text())["points"] for number in range(1, 5)]
    assert [[entry["point"]["batch"] for entry in points] for points in printed] == [[1, 16], [2], [4], [8]]
    before = {run: run.stat().st_mtime_ns for run in Path("parts").glob("points/*/run.json")}
    assert len(before) == 5
    whole = done("sweep", *GRID, "-o", "parts").out
    assert {run: run.stat().st_mtime_ns for run in Path("parts").glob("points/*/run.json")} == before
    assert whole == done("sweep", *GRID, "-o", "alone").out


def test_a_part_without_points_and_one_that_is_none_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for part, reason in (("6/6", "only 5 points"), ("0/4", "write K/N"), ("5/4", "write K/N"), ("2", "write K/N")):
        refused = command(capsys, "sweep", "gemm", *GRID[1:], "--part", part, "-o", "grid")
        assert refused.code == 2
        assert reason in refused.complaint
    assert not Path("grid").exists()
