"""Ctrl-C, SIGKILL and a dead recorder in the middle of a profile: what was recorded is kept, and can be shown."""

import os
import signal

import pytest

from commands import PATIENCE_S, TOY, children_of, command, gone, only_run, start, wait_for
from jouletrace import load
from jouletrace.run import read_spool

pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def place(workspace):
    (workspace / "toy.py").write_text(TOY)
    return workspace


def begun(place):
    """True if a Run is on disk, its file written to the end: until then an interrupt takes it back."""
    runs = place / "runs"
    return runs.exists() and any(runs.glob("*/run.json")) and not any(runs.glob("*/.run.json.*.part-*"))


def seen(place, table, what):
    """True if a spooled table of the Run holds a value."""
    if not begun(place):
        return False
    rows = read_spool(only_run(place) / "spool", table)
    return what in rows["name" if table == "spans" else "variant"].to_pylist()


def warm(place):
    """True if the warm-up is over, and written down."""
    return begun(place) and '"warm_up"' in (only_run(place) / "run.json").read_text()


def with_counters(place):
    """The environment of processes whose CPU has an energy counter: without one there is nothing to record."""
    zone = place / "sys" / "class" / "powercap" / "intel-rapl:0"
    zone.mkdir(parents=True)
    for name, content in (("name", "package-0"), ("energy_uj", "5"), ("max_energy_range_uj", "1000000")):
        (zone / name).write_text(content)
    return {**os.environ, "JOULETRACE_SYSFS": str(place / "sys")}


def profile_until(place, condition, *arguments, **options):
    """A profile that has come so far."""
    process = start("profile", "toy.py:slow", *arguments, cwd=place, **options)
    wait_for(lambda: condition() or process.poll() is not None)
    assert process.poll() is None, process.communicate()[1]
    return process


def interrupted(process, printed=""):
    """Send Ctrl-C; the lines on stderr."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert printed in out if printed else out == "", out + err
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "jouletrace: interrupted"
    return err


def check_kept(place, capsys):
    """The Run is there, marked, and can be shown; returns it."""
    run = load(only_run(place))
    assert not run.complete
    said = command(capsys, "show", str(only_run(place)))
    assert said.code == 0
    assert "ended early" in said.out or "cut off" in said.out
    return run


@pytest.mark.thorough
def test_ctrl_c_before_anything_is_measured(place):
    """A command ends at any moment without a traceback of ours, and its folder is a Run."""
    process = profile_until(place, lambda: begun(place), "-d", "cpu")
    err = interrupted(process)
    assert f"the data recorded so far is in runs/{only_run(place).name}" in err
    assert not load(only_run(place)).complete


@pytest.mark.thorough
def test_ctrl_c_in_the_middle_of_a_pass(place, capsys):
    calls = place / "calls"  # about 30 in half a second, then 60 in the latency pass
    process = profile_until(place, lambda: calls.exists() and calls.stat().st_size > 45, "-d", "cpu", "--warmup", "0.5")
    interrupted(process)
    run = check_kept(place, capsys)
    assert [warning.code for warning in run.warnings][-1] == "interrupted"
    assert run.workload["items"] == 1
    names = run.spans["name"].to_pylist()
    assert {"warm-up", "latency"} <= set(names), "a phase that was cut short is marked too"


@pytest.mark.slow
def test_ctrl_c_reaches_the_runs_of_repeats(place, capsys):
    def first_is_done():
        folder = place / "out" / "repeats"
        return (folder / "1" / "results.parquet").exists() and (folder / "2" / "run.json").exists()

    arguments = ("-d", "cpu", "--repeats", "3", "--warmup", "0.2", "-o", "out")
    process = profile_until(place, first_is_done, *arguments)
    child = max(children_of(process.pid))
    err = interrupted(process, "trust: with care")
    assert "1 of 3 runs are measured; the same command with -o" in err
    assert gone(child)
    run = load(place / "out")
    assert not run.complete
    assert "of 3 runs were started" in " ".join(warning.message for warning in run.warnings)
    assert run.result("latency_s").value > 0.02
    assert command(capsys, "show", "out").code == 0


@pytest.mark.thorough
def test_a_killed_profile_leaves_a_run_that_can_be_shown(place, capsys):
    process = profile_until(place, lambda: warm(place), "-d", "cpu", "--warmup", "0.5")
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    run = check_kept(place, capsys)
    assert run.workload["items"] == 1
    assert run.workload["warm_up"]["iteration_s"] > 0.02


@pytest.mark.slow  # a monitor whose recorder is killed ends in the same way, in test_monitor
def test_a_killed_recorder_ends_the_profile_loudly(place, capsys):
    process = profile_until(
        place, lambda: seen(place, "spans", "warm-up"), "-d", "cpu", "--warmup", "0.5", env=with_counters(place)
    )
    (recorder,) = children_of(process.pid)
    os.kill(recorder, signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3, err
    assert out == ""
    assert "Traceback" not in err
    assert "the recorder ended before the recording did (killed by signal 9" in err.splitlines()[-1]
    run = load(only_run(place))
    assert not run.complete
    assert len(run.spans) > 0
    assert command(capsys, "show", str(only_run(place))).code == 0


SLOW_TYPER = """
import sys, time

class Slow:
    def find_spec(self, name, *_):
        if name == "typer":
            print("importing", flush=True)
            time.sleep(60)

sys.meta_path.insert(0, Slow())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_the_commands_are_imported_is_one_line(place, number):
    """A module that Python runs at its start says when the imports have come to typer."""
    (place / "sitecustomize.py").write_text(SLOW_TYPER)
    process = start("--help", cwd=place, preloaded=False, env={**os.environ, "PYTHONPATH": str(place)})
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (130, "jouletrace: interrupted\n")


@pytest.mark.slow  # as Ctrl-C above; SIGTERM itself is tested with a monitor, in test_monitor
def test_sigterm_ends_a_profile_as_ctrl_c_does(place, capsys):
    process = profile_until(place, lambda: seen(place, "spans", "warm-up"), "-d", "cpu", "--warmup", "0.5")
    process.terminate()
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert err.splitlines() == [
        f"the data recorded so far is in runs/{only_run(place).name}",
        "jouletrace: interrupted",
    ]
    check_kept(place, capsys)
