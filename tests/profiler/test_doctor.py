"""Measurable quantities of a machine: every sensor, what it costs, and why a missing thing is missing."""

import getpass
import json
import platform
import re
import time
import zipfile
from types import SimpleNamespace

import pytest

import jouletrace as jt
from commands import command
from jouletrace.analysis.calibration import calibration_of
from jouletrace.cli import main
from jouletrace.devices.base import Process
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.profiler import diagnose, doctor
from jouletrace.recording.calibrations import store_calibration
from jouletrace.run import DeviceInfo
from jouletrace.simulator.boards import SimulatedGpu


def test_every_sensor_of_a_gpu_is_listed_with_period_and_cost():
    found = diagnose("sim:h100")
    (board,) = found.devices
    assert board.info.simulated
    record = board.capabilities[0]
    assert record.period_s == 0.02
    assert record.available
    assert 0 < record.cost_s < 0.1
    assert len(board.capabilities) >= 8
    assert board.calibrated_days_ago is None
    assert found.no_gpu is None


def test_a_calibration_is_shown_with_its_age():
    device = SimulatedGpu("sim:h100")
    two_days_ago = time.time_ns() - 2 * 86_400_000_000_000
    store_calibration(device, {"time_ns": two_days_ago, "channels": {"power_w": {"period_s": 0.02}}})
    (board,) = diagnose("sim:h100").devices
    assert board.calibrated_days_ago == pytest.approx(2.0, abs=0.01)
    assert board.calibration == {"power_w": {"period_s": 0.02}}


def test_without_a_gpu_the_cpu_is_there_and_the_reason(monkeypatch):
    monkeypatch.setattr(doctor, "list_devices", lambda: [DeviceInfo("cpu", "CPU", "cpu")])
    monkeypatch.setattr(doctor, "no_gpu_reason", lambda: "the NVIDIA driver is not installed")
    found = diagnose()
    assert [board.info.kind for board in found.devices] == ["cpu"]
    assert found.no_gpu == "the NVIDIA driver is not installed"


def test_a_gpu_that_cannot_be_opened_does_not_hide_the_others(monkeypatch):
    infos = [DeviceInfo("GPU-1", "A"), DeviceInfo("GPU-2", "B")]
    monkeypatch.setattr(doctor, "list_devices", lambda: infos)

    def opened(spec):
        if spec == "GPU-1":
            raise NotPossibleError("the GPU is lost")
        return SimulatedGpu("sim:h100")

    monkeypatch.setattr(doctor, "open_device", opened)
    one, other = diagnose().devices
    assert (one.problem, one.capabilities) == ("the GPU is lost", [])
    assert other.problem == ""
    assert other.capabilities


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(BadInputError, match="unknown device"):
        diagnose("gpu7")


def test_libraries_say_what_they_would_serve(monkeypatch):
    monkeypatch.setattr(doctor.util, "find_spec", lambda name: None if name == "plotly" else SimpleNamespace())
    extras = diagnose("sim:h100").extras
    assert extras["plotly"]["available"] is False
    assert "pip install 'jouletrace[report]'" in extras["plotly"]["note"]


def test_a_library_that_was_never_installed_has_no_version(monkeypatch):
    monkeypatch.setattr(doctor, "LIBRARIES", {"nowhere": "nothing"})
    monkeypatch.setattr(doctor.util, "find_spec", lambda name: SimpleNamespace())
    assert diagnose("sim:h100").extras["nowhere"] == {"available": True, "note": "of unknown version"}


def test_it_is_json():
    found = json.loads(json.dumps(diagnose("sim:a100").to_dict(), allow_nan=False))
    assert found["devices"][0]["info"]["simulated"] is True
    assert found["versions"]["python"]


def test_the_next_step_names_the_device(capsys):
    assert main.run(["doctor", "--device", "sim:h100"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "next: jouletrace calibrate --device sim:h100, once; then jouletrace profile deit-tiny --device" in said


def test_a_bundle_holds_a_load_as_every_sensor_showed_it_and_no_names(workspace, capsys, monkeypatch):
    """From the record alone the GPU's sensors can be fitted."""
    monkeypatch.setattr(SimulatedGpu, "processes", lambda self: [Process(7, "secret-training")])
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "secret0")
    begin = SimulatedGpu.__init__

    def begin_with_uuid(self, *given, **options):
        begin(self, *given, **options)
        self.info.id = "GPU-4f5e6a7b-0123-4567-89ab-0123456789ab"

    monkeypatch.setattr(SimulatedGpu, "__init__", begin_with_uuid)
    said = command(capsys, "doctor", "-d", "sim:h100", "--bundle", "gpu.zip")
    assert said.code == 0, said.err
    assert "saved gpu.zip" in said.err
    text = zipfile.ZipFile("gpu.zip").read("run.json").decode()
    names = "secret", "GPU-4f5e6a7b", getpass.getuser(), str(workspace), platform.node()
    assert not [name for name in names if re.search(rf"\b{re.escape(name)}", text)]
    sent = jt.load("gpu.zip")
    assert {sent.devices[0].id, *sent.samples["device"].to_pylist()} == {"gpu0"}
    pulses = [row for row in sent.spans.to_pylist() if row["name"] == "pulse"]
    assert sum(row["end_ns"] - row["start_ns"] for row in pulses) > 8e9
    (there,) = sent.settings["doctor"]["devices"]
    assert there["processes"] == 1
    assert {"power_w", "power_instant_w", "energy_counter_j"} <= {channel.name for channel in sent.channels}
    fitted = calibration_of(sent, sent.devices[0].id)["channels"]["power_w"]
    assert fitted["period_s"] == pytest.approx(0.02, rel=0.02)


def test_a_bundle_is_one_new_file(workspace, capsys):
    (workspace / "there.zip").touch()
    refused = {"there.zip": "File exists", "folder": "ends in .zip", "there.zip/x.zip": "bundle there.zip/x.zip: Not a"}
    for place, says in refused.items():
        said = command(capsys, "doctor", "-d", "sim:h100", "--bundle", place)
        assert said.code == 2
        assert says in said.complaint
