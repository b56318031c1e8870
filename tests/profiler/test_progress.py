"""Progress from Python and where there is no terminal: the device first, then a line per phase that takes a while."""

import time
from types import SimpleNamespace

import pytest

import commands
import jouletrace as jt
from jouletrace.cli.progress import ProgressLine
from jouletrace.profiler import Progress
from jouletrace.profiler import progress as module
from jouletrace.profiler.progress import Lines, reported, start

PROFILE = {"device": "sim:h100", "max_time": 2, "latency_s": 0.1, "warmup": 2.6}


@pytest.fixture(autouse=True)
def switched_on(monkeypatch):
    monkeypatch.delenv("JOULETRACE_PROGRESS")


def appeared(capsys, count):
    """The lines on stderr, once there are so many."""
    text = ""
    while text.count("\n") < count:
        text += capsys.readouterr().err
        time.sleep(0.01)
    return text.splitlines()


def test_a_line_per_phase_that_takes_a_while(capsys, monkeypatch):
    monkeypatch.setattr(module, "AFTER_S", 0.01)
    lines = Lines()
    lines.start("NVIDIA H100 (cuda:0)")
    lines.begin("warm-up", 5.0, at_most=True)
    assert appeared(capsys, 2) == ["jouletrace: NVIDIA H100 (cuda:0)", "jouletrace: warm-up, up to 5 s"]
    lines.expect(14.2)
    lines.begin("idle", 2.0)
    assert appeared(capsys, 1) == ["jouletrace: idle, 2 s, 14 s left in all"]
    lines.advance(2.0)
    lines.begin("energy", 9.0)
    assert appeared(capsys, 1) == ["jouletrace: energy, 9 s, 12 s left in all"]
    lines.stop()


def test_a_short_phase_prints_nothing(capsys, monkeypatch):
    timers = []
    monkeypatch.setattr(
        module.threading,
        "Timer",
        lambda seconds, *rest: timers.append(seconds) or SimpleNamespace(start=lambda: None, cancel=timers.clear),
    )
    lines = Lines()
    lines.begin("idle", 2.0)
    assert timers == [0.5]
    lines.stop()
    assert not timers
    assert capsys.readouterr().err == ""


def test_simulated_seconds_are_not_stated(capsys, monkeypatch):
    monkeypatch.setattr(module, "AFTER_S", 0.01)
    lines = Lines()
    lines.start("SIMULATED H100 80GB (sim:h100)", timed=False)
    lines.begin("energy", 9.0)
    assert appeared(capsys, 2)[1] == "jouletrace: energy"
    lines.stop()


@pytest.mark.parametrize(
    ("asked", "details", "expected"),
    [
        ("auto", {}, "NVIDIA H100 (cuda:0, the first GPU here)"),
        ("cuda:1", {}, "NVIDIA H100 (cuda:1)"),
        ("auto", {"no_gpu": "no driver", "no_power": "no_rapl"}, "no GPU here: time on the CPU only"),
        ("auto", {"no_gpu": "no driver"}, "no GPU here: time and power of the CPU"),
    ],
)
def test_the_device_and_why(asked, details, expected):
    said = []
    device = SimpleNamespace(
        info=SimpleNamespace(name="NVIDIA H100", details=details), clock=SimpleNamespace(virtual=False)
    )
    start(SimpleNamespace(start=lambda text, timed: said.append((text, timed))), device, asked)
    assert said == [(expected, True)]


@pytest.mark.thorough
def test_profile_from_python_says_what_it_does(capsys, monkeypatch):
    monkeypatch.setattr(module, "AFTER_S", 0.0)
    jt.profile("deit-tiny", progress=True, **PROFILE)
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert lines[0] == "jouletrace: SIMULATED H100 80GB (sim:h100)"
    assert "jouletrace: building the workload" in lines
    assert all(line.startswith("jouletrace: ") for line in lines)


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["argument", "environment"])
def test_progress_can_be_switched_off(how, capsys, monkeypatch):
    if how == "environment":
        monkeypatch.setenv("JOULETRACE_PROGRESS", "0")
    jt.profile("deit-tiny", progress=how == "environment", **PROFILE)
    assert capsys.readouterr().err == ""
    with reported(how == "environment") as receiver:
        assert type(receiver) is Progress


def test_a_command_without_a_terminal_prints_lines(capsys, monkeypatch):
    with ProgressLine() as progress:
        progress.start("NVIDIA H100\x1b[31m (cuda:0)")
        progress.begin("warm-up", 5.0)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "jouletrace: NVIDIA H100\\x1b[31m (cuda:0)\n"
    monkeypatch.setenv("JOULETRACE_PROGRESS", "0")
    with ProgressLine() as progress:
        progress.start("NVIDIA H100")
    assert capsys.readouterr().err == ""


@pytest.mark.thorough
def test_stdout_of_a_command_carries_the_result_alone(tmp_path):
    command = ("profile", "gemm", "-d", "sim:h100", "--max-time", "1", "--json")
    out, err = commands.start(*command, cwd=tmp_path, torch=True).communicate()
    assert out.startswith("{")
    assert err.startswith("jouletrace: SIMULATED H100 80GB (sim:h100)\n")
