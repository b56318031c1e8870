"""``show`` of several Runs: one table, in all formats."""

import csv
import io
import json

import pyarrow as pa
import pytest

from commands import command
from jouletrace.run import save, tables
from make_runs import START, gpu, profile_run


def run_of(batch, scale, iterations=0):
    run = profile_run(batch=batch, scale=scale)
    run.workload |= {"items": batch, "config": {"size": batch}}
    run.devices[0].power_limit_w = 300.0 + batch
    slow = [4e6 if i % 50 == 25 else 2e6 + i % 7 for i in range(iterations)]
    spans = [
        {"id": i, "kind": "iteration", "name": "iteration", "lane": "latency"}
        | {"start_ns": START + i * 10**9, "end_ns": START + i * 10**9 + round(ns)}
        for i, ns in enumerate(slow)
    ]
    run.spans = tables.from_rows(spans, "spans")
    return run


@pytest.fixture
def grid(tmp_path):
    """The folder of a sweep of three points, one of which holds Runs of its repeats."""
    for batch, scale in ((64, 1.0), (8, 0.2), (128, 1.8)):
        save(run_of(batch, scale, 600 if batch == 8 else 20), tmp_path / "points" / f"deit-b{batch}")
    save(run_of(8, 0.2), tmp_path / "points" / "deit-b8" / "repeats" / "1")
    return tmp_path


@pytest.mark.thorough
def test_a_folder_of_runs_is_one_table_with_the_settings_that_differ(grid, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    text = command(capsys, "show", str(grid), "--price", "0.30EUR/kWh").out
    lines = [line.split() for line in text.splitlines()]
    (head,) = [line for line in lines if line[:1] == ["file"]]
    assert " ".join(head) == "file batch config limit (W) per sample (mJ) p50 (ms) p99 (ms) power (W) cost (EUR)"
    rows = [line for line in lines if line and line[0].startswith("deit-b")]
    assert [line[:4] for line in rows] == [
        ["deit-b8", "8", "size=8", "308"],
        ["deit-b64", "64", "size=64", "364"],
        ["deit-b128", "128", "size=128", "428"],
    ]
    assert " ".join(rows[0]).startswith("deit-b8 8 size=8 308 116.30 ± 0.53 1.34")
    assert any(cell.startswith("4.00") for cell in rows[0]), "p99 of 600 iterations of which 2 % take 4 ms"
    assert "–" in rows[1], "of 20 iterations no p99 is known"
    assert "cost per million samples at 0.3 EUR/kWh (given, not measured;" in text
    assert "dtype fp16" in text


@pytest.mark.thorough
def test_csv_and_json_of_several_have_all_of_it(grid, capsys):
    table = list(
        csv.DictReader(io.StringIO(command(capsys, "show", str(grid), "--format", "csv", "--price", "0.30EUR").out))
    )
    assert [row["file"] for row in table] == ["deit-b8", "deit-b64", "deit-b128"]
    assert [row["config"] for row in table] == ["size=8", "size=64", "size=128"]
    first = {
        name: float(value)
        for name, value in table[0].items()
        if name.startswith(("energy_per", "latency_p", "cost")) and value
    }
    assert first["energy_per_sample_j"] == pytest.approx(4.652 * 0.2 / 8)
    assert first["cost"] == pytest.approx(first["energy_per_sample_j"] * 1e6 / 3.6e6 * 0.30)
    assert first["latency_p99_s_low"] <= first["latency_p99_s"] <= first["latency_p99_s_high"]
    assert first["latency_p99_s"] == pytest.approx(4e-3)
    assert table[1]["latency_p99_s"] == ""
    assert "latency_p99_s: too_few_independent" in table[1]["notes"]
    objects = json.loads(command(capsys, "show", str(grid), "--json", "--price", "0.30EUR").out)
    assert [one["file"] for one in objects] == ["deit-b8", "deit-b64", "deit-b128"]
    p99 = [one["model"]["latency_ms"]["percentiles"]["p99"] for one in objects]
    assert p99[0]["low"] <= p99[0]["value"] <= p99[0]["high"]
    assert p99[0]["value"] == pytest.approx(4.0)
    assert (p99[1]["value"], p99[1]["reason"]) == (None, "too_few_independent")
    assert objects[0]["cost"]["cost"]["value"] == pytest.approx(first["cost"])


@pytest.mark.thorough
def test_files_of_one_name_are_named_by_their_paths(grid, capsys):
    one, other = (grid / name / "run.zip" for name in ("a", "b"))
    for place in (one, other):
        place.parent.mkdir()
        save(run_of(8, 0.2), place)
    found = json.loads(command(capsys, "show", str(one), str(other), "--json").out)
    assert [run["file"] for run in found] == [str(one), str(other)]


@pytest.mark.thorough
def test_one_run_has_no_file_and_a_folder_without_one_is_refused(grid, capsys):
    assert "file" not in json.loads(command(capsys, "show", str(grid / "points" / "deit-b8"), "--json").out)
    (grid / "empty").mkdir()
    failed = command(capsys, "show", str(grid / "empty"))
    assert failed.code == 2
    assert "empty" in failed.err


@pytest.mark.thorough
def test_names_of_files_are_escaped(grid, capsys):
    save(run_of(8, 0.2), grid / "points" / "\x1b[31mred")
    for form in ("table", "csv", "markdown", "latex"):
        assert "\x1b" not in command(capsys, "show", str(grid), "--format", form).out


def test_budgets_of_several_runs_are_tables_one_below_the_other_and_one_list_in_json(capsys, tmp_path):
    runs = [str(save(run_of(batch, 1.0, 5), tmp_path / f"b{batch}")) for batch in (8, 64)]
    text = command(capsys, "show", *runs, "--budget").out
    assert text.splitlines()[0] == "deit-base: budget of uncertainty"
    assert text.count("budget of uncertainty") == 2
    first = next(line for line in text.splitlines() if line.startswith("scatter of windows")).split()
    combined_mj = 1e3 * float(text.partition("combined standard uncertainty ")[2].split()[0])
    assert float(first[-2]) == pytest.approx(100 * (float(first[-3]) / combined_mj) ** 2, abs=0.6)
    assert len(json.loads(command(capsys, "show", *runs, "--budget", "--json").out)) == 2


def test_doubtful_powers_of_a_run_are_shown_where_one_of_its_gpus_has_none(capsys, tmp_path):
    run = profile_run(kernels=4)
    run.devices.append(gpu(id="GPU-other"))
    row = {"device": "GPU-other", "unit": 5, "seconds": 1e-3, "reason": "not_resolved"}
    run.divided = pa.concat_tables([run.divided, tables.from_rows([row], "divided")])
    run.warn("powers_doubtful", "powers are doubtful")
    said = command(capsys, "show", str(save(run, tmp_path / "run")))
    assert (said.code, said.err) == (0, "")
    assert "powers are doubtful" in command(capsys, "show", str(tmp_path / "run"), "-v").out
