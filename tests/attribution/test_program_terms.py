"""Terms of the model of a program with a timeline, one by one: without it, its test fails."""

from dataclasses import replace

import numpy as np
import pytest

from jouletrace.attribution import Kind, Prior, Sampled, activity_of, attribute_program
from jouletrace.sensor import HOPPER_SENSOR, SampleResponse, SampleTimes
from simulated_sampler import IDLE_W, Load

POINT = SampleResponse(0.0, np.ones(1))
NAMES = [Kind(name) for name in "ABCD"]


class Program:
    """Kernels one after the other, each of its kind, length and power above idle, and their readings."""

    def __init__(self, rng, kind, run_s, watts, names=NAMES, pause_s=2e-6, pause_w=0.0, **recorded):
        parts = [np.broadcast_to(one, len(kind)) for one in (run_s, pause_s, watts, pause_w)]
        self.load = Load(np.stack(parts[:2], axis=1).ravel(), np.stack(parts[2:], axis=1).ravel())
        edge_ns = np.rint(1e9 * self.load.edge_s).astype(np.int64)
        self.kind, self.kinds = kind, int(max(kind)) + 1
        self.activity = activity_of(edge_ns[:-1:2], edge_ns[1::2], kind, names[: self.kinds], 0)
        self.times_s, self.values_w, self.response = self.load.record(rng, **recorded)

    def true_j(self, spans=()):
        """Energies of spans, then of kinds."""
        each = (self.load.watts[::2] + IDLE_W) * np.diff(self.load.edge_s)[::2]
        return np.append([self.load.energy(*span) for span in spans], np.bincount(self.kind, each, self.kinds))

    def starts(self, each):
        """Start of every so many kernels."""
        return self.load.edge_s[:-1:2][::each]

    def sampled(self, sample=POINT):
        """The sensor with the times of its samples."""
        sensor = replace(HOPPER_SENSOR, response=sample, delay_s=self.response.delay_s)
        rate, begin = 1 / np.diff(self.load.sample_s[:2])[0], self.activity.begin_s
        return Sampled(sensor, SampleTimes.straight(begin, self.activity.finish_s, rate, self.load.sample_s[0]))

    def rows(self, spans=(), some=slice(None), **given):
        """The estimate from some of the readings."""
        given.setdefault("response", self.response)
        return attribute_program(self.times_s[some], self.values_w[some], spans, self.activity, **given)

    def found(self, spans=(), some=slice(None), **given):
        """Means and half-widths over the true energies, and which intervals hold: of spans, then of kinds."""
        mean, low, high = self.rows(spans, some, **given).energies.interval()
        true_j = self.true_j(spans)
        return mean / true_j, (high - low) / 2 / true_j, (low <= true_j) & (true_j <= high)


def mixed(rng, count, watts, block=1, run_s=1e-3, scatter=0.0, **more):
    """Kinds at random, in blocks, of lengths that differ; ``scatter`` of power between calls."""
    kind = np.repeat(rng.integers(0, len(watts), count // block), block)
    above = np.array(watts)[kind] * (1 + scatter * rng.standard_normal(count))
    return Program(rng, kind, run_s * rng.uniform(0.5, 1.5, count), above, **more)


@pytest.mark.thorough
def test_power_that_goes_with_the_clock_is_known_within_short_spans():
    """Over 0.25 s the clock swings by 6 %, and power by 18 %; the samples' times are known, or not."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 1500)
    usual_s = np.array([1.5e-3, 1e-3, 0.7e-3])[kind]
    slow = 0.06 * np.sin(2 * np.pi * np.cumsum(usual_s) / 0.25)
    program = Program(rng, kind, usual_s * np.exp(slow), np.array([400.0, 300.0, 200.0])[kind] * np.exp(-3 * slow))
    begin = np.arange(0.45, program.activity.finish_s - 0.1, 0.02)
    spans = np.stack([begin, begin + 0.01], axis=1)
    inside = program.times_s < program.activity.finish_s
    for sampled in (None, program.sampled()):
        _, half, holds = program.found(spans, inside, sampled=sampled)
        assert holds[:-3].mean() > 0.9
        assert np.median(half[:-3]) < 0.03


@pytest.mark.thorough
def test_heads_of_long_kernels_draw_another_power():
    """Kind A draws 700 W for its first 40 us and then 300 W: 400 W more where its kernels are short than elsewhere."""
    rng = np.random.default_rng(0)
    sort = rng.integers(0, 3, 150)  # long ones of A, short ones of A, B: 5 ms each
    each = np.repeat(sort, np.array([4, 36, 5])[sort])
    run_s = np.array([1.2e-3, 0.13e-3, 1e-3])[each]
    head_s = np.minimum(40e-6, run_s / 3)
    seconds = np.stack([head_s, run_s - head_s, np.full(len(each), 2e-6)], axis=1)
    watts = np.stack([np.where(each < 2, 700.0, 400.0), np.where(each < 2, 300.0, 400.0), 0 * run_s], axis=1)
    load = Load(seconds.ravel(), watts.ravel())
    edge_ns = np.rint(1e9 * load.edge_s).astype(np.int64)
    activity = activity_of(edge_ns[:-1:3], edge_ns[2::3], (each == 2).astype(int), NAMES[:2], 0)
    edge_s = np.append(load.edge_s[:-1:3][np.flatnonzero(np.diff(each, prepend=-1))], load.edge_s[-1])
    spans, which = np.stack([edge_s[:-1], edge_s[1:]], axis=1), each[np.flatnonzero(np.diff(each, prepend=-1))]
    times_s, values_w, response = load.record(rng)
    rows = attribute_program(times_s, values_w, spans, activity, response=response)
    sums = np.pad(np.eye(3)[which].T, [(0, 0), (0, 2)])
    mean, low, high = rows.energies.interval(sums)
    true_j = sums[:, :-2] @ [load.energy(*span) for span in spans]
    assert ((low <= true_j) & (true_j <= high)).all()
    np.testing.assert_allclose(mean, true_j, rtol=0.03)


def test_repeats_draw_almost_the_power_of_their_kernel():
    """Five calls among a thousand show little of their own; what the prior allows, 3.5 % of 400 W, is their ±."""
    rng = np.random.default_rng(0)
    kind = np.where(rng.random(1000) < 0.5, 0, 2)
    kind[100::200] = 1
    names = [Kind("A"), Kind("A", repeat=True), Kind("B")]
    power_w = np.array([400.0, 390.0, 200.0])[kind]
    program = Program(rng, kind, 1e-3 * rng.uniform(0.5, 1.5, 1000), power_w, names)
    _, half, holds = program.found()
    assert holds[1]
    assert half[1] < 0.12
    assert program.found(prior=Prior(repeats=0.1))[1][1] > 1.3 * half[1]


def test_kernels_that_overlap_share_energy_and_time_equally():
    rng = np.random.default_rng(5)
    sort = rng.integers(0, 3, 200)  # A alone, B alone, both: 5 ms each
    load = Load(np.full(200, 5e-3), np.array([300.0, 200.0, 450.0])[sort])
    place, kind = np.nonzero(np.array([[1, 0], [0, 1], [1, 1]])[sort])
    start_ns = np.rint(1e9 * load.edge_s[place]).astype(np.int64)
    activity = activity_of(start_ns, start_ns + 5_000_000, kind, NAMES[:2], 0)
    times_s, values_w, response = load.record(rng)
    rows = attribute_program(times_s, values_w, (), activity, response=response)
    alone, both = np.bincount(sort, minlength=3)[:2], np.count_nonzero(sort == 2)
    true_j = 5e-3 * (alone * (np.array([300.0, 200.0]) + IDLE_W) + both * (450.0 + IDLE_W) / 2)
    mean, low, high = rows.energies.interval()
    np.testing.assert_allclose(rows.seconds, 5e-3 * (alone + both / 2), rtol=1e-6)
    assert ((low <= true_j) & (true_j <= high)).all()
    np.testing.assert_allclose(mean, true_j, rtol=0.05)
    alone_j, both_j = Prior().power_w[1] * 5e-3 * alone, Prior().power_w[1] * 5e-3 * both / 2
    np.testing.assert_allclose(rows.before, np.diag(alone_j**2) + both_j**2, rtol=1e-3)


def test_a_kind_that_overlaps_itself_has_all_of_its_energy():
    load = Load(np.full(3, 0.2), np.array([300.0, 400.0, 300.0]))
    start_ns, end_ns = (np.rint(1e9 * load.edge_s[list(places)]).astype(np.int64) for places in ((0, 1), (2, 3)))
    activity = activity_of(start_ns, end_ns, np.zeros(2, np.int64), NAMES[:1], 0)
    times_s, values_w, response = load.record(np.random.default_rng(5))
    rows = attribute_program(times_s, values_w, [load.span], activity, response=response)
    np.testing.assert_allclose(rows.seconds, 0.6, rtol=1e-6)
    whole_j, kind_j = rows.energies.interval()[0]
    assert abs(kind_j - whole_j) < 0.03 * whole_j


def test_what_is_off_in_the_delay_is_determined():
    """Short spans are known well although the delay is off by two standard deviations, 1.5 ms."""
    rng = np.random.default_rng(0)
    program = mixed(rng, 1200, [500.0, 300.0, 100.0], block=20)
    starts = program.starts(20)
    late = replace(program.response, delay_s=program.response.delay_s + 0.0015, delay_sd_s=0.0008)
    _, half, holds = program.found(np.stack([starts[:-1], starts[1:]], axis=1)[::5], response=late)
    assert holds.mean() > 0.85
    assert np.median(half[:-3]) < 0.02


def test_what_is_off_in_the_memory_is_determined():
    rng = np.random.default_rng(1)
    program = mixed(rng, 1200, [500.0, 300.0, 100.0], block=20)
    starts = program.starts(20)
    wide = replace(program.response.widened(1.1), width_sd=0.05)
    mean, half, holds = program.found(np.stack([starts[:-1], starts[1:]], axis=1)[::5], response=wide)
    assert holds.mean() > 0.85
    np.testing.assert_allclose(mean[-3:], 1, atol=0.01)
    assert np.median(half[:-3]) < 0.02


def test_the_memory_of_a_sampler_whose_samples_are_known_is_determined():
    """The sensor averages over 18 samples and is taken to do so over 16: without that term 20 ms are known to 4 %."""
    rng = np.random.default_rng(0)
    program = mixed(rng, 1200, [500.0, 300.0, 100.0], block=20, averages=18)
    rate = 1 / np.diff(program.load.sample_s[:2])[0]
    wide = replace(program.response, rise_s=-1 / (rate * np.log1p(-1 / 16)), weight=1 / 16, width_sd=0.1)
    starts, some = program.starts(20), program.times_s < program.activity.finish_s
    spans = np.stack([starts[:-1], starts[1:]], axis=1)[::5]
    mean, half, holds = program.found(spans, some, response=wide, sampled=program.sampled())
    assert holds.mean() > 0.85
    np.testing.assert_allclose(mean, 1, atol=0.01)
    assert np.median(half[:-3]) < 0.01


@pytest.fixture(scope="module")
def smooth():
    """A program of short kernels, whose samples the sensor averages over 0.2 ms as an H100's does."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 6000)
    run_s = np.array([250e-6, 200e-6, 150e-6])[kind] * rng.uniform(0.8, 1.2, 6000)
    return Program(rng, kind, run_s, np.array([600.0, 350.0, 100.0])[kind], after_s=0.0, sample=HOPPER_SENSOR.response)


def test_what_is_off_in_the_samples_times_is_determined(smooth):
    sampled = smooth.sampled(HOPPER_SENSOR.response)
    shift_s = 4e-5 * (-1.0) ** np.arange(1, len(sampled.track.shift_s) + 1)
    bent = replace(sampled, track=replace(sampled.track, shift_s=shift_s))
    _, half, holds = smooth.found(some=smooth.times_s > smooth.activity.begin_s + 0.003, sampled=bent)
    assert holds.all()
    assert half[0] < 0.0125


def test_what_is_off_in_the_response_of_samples_is_determined(smooth):
    """A change that the readings speak against is undone: the prior is about the nominal response, not about it."""
    sampled, some = smooth.sampled(HOPPER_SENSOR.response), slice(None, None, 4)
    bins = np.arange(len(sampled.change))
    change = 0.02 * (np.exp(-(((bins - 15) / 5) ** 2)) - np.exp(-(((bins - 28) / 5) ** 2)))
    plain = smooth.rows(some=some, sampled=sampled).energies.interval()
    changed = smooth.rows(some=some, sampled=replace(sampled, change=change - change.mean())).energies.interval()
    np.testing.assert_allclose(changed[0], plain[0], atol=0.3 * (plain[2] - plain[0]).min())


def test_samples_before_the_program_count(smooth):
    """The first readings show samples that were taken before the first kernel, at times that the track doesn't have."""
    _, half, holds = smooth.found(some=slice(40), sampled=smooth.sampled(HOPPER_SENSOR.response))
    assert holds.all()
    assert half[0] < 0.02


def test_known_samples_have_their_own_delay(smooth):
    sampled, some = smooth.sampled(HOPPER_SENSOR.response), slice(None, None, 4)
    late = replace(smooth.response, delay_s=smooth.response.delay_s + 0.005)
    plain = smooth.rows(some=some, sampled=sampled)
    found = smooth.rows(some=some, sampled=sampled, response=late)
    np.testing.assert_allclose(found.energies.interval(), plain.energies.interval(), rtol=1e-9)


@pytest.mark.thorough
def test_single_calls_differ_by_the_spread_within_their_kind():
    rng = np.random.default_rng(0)
    program = mixed(rng, 240, [500.0, 300.0], run_s=4e-3, scatter=0.12)
    spans = program.load.edge_s[:-1].reshape(-1, 2)[::4]
    _, _, holds = program.found(spans)
    assert holds.mean() > 0.8
    wide, narrow = (program.found(spans, prior=Prior(spread=(size, 1.02)))[1] for size in (0.3, 0.03))
    assert np.median(wide[:-2] / narrow[:-2]) > 2  # and no size in between is left, whatever readings say


@pytest.mark.parametrize("pause_s", [2e-6, 1e-3])
@pytest.mark.parametrize("size", [0.0, 0.05])
def test_what_kernels_draw_at_one_time_and_at_another_is_measured(size, pause_s):
    """All kernels differ by 5 % above idle between intervals of some tenths of a second, or don't."""
    rng = np.random.default_rng(3)
    kind, stretch = rng.integers(0, 3, 8000), np.arange(8000) // 250
    above = np.array([500.0, 400.0, 300.0])[kind] * (1 + size * np.where(stretch % 2, 1, -1))
    program = Program(rng, kind, 1e-3 * rng.uniform(0.5, 1.5, 8000), above, pause_s=pause_s)
    drawn = size * 400 / (400 + IDLE_W)
    assert program.rows(sampled=program.sampled()).varies == pytest.approx(drawn, rel=0.2, abs=0.005)


def test_idle_power_that_is_not_as_before_is_no_difference_of_kernels():
    """By 8 W: in each second in which kernels run for a sixth of the time they would seem to draw 48 W less."""
    rng = np.random.default_rng(4)
    kind, pause_s = rng.integers(0, 3, 4000), np.where(np.arange(4000) < 1000, 5e-3, 2e-6)
    program = Program(rng, kind, 1e-3, np.array([500.0, 400.0, 300.0])[kind], pause_s=pause_s)
    prior = Prior(known_idle_w=(IDLE_W + 8, 6.0))
    assert program.rows(sampled=program.sampled(), prior=prior).varies < 0.01


def test_idle_time_that_draws_more_for_a_while_is_no_difference_of_kernels():
    """By 8 W for some seconds of the recording's start, in which kernels run for a twentieth of the time."""
    rng = np.random.default_rng(4)
    kind, number = rng.integers(0, 3, 3000), np.arange(3000)
    pauses = {"pause_s": np.where(number < 500, 2e-2, 2e-6), "pause_w": np.where(number < 250, 8.0, 0.0)}
    program = Program(rng, kind, 1e-3, np.array([500.0, 400.0, 300.0])[kind], **pauses)
    assert program.rows(sampled=program.sampled()).varies < 0.02


def test_a_clock_that_swings_makes_kernels_differ():
    """By 6 % over 2 s, and their power above idle by 18 %."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 6000)
    usual_s = np.array([1.5e-3, 1e-3, 0.7e-3])[kind]
    slow = 0.06 * np.sin(np.pi * np.cumsum(usual_s))
    above = np.array([400.0, 300.0, 200.0])[kind] * np.exp(-3 * slow)
    program = Program(rng, kind, usual_s * np.exp(slow), above)
    drawn = 0.18 / np.sqrt(2) * np.average(above, weights=usual_s) / (np.average(above, weights=usual_s) + IDLE_W)
    assert program.rows(sampled=program.sampled()).varies == pytest.approx(drawn, rel=0.2)


def test_how_kernels_differ_each_by_itself_is_measured():
    """Of 12 % of their power above idle: the variance of a second is its square times the length of a kernel."""
    program = mixed(np.random.default_rng(0), 4000, [500.0, 300.0], run_s=4e-3, scatter=0.12)
    variance = (0.12 * np.array([500.0, 300.0])) ** 2 * 4e-3
    assert program.rows().scatter == pytest.approx(variance, rel=0.4)


def test_idle_power_between_kernels_is_near_that_before():
    """Kernels and pauses of 1 ms: readings show the sum of both, and what idle power may be decides between them."""
    rng = np.random.default_rng(1)
    program = Program(rng, np.zeros(1000, np.int64), 1e-3, 300.0, pause_s=1e-3, pause_w=4.0)
    _, half, holds = program.found()
    assert holds.all()
    assert half[0] < 0.05


@pytest.mark.thorough
def test_a_kind_whose_power_changes_is_known_as_well_as_parts_of_the_recording_agree():
    """By 15 % between ten parts of the recording: its mean is known to 15 % over the square root of ten, by 1.96."""
    half = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        kind, stretch = rng.integers(0, 4, 1500), np.arange(1500) // 150
        above = np.array([500.0, 360.0, 200.0, 100.0])[kind] * (1 + 0.15 * rng.standard_normal((10, 4))[stretch, kind])
        half.append(Program(rng, kind, 1e-3 * rng.uniform(0.5, 1.5, 1500), above).found()[1][0])
    assert 0.055 < np.mean(half) < 0.12


def test_finer_cuts_change_nothing():
    """Edges of further spans cut time between readings, where kernels are missed and differ from each other."""
    program = mixed(np.random.default_rng(2), 12000, [500.0, 100.0], run_s=8e-5, scatter=0.3)
    span, prior = [0.6, 0.9], Prior(spread=(0.3, 1.02), slow=((1e-3, 0.0, 1.0),))
    edge_s = np.linspace(0.5, 1.2, 200)
    fine = np.vstack([[span], np.stack([edge_s[:-1], edge_s[1:]], axis=1)])
    plain, cut = program.found([span], prior=prior)[1], program.found(fine, prior=prior)[1]
    np.testing.assert_allclose(cut[[0, -2, -1]], plain, rtol=0.06)
