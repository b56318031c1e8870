"""A fault at any system call of saving: afterwards a second save succeeds, or the whole Run is there."""

import errno
import os
from contextlib import suppress

import pytest

from jouletrace.errors import BadInputError
from jouletrace.run import Run, files, load, save
from make_runs import monitor_run

RUN = monitor_run()
CALLS = ("open", "close", "stat", "lstat", "mkdir", "rmdir", "link", "unlink", "replace", "rename", "fsync")
"""Functions of ``os`` by which files are written; the write itself is ``files.write_content``."""

FAULTS = {
    "full": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "broken": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "interrupted": KeyboardInterrupt,
}


class Fault:
    """Counts calls, and raises an error before or after one of them."""

    def __init__(self, monkeypatch):
        self.calls, self.at, self.after, self.error = 0, -1, False, KeyboardInterrupt
        for name in CALLS:
            monkeypatch.setattr(os, name, self.watched(getattr(os, name)))
        monkeypatch.setattr(files, "write_content", self.watched(files.write_content))

    def watched(self, function):
        def call(*args, **options):
            number = self.calls
            self.calls += 1
            if number == self.at and not self.after:
                raise self.error()
            result = function(*args, **options)
            if number == self.at and self.after:
                raise self.error()
            return result

        return call

    def arm(self, at, error, *, after):
        self.calls, self.at, self.after, self.error = 0, at, after, error


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "run.zip"])
@pytest.mark.parametrize("error", FAULTS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_fault_leaves_the_place_free_or_a_whole_run(tmp_path, monkeypatch, name, error, after):
    fault = Fault(monkeypatch)
    fault.arm(-1, FAULTS[error], after=after)
    save(RUN, tmp_path / "whole" / name)
    count = fault.calls
    assert count > 20
    for number in range(count):
        place = tmp_path / str(number) / name
        place.parent.parent.mkdir(exist_ok=True)
        fault.arm(number, FAULTS[error], after=after)
        with suppress(BadInputError, KeyboardInterrupt):
            save(RUN, place)
        fault.arm(-1, KeyboardInterrupt, after=False)
        try:
            assert load(place) == RUN
        except BadInputError:
            save(RUN, place)
            assert load(place) == RUN
        assert not list((tmp_path / str(number)).rglob(".*.part*")), number


@pytest.mark.parametrize("name", ["run", "run.zip"])
@pytest.mark.parametrize("error", FAULTS)
def test_a_fault_right_after_the_first_file_leaves_the_place_free(tmp_path, monkeypatch, name, error):
    place, step = tmp_path / name, "link" if name.endswith(".zip") else "rename"
    gives_the_name = getattr(os, step)

    def late(source, target):
        gives_the_name(source, target)
        raise FAULTS[error]()

    with monkeypatch.context() as patched:
        patched.setattr(os, step, late)
        with pytest.raises((BadInputError, KeyboardInterrupt)):
            save(RUN, place)
    assert list(tmp_path.iterdir()) == []
    assert load(save(RUN, place)) == RUN


def test_an_empty_folder_of_the_users_stays(tmp_path, monkeypatch):
    def refuse(handle):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refuse)
    (tmp_path / "mine").mkdir()
    with pytest.raises(BadInputError):
        save(Run(), tmp_path / "mine")
    assert list((tmp_path / "mine").iterdir()) == []
