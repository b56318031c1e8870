"""The Run of a Slurm job, by the prolog and epilog of examples/slurm against a stub of squeue."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import done
from places import REPOSITORY

pytestmark = pytest.mark.thorough


def hook(name, runs, number, **more):
    stubs = runs.parent / "stubs"
    stubs.mkdir(exist_ok=True)
    (stubs / "squeue").write_text("#!/bin/bash\necho train\n")
    (stubs / "squeue").chmod(0o755)
    path = f"{stubs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    job = {"SLURM_JOB_ID": str(number), "SLURM_JOB_USER": "ann", "JOULETRACE_RUNS": str(runs), "PATH": path}
    command = ["bash", str(REPOSITORY / "examples" / "slurm" / name)]
    subprocess.run(command, env={**os.environ, **job, **more}, check=True, timeout=30)


def recorded(runs, number):
    deadline = time.monotonic() + 20
    while not (headers := list(runs.glob(f"{number}-*/run.json"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    return headers[0]


def test_two_jobs_have_runs_that_name_them_and_a_lost_recorder_fails_no_job(tmp_path):
    runs = tmp_path / "runs"
    for number in (7, 8):
        hook("prolog.sh", runs, number, JOULETRACE_DEVICE=f"sim:h100?realtime=1&seed={number}")
    for number in (7, 8):
        recorded(runs, number)
    time.sleep(3)  # the header is there before the recorder takes signals
    (lost,) = runs.glob("8-*.pid")
    os.kill(int(lost.read_text()), signal.SIGKILL)
    for number in (7, 8):
        hook("epilog.sh", runs, number)
    header = json.loads(recorded(runs, 7).read_text())
    assert header["workload"]["job"] == {"scheduler": "slurm", "id": "7", "name": "train", "user": "ann"}
    assert header["complete"]
    assert "job 8: the recorder" in (runs / "epilog.log").read_text()
    assert not list(runs.glob("*.pid"))


def test_a_job_without_gpus_is_not_recorded(tmp_path):
    runs = tmp_path / "runs"
    for name in ("prolog.sh", "epilog.sh"):
        hook(name, runs, 9, SLURM_JOB_GPUS="", CUDA_VISIBLE_DEVICES="", JOULETRACE_DEVICE="")
    assert not list(runs.glob("9-*"))


def test_a_recorder_that_does_not_end_is_killed_and_its_run_recovered(tmp_path):
    runs = tmp_path / "runs"
    hook("prolog.sh", runs, 6, JOULETRACE_DEVICE="sim:h100?realtime=1")
    recorded(runs, 6)
    time.sleep(3)  # the header is there before the recorder takes signals
    pid = int(next(runs.glob("6-*.pid")).read_text())
    os.kill(pid, signal.SIGSTOP)
    hook("epilog.sh", runs, 6, JOULETRACE_PATIENCE="1")
    assert f"the recorder {pid} was killed" in (runs / "epilog.log").read_text()
    shown = done("show", str(recorded(runs, 6).parent), "--json")
    assert json.loads(shown.out)
