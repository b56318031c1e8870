"""Runs for other programs: complete, with units, never over something else."""

import csv
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from jouletrace.errors import BadInputError
from jouletrace.formats import exporters
from jouletrace.run import Run, load, tables
from make_runs import START, all_runs, profile_run, random_table, simulated_run

RUNS = all_runs()


@pytest.mark.parametrize("name", [name for name, run in RUNS.items() if run.complete])
@pytest.mark.parametrize("form", ["parquet", "zip"])
def test_an_exported_run_is_the_same_run(tmp_path, name, form):
    assert load(exporters.export(RUNS[name], form, tmp_path / "out")) == RUNS[name]


def test_zip_adds_its_suffix_and_holds_all_files(tmp_path):
    path = exporters.export(RUNS["full"], "zip", tmp_path / "a.b")
    assert path == tmp_path / "a.b.zip"
    assert set(zipfile.ZipFile(path).namelist()) == {
        "run.json",
        *(f"{name}.parquet" for name in tables.TABLES if name not in tables.OF_LONG),
    }
    assert exporters.export(RUNS["full"], "zip", tmp_path / "c.zip") == tmp_path / "c.zip"


def test_parquet_carries_units_in_its_schemas(tmp_path):
    exporters.export(RUNS["full"], "parquet", tmp_path / "out")
    assert pq.read_schema(tmp_path / "out" / "windows.parquet").field("time_s").metadata[b"unit"] == b"s"


def test_every_table_of_a_simulated_run_says_so_in_every_row(tmp_path):
    run = simulated_run()
    exporters.export(run, "csv", tmp_path / "csv")
    exporters.export(run, "parquet", tmp_path / "parquet")
    for name in tables.TABLES.keys() - tables.SOLVED - set(tables.OF_LONG):
        heading, *rows = csv.reader((tmp_path / "csv" / f"{name}.csv").open(newline=""))
        assert heading[-1] == "SIMULATED"
        assert {row[-1] for row in rows} <= {"true"}
        assert len(rows) == len(run.table(name))
        path = tmp_path / "parquet" / f"{name}.parquet"
        if path.exists():
            assert pq.read_table(path)["SIMULATED"].to_pylist() == [True] * len(run.table(name))
    assert load(tmp_path / "parquet") == run


def test_tables_of_a_real_run_have_no_such_column(tmp_path):
    exporters.export(profile_run(), "csv", tmp_path / "csv")
    exporters.export(profile_run(), "parquet", tmp_path / "parquet")
    assert "SIMULATED" not in (tmp_path / "csv" / "results.csv").read_text()
    assert "SIMULATED" not in pq.read_schema(tmp_path / "parquet" / "results.parquet").names


def test_parquet_refuses_the_name_of_a_zip(tmp_path):
    with pytest.raises(BadInputError, match="format zip"):
        exporters.export(Run(), "parquet", tmp_path / "out.zip")


def test_csv_is_one_file_a_table_beside_run_json(tmp_path):
    exporters.export(RUNS["full"], "csv", tmp_path / "out")
    found = {path.name for path in (tmp_path / "out").iterdir()}
    assert found == {
        "run.json",
        *(f"{name}.csv" for name in tables.TABLES if name not in (*tables.SOLVED, *tables.OF_LONG)),
    }
    header = json.loads((tmp_path / "out" / "run.json").read_text())
    assert header["channels"][0]["unit"] == "W"


def test_csv_headings_name_every_unit(tmp_path):
    exporters.export(Run(), "csv", tmp_path / "out")
    suffixes = {"ns": "_ns", "W": "_w", "J": "_j", "s": "_s", "MHz": "_mhz", "Cel": "_c", "B": "bytes"}
    for name, schema in [
        (name, tables.TABLES[name]) for name in tables.TABLES if name not in (*tables.SOLVED, *tables.OF_LONG)
    ]:
        headings = next(csv.reader((tmp_path / "out" / f"{name}.csv").open()))
        for field, heading in zip(schema, headings, strict=True):
            unit = field.metadata[b"unit"].decode()
            assert heading.startswith(field.name)
            assert not unit or heading.endswith((f"[{unit}]", suffixes.get(unit, f"[{unit}]"))), heading


def test_csv_numbers_read_back_equal(tmp_path):
    run = Run(**{name: tables.from_rows(random_table(name, 100, 7), name) for name in tables.TABLES})
    exporters.export(run, "csv", tmp_path / "out")
    for name, column, heading in (
        ("samples", "value", "value [by channel]"),
        ("samples", "time_ns", "time_ns"),
        ("spans", "start_ns", "start_ns"),
        ("windows", "energy_j", "energy_j"),
    ):
        back = pacsv.read_csv(
            tmp_path / "out" / f"{name}.csv", parse_options=pacsv.ParseOptions(newlines_in_values=True)
        )
        assert back[heading].to_pylist() == run.table(name)[column].to_pylist()


def test_csv_times_are_whole_nanoseconds_and_grids_are_readable(tmp_path):
    run = profile_run()
    row = {"id": 1, "kind": "kernel", "name": 'a "quoted", name\nof two lines', "start_ns": START, "end_ns": START + 1}
    run.spans = tables.from_rows([{**row, "grid_x": 128, "grid_y": 2}, row], "spans")
    exporters.export(run, "csv", tmp_path / "out")
    first, second = csv.DictReader((tmp_path / "out" / "spans.csv").open(newline=""))
    assert first["start_ns"] == str(START)
    assert (first["grid_x [blocks]"], first["grid_y [blocks]"], first["grid_z [blocks]"]) == ("128", "2", "")
    assert second["grid_x [blocks]"] == ""
    assert first["name"] == row["name"]


@pytest.mark.parametrize("form", exporters.FORMATS)
def test_of_two_exports_at_once_one_is_refused(tmp_path, monkeypatch, form):
    """The other writes after we looked whether the place is free, before our file or folder gets its name."""
    step = "rename" if form in ("csv", "parquet") else "link"
    give_name = getattr(os, step)

    def late(source, target):
        Path(target).write_text("another's")
        give_name(source, target)

    monkeypatch.setattr(os, step, late)
    target = tmp_path / ("out.zip" if form == "zip" else "out")
    with pytest.raises(BadInputError, match="never overwritten"):
        exporters.export(RUNS["full"], form, target)
    (kept,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept.read_text() == "another's"


@pytest.mark.parametrize("form", exporters.FORMATS)
def test_nothing_is_written_over_what_is_there(tmp_path, form):
    target = tmp_path / ("out.zip" if form == "zip" else "out")
    target.write_text("mine")
    with pytest.raises(BadInputError, match="never overwritten"):
        exporters.export(Run(), form, target)
    assert target.read_text() == "mine"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    if form != "zip":
        with pytest.raises(BadInputError, match="never overwritten"):
            exporters.export(Run(), form, tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["file"]


@pytest.mark.parametrize("form", exporters.FORMATS)
@pytest.mark.parametrize("where", ["file/out", "null\0byte", "x" * 300])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path, form, where):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadInputError) as caught:
        exporters.export(Run(), form, tmp_path / where)
    assert "\n" not in str(caught.value)


def test_an_unknown_format_offers_the_nearest(tmp_path):
    with pytest.raises(BadInputError, match="did you mean parquet"):
        exporters.export(Run(), "parket", tmp_path / "out")


def test_a_format_that_is_gone_names_what_takes_its_place(tmp_path):
    with pytest.raises(BadInputError, match=r"^there is no format perfetto: --format chrome opens at https"):
        exporters.export(Run(), "perfetto", tmp_path / "out")


def test_a_large_run_exports_quickly(tmp_path):
    n = 200_000
    run = Run(
        samples=tables.conform(
            tables.from_rows([], "samples").from_pydict(
                {
                    "time_ns": np.arange(n) + START,
                    "device": ["d"] * n,
                    "channel": ["power_w"] * n,
                    "value": np.linspace(0, 1, n),
                }
            ),
            "samples",
        )
    )
    exporters.export(run, "csv", tmp_path / "out")
    assert sum(1 for _ in (tmp_path / "out" / "samples.csv").open()) == n + 1
