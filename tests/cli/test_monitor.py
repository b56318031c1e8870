"""``jouletrace monitor``: the live table, the stream, commands, and how it ends."""

import csv
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys

import pytest
from jsonschema import Draft202012Validator

from commands import PATIENCE_S, children_of, command, only_run, start, wait_for
from jouletrace import load
from jouletrace.cli.monitor import CsvStream, _plain_line
from jouletrace.profiler.monitoring import Reading
from jouletrace.report import json_schema
from jouletrace.run import DeviceInfo
from shown import name_of, rows

VIRTUAL = "sim:h100?load=1:120,1:600"
REAL = "sim:h100?realtime=1&load=0.4:120,0.4:600"
HEADINGS = ["time", "device", "power_W", "util_%", "SM_clock_MHz", "mem_clock_MHz", "temp_°C", "memory_GiB"]


@pytest.fixture(autouse=True)
def place(workspace):
    return workspace


def lines(text):
    return list(csv.reader(io.StringIO(text)))


@pytest.mark.thorough
def test_the_summary_has_levels_difference_and_energy(capsys, place):
    said = command(capsys, "monitor", "-d", VIRTUAL, "--duration", "6.5", "-v")
    assert said.code == 0
    levels = ("Power, idle level", "Power, working level", "Power, difference")
    for label in (*levels, "Power, mean", "Energy, total", "Time"):
        assert label in said.out.replace("\xa0", " ")
    assert "SIMULATED" in said.out
    assert len([line for line in said.err.splitlines() if " W  " in line]) == 7
    assert said.err.splitlines()[-1].startswith("saved runs/")
    assert load(only_run(place)).result("power_difference_w", 1).value == pytest.approx(480, rel=0.05)


@pytest.mark.thorough
def test_several_devices_have_a_row_each(capsys):
    arguments = ("-d", "sim:h100?realtime=1", "-d", "sim:a100?realtime=1", "--duration", "2.5", "--json")
    said = command(capsys, "monitor", *arguments)
    found = json.loads(said.out)
    assert [name_of(row) for row in rows(found, "whole", "device")] == ["SIMULATED H100 80GB", "SIMULATED A100 80GB"]
    assert all(row["energy_j"]["value"] > 0 for row in rows(found, "whole", "device"))
    Draft202012Validator(json.loads(json_schema())).validate(found)


@pytest.mark.thorough
def test_the_stream_is_csv_and_nothing_else(capsys):
    said = command(capsys, "monitor", "-d", VIRTUAL, "--duration", "12", "--interval", "0.5", "--format", "csv")
    rows = lines(said.out)
    assert rows[0] == HEADINGS
    assert len(rows) >= 11
    assert all(len(row) == len(HEADINGS) for row in rows)
    assert {row[1] for row in rows[1:]} == {"SIM-h100-80-0"}
    powers = [float(row[2]) for row in rows[1:]]
    assert min(powers) < 150
    assert max(powers) > 550
    assert [row[0] for row in rows[1:]] == sorted(row[0] for row in rows[1:])
    assert "idle" in said.err, "the summary goes to the person at the terminal"


@pytest.mark.thorough
def test_a_command_is_run_and_its_exit_code_passed_on(capfd, place):
    body = "print('from the command'); raise SystemExit(7)"
    said = command(capfd, "monitor", "-d", REAL, "--", sys.executable, "-c", body)
    assert said.code == 7
    assert "from the command" in said.out
    assert load(only_run(place)).workload["name"].startswith(sys.executable)


def test_the_stream_has_each_reading_once_however_fast_it_ticks(capsys):
    found = [Reading(name, name, DeviceInfo(name, name), 10**18, {"power_w": 300.0}) for name in ("GPU-1", "GPU-2")]
    stream = CsvStream()
    for later_ns in (0, 0, 10**8, 0):
        found[0].time_ns += later_ns
        stream.show(found, None)
    rows = lines(capsys.readouterr().out)[1:]
    assert [row[1] for row in rows] == ["GPU-1", "GPU-2", "GPU-1"]


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_command_prints_beside_what_programs_read(capfd, form):
    body = "print('from the command')"
    said = command(capfd, "monitor", "-d", REAL, "-f", form, "--", sys.executable, "-c", body)
    assert "from the command" in said.err
    assert {len(row) for row in lines(said.out)} == {len(HEADINGS)} if form == "csv" else json.loads(said.out)


@pytest.mark.thorough
def test_beside_a_command_a_line_of_readings_goes_to_a_terminal_alone(capfd, monkeypatch):
    arguments = ("monitor", "-d", REAL, "--interval", "0.2", "--", sys.executable, "-c", "import time; time.sleep(0.7)")
    line = r"H100.*  \d+\.\d W  util \d+ %"
    assert not re.search(line, command(capfd, *arguments).err)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert re.search(line, command(capfd, *arguments).err)


@pytest.mark.thorough
def test_options_of_the_command_are_its_own(capfd):
    said = command(capfd, "monitor", "-d", REAL, sys.executable, "-c", "import sys; print(sys.argv[1:])", "--json")
    assert "['--json']" in said.out


def test_a_command_that_is_not_there_leaves_nothing(capsys, place):
    assert command(capsys, "monitor", "-d", REAL, "--", "no-such-program").code == 2
    assert not (place / "runs").exists()


@pytest.mark.thorough
def test_ctrl_c_ends_it_normally(place):
    process = start("monitor", "-d", REAL, "--interval", "0.2", "-f", "csv", cwd=place)
    assert process.stdout.readline().startswith("time,device")
    for _ in range(4):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, err
    assert "Traceback" not in err
    run = load(only_run(place))
    assert run.complete
    assert run.result("energy_total_j", 1).value > 0


@pytest.mark.thorough
def test_sigint_ends_it_where_a_script_has_started_it_in_the_background(place):
    line = f"trap '' INT; exec {sys.executable} -m jouletrace monitor -d {REAL.replace('?', chr(92) + '?')} -f csv"
    process = subprocess.Popen(
        ["sh", "-c", line.replace("&", chr(92) + "&")],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline().startswith("time,device")
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert load(only_run(place)).complete


@pytest.mark.thorough
def test_sigterm_ends_it_normally_too(place):
    process = start("monitor", "-d", REAL, "--interval", "0.2", "-f", "csv", cwd=place)
    for _ in range(5):
        process.stdout.readline()
    process.terminate()
    err = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, err
    assert f"saved runs/{only_run(place).name}" in err
    assert load(only_run(place)).complete


@pytest.mark.thorough
def test_sigterm_is_handed_on_to_the_command(place):
    """Unlike Ctrl-C at a terminal, it reaches no other process by itself."""
    body = "import time; print('ready', flush=True); time.sleep(60)"
    process = start("monitor", "-d", REAL, "--", sys.executable, "-c", body, cwd=place)
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert load(only_run(place)).complete


@pytest.mark.thorough
def test_ctrl_c_with_a_command_waits_for_its_end(place):
    """At a terminal both get it; the command says how it ended."""
    body = (  # it ends at once, as without a terminal the signal comes from us, too
        "import os, signal, time; signal.signal(signal.SIGINT, lambda *_: os._exit(5)); "
        "print('ready', flush=True); time.sleep(60)"
    )
    arguments = ("monitor", "-d", REAL, "--", sys.executable, "-c", body)
    process = start(*arguments, cwd=place, start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 5, err
    assert load(only_run(place)).complete


def plain(drawn):
    """Without what moves the cursor or colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)


def on_a_terminal(arguments, cwd, awaited, times):
    """The lines that a command draws on a terminal of 100 columns, interrupted once it has said something so often."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    process = start(*arguments, cwd=cwd, stdout=slave, stderr=slave, stdin=slave, env=environment)
    os.close(slave)
    drawn, asked = b"", False
    while True:
        ready, _, _ = select.select([master], [], [], 0.1)
        if ready:
            try:
                drawn += os.read(master, 65536)
            except OSError:
                break  # the other end is closed
        if not asked and plain(drawn.decode(errors="replace")).count(awaited) >= times:
            process.send_signal(signal.SIGINT)
            asked = True
    os.close(master)
    return process.wait(timeout=PATIENCE_S), drawn.decode(errors="replace")


@pytest.mark.thorough
def test_on_a_terminal_a_table_is_redrawn(place):
    hint = "Ctrl-C ends and prints the summary"
    code, drawn = on_a_terminal(("monitor", "-d", REAL, "--interval", "0.2"), place, hint, 3)
    assert code == 0
    assert plain(drawn).count(hint) >= 3
    for heading in ("power", "util", "SM clock", "mem clock", "temp", "memory", "°C"):
        assert heading in plain(drawn)
    assert "\x1b[?25h" in drawn, "the cursor is given back"
    assert "on average" in plain(drawn)
    assert "saved runs/" in plain(drawn)


def test_lines_for_a_log_keep_to_the_width_and_figures_whole():
    values = {"power_w": 700.2, "utilization_gpu_pct": 100.0, "clock_sm_mhz": 1980.0, "clock_memory_mhz": 2619.0}
    values |= {"temperature_c": 65.0, "memory_used_bytes": 79.1 * 2**30}
    name = "NVIDIA RTX 6000 Ada Generation"
    reading = Reading("GPU-1", name, DeviceInfo("GPU-1", name), 1, values)
    for width in (40, 80, 200, 0):
        text = _plain_line(reading, width)
        assert max(map(len, text.splitlines())) <= (width or len(text))
        assert len(text.splitlines()) == {40: 3, 80: 2, 200: 1, 0: 1}[width]
        for figure in (name, "700.2 W", "util 100 %", "SM 1980 MHz", "mem 2619 MHz", "65 °C", "79.10 GiB"):
            assert figure in text


@pytest.mark.thorough
def test_a_killed_recorder_ends_it_loudly(place):
    process = start("monitor", "-d", REAL, "--interval", "0.2", "-f", "csv", cwd=place)
    for _ in range(6):
        process.stdout.readline()
    (recorder,) = children_of(process.pid)
    os.kill(recorder, signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3
    complaint = [line for line in err.splitlines() if line.startswith("jouletrace: ")]
    assert len(complaint) == 1
    assert "killed by signal 9" in complaint[0]
    assert "Traceback" not in err
    run = load(only_run(place))
    assert not run.complete
    assert len(run.samples) > 0


@pytest.mark.thorough
def test_a_killed_monitor_leaves_what_it_saw(place, capsys):
    process = start("monitor", "-d", REAL, "--interval", "0.2", "-f", "csv", cwd=place)
    for _ in range(8):
        process.stdout.readline()
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    wait_for(lambda: len(load(only_run(place)).samples) > 40)
    said = command(capsys, "show", str(only_run(place)))
    assert said.code == 0
    assert "the recording was cut off" in said.out
    assert "on average" in said.out
