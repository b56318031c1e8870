"""Figures of recordings and Runs in experiment trackers."""

import logging
import math
import time

import pytest

import jouletrace as jt
from jouletrace.errors import BadInputError


class Wandb:
    def __init__(self):
        self.rows = []

    def log(self, data, step=None, commit=None):
        self.rows.append((step, data))


class MLflow:
    def __init__(self):
        self.rows = []

    def log(self, *_):
        raise AssertionError("MLflow's loggers have one of this name, too")

    def log_metrics(self, metrics, step=None, synchronous=None):
        self.rows.append((step, metrics))


class Writer:
    def __init__(self):
        self.values = {}

    def add_scalar(self, tag, scalar_value, global_step=None):
        self.values[tag, global_step] = scalar_value


@pytest.fixture(scope="module")
def recording():
    with jt.record("loop", device="sim:h100?load=1:300", kernels=False) as found:
        for _ in range(6):
            with jt.range("forward"):
                time.sleep(0.2)
            jt.step()
    return found


@pytest.mark.parametrize("tracker", [Wandb(), MLflow()], ids=["W&B", "MLflow"])
def test_a_run_has_all_its_figures_with_their_ends(recording, tracker):
    logged = jt.log_to(tracker, recording, step=7)
    assert tracker.rows == [(7, logged)]
    energy = recording.run.result("energy_total_j")
    ends = {name.removeprefix("simulated_energy_total_j"): value for name, value in logged.items() if "total_j" in name}
    assert ends == {"": energy.value, "_low": energy.low, "_high": energy.high}
    assert jt.log_to(tracker, recording.run) == logged


def test_a_writer_has_a_scalar_each_and_a_function_gets_them_all(recording):
    writer, seen = Writer(), []
    logged = jt.log_to(writer, recording, step=3)
    assert writer.values == {(name, 3): value for name, value in logged.items()}
    jt.log_to(seen.append, recording)
    assert seen == [logged]


def test_a_recording_that_goes_on_has_its_sums_so_far():
    tracker = Wandb()
    with jt.record("loop", device="sim:h100?load=1:300", kernels=False) as found:
        time.sleep(2.5)
        jt.step()
        jt.log_to(tracker, found, step=1)
    ((step, figures),) = tracker.rows
    assert step == 1
    assert 100 < figures["simulated_energy_j"] <= 900
    assert set(figures) == {"simulated_energy_j", "simulated_power_w"}


def test_what_is_no_tracker_is_refused(recording):
    with pytest.raises(BadInputError, match="a dict has none of add_scalar"):
        jt.log_to({}, recording)
    for other in (logging.getLogger(), math):
        with pytest.raises(BadInputError, match=r"has a log that isn't W&B's: \S*log\(\)"):
            jt.log_to(other, recording)
    with pytest.raises(BadInputError, match="not a NoneType"):
        jt.log_to([].append, None)
