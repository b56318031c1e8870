"""An imported timeline in the flat table of kernels."""

import csv

import import_timelines as make
from jouletrace.analysis import analyse
from jouletrace.formats.exporters import export
from jouletrace.formats.importers import read_files


def test_a_timeline_without_power_has_times_and_says_why_there_is_no_energy(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(make.native(make.kineto_events(2)))
    with export(analyse(read_files([path])), "kernels", tmp_path / "kernels.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            assert float(row["time_s"]) > 0
            assert (row["energy_total_j"], row["notes"]) == ("", "not_measured")
