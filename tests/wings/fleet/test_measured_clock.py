"""The SM clock that was counted, in a fleet's tables and report."""

import numpy as np
import pytest

from boards import board_step, recording
from fleet_data import fleet
from jouletrace.analysis import analyse
from jouletrace.profiler import ProfileSettings, Progress, passes
from jouletrace.report.document import Footnotes
from jouletrace.run import tables
from jouletrace.wings.fleet.document import sections
from jouletrace.wings.fleet.findings import find
from jouletrace.wings.fleet.results import fleet_of


def test_it_stands_beside_the_reported_one_where_it_is_known():
    counted = fleet(np.linspace(1, 1.05, 5), counted_mhz=lambda gpu, repeat, time: 3.0 / time)
    reported = fleet(np.linspace(1, 1.05, 5))
    tables_of = [sections(find(one.groups[0]), Footnotes())[2] for one in (counted, reported)]
    names, without = ([column.name for column in table.columns] for table in tables_of)
    at = names.index("SM, counted (MHz)")
    assert names[at - 1] == "SM (MHz)"
    assert "SM, counted (MHz)" not in without
    assert {row[at - 1] for row in tables_of[0].rows} == {"1500"}
    assert [float(row[at]) for row in tables_of[0].rows] == sorted(
        (float(row[at]) for row in tables_of[0].rows), reverse=True
    )


@pytest.mark.thorough
def test_a_runs_windows_bring_it_along():
    device, step = board_step()
    with recording(device) as session:
        passes.energy(session, step, ProfileSettings(target_ci=0.5), 2e-4, Progress())
    run = session.run
    rows = [{**row, "counted_mhz": 1650.0 + row["order"]} for row in run.windows.to_pylist()]
    run.windows = tables.from_rows(rows, "windows")
    (group,) = fleet_of({"run": analyse(run)}).groups
    assert group.runs["counted_mhz"].tolist() == [1650.0 + (len(rows) - 1) / 2]
