"""Variability between GPUs: what runs beside the product of matrices (``tests/studies/test_variability.py``)."""

from commands import command
from fleet_data import gpus
from jouletrace.errors import NotPossibleError
from jouletrace.wings.fleet import engine
from jouletrace.wings.fleet.engine import FleetHost
from jouletrace.wings.fleet.plan import Noise


def test_it_trains_beside_the_product_on_the_gpus_that_are_named(workspace, capsys, monkeypatch):
    """Tests of processes hold that it runs and ends with the measurement."""
    asked = []

    class Asked(FleetHost):
        def at_once(self, group, note, hear):
            asked.append((self._settings, [task.gpu.index for task in group]))
            raise NotPossibleError("that was all")

    boards = gpus(1, 4)
    monkeypatch.setattr(engine, "FleetHost", Asked)
    monkeypatch.setattr(engine, "find_gpus", lambda *wanted: (boards[:1], boards[1:]))
    monkeypatch.setattr(engine, "busy", lambda boards: {})
    noise = ("--noise", "resnet50@1,2,3", "--noise-task", "train", "--noise-batch", "128")
    said = command(
        capsys, "fleet", "run", "sgemm", "--config", "size=25536", "--gpus", "0", "--repeats", "5", *noise, "-o", "f"
    )
    assert (said.code, said.err.splitlines()[-1]) == (3, "jouletrace: that was all")
    ((settings, places),) = asked
    assert places == [0]
    assert settings.noise == (Noise("resnet50", (1, 2, 3)),)
    assert (settings.noise_profile.task, settings.noise_profile.batch) == ("train", 128)
    assert (settings.repeats, settings.profile.config["size"]) == (5, "25536")
