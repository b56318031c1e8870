"""Requests that a cluster can't carry out, and what names the extra: nothing is left behind."""

import sys

import pytest

import jouletrace as jt
from commands import command
from shipped import ABSENT


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("sweep", "resnet50", "--device", "cuda:1"), "the cluster chooses GPUs"),
        (("sweep", "resnet50", "--clock", "1200"), "--power-limit and --clock change a GPU of this host"),
        (("sweep", "resnet50", "--repeats", "2"), "--repeats with --on would mix GPUs"),
        (("tune", "resnet50", "--over", "clock=1200"), "clock changes a GPU of this host"),
        (("tune", "resnet50", "--over", "batch=1,2", "--budget", "9s"), "--on resumes nothing"),
        pytest.param(
            ("fleet", "run", "gemm", "--device", "cuda:1"),
            "the cluster chooses GPUs",
            marks=pytest.mark.skipif("fleet" in ABSENT, reason="it is another wing"),
        ),
        (("profile", "resnet50", "--device", "cuda:1"), "the cluster chooses GPUs"),
    ],
)
def test_what_a_cluster_cannot_do_is_refused(workspace, capsys, args, words):
    given = args if "--device" in args else (*args, "--device", "sim:h100")
    said = command(capsys, *given, "--on", "ray", "-o", "there")
    assert said.code == 2
    assert words in said.err
    assert list(workspace.iterdir()) == []
    assert "no value of --on 'slurm'" in command(capsys, *given, "--on", "slurm", "-o", "there").err


def test_without_ray_its_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(jt.NotPossibleError, match=r"pip install 'jouletrace\[ray\]'"):
        jt.sweep("resnet50", device="sim:h100", folder=tmp_path / "grid", on="ray", progress=False)
    assert not (tmp_path / "grid").exists()
