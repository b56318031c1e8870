"""A sensor's place in time and its average, on readings of a sampler that is known to the nanosecond."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from jouletrace.attribution import Kind, Sampled, activity_of
from jouletrace.attribution import lock as locking
from jouletrace.attribution.fit import fit
from jouletrace.attribution.lock import Attempts, Lock, _averagings, _delayed, _tuned, lock, rephased
from jouletrace.attribution.observer import Averaged
from jouletrace.sensor import HOPPER_SENSOR, SampleTimes, read_out
from jouletrace.sensor.models import Means
from readings import taken

pytestmark = pytest.mark.thorough

KINDS = [Kind("a"), Kind("b")]
WATTS = np.array([350.0, 680.0])


def timeline(seconds, seed=5):
    """Kernels of two kinds in irregular order, too short for heads and tails, without long pauses."""
    rng = np.random.default_rng(seed)
    count = round(seconds / 70e-6)
    kind = np.repeat(rng.integers(0, 2, count), rng.integers(1, 60, count))[:count]
    start = np.cumsum(rng.integers(45_000, 95_000, count))
    return activity_of(start, start + 40_000, kind, KINDS, 0)


def sampled(activity, sensor, noise_w=0.3, rate_hz=1225.0, one_s=1.0002):
    """The sampler with its true track, and its readings."""
    track = SampleTimes.straight(activity.begin_s, activity.finish_s, rate_hz, one_s)
    at, above = track.instants(), (WATTS - 120.0)[activity.column]
    _, seen, _ = activity.seen(at, sensor.response, above, above)
    time = np.arange(activity.begin_s + 0.2, activity.finish_s - 0.01, 0.02)
    watts = 120.0 + read_out(sensor, seen[:, None], at, time)[:, 0]
    noise = noise_w * np.random.default_rng(1).normal(size=len(time))
    return Sampled(sensor, track), taken(time, watts + noise)


@pytest.fixture(scope="module")
def short():
    return timeline(3.0)


@pytest.mark.parametrize("delay_s", [2.9e-3, 3.4e-3, 3.96e-3])
def test_a_readout_is_as_late_as_leaves_least(short, delay_s):
    true, readings = sampled(short, replace(HOPPER_SENSOR, delay_s=delay_s))
    found = _tuned(fit(short, Sampled(HOPPER_SENSOR, true.track), readings, fit_place=False))
    # the nearest sample decides, and they are 0.8 ms apart: a range of delays reads the same ones
    moment = readings.time_s[:, None] - np.array([delay_s, found.sensor.delay_s])
    last = np.searchsorted(true.track.instants(), moment)
    assert np.mean(last[:, 0] == last[:, 1]) > 0.95
    assert found.track is true.track


@pytest.mark.parametrize("averages", [16, 8, 12, 20, 24, 32])
def test_the_length_of_the_average_is_the_nominal_one_and_a_better_one_if_there_is(short, averages):
    true, readings = sampled(short, replace(HOPPER_SENSOR, averages=averages))
    found = _averagings(short, Sampled(HOPPER_SENSOR, true.track), readings)
    assert [one.observer.sensor.averages for one in found] == ([16] if averages == 16 else [16, averages])
    assert found[-1].residual_rms_w < 0.4
    assert found[-1].power_w == pytest.approx([*WATTS, 120.0], abs=6.0)


def test_samples_a_part_of_a_period_off_are_put_right(short):
    true, readings = sampled(short, HOPPER_SENSOR)
    for part in (0.25, 0.5, 0.75):
        late = replace(true.track, start_s=true.track.start_s - part / true.track.rate_hz)
        wrong = Lock("search", fit(short, Sampled(HOPPER_SENSOR, late), readings, fit_place=False))
        again = rephased(wrong, readings)
        assert again.search == "search"
        assert again.fit.residual_rms_w < 0.4 < 2.0 < wrong.fit.residual_rms_w
    good = Lock("search", fit(short, true, readings))
    assert rephased(good, readings).fit.residual_rms_w <= good.fit.residual_rms_w


@pytest.mark.parametrize("delay_s", [-3e-3, 0.0, 5e-3])
def test_a_mean_is_as_late_as_leaves_least_within_two_standard_deviations(delay_s):
    activity = timeline(6.0).whole()
    above = (WATTS - 120.0)[activity.column]
    time = np.arange(activity.begin_s + 0.2, activity.finish_s - 0.01, 0.02)
    first, last = activity.integral(np.concatenate([time - 0.02, time]) - 1e-3 - delay_s, above).reshape(2, -1)
    watts = 120.0 + (last - first) / 0.02 + 0.3 * np.random.default_rng(1).normal(size=len(time))
    sensor = Means(0.02, delay_s=1e-3, delay_spread_s=2.5e-3, stretch_spread=1e-4)
    found = _delayed(activity, sensor, taken(time, watts))
    assert isinstance(found.observer, Averaged)
    assert found.observer.delay_s == pytest.approx(1e-3 + delay_s, abs=0.05e-3)
    assert found.residual_rms_w < 0.4


@pytest.mark.parametrize(("window_s", "step_s"), [(0.1, 1.25e-3), (0.01, 1e-3)])
def test_delays_of_means_are_tried_as_close_as_kernels_follow_each_other(monkeypatch, window_s, step_s):
    """In steps of half a standard deviation, or of a tenth of the window, up to two deviations to either side."""
    tried = []

    def fitted(activity, observer, readings, fit_place=True):
        tried.append((observer.delay_s, fit_place))
        return SimpleNamespace(observer=observer, residual_rms_w=abs(observer.delay_s - 4.1e-3))

    monkeypatch.setattr(locking, "fit", fitted)
    found = _delayed(None, Means(window_s, delay_s=3e-3, delay_spread_s=2.5e-3), None)
    *places, last = tried
    delays = 3e-3 + step_s * np.arange(-round(5e-3 / step_s), round(5e-3 / step_s) + 1)
    assert [delay for delay, _ in places] == pytest.approx(delays)
    assert not any(place for _, place in places)
    assert last == (found.observer.delay_s, True)
    assert last[0] == pytest.approx(3e-3 + step_s)


@pytest.fixture(scope="module")
def long():
    activity = timeline(9.0)
    return activity, *sampled(activity, HOPPER_SENSOR)


SEARCHED = replace(HOPPER_SENSOR, rates_hz=(1224.0, 1226.0))


@pytest.fixture
def sixteen(monkeypatch):
    monkeypatch.setattr(locking, "AVERAGES", ())


@pytest.mark.usefixtures("sixteen")
def test_a_recording_is_locked_from_nothing_but_the_range_of_rates(long):
    activity, _, readings = long
    known = Attempts()
    found = lock(activity, SEARCHED, readings, earlier=known)
    assert found.search.rate_hz == pytest.approx(1225.0, abs=0.1)
    assert found.fit.residual_rms_w < 0.4
    assert found.fit.power_w == pytest.approx([*WATTS, 120.0], abs=3.0)
    assert np.mean(found.fit.observer.track.rates_hz()) == pytest.approx(1225.0, abs=0.02)
    # the same place by another range is not fitted again
    again = lock(activity, replace(SEARCHED, rates_hz=(1223.7, 1226.3)), readings, earlier=known)
    assert again.fit is found.fit
    assert len(known.locks) == 1


def test_another_average_is_taken_if_it_leaves_a_twentieth_less(long, monkeypatch):
    activity, true, readings = long
    monkeypatch.setattr(locking, "AVERAGES", (8,))
    by = {
        "better": fit(activity, true, readings),
        "nominal": fit(activity, replace(true, sensor=replace(HOPPER_SENSOR, averages=8)), readings),
    }
    for ratio, averages in ((0.94, 8), (0.96, 16)):
        one, other = (
            replace(by[name], residual_w=np.full(3, size)) for name, size in (("better", 1.0), ("nominal", ratio))
        )

        def followed(activity, best, readings, rate_hz, one=one, other=other):
            return one if best.observer.sensor.averages == 16 else other

        monkeypatch.setattr(locking, "_averagings", lambda *_: list(by.values()))
        monkeypatch.setattr(locking, "_followed", followed)
        assert lock(activity, SEARCHED, readings).fit.observer.sensor.averages == averages
