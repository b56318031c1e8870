"""Runs that ask for more than they are worth: refused in one line, at once, in little memory."""

import json
import os
import subprocess
import sys

import pytest

import hostile_runs
from jouletrace.errors import BadInputError
from jouletrace.run import load, save
from jouletrace.run.limits import VARIABLE
from make_runs import profile_run

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="memory is read in /proc")

_OPEN_ALL = """
import json, sys, time
from jouletrace.errors import BadInputError
from jouletrace.run import load
import pyarrow.parquet
for path in json.load(sys.stdin):
    began = time.process_time()
    try:
        load(path)
        said = None
    except BadInputError as error:
        said = str(error)
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    print(json.dumps([path, said, peak / 1024, time.process_time() - began]), flush=True)
"""

MOST_MIB = 500
"""Half of what is promised: that is of what may be opened."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    save(profile_run(kernels=2), folder / "run")
    return folder / "run"


@pytest.mark.thorough
def test_whatever_a_file_says_it_is_refused_in_one_line_and_little_memory(whole, tmp_path):
    paths = [str(path) for path in hostile_runs.make_all(whole, tmp_path)]
    ran = subprocess.run(
        [sys.executable, "-c", _OPEN_ALL],
        check=False,
        input=json.dumps(paths),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stderr
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(found) == len(paths)
    opened = {make.__name__ for make in hostile_runs.OPENED}
    for path, said, peak_mib, _ in found:
        name = os.path.basename(path).removesuffix(".zip")
        assert peak_mib < MOST_MIB, name
        if name in opened:
            assert said is None, name
        else:
            assert said is not None, name
            assert name in said
            assert "\n" not in said
            assert len(said) < 500


def test_who_trusts_a_large_run_may_open_it(whole, tmp_path, monkeypatch):
    folder = hostile_runs.one_long_text_in_many_rows(whole, tmp_path / "run", rows=2000)
    with pytest.raises(BadInputError, match=f"{VARIABLE}=8 allows 8 GiB"):
        load(folder)
    monkeypatch.setenv(VARIABLE, "0.5")
    assert len(load(folder).results["flags"][1999].as_py()) == 60_000
    monkeypatch.setenv(VARIABLE, "lots")
    with pytest.raises(BadInputError, match=f"{VARIABLE}=lots: must be a number of GiB"):
        load(folder)
