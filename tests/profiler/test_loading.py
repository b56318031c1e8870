"""A Run that was killed has the figures in Python that the command line shows."""

import jouletrace as jt
from commands import command
from jouletrace.run import save, tables
from live_runs import marked


def test_a_recording_that_was_killed_has_its_figures(capsys, tmp_path):
    run = marked([("range", "step", 1.0, 3.0)], 300.0, 4.0, complete=False)
    run.results, run.units = tables.empty("results"), tables.empty("units")
    save(run, tmp_path / "killed")
    loaded = jt.load(tmp_path / "killed")
    energy = loaded.result("energy_total_j")
    assert energy.low <= 300 * 3.8 <= energy.high  # it records from 0.1 to 3.9 s
    assert "step" in loaded.units["name"].to_pylist()
    text = str(loaded)
    assert "INCOMPLETE: the recording was cut off" in text
    assert command(capsys, "show", str(tmp_path / "killed")).out.startswith(f"{text}\n")
