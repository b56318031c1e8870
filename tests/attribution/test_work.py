"""Work of host-bound programs from energies of windows and of idle time: does each term do what it is for?

Energies are drawn with a covariance that is known; the last test has those of a simulated sensor.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.sparse import csr_matrix

from jouletrace.analysis.host import work
from jouletrace.attribution import Energies, Unseen
from jouletrace.attribution.attribute import attribute
from jouletrace.sensor import HOPPER_SENSOR, Response

WORK_J, EACH, IDLE_W = 0.12, 90.0, 127.0
NOISE_J = 0.05
WORK = 2  # the unknowns' row of the work


class Session:
    """Idle time, windows of iterations whose host is late by chance, idle time."""

    def __init__(self, rng, windows=14, scatter=0.0, late=0.25, rising_w=0.0, excess_w=0.0, by_wait_w=0.0):
        seconds = np.concatenate([[1.0], EACH * 0.005 * np.exp(late * rng.standard_normal(windows)), [1.0]])
        edge = np.append(0.0, np.cumsum(seconds))
        self.spans = np.stack([edge[:-1], edge[1:]], axis=1)
        self.counts = np.where(np.arange(windows + 2) % (windows + 1) > 0, EACH, 0.0)
        busy = self.counts > 0
        # Idle power rises while the load warms the die, and stays
        time_s = np.clip(self.spans.mean(axis=1) - 1.0, 0.0, edge[-2] - 1.0)
        idle = IDLE_W + rising_w * -np.expm1(-time_s / 2.0) + excess_w * busy
        self.seconds = seconds
        self.work_j = self.counts * WORK_J * (1 + scatter * rng.standard_normal(len(busy)))
        self.work_j += by_wait_w * seconds * busy
        self.energy_j = self.work_j + idle * seconds
        self.covariance = np.eye(len(busy)) * NOISE_J**2

    def energies(self, rng):
        mean = (self.energy_j + rng.multivariate_normal(0 * self.energy_j, self.covariance))[None]
        return Energies(np.ones(1), mean, self.covariance[None])

    def work(self, rng):
        return work(self.energies(rng), self.spans, self.counts)


def held(draw, count=40):
    """Share of intervals of the work that hold, and the median half-width over the work."""
    hold, half = [], []
    for k in range(count):
        rng = np.random.default_rng(k)
        _, low, high = draw(rng).unknowns.interval()
        hold.append(low[WORK] <= WORK_J <= high[WORK])
        half.append((high[WORK] - low[WORK]) / 2 / WORK_J)
    return np.mean(hold), np.median(half)


def test_work_is_known_where_the_host_is_late_by_chance():
    hold, half = held(lambda rng: Session(rng).work(rng))
    assert hold >= 0.9
    assert half < 0.03


def test_work_that_scatters_between_windows_holds():
    """Windows whose work scatters don't show by how many watts idle power is higher between iterations."""
    hold, half = held(lambda rng: Session(rng, scatter=0.1, windows=10).work(rng))
    assert hold >= 0.9
    assert half < 0.18


def test_idle_power_that_moves_between_its_spans_holds():
    hold, _ = held(lambda rng: Session(rng, late=0.05, rising_w=5.0).work(rng))
    assert hold >= 0.9


def test_idle_power_that_differs_while_the_host_works_holds():
    hold, _ = held(lambda rng: Session(rng, late=0.05, excess_w=2.0 * rng.standard_normal()).work(rng))
    assert hold >= 0.9


def test_errors_that_windows_share_are_in_the_interval():
    def draw(rng):
        session = Session(rng)
        session.covariance += np.outer(session.counts, session.counts) * (0.03 * WORK_J) ** 2
        return session.work(rng)

    hold, _ = held(draw)
    assert hold >= 0.9


def test_errors_that_no_reading_shows_are_in_the_interval():
    rng = np.random.default_rng(5)
    session = Session(rng)
    seen = session.energies(rng)
    share = csr_matrix(session.counts[:, None])
    sizes = np.array([[np.full(len(session.seconds), 0.0), np.full(len(session.seconds), 0.05 * WORK_J)]])
    hidden = replace(seen, unseen=Unseen(share, sizes, np.array([0.5, 0.5])))
    halves = []
    for energies in (seen, hidden):
        _, low, high = work(energies, session.spans, session.counts).unknowns.interval()
        halves.append(high[WORK] - low[WORK])
    assert halves[1] > 2 * halves[0]


@pytest.mark.parametrize(("by_wait_w", "reason"), [(8.0, "idle_apart"), (-8.0, "idle_apart"), (1.0, None)])
def test_a_slope_apart_from_idle_power_fails_a_check(by_wait_w, reason):
    rng = np.random.default_rng(6)
    found = Session(rng, by_wait_w=by_wait_w).work(rng)
    value, low, high = found.outcome.estimate
    assert found.reason == reason
    assert low <= by_wait_w <= high
    assert abs(value - by_wait_w) < 1.0


def test_a_slope_that_few_readings_show_is_no_failed_check():
    """Host times that hardly differ show the slope to ± 20 W."""
    reasons = [Session(np.random.default_rng(k), late=0.005).work(np.random.default_rng(k)).reason for k in range(20)]
    assert reasons == [None] * 20


def test_one_healthy_check_of_a_hundred_fails():
    """Energies without noise, of a slope that is off by its standard deviation, about 2 W, times 2.4 or 2.8."""

    def found(by_wait_w):
        rng = np.random.default_rng(3)
        session = Session(rng, late=0.008, by_wait_w=by_wait_w)
        mean = session.energy_j[None]
        exact = Energies(np.ones(1), mean, session.covariance[None])
        return work(exact, session.spans, session.counts)

    _, low, high = found(0.0).outcome.estimate
    sd_w = (high - low) / 2 / 1.96
    assert 1.0 < sd_w < 5.0
    assert [found(by * sd_w).reason for by in (2.4, -2.4, 2.8, -2.8)] == [None, None, "idle_apart", "idle_apart"]


@pytest.mark.thorough
def test_long_sessions_are_known_better():
    """Of several hundred windows probabilities are beyond what a float holds."""
    rng = np.random.default_rng(4)
    _, low, high = Session(rng, windows=300).work(rng).unknowns.interval()
    assert low[WORK] <= WORK_J <= high[WORK]
    assert high[WORK] - low[WORK] < 0.012 * WORK_J


def test_without_idle_time_work_has_no_interval():
    rng = np.random.default_rng(7)
    session = Session(rng)
    energies, some = session.energies(rng), slice(1, -1)
    shown = replace(energies, mean_j=energies.mean_j[:, some], covariance=energies.covariance[:, some, some])
    assert work(shown, session.spans[some], session.counts[some]).reason == "idle_unseen"


def simulated(rng, iterations=1400):
    """Readings of a host-bound program on an H100's sensor; spans, iterations and the true work."""
    host_s = 0.005 * np.repeat(np.exp(0.2 * rng.standard_normal(iterations // 70)), 70)
    busy_s = 0.005 * rng.uniform(0.1, 0.2, iterations)
    seconds = np.stack([busy_s, host_s - busy_s], axis=1)
    edge = 1.0 + np.append(0.0, np.cumsum(seconds))
    watts = np.tile([200.0, 0.0], iterations)
    rate = rng.uniform(1215, 1254)
    response = Response.sampled(HOPPER_SENSOR, 0.02, rate_hz=rate)
    sample_s = (np.arange(int((edge[-1] + 1.0) * rate)) + rng.random()) / rate
    place = np.searchsorted(edge, sample_s, side="right") - 1
    power = IDLE_W + np.where((place >= 0) & (place < len(watts)), watts[np.clip(place, 0, len(watts) - 1)], 0.0)
    state = lfilter([1 / 16], [1, -15 / 16], power, zi=[IDLE_W * 15 / 16])[0]
    read_s = np.arange(0.02 + rng.random() * 0.02, sample_s[-1], 0.02)
    values = state[np.searchsorted(sample_s, read_s, side="right") - 1] + 0.3 * rng.standard_normal(len(read_s))
    window = edge[::140]
    spans = np.vstack([[[0.1, 0.98], [edge[-1] + 0.1, edge[-1] + 0.95]], np.stack([window[:-1], window[1:]], axis=1)])
    counts = np.append([0.0, 0.0], np.full(len(window) - 1, 70.0))
    return (read_s + response.delay_s, values, spans, response), counts, 200.0 * seconds[:, 0].mean()


@pytest.mark.thorough
def test_work_of_a_simulated_program_holds():
    hold = []
    for k in range(2):
        (times_s, values_w, spans, response), counts, true_j = simulated(np.random.default_rng(20 + k))
        found = work(attribute(times_s, values_w, spans, response=response, bursts=spans[2:]), spans, counts)
        _, low, high = found.unknowns.interval()
        hold.append(low[WORK] <= true_j <= high[WORK] and high[WORK] - low[WORK] < 0.25 * true_j)
    assert all(hold)
