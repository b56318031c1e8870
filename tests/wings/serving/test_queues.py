"""Several loads on one GPU at once: what each caused, and how long it kept its part busy."""

from dataclasses import dataclass

import pytest

from jouletrace.wings.serving.client.queues import Together


@dataclass
class Steady:
    """A load of so many seconds that draws a constant power and is busy for a constant share of its time."""

    seconds: float
    watts: float
    busy: float

    def left_s(self):
        return self.seconds

    def advance(self, seconds, idle_w):
        self.seconds -= seconds
        return self.watts, self.busy


def test_each_load_has_its_energy_and_its_busy_time_whatever_the_steps():
    loads = Together([Steady(0.75, 100.0, 0.4), None, Steady(2.0, 50.0, 1.0)])
    means = [loads.advance(seconds, 60.0) for seconds in (0.25, 0.25, 0.5, 1.0)]
    assert loads.caused_j.tolist() == pytest.approx([75.0, 0.0, 100.0])
    assert loads.busy_s.tolist() == pytest.approx([0.3, 0.0, 2.0])
    assert [watts for watts, _ in means] == pytest.approx([150.0, 150.0, 100.0, 50.0])
    assert loads.left_s() == 0.0
