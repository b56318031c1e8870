"""Temporary folders: gone when their process is, also where that one can't remove them."""

import os
import signal
import sys
import tempfile
from contextlib import suppress

import pytest

from commands import wait_for
from jouletrace.run import PREFIX, Scratch, remove_left_behind
from scripts import run_script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and locks on folders")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where temporary folders are made, by this process and by those that it starts."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return place


def test_a_scratch_folder_is_there_until_it_is_removed(folder):
    with Scratch() as scratch:
        (scratch.path / "file").write_text("x")
        remove_left_behind()
        assert (scratch.path / "file").read_text() == "x"
    scratch.remove()
    assert list(folder.iterdir()) == []


def test_a_fork_leaves_the_folder_of_its_parent_alone(folder):
    with Scratch() as scratch:
        pid = os.fork()
        if pid == 0:
            with suppress(BaseException):
                scratch.remove()
                remove_left_behind()
            os._exit(0)
        os.waitpid(pid, 0)
        assert scratch.path.is_dir()


def test_what_a_killed_process_has_left_is_removed_by_the_next(folder):
    script = "from jouletrace.run.scratch import Scratch\nimport os\nkept = Scratch()\nos.kill(os.getpid(), 9)"
    assert run_script(script, folder).wait() == -signal.SIGKILL
    (folder / f"{PREFIX}not-a-folder").write_text("x")
    (folder / "another").mkdir()
    assert len(list(folder.glob(f"{PREFIX}*"))) == 2
    with Scratch():
        assert len(list(folder.glob(f"{PREFIX}*"))) == 2, "its own, and the file"
    assert sorted(path.name for path in folder.iterdir()) == ["another", f"{PREFIX}not-a-folder"]


MEASURES = """
import multiprocessing
import sys
import time
import jouletrace as jt

def child():
    with jt.measure("child", device="sim:h100?realtime=1"):
        time.sleep(0.1)

multiprocessing.set_start_method("fork")
if __name__ == "__main__":
    process = multiprocessing.Process(target=child)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


@pytest.mark.thorough
def test_a_fork_that_measures_leaves_nothing_though_it_ends_without_cleaning_up(folder):
    """multiprocessing ends its children by ``os._exit``: the recorder, which lives a little longer, cleans up."""
    process = run_script(MEASURES, folder, start_new_session=True)
    wait_for(lambda: list(folder.glob(f"{PREFIX}*")) or process.poll() is not None)
    assert process.wait() == 0
    wait_for(lambda: not list(folder.glob(f"{PREFIX}*")))
