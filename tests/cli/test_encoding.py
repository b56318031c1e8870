"""Prints on a terminal with few letters, and files whose names are no text."""

import io
import os
import subprocess
import sys

import pytest

from jouletrace.cli.encoding import print_any_text
from jouletrace.cli.main import run
from jouletrace.run import load, save
from make_runs import all_runs


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    for name in ("full", "odd_names"):
        save(all_runs()[name], folder / name)
    return folder


def jouletrace(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "jouletrace", *map(os.fspath, arguments)],
        check=False,
        capture_output=True,
        env={**os.environ, **variables},
    )


def printed(monkeypatch, encoding, *arguments):
    """Exit code, output and complaints, as bytes, of a command in this process at a terminal of an encoding."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2)]
    for name, stream in zip(("stdout", "stderr"), streams, strict=True):
        monkeypatch.setattr(sys, name, stream)
    print_any_text()
    code = run([os.fspath(argument) for argument in arguments])
    for stream in streams:
        stream.flush()
    return code, *(stream.buffer.getvalue() for stream in streams)


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown", "latex"])
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_everything_is_printed_in_any_encoding(saved, monkeypatch, encoding, form):
    shown = printed(monkeypatch, encoding, "show", saved / "full", saved / "odd_names", "--format", form)
    assert (shown[0], shown[2]) == (0, b"")
    shown[1].decode(encoding)


@pytest.mark.thorough
def test_the_encoding_of_a_process_is_that_of_its_terminal(saved):
    said = jouletrace("show", saved / "odd_names", PYTHONIOENCODING="ascii")
    assert (said.returncode, said.stderr) == (0, b"")
    said.stdout.decode("ascii")


@pytest.mark.thorough
def test_signs_of_ours_read_well_in_ascii(saved):
    said = jouletrace("show", saved / "full", "-v", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert "6.7120 +- 0.0041 ms" in said.stdout.decode("ascii")
    assert "\\x" not in said.stdout.decode("ascii")


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="names of files are any bytes there")
@pytest.mark.parametrize("form", ["csv", "parquet", "zip", "chrome", "svg"])
def test_a_run_is_exported_to_a_name_that_is_no_text(saved, tmp_path, monkeypatch, form):
    target = tmp_path / os.fsdecode(b"o\xff")
    code, _, err = printed(monkeypatch, "utf-8", "export", saved / "full", "--format", form, "-o", target)
    assert code == 0, err
    assert b"wrote" in err
    if form in ("parquet", "zip"):
        place = target if form == "parquet" else target.with_name(f"{target.name}.zip")
        assert load(place) == load(saved / "full")
        assert printed(monkeypatch, "utf-8", "verify", place)[0] == 0
    if form == "csv":
        assert jouletrace("export", saved / "full", "--format", form, "-o", f"{target}2").returncode == 0
