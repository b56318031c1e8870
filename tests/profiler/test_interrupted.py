"""Ctrl-C at every stage of a profile with kernels: what was recorded can be opened, shown and exported."""

import pytest

from commands import command
from jouletrace import analysis
from jouletrace.profiler import passes, profile
from jouletrace.profiler.detail import kernel_recording
from jouletrace.profiler.loading import load
from jouletrace.run import verify
from thinned import thinned

pytest.importorskip("torch")

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("known_rates", "known_average")]

LOSS = """
import torch

class Loss(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x).square().mean()

def loss(batch=16):
    return Loss(64, 64), torch.randn(batch, 64)
"""

QUICK = ("--warmup", "2", "--detail-time", "4", "--max-time", "8")

STAGES = {
    "building": (profile, "prepare"),
    "warm-up": (profile, "warm_up"),
    "idle": (passes, "idle"),
    "latency": (passes, "latency"),
    "energy": (passes, "energy"),
    "listing": (kernel_recording, "plan"),
    "kernels": (kernel_recording, "rows_of"),
    "units": (kernel_recording, "_add_spans"),
    "figures": (analysis, "analyse_recorded"),
    "writing": (profile, "keep"),
}
"""Commands that are interrupted before they do anything."""


@pytest.fixture(autouse=True)
def place(workspace):
    (workspace / "toy.py").write_text(LOSS)
    return workspace


def interrupt(*_args, **_options):
    raise KeyboardInterrupt


CASES = [(stage, "kernel") for stage in STAGES]
CASES += [("figures", "model"), *((stage, detail) for stage in ("units", "figures") for detail in ("phase", "layer"))]
"""Until its units are known, a recording is the same at every detail."""


@pytest.mark.parametrize(("stage", "detail"), thinned(CASES, 3))
def test_a_profile_interrupted_at_any_stage_can_be_opened(place, capsys, monkeypatch, stage, detail):
    call = ("profile", "toy.py:loss", "-d", "sim:h100?seed=3", "--detail", detail, *QUICK, "-o", "run")
    call += ("--task", "train") if detail == "phase" else ()  # an inference has no phases
    with monkeypatch.context() as patch:
        patch.setattr(*STAGES[stage], interrupt)
        assert command(capsys, *call).code == 130
    assert all(one.whole for one in verify("run"))
    measured = stage in ("figures", "writing")
    run = load("run")
    assert run.complete == measured
    assert not [warning for warning in run.warnings if warning.code == "rows_left_out"]
    shown = command(capsys, "show", "run")
    assert shown.code == 0, shown.err
    assert ("ended early" in shown.out) != measured
    if detail != "model" and stage in ("units", "figures", "writing"):
        assert {"op", "kernel", "site"} <= set(run.units["level"].to_pylist())
    if measured:
        assert run.result("energy_total_j").value is not None
        assert command(capsys, "export", "run", "--format", "collapsed", "-o", "stacks").code == 0
