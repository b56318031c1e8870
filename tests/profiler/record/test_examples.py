"""The example of a recorded loop."""

import pytest

import jouletrace as jt
from loops import ranges_of, run_example

pytest.importorskip("torch")


@pytest.mark.thorough
def test_a_plain_loop(tmp_path, monkeypatch, capsys):
    run_example("plain_loop.py", monkeypatch, "--seconds", "8", "--save-to", str(tmp_path / "run"))
    ranges = ranges_of(jt.load(tmp_path / "run"))
    assert list(ranges) == [
        "epoch",
        "epoch/step",
        "epoch/data",
        "epoch/forward",
        "epoch/backward",
        "epoch/optimizer",
    ]
    for name in ("epoch", "epoch/step"):
        _, energy, seconds = ranges[name]
        assert energy.value == pytest.approx(300 * seconds, rel=0.05)
    printed = capsys.readouterr().out
    assert "SIMULATED plain loop: " in printed, "a line while it ran"
    assert "SIMULATED epoch/optimizer" in printed
