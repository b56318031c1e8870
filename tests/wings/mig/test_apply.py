"""Dividing a GPU and going back: whatever is refused, interrupted or killed on the way."""

import json
import multiprocessing
import os
import re
import signal
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import jouletrace
from commands import PATIENCE_S
from fake_mig_nvml import FakeMigNvml
from jouletrace.campaign.repeats import numbered
from jouletrace.devices import Process, in_real_time, open_device
from jouletrace.devices.nvml import Nvml
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.processes import hold, journal_of
from jouletrace.processes.locks import noted
from jouletrace.profiler import ProfileSettings
from jouletrace.wings.mig import (
    CHANGE,
    Layout,
    MigRefusedError,
    NvmlMigBackend,
    SimulatedMig,
    layout_of,
    make_plan,
    open_backend,
    restore,
    written_down,
)
from jouletrace.wings.mig import divide as divide_held
from jouletrace.wings.mig import simulated as mig_state
from jouletrace.wings.mig.apply import PendingResetError
from jouletrace.wings.mig.simulated import MigFailures, SimulatedCrash
from jouletrace.wings.mig.slices import open_board

DEVICE = "sim:a100-80"
PLANS = (
    ["7g.80gb"],
    ["3g.40gb", "3g.40gb"],
    ["4g.40gb", "2g.20gb", "1g.10gb"],
    ["3g.40gb", "2g.20gb", "1g.10gb"],
    ["1g.10gb"] * 7,
    ["2x1c.3g.40gb", "1c.2g", "1g.10gb+me"],
    ["1g.20gb", "2g.20gb", "3x1c.3g"],
)


def divide(backend, *items, say=lambda text: None):
    """Without the watcher of ``apply``, which has no part in what happens in this process."""
    with hold(backend.info, "dividing") as held:
        return divide_held(held, make_plan(items, backend), backend, DEVICE, say)


def forget(backend):
    with hold(backend.info, "forgetting") as held:
        held.forget(CHANGE)


def board(tmp_path):
    return SimulatedMig(DEVICE, tmp_path / "board.json")


def test_a_plan_is_applied_and_taken_back(tmp_path):
    backend = board(tmp_path)
    now = divide(backend, "3g.40gb", "2x1c.2g")
    assert str(now) == "2g.20gb at 0:2, 3g.40gb at 4:4"
    assert [c.slices for c in backend.instances()[0].compute] == [1, 1]
    assert restore(backend) == Layout(False)
    assert restore(backend) is None, "there is nothing more to go back to"


def test_the_old_division_is_on_disk_before_anything_changes(tmp_path):
    backend = board(tmp_path)
    backend.failures.crash_after = 0
    with pytest.raises(SimulatedCrash):
        divide(backend, "7g.80gb")
    assert written_down(backend.info) == Layout(False)
    assert str(Layout.from_dict(noted(backend.info, CHANGE)["target"])) == "7g.80gb at 0:8"


def test_a_second_plan_still_goes_back_to_the_first_division(tmp_path):
    backend = board(tmp_path)
    divide(backend, "7g.80gb")
    divide(backend, "4g.40gb", "3g.40gb")
    assert restore(backend) == Layout(False)


def test_a_change_that_was_interrupted_while_it_was_stored_has_not_happened(tmp_path, monkeypatch):
    """Or a sweep would take the GPU for restored, and leave it divided for all others."""
    backend = board(tmp_path)
    backend.set_mode(True)

    def interrupted(*of, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(mig_state, "write_whole", interrupted)
        with pytest.raises(KeyboardInterrupt):
            backend.set_mode(False)
    assert backend.mode() == board(tmp_path).mode()


def test_what_is_there_already_is_left_alone(tmp_path):
    backend = board(tmp_path)
    divide(backend, "4g.40gb", "3g.40gb")
    before = [(one.id, one.compute) for one in backend.instances()]
    forget(backend)
    backend.failures.refuse_after = 0  # any change would be refused
    divide(backend, "4g.40gb", "3g.40gb")
    assert [(one.id, one.compute) for one in backend.instances()] == before
    assert written_down(backend.info) is None


def test_only_what_differs_is_destroyed(tmp_path):
    backend = board(tmp_path)
    divide(backend, "4g.40gb", "3g.40gb")
    kept = backend.instances()[0].compute[0].uuid
    divide(backend, "4g.40gb", "2g.20gb", "1g.10gb")
    assert backend.instances()[0].compute[0].uuid == kept


def test_processes_are_named_and_nothing_changes(tmp_path):
    backend = board(tmp_path)
    backend.failures.users = (Process(4711, "python3"), Process(12))
    with pytest.raises(NotPossibleError, match=r"python3 \(pid 4711\), a process \(pid 12\)"):
        divide(backend, "7g.80gb")
    assert layout_of(backend) == Layout(False)
    assert written_down(backend.info) is None


def test_without_permission_nothing_changes_and_nothing_is_left_behind(tmp_path):
    backend = board(tmp_path)
    backend.failures.no_permission = True
    with pytest.raises(MigRefusedError) as error:
        divide(backend, "7g.80gb")
    assert error.value.exit_code == 3
    backend.failures.no_permission = False
    assert layout_of(backend) == Layout(False)


def test_a_change_refused_half_way_brings_the_old_division_back(tmp_path):
    backend = board(tmp_path)
    divide(backend, "3g.40gb", "3g.40gb")
    forget(backend)
    before = layout_of(backend)
    refuse_once(backend, after=3)
    with pytest.raises(MigRefusedError, match="999"):
        divide(backend, "1g.10gb", "1g.10gb", "4g.40gb")
    assert layout_of(backend) == before
    assert written_down(backend.info) is None


def test_a_refused_second_plan_goes_back_to_the_first_and_keeps_the_journal(tmp_path):
    backend = board(tmp_path)
    first = divide(backend, "3g.40gb", "3g.40gb")
    refuse_once(backend, after=2)
    with pytest.raises(MigRefusedError):
        divide(backend, "7g.80gb")
    assert layout_of(backend) == first
    assert restore(backend) == Layout(False)


def test_where_going_back_is_refused_too_the_journal_stays_and_says_how(tmp_path):
    backend = board(tmp_path)
    backend.failures.refuse_after = 2
    with pytest.raises(NotPossibleError, match=r"mig restore --device sim:a100-80"):
        divide(backend, "4g.40gb", "3g.40gb")
    backend.failures.refuse_after = None
    assert restore(backend) == Layout(False)


def test_ctrl_c_brings_the_old_division_back(tmp_path):
    backend = board(tmp_path)

    def interrupt(text):
        if "creating a compute" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        divide(backend, "3g.40gb", "1g.10gb", say=interrupt)
    assert layout_of(backend) == Layout(False)


def test_a_mode_that_waits_for_a_reset_says_what_to_do_and_goes_on_after_it(tmp_path):
    backend = board(tmp_path)
    backend.failures.reset_needed = True
    with pytest.raises(PendingResetError, match="gpu-reset"):
        divide(backend, "7g.80gb")
    backend.reset()
    assert str(divide(backend, "7g.80gb")) == "7g.80gb at 0:8"
    with pytest.raises(PendingResetError):
        restore(backend)
    backend.reset()
    assert restore(backend) == Layout(False)
    assert written_down(backend.info) is None


def test_restore_takes_back_a_mode_that_is_only_pending(tmp_path):
    backend = board(tmp_path)
    backend.failures.reset_needed = True
    with pytest.raises(PendingResetError):
        divide(backend, "7g.80gb")
    assert restore(backend) == Layout(False)
    assert not backend.mode().needs_reset


def test_a_journal_that_cannot_be_written_stops_everything(tmp_path, monkeypatch):
    backend = board(tmp_path)

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotPossibleError, match=r"No space left on device.*nothing was changed"):
        divide(backend, "7g.80gb")
    assert layout_of(backend) == Layout(False)


def test_a_damaged_journal_is_never_overwritten(tmp_path):
    backend = board(tmp_path)
    divide(backend, "7g.80gb")
    journal_of(backend.info).write_text('{"version": 1')
    with pytest.raises(BadInputError, match="can't be read"):
        divide(backend, "3g.40gb")
    with pytest.raises(BadInputError, match="can't be read"):
        restore(backend)


@pytest.mark.parametrize(
    "stored",
    [
        '{"mode": [true, true], "instances": [[1, "9g", [0, 4], []]]}',
        '{"mode": [true, true], "instances": [[1, "3g.40gb", ["a", 4], []]]}',
        '{"mode": [true, true], "instances": [[1, "3g.40gb", [0, 4], [[0, 99, [0, 3], 7]]]]}',
        None,
    ],
)
def test_a_damaged_layout_of_a_simulated_gpu_is_named(tmp_path, stored):
    (tmp_path / "board.json").write_text(stored) if stored else (tmp_path / "board.json").mkdir()
    with pytest.raises(BadInputError, match=r"board\.json.*can't be read.*delete it"):
        board(tmp_path)


def test_a_layout_that_cannot_be_kept_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotPossibleError, match=r"cannot write .*JOULETRACE_CACHE"):
        divide(board(tmp_path / "file"), "7g.80gb")


def test_two_at_once_are_refused(tmp_path):
    backend = board(tmp_path)
    with hold(backend.info, "dividing"), pytest.raises(NotPossibleError, match="another jouletrace"):
        divide(backend, "7g.80gb")


def _killed_on_the_way(path):
    backend = SimulatedMig(DEVICE, path)

    def die(text):
        if "creating a compute" in text:
            os.kill(os.getpid(), signal.SIGKILL)

    divide(backend, "3g.40gb", "2g.20gb", say=die)


def test_after_sigkill_another_process_brings_the_old_division_back(tmp_path):
    path = tmp_path / "board.json"
    child = multiprocessing.get_context("fork").Process(target=_killed_on_the_way, args=(path,))
    child.start()
    child.join(PATIENCE_S)
    assert child.exitcode == -signal.SIGKILL
    assert str(layout_of(SimulatedMig(DEVICE, path))) != "MIG off"
    assert restore(SimulatedMig(DEVICE, path)) == Layout(False)


@pytest.mark.thorough
def test_500_random_applies_crashes_and_restores_end_in_the_old_division(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no power cut here
    rng = np.random.default_rng(0)
    crashes = refusals = 0
    for run in range(500):
        backend = SimulatedMig(DEVICE)
        if run % 2:  # a GPU that was divided before
            divide(backend, *PLANS[rng.integers(len(PLANS))])
            forget(backend)
        old = layout_of(backend)
        for _ in range(rng.integers(1, 4)):
            backend.failures = MigFailures()
            fate = rng.random()
            if fate < 0.5:
                backend.failures.crash_after = int(rng.integers(0, 12))
            elif fate < 0.7:
                backend.failures.refuse_after = int(rng.integers(0, 12))
            try:
                if rng.random() < 0.75:
                    divide(backend, *PLANS[rng.integers(len(PLANS))])
                else:
                    restore(backend)
            except SimulatedCrash:
                crashes += 1
            except NotPossibleError:
                refusals += 1
        backend.failures = MigFailures()
        restore(backend)
        assert layout_of(backend) == old, run
        assert written_down(backend.info) is None
    assert crashes > 100
    assert refusals > 50


def test_nvml_divides_and_goes_back_like_the_simulated_gpu():
    fake = FakeMigNvml("h100-80")
    backend = NvmlMigBackend(fake.board.uuid, Nvml(fake))
    now = divide(backend, "2x1c.3g.40gb", "2g.20gb", "1g.10gb+me")
    assert now == layout_of(fake.mig)
    assert len(now.parts) == 3
    assert restore(backend) == Layout(False)


@pytest.mark.parametrize(
    ("failure", "says"), [("no_permission", "sudo"), ("users", "end it"), ("refuse_after", "NVML error 999")]
)
def test_nvml_refusals_say_what_to_do(failure, says):
    fake = FakeMigNvml()
    backend = NvmlMigBackend(fake.board.uuid, Nvml(fake))
    setattr(fake.mig.failures, failure, {"users": (Process(1),), "refuse_after": 0}.get(failure, True))
    with pytest.raises(NotPossibleError, match=says):
        backend.set_mode(True)


def test_processes_of_instances_are_seen_through_nvml():
    fake = FakeMigNvml()
    fake.board.compute = [(4711, 1 << 30)]
    assert [p.pid for p in NvmlMigBackend(fake.board.uuid, Nvml(fake)).processes()] == [4711]


def refuse_once(backend, after):
    """The driver refuses one change and then works again."""
    backend.failures.refuse_after = after
    begin = backend._begin

    def once():
        try:
            begin()
        except MigRefusedError:
            backend.failures.refuse_after = None
            raise

    backend._begin = once


def test_the_journal_is_plain_json(tmp_path):
    backend = board(tmp_path)
    divide(backend, "2x1c.3g.40gb")
    data = json.loads(journal_of(backend.info).read_text())["changes"][CHANGE]
    assert data["before"] == {"on": False, "parts": []}
    assert [c["slices"] for c in data["target"]["parts"][0]["compute"]] == [1, 1]


def test_nothing_but_apply_changes_a_partitioning():
    package = Path(jouletrace.__file__).parent
    changes = re.compile(r"\.(set_mode|create|create_compute|destroy|destroy_compute)\(")
    setters = re.compile(r"nvml(DeviceSetMig|\w*Instance(Create|Destroy)|DeviceCreateGpuInstance)\w*\"")
    for path in package.rglob("*.py"):
        name, text = path.relative_to(package).as_posix(), path.read_text()
        if name != "wings/mig/apply.py" and name.startswith(("wings/", "cli/", "profiler/", "devices/nvml/")):
            assert not changes.search(text), name
        if name != "wings/mig/driver.py":
            assert not setters.search(text), name


def test_slices_of_a_simulated_gpu_are_devices_by_their_uuids(tmp_path, monkeypatch):
    monkeypatch.setenv("JOULETRACE_CACHE", str(tmp_path))
    with closing(open_backend("sim:h100?seed=3")) as backend:
        divide(backend, "3g.40gb", "2x1c.2g")
        uuids = {one.uuid: one for instance in backend.instances() for one in instance.compute}
    found = [open_device(uuid) for uuid in uuids]
    assert {one.info.id for one in found} == set(uuids)
    assert {one.parent for one in found} == {"SIM-h100-80-3"}
    assert sorted(one.info.details["multiprocessors"] for one in found) == [16, 16, 60]
    again = open_device(f"{found[0].spec[:-2].lower()}?realtime=1&gain=1")
    assert (again.info.id, again.clock.virtual) == (found[0].info.id, False)
    assert open_device(again.spec).info.id == again.info.id, "the recorder opens it by this name"
    assert in_real_time(found[0].spec) == f"{found[0].spec}?realtime=1"
    assert numbered(ProfileSettings(device=found[0].spec), 3).device == f"{found[0].spec}?run=2"
    with closing(open_backend(found[0].spec)) as backend:
        assert backend.info.id == "SIM-h100-80-3"
    assert open_board(found[0].spec).info.id == "SIM-h100-80-3", "what sweep and bench run on"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("MIG-SIM-h100-80-9", "is no slice of a simulated GPU; there are: MIG-SIM-h100-80-3-"),
        ("MIG-SIM-h100", "is the beginning of several: MIG-SIM-h100-80-3-"),
    ],
)
def test_an_unknown_slice_of_a_simulated_gpu_is_named_beside_those_there_are(name, words, tmp_path, monkeypatch):
    monkeypatch.setenv("JOULETRACE_CACHE", str(tmp_path))
    with closing(open_backend("sim:h100?seed=3")) as backend:
        divide(backend, "3g.40gb", "3g.40gb")
    with pytest.raises(BadInputError, match=words):
        open_device(name)
