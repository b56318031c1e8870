"""Runs that ask for more memory or time than they are worth: made of a whole one, one way at a time."""

import io
import json
import os
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jouletrace.run import tables
from jouletrace.run.files import RUN_JSON
from jouletrace.run.spool import SPOOL

ROWS = 900_000


def _folder(base, place):
    shutil.copytree(base, place)
    return place


def _table(folder, name, columns, **options):
    pq.write_table(pa.table(columns), folder / f"{name}.parquet", **options)
    return folder


def _repeated(text, rows):
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), [text])


def one_long_text_in_many_rows(base, place, rows=200_000):
    """16 kB on the disk: a dictionary of one text of 60 kB, and 200,000 rows that refer to it."""
    columns = {"unit": np.zeros(rows, np.int64), "metric": _repeated("x", rows), "value": np.zeros(rows)}
    columns["flags"] = _repeated("x" * 60_000, rows)
    return _table(_folder(base, place), "results", columns, compression="zstd")


def one_long_text_in_units(base, place):
    """54 GB at once, if it were laid out."""
    columns = {"id": np.zeros(ROWS, np.int64), "level": _repeated("op", ROWS), "name": _repeated("x" * 60_000, ROWS)}
    return _table(_folder(base, place), "units", columns, compression="zstd", row_group_size=ROWS)


def text_by_what_it_shares(base, place):
    """Each text is the one before and one character more: an encoding of which a byte may stand for any length."""
    names = pa.array([f"{'x' * 50_000}{i:06d}" for i in range(2000)])
    columns = {"id": np.arange(2000), "level": ["op"] * 2000, "name": names}
    encoding = {"name": "DELTA_BYTE_ARRAY", "level": "PLAIN", "id": "PLAIN"}
    return _table(_folder(base, place), "units", columns, use_dictionary=False, column_encoding=encoding)


def page_of_gigabytes(base, place):
    """A page of 90 MB of the same letter, packed to some kilobytes; the next would come to more."""
    rows = 20_000
    options = {"compression": "zstd", "use_dictionary": False, "data_page_size": 1 << 30, "row_group_size": rows}
    columns = {"id": np.arange(rows), "level": ["op"] * rows, "name": ["x" * 5000] * rows}
    return _table(_folder(base, place), "units", columns, **options)


def very_many_rows(base, place):
    """Thirty million rows of nothing."""
    columns = dict.fromkeys(("time_ns", "device", "channel", "value"), pa.nulls(30_000_000, pa.int64()))
    return _table(_folder(base, place), "samples", columns, compression="zstd")


def very_many_units(base, place, rows=1_500_000):
    """Units that would become an object each; their ids are stored as differences."""
    columns = {"id": np.arange(rows), "level": _repeated("op", rows), "name": _repeated("x", rows)}
    options = {"use_dictionary": ["level", "name"], "column_encoding": {"id": "DELTA_BINARY_PACKED"}}
    return _table(_folder(base, place), "units", columns, compression="zstd", **options)


def footer_of_many_groups(base, place):
    """Metadata that is most of the file."""
    path = _folder(base, place) / "samples.parquet"
    schema = tables.SAMPLES
    with pq.ParquetWriter(path, schema) as writer:
        one = tables.from_rows([{"time_ns": 1, "device": "x" * 3000, "channel": "y" * 3000, "value": 1.0}], "samples")
        for _ in range(2000):
            writer.write_table(one)
    return path.parent


def zip_of_zeros(base, place):
    """A packed run.json of 300 MB; the directory says so."""
    return _zip(base, place, RUN_JSON, 300)


def zip_that_lies(base, place):
    """The same, and the directory says that it has 100 bytes."""
    path = _zip(base, place, RUN_JSON, 300)
    data = bytearray(path.read_bytes())
    at = data.rfind(b"PK\x01\x02")
    while data[at + 46 : at + 46 + len(RUN_JSON)] != RUN_JSON.encode():
        at = data.rfind(b"PK\x01\x02", 0, at)
    data[at + 24 : at + 28] = struct.pack("<I", 100)
    path.write_bytes(data)
    return path


def zip_packed_twice(base, place):
    """bzip2 in a zip: 700 bytes come to a gigabyte, in one go."""
    path = place.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        for file in base.iterdir():
            if file.name != RUN_JSON:
                archive.write(file, file.name)
        info = zipfile.ZipInfo(RUN_JSON)
        info.compress_type = zipfile.ZIP_BZIP2
        archive.writestr(info, bytes(200 << 20))
    return path


def zip_of_many_files(base, place):
    """300,000 empty files beside a Run."""
    path = place.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in base.iterdir():
            archive.write(file, file.name)
    entry = b"PK\x01\x02" + bytes(24) + struct.pack("<H", 1) + bytes(16) + b"x"
    data = path.read_bytes()
    at = data.rfind(b"PK\x05\x06")
    end = bytearray(data[at:])
    end[8:12], end[12:16] = b"\xff\xff\xff\xff", struct.pack("<I", len(data[:at]) + 300_000 * len(entry))
    path.write_bytes(data[:at] + entry * 300_000 + bytes(end))
    return path


def json_of_objects(base, place):
    """60 MB of ``{},``: 1.7 GB as objects."""
    return _header(base, place, b'"x": [' + b"{}," * 20_000_000 + b"{}]")


def json_of_lists(base, place):
    """The same of lists within lists."""
    return _header(base, place, b'"x": ' + b"[" * 500_000 + b"]" * 500_000)


def json_of_numbers(base, place):
    """30 million numbers."""
    return _header(base, place, b'"x": [' + b"1," * 30_000_000 + b"1]")


def nested_json(base, place):
    """Deeper than Python likes to go back."""
    return _header(base, place, b'"settings": {"x": ' + b"[" * 700 + b"]" * 700 + b"}")


def large_json(base, place):
    """A hundred megabytes of text."""
    return _header(base, place, b'"command": "' + b"x" * 100_000_000 + b'"')


def sparse_file(base, place):
    """A terabyte of holes."""
    path = _folder(base, place) / "samples.parquet"
    os.truncate(path, 1 << 40)
    return path.parent


def sparse_json(base, place):
    """The same of run.json."""
    path = _folder(base, place) / RUN_JSON
    os.truncate(path, 1 << 40)
    return path.parent


def pipe(base, place):
    """A pipe without a writer."""
    path = _folder(base, place) / "samples.parquet"
    path.unlink()
    os.mkfifo(path)
    return path.parent


def pipe_for_a_zip(base, place):
    """The same in place of the whole Run."""
    os.mkfifo(place)
    return place


def device(base, place):
    """A stream that never ends."""
    path = _folder(base, place) / "samples.parquet"
    path.unlink()
    path.symlink_to("/dev/zero")
    return path.parent


def device_for_the_header(base, place):
    """The same for run.json."""
    path = _folder(base, place) / RUN_JSON
    path.unlink()
    path.symlink_to("/dev/zero")
    return path.parent


def _spooled(base, place):
    folder = _folder(base, place)
    header = json.loads((folder / RUN_JSON).read_text())
    (folder / RUN_JSON).write_text(json.dumps(header | {"complete": False}))
    (folder / "samples.parquet").unlink()
    (folder / SPOOL).mkdir()
    return folder


def packed_spool(base, place):
    """A spool whose batches are compressed: some kilobytes for a gigabyte."""
    folder = _spooled(base, place)
    text = pa.string()
    schema = pa.schema([("time_ns", pa.int64()), ("device", text), ("channel", text), ("value", pa.float64())])
    rows = 10_000_000
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    zeros, nothing = pa.array(np.zeros(rows, np.int64)), pa.nulls(rows, text)
    with pa.ipc.new_stream(folder / SPOOL / "samples.arrows", schema, options=options) as stream:
        stream.write_batch(pa.record_batch([zeros, nothing, nothing, zeros.cast("float64")], schema=schema))
    return folder


def spool_with_absurd_lengths(base, place):
    """A message that says that it has 2 GB."""
    folder = _spooled(base, place)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("time_ns", pa.int64())])):
        pass
    lengths = struct.pack("<iI", -1, 0x7FFFFFF8)
    (folder / SPOOL / "samples.arrows").write_bytes(sink.getvalue()[:-8] + lengths + bytes(100))
    return folder


def spool_that_is_a_pipe(base, place):
    """A pipe among the spools."""
    folder = _spooled(base, place)
    os.mkfifo(folder / SPOOL / "samples.arrows")
    return folder


def _header(base, place, more):
    path = _folder(base, place) / RUN_JSON
    path.write_bytes(path.read_bytes().rstrip()[:-1] + b"," + more + b"}")
    return path.parent


def _zip(base, place, name, megabytes):
    path = place.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in base.iterdir():
            if file.name != name:
                archive.write(file, file.name)
        with archive.open(name, "w", force_zip64=False) as entry:
            for _ in range(megabytes):
                entry.write(bytes(1 << 20))
    return path


OPENED = (spool_with_absurd_lengths, spool_that_is_a_pipe)
"""Runs that do no harm once that part is left alone; all others are refused."""

ALL = [
    one_long_text_in_many_rows,
    one_long_text_in_units,
    text_by_what_it_shares,
    page_of_gigabytes,
    very_many_rows,
    very_many_units,
    footer_of_many_groups,
    zip_of_zeros,
    zip_that_lies,
    zip_packed_twice,
    zip_of_many_files,
    json_of_objects,
    json_of_lists,
    json_of_numbers,
    nested_json,
    large_json,
    sparse_file,
    sparse_json,
    pipe,
    pipe_for_a_zip,
    device,
    device_for_the_header,
    packed_spool,
    *OPENED,
]


def make_all(base: Path, folder: Path) -> list[Path]:
    """Every one of them, by the name of its function."""
    return [make(base, folder / make.__name__) for make in ALL]
