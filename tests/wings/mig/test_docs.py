"""Files beside the package for MIG: the notebook draws, and the exporter is asked for what is read."""

import json
import re
import runpy
from pathlib import Path

import pytest

from jouletrace.wings.mig import SimulatedMig
from jouletrace.wings.mig.activity import FIELDS
from jouletrace.wings.mig.jobs import read_jobs
from jouletrace.wings.mig.point import PointSettings
from jouletrace.wings.mig.sweep import SweepSettings, sweep
from places import REPOSITORY

pytestmark = pytest.mark.thorough

ROOT = REPOSITORY
NOTEBOOK = ROOT / "examples" / "mig_plots.ipynb"
TOY = """
def toy(batch=1):
    import torch
    return torch.nn.Linear(1024, 1024), torch.randn(batch, 1024)
"""


def test_the_notebook_is_what_its_script_writes():
    made = runpy.run_path(str(ROOT / "examples" / "make_mig_plots.py"))["notebook"]()
    assert json.loads(NOTEBOOK.read_text()) == made


def test_the_notebook_draws_the_four_classic_plots_and_two_more(tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("torch")
    pyplot.switch_backend("Agg")
    pyplot.close("all")
    monkeypatch.chdir(tmp_path)
    Path("toy.py").write_text(TOY)
    jobs = read_jobs(["toy.py:toy"], batches=[1, 8, 10_000_000])
    point = PointSettings(seconds=1, warmup_s=0.2, idle_s=1)
    wanted = SweepSettings(("1g.5gb", "7g.40gb"), tuple(jobs), point=point)
    store, _ = sweep("sim:a100-40", SimulatedMig("sim:a100-40"), wanted, tmp_path / "sweep")
    assert any(row["status"] == "failed" for row in store.rows), "a failed row, which must not stop it"
    monkeypatch.setenv("SWEEP", str(tmp_path / "sweep"))
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    space: dict[str, object] = {}
    for cell in cells:
        exec("".join(cell["source"]), space)
    axes = [axis for number in pyplot.get_fignums() for axis in pyplot.figure(number).axes]
    pyplot.close("all")
    labels = [axis.get_ylabel() for axis in axes]
    assert [re.sub(r" \(.*", "", label) for label in labels] == [
        "FB used",
        "graphics engine activity",
        "latency",
        "throughput",
        "energy",
        "share of requests",
    ]
    done = sum(row["status"] == "done" for row in store.rows)
    assert len(axes[3].patches) == done, "a bar for each job that ran, none for those that failed"


def test_the_exporter_is_asked_for_every_field_that_is_read():
    asked = {line.split(",")[0] for line in (ROOT / "docker" / "dcgm-fields.csv").read_text().splitlines()}
    assert set(FIELDS) <= asked
    compose = (ROOT / "docker" / "compose.yaml").read_text()
    assert '"-c", "100", "-d", "i"' in compose
    assert "shm_size" in compose


def test_every_command_of_the_documentation_is_one():
    from jouletrace.wings.mig.command import COMMAND

    text = (ROOT / "docs" / "how-to" / "mig.md").read_text()
    assert set(re.findall(r"jouletrace mig (\w+)", text)) == set(COMMAND.parts)
