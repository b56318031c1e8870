"""Failures of ``convert`` and ``trace``: one line, and what there was until then is kept."""

import pytest

from commands import command
from jouletrace import load
from stand_ins import install, limit_once_it_hangs
from wanders import WANDERS

pytestmark = pytest.mark.usefixtures("short_passes")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--seed", "-1", "must lie between 0"), ("--time-limit", "nan", "must be more than 0 s")],
)
def test_what_is_wrong_is_reported_in_one_line(capsys, option, value, said):
    found = command(capsys, "convert", "gemm", "--to", "onnx", option, value)
    assert found.code == 2
    assert f"{option} {value}: {said}" in found.complaint


@pytest.mark.parametrize("to", ["onnx", "tensorrt", "openvino"])
@pytest.mark.parametrize("place", ["nowhere/x", "/proc/x", "taken/x"])
def test_a_model_that_cannot_be_written_gets_one_line(capsys, workspace, monkeypatch, to, place):
    install(workspace, monkeypatch, "trtexec", "sys.exit(1)")
    (workspace / "taken").write_text("text")
    (workspace / "model.onnx").write_bytes(b"not empty")
    ending = {"onnx": ".onnx", "tensorrt": ".engine", "openvino": ".xml"}[to]
    model = "model.onnx" if to == "tensorrt" else "gemm"
    said = command(capsys, "convert", model, "--to", to, "-o", place + ending)
    assert said.code == 2
    assert f"cannot write {place}{ending}: " in said.err.splitlines()[-1]
    assert "Traceback" not in said.err


@pytest.mark.thorough
def test_a_trtexec_that_is_ended_leaves_no_half_an_engine(capsys, workspace, monkeypatch):
    body = """
if "--help" in arguments:
    sys.exit(0)
for argument in arguments:
    if argument.startswith("--saveEngine="):
        open(argument.partition("=")[2], "w").write("half")
hang()
"""
    install(workspace, monkeypatch, "trtexec", body)
    (workspace / "model.onnx").write_bytes(b"not empty")
    limit_once_it_hangs(monkeypatch, workspace)
    said = command(capsys, "convert", "model.onnx", "--to", "tensorrt", "-o", "new.engine", "--time-limit", "0.5")
    assert said.code == 3
    assert "did not end within 0.5 s" in said.err
    assert not (workspace / "new.engine").exists()


@pytest.mark.thorough
def test_what_a_tool_had_written_when_its_time_was_over_is_kept(capsys, workspace, monkeypatch):
    body = """
out = next(argument.partition("=")[2] for argument in arguments if argument.startswith("--output="))
open(out + ".nsys-rep", "w").write("report")
print("\\x1b[2Jtracing\\x00 failed", flush=True)
hang()
"""
    install(workspace, monkeypatch, "nsys", body)
    limit_once_it_hangs(monkeypatch, workspace)
    said = command(capsys, "trace", "--with", "nsys", "-d", "cpu", "--time-limit", "0.5", "-o", "t", "--", "true")
    assert said.code == 3
    assert "the data recorded so far is in t" in said.err
    assert (workspace / "t" / "nsys.nsys-rep").read_text() == "report"
    assert not load("t").complete
    assert "\x1b" not in said.err, "what a tool prints can't steer the terminal"
    assert "tracing  failed" in said.err or "tracing failed" in said.err


@pytest.mark.thorough
@pytest.mark.usefixtures("torchlib_once")
def test_convert_of_a_workload_that_changes_the_folder(workspace, capsys):
    pytest.importorskip("onnxscript")
    (workspace / "toy.py").write_text(WANDERS)
    said = command(capsys, "convert", "toy.py:wanders", "--to", "onnx", "-o", "model.onnx")
    assert said.code == 0, said.err
    assert (workspace / "model.onnx").is_file()
    assert list((workspace / "elsewhere").iterdir()) == []
