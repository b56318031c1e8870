"""Traces and reports beside one another, and those that only their own tool reads."""

import json
import sqlite3

import pytest

import import_timelines as make
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, import_files, read_files
from jouletrace.formats.importers.extent import extent


def test_a_trace_and_its_log_merge_from_files(tmp_path):
    trace = make.kineto(tmp_path / "t.json")
    export = make.nsys(tmp_path / "a.sqlite", launches=2)
    run = read_files([trace, export])
    assert extent(run).start_ns == make.BASE_NS
    assert [one["format"] for one in run.settings["imported"]] == ["kineto", "nsys"]
    assert run.kind == "import"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("a.nsys-rep", "nsys export --type sqlite"),
        ("a.qdrep", "nsys export --type sqlite"),
        ("a.ncu-rep", "ncu --import .* --csv --page raw"),
        ("a.nvvp", "nvprof --import-profile"),
    ],
)
@pytest.mark.parametrize("form", [None, "nsys", "table"])
def test_a_report_that_only_its_tool_reads_is_answered_with_the_command(tmp_path, name, command, form):
    path = tmp_path / name
    path.write_bytes(b"SQLite format 3\0 or whatever")
    with pytest.raises(BadInputError, match=command):
        read_files([path], ImportOptions(format=form))


def test_a_database_of_nvprof_is_not_taken_for_one_of_nsys(tmp_path):
    path = tmp_path / "profile.db"
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (_id_ INTEGER, start INTEGER, end INTEGER)")
    base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, correlationId INTEGER)")
    base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, 3)")
    base.commit()
    base.close()
    with pytest.raises(BadInputError, match="nvprof --import-profile"):
        read_files([path])


def test_only_logs_are_cut(tmp_path):
    log, trace = tmp_path / "log.csv", tmp_path / "trace.json"
    log.write_text("time,power_w\n" + "".join(f"2026-11-25 23:{k:02d}:00,{300 + k % 3}\n" for k in range(60)))
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1.0, "dur": 5.0, "pid": 0, "tid": 7, "args": {"device": 0}}
    trace.write_text(json.dumps({"traceEvents": [event]}))
    match = r"--from 23:30: cuts logs of power, and .*trace.json has more than readings"
    with pytest.raises(BadInputError, match=match):
        import_files(log, trace, since="23:30")
