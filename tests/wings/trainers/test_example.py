"""The example of a trainer."""

import time

import pytest

import jouletrace as jt
from commands import wait_for
from jouletrace.profiler.record import Recording
from jouletrace.wings.trainers.callbacks import _Loop
from loops import ranges_of, run_example

pytestmark = pytest.mark.thorough

pytest.importorskip("torch")


@pytest.fixture
def steps_of_known_energy(monkeypatch):
    """A training that is recorded from its first step, of steps that are long for the sensor, the first half of which
    the record has passed before the other half ends.

    A quick machine would be done before the recorder has started, and its log would rightly say nothing.
    """
    transformers = pytest.importorskip("transformers")
    trained, training_step, start = [], transformers.Trainer.training_step, _Loop._start

    def begin(self, *of):
        start(self, *of)
        wait_for(lambda: Recording.active.started)

    def known():
        step = Recording.active.now().ranges.get("epoch/step")
        return step is not None and step.energy_j is not None and step.count * step.time_s >= 1

    def step(self, *of, **options):
        time.sleep(0.1)
        trained.append(self)
        if len(trained) > self.state.max_steps // 2:
            wait_for(known)
        return training_step(self, *of, **options)

    monkeypatch.setattr(_Loop, "_start", begin)
    monkeypatch.setattr(transformers.Trainer, "training_step", step)


def test_a_trainer(tmp_path, monkeypatch, capsys, steps_of_known_energy):
    pytest.importorskip("accelerate")
    run_example("trainer.py", monkeypatch, "--steps", "10", "--save-to", str(tmp_path / "run"))
    ranges = ranges_of(jt.load(tmp_path / "run"))
    assert {name: count for name, (count, _, _) in ranges.items()} == {
        "epoch": 2,
        "epoch/step": 20,
        "evaluation": 2,
    }
    _, energy, seconds = ranges["epoch"]
    assert energy.value == pytest.approx(300 * seconds, rel=0.05)
    assert "simulated_energy_step_j" in capsys.readouterr().out, "in the trainer's own log"


def test_a_trainer_without_accelerate_says_what_to_install(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"^trainer\.py: the Trainer .* needs accelerate: pip install accelerate$"):
        run_example("trainer.py", monkeypatch)
