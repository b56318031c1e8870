"""Long recordings: put together, opened, and saved in pieces."""

import copy
import pickle
import resource
import shutil
import signal
import tempfile
import tracemalloc
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jouletrace.comparing.sides import _repeats
from jouletrace.devices import open_device
from jouletrace.errors import BadInputError
from jouletrace.known_secrets import refresh
from jouletrace.recording.session import Session
from jouletrace.run import (
    ChannelInfo,
    DeviceInfo,
    Run,
    SpoolWriter,
    files,
    limits,
    load,
    save,
    save_header,
    sound,
    spool,
    tables,
    verify,
)
from jouletrace.run import gathered as gathered_module
from jouletrace.run.channel_file import ChannelFile
from jouletrace.run.gathered import READINGS, gather
from jouletrace.run.masking import mask
from jouletrace.run.model import derived, held, put
from jouletrace.run.seconds import NS
from make_runs import START

DEVICES = ("GPU-a", "GPU-b")
CHANNELS = ("power_w", "energy_counter_j", "clock_sm_mhz", "sm_active", "temperature_c")
BEGIN_NS = START // NS * NS
MINUTE = 60


def spooled(folder, minutes, devices=DEVICES):
    """A spool as of a monitor: means of so many minutes, and a minute of readings, five a second, that aren't thinned.

    Returns the values of the means by device and channel.
    """
    random = np.random.default_rng(3)
    pairs = [(device, channel) for device in devices for channel in CHANNELS]
    means = {pair: random.normal(400, 50, minutes * MINUTE).round(3) for pair in pairs}
    names = {column: np.repeat([pair[i] for pair in pairs], MINUTE) for i, column in enumerate(("device", "channel"))}
    with SpoolWriter(folder, "samples", "000001") as samples, SpoolWriter(folder, "extremes", "000001") as extremes:
        for minute in range(minutes):
            rows = slice(minute * MINUTE, (minute + 1) * MINUTE)
            time_ns = BEGIN_NS + (np.arange(rows.start, rows.stop) + 1) * NS
            value = np.concatenate([means[pair][rows] for pair in pairs])
            columns = {"time_ns": np.tile(time_ns, len(pairs)), **names}
            samples.append({**columns, "value": value})
            extremes.append({**columns, "low": value - 1, "high": value + 1})
    time_ns = BEGIN_NS + minutes * MINUTE * NS + np.arange(1, 5 * MINUTE + 1) * NS // 5
    with SpoolWriter(folder, "recent", "000002") as recent:
        for device, channel in pairs:
            many = len(time_ns)
            texts = {"device": [device] * many, "channel": [channel] * many}
            recent.append({"time_ns": time_ns, **texts, "value": np.arange(many, dtype=float)})
    return means


def gathered(folder, run=None):
    """A Run with what a spool holds."""
    run = run or Run(kind="monitor", created_ns=START, devices=[DeviceInfo(device, "H100") for device in DEVICES])
    gather(run, folder, folder)
    return run


@pytest.fixture
def long_run(tmp_path):
    """A Run of a spool of ten minutes."""
    spooled(tmp_path / "spool", 10)
    return gathered(tmp_path / "spool")


def in_files(run):
    return [name for name in READINGS if isinstance(held(run, name), ChannelFile)]


def test_very_many_readings_stay_in_files_though_none_are_thinned(tmp_path, monkeypatch):
    monkeypatch.setattr(gathered_module, "LARGE_BYTES", 1 << 10)
    with Session("record", [open_device("sim:h100")], folder=tmp_path / "run") as session:
        session.clock.sleep(5.0)
        run = session.finish()
    assert in_files(run) == ["samples"]
    back = load(tmp_path / "run")
    assert isinstance(held(back, "samples"), ChannelFile)
    stamps, _ = back.series(run.devices[0].id, "power_w")
    assert len(stamps) > 200
    assert np.all(np.diff(stamps) > 0)
    assert len(back.samples) == run.recorder["samples"]


@pytest.mark.parametrize("piece_rows", [1, 1000, spool._PIECE_ROWS])
def test_each_channel_has_all_of_its_rows_in_order(tmp_path, monkeypatch, piece_rows):
    monkeypatch.setattr(spool, "_PIECE_ROWS", piece_rows)
    means = spooled(tmp_path / "spool", 3)
    run = gathered(tmp_path / "spool")
    assert in_files(run) == list(READINGS)
    for (device, channel), values in means.items():
        stamps, there = run.series(device, channel)
        assert stamps.tolist() == [BEGIN_NS + (second + 1) * NS for second in range(4 * MINUTE)]
        assert there[: len(values)].tolist() == values.tolist()
        last = np.arange(5.0 * MINUTE).reshape(-1, 5)  # a mean of power is that of its five readings
        assert there[len(values) :][-1] == (last[-1, -1] if channel == "energy_counter_j" else last[-1].mean())
    assert len(held(run, "recent")) == len(means) * 5 * MINUTE
    rows = run.extremes.filter(pa.compute.equal(run.extremes["channel"], "power_w"))
    assert rows["low"].to_pylist()[: 3 * MINUTE] == (means[DEVICES[0], "power_w"] - 1).tolist()
    assert not list((tmp_path / "spool").glob("*/"))  # files that were made on the way are gone


def test_memory_does_not_grow_with_what_is_put_together(tmp_path, monkeypatch):
    """A piece, and the channel that is written, are in memory: a small part of all rows."""
    monkeypatch.setattr(spool, "_PIECE_ROWS", 3000)
    devices = [f"GPU-{number}" for number in range(20)]
    peaks = []
    for minutes in (30, 60):
        folder = tmp_path / str(minutes)
        spooled(folder, minutes, devices)
        before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            run = gathered(folder)
            peaks.append(tracemalloc.get_traced_memory()[1] + pool.max_memory())
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(before)
    whole = 24 * (len(held(run, "samples")) + len(held(run, "extremes")) + len(held(run, "recent")))
    assert peaks[1] < whole / 4
    assert peaks[1] - peaks[0] < whole / 40


@pytest.mark.parametrize("name", ["run", "run.zip"])
def test_it_opens_equal_and_reads_channels_when_they_are_asked_for(long_run, tmp_path, monkeypatch, name):
    save(long_run, tmp_path / name)
    again = load(tmp_path / name)
    assert in_files(again) == list(READINGS)
    read = []
    monkeypatch.setattr(ChannelFile, "rows", lambda file, *named: read.append(named) or ROWS(file, *named))
    expected = long_run.series("GPU-b", "clock_sm_mhz")
    assert [part.tolist() for part in again.series("GPU-b", "clock_sm_mhz")] == [part.tolist() for part in expected]
    assert set(read) == {("GPU-b", "clock_sm_mhz")}
    assert all(again.table(name).equals(long_run.table(name)) for name in READINGS)
    assert not again.warnings
    assert verify(tmp_path / name)[0].whole


ROWS = ChannelFile.rows


def test_a_channel_that_is_not_there_is_named(long_run):
    assert [len(part) for part in long_run.series("GPU-a", "power_memory_w")] == [0, 0]
    with pytest.raises(BadInputError, match="no channel of GPU-a 'power_v'"):
        long_run.series("GPU-a", "power_v")
    with pytest.raises(BadInputError, match="GPU-c"):
        long_run.series("GPU-c", "power_w")


def test_a_copy_is_saved_byte_by_byte_and_stays_when_the_first_is_gone(long_run, tmp_path):
    save(long_run, tmp_path / "first")
    run = load(tmp_path / "first")
    data = {path.name: path.read_bytes() for path in (tmp_path / "first").glob("*.parquet")}
    shutil.rmtree(tmp_path / "first")
    save(run, tmp_path / "second")
    assert {path.name: path.read_bytes() for path in (tmp_path / "second").glob("*.parquet")} == data


def test_rows_in_any_other_order_are_read_as_a_whole(long_run, tmp_path):
    for name in READINGS:
        table = long_run.table(name).sort_by("time_ns")  # as in files of earlier versions
        put(long_run, name, table)
    save(long_run, tmp_path / "run")
    again = load(tmp_path / "run")
    assert in_files(again) == []
    for device in DEVICES:
        for channel in CHANNELS:
            both = zip(again.series(device, channel), long_run.series(device, channel), strict=True)
            assert all(one.tolist() == other.tolist() for one, other in both)


@pytest.mark.parametrize("name", READINGS)
def test_a_damaged_file_is_refused_as_it_is_opened(long_run, tmp_path, name):
    save(long_run, tmp_path / "run")
    path = tmp_path / "run" / f"{name}.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(BadInputError, match=f"{name}.parquet is damaged") as caught:
        load(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_row_beyond_all_times_is_refused_when_it_is_read(long_run, tmp_path):
    table = pa.concat_tables(held(long_run, "samples").rows("GPU-a", channel) for channel in ("power_w", "sm_active"))
    table = tables.changed(table, "time_ns", np.append(table["time_ns"].to_numpy()[:-1], 2**63 - 1))
    path = tmp_path / "samples.parquet"
    with path.open("wb") as file, tables.writer(file, "samples", simulated=False) as writer:
        writer.write_table(table, row_group_size=len(table) // 2)
    with path.open("rb") as file:
        put(long_run, "samples", ChannelFile.of(file, "samples", "mine/samples.parquet", sound.check))
    assert len(long_run.series("GPU-a", "power_w")[0]) == len(table) // 2
    with pytest.raises(BadInputError, match=r"^mine/samples.parquet is damaged: row 659: time_ns is no time$"):
        long_run.series("GPU-a", "sm_active")


def test_damaged_rows_of_a_spool_are_counted_and_left_out(tmp_path):
    spooled(tmp_path / "spool", 1)
    with SpoolWriter(tmp_path / "spool", "samples", "000009") as writer:
        texts = {"device": ["GPU-a", None, "GPU-a"], "channel": ["power_w", "power_w", None]}
        writer.append({"time_ns": [2**63 - 1, BEGIN_NS, BEGIN_NS], **texts, "value": [1.0, 1.0, 1.0]})
    run = gathered(tmp_path / "spool")
    assert [warning.message for warning in run.warnings] == ["3 rows of samples were damaged and were left out"]
    assert len(run.series("GPU-a", "power_w")[0]) == 2 * MINUTE


@pytest.fixture
def cut_off(tmp_path):
    """A folder as a kill leaves it after five minutes of means."""
    run = Run(
        kind="monitor",
        created_ns=START,
        complete=False,
        devices=[DeviceInfo(device, "H100") for device in DEVICES],
        channels=[ChannelInfo(device, channel, "1", "s") for device in DEVICES for channel in CHANNELS],
    )
    save_header(run, tmp_path / "run", first=True)
    spooled(tmp_path / "run" / "spool", 5)
    return tmp_path / "run"


def test_what_a_kill_left_opens_and_leaves_the_folder_as_it_is(cut_off):
    before = sorted(path.name for path in cut_off.rglob("*"))
    cut = load(cut_off)
    assert in_files(cut) == list(READINGS)
    assert not cut.complete
    assert len(cut.series("GPU-a", "power_w")[0]) == 6 * MINUTE
    assert sorted(path.name for path in cut_off.rglob("*")) == before


def test_a_kill_between_extremes_and_means_loses_and_repeats_neither(tmp_path):
    spooled(tmp_path / "spool", 2)
    expected = gathered(tmp_path / "spool")
    time_ns = BEGIN_NS + (2 * MINUTE + np.arange(1, MINUTE + 1)) * NS  # of readings that ``recent`` still has
    with SpoolWriter(tmp_path / "spool", "extremes", "000003") as extremes:
        for device in DEVICES:
            texts = {"device": [device] * MINUTE, "channel": ["power_w"] * MINUTE}
            extremes.append({"time_ns": time_ns, **texts, "low": np.zeros(MINUTE), "high": np.ones(MINUTE)})
    run = gathered(tmp_path / "spool")
    assert all(run.table(name).equals(expected.table(name)) for name in READINGS)


def test_names_of_any_length_are_kept(tmp_path):
    device = "GPU-" + "x" * 5000
    spooled(tmp_path / "spool", 1, [device])
    run = gathered(tmp_path / "spool")
    assert all(len(run.series(device, channel)[0]) == 2 * MINUTE for channel in CHANNELS)


def test_what_a_kill_left_says_where_it_needs_room(cut_off):
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        for most in (1000, 6000):  # while rows are divided, and while a table is written
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1][1]))
            with pytest.raises(BadInputError, match=r"^cannot open .*/run: .*File too large.* \(TMPDIR .*\)$"):
                load(cut_off)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before[1])
        signal.signal(signal.SIGXFSZ, before[0])
    assert len(load(cut_off).series("GPU-a", "power_w")[0]) == 6 * MINUTE


def test_a_save_that_was_broken_off_changes_nothing(cut_off):
    before = load(cut_off)
    data = (cut_off / "run.json").read_bytes()
    save(before, cut_off.with_name("whole"))
    for name in ("samples", "recent"):
        shutil.copy(cut_off.with_name("whole") / f"{name}.parquet", cut_off)
    cut = load(cut_off)
    assert (cut_off / "run.json").read_bytes() == data
    assert in_files(cut) == list(READINGS)
    assert all(cut.table(name).equals(before.table(name)) for name in READINGS)


def test_what_a_kill_left_of_minutes_needs_no_temporary_folder(cut_off, monkeypatch):
    for path in (cut_off / "spool").glob("[se]*"):
        path.unlink()
    monkeypatch.setattr(tempfile, "tempdir", str(cut_off / "absent"))
    assert len(load(cut_off).series("GPU-a", "power_w")[0]) == 5 * MINUTE


def test_others_may_move_in_the_file_meanwhile(long_run, tmp_path, monkeypatch):
    """As forks do, which have the handle of their parent, and so its position."""
    save(long_run, tmp_path / "run")
    path = tmp_path / "run" / "samples.parquet"
    monkeypatch.setattr(files, "_CHUNK", 1 << 14)
    with path.open("rb") as file:
        there = ChannelFile.of(file, "samples", "mine", sound.check)
        assert b"".join(chunk for chunk in islice(there.chunks(), 100) if file.seek(0) == 0) == path.read_bytes()


@pytest.mark.parametrize("name", ["run", "run.zip"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))])
def test_a_copy_reads_by_itself(long_run, tmp_path, copied, name):
    save(long_run, tmp_path / name)
    run = copied(load(tmp_path / name))
    assert in_files(run) == list(READINGS)
    assert run == long_run
    save(run, tmp_path / "again")
    assert verify(tmp_path / "again")[0].whole


def test_a_file_that_others_write_to_is_not_saved_as_if_it_were_whole(long_run, tmp_path):
    save(long_run, tmp_path / "run")
    run, path = load(tmp_path / "run"), tmp_path / "run" / "samples.parquet"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    for use in (lambda: run.series("GPU-a", "power_w"), lambda: save(run, tmp_path / "again")):
        with pytest.raises(BadInputError, match=r"samples.parquet was written to since it was opened: open the Run"):
            use()
    assert not (tmp_path / "again").exists()


def test_a_table_that_is_too_large_for_memory_is_read_by_channel(long_run, tmp_path, monkeypatch):
    save(long_run, tmp_path / "run")
    run = load(tmp_path / "run")
    monkeypatch.setattr(limits, "MOST_BYTES", 24 * len(held(run, "samples")) - 1)
    with pytest.raises(BadInputError, match=r"samples.parquet has 6600 rows, more than are read at once: run.series"):
        _ = run.samples
    assert len(run.series("GPU-a", "power_w")[0]) == 11 * MINUTE
    monkeypatch.setenv(limits.VARIABLE, "1")
    assert len(run.samples) == 6600


def test_simulations_of_different_lengths_are_compared_without_reading_all_of_them(tmp_path, monkeypatch):
    runs = []
    for minutes in (1, 2):
        spooled(tmp_path / str(minutes), minutes)
        devices = [DeviceInfo(device, "H100", simulated=True) for device in DEVICES]
        runs.append(gathered(tmp_path / str(minutes), Run(kind="monitor", devices=devices)))
    assert _repeats(runs[0], load(save(runs[0], tmp_path / "run"))) is False  # one measurement
    assert _repeats(runs[0], derived(runs[0], id="other")) is True
    monkeypatch.setattr(ChannelFile, "_read", None)
    assert _repeats(*runs) is False


def test_rows_are_those_that_their_group_states(long_run, tmp_path):
    path = tmp_path / "samples.parquet"
    data = b"".join(held(long_run, "samples").chunks())
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[:end] + data[end:].replace(b"GPU-a", b"GPU-c"))
    with path.open("rb") as file:
        there = ChannelFile.of(file, "samples", "mine/samples.parquet", sound.check)
    with pytest.raises(BadInputError, match=r"^mine/samples.parquet is damaged: .* power_w of GPU-c are others$"):
        there.rows("GPU-c", "power_w")


def test_names_that_are_no_text_in_the_file_are_read_as_a_whole(long_run, tmp_path):
    path = tmp_path / "samples.parquet"
    names = {name: pa.binary() for name in ("device", "channel")}
    schema = pa.schema({field.name: names.get(field.name, field.type) for field in tables.SAMPLES})
    plain = pa.schema({field.name: pa.string() if field.name in names else field.type for field in schema})
    with pq.ParquetWriter(path, schema) as writer:
        writer.write_table(held(long_run, "samples").rows("GPU-a", "power_w").cast(plain).cast(schema))
    with path.open("rb") as file:
        assert ChannelFile.of(file, "samples", "mine", sound.check) is None


def test_secrets_in_names_of_devices_are_masked(tmp_path, monkeypatch):
    spooled(tmp_path / "spool", 1, ["GPU-hunter2hunter2"])
    run = gathered(tmp_path / "spool", Run(kind="monitor", devices=[DeviceInfo("GPU-hunter2hunter2", "H100")]))
    monkeypatch.setenv("MY_PASSWORD", "hunter2hunter2")
    refresh()
    try:
        mask(run)
        save(run, tmp_path / "run")
    finally:
        monkeypatch.delenv("MY_PASSWORD")
        refresh()
    for name in READINGS:
        assert pq.read_table(tmp_path / "run" / f"{name}.parquet")["device"].unique().to_pylist() == ["GPU-***"]
