"""Power limits and clocks that are set for a time, on drivers that refuse, round, lag and forget."""

import itertools
import signal
import time

import pytest

from commands import PATIENCE_S, command, start, wait_for
from fake_nvml import FakeNvml, NVMLError, h100
from jouletrace.analysis.conditions import NOT_TAKEN, read_back
from jouletrace.devices import open_device
from jouletrace.devices.nvml import Nvml, NvmlGpu
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.processes import hold, journal_of
from jouletrace.profiler import GpuSettings, gpu_settings, restore
from jouletrace.run import load, save, tables
from make_runs import profile_run
from records import windows

SIM = "sim:h100"
BOTH = {"power_limit": [300.0], "clock": [1200.0]}
UNSET = (700.0, 345.0)


def state(device=SIM):
    """The power limit and the clock of an idle GPU."""
    gpu = open_device(device)
    return gpu.limit_w(), gpu.clock_mhz()


def save_run(folder, mhz):
    """A Run at a measured clock; the power cap is active at times."""
    run = profile_run()
    run.windows = tables.from_rows([{**one, "counted_mhz": mhz} for one in windows([(0, 1), (1, 2)])], "windows")
    return save(run, folder)


def recorded(folder, wanted, mhz, device=SIM):
    """Why settings weren't in force for a Run at a clock, and the Run."""
    with GpuSettings(device, {name: [value] for name, value in wanted.items()}) as settings, settings.changing():
        settings.set(wanted)
        why = settings.record(save_run(folder, mhz))
    found = load(folder)
    assert [one.message for one in found.warnings if one.code == NOT_TAKEN] == ([why] if why else [])
    return why, found


@pytest.mark.thorough
def test_values_are_set_read_back_and_restored(tmp_path):
    with GpuSettings(SIM, BOTH) as settings:
        with settings.changing():
            settings.set({"power_limit": 300.0, "clock": 1200.0})
            assert state() == (300.0, 1200.0)
            assert settings.record(save_run(tmp_path / "a", 1200.0)) == ""
            settings.set({"power_limit": 300.0, "clock": None})
            assert state() == (300.0, 345.0), "None is the state before"
        assert state() == UNSET
        assert not journal_of(open_device(SIM).info).exists()
    read = {"limit read (W)": 300.0, "clock read (MHz)": 1200.0, "SM clock (MHz)": 1200.0}
    assert read_back(load(tmp_path / "a")) == read


def test_a_clock_that_was_locked_before_is_locked_again():
    open_device(SIM).lock_clock(900.0)
    with GpuSettings(SIM, {"clock": [1200.0]}) as settings, settings.changing():
        assert state()[1] == 345.0, "released while it is observed"
        settings.set({"clock": 1200.0})
        assert state()[1] == 1200.0
        settings.set({"clock": None})
        assert state()[1] == 900.0
    assert state() == (700.0, 900.0)


@pytest.mark.parametrize(("left_mhz", "locked"), [(900.0, True), (345.0, False)])
def test_a_process_killed_while_it_observes_a_lock_loses_none(left_mhz, locked):
    """The journal states the clock; only a GPU that has left it had a lock."""
    gpu = open_device(SIM)
    with hold(gpu.info, "changing") as held:
        held.note("clock", {"before_mhz": left_mhz, "observed": False})
    assert restore(SIM) == []
    assert state()[1] == left_mhz
    gpu.lock_clock(1500.0)
    assert state()[1] == 1500.0
    gpu.lock_clock(None)
    assert state()[1] == 345.0
    assert not journal_of(gpu.info).exists()


def test_clocks_are_rounded_to_those_supported_with_a_note():
    with GpuSettings(SIM, {"power_limit": [300, 400.5], "clock": [1000, 1200]}) as settings:
        assert settings.plan() == [
            "sets the power limit of SIMULATED H100 80GB (SIM-h100-80-0) to 300, 400.5 W; now 700 W",
            "sets the SM clock of SIMULATED H100 80GB (SIM-h100-80-0) to 1005 (for 1000), 1200 MHz; now 345 MHz",
        ]
        with pytest.raises(BadInputError, match=r"300, 400\.5 W and the SM clock of .* in turn: add --yes"):
            settings.check_permitted(False)
        with settings.changing():
            settings.set({"clock": 1000})
            assert state()[1] == 1005.0
        assert settings.command({"clock": 1000}) == "sudo nvidia-smi -i SIM-h100-80-0 -lgc 1005 && "
    assert GpuSettings("cpu", {}).plan() == [], "without settings nothing is opened"


@pytest.mark.parametrize(
    ("device", "asked", "says"),
    [
        (SIM, {"power_limit": [50.0]}, "allows 200 to 700 W"),
        ("sim:a100", {"power_limit": [500.0]}, "allows 100 to 400 W"),
        (SIM, {"clock": [100.0]}, "SM clock of 100 MHz: .* allows 210 to 1980 MHz"),
        (SIM, {"clock": [float("nan")]}, "allows 210 to 1980 MHz"),
        ("cpu", {"clock": [1200.0]}, "only a whole GPU"),
        ("sim:h100?rounds=0", {"clock": [1200.0]}, "at least 1 MHz"),
        ("sim:h100?lags=-1", {"clock": [1200.0]}, "must not be negative"),
    ],
)
def test_what_a_gpu_does_not_allow_is_refused_in_one_line(device, asked, says):
    with pytest.raises(BadInputError, match=says) as caught:
        GpuSettings(device, asked)
    assert "\n" not in str(caught.value)


# --- faults of drivers --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["power_limit", "clock"])
def test_a_driver_that_refuses_is_noticed_before_anything_runs(name):
    settings = GpuSettings("sim:h100?refuses=1", {name: BOTH[name]})
    with pytest.raises(NotPossibleError, match=r"can't be set: this needs root \(sudo\)"), settings.changing():
        pytest.fail("it was not refused")
    assert not journal_of(open_device(SIM).info).exists()
    assert state() == UNSET


@pytest.mark.parametrize("arguments", [["sweep", "deit-t", "--clock", "1200"], ["tune", "deit-t", "--over=clock=1200"]])
def test_without_permission_a_command_ends_with_one_line(capsys, workspace, arguments):
    said = command(capsys, *arguments, "-d", SIM)
    assert (said.code, said.err.count("\n")) == (2, 2)
    assert said.err.startswith("sets the SM clock of SIMULATED H100 80GB (SIM-h100-80-0) to 1200 MHz; now 345 MHz\n")
    assert "add --yes to permit it" in said.err
    assert not list(workspace.glob("runs/*"))
    said = command(capsys, *arguments, "-d", "sim:h100?refuses=1", "--yes")
    assert said.code == 3
    assert said.err.splitlines()[-1].endswith("the SM clock can't be set: this needs root (sudo)")


@pytest.mark.thorough
@pytest.mark.parametrize(("asked", "says"), [(1200.0, ""), (990.0, "the driver read 960 MHz; measured: 960 MHz")])
def test_a_driver_that_rounds_further_than_a_step_is_stated(tmp_path, monkeypatch, asked, says):
    monkeypatch.setattr(gpu_settings, "SETTLE_S", 0.1)
    why, run = recorded(tmp_path / "a", {"clock": asked}, 960.0 if says else 1200.0, "sim:h100?rounds=60")
    assert why == (says and f"SM clock of 990 MHz not in force: {says}")
    assert read_back(run)["clock read (MHz)"] == (960.0 if says else 1200.0)


@pytest.mark.thorough
def test_a_driver_that_lags_is_waited_for(tmp_path):
    device = "sim:h100?lags=0.3"
    with GpuSettings(device, BOTH) as settings:
        with settings.changing():
            settings.set({"power_limit": 300.0, "clock": 1200.0})
            assert state(device) == (300.0, 1200.0)
            settings.set({"power_limit": 300.0})
            assert state(device) == (300.0, 345.0)
            settings.set({"power_limit": 300.0, "clock": 1200.0})
        wait_for(lambda: state(device) == UNSET)  # the lock is released, and the driver lags


def test_a_killed_process_leaves_nothing_with_a_driver_that_lags():
    """The value that it set last comes into force after it has died."""
    device = "sim:h100?lags=0.5"
    gpu = open_device(device)
    with hold(gpu.info, "changing") as held:
        held.note("power_limit", {"before_w": 700.0})
        gpu.set_limit(300.0)
        assert gpu.limit_w() == 700.0
    assert restore(device) == ["power limit is 700 W again"]
    time.sleep(0.6)
    assert state(device) == UNSET


@pytest.mark.thorough
def test_a_driver_that_forgets_is_stated(tmp_path):
    device = "sim:h100?forgets=0.3"
    with GpuSettings(device, BOTH) as settings, settings.changing():
        settings.set({"power_limit": 300.0, "clock": 1200.0})
        assert state(device) == (300.0, 1200.0)
        time.sleep(0.4)
        why = settings.record(save_run(tmp_path / "a", 1980.0))
    assert why == (
        "power limit of 300 W not in force: the driver reads 700 W; "
        "SM clock of 1200 MHz not in force: the driver forgot it; measured: 1980 MHz"
    )
    assert load(tmp_path / "a").warnings[0].code == NOT_TAKEN


@pytest.mark.thorough
def test_a_power_cap_below_a_locked_clock_is_stated(tmp_path):
    why, _ = recorded(tmp_path / "a", {"clock": 1980.0}, 1650.0)
    assert why == "SM clock of 1980 MHz not in force: the power cap lowered it; measured: 1650 MHz"


@pytest.mark.thorough
def test_a_clock_that_is_not_steady_is_not_taken_for_a_lock(monkeypatch):
    monkeypatch.setattr(gpu_settings, "SETTLE_S", 0.1)
    clocks = itertools.count()
    monkeypatch.setattr(NvmlGpu, "clock_mhz", lambda _: 500.0 + 15 * next(clocks))
    with pytest.raises(NotPossibleError, match="clock varies"), GpuSettings(SIM, {"clock": [1200.0]}).changing():
        pytest.fail("it was not refused")


class Lockable(FakeNvml):
    """A driver of a real GPU that locks clocks, or refuses."""

    refusal, locked = 0, None

    def nvmlDeviceSetGpuLockedClocks(self, board, low, high):
        if self.refusal:
            raise NVMLError(self.refusal)
        self.locked = low, high

    def nvmlDeviceResetGpuLockedClocks(self, board):
        self.locked = None

    def nvmlDeviceGetSupportedMemoryClocks(self, board):
        return [2619, 1593]

    def nvmlDeviceGetSupportedGraphicsClocks(self, board, memory):
        return [1980, 1965, 210] if memory == 2619 else [600]


def test_an_nvidia_gpu_is_locked_in_megahertz():
    board = h100()
    library = Lockable(board)
    gpu = NvmlGpu(board.uuid, Nvml(library))
    assert gpu.clocks_mhz() == [210.0, 1965.0, 1980.0]
    gpu.lock_clock(1965.0)
    assert library.locked == (1965, 1965)
    gpu.lock_clock(None)
    assert library.locked is None
    library.refusal = 4
    with pytest.raises(NotPossibleError, match=r"SM clock can't be set: this needs root \(sudo\)"):
        gpu.lock_clock(1965.0)
    assert NvmlGpu(board.uuid, Nvml(FakeNvml(board))).clocks_mhz() == []


# --- commands that are killed -------------------------------------------------------------------------

HANGS = """
def hangs(batch=16):
    while True:
        pass
"""


SWEEP = ("sweep", "mine.py:hangs", "--clock", "1200", "--power-limit", "300")
TUNE = ("tune", "mine.py:hangs", "--over=clock=1200,1500", "--against=clock=1200")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        (SWEEP, signal.SIGKILL),
        (SWEEP, signal.SIGINT),
        (SWEEP, signal.SIGTERM),
        (TUNE, signal.SIGKILL),
        (TUNE, signal.SIGINT),
    ],
)
def test_a_command_that_is_ended_leaves_the_gpu_as_it_was(workspace, arguments, number):
    pytest.importorskip("torch")
    (workspace / "mine.py").write_text(HANGS)
    process = start(*arguments, "-d", SIM, "-o", "s", "--yes", cwd=workspace, torch=True)
    wait_for(lambda: state()[1] == 1200.0)
    with pytest.raises(NotPossibleError, match="another jouletrace"), GpuSettings(SIM, BOTH).changing():
        pytest.fail("it was not refused")
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)  # the watcher has the same stderr
    assert process.returncode == (-9 if number == signal.SIGKILL else 130)
    assert ("SM clock is unlocked again" in err) == (number == signal.SIGKILL)
    assert state() == UNSET
    assert not journal_of(open_device(SIM).info).exists()
