"""Every file of a Run has a checksum, and what differs from it is named."""

import json
import os
import shutil
import stat
import zipfile
import zlib

import pytest

from commands import command
from jouletrace.errors import BadInputError
from jouletrace.run import FILES, load, save, verify
from make_runs import profile_run, thinned


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    save(thinned(profile_run(kernels=2)), folder / "run")
    save(thinned(profile_run(kernels=2)), folder / "run.zip")
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved / "run", tmp_path / "run")


def problems(path):
    (found,) = verify(path)
    return found.problems


@pytest.mark.parametrize("name", ["run", "run.zip"])
def test_what_was_saved_is_whole(saved, name):
    (found,) = verify(saved / name)
    assert found.whole
    assert found.files == len(FILES)


@pytest.mark.thorough
@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_anywhere_is_named(folder, name):
    path = folder / name
    data = path.read_bytes()
    for at in range(0, len(data), max(1, len(data) // 40)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :])
        found = set(problems(folder))
        assert name in found, at
        assert found == {name} or name == "run.json", at  # which may hold the checksum of another


def test_no_silent_change_of_the_header(folder):
    """A digit changed in run.json reads well: only its own checksum shows it."""
    text = (folder / "run.json").read_text()
    changed = text.replace('"power_limit_w": 700', '"power_limit_w": 300')
    assert changed != text
    (folder / "run.json").write_text(changed)
    assert [warning.code for warning in load(folder).warnings] == ["changed_since_saved"]
    assert "run.json is not what was saved" in load(folder).warnings[0].message


@pytest.mark.parametrize("name", FILES[:-1])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    assert problems(folder) == {name: "it is missing"}


def test_a_damaged_zip_is_named(saved, tmp_path):
    data = (saved / "run.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(data[: len(data) // 2])
    assert list(problems(tmp_path / "cut.zip")) == ["cut.zip"]


def test_a_table_of_a_zip_that_was_put_in_again_is_named(saved, tmp_path):
    with zipfile.ZipFile(saved / "run.zip") as old, zipfile.ZipFile(tmp_path / "new.zip", "w") as new:
        for name in old.namelist():
            other = "units.parquet" if name == "results.parquet" else name
            new.writestr(name, old.read(other))
    assert list(problems(tmp_path / "new.zip")) == ["results.parquet"]


def test_an_older_run_opens_and_what_can_not_be_known_is_reported(folder):
    """Format 1.1 had CRC-32 of the tables, and none of run.json."""
    header = json.loads((folder / "run.json").read_text())
    crc = {name: zlib.crc32((folder / name).read_bytes()) for name in FILES[:-1]}
    (folder / "run.json").write_text(json.dumps(header | {"schema_version": "1.1", "checksums": crc}))
    assert load(folder).warnings == profile_run(kernels=2).warnings
    assert list(problems(folder)) == ["run.json"]
    assert "can't be determined" in problems(folder)["run.json"]
    data = (folder / "units.parquet").read_bytes()
    (folder / "units.parquet").write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
    assert list(problems(folder)) == ["run.json", "units.parquet"]


def test_a_recording_that_was_cut_off_is_not_whole(folder):
    header = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(header | {"complete": False, "checksums": {}}))
    assert "cut off" in problems(folder)["run.json"]


def test_one_that_was_interrupted_and_saved_is_whole(tmp_path):
    run = profile_run()
    run.complete = False
    assert verify(save(run, tmp_path / "run"))[0].whole


def test_all_runs_in_a_folder_are_looked_at(saved, tmp_path):
    for name in ("a", "b/c"):
        shutil.copytree(saved / "run", tmp_path / name)
    (tmp_path / "b" / "c" / "units.parquet").unlink()
    assert {str(one.place.relative_to(tmp_path)): one.whole for one in verify(tmp_path)} == {"a": True, "b/c": False}


def test_an_export_to_csv_is_no_damaged_run(saved, tmp_path, capsys):
    shutil.copytree(saved / "run", tmp_path / "runs" / "a")
    exported = str(tmp_path / "runs" / "a-csv")
    assert command(capsys, "export", str(saved / "run"), "--format", "csv", "-o", exported).code == 0
    assert [one.place.name for one in verify(tmp_path / "runs")] == ["a"]
    for arguments in (["verify", exported], ["show", exported], ["compare", exported, str(saved / "run")]):
        said = command(capsys, *arguments)
        assert said.code == 2
        assert f"{exported} is an export to CSV, which isn't read back: name the Run" in said.complaint


def test_what_is_no_run_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "notes.txt", tmp_path / "nothing"):
        with pytest.raises(BadInputError):
            verify(place)


def test_the_command_says_which_file_and_ends_with_1(capsys, folder, saved, tmp_path):
    places = [str(saved / "run"), str(saved / "run.zip")]
    whole = command(capsys, "verify", *places)
    assert (whole.code, whole.err) == (0, "")
    assert whole.out.splitlines() == [f"{place}: whole (16 files)" for place in places]
    with (folder / "samples.parquet").open("r+b") as file:
        file.seek(100)
        file.write(b"xyz")
    broken = command(capsys, "verify", places[0], str(folder))
    assert broken.code == 1
    assert "  samples.parquet: it is not what was saved" in broken.out
    assert broken.err == f"jouletrace: {folder} is not whole: samples.parquet\n"
    printed = json.loads(command(capsys, "verify", str(folder), "--json").out)
    assert [list(one["problems"]) for one in printed["runs"]] == [["samples.parquet"]]
    for wrong in ([], [str(tmp_path / "nothing")]):
        said = command(capsys, "verify", *wrong)
        assert said.code == 2
        assert said.complaint


@pytest.mark.thorough
@pytest.mark.skipif(os.name != "posix", reason="permissions are as of POSIX")
def test_a_run_is_its_owners_alone_unless_asked_otherwise(tmp_path, monkeypatch):
    save(profile_run(), tmp_path / "a")
    save(profile_run(), tmp_path / "a.zip")
    assert {stat.S_IMODE(path.stat().st_mode) for path in [*(tmp_path / "a").iterdir(), tmp_path / "a.zip"]} == {0o600}
    monkeypatch.setenv("JOULETRACE_FILE_MODE", "644")
    save(profile_run(), tmp_path / "b")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "b").iterdir()} == {0o644}
    monkeypatch.setenv("JOULETRACE_FILE_MODE", "rw")
    with pytest.raises(BadInputError, match="JOULETRACE_FILE_MODE=rw: must be permissions in octal digits"):
        save(profile_run(), tmp_path / "c")
