"""JSON objects of schemas 1 and 2 are read as those of schema 3, null where they don't say."""

import json

import pytest
from jsonschema import Draft202012Validator

from commands import done
from frozen import PROGRAMS, STORED
from jouletrace.errors import BadInputError
from jouletrace.report import json_schema, to_json_object, upgraded
from jouletrace.run import save
from make_runs import monitor_run, profile_run
from places import REPOSITORY
from shown import name_of, rows
from thinned import thinned

VALIDATOR = Draft202012Validator(json.loads(json_schema()))
RUNS = [*STORED, *PROGRAMS, REPOSITORY / "tests" / "data" / "fsdp-two-h200.zip"]


def both(path):
    """The object of schema 3, without percentiles as figures, which schema 2 lacks, and that of schema 2."""
    now, before = (json.loads(done("show", str(path), "--json", "--schema", schema).out) for schema in "32")
    del now["model"]["latency_ms"]["percentiles"]
    return now, before


def values(found, division):
    """Energies, and times in nanoseconds, of parts that are in the lists of schema 2, by names on their paths."""
    own = [row for row in rows(found, division) if not row["path"] or row["path"][-1]["kind"] != "own"]
    return sorted((row["energy_j"]["value"] or 0.0, round(1e9 * (row["time_s"]["value"] or 0.0))) for row in own)


@pytest.mark.thorough
@pytest.mark.parametrize("path", thinned(RUNS, 3), ids=lambda path: path.stem)
def test_an_upgraded_object_validates_and_has_the_figures_of_the_new_one(path):
    now, before = both(path)
    assert before["schema"] == 2
    found = upgraded(before)
    assert [f"{one.json_path}: {one.message}" for one in VALIDATOR.iter_errors(found)] == []
    for name in ("model", "checks", "trust", "conditions", "warnings"):
        assert found[name] == now[name], name
    assert [row["power_w"] for row in rows(found, "idle")] == [row["power_w"] for row in rows(now, "idle")]
    for division in ("request", "range", "length", "context"):
        assert values(found, division) == values(now, division)
    listed = {value for value, _ in values(now, "code")}
    assert {value for value, _ in values(found, "code")} <= listed
    assert {value for value, _ in values(found, "module")} <= {value for value, _ in values(now, "module")}


@pytest.mark.thorough
def test_operators_kernels_and_idle_have_their_paths():
    _, before = both(REPOSITORY / "tests" / "frozen" / "programs" / "encoder.zip")
    found = upgraded(before)
    assert len(rows(found, "code", "cause")) == len(before["idle_causes"])
    assert {name_of(row) for row in rows(found, "code", "idle")} == {"idle", "before the first kernel"}
    kernels = [row for row in before["kernels"] if row not in before["operators"]]
    assert len(rows(found, "code", "kernel")) == len(kernels)


@pytest.mark.thorough
def test_what_a_module_runs_itself_is_a_row_of_its_own():
    now, before = both(REPOSITORY / "docs" / "results" / "runs" / "deit-run-h100.zip")
    found, expected = (rows(one, "module", "own") for one in (upgraded(before), now))
    assert expected
    assert [(row["path"], row["energy_j"]) for row in found] == [(row["path"], row["energy_j"]) for row in expected]


def test_devices_are_rows_of_the_whole(tmp_path):
    _, before = both(save(monitor_run(), tmp_path / "run"))
    assert [row["device"] for row in rows(upgraded(before), "whole", "device")] == [
        one["module"] for one in before["devices"]
    ]


@pytest.mark.thorough
def test_an_object_of_schema_1_is_read(tmp_path):
    now, before = both(save(profile_run(kernels=2), tmp_path / "run"))
    clocks = before["conditions"]["clocks_mhz"]
    old = json.loads(
        json.dumps(before), object_hook=lambda one: {k: v for k, v in one.items() if k not in ("of", "budget")}
    )
    old["schema"] = 1
    old["conditions"]["clocks_mhz"] = {"sm": clocks["sm_reported"], "memory": clocks["memory"]}
    found = upgraded(old)
    assert found["model"] == now["model"]
    assert found["conditions"]["clocks_mhz"] == {**clocks, "sm_measured": None}
    assert upgraded(before)["parts"] == found["parts"]
    assert found["parts"]["whole"][0]["time_s"]["reason"] == "unknown"


def test_other_schemas_are_refused_and_this_one_is_kept():
    now = to_json_object(profile_run())
    assert upgraded(now) is now
    with pytest.raises(BadInputError, match="this jouletrace reads objects of 1 to 3"):
        upgraded({"schema": 4})


@pytest.mark.parametrize(
    "wrong",
    [None, [], "x", {}, {"schema": True}, {"schema": 2.0}, {"schema": 0}, {"schema": 4}, {"schema": 2}, {"schema": 1}],
)
def test_what_is_no_object_of_a_schema_is_refused_in_one_line(wrong):
    with pytest.raises(BadInputError, match=r"^(schema|an object)") as refused:
        upgraded(wrong)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("change", [{"checks": None}, {"phases": [{}]}, {"device": "x"}, {"model": 3}])
def test_a_field_of_the_wrong_form_is_refused_in_one_line(change, tmp_path):
    save(profile_run(), tmp_path / "run")
    before = both(tmp_path / "run")[1] | change
    with pytest.raises(BadInputError, match=r"^an object that is not as schema 2 says: "):
        upgraded(before)
