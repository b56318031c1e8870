"""Files are there whole or not at all, and names fit any file system."""

import os

import pytest

from jouletrace.run.files import safe_name, write_whole


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
