"""A fleet that is killed leaves nothing: neither processes nor temporary folders."""

import sys

import pytest

from commands import wait_for
from jouletrace.run import PREFIX
from scripts import check_that_children_end, run_script

pytestmark = [
    pytest.mark.usefixtures("started_by_python"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc, and locks folders"),
]

FLEET = """
from pathlib import Path
from fleet_data import gpus
from jouletrace.wings.fleet import engine
from jouletrace.wings.fleet.engine import FleetHost
from jouletrace.wings.fleet.plan import FleetSettings, Noise, Task
from jouletrace.campaign import worker
from jouletrace.devices import open_device
worker.MODULE = "fake_campaign_child"
engine.open_device = lambda spec: open_device("cpu")
some = gpus(1, 2)
node = FleetHost(FleetSettings("hangs", noise=(Noise("loud", (0,)),)), some, ".")
begun = set()
def hear(gpu, message):
    begun.add((gpu.id, message["is"]))
    if len({gpu for gpu, what in begun if what == "phase"}) == 2:
        Path("up").touch()
node.at_once([Task(gpu, 0) for gpu in some], print, hear)
"""

QUIET_FLEET = """
from pathlib import Path
from fleet_data import gpus
from jouletrace.wings.fleet import engine
from jouletrace.wings.fleet.engine import FleetHost
from jouletrace.wings.fleet.plan import FleetSettings, Task
from jouletrace.campaign import worker
from jouletrace.devices import open_device
worker.MODULE = "fake_campaign_child"
engine.open_device = lambda spec: open_device("cpu")
some = gpus(1, 2)
node = FleetHost(FleetSettings("hangs"), some, ".")
node.at_once([Task(gpu, 0) for gpu in some], print, lambda gpu, message: None)
"""


@pytest.mark.thorough
def test_children_of_a_fleet_that_is_killed_are_gone_too(tmp_path, monkeypatch):
    check_that_children_end(FLEET, 3, tmp_path, monkeypatch)


@pytest.mark.thorough
def test_a_fleet_that_is_killed_leaves_no_temporary_folder(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    process = run_script(QUIET_FLEET, tmp_path)
    try:
        wait_for(lambda: len(list(folder.glob(f"{PREFIX}*/*"))) == 2)  # what its children record
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not list(folder.glob(f"{PREFIX}*")))
