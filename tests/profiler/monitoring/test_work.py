"""A monitor that counts real work beside the power: servers, lines of commands, processes, and what it costs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest

from commands import FOREVER_S, PATIENCE_S, command, gone, only_run, wait_for
from jouletrace.analysis import analyse
from jouletrace.devices.clock import RealClock
from jouletrace.errors import BadInputError
from jouletrace.profiler.monitoring.line_search import Found, Searcher
from jouletrace.profiler.monitoring.monitor import monitor
from jouletrace.profiler.monitoring.watch import LiveWork
from jouletrace.profiler.monitoring.work_counter_http import PrometheusCounter, Target
from jouletrace.profiler.monitoring.work_counter_output import OutputCounter
from jouletrace.run import load
from jouletrace.simulator.boards import open_simulated
from metric_server import Page, counter_page, serving
from places import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "served_model.py"
REAL = "sim:h100?realtime=1&load=0.5:300"


# --- a monitor that counts -------------------------------------------------------------------------


class Seen:
    """A display that keeps what it is shown, and what ``look`` says then."""

    def __init__(self, look):
        self.works: list[LiveWork] = []
        self.looks: list[object] = []
        self.energies: list[float | None] = []
        self.look = look

    def show(self, readings, work):
        self.works.append(work)
        self.looks.append(self.look())
        self.energies.append(readings[0].energy_j)


def watched(counter, look=lambda: None, **options):
    device = open_simulated(REAL)
    seen = Seen(look)
    facts = {"interval_s": 0.2, "duration_s": 2.2, **options}
    run, _ = monitor([device], counter=counter, displays=[seen], **facts)
    return run, seen


@pytest.mark.thorough
def test_a_running_server_has_its_joules_per_token_live_and_in_the_run(tmp_path):
    began = time.monotonic()
    with serving(Page(lambda: counter_page(round(1e5 + 1000 * (time.monotonic() - began))))) as page:
        counter = PrometheusCounter(Target.parse(f"{page.url}#tokens_total"), 0.2)
        run, seen = watched(counter, folder=tmp_path / "run")
    # At which moment within its answer the server had its value no one knows.
    each, rate = run.result("energy_per_work_j"), run.result("work_per_s")
    assert each.value == pytest.approx(0.3, rel=0.2)
    assert rate.value == pytest.approx(1000, rel=0.2)
    live = [work.j_each for work in seen.works if work.j_each is not None]
    assert np.median(live) == pytest.approx(0.3, rel=0.3)
    assert seen.works[-1].j_each_mean == pytest.approx(0.3, rel=0.3)
    assert seen.energies[-1] == pytest.approx(300 * run.result("time_s", 1).value, rel=0.2)
    assert [w.code for w in run.warnings] == []
    saved = load(tmp_path / "run")
    assert saved.samples.equals(run.samples)
    assert analyse(saved).results.equals(run.results), "the figures come from what is stored alone"


@pytest.mark.thorough
def test_a_url_that_is_down_keeps_measuring_and_says_so():
    run, seen = watched(PrometheusCounter(Target.parse("http://127.0.0.1:9/#tokens_total"), 0.2), duration_s=0.8)
    assert run.result("energy_per_work_j").reason == "work_never_read"
    assert "work_never_read" in [w.code for w in run.warnings]
    assert run.result("energy_total_j", 1).value > 0
    assert "can't be reached" in seen.works[-1].problem


@pytest.mark.thorough
def test_a_slow_server_delays_neither_ticks_nor_samples():
    page = Page()

    def never_again():
        page.wait_s = FOREVER_S  # from now on
        return counter_page(1)

    page.text = never_again
    with serving(page):
        counter = PrometheusCounter(Target.parse(f"{page.url}#tokens_total"), 0.2, timeout_s=0.5)
        run, seen = watched(counter, duration_s=1.6, look=lambda: page.asked)
    assert page.asked > 2, "a reading is given up after half a second"
    assert max(Counter(seen.looks).values()) >= 2, "ticks go on while an answer is waited for"
    assert not [w for w in run.warnings if w.code.startswith("record")]
    assert "did not answer" in next(w.message for w in run.warnings if w.code == "work_not_read")


LINES = (
    "import time\nfor i in range(10):\n    print('step', i, '2.5 tok', flush=True); time.sleep(0.1)\nprint('\\xe9nd')"
)


@pytest.mark.thorough
@pytest.mark.parametrize(("pattern", "done"), [("^step", 10.0), (r"([\d.]+) tok", 25.0)])
def test_lines_of_a_command_are_counted_and_passed_on_unchanged(capfd, pattern, done):
    run, _ = watched(OutputCounter(pattern), command=[sys.executable, "-X", "utf8", "-c", LINES], duration_s=None)
    out = capfd.readouterr().out
    assert out == "".join(f"step {i} 2.5 tok\n" for i in range(10)) + "énd\n"
    assert run.result("work_done").value == done
    seconds = done / run.result("work_per_s").value
    assert run.result("energy_per_work_j").value == pytest.approx(300 * seconds / done, rel=0.1)


def passed(data, pattern="x"):
    """What comes out of a counter that ``data`` went into, and the counter."""
    counter = OutputCounter(pattern)
    counter.start(RealClock())
    source, sink = os.pipe(), os.pipe()
    counter.watch(source[0], sink[1])
    for part in data:
        os.write(source[1], part)
    os.close(source[1])
    readings = counter.stop()
    os.close(sink[1])
    with os.fdopen(sink[0], "rb") as file:
        return file.read(), readings[-1].done if readings else None, counter


def test_output_is_passed_on_byte_by_byte_whatever_it_is():
    parts = [b"half x", b" line\r", b"\xff\x00x\r\n", b"no end x"]
    out, done, _ = passed(parts)
    assert out == b"".join(parts)
    assert done == 3.0


def test_what_is_captured_and_no_number_counts_nothing_and_is_reported():
    _, done, counter = passed([b"n=5\nn=-3\nn=many\nn=1,000\n"], r"n=(\S+)")
    assert done == 1005.0
    ((code, message),) = counter.warnings()
    assert code == "work_no_number"
    assert message.startswith("2 of 4")


@pytest.mark.parametrize(("pattern", "said"), [("(", "not a regular expression"), ("(a)(b)", "2 groups")])
def test_a_pattern_that_is_none_is_refused(pattern, said):
    with pytest.raises(BadInputError, match=said):
        OutputCounter(pattern)


@pytest.mark.thorough
def test_a_child_that_outlives_the_command_keeps_no_one_waiting(capfd, monkeypatch):
    monkeypatch.setattr("jouletrace.profiler.monitoring.work_counter_output._JOIN_S", 0.2)
    sleeps = f"import time; time.sleep({FOREVER_S})"
    body = f"import subprocess, sys; print('x', subprocess.Popen([sys.executable, '-c', {sleeps!r}]).pid)"
    run, _ = watched(OutputCounter("x"), command=[sys.executable, "-c", body], duration_s=None)
    os.kill(int(capfd.readouterr().out.split()[1]), signal.SIGKILL)
    assert run.result("work_done").value in (1.0, None)


@pytest.mark.thorough
def test_a_process_is_followed_to_its_end():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.8)"])
    began = time.monotonic()
    run, _ = watched(None, pid=process.pid, duration_s=None, interval_s=FOREVER_S)
    watched_s = time.monotonic() - began  # its end is noticed, not looked for at every tick
    assert gone(process.pid), "and it is not waited for by its parent"
    process.wait()
    (span,) = [row for row in run.spans.to_pylist() if row["kind"] == "range"]
    assert str(process.pid) in span["name"]
    assert (span["end_ns"] - span["start_ns"]) / 1e9 < watched_s


@pytest.mark.thorough
def test_a_followed_process_goes_on_after_the_monitor():
    process = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({FOREVER_S})"])
    try:
        watched(None, pid=process.pid, duration_s=0.4)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_not_there_is_refused():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    for pid in (process.pid, 0, -1, 10**12):
        with pytest.raises(BadInputError, match="no such process"):
            watched(None, pid=pid)
    # One that has ended and waits for its parent has ended.
    process = subprocess.Popen([sys.executable, "-c", ""])
    wait_for(lambda: gone(process.pid))
    with pytest.raises(BadInputError, match="has ended"):
        watched(None, pid=process.pid)
    process.wait()


def test_a_monitor_does_not_wait_for_its_own_end():
    with pytest.raises(BadInputError, match=f"--pid {os.getpid()}: this is the monitor itself"):
        watched(None, pid=os.getpid(), duration_s=None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"counter": OutputCounter("x")}, "give the command after --"),
        ({"pid": 1, "command": ["true"]}, "give only one of them"),
    ],
)
def test_what_does_not_go_together_is_refused(options, said):
    with pytest.raises(BadInputError, match=said):
        watched(options.pop("counter", None), **options)


def test_virtual_time_and_a_real_counter_do_not_go_together():
    counter = PrometheusCounter(Target.parse("http://127.0.0.1:9/#x"))
    with pytest.raises(BadInputError, match="a counter takes real time"):
        monitor([open_simulated("sim:h100")], duration_s=1.0, counter=counter)


# --- the command line, with the example ------------------------------------------------------------


@pytest.mark.thorough
def test_the_example_is_measured_from_the_command_line(capsys, workspace):
    arguments = [sys.executable, str(EXAMPLE), "--port", "0", "--requests-per-s", "50", "--seconds", str(PATIENCE_S)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as served:
        try:
            target = served.stdout.readline().strip() + '{kind="generation"}'
            options = ("-d", REAL, "--duration", "2.2", "--interval", "0.5", "--price", "0.3", "--carbon", "380")
            said = command(capsys, "monitor", "--per", target, *options)
        finally:
            served.kill()
    assert said.code == 0, said.err
    for words in ("SIMULATED", "Energy per unit of work", "Cost", "CO2", "0.0 to"):
        assert words in said.out
    assert "served_tokens_total: " in said.err
    assert " J each" in said.err
    run = load(only_run(workspace))
    assert run.result("energy_per_work_j").value > 0
    assert run.workload["work"] == "served_tokens_total"


@pytest.mark.thorough
def test_the_stream_has_columns_for_the_work(capfd, workspace):
    options = ("-d", REAL, "--interval", "0.3", "-f", "csv", "--per-command", "^step")
    said = command(capfd, "monitor", *options, "--", sys.executable, "-c", LINES.splitlines()[0] + "\ntime.sleep(1)")
    rows = [line.split(",") for line in said.out.splitlines()]
    assert rows[0][-2:] == ["work", "J_per_work"]
    assert rows[-1][-2:] == ["0", "-"]


@pytest.mark.thorough
def test_work_that_never_came_is_null_in_the_json_object(capfd, workspace):
    options = ("-d", REAL, "--json", "--per-command", "^never")
    said = command(capfd, "monitor", *options, "--", sys.executable, "-c", LINES)
    found = json.loads(said.out[said.out.index("{") :])
    assert found["model"]["other"]["work_done"]["value"] == 0
    assert found["model"]["other"]["energy_per_work_j"]["reason"] == "no_work_counted"
    assert [warning["code"] for warning in found["warnings"]] == ["work_never_counted"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--per", "http://h/"), "write URL#metric"),
        (("--per", "http://h/#m", "--per-command", "x"), "give only one of them"),
        (("--price", "-1"), "--price -1: must be 0 or more"),
        (("--carbon", "nan"), "--carbon nan: must be 0 or more"),
        (("--per-command", "x"), "give the command after --"),
    ],
)
def test_wrong_options_are_refused_in_one_line(capsys, workspace, options, said):
    found = command(capsys, "monitor", "-d", REAL, *options)
    assert found.code == 2
    assert said in found.complaint


# --- searching the output ---------------------------------------------------------------------------

SLOW = "(?:a+)+$"
ENDLESS = b"a" * 60 + b"b\n"


def test_a_pattern_that_never_ends_leaves_the_output_flowing_and_says_that_counting_ended(monkeypatch):
    monkeypatch.setattr("jouletrace.profiler.monitoring.work_counter_output.LIMIT_S", 0.3)
    out, done, counter = passed([b"aaa\n", ENDLESS, b"aaa\n"] + [b"x" * 1000 + b"\n"] * 20, SLOW)
    assert out == b"aaa\n" + ENDLESS + b"aaa\n" + (b"x" * 1000 + b"\n") * 20
    assert done is None, "what could not be searched is not counted as nothing"
    ((code, message),) = counter.warnings()
    assert code == "work_search_ended"
    assert message.startswith(f"the search for {SLOW!r} took more than 0.3 s")
    assert "until then" in message


@pytest.mark.thorough
def test_work_before_a_search_that_never_ends_keeps_its_figures(capfd, monkeypatch):
    monkeypatch.setattr("jouletrace.profiler.monitoring.work_counter_output.LIMIT_S", 0.5)
    body = f"""
import time
for i in range(10):
    print("aaa", flush=True); time.sleep(0.1)
time.sleep(0.3); print({ENDLESS.decode().strip()!r}, flush=True); time.sleep(0.6)
for i in range(50):
    print("aaa", flush=True)
"""
    run, _ = watched(OutputCounter(SLOW), command=[sys.executable, "-c", body], duration_s=None, interval_s=0.1)
    assert capfd.readouterr().out.count("aaa\n") == 60
    assert run.result("work_done").value == 10.0
    assert [w.code for w in run.warnings if w.code.startswith("work")] == ["work_search_ended"]


def test_the_process_that_searches_is_gone_when_counting_is_over():
    counter = OutputCounter("x")
    counter.start(RealClock())
    pid = counter._searcher._child.pid
    counter.stop()
    counter.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_search_whose_process_is_killed_is_reported_to_have_broken_off():
    searcher = Searcher("x")
    assert searcher.search(["x", "y", "xx"]) == Found(matched=2, done=2.0)
    os.kill(searcher._child.pid, signal.SIGKILL)
    assert searcher.search(["x"]) is None
    assert searcher.behind
    assert "killed by signal 9" in searcher.gave_up
    searcher.close()
