"""Traces and pages of counters are recognised by their content and imported by the command."""

import gzip
import json

import pytest

import import_timelines as make
from commands import command
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import ImportOptions, read_files, recognise
from jouletrace.run import load


@pytest.mark.parametrize("form", make.MAKERS)
@pytest.mark.parametrize("name", ["file", "file.csv", "file.json"])
def test_a_file_is_recognised_by_its_content_whatever_its_name(tmp_path, form, name):
    path = make.MAKERS[form](tmp_path / name)
    assert recognise(path) == form
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert recognise(packed) == form


def test_a_raw_page_of_ncu_is_recognised(tmp_path):
    assert recognise(make.ncu_raw(tmp_path / "x", make.LAUNCHES)) == "ncu"


@pytest.mark.parametrize("form", make.MAKERS)
@pytest.mark.parametrize("content", [b"x", b"{}", b"a,b\n", b"SQLite format 3\0" + b"\0" * 200, b"\0" * 5000])
def test_a_wrongly_named_format_is_one_line(tmp_path, form, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(BadInputError) as caught:
        read_files([path], ImportOptions(format=form))
    assert "\n" not in str(caught.value)
    assert "x" in str(caught.value)


@pytest.mark.thorough
def test_the_command_writes_a_run_and_says_what_is_in_it(workspace, capsys):
    make.nsys(workspace / "a.sqlite", launches=2)
    make.ncu_details(workspace / "a.csv", [(make.GEMM, (8, 1, 1)), (make.RELU, (16, 1, 1))] * 2)
    done = command(capsys, "import", "a.sqlite", "a.csv", "-o", "run", "--json")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert facts["spans"] == {"launch": 4, "range": 4, "kernel": 4, "memcpy": 2}
    assert facts["files"][1]["match"]["rate"] == 1.0
    assert len(load(workspace / "run").spans) == 14


def test_the_command_says_how_many_kernels_have_their_launch(workspace, capsys):
    make.kineto(workspace / "t.json")
    assert "4 kernels" in command(capsys, "import", "t.json", "-o", "short").out
    done = command(capsys, "import", "t.json", "-o", "run", "-v")
    assert done.code == 0, done.err
    assert "6 of 6 kernels and copies have their launch" in done.out
