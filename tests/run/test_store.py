"""A Run on disk: what is written is read back equal, and never over something else."""

import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jouletrace.errors import BadInputError, BrokenOffError
from jouletrace.run import (
    SPOOL,
    DeviceInfo,
    Run,
    SpoolWriter,
    check_free,
    fresh_folder,
    load,
    places,
    save,
    save_header,
    store,
    tables,
)
from make_runs import ODD, START, all_runs, monitor_run, profile_run, random_table, thinned

RUNS = all_runs()
COMPLETE = [name for name, run in RUNS.items() if run.complete]


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMPLETE)
@pytest.mark.parametrize("where", ["run", "run.zip", "deep/er/run"])
def test_a_run_comes_back_equal(tmp_path, name, where):
    path = save(RUNS[name], tmp_path / where)
    assert load(path) == RUNS[name]


@pytest.mark.thorough
def test_a_run_with_random_tables_comes_back_equal(tmp_path):
    run = Run(
        **{name: tables.from_rows(random_table(name, 200, seed), name) for seed, name in enumerate(tables.TABLES)}
    )
    assert load(save(run, tmp_path / "run")) == run
    assert load(save(run, tmp_path / "run.zip")) == run


def test_a_run_can_be_named_by_its_json_too(tmp_path):
    save(RUNS["monitor"], tmp_path / "run")
    assert load(tmp_path / "run" / "run.json") == RUNS["monitor"]


def test_a_run_zipped_as_a_folder_opens(tmp_path):
    folder = save(RUNS["monitor"], tmp_path / "run")
    with zipfile.ZipFile(tmp_path / "made-by-hand.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in folder.iterdir():
            archive.write(file, f"some/folder/{file.name}")
        archive.writestr("some/README", "not ours")
    assert load(tmp_path / "made-by-hand.zip") == RUNS["monitor"]


def test_times_beyond_a_float_are_exact(tmp_path):
    run = Run(created_ns=2**62 + 1, clock_pairs=[{"time_ns": START, "monotonic_ns": 2**53 + 1}])
    row = {"id": 1, "kind": "run", "name": "x", "start_ns": 2**62 + 1, "end_ns": START}
    run.spans = tables.from_rows([row], "spans")
    back = load(save(run, tmp_path / "run"))
    assert back.created_ns == 2**62 + 1
    assert back.clock_pairs == run.clock_pairs
    assert back.spans["start_ns"].to_pylist() == [2**62 + 1]
    assert back.spans["end_ns"].to_pylist() == [START]


def test_odd_names_of_files_and_things_are_kept(tmp_path):
    path = save(RUNS["odd_names"], tmp_path / "ä b [red] 中 #%&'")
    back = load(path)
    assert back.workload["name"] == ODD
    assert back.devices[0].name == ODD
    assert ODD + "1" in back.units["name"].to_pylist()


def test_numbers_of_numpy_and_what_is_not_finite_become_json(tmp_path):
    run = Run(
        settings={"a": np.float64(1.5), "b": np.arange(3), "c": float("nan"), "d": {1: np.bool_(True)}, "e": tmp_path}
    )
    back = load(save(run, tmp_path / "run"))
    assert back.settings == {"a": 1.5, "b": [0, 1, 2], "c": None, "d": {"1": True}, "e": str(tmp_path)}


def test_the_parquet_schemas_say_units_and_what_each_column_is(tmp_path):
    save(thinned(profile_run(kernels=4)), tmp_path / "run")
    for name, schema in tables.TABLES.items():
        written = pq.read_schema(tmp_path / "run" / f"{name}.parquet")
        assert written.names == schema.names
        for field in schema:
            metadata = written.field(field.name).metadata
            assert metadata[b"unit"] == field.metadata[b"unit"]
            assert metadata[b"description"]
    assert pq.read_schema(tmp_path / "run" / "windows.parquet").field("energy_j").metadata[b"unit"] == b"J"


def test_other_programs_read_the_parquet(tmp_path):
    save(RUNS["full"], tmp_path / "run")
    frame = pytest.importorskip("pandas").read_parquet(tmp_path / "run" / "results.parquet")
    assert len(frame) == len(RUNS["full"].results)


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["run", "run.zip"])
def test_a_run_never_goes_over_an_older_one_unless_asked(tmp_path, where):
    save(RUNS["monitor"], tmp_path / where)
    with pytest.raises(BadInputError, match="never overwritten"):
        save(RUNS["full"], tmp_path / where)
    assert load(tmp_path / where) == RUNS["monitor"]
    save(RUNS["full"], tmp_path / where, overwrite=True)
    assert load(tmp_path / where) == RUNS["full"]


@pytest.mark.parametrize("where", ["run", "run.zip"])
def test_of_two_that_save_at_once_one_is_refused(tmp_path, monkeypatch, where):
    """The other saves between the look whether the place is free and the first byte."""
    writers, write = (places, store), places.write_whole

    def late(path, data, **how):
        for writer in writers:
            monkeypatch.setattr(writer, "write_whole", write)
        save(RUNS["monitor"], tmp_path / where)
        write(path, data, **how)

    for writer in writers:
        monkeypatch.setattr(writer, "write_whole", late)
    with pytest.raises(BadInputError, match="never overwritten"):
        save(Run(command="first"), tmp_path / where)
    assert load(tmp_path / where) == RUNS["monitor"]


def test_a_recording_takes_its_place_before_it_starts(tmp_path):
    save_header(Run(command="one"), tmp_path / "run", first=True)
    with pytest.raises(BadInputError, match="never overwritten"):
        save_header(Run(command="other"), tmp_path / "run", first=True)


@pytest.mark.parametrize("removed", [False, True])
def test_a_file_that_comes_while_a_header_is_written_stays(tmp_path, monkeypatch, removed):
    """The other comes between the look at what is there and the renaming."""
    run = Run(command="one")
    save_header(run, tmp_path / "run", first=True)
    mine = tmp_path / "run" / "run.json"
    if removed:
        mine.unlink()
    encode = store.encode

    def late(*what):
        mine.unlink(missing_ok=True)
        mine.write_text("mine")
        return encode(*what)

    monkeypatch.setattr(store, "encode", late)
    with pytest.raises(BadInputError, match="another Run has been put"):
        save_header(run, tmp_path / "run")
    assert mine.read_text() == "mine"


def test_of_a_folder_that_the_disk_refuses_nothing_is_left(tmp_path, monkeypatch):
    write = store.write_whole

    def refuse(path, data, **how):
        if path.name == "units.parquet":
            raise OSError(28, "No space left on device")
        write(path, data, **how)

    monkeypatch.setattr(store, "write_whole", refuse)
    with pytest.raises(BrokenOffError, match="No space left"):
        save(RUNS["full"], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_never_goes_over_the_remains_of_another(tmp_path):
    save_header(Run(created_ns=1, command="the other", complete=False), tmp_path)
    with SpoolWriter(tmp_path / SPOOL, "samples") as spool:
        spool.append({"time_ns": [1], "device": ["d"], "channel": ["power_w"], "value": [1.0]})
    with pytest.raises(BadInputError, match="never overwritten"):
        save(Run(created_ns=2, command="this one"), tmp_path)
    assert len(load(tmp_path).samples) == 1


def test_a_run_never_goes_over_a_file_that_is_not_ours(tmp_path):
    (tmp_path / "run.json").write_text('{"mine": 1}')
    with pytest.raises(BadInputError, match="never overwritten"):
        save(Run(), tmp_path)
    assert (tmp_path / "run.json").read_text() == '{"mine": 1}'


def test_a_finished_recording_replaces_its_own_spool(tmp_path):
    run = monitor_run()
    run.complete = False
    save_header(run, tmp_path)
    with SpoolWriter(tmp_path / SPOOL, "samples") as spool:
        spool.append({"time_ns": [1], "device": ["d"], "channel": ["power_w"], "value": [1.0]})
    run.complete = True
    save(run, tmp_path)
    assert not (tmp_path / SPOOL).exists()
    assert load(tmp_path) == run


def test_a_recording_that_was_cut_off_loads_with_a_warning(tmp_path):
    save_header(Run(kind="profile", created_ns=7, complete=False), tmp_path)
    with SpoolWriter(tmp_path / SPOOL, "samples", "0") as spool:
        spool.append({"time_ns": [5, 6], "device": ["d", "d"], "channel": ["power_w"] * 2, "value": [1.0, 2.0]})
    with SpoolWriter(tmp_path / SPOOL, "spans") as spool:
        spool.append({"id": [0], "kind": ["phase"], "name": ["warm-up"], "start_ns": [1], "end_ns": [2]})
    back = load(tmp_path)
    assert not back.complete
    assert [warning.code for warning in back.warnings] == ["incomplete"]
    assert back.series("d", "power_w")[0].tolist() == [5, 6]
    assert back.spans["name"].to_pylist() == ["warm-up"]


def test_a_crash_while_saving_loses_nothing(tmp_path):
    """Some tables are Parquet already, the others only in the spool."""
    run = profile_run()
    run.complete = False
    save(run, tmp_path / "whole")
    broken = tmp_path / "broken"
    save_header(run, broken)
    for name in ("samples", "units"):
        (tmp_path / "whole" / f"{name}.parquet").rename(broken / f"{name}.parquet")
    with SpoolWriter(broken / SPOOL, "spans") as spool:
        spool.append({"id": [0], "kind": ["phase"], "name": ["energy"], "start_ns": [1], "end_ns": [2]})
    back = load(broken)
    assert back.samples == run.samples
    assert back.units == run.units
    assert back.spans["name"].to_pylist() == ["energy"]


def test_an_interrupted_run_keeps_its_own_words(tmp_path):
    run = Run(complete=False)
    run.warn("interrupted", "the run ended early (Ctrl-C)")
    assert load(save(run, tmp_path / "run")) == run


def test_nothing_half_written_is_left_when_the_disk_refuses(tmp_path, monkeypatch):
    def refuse(data, file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jouletrace.run.files.write_content", refuse)
    with pytest.raises(BadInputError, match="No space left"):
        save(Run(), tmp_path / "run.zip")
    with pytest.raises(BadInputError, match="No space left"):
        save_header(Run(), tmp_path / "run")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("where", ["file/run", "file/run.zip", "file", "null\0byte", "x" * 300, "x" * 300 + ".zip"])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path, where):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadInputError) as caught:
        save(Run(), tmp_path / where)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize("where", ["file/run", "file", "full", "x" * 300])
def test_a_taken_place_is_refused_before_anything_runs(tmp_path, where):
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    with pytest.raises(BadInputError):
        check_free(tmp_path / where)


def test_a_free_place_is_accepted(tmp_path):
    (tmp_path / "empty").mkdir()
    assert check_free(tmp_path / "empty") == tmp_path / "empty"
    assert check_free(tmp_path / "a" / "b") == tmp_path / "a" / "b"


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(BadInputError, match="not a writable folder"):
        check_free(tmp_path / "closed" / "run")


def test_fresh_folders_never_collide(tmp_path):
    folders = {fresh_folder(tmp_path, "deit-b") for _ in range(5)}
    assert len(folders) == 5
    assert all(folder.is_dir() for folder in folders)


@pytest.mark.parametrize("name", ["../../up", "中" * 200, "a/b:c", "", "...", "x" * 500])
def test_a_fresh_folder_stays_inside_whatever_the_name(tmp_path, name):
    assert fresh_folder(tmp_path, name).parent == tmp_path


def test_a_fresh_folder_under_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError):
        fresh_folder(tmp_path / "file", "x")


@pytest.mark.thorough
def test_reading_a_run_imports_no_torch(tmp_path):
    save(RUNS["full"], tmp_path / "run")
    code = "import sys; from jouletrace.run import load; load(sys.argv[1]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], check=True)


@pytest.mark.thorough
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
@pytest.mark.parametrize("name", ["run", "run.zip"])
def test_reading_a_run_starts_no_threads(tmp_path, name):
    # Threads of Arrow's pools that outlive the interpreter abort the process at its end.
    save(RUNS["full"], tmp_path / name)
    code = (
        "import os, sys, pyarrow.parquet; from jouletrace.run import load;"
        "before = len(os.listdir('/proc/self/task')); load(sys.argv[1]);"
        "print(len(os.listdir('/proc/self/task')) - before)"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / name)], check=True, capture_output=True, text=True, env=environment
    )
    assert ran.stdout.strip() == "0"


def test_device_details_survive(tmp_path):
    run = Run(devices=[DeviceInfo("cpu-0", "CPU", "cpu", details={"nested": {"a": [1, None]}})])
    assert load(save(run, tmp_path / "run")).devices == run.devices
    assert json.loads((tmp_path / "run" / "run.json").read_text())["schema_version"] == "3.0"


def test_tables_saved_from_other_types_are_brought_to_the_schema(tmp_path):
    plain = pa.table({"unit": [0], "metric": ["power_w"], "value": [1], "extra": ["dropped"]})
    back = load(save(Run(results=plain), tmp_path / "run"))
    assert back.result("power_w").value == 1.0
    assert back.results.schema.names == tables.RESULTS.names


def test_counters_are_kept_and_a_run_without_them_needs_no_file(tmp_path):
    rows = [{"span": 3, "metric": "Memory Throughput", "section": "SpeedOfLight", "value": 41.5, "value_unit": "%"}]
    run = Run(counters=tables.from_rows(rows, "counters"))
    assert load(save(run, tmp_path / "with")).counters.to_pylist() == rows
    assert not (save(Run(), tmp_path / "without") / "counters.parquet").exists()
    assert len(load(tmp_path / "without").counters) == 0
    (tmp_path / "with" / "counters.parquet").unlink()
    with pytest.raises(BadInputError, match=r"counters\.parquet is missing"):
        load(tmp_path / "with")


@pytest.mark.thorough
def test_a_log_of_equal_readings_at_equal_distances_opens_again(tmp_path):
    """An idle GPU's log of a month takes hardly a byte: stamps are stored as differences, readings once."""
    count = 4_000_000
    log = tables.from_rows([{"device": "gpu", "channel": "power_w"}], "samples")
    log = tables.conform(log.take(pa.array(np.zeros(count, np.int32))), "samples")
    log = tables.changed(log, "time_ns", 1_700_000_000_000_000_000 + 10**9 * np.arange(count))
    run = Run(kind="import", samples=tables.changed(log, "value", np.full(count, 61.0)))
    save(run, tmp_path / "run.zip")
    assert (tmp_path / "run.zip").stat().st_size < count / 20
    assert load(tmp_path / "run.zip").samples.equals(run.samples)


def test_a_name_that_is_nearly_right_is_answered_with_those_that_are_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(Run(), tmp_path / "runs" / "fleet-1")
    with pytest.raises(BadInputError, match=r"no such file or folder; did you mean runs/fleet-1\?"):
        load("fleet1")
    with pytest.raises(BadInputError, match=r"did you mean runs/fleet-1\?"):
        load("runs/fleet_1")
    with pytest.raises(BadInputError, match="its one Run is runs/fleet-1"):
        load("runs")
    with pytest.raises(BadInputError, match=r"folder$"):
        load("nothing")


UNITS = [
    {"id": 1, "parent": 0, "level": "op", "name": "aten.mm", "op": "aten.mm", "count": 1},
    {"id": 2, "parent": 1, "level": "kernel", "name": "gemm", "op": "aten.mm", "count": 1},
]
"""Of a recording that was not analysed: the whole, unit 0, is added by the analysis."""


def test_a_run_saved_before_its_analysis_opens(tmp_path):
    save(Run(units=tables.from_rows(UNITS, "units")), tmp_path / "run")
    assert load(tmp_path / "run").units.to_pylist()[1]["name"] == "gemm"


def test_units_spooled_before_the_analysis_are_kept(tmp_path):
    save_header(Run(complete=False), tmp_path)
    with SpoolWriter(tmp_path / SPOOL, "units") as writer:
        writer.append({name: [row[name] for row in UNITS] for name in UNITS[0]})
    back = load(tmp_path)
    assert len(back.units) == len(UNITS)
    assert "rows_left_out" not in [warning.code for warning in back.warnings]
