"""Rows of nvidia-smi that share a time, of GPUs that nothing distinguishes."""

import random
from datetime import UTC, datetime

import pytest

from commands import command
from import_logs import read, sessions
from jouletrace.errors import BadInputError
from places import DATA


def log(rows):
    return "timestamp, power.draw [W]\n" + "".join(f"{time},{watts}\n" for time, watts in rows)


@pytest.mark.parametrize(("count", "step", "apart"), [(2, 1, 0.004), (2, 1, 0.0007), (8, 1, 0.004), (8, 0.1, 0.003)])
def test_equal_gpus_without_an_index_are_asked_about(tmp_path, count, step, apart):
    draw = random.Random(count)
    rows = [
        (f"2026/08/24 22:19:{i * step + k * apart:06.3f}", f"{draw.gauss(300, 2):.2f} W")
        for i in range(50)
        for k in range(count)
    ][1:]  # the first of a burst may be cut off
    with pytest.raises(BadInputError, match=f"are they of {count} GPUs without an index"):
        read(tmp_path, "nvidia_smi", log(rows))


@pytest.mark.parametrize("size", [2, 3, 5, 10, 16, 20])
@pytest.mark.parametrize("step", [0.1, 1, 5])
def test_sessions_of_one_length_are_of_one_gpu(tmp_path, size, step):
    rows = [(f"{datetime.fromtimestamp(at, UTC):%Y/%m/%d %H:%M:%S.%f}"[:-3], w) for at, w in sessions(size, step=step)]
    run = read(tmp_path, "nvidia_smi", log(rows), device="NVIDIA H100")
    assert len(run.series("imported:0", "power_w")[1]) == 6 * size
    assert "stamps_shared" not in {warning.code for warning in run.warnings}


def test_two_gpus_without_an_index_are_asked_about_with_a_query_that_has_it(capsys, tmp_path):
    path = DATA / "faults" / "O1_two_gpus_no_index.csv"
    complaint = command(capsys, "import", str(path), "-o", str(tmp_path / "r")).complaint
    assert "2 GPUs without an index?" in complaint
    assert "--query-gpu=timestamp,index," in complaint
    assert "--map" not in complaint
    assert not (tmp_path / "r").exists()
