"""Runs of older formats open as they would be written today."""

import json
import zipfile
from operator import itemgetter

import pytest

import jouletrace as jt
from commands import done
from jouletrace.errors import BadInputError
from jouletrace.report.facts import title
from jouletrace.run import ChannelInfo, DeviceInfo, Run, load, save
from places import REPOSITORY

TWO_GPUS = REPOSITORY / "tests" / "data" / "older" / "ddp-run-h200.zip"


def written_before(run, place, **changes):
    """Save a Run with changed fields of ``run.json``, as an older version wrote it."""
    save(run, place)
    header = json.loads((place / "run.json").read_text())
    header |= {"schema_version": "1.2", **changes}
    header["checksums"].pop("run.json")
    (place / "run.json").write_text(json.dumps(header))
    return place


def test_the_delay_of_a_channel_had_another_name(tmp_path):
    older = {"device": "GPU-1", "name": "power_w", "unit": "W", "source": "a call", "lag_s": 0.025}
    place = written_before(Run(), tmp_path / "run", channels=[older, {**older, "delay_s": 0.03}])
    assert [channel.delay_s for channel in load(place).channels] == [0.025, 0.03]


def test_one_recording_is_a_list_of_one_and_its_rate_that_of_its_device(tmp_path):
    run = Run(devices=[DeviceInfo("GPU-0", "a"), DeviceInfo("GPU-1", "b")])
    changes = {
        "workload": {"recording": {"device": "GPU-1", "iterations": 3}},
        "stored": {"sample_rate_hz": {"value": 1200.0}},
    }
    found = load(written_before(run, tmp_path / "run", **changes))
    assert found.workload["recordings"] == [{"device": "GPU-1", "iterations": 3}]
    assert found.stored["sample_rate_hz"] == {"GPU-1": {"value": 1200.0}}
    assert "recording" not in found.workload


@pytest.mark.parametrize(
    "workload",
    [{"recording": 5}, {"recording": None}, {"gpus": 3}, {"gpus": [3]}, {"gpus": {"a": 1}}, {"gpus": [{"device": 1}]}],
)
def test_a_recording_of_the_wrong_form_is_refused(tmp_path, workload):
    place = written_before(Run(), tmp_path / "run", workload=workload)
    with pytest.raises(BadInputError, match=r"wrong form: workload\.recordings"):
        load(place)


def test_a_profile_of_two_recordings_is_refused(tmp_path):
    run = Run(devices=[DeviceInfo("GPU-0", "a"), DeviceInfo("GPU-1", "b")])
    recordings = [{"device": device.id, "iterations": 3} for device in run.devices]
    with pytest.raises(BadInputError, match=r"workload\.recordings: a profile has one, this has 2$"):
        load(written_before(run, tmp_path / "run", workload={"recordings": recordings}, schema_version="3.0"))


@pytest.mark.parametrize("fields", [{"devices": 3}, {"channels": 3}, {"workload": 3}, {"stored": 3}, {"channels": [3]}])
def test_fields_of_the_wrong_form_are_refused(tmp_path, fields):
    place = written_before(Run(channels=[ChannelInfo("a", "power_w", "W", "x")]), tmp_path / "run", **fields)
    with pytest.raises(BadInputError, match="wrong form"):
        load(place)


@pytest.mark.thorough
def test_phases_of_several_gpus_are_kept_and_shown_by_gpu():
    lines = done("show", str(TWO_GPUS)).out.splitlines()
    rows = [line.split("  ")[:2] for line in lines if line.startswith("rank-") and "comes last" not in line]
    names = ["no kernel running", "compute", "communication", "waiting for other ranks", "before the first kernel"]
    names.append("in no part")
    assert rows == [[f"rank-{rank}", name] for rank in (0, 1) for name in names]
    assert "rank-1 comes last in 64 % of 2394 collectives; rank-0 waits longest, 1.388 s in" in lines


@pytest.mark.thorough
def test_a_run_of_several_gpus_is_analysed_reported_and_compared(tmp_path):
    run = load(TWO_GPUS)
    again = jt.load(save(run, tmp_path / "again"))
    assert json.loads((tmp_path / "again" / "run.json").read_text())["schema_version"] == "3.0"
    assert again.units.equals(run.units)
    assert (
        done("show", str(tmp_path / "again")).out.splitlines()[1:-1]
        == done("show", str(TWO_GPUS)).out.splitlines()[1:-1]
    )
    done("report", str(TWO_GPUS), "-o", str(tmp_path / "page.html"))
    assert "waiting for other ranks" in (tmp_path / "page.html").read_text()
    found = json.loads(done("compare", str(TWO_GPUS), str(tmp_path / "again"), "--json").out)
    assert found["unmatched"] == {"a": [], "b": []}
    assert {row["where"] for row in found["rows"] if row["level"] == "phase"} == {"rank-0", "rank-1"}


@pytest.mark.thorough
def test_figures_of_an_old_run_without_kernels_stay_when_it_is_analysed_again():
    from jouletrace.analysis import analyse

    run = load(TWO_GPUS)
    before, units = run.results.to_pylist(), run.units.to_pylist()
    analyse(run)
    assert sorted(run.units.to_pylist(), key=itemgetter("id")) == units
    after = {(row["unit"], row["metric"]): row["value"] for row in run.results.to_pylist()}
    assert after == pytest.approx({(row["unit"], row["metric"]): row["value"] for row in before}, rel=1e-5)


def test_the_stored_run_is_an_old_one():
    with zipfile.ZipFile(TWO_GPUS) as archive:
        assert json.loads(archive.read("run.json"))["schema_version"] == "1.2"


def test_weights_in_8_bits_that_an_option_made_are_kept_and_shown(tmp_path):
    """``--quantization`` is gone; Runs with it are there."""
    run = Run(kind="profile", settings={"quantization": "int8"})
    run.workload = {"name": "llama-1b", "quantization": "int8", "quantized": {"layers": 14, "bytes": 4}}
    found = load(save(run, tmp_path / "run"))
    assert found.settings["quantization"] == "int8"
    assert title(found) == "llama-1b · weights int8"
