"""The host beside GPUs: RAPL counters and a power meter of a simulated sysfs, whose powers are the truth."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

import jouletrace as jt
from commands import command
from jouletrace.run.metrics import ENERGY_CPU, ENERGY_MEMORY, ENERGY_SERVER, GPUS_AND_HOST, PROGRAM_TIME
from sysfs import RANGE_UJ, TWO_SOCKETS, Sysfs, put

WHOLE = "load=1:300"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Starts a machine with these zones, by default of 100 W in packages and 20 W in memory; stops it at the end."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def started(zones=TWO_SOCKETS, **options):
            monkeypatch.setenv("JOULETRACE_SYSFS", str(tmp_path / "sys"))
            return stack.enter_context(Sysfs(tmp_path / "sys", zones, **options).running())

        yield started


def holds(run, metric, watts, seconds, machine, most=0.4):
    """True if an interval holds the truth, but for how late the counters were, and isn't empty words."""
    found, late_j = run.result(metric), watts * machine.pause_s
    assert found.reason is None, (metric, found.reason)
    assert found.low - late_j <= watts * seconds <= found.high + late_j, (metric, found, watts * seconds)
    return found.high - found.low <= most * found.value + 2 * late_j


def test_a_program_has_its_host_apart_and_in_one_sum(capsys, machine, tmp_path):
    zones = TWO_SOCKETS | {("intel-rapl:1", "package-1"): (40.0, RANGE_UJ - 120_000_000)}
    there = machine(zones)  # this counter comes to its end after three seconds, while the program runs
    said = command(capsys, "run", "-d", f"sim:h100?{WHOLE}", "-o", str(tmp_path / "run"), "--", "sleep", "4")
    assert said.code == 0, said.err
    run = jt.load(str(tmp_path / "run"))
    seconds = run.result(PROGRAM_TIME).value
    assert holds(run, ENERGY_CPU, 100, seconds, there)
    assert holds(run, ENERGY_MEMORY, 20, seconds, there)
    parts = [run.result(name).value for name in ("energy_total_j", ENERGY_CPU, ENERGY_MEMORY)]
    assert run.result(GPUS_AND_HOST).value == pytest.approx(sum(parts))
    assert run.result("energy_total_j").value < 310 * seconds
    shown = " ".join(command(capsys, "show", str(tmp_path / "run")).out.split())
    assert "(CPU packages by RAPL)" in shown
    assert "(memory by RAPL); " in shown
    assert " with the GPU " in shown
    assert "whole server" not in shown
    stated = json.loads(command(capsys, "show", str(tmp_path / "run"), "--json").out)
    assert stated["model"]["other"][ENERGY_CPU]["low"] == run.result(ENERGY_CPU).low
    assert [device["id"] for device in stated["devices"]] == [run.devices[0].id]
    assert {sensor["device"] for sensor in stated["sensors"]} > {run.devices[0].id}
    rows = command(capsys, "show", str(tmp_path / "run"), "--format", "csv").out
    assert f"{GPUS_AND_HOST}_low" in rows.splitlines()[0]


def test_several_gpus_have_one_host_and_the_power_meter_is_in_no_sum(capsys, machine, tmp_path):
    there = machine(meter=500.0, average_s=0.5)
    devices = ("-d", f"sim:h100?{WHOLE}", "-d", f"sim:a100?{WHOLE}")
    assert command(capsys, "monitor", *devices, "--duration", "3", "-o", str(tmp_path / "run")).code == 0
    run = jt.load(str(tmp_path / "run"))
    seconds = run.result("time_s").value
    assert holds(run, ENERGY_CPU, 100, seconds, there)
    assert holds(run, ENERGY_SERVER, 500, seconds, there, most=1.0)
    parts = [run.result(name).value for name in ("energy_total_j", ENERGY_CPU, ENERGY_MEMORY)]
    assert run.result(GPUS_AND_HOST).value == pytest.approx(sum(parts))
    shown = " ".join(command(capsys, "show", str(tmp_path / "run"), "-v").out.split())
    assert shown.count("CPU packages by RAPL") == 1
    assert " with the GPUs " in shown
    assert "whole server: " in shown
    assert "ACPI power meter, power1_average · every 500 ms" in shown
    assert "gain error ±5 % not in the intervals" in shown


def test_a_loop_has_its_host_from_its_start_on_though_the_recorder_starts_later(machine):
    there = machine()
    with jt.record("loop", device=f"sim:h100?{WHOLE}") as recording:
        time.sleep(2.5)
    run = recording.run
    assert holds(run, ENERGY_CPU, 100, run.result("time_s").value, there)
    assert "CPU packages by RAPL" in str(recording)


@pytest.mark.parametrize("change", ["removed", "unreadable"])
def test_packages_that_go_cost_the_host_its_energy_and_the_gpu_nothing(capsys, machine, tmp_path, change):
    there = machine()

    def later():
        time.sleep(1.5)
        if change == "removed":
            there.remove("intel-rapl:1")
        else:
            there.spoil("intel-rapl:0")
            there.spoil("intel-rapl:1")

    thread = threading.Thread(target=later)
    thread.start()
    said = command(capsys, "monitor", "-d", f"sim:h100?{WHOLE}", "--duration", "5", "-o", str(tmp_path / "run"))
    thread.join()
    assert said.code == 0, said.err
    run = jt.load(str(tmp_path / "run"))
    assert run.complete
    assert run.result("energy_total_j").value == pytest.approx(300 * run.result("time_s").value, rel=0.1)
    found = run.result(ENERGY_CPU)
    assert found.reason == "outside_record" or found.half_width > 0.3 * found.value
    assert (
        "host: energy unknown, the power record does not cover that time (CPU packages by RAPL)"
        in " ".join(said.out.split())
        or found.value
    )


def test_without_anything_to_read_nothing_is_stated_of_a_host(capsys, machine, tmp_path, monkeypatch):
    machine({})
    said = command(capsys, "monitor", "-d", "sim:h100", "--duration", "1", "-o", str(tmp_path / "run"))
    assert said.code == 0
    assert not any(word in said.out + said.err for word in ("host:", "RAPL", "server"))
    assert GPUS_AND_HOST not in set(jt.load(str(tmp_path / "run")).results["metric"].to_pylist())


def test_simulated_gpus_have_no_host_unless_one_is_named(capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("JOULETRACE_SYSFS", raising=False)
    assert (
        command(capsys, "monitor", "-d", "sim:h100?realtime=1", "--duration", "1", "-o", str(tmp_path / "run")).code
        == 0
    )
    assert {channel.device for channel in jt.load(str(tmp_path / "run")).channels} == {"SIM-h100-80-0"}


def test_counters_for_root_alone_are_named_once_by_doctor_and_nowhere_else(capsys, machine, tmp_path, monkeypatch):
    from jouletrace.devices import rapl

    machine()

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(rapl, "_read_int", refuse)
    doctor = " ".join(command(capsys, "doctor", "-d", "cpu").out.split())
    assert doctor.count("counters are for root only; run `sudo chmod") == 1
    assert "beside GPUs" not in doctor
    said = command(capsys, "monitor", "-d", "sim:h100", "--duration", "1", "-o", str(tmp_path / "run"))
    assert not any(word in said.out + said.err for word in ("host:", "RAPL", "sudo"))


def test_doctor_lists_what_stands_beside_gpus(capsys, machine):
    there = machine(meter=500.0)

    def doctor():
        return " ".join(command(capsys, "doctor", "-d", "cpu").out.split())

    assert "beside GPUs: counter of the host's memory, every 1 ms, RAPL energy_uj of dram + dram" in doctor()
    meter = "beside GPUs: the whole host, by its power meter, every 1 s, ACPI power meter, power1_average"
    assert f"{meter}: gain ±5 %, as it states" in doctor()
    (there.hwmon / "power1_accuracy").unlink()
    assert meter in doctor()
    assert "as it states" not in doctor()
    put(there.hwmon / "power1_average_interval", 0)  # of which time is it the mean?
    assert "power meter" not in doctor()
    put(there.hwmon / "power1_average_interval", 1000)
    put(there.hwmon.with_name("hwmon4") / "name", "power_meter")  # which of both is the whole machine's?
    assert "power meter" not in doctor()


def test_a_meter_slower_than_the_run_states_no_energy(capsys, machine, tmp_path):
    machine({}, meter=500.0, average_s=300.0)
    assert command(capsys, "monitor", "-d", "sim:h100", "--duration", "2", "-o", str(tmp_path / "run")).code == 0
    run = jt.load(str(tmp_path / "run"))
    assert run.result(ENERGY_SERVER).value is None
    assert "whole server: energy unknown, " in " ".join(str(run).split())


def test_ranks_of_one_host_state_it_once(machine, tmp_path):
    there = machine()
    program = (
        "import os, time, jouletrace as jt\n"
        "rank = int(os.environ['RANK'])\n"
        f"with jt.record('train', device=f'sim:h100?{WHOLE}&seed={{rank + 1}}', save_to='out') as recording:\n"
        "    time.sleep(3)\n"
    )
    env = {**os.environ, "WORLD_SIZE": "2", "PYTHONPATH": os.pathsep.join(sys.path)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program], cwd=tmp_path, env={**env, "RANK": str(n), "LOCAL_RANK": str(n)}
        )
        for n in range(2)
    ]
    assert [rank.wait(60) for rank in ranks] == [0, 0]
    run = jt.load(str(tmp_path / "out"))
    assert len(run.settings["ranks"]) == 2
    assert 250 < run.result(ENERGY_CPU).value < 600 + 100 * there.pause_s
