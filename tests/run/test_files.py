"""Files are there whole or not at all, and names fit any file system."""

import os
from pathlib import Path

import pytest

from jouletrace.run import files, write_whole
from jouletrace.run.files import open_regular, safe_name


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path, durable):
    path = tmp_path / "deep" / "er" / "file"
    write_whole(path, b"old", durable=durable)
    write_whole(path, b"new", durable=durable)
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
def test_what_is_broken_off_leaves_the_old_bytes_and_no_half_file(tmp_path, monkeypatch, error):
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fail(_):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error)):
        write_whole(path, b"new", durable=True)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="what is synced is seen in /proc")
def test_a_file_is_on_the_disk_before_it_gets_its_name_and_its_name_before_it_returns(tmp_path, monkeypatch):
    synced = []
    fsync, replace = os.fsync, Path.replace

    def note_sync(handle):
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")).partition(".part")[0])
        fsync(handle)

    def note_name(path, target):
        synced.append("named")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_name)
    write_whole(tmp_path / "new" / "folder" / "file", b"x")
    assert synced == ["new", tmp_path.name, f".file.{os.getpid()}", "named", "folder"]


@pytest.mark.parametrize(("mode", "kept"), [(0o600, 0o600), (0o640, 0o640)])
def test_a_file_has_the_permissions_asked_for_from_the_beginning(tmp_path, monkeypatch, mode, kept):
    seen = []
    put = files.write_content

    def look(data, file):
        seen.append(Path(file.name).stat().st_mode & 0o777)
        put(data, file)

    monkeypatch.setattr(files, "write_content", look)
    write_whole(tmp_path / "file", b"x", mode=mode)
    assert seen == [kept]
    assert (tmp_path / "file").stat().st_mode & 0o777 == kept


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_only_an_ordinary_file_is_opened(tmp_path, kind):
    place = tmp_path / "it"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to("/dev/zero")
    with (
        pytest.raises(OSError, match="Is a directory" if kind == "folder" else "not an ordinary file"),
        open_regular(place),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("deit-b fp16/graph", "deit-b-fp16-graph"),
        ("../..", ""),
        ("a\0b\n", "a-b"),
        ("x" * 300, "x" * 80),
        ("日" * 99, "日" * 26),
    ],
)
def test_a_name_is_made_of_what_any_file_system_takes(text, name):
    assert safe_name(text) == name


def test_a_link_goes_on_to_point_where_it_did(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("file")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"new")
    assert os.read(reader, 10) == b"new"
    assert pipe.is_fifo()
    os.close(reader)
