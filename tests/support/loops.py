"""Runs the examples of recorded loops, each as a user would, on a simulated GPU in real time."""

import runpy
import sys

from live_runs import REAL
from places import REPOSITORY

EXAMPLES = REPOSITORY / "examples"


def run_example(name, monkeypatch, *options):
    """Run one of them; options follow the GPU."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", [name, "--device", REAL, *options])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def ranges_of(run):
    """Number, energy and seconds of each range of a Run, by name."""
    return {
        row["name"]: (row["count"], run.result("energy_total_j", row["id"]), run.result("time_s", row["id"]).value)
        for row in run.units.to_pylist()
        if row["level"] == "range"
    }
