"""Damaged logs: read in part, counting what was left out, or refused in one line; no traceback, no hang."""

import contextlib
import random
import time

import numpy as np
import pytest

from import_logs import SAMPLES, codes, dmon, read, write
from jouletrace.errors import BadInputError
from jouletrace.importers import importer, recognise
from jouletrace.importers.base import ImportOptions
from jouletrace.run import load, tables

MUTATIONS = 200
SLOW_S = 5.0

_SNIPPETS = (
    b"\x00",
    b"\xff\xfe",
    b"\x1b[31m",
    b"\n\n",
    b'"',
    b",",
    b";",
    b"1e999",
    b"-1",
    b"nan",
    b"{",
    b"]",
    b"9" * 40,
    b"\xe2\x80\xa8",
    b"=",
)


def mutated(data, rng):
    """A seeded random change: bytes flipped, cut, doubled, swapped or put in; lines dropped or shuffled."""
    kind = rng.randrange(8)
    a, b = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    if kind == 0:
        return data[:a]
    if kind == 1:
        return data[:a] + data[b:]
    if kind == 2:
        return data[:b] + data[a:b] + data[b:]
    if kind == 3:
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 20)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        return bytes(changed)
    if kind == 4:
        return data[:a] + rng.choice(_SNIPPETS) + data[a:]
    lines = data.split(b"\n")
    if kind == 5:
        rng.shuffle(lines)
    elif kind == 6:
        del lines[rng.randrange(len(lines))]
    else:
        lines.insert(rng.randrange(len(lines)), rng.choice(lines)[: rng.randrange(40)])
    return b"\n".join(lines)


def check_whole(run):
    """Whatever was read is a Run that can be saved: finite, in range, every row of a known device and channel."""
    for name in tables.TABLES:
        tables.conform(run.table(name), name).validate(full=True)
    values = run.samples["value"].to_numpy()
    assert np.all(np.isfinite(values))
    known = {(channel.device, channel.name) for channel in run.channels}
    assert {(row["device"], row["channel"]) for row in run.samples.select(["device", "channel"]).to_pylist()} <= known
    assert all(row["value"] is None or np.isfinite(row["value"]) for row in run.results.to_pylist())
    spans = run.spans
    if len(spans):
        assert np.all(spans["end_ns"].to_numpy() >= spans["start_ns"].to_numpy())
    assert isinstance(run.settings["imported"][0]["left_out"], dict)


@pytest.mark.parametrize("name", SAMPLES)
def test_no_mutation_brings_it_down(tmp_path, name):
    form, text = SAMPLES[name]
    rng = random.Random(f"{name} 1")
    read_or_refused = 0
    for _ in range(MUTATIONS):
        data = text.encode()
        for _ in range(rng.randrange(1, 4)):
            data = mutated(data, rng) or b"\n"
        path = write(tmp_path, data)
        began = time.perf_counter()
        refusal = None
        importer(form).sniff(data)
        try:
            check_whole(importer(form).read(path, ImportOptions()))
        except BadInputError as error:
            refusal = str(error)
        assert refusal is None or ("log.txt" in refusal and "\n" not in refusal)
        read_or_refused += 1
        assert time.perf_counter() - began < SLOW_S
    assert read_or_refused == MUTATIONS


@pytest.mark.parametrize("junk", [" ", "9", "a  ", '{"name" : "'])
def test_a_line_without_end_is_no_trap(tmp_path, junk):
    for form, text in SAMPLES.values():
        data = (text[: len(text) // 2] + "\n" + junk * (200_000 // len(junk)) + "\n" + text[len(text) // 2 :]).encode()
        path = write(tmp_path, data)
        began = time.perf_counter()
        importer(form).sniff(data[:65536])
        with contextlib.suppress(BadInputError):
            importer(form).read(path, ImportOptions())
        assert time.perf_counter() - began < SLOW_S


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


def test_no_sample_is_taken_for_another_format():
    for name, (form, text) in SAMPLES.items():
        for other in {form for form, _ in SAMPLES.values()} - {form, "table"}:
            assert not importer(other).sniff(text.encode()), f"{name} is taken for {other}"


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_recognised_by_its_content(tmp_path, name):
    form, text = SAMPLES[name]
    assert recognise(write(tmp_path, text)) == form


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(BadInputError, match=r"nothing\.csv"):
        importer("table").read(tmp_path / "nothing.csv", ImportOptions())


def test_windows_line_ends_and_other_encodings_change_nothing(tmp_path):
    text = dmon([61, 62, 63])
    plain = read(tmp_path, "nvidia_smi", text).samples
    for data in (text.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + text.encode(), text.encode("utf-16")):
        assert read(tmp_path, "nvidia_smi", data).samples.equals(plain)


def test_control_characters_stay_in_their_own_row(tmp_path):
    text = dmon([61, 62, 63]).replace("    0     62", "    0\x0c\x1b[0m  62", 1)
    run = read(tmp_path, "nvidia_smi", text)
    assert list(run.series("imported:0", "power_w")[1]) == [61, 63]
    assert "broken_rows" in codes(run)
