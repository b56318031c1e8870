"""Recognising files by content, reading them bounded, and the ``import`` command."""

import gzip

import pytest

import import_timelines as make
import jouletrace as jt
from commands import command
from import_logs import SAMPLES, meter, write
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import Coded, ImportOptions, base, block, formats, importer, read_files
from jouletrace.formats.importers.base import Left, decode_text, new_run, read_bytes, read_text
from jouletrace.formats.importers.columns import Partly
from jouletrace.run import load, tables
from places import REPOSITORY

ELSEWHERE = {"jouletrace", "aiperf", "vllm_bench", "inferencex"}
"""Formats whose samples are in ``test_merge``, and in tests of their wing."""


@pytest.mark.thorough
@pytest.mark.parametrize("form", formats())
def test_every_format_has_an_importer_that_bears_any_head(form):
    module = importer(form)
    for head in (b"", b"\0" * 100, b"\xff\xfe\x00", b"a,b\n1,2\n", b"{", b"[[[", bytes(range(256)) * 20):
        assert module.sniff(head) in (True, False)


@pytest.mark.parametrize("form", formats())
def test_every_format_has_a_sample_and_a_row_in_the_documentation(form):
    there = {*make.MAKERS, *ELSEWHERE, *(of for of, _ in SAMPLES.values())}
    assert form in there, "add a text of it to TEXTS of import_logs.py: damaged variants are made of it"
    pages = [(REPOSITORY / "docs" / "how-to" / name).read_text() for name in ("importing.md", "importing-logs.md")]
    assert any(f"\n| `{form}` |" in page for page in pages), "add a row to docs/how-to/importing-logs.md"


@pytest.mark.parametrize(("content", "message"), [
    (b"", "is empty"), (bytes(range(256)) * 400, "not recognised"), (b"hello\n", "not recognised"),
    (b"\x1f\x8b\x08 no gzip", "cannot read"), (gzip.compress(b"", mtime=0), "is empty"),
])  # fmt: skip
def test_a_file_of_no_known_format_is_one_line(tmp_path, content, message):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=message) as caught:
        read_files([path])
    assert "\n" not in str(caught.value)


@pytest.mark.thorough
@pytest.mark.parametrize("path", ["nowhere.json", "."])
def test_what_isnt_a_file_is_one_line(path):
    with pytest.raises(BadInputError, match=r"cannot read|not the folder of a Run, nor of a known format"):
        read_files([path])


def test_an_unknown_format_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(BadInputError, match="did you mean table"):
        read_files([write(tmp_path, meter([100.0] * 3))], ImportOptions(format="tabel"))


def test_a_file_that_unpacks_to_more_than_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "LIMIT_BYTES", 1 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"\0" * (3 << 20)))
    with pytest.raises(BadInputError, match="holds more than"):
        read_bytes(path)
    path.write_bytes(b"\0" * (2 << 20))
    with pytest.raises(BadInputError, match="is larger than"):
        read_bytes(path)


def test_text_of_windows_shells_is_decoded(tmp_path):
    assert decode_text("größe".encode("utf-16")) == "größe"
    assert decode_text(b"\xef\xbb\xbfa") == "a"
    assert decode_text(b"a\xff") == "a\\xff"
    path = tmp_path / "x"
    path.write_bytes(b"a\0b")
    with pytest.raises(BadInputError, match="binary"):
        read_text(path)


def test_what_was_left_out_is_counted_with_its_first_place(tmp_path):
    left, run = Left(tmp_path / "f"), new_run(tmp_path / "f", "x", "none")
    left.add("none", "nothing", 0, "line 1")
    left.add("bad", "rows are bad", 2, lambda: "line 7")
    left.add("bad", "rows are bad", 3, lambda: pytest.fail("asked for another place"))
    left.warn(run)
    assert [(w.code, w.message, w.where) for w in run.warnings] == [("bad", "5 rows are bad, the first at line 7", "f")]
    assert run.settings["imported"][0]["left_out"] == {"bad": 5}


def test_a_block_of_columns_is_a_table_of_the_run():
    table = block(
        "spans", 3, id=[1, 2, 3], kind="op", name=Coded([0, -1, 1], ["a", "b"]),
        bytes=Partly([7, 8, 9], [True, False, True]), start_ns=5,
    )  # fmt: skip
    assert table["name"].to_pylist() == ["a", None, "b"]
    assert table["bytes"].to_pylist() == [7, None, 9]
    assert table["start_ns"].to_pylist() == [5, 5, 5]
    codes, texts = tables.decoded(table["name"])
    assert [texts[code] if code >= 0 else None for code in codes] == ["a", None, "b"]
    with pytest.raises(KeyError):
        block("spans", 1, nonsense=[1])


def test_the_command_prints_for_people_too(workspace, capsys):
    write(workspace, meter([100.0 + k for k in range(20)]), "t.csv")
    done = command(capsys, "import", "t.csv", "-o", "short")
    assert "40 samples over 19 s" in done.out
    assert "trust: " in done.out
    done = command(capsys, "import", "t.csv", "-o", "run", "-v")
    assert done.code == 0, done.err
    assert "t.csv: table; its times are Unix times" in done.out
    assert "saved run" in done.err


@pytest.mark.parametrize(("arguments", "message"), [
    (["t.csv", "--offset", "soon"], "--offset 'soon'"),
    (["t.csv", "--offset", "other=1"], "none of the files"),
    (["t.csv", "--offset", "1e11"], "must be a number of seconds below 1e+10"),
    (["t.csv", "--format", "x"], "unknown format"),
    (["nothing.json"], "cannot read"),
])  # fmt: skip
def test_wrong_use_of_the_command_is_one_line(workspace, capsys, arguments, message):
    write(workspace, meter([100.0] * 9), "t.csv")
    done = command(capsys, "import", *arguments)
    assert done.code == 2
    assert message in done.complaint
    assert not (workspace / "runs").exists()


@pytest.mark.thorough
def test_python_imports_what_the_command_does_and_saves_it_on_request(workspace, capsys):
    trace = write(workspace, meter([100.0] * 9), "t.csv")
    assert command(capsys, "import", "t.csv", "--offset", "5", "-o", "by-command").code == 0
    run = jt.import_files(trace, offset=5, save_to="run.zip")
    for stored in (load("by-command"), load("run.zip")):
        assert (stored.samples, stored.results, stored.settings) == (run.samples, run.results, run.settings)
    assert jt.import_files("t.csv").samples["time_ns"][0].as_py() == run.samples["time_ns"][0].as_py() - 5 * 10**9
    assert sorted(file.name for file in workspace.iterdir()) == ["by-command", "run.zip", "t.csv"]


@pytest.mark.parametrize(("files", "options", "message"), [
    ([], {}, "no file to import"),
    (["t.csv"], {"zone": "UTC"}, r"import_files.. has no option 'zone'; did you mean 'time_zone'"),
    (["t.csv"], {"offsets_s": {"other": 1}}, "none of the files"),
    (["t.csv"], {"latency_s": "4ms"}, "--latency 4ms"),
    (["t.csv"], {"save_to": "t.csv"}, "t.csv exists"),
    ([["t.csv"]], {}, "give each file as an argument of its own"),
])  # fmt: skip
def test_wrong_use_in_python_is_one_line(workspace, files, options, message):
    write(workspace, meter([100.0] * 9), "t.csv")
    with pytest.raises(BadInputError, match=message) as caught:
        jt.import_files(*files, **options)
    assert "\n" not in str(caught.value)
