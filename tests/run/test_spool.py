"""The spool: whatever a crash leaves is readable up to the last whole batch."""

import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from jouletrace.errors import BadInputError
from jouletrace.run import SpoolWriter, read_spool, tables
from make_runs import START, random_table


def batch(first, n=20):
    return {
        "time_ns": np.arange(first, first + n) + START,
        "device": ["d"] * n,
        "channel": ["power_w"] * n,
        "value": np.arange(first, first + n, dtype=float),
    }


def written(folder, batches=3):
    """A closed spool of samples, and how long the file was after each batch."""
    sizes = []
    with SpoolWriter(folder, "samples") as spool:
        sizes.append(spool.path.stat().st_size)
        for i in range(batches):
            spool.append(batch(20 * i))
            sizes.append(spool.path.stat().st_size)
    return spool.path, sizes


@pytest.mark.thorough
def test_a_stream_cut_at_any_byte_of_its_last_batch_keeps_the_others(tmp_path):
    path, sizes = written(tmp_path)
    data = path.read_bytes()
    for cut in range(sizes[2], sizes[3]):
        path.write_bytes(data[:cut])
        found = read_spool(tmp_path, "samples")["value"].to_pylist()
        assert found == list(range(40)), cut


@pytest.mark.thorough
def test_a_stream_cut_at_any_byte_never_raises_and_loses_only_the_end(tmp_path):
    path, sizes = written(tmp_path, 1)
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        found = len(read_spool(tmp_path, "samples"))
        assert found == (20 if cut >= sizes[1] else 0), cut


def test_what_was_appended_is_on_disk_at_once(tmp_path):
    spool = SpoolWriter(tmp_path, "samples")
    spool.append(batch(0))
    assert len(read_spool(tmp_path, "samples")) == 20
    spool.close()
    spool.close()


@pytest.mark.thorough
def test_a_killed_writer_leaves_its_batches(tmp_path):
    code = (
        "import sys, time\n"
        "from jouletrace.run.spool import SpoolWriter\n"
        "spool = SpoolWriter(sys.argv[1], 'samples')\n"
        "spool.append({'time_ns': [1, 2], 'device': ['d'] * 2, 'channel': ['c'] * 2, 'value': [1.0, 2.0]})\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert writer.stdout.readline().strip() == b"ready"
    writer.send_signal(signal.SIGKILL if os.name != "nt" else signal.SIGTERM)
    writer.wait()
    writer.stdout.close()
    assert read_spool(tmp_path, "samples")["value"].to_pylist() == [1.0, 2.0]


def test_several_writers_feed_one_table(tmp_path):
    for part in ("", "0", "1"):
        with SpoolWriter(tmp_path, "samples", part) as spool:
            spool.append(batch(0, 5))
    assert len(read_spool(tmp_path, "samples")) == 15


def test_tables_with_like_names_stay_apart(tmp_path):
    with SpoolWriter(tmp_path, "samples") as spool:
        spool.append(batch(0, 5))
    (tmp_path / "samples_old.arrows").write_bytes(spool.path.read_bytes())
    assert len(read_spool(tmp_path, "samples")) == 5
    assert len(read_spool(tmp_path, "spans")) == 0


def test_a_spool_that_is_not_there_is_empty(tmp_path):
    for name in tables.TABLES:
        assert read_spool(tmp_path / "nowhere", name) == tables.empty(name)


@pytest.mark.parametrize("garbage", [b"", b"\x00" * 64, b"\xff" * 64, b"text that is no stream " * 10])
def test_garbage_beside_a_good_stream_is_passed_over(tmp_path, garbage):
    written(tmp_path)
    (tmp_path / "samples.9.arrows").write_bytes(garbage)
    assert len(read_spool(tmp_path, "samples")) == 60


def test_a_batch_that_is_no_text_any_more_is_not_read(tmp_path):
    path, sizes = written(tmp_path)
    data = path.read_bytes()
    last = data[sizes[2] :].replace(b"power_w", b"power\xff\xff")
    path.write_bytes(data[: sizes[2]] + last)
    found = read_spool(tmp_path, "samples")
    assert found["channel"].to_pylist() == ["power_w"] * 40


def test_a_tail_of_zeros_is_not_read_as_data(tmp_path):
    path, sizes = written(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: sizes[2]] + b"\x00" * (sizes[3] - sizes[2]))
    assert read_spool(tmp_path, "samples")["value"].to_pylist() == list(range(40))


@pytest.mark.parametrize("packed", [None, "zstd", "lz4"])
def test_a_packed_stream_is_refused_before_it_is_unpacked(tmp_path, packed):
    """No recording is packed, and a few bytes may unpack to any length."""
    table = tables.conform(pa.table(batch(0, 1000)), "samples")
    schema = pa.schema([(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in table.schema])
    options = pa.ipc.IpcWriteOptions(compression=packed)
    with pa.ipc.new_stream(tmp_path / "samples.arrows", schema, options=options) as stream:
        stream.write_table(table.cast(schema))
    if packed:
        with pytest.raises(BadInputError, match="is compressed, as no recording is: refused"):
            read_spool(tmp_path, "samples")
    else:
        assert read_spool(tmp_path, "samples").equals(table)


def test_a_stream_of_a_newer_version_with_another_column_is_read(tmp_path):
    schema = pa.schema(
        [
            ("time_ns", pa.int64()),
            ("device", pa.string()),
            ("channel", pa.string()),
            ("value", pa.float64()),
            ("q", pa.int8()),
        ]
    )
    with pa.ipc.new_stream(str(tmp_path / "samples.arrows"), schema) as stream:
        stream.write_table(
            pa.table({"time_ns": [1], "device": ["d"], "channel": ["c"], "value": [2.0], "q": [3]}, schema=schema)
        )
    with SpoolWriter(tmp_path, "samples", "1") as spool:
        spool.append(batch(0, 2))
    assert sorted(read_spool(tmp_path, "samples")["value"].to_pylist()) == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("name", tables.TABLES)
def test_every_table_goes_through_the_spool_unchanged(tmp_path, name):
    rows = random_table(name, 50, seed=3)
    truth = tables.from_rows(rows, name)
    with SpoolWriter(tmp_path, name) as spool:
        for start in range(0, 50, 10):
            columns = truth.slice(start, 10).to_pydict()
            spool.append(columns)
    assert read_spool(tmp_path, name).to_pylist() == truth.to_pylist()


def test_a_name_that_is_no_text_is_spelt_out(tmp_path):
    name = b"python caf\xe9.py".decode("utf-8", "surrogateescape")
    with SpoolWriter(tmp_path, "spans") as spool:
        spool.append({"id": [0, 1], "kind": ["range"] * 2, "name": [name, None], "start_ns": [1, 1], "end_ns": [2, 2]})
    assert read_spool(tmp_path, "spans")["name"].to_pylist() == ["python caf\\udce9.py", None]
    assert tables.from_rows([{"name": name}], "units")["name"].to_pylist() == ["python caf\\udce9.py"]


def test_absent_columns_are_null(tmp_path):
    with SpoolWriter(tmp_path, "windows") as spool:
        spool.append({"variant": ["untouched"], "start_ns": [START], "end_ns": [START + 1]})
    row = read_spool(tmp_path, "windows").to_pylist()[0]
    assert row["energy_j"] is None
    assert row["start_ns"] == START
