"""Buffers that CUPTI filled on an H100: the native library's rows are its records."""

import numpy as np
import pytest

from cupti_records import SIZES, field, records_of, unpack
from places import DATA, TESTS
from thinned import thinned
from traced import COPY, KERNEL, SET

PROGRAMS = sorted((TESTS / "frozen/programs").glob("*.npz"))
COPIES = ["", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"]


def lines_of(records, names):
    """The row that is wanted of each record: kind, start, end, name, stream, device, correlation, bytes or shape."""
    lines = []
    for number, kind, (correlation, device, stream) in (
        (10, KERNEL, (92, 40, 48)), (1, COPY, (44, 32, 40)), (2, SET, (44, 32, 40)),
    ):  # fmt: skip
        if number not in records:
            continue
        of = records[number]
        if kind == KERNEL:
            named = [names[k] for k in field(of, 104, "<u8").tolist()]
            grid, memory = (
                np.ascontiguousarray(of[:, 52:76]).view("<i4"),
                np.ascontiguousarray(of[:, 76:84]).view("<i4"),
            )
            shapes = np.column_stack([grid, field(of, 6, "<u2"), memory])
            distinct, which = np.unique(shapes, axis=0, return_inverse=True)
            texts = [" ".join(map(str, one)) for one in distinct.tolist()]
            size = [texts[k] for k in which.reshape(-1).tolist()]
        else:
            named = [f"memcpy {COPIES[k]}" for k in of[:, 4]] if kind == COPY else ["memset"] * len(of)
            size = np.minimum(field(of, 8, "<u8"), 2**32 - 1).tolist()
        numbers = (field(of, 16, "<u8"), field(of, 24, "<u8"), field(of, stream, "<u4"), field(of, device, "<u4"))
        columns = [column.tolist() for column in (*numbers, field(of, correlation, "<u4"))]
        lines += zip([kind] * len(of), *columns, named, size, strict=True)
    return sorted(lines)


def check(bench, buffers, names):
    """Hands buffers to the library, with names by pointer, and compares its rows."""
    buffers = [buffer.copy() for buffer in buffers]
    known = {pointer: number for number, pointer in enumerate(names)}
    with (bench.folder / "records").open("wb") as file:
        for buffer in buffers:
            at = 0
            while at < len(buffer):
                record = buffer[at : at + SIZES[int(buffer[at])]]
                if record[0] == 10:
                    pointer = record[104:112].view("<u8")
                    pointer[0] = known[int(pointer[0])]
                at += len(record)
            file.write(buffer.tobytes())
    (bench.folder / "names").write_bytes(b"".join(name + b"\n" for name in names.values()))
    traced = bench.one("init replay names records")
    texts = [name.decode(errors="replace") for name in names.values()]
    expected = lines_of(records_of(buffers), texts)
    rows, said = traced.rows, traced.said("n")
    rows = rows[rows["kind"] <= SET]
    fields = ("kind", "start", "end", "stream", "device", "correlation", "name", "extra")
    shapes = ["", *traced.said("c")]
    found = [
        (*line[:6], said[line[6]], shapes[line[7]] if line[0] == KERNEL else line[7])
        for line in zip(*(rows[name].tolist() for name in fields), strict=True)
    ]
    later = min(line[1] for line in found) - min(line[1] for line in expected)
    assert sorted((kind, start - later, end - later, *rest) for kind, start, end, *rest in found) == expected
    assert traced.header["dropped"] == 0
    assert traced.said("w") == []


@pytest.mark.thorough
@pytest.mark.parametrize("path", thinned(PROGRAMS, 4), ids=lambda path: path.stem)
def test_rows_of_a_program_are_what_cupti_wrote(bench, path):
    buffers, names, version = unpack(path)
    assert version == 130001
    check(bench, buffers, names)


@pytest.mark.parametrize("which", ["kernels", "mixed"])
def test_rows_of_a_recorded_buffer_are_its_records(bench, which):
    recorded = np.load(DATA / "cupti_13_0_h100.npz")
    names = {
        pointer: name.encode() for pointer, name in zip(recorded["pointers"].tolist(), recorded["names"], strict=True)
    }
    check(bench, [recorded[which]], names)
