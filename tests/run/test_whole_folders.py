"""Folders are written whole or not at all, as files are; what killed writers left goes with the next one."""

import subprocess
import sys
import threading

import pytest

from commands import command
from jouletrace import load
from jouletrace.errors import TakenError
from jouletrace.formats import exporters
from jouletrace.run.files import new_folder
from make_runs import profile_run


@pytest.fixture
def kept(tmp_path):
    return profile_run(kernels=3).save(tmp_path / "kept")


@pytest.mark.parametrize("form", ["csv", "parquet", "zip", "chrome"])
def test_an_export_that_does_not_fit_leaves_nothing(capsys, kept, tmp_path, small_files, form):
    said = command(capsys, "export", str(kept), "-f", form, "-o", str(tmp_path / "out"))
    assert said.code == 2
    assert "out: File too large" in said.complaint.replace("out.zip", "out")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


KILLED = """
import os, sys, time
from pathlib import Path
import pyarrow.csv as writer
from jouletrace import load
from jouletrace.formats import exporters
from jouletrace.run import files

def hang(*_):
    print("writing", flush=True)
    time.sleep(3600)

place = Path(sys.argv[1])
run = load(place / "kept")
if sys.argv[2] == "csv":
    writer.write_csv = hang
else:
    files.write_content = hang
exporters.export(run, sys.argv[2], place / "out")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("into", ["new", "empty"])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_what_a_killed_writer_left_goes_with_the_next(kept, tmp_path, form, into):
    if into == "empty":
        (tmp_path / "out").mkdir()
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), form], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    (partial,) = tmp_path.glob("out/.*" if into == "empty" else ".out.*")
    exporters.export(load(kept), "kernels", partial.parent / "other.csv")
    (partial.parent / "other.csv").unlink()
    assert partial.exists(), "its writer is alive"
    process.kill()
    process.wait()
    assert [*tmp_path.glob("out/*")] == [partial] * (into == "empty"), "nothing under a final name"
    exporters.export(load(kept), form, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "out"]
    assert (tmp_path / "out" / "run.json").is_file()
    assert not [*(tmp_path / "out").glob(".*")]


def test_files_of_others_stay(tmp_path):
    for name in (".out.12.part-0123", ".part-01234567", "out.12.part-01234567", ".out.part-01234567"):
        (tmp_path / name).touch()
    with new_folder(tmp_path / "out") as folder:
        (folder / "file").touch()
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_an_empty_folder_that_is_there_stays_the_same_one(capsys, kept, tmp_path, monkeypatch, form):
    place = tmp_path / "mine"
    place.mkdir(mode=0o700)
    before = place.stat()
    monkeypatch.chdir(place)
    said = command(capsys, "export", str(kept), "-f", form, "-o", ".")
    assert said.code == 0, said.complaint
    assert (place / "run.json").is_file()
    assert (place.stat().st_ino, place.stat().st_mode) == (before.st_ino, before.st_mode)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_an_empty_folder_is_empty_again_after_a_failure(capsys, kept, tmp_path, small_files, form):
    (tmp_path / "mine").mkdir()
    assert command(capsys, "export", str(kept), "-f", form, "-o", str(tmp_path / "mine")).code == 2
    assert not any((tmp_path / "mine").iterdir())


def test_the_second_to_write_a_folder_is_refused(tmp_path):
    later = new_folder(tmp_path / "out")
    (later.__enter__() / "file").touch()
    with new_folder(tmp_path / "out") as first:
        (first / "mine").touch()
    with pytest.raises(FileExistsError):
        later.__exit__(None, None, None)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
    assert len(list(tmp_path.iterdir())) == 1


def test_two_that_save_a_run_at_once_leave_one(tmp_path):
    run, refused = profile_run(kernels=3), []
    both = threading.Barrier(2)

    def save():
        both.wait()
        try:
            run.save(tmp_path / "out")
        except TakenError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=save) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1
    assert load(tmp_path / "out").complete
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
