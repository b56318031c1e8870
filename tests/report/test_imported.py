"""How Runs of other tools' files are shown: kernels first, lists that end, nothing said that wasn't measured."""

import csv
import io

import pytest

from commands import command
from import_logs import night
from jouletrace import report
from jouletrace.analysis import analyse
from jouletrace.formats.importers import read_files
from jouletrace.run import load


@pytest.mark.thorough
def test_the_csv_of_several_gpus_begins_with_the_energy_of_all(tmp_path, capsys):
    for number, watts in enumerate((61, 87)):
        (tmp_path / f"gpu{number}.csv").write_text(
            "time_s,device,power_w\n" + "".join(f"{k},{number},{watts}\n" for k in range(60))
        )
    files = [str(path) for path in sorted(tmp_path.glob("*.csv"))]
    said = command(capsys, "import", *files, "-o", str(tmp_path / "run"))
    assert said.code == 0, said.err
    run = load(tmp_path / "run")
    assert run.workload["name"] == "gpu0.csv and 1 more"
    whole, *parts = csv.DictReader(io.StringIO(report.render([run], form="csv")))
    assert float(whole["energy_total_j"]) == pytest.approx(sum(float(one["energy_total_j"]) for one in parts))


def test_times_from_zero_have_no_date(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("time_s,power_w\n" + "".join(f"{k},{61 if k < 10 else 87}\n" for k in range(20)))
    run = analyse(read_files([path], None))
    assert "1970" not in report.render([run], verbose=True)
    assert "1970" not in report.render([run], "markdown")
    run.created_ns = 1_709_294_400 * 10**9
    assert "2024-03-01 12:00 UTC" in report.render([run], verbose=True)


@pytest.mark.thorough
def test_half_an_hour_without_readings_does_not_cost_the_night(workspace, capsys):
    night(workspace, without=range(100, 130))
    words = " ".join(command(capsys, "import", "smi.csv", "-o", "r").out.split())
    assert "energy unknown" not in words
    assert "300.030 ± 0.047 W on average" in words
    assert "a hole of 1800 s, 2026-11-22 21:39:00.000 UTC to 2026-11-22 22:09:00.000 UTC" in words
    assert load("r").result("time_s", 1).value + 1800 == 479 * 60
    assert "without holes and resets" in words
    assert "run it again" not in words
    assert not [line for line in command(capsys, "import", "smi.csv").out.splitlines() if line.endswith("--query-")]


@pytest.mark.thorough
def test_two_logs_of_one_gpu_are_one_record(workspace, capsys):
    night(workspace)
    night(workspace, "other.csv", offset_s=30, watts=310)
    words = " ".join(command(capsys, "import", "smi.csv", "other.csv", "-v", "-o", "both").out.split())
    assert " W on average" in words
    assert "smi.csv and other.csv are logs of one GPU" in words
    assert "clock stepped back" not in words
    single = command(capsys, "import", "smi.csv", "-o", "one").out
    assert single.split("kJ")[0].split()[-1] in words or single.split("MJ")[0].split()[-1] in words


@pytest.mark.thorough
def test_logs_of_one_gpu_may_be_named_in_any_order(workspace, capsys):
    night(workspace, "whole.csv")
    lines = (workspace / "whole.csv").read_text().splitlines(keepends=True)
    (workspace / "first.csv").write_text("".join(lines[:200]))
    (workspace / "second.csv").write_text(lines[0] + "".join(lines[200:]))
    whole = command(capsys, "import", "whole.csv").out.splitlines()
    halves = command(capsys, "import", "second.csv", "first.csv").out.splitlines()
    assert halves[2:] == whole[2:]  # but for the names of the files
