"""Damaged logs: read in part, counting what was left out, or refused in one line; no traceback, no hang."""

import contextlib
import re
import time

import pytest

from damaged import MOST_LOOPS, check_whole, read_damaged
from import_logs import SAMPLES, codes, meter, read, write
from jouletrace.errors import BadInputError
from jouletrace.formats.importers import LAST, ImportOptions, formats, importer, recognise
from jouletrace.formats.importers.base import HEAD_BYTES
from jouletrace.run import load, tables
from mutable import samples
from pace import within
from thinned import thinned


@pytest.mark.thorough
@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", sorted({form for form, _ in SAMPLES.values()}))
def test_no_mutation_brings_it_down(tmp_path, form, count):
    samples = [text.encode() for name, text in SAMPLES.values() if name == form]
    found = read_damaged(importer(form), samples, tmp_path / "log.txt", count)
    assert found["read"] > count / 20


@pytest.mark.thorough
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("form", sorted({form for form, _ in SAMPLES.values()}))
def test_what_is_read_of_a_mutation_comes_through_to_the_report(tmp_path, form):
    samples = [text.encode() for name, text in SAMPLES.values() if name == form]
    found = read_damaged(importer(form), samples, tmp_path / "log.txt", 6, seed=4, through=tmp_path)
    assert found["read"] > 2


@pytest.mark.parametrize("name", SAMPLES)
def test_half_a_number_at_the_end_is_warned_of(tmp_path, name):
    form, text = SAMPLES[name]
    text = text.rstrip()
    if text[-1] in "]}":
        return  # JSON ends itself
    for cut in (1, 2, 3):
        with contextlib.suppress(BadInputError):
            assert "unfinished_line" in codes(importer(form).read(write(tmp_path, text[:-cut]), ImportOptions()))


@pytest.mark.thorough
@pytest.mark.parametrize("junk", [" ", "9", "a  ", '{"name" : "'])
def test_a_line_without_end_is_no_trap(tmp_path, junk):
    for form, text in SAMPLES.values():
        data = (text[: len(text) // 2] + "\n" + junk * (200_000 // len(junk)) + "\n" + text[len(text) // 2 :]).encode()
        path = write(tmp_path, data)
        began = time.process_time()
        importer(form).sniff(data[:65536])
        with contextlib.suppress(BadInputError):
            importer(form).read(path, ImportOptions())
        assert within(time.process_time() - began, MOST_LOOPS)


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_read_can_be_saved_and_opened_again(tmp_path, name):
    run = read(tmp_path, *SAMPLES[name])
    check_whole(run)
    again = load(run.save(str(tmp_path / "run.zip")))
    assert again.settings == run.settings
    assert again.results.equals(tables.conform(run.results, "results"))


@pytest.mark.parametrize("form", sorted({form for form, _ in SAMPLES.values()}))
@pytest.mark.parametrize(
    "data", [b"\x00\x01\x02\x03" * 100, b"\n", b"\x1f\x8b\x08broken", b"hello\n", b"[]", b"{}", b"\xff" * 50]
)
def test_a_file_of_another_kind_is_refused_in_one_line(tmp_path, form, data):
    path = write(tmp_path, data)
    with pytest.raises(BadInputError, match=r"log\.txt") as error:
        importer(form).read(path, ImportOptions())
    assert "\n" not in str(error.value)


def test_no_format_of_another_wing_takes_a_sample_in_whatever_order_they_are_tried():
    small = [(sample.form, sample.whole) for of in samples().values() for sample in of]
    for form, whole in [*small, *((form, text.encode()) for form, text in SAMPLES.values())]:
        taken_by = [other for other in formats() if importer(other).sniff(whole[:HEAD_BYTES])]
        assert taken_by[0] == form, whole[:80]
        homes = {formats()[other].partition(other)[0] for other in taken_by if other != LAST}
        assert form == LAST or homes == {formats()[form].partition(form)[0]}, whole[:80]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_recognised_by_its_content(tmp_path, name):
    form, text = SAMPLES[name]
    assert recognise(write(tmp_path, text)) == form


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(BadInputError, match=r"nothing\.csv"):
        importer("table").read(tmp_path / "nothing.csv", ImportOptions())


def test_windows_line_ends_and_other_encodings_change_nothing(tmp_path):
    text = meter([61, 62, 63])
    plain = read(tmp_path, "table", text).samples
    for data in (text.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + text.encode(), text.encode("utf-16")):
        assert read(tmp_path, "table", data).samples.equals(plain)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [6, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", thinned(SAMPLES, 2))
def test_a_number_of_any_length_in_any_place_is_no_trap(tmp_path, name, count):
    """As a float 400 digits are infinite, and of 5,000 Python makes no integer; "1.2.3" is a number to no one."""
    form, text = SAMPLES[name]
    path = tmp_path / "log.txt"
    places = [found.span() for found in re.finditer(r"\d+(?:\.\d+)?", text)]
    for start, end in places[:count] + places[count :: max(1, len(places) // count)]:
        for odd in ("9" * 400, "9" * 5000, "1.2.3"):
            path.write_text(text[:start] + odd + text[end:])
            with contextlib.suppress(BadInputError):
                check_whole(importer(form).read(path, ImportOptions()))
