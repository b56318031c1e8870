"""What is printed where the terminal has few letters, and files whose names are no text."""

import os
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown", "latex"])
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_everything_is_printed_in_any_encoding(saved, encoding, form):
    said = jouletrace("show", saved / "full", saved / "odd_names", "--format", form, PYTHONIOENCODING=encoding)
    assert (said.returncode, said.stderr) == (0, b"")
    said.stdout.decode(encoding)


def test_signs_of_ours_read_well_in_ascii(saved):
    said = jouletrace("show", saved / "full", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert "6.7120 +- 0.0041 ms" in said.stdout.decode("ascii")
    assert "\\x" not in said.stdout.decode("ascii")


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are any bytes there")
@pytest.mark.parametrize("form", ["csv", "parquet", "zip", "chrome", "perfetto", "svg"])
def test_a_run_is_exported_to_a_name_that_is_no_text(saved, tmp_path, form):
    target = tmp_path / os.fsdecode(b"o\xff")
    said = jouletrace("export", saved / "full", "--format", form, "-o", target)
    assert said.returncode == 0, said.stderr
    assert b"wrote" in said.stderr
    if form in ("parquet", "zip"):
        place = target if form == "parquet" else target.with_name(f"{target.name}.zip")
        assert load(place) == load(saved / "full")
        assert jouletrace("verify", place).returncode == 0
