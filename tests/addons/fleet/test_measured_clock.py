"""The SM clock that was counted, in a fleet's tables and report."""

import numpy as np
import pytest

from boards import board_step, recording
from fleet_data import fleet
from jouletrace.addons.fleet.document import gpu_section
from jouletrace.addons.fleet.findings import find
from jouletrace.addons.fleet.html import render
from jouletrace.addons.fleet.results import fleet_of, read_fleet
from jouletrace.addons.fleet.slowness import correlates
from jouletrace.analysis import analyse
from jouletrace.profiler import passes
from jouletrace.profiler.progress import Silent
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.report.document import Footnotes
from jouletrace.run import tables


@pytest.mark.thorough
def test_it_stands_beside_the_reported_one_where_it_is_known(tmp_path):
    fleet(tmp_path / "counted", np.linspace(1, 1.05, 5), counted_mhz=lambda gpu, repeat, time: 3.0 / time)
    fleet(tmp_path / "told", np.linspace(1, 1.05, 5))
    fleets = {name: read_fleet(tmp_path / name) for name in ("counted", "told")}
    found = {name: find(one.groups[0]) for name, one in fleets.items()}
    columns = {name: [column.name for column in gpu_section(one, Footnotes()).columns] for name, one in found.items()}
    at = columns["counted"].index("counted (MHz)")
    assert columns["counted"][at - 1] == "SM (MHz)"
    assert "counted (MHz)" not in columns["told"]
    rows = gpu_section(found["counted"], Footnotes()).rows
    assert {row[at - 1] for row in rows} == {"1500"}
    assert [float(row[at]) for row in rows] == sorted((float(row[at]) for row in rows), reverse=True)
    assert abs(float(rows[0][at]) - 1500) < 10
    clocks = {name: {each.condition for each in correlates(one.group)} for name, one in found.items()}
    assert ("counted_mhz" in clocks["counted"], "counted_mhz" in clocks["told"]) == (True, False)
    assert all("clock_mhz" in each for each in clocks.values())
    for name, one in fleets.items():
        assert ("SM, measured (MHz)" in render(one, [found[name]])) is (name == "counted")


def test_a_runs_windows_bring_it_along():
    device, step = board_step()
    with recording(device) as session:
        passes.energy(session, step, ProfileSettings(target_ci=0.5), 2e-4, Silent())
    run = session.run
    rows = [{**row, "counted_mhz": 1650.0 + row["order"]} for row in run.windows.to_pylist()]
    run.windows = tables.from_rows(rows, "windows")
    (group,) = fleet_of([analyse(run)]).groups
    assert group.runs["counted_mhz"].tolist() == [1650.0 + (len(rows) - 1) / 2]
