"""Files that are damaged, foreign or from another version: one line that names the file."""

import contextlib
import io
import json
import shutil
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jouletrace.analysis import analyse
from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.run import load, save, sound, tables
from make_runs import all_runs, profile_run, thinned


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A Run on disk as a folder and as a zip; not to be changed."""
    folder = tmp_path_factory.mktemp("saved")
    run = thinned(profile_run(kernels=2))
    run.samples = run.samples.slice(0, 50)
    save(run, folder / "run")
    save(run, folder / "run.zip")
    return folder


@pytest.fixture
def run_folder(saved, tmp_path):
    return shutil.copytree(saved / "run", tmp_path / "run")


CHANNEL = {"device": "a", "name": "power_w", "unit": "W", "source": "s"}


def refusal(path):
    """The one line with which a Run is refused."""
    with pytest.raises(BadInputError) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


def change_header(folder, **changes):
    header = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(header | changes))


@pytest.mark.thorough
def test_a_newer_major_version_is_refused(run_folder):
    change_header(run_folder, schema_version="4.0")
    assert "4.0" in refusal(run_folder)
    assert "upgrade jouletrace" in refusal(run_folder)


@pytest.mark.thorough
def test_a_newer_minor_version_with_unknown_fields_opens(run_folder):
    header = json.loads((run_folder / "run.json").read_text())
    header["schema_version"] = "1.99"
    header["new_thing"] = {"a": 1}
    header["devices"][0]["colour"] = "green"
    header["channels"][0]["new"] = 1
    (run_folder / "run.json").write_text(json.dumps(header))
    samples = pq.read_table(run_folder / "samples.parquet")
    newer = samples.append_column("quality", pa.array([1] * len(samples)))
    pq.write_table(newer, run_folder / "samples.parquet")
    pq.write_table(samples, run_folder / "new_table.parquet")
    run = load(run_folder)
    assert run.devices[0].name == "NVIDIA H100 80GB HBM3"
    assert run.samples.schema.names == tables.SAMPLES.names


@pytest.mark.thorough
def test_an_older_minor_version_without_optional_columns_opens(run_folder):
    spans = pq.read_table(run_folder / "spans.parquet").drop_columns(["graph_node", "bytes"])
    pq.write_table(spans, run_folder / "spans.parquet")
    assert load(run_folder).spans["bytes"].null_count == len(spans)


@pytest.mark.thorough
@pytest.mark.parametrize("version", ["", "x", "v1", None, [1], "1" * 5000, "-1", "3.x", "3.", "0.9", "3.0.1"])
def test_an_unreadable_version_is_refused(run_folder, version):
    change_header(run_folder, schema_version=version)
    assert "run.json" in refusal(run_folder)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b"PAR1",
        b'{"format": "other"}',
        b"[" * 100_000,
        b'{"a": 1' + b"0" * 9999,
    ],
    ids=["empty", "cut", "list", "null", "binary", "parquet", "other", "deep", "digits"],
)
def test_a_broken_header_is_named(run_folder, content):
    (run_folder / "run.json").write_bytes(content)
    assert "run.json" in refusal(run_folder)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", 5),
        ("created_ns", "yesterday"),
        ("created_ns", 1.5),
        ("created_ns", True),
        ("workload", ["deit"]),
        ("devices", {}),
        ("devices", 3),
        ("devices", ["gpu"]),
        ("devices", [{}]),
        ("devices", [{"id": 1, "name": "x"}]),
        ("devices", [{"id": "a", "name": "x", "power_limit_w": "700"}]),
        ("channels", [{"device": "a", "name": "power_w", "unit": "W", "source": "s", "period_s": []}]),
        ("warnings", [{"code": "a"}]),
        ("channels", [CHANNEL | {"response": {"rise_s": 2**62}}]),
        ("channels", [CHANNEL | {"response": {"rise_s": -1}}]),
        ("channels", [CHANNEL | {"response": {"covariance": [[1, 0], [0]]}}]),
        ("channels", [CHANNEL | {"response": {"covariance": [[1e300]]}}]),
        ("channels", [CHANNEL | {"response": {"flags": 3}}]),
        ("channels", [CHANNEL | {"response": {"rise_s": 0.013}}]),
        ("clock_pairs", [{"time_ns": 1}]),
        ("complete", "yes"),
        ("settings", {"imported": ["x"]}),
        ("settings", {"imported": [{"path": "x"}]}),
        ("settings", {"ranks": [{"name": "rank 0"}]}),
        ("settings", {"not_synchronised": 3}),
        ("settings", {"config": [1]}),
        ("stored", {"deep_idle": {"value": "70 W"}}),
        ("stored", {"between_runs": {"sd_pct": 0.2, "runs": 1, "source": "one run"}}),
        ("versions", None),
        ("workload", {"items": "many"}),
        ("workload", {"items": -3}),
        ("workload", {"name": 5}),
        ("workload", {"a": {"items": "many"}}),
        ("settings", {"block": 0}),
        ("settings", {"first_stage": "8"}),
        ("calibration", {"GPU-1": 3}),
    ],
)
def test_a_field_of_the_wrong_form_is_named(run_folder, field, value):
    change_header(run_folder, **{field: value})
    assert "wrong form" in refusal(run_folder)


@pytest.mark.thorough
@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**60])
@pytest.mark.parametrize(
    ("field", "place"), [("created_ns", 0), ("workload", "x"), ("devices", "power_limit_w"), ("settings", "rise_s")]
)
def test_a_number_of_more_than_64_bits_is_refused(run_folder, number, field, place):
    header = json.loads((run_folder / "run.json").read_text())
    if field == "created_ns":
        header[field] = number
    else:
        (header[field][0] if field == "devices" else header[field])[place] = number
    change_header(run_folder, **header)
    assert "more than 64 bits" in refusal(run_folder)


@pytest.mark.thorough
@pytest.mark.parametrize("table", tables.TABLES)
@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"\x00" * 100, b"hello, this is text" * 9], ids=["empty", "magic", "zeros", "text"]
)
def test_a_broken_table_is_named(run_folder, table, content):
    (run_folder / f"{table}.parquet").write_bytes(content)
    assert f"{table}.parquet is damaged" in refusal(run_folder)


@pytest.mark.thorough
@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_truncated_table_is_named(run_folder, share):
    data = (run_folder / "samples.parquet").read_bytes()
    (run_folder / "samples.parquet").write_bytes(data[: int(len(data) * share)])
    assert "samples.parquet is damaged" in refusal(run_folder)


@pytest.mark.thorough
def test_a_missing_table_is_named(run_folder):
    (run_folder / "units.parquet").unlink()
    assert "units.parquet is missing" in refusal(run_folder)


@pytest.mark.thorough
def test_parquet_of_another_tool_is_refused(run_folder):
    pq.write_table(pa.table({"time": [1], "watts": [2.0]}), run_folder / "samples.parquet")
    assert "no column 'time_ns'" in refusal(run_folder)


@pytest.mark.thorough
def test_a_column_of_another_type_is_refused(run_folder):
    samples = pq.read_table(run_folder / "samples.parquet")
    text = samples.set_column(0, "time_ns", pa.array(["noon"] * len(samples)))
    pq.write_table(text, run_folder / "samples.parquet")
    assert "samples.parquet is damaged" in refusal(run_folder)


def write_windows(folder, column, values):
    with (folder / "windows.parquet").open("rb") as file:
        table = tables.read(file, "windows")
    at = table.column_names.index(column)
    field = table.schema.field(at)
    table = table.set_column(at, field, pa.array((values * len(table))[: len(table)], field.type))
    with (folder / "windows.parquet").open("wb") as file:
        tables.write(table, "windows", file)


@pytest.mark.thorough
def test_a_window_of_no_iteration_is_refused(run_folder):
    write_windows(run_folder, "replays", [0])
    assert "windows.parquet is damaged: row 0: replays is none" in refusal(run_folder)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("power_w", -5.0, "row 1: its power is not within"),
        ("low_w", float("inf"), "row 1: its power"),
        ("end_ns", 7, "row 1: it doesn't end"),
    ],
)
def test_a_waveform_that_can_not_be_is_refused(tmp_path, column, value, said):
    run = profile_run(kernels=2)
    rows = run.waveform.to_pylist()
    rows[1][column] = value
    folder = tmp_path / "run"
    run.save(str(folder))
    run.waveform = tables.from_rows(rows, "waveform")
    with pytest.raises(BadInputError, match=said):
        run.save(str(tmp_path / "never"))
    tables.write(run.waveform, "waveform", folder / "waveform.parquet")
    assert said in refusal(folder)


@pytest.mark.thorough
def test_windows_of_no_block_are_of_one(run_folder, saved):
    write_windows(run_folder, "block", [None, 0])
    time, plain = (analyse(load(folder)).result("iteration_time_s") for folder in (run_folder, saved / "run"))
    assert time == plain
    assert time.value is not None


@pytest.mark.thorough
def test_a_column_given_twice_is_refused(run_folder):
    samples = pq.read_table(run_folder / "samples.parquet")
    pq.write_table(samples.append_column("value", samples["value"]), run_folder / "samples.parquet")
    assert "samples.parquet is damaged" in refusal(run_folder)


@pytest.mark.thorough
def test_a_flipped_bit_is_never_a_quiet_wrong_number(run_folder):
    """Every page and every file has a checksum: a change is refused, or comes with a warning."""
    path = run_folder / "results.parquet"
    data = path.read_bytes()
    refused = 0
    for at in range(0, len(data), max(1, len(data) // 150)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        try:
            warned = [warning.code for warning in load(run_folder).warnings]
            assert warned == ["changed_since_saved"], at
        except BadInputError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("name", ["nothing", "nothing.zip", "null\0byte", "x" * 300, "~nobody"])
def test_a_place_without_anything_is_reported(tmp_path, name):
    refusal(tmp_path / name)


def test_a_folder_without_a_run_is_reported(tmp_path):
    assert "holds no run.json" in refusal(tmp_path)


def test_a_file_that_is_no_zip_is_reported(tmp_path):
    (tmp_path / "run.csv").write_text("a,b\n1,2\n")
    assert "neither a folder nor a readable zip" in refusal(tmp_path / "run.csv")


def test_a_zip_without_a_run_is_reported(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("README", "hello")
    assert "holds no run.json" in refusal(tmp_path / "x.zip")


@pytest.mark.thorough
def test_a_zip_of_two_runs_is_refused_not_guessed(tmp_path, saved):
    header = (saved / "run" / "run.json").read_bytes()
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a/run.json", header)
        archive.writestr("b/run.json", header)
    assert "2 Runs" in refusal(tmp_path / "two.zip")


@pytest.mark.thorough
def test_a_zip_of_a_run_and_the_runs_that_it_was_made_of_opens(tmp_path, saved):
    with zipfile.ZipFile(tmp_path / "nested.zip", "w") as archive:
        for file in (saved / "run").iterdir():
            archive.write(file, f"a/repeats/1/{file.name}")
            archive.write(file, f"a/{file.name}")
    assert load(tmp_path / "nested.zip") == load(saved / "run")


@pytest.mark.thorough
def test_a_truncated_zip_is_reported(tmp_path, saved):
    data = (saved / "run.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(data[: len(data) // 2])
    assert "cut.zip" in refusal(tmp_path / "cut.zip")


def load_or_refuse(path):
    """Loading may only succeed or refuse; any other exception is a bug."""
    with contextlib.suppress(JouletraceError):
        load(path)


_relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
_edits = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=0, max_size=8)), min_size=1, max_size=5
)


def mutate(data, edits):
    for at, change in edits:
        start = int(at * len(data))
        data = data[:start] + change + data[start + len(change) if change else start + 1 :]
    return data


@pytest.mark.thorough
@_relaxed
@given(edits=_edits, name=st.sampled_from([*tables.TABLES]))
def test_any_mutated_table_loads_or_is_refused(run_folder, saved, edits, name):
    data = (saved / "run" / f"{name}.parquet").read_bytes()
    (run_folder / f"{name}.parquet").write_bytes(mutate(data, edits))
    load_or_refuse(run_folder)
    (run_folder / f"{name}.parquet").write_bytes(data)


@pytest.mark.thorough
@_relaxed
@given(edits=_edits)
def test_any_mutated_header_loads_or_is_refused(run_folder, saved, edits):
    (run_folder / "run.json").write_bytes(mutate((saved / "run" / "run.json").read_bytes(), edits))
    load_or_refuse(run_folder)


@pytest.mark.thorough
@_relaxed
@given(edits=_edits)
def test_any_mutated_zip_loads_or_is_refused(tmp_path, saved, edits):
    (tmp_path / "run.zip").write_bytes(mutate((saved / "run.zip").read_bytes(), edits))
    load_or_refuse(tmp_path / "run.zip")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.thorough
@_relaxed
@given(
    field=st.sampled_from(["kind", "workload", "devices", "channels", "warnings", "stored", "complete"]), value=_json
)
def test_any_value_of_a_header_field_loads_or_is_refused(run_folder, saved, field, value):
    shutil.copy(saved / "run" / "run.json", run_folder / "run.json")
    change_header(run_folder, **{field: value})
    load_or_refuse(run_folder)


def test_a_table_reads_from_any_buffer():
    sink = io.BytesIO()
    tables.write(tables.from_rows([{"unit": 0, "metric": "power_w", "value": 1.0}], "results"), "results", sink)
    assert tables.read(io.BytesIO(sink.getvalue()), "results")["value"].to_pylist() == [1.0]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["samples.parquet", "run.json"])
def test_a_zip_that_would_unpack_to_gigabytes_is_refused_at_once(saved, tmp_path, name):
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (saved / "run").iterdir():
            if path.name != name:
                archive.write(path, path.name)
        with archive.open(name, "w", force_zip64=True) as entry:
            for _ in range(100):
                entry.write(bytes(2**20))
    assert f"bomb.zip/{name} would unpack from 0.1 MiB to 0.1 GiB" in refusal(bomb)


@pytest.mark.thorough
def test_a_small_entry_that_packs_well_is_no_bomb(saved, tmp_path):
    packed = tmp_path / "packed.zip"
    header = (saved / "run" / "run.json").read_bytes()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (saved / "run").iterdir():
            data = header + b" " * 10_000_000 if path.name == "run.json" else path.read_bytes()
            archive.writestr(path.name, data)
    assert load(packed).samples == load(saved / "run").samples


@pytest.mark.thorough
@pytest.mark.parametrize("table", ["units", "windows"])
def test_a_table_of_absurdly_many_rows_is_refused(run_folder, table):
    rows = pa.nulls(2_000_000, pa.int64())
    names = dict.fromkeys(("level", "name", "kind"), pa.repeat("", len(rows)))
    columns = dict.fromkeys(("id", "start_ns", "end_ns"), rows) | names
    pq.write_table(pa.table(columns), run_folder / f"{table}.parquet", compression="zstd")
    assert f"{table}.parquet is damaged: 2000000 rows in" in refusal(run_folder)


@pytest.mark.thorough
def test_a_table_that_would_unpack_to_gigabytes_is_refused(run_folder):
    columns = {"id": list(range(100_000)), "level": ["x"] * 100_000, "name": ["x" * 1000] * 100_000}
    pq.write_table(pa.table(columns), run_folder / "units.parquet", compression="zstd", use_dictionary=False)
    assert "units.parquet is damaged: it would unpack from" in refusal(run_folder)


@pytest.mark.thorough
@pytest.mark.parametrize("checksums", [None, {}, [], "none", {"samples.parquet": "12"}, {"samples.parquet": True}])
def test_without_checksums_a_run_says_that_it_can_not_be_checked(run_folder, checksums):
    change_header(run_folder, checksums=checksums)
    (warning,) = [warning for warning in load(run_folder).warnings if warning.code == "not_checked"]
    assert "run.json holds no checksum of samples.parquet, spans.parquet" in warning.message


@pytest.mark.thorough
def test_one_missing_checksum_names_its_table(run_folder):
    header = json.loads((run_folder / "run.json").read_text())
    del header["checksums"]["units.parquet"]
    (run_folder / "run.json").write_text(json.dumps(header))
    (warning,) = [warning for warning in load(run_folder).warnings if warning.code == "not_checked"]
    assert "no checksum of units.parquet:" in warning.message


@pytest.mark.parametrize("path", [None, 3, ["run"], "a\0b"])
def test_what_is_no_path_is_refused(path):
    assert refusal(path)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("last_ns", 5, "row 2: it ends before it is sent"),
        ("first_ns", 5, "row 2: its first token does not come between sent and last"),
        ("level", -1, "row 2: level is below zero"),
        ("sent_ns", None, "row 2: it has no sent_ns"),
    ],
)
def test_a_request_that_can_not_be_is_refused(tmp_path, column, value, said):
    run = profile_run(kernels=2)
    rows = run.requests.to_pylist()
    rows[2][column] = value
    run.requests = tables.from_rows(rows, "requests")
    with pytest.raises(BadInputError, match=f"requests.parquet is damaged: {said}"):
        load(save(run, tmp_path / "run"))


def test_a_unit_without_a_name_is_refused():
    rows = [{"id": 1, "level": "kernel", "name": None}]
    with pytest.raises(ValueError, match="row 0: it has no name"):
        sound.check(tables.from_rows(rows, "units"), "units")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e-320])
@pytest.mark.parametrize("column", ["flops", "bytes"])
def test_work_that_can_not_be_is_refused(column, value):
    rows = [{"id": 1, "level": "site", "name": "mm", "flops": 2.0, "bytes": 8.0}]
    sound.check(tables.from_rows(rows, "units"), "units")
    with pytest.raises(ValueError, match=f"row 0: {column} is less than 1, or no number"):
        sound.check(tables.from_rows([{**rows[0], column: value}], "units"), "units")


@pytest.mark.parametrize("name", ["spans", "units", "windows", "requests"])
def test_a_row_that_is_there_twice_is_named(name):
    table = next(run.table(name) for run in all_runs().values() if len(run.table(name)))
    sound.check(table, name)
    with pytest.raises(ValueError, match=rf"row {len(table)}: it is there twice"):
        sound.check(pa.concat_tables([table, table.slice(0, 1)]), name)


@pytest.mark.parametrize("prefilling", [0, 6])
def test_tokens_of_prompts_are_of_sequences_that_read_them(prefilling):
    row = {"start_ns": 1, "end_ns": 2, "new_tokens": 5, "prefilling": prefilling, "decoding": 1, "context_tokens": 9}
    with pytest.raises(ValueError, match="row 0: its new_tokens are not of so many sequences"):
        sound.check(tables.from_rows([row], "steps"), "steps")
