"""Runs are checked by the same rules when written and read: a Run that ``load`` would refuse is never saved."""

import math
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commands import command
from jouletrace.errors import BadInputError, JouletraceError
from jouletrace.run import ChannelInfo, DeviceInfo, Run, RunWarning, load, save, tables
from jouletrace.run.measured import keep
from jouletrace.simulator.boards import SimulatedGpu
from make_runs import profile_run
from places import DATA

NUMBERS = st.one_of(
    st.floats(),
    st.integers(),
    st.sampled_from([2.0**47, 1.6e9, -1.0, 2**63, -(2**63) - 1, 10**300, math.inf, -math.inf, math.nan]),
)
TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(["\ud800", "\0", "run.json", "0" * 64]))
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3), st.tuples(inner), st.sets(TEXTS)
    ),
    max_leaves=6,
)


def facts(kind: type, **required: Any) -> st.SearchStrategy[Any]:
    """Objects with some fields of any value."""
    names = [name for name in kind.__dataclass_fields__ if name not in required]
    wild = st.dictionaries(st.sampled_from(names), ANYTHING, max_size=3)
    return wild.map(lambda fields: kind(**required, **fields))


LOOKED_UP = {
    "workload": ["name", "items", "batch", "generation", "serving", "recordings", "exit_code", "versions"],
    "settings": ["block", "imported", "ranks", "fleet", "interval_s", "seed", "devices", "tracing", "config"],
    "stored": ["deep_idle", "between_runs", "sample_rate_hz"],
    "calibration": ["GPU-1"],
}
RUNS = st.builds(
    Run,
    kind=TEXTS,
    command=TEXTS,
    created_ns=st.one_of(st.integers(), st.just(0)),
    devices=st.lists(facts(DeviceInfo, id="GPU-1", name="H100"), max_size=2),
    channels=st.lists(facts(ChannelInfo, device="GPU-1", name="power_w", unit="W", source="log"), max_size=2),
    warnings=st.lists(st.builds(RunWarning, TEXTS, TEXTS, TEXTS), max_size=1),
    versions=st.dictionaries(TEXTS, st.one_of(TEXTS, NUMBERS), max_size=1),
    recorder=st.dictionaries(TEXTS, NUMBERS, max_size=1),
    **{
        name: st.dictionaries(st.one_of(st.sampled_from(keys), TEXTS), ANYTHING, max_size=2)
        for name, keys in LOOKED_UP.items()
    },
)


def plain(value: Any) -> Any:
    """A value as JSON states it."""
    if isinstance(value, dict):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def refused(run: Run, place: Any) -> str:
    """Why a Run isn't saved; "" if it is."""
    try:
        save(run, place)
    except JouletraceError as error:
        return str(error)
    return ""


FIELDS = ("kind", "created_ns", "workload", "settings", "stored", "calibration", "versions", "recorder")


@pytest.mark.thorough
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(run=RUNS, name=st.sampled_from(["run", "run.zip"]))
def test_a_wild_run_is_refused_in_one_line_or_comes_back_equal(tmp_path_factory, run, name):
    place = tmp_path_factory.mktemp("wild") / name
    refusal = refused(run, place)
    if refusal:
        assert "\n" not in refusal
        assert not place.exists()
        return
    back = load(place)
    assert [warning.code for warning in back.warnings] == [plain(warning.code) for warning in run.warnings]
    for field in FIELDS:
        assert getattr(back, field) == plain(getattr(run, field))
    for field in ("devices", "channels"):
        assert [one.to_dict() for one in getattr(back, field)] == [plain(one.to_dict()) for one in getattr(run, field)]


WRONG = {
    "channels[0].period_s = 1591118861.0": {
        "channels": [ChannelInfo("GPU-1", "power_w", "W", "log", period_s=1591118861.0)]
    },
    "devices[0].power_limit_w = 140737488355328.0": {"devices": [DeviceInfo("GPU-1", "A100", power_limit_w=2.0**47)]},
    "devices[0].power_limits_w.max = -1.0": {
        "devices": [DeviceInfo("G", "A", power_limits_w={"min": 1.0, "max": -1.0})]
    },
    "channels[0].response": {"channels": [ChannelInfo("GPU-1", "power_w", "W", "log", response={"rise_s": 1.0})]},
    "settings.imported[0].left_out.rows = 'x'": {
        "settings": {"imported": [{"clock": "unix", "left_out": {"rows": "x"}}]}
    },
    "environment.A = None": {"environment": {"A": None}},
    "more than 64 bits": {"workload": {"config": {"n": 2**64}}},
    "can't be stated as JSON": {"workload": {"config": {"n": 10**5000}}},
    "results.parquet is damaged: row 0: n is below zero": {
        "results": tables.from_rows([{"unit": 0, "metric": "power_w", "n": -1}], "results")
    },
    "windows.parquet can't be made": {"windows": pa.table({"variant": ["x"], "start_ns": ["soon"]})},
}


@pytest.mark.parametrize("words", WRONG)
@pytest.mark.parametrize("name", ["run", "run.zip"])
def test_what_no_reader_accepts_is_named_and_not_written(tmp_path, words, name):
    with pytest.raises(BadInputError, match=re.escape(words)) as caught:
        save(Run(**WRONG[words]), tmp_path / name)
    assert str(caught.value).startswith(f"cannot write {tmp_path / name}: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
@pytest.mark.parametrize("file", ["A1_far_stamp.csv", "A2_dcgm_blank_limit.prom"])
def test_an_import_leaves_a_run_that_opens_or_is_refused(capsys, workspace, file):
    said = command(capsys, "import", str(DATA / "faults" / file))
    runs = list((workspace / "runs").glob("*"))
    if said.code:
        assert (said.code, runs) == (2, [])
        assert said.complaint
    else:
        assert command(capsys, "show", str(runs[0])).code == 0


@pytest.mark.thorough
def test_a_measurement_outlives_a_fact_that_no_reader_accepts(capsys, workspace, monkeypatch):
    made = SimulatedGpu.__init__

    def odd(board, *args, **options):
        made(board, *args, **options)
        board.info.power_limit_w = 2.0**47
        board.info.details["serials"] = [2**64]

    monkeypatch.setattr(SimulatedGpu, "__init__", odd)
    said = command(capsys, "monitor", "-d", "sim:h100", "--duration", "3", "-o", "kept")
    assert said.code == 0, said.err
    run = load("kept")
    assert len(run.samples) > 100
    assert run.devices[0].power_limit_w is None
    assert run.devices[0].details["serials"] == [None]
    named = [warning.message for warning in run.warnings if warning.code == "facts_left_out"]
    assert any("devices[0].power_limit_w = 140737488355328.0: " in message for message in named)
    assert any("devices[0].details.serials[0]" in message for message in named)
    assert command(capsys, "show", "kept").code == 0


def test_a_column_of_another_type_is_left_out_and_the_rest_is_saved(tmp_path):
    run = profile_run()
    run.samples = run.samples.set_column(
        run.samples.column_names.index("value"), "value", pa.array(["much"] * len(run.samples))
    )
    run.windows = pa.table({"order": ["first"]})
    keep(run, tmp_path / "run")
    found = load(tmp_path / "run")
    assert found.results.equals(run.results)
    said = [one.message for one in found.warnings if one.code == "rows_left_out"]
    assert any(one.startswith("samples: column value isn't double (") for one in said)
    assert any(one.startswith("windows: column order isn't ") for one in said)
