"""Each term of a window's uncertainty by itself: without it the interval would be narrower than it must be."""

from dataclasses import replace

import numpy as np
import pytest

from energy_signals import Load, Sensor, bursts, ns
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.power_record import clean
from jouletrace.sensor.windows import posterior
from jouletrace.sensor.windows.energy import T95, window_energy
from jouletrace.sensor.windows.neighbourhoods import Neighbourhoods
from jouletrace.sensor.windows.posterior import Posterior, Problems, Target, solve
from jouletrace.sensor.windows.repeated import _regress, _why_not, repeated_energy
from jouletrace.sensor.windows.segments import UNSEEN_SHARE, edge_variance, stretches, sum_rate

KNOWN = StepResponse(0.02, 0.025, origin="calibrated", noise_w=0.3, wander_relative=0.02)


def measured(response, length=0.2):
    """Windows of five bursts."""
    stamps, power, start, end, _ = bursts("h100", 3, length, 5)
    return window_energy(clean(stamps, power), response, ns(start), ns(end))


# --- of a window -------------------------------------------------------------------------------------


def test_an_interval_is_of_both_parts_by_the_t_of_twenty():
    unsure = replace(KNOWN, covariance=((0, 0, 0), (0, 0.004**2, 0), (0, 0, 0)))
    found = measured(unsure)
    sd = np.hypot(found.sd_statistical_j, found.sd_model_j)
    assert found.sd_model_j.min() > 0.1 * found.sd_statistical_j.max()
    assert found.high_j - found.energy_j == pytest.approx(T95 * sd)
    assert found.energy_j - found.low_j == pytest.approx(T95 * sd)


def test_uncertainties_of_the_responses_parameters_add_in_quadrature():
    lag, window = np.diag([0.002**2, 0.0, 0.0]), np.diag([0.0, 0.004**2, 0.0])
    one, other, both = (
        measured(replace(KNOWN, covariance=tuple(map(tuple, some)))).sd_model_j for some in (lag, window, lag + window)
    )
    assert min(one.min(), other.min()) > 0.05 * both.max()
    assert both == pytest.approx(np.hypot(one, other), rel=0.01)


def test_a_delay_that_is_off_by_its_standard_deviation_moves_energies_by_theirs():
    unsure = replace(KNOWN, covariance=((0.001**2, 0, 0), (0, 0, 0), (0, 0, 0)))
    moved = measured(replace(KNOWN, lag_s=0.001)).energy_j - measured(KNOWN).energy_j
    assert measured(unsure).sd_model_j == pytest.approx(np.abs(moved), rel=0.05)


@pytest.mark.parametrize(("length", "least"), [(0.2, 1.05), (2.0, 1.001)])
@pytest.mark.parametrize(
    "worse", [{"noise_w": 30.0}, {"noise_relative": 0.08}, {"jitter_s": 0.008}, {"misfit_relative": 0.1}], ids=str
)
def test_whatever_is_not_known_of_a_reading_widens_its_windows(worse, length, least):
    plain, doubted = measured(KNOWN, length), measured(replace(KNOWN, **worse), length)
    assert np.all(doubted.sd_statistical_j > least * plain.sd_statistical_j)


# --- inside of a long window, and at its ends --------------------------------------------------------


def quiet(response, watts=300.0, edges=(), noise=0.0, seconds=20.0):
    """Segments of a record with the given levels between edges; ``noise`` in watts is that of the readings."""
    time = np.arange(0.0, seconds, response.period_s)
    levels = np.broadcast_to(watts, len(edges) + 1)
    power = levels[np.searchsorted(edges, time)] + noise * np.random.default_rng(0).normal(size=len(time))
    return time, power, stretches(time, power, np.array(edges, float), response)


def test_a_long_sum_has_the_noise_of_its_readings():
    response = replace(KNOWN, noise_w=5.0, wander_relative=0.0)
    _, _, between = quiet(response)
    assert between.sum_variance(np.array([2.0]), np.array([12.0])) == pytest.approx([25.0 * 0.02 * 10], rel=1e-6)


def test_a_long_sum_has_the_fluctuation_that_falls_between_its_readings():
    response = replace(KNOWN, noise_w=0.0, wander_relative=0.05, window_s=0.002)
    time, _, between = quiet(response, noise=3.0)
    assert sum_rate(time, response) > 0
    unseen = between.unseen_w[0] ** 2 * response.period_s
    assert between.rate[0] == pytest.approx(between.wander_w[0] ** 2 * sum_rate(time, response) + unseen)
    assert between.wander_w[0] > 2.0


def test_a_fluctuation_beyond_what_calibration_saw_is_in_part_unseen():
    response = replace(KNOWN, noise_w=0.0, wander_relative=0.001)
    _, _, between = quiet(response, noise=20.0)
    calm = 2 * 0.001 * between.level_w[0]
    assert between.unseen_w[0] ** 2 == pytest.approx(UNSEEN_SHARE * (between.wander_w[0] ** 2 - calm**2))
    assert between.unseen_w[0] > 5.0


def test_a_nominal_fluctuation_hides_less_of_what_is_unseen_than_a_calibrated_one():
    """Bursts of 3 s at the power cap of an H200 that wasn't calibrated: 19 of 20 covered in place of 16."""
    response = replace(KNOWN, noise_w=0.0, wander_relative=0.02)
    _, _, calibrated = quiet(response, noise=12.0)
    _, _, nominal = quiet(replace(response, origin="nominal"), noise=12.0)
    assert nominal.wander_w == pytest.approx(calibrated.wander_w)
    gained = nominal.unseen_w[0] ** 2 - calibrated.unseen_w[0] ** 2
    assert gained == pytest.approx(UNSEEN_SHARE * 3 * (0.02 * nominal.level_w[0]) ** 2, rel=0.01)


def test_jumps_inside_of_a_long_sum_are_mistimed():
    response = replace(KNOWN, noise_w=0.0, wander_relative=0.0)
    _, _, between = quiet(response, watts=[100.0, 500.0, 100.0], edges=(5.0, 10.0))
    one, two = (between.sum_variance(np.array([1.0]), np.array([end]))[0] for end in (7.0, 12.0))
    assert one == pytest.approx(400.0**2 * edge_variance(response), rel=1e-3)
    assert two == pytest.approx(2 * one, rel=1e-3)


def test_a_long_window_is_as_uncertain_as_both_ends_and_what_lies_between(monkeypatch):
    time, power, between = quiet(KNOWN, edges=(5.0, 15.0))
    near = Neighbourhoods(time, np.zeros(len(time)), power, between, KNOWN)
    ends = iter([4.0, 9.0])

    def missed(edge, start, end):
        one = np.ones(1)
        return Posterior(one, next(ends) * one, one, one), np.zeros(1, bool)

    monkeypatch.setattr(near, "_missed", missed)
    monkeypatch.setattr(type(between), "sum_variance", lambda *_: np.array([16.0]))
    found, _ = near.ends(np.array([5.0]), np.array([15.0]))
    assert found.variance == pytest.approx([29.0])
    assert found.mean == pytest.approx(near.plain_sum(np.array([5.0]), np.array([15.0])) + 2.0)


def test_readings_around_an_edge_have_every_kind_of_doubt():
    """Noise, fluctuation that they don't follow, times that aren't known, and what the shape gets wrong of a jump."""
    response = replace(KNOWN, noise_w=3.0, misfit_relative=0.02)
    time, power, between = quiet(response, watts=[100.0, 500.0], edges=(5.0,))
    between = replace(between, unseen_w=np.full(2, 4.0))
    near = Neighbourhoods(time, np.full(len(time), 0.002), power, between, response)
    at = int(np.searchsorted(time, 5.0))
    mistimed = 0.002 / 0.02 * np.gradient(power)[at]
    assert near.noise[at] == pytest.approx(np.sqrt(3.0**2 + mistimed**2 + (0.02 * 400.0) ** 2 + 4.0**2), rel=1e-3)


# --- near an edge ------------------------------------------------------------------------------------


def problem(wander_w=10.0, noise_w=1.0):
    """One burst whose ends lie within readings of 20 ms."""
    response = replace(KNOWN, window_s=0.02)
    time = np.arange(0.02, 0.42, 0.02)[None]
    start, end = 0.107, 0.193
    power = 100 + 400 * (response.step(time - start) - response.step(time - end))
    problems = Problems(
        left_s=np.array([-0.06]),
        bin_s=0.005,
        bins=100,
        time_s=time,
        power_w=power,
        noise_w=np.full(time.shape, noise_w),
        change_w=np.gradient(power, axis=1),
        edge_s=np.array([[start, end]]),
        jump_w=np.array([[400.0, -400.0]]),
        wander_w=np.full((1, 100), wander_w),
        tau_s=0.06,
        scale_w=np.array([1000.0]),
    )
    return problems, response, Target(np.array([start]), np.array([end]), np.zeros(time.shape))


def test_what_scatters_more_than_chance_allows_is_widened_by_how_much(monkeypatch):
    """Birge's ratio, once a larger fluctuation and later stamps have been tried."""
    problems, response, target = problem()
    tried = []

    def misfits(problems, response, target):
        tried.append((float(problems.wander_w[0, 0]), problems.noise_w.copy()))
        one = np.ones(1)
        return Posterior(50.0 * one, 4.0 * one, 7.0 * one, 7.0 * one)

    monkeypatch.setattr(posterior, "_solve", misfits)
    found = solve(problems, response, target)
    assert found.variance == pytest.approx([28.0])
    assert (found.misfit[0], found.strain[0]) == (7.0, 7.0)
    assert [wander for wander, _ in tried] == [10.0, 30.0, 90.0]
    first = np.hypot(problems.noise_w, 0.1 * problems.change_w)
    assert tried[1][1] == pytest.approx(first)
    assert tried[2][1] == pytest.approx(np.hypot(first, 0.3 * problems.change_w))


@pytest.mark.parametrize(("misfit", "variance"), [(1.5, 4.0), (2.0, 4.0), (2.1, 8.4)])
def test_what_scatters_up_to_twice_as_much_as_it_should_is_left_as_it_is(monkeypatch, misfit, variance):
    one = np.ones(1)
    monkeypatch.setattr(posterior, "_solve", lambda *_: Posterior(50.0 * one, 4.0 * one, misfit * one, misfit * one))
    assert solve(*problem()).variance == pytest.approx([variance])


def drawn(problems, response, target, size, draws=20_000):
    """Mean, and standard deviation of its error, of the energy of loads drawn from the model, settlings of one size.

    Best linear estimates from the draws: nothing of the posterior's own algebra is used.
    """
    rng = np.random.default_rng(2)
    bounds = problems.bounds()[0]
    middle = (bounds[1:] + bounds[:-1]) / 2
    share = posterior.kernels(problems, response)[0]
    apart = np.abs(middle[:, None] - middle)
    root = np.linalg.cholesky(np.exp(-apart / problems.tau_s) + 1e-9 * np.eye(len(middle)))
    wander = problems.wander_w[0] * (rng.normal(size=(draws, len(middle))) @ root.T)
    inside = np.diff(np.clip(bounds, target.start_s[0], target.end_s[0]))
    seen, energy = wander @ share.T, wander @ inside
    for edge, jump in zip(problems.edge_s[0], problems.jump_w[0], strict=True):
        height = problems.scale_w[0] * rng.normal(size=(draws, 1))
        shown = response.step(problems.time_s[0] - edge)
        seen = seen + height * shown
        energy = energy + height[:, 0] * max(target.end_s[0] - max(edge, target.start_s[0]), 0.0)
        for tau in posterior.SETTLE_S:
            settling = max(size * abs(jump), 1e-3) * rng.normal(size=(draws, 1))
            course = np.where(middle > edge, np.exp(-np.maximum(middle - edge, 0) / tau), 0.0)
            seen = seen + settling * (share @ course)
            energy = energy + settling[:, 0] * float(course @ inside)
    level = problems.scale_w[0] * rng.normal(size=(draws, 1))
    energy = energy + level[:, 0] * inside.sum() - (seen + level) @ target.less_s[0]
    seen = seen + level + problems.noise_w[0] * rng.normal(size=seen.shape)
    best, *_ = np.linalg.lstsq(seen, energy, rcond=None)
    return float(problems.power_w[0] @ best), float(np.std(energy - seen @ best))


@pytest.mark.parametrize(("wander_w", "noise_w"), [(10.0, 1.0), (1.0, 20.0), (40.0, 5.0)])
@pytest.mark.parametrize("less_s", [0.0, 0.01])
def test_the_posterior_is_the_best_estimate_of_loads_drawn_from_its_model_and_as_uncertain(
    monkeypatch, wander_w, noise_w, less_s
):
    monkeypatch.setattr(posterior, "SETTLE_SIZES", (0.03,))
    problems, response, target = problem(wander_w, noise_w)
    target = replace(target, less_s=np.where(np.arange(20) < 8, less_s, 0.0)[None])
    found = posterior._solve(problems, response, target)
    mean, sd = drawn(problems, response, target, 0.03)
    assert np.sqrt(found.variance[0]) == pytest.approx(sd, rel=0.05)
    assert found.mean[0] == pytest.approx(mean, abs=0.2 * sd)


def conditioned(problems, response, target, sizes):
    """Mean, variance and misfit of the first neighbourhood: the joint Gaussian of readings and energy, conditioned.

    The likelihood of the readings weighs the sizes that a settling may have.
    """
    real, known = np.isfinite(problems.noise_w[0]), np.isfinite(problems.edge_s[0])
    time, edges, less = problems.time_s[0, real], problems.edge_s[0, known], target.less_s[0, real]
    start, end, bounds = float(target.start_s[0]), float(target.end_s[0]), problems.bounds()[0]
    share = response.step(time[:, None] - bounds)
    share[:, 0], share[:, -1] = 1.0, 0.0
    share = share[:, :-1] - share[:, 1:]
    seen, energy = [np.ones(len(time))], [end - start]
    for edge in edges:
        seen.append(response.step(time - edge))
        energy.append(max(end - edge, 0.0) - max(start - edge, 0.0))
    for tau in posterior.SETTLE_S:
        for edge in edges:
            until = tau * (1 - np.exp(-np.maximum(bounds - edge, 0.0) / tau))  # integral of the settling
            seen.append(share @ (np.diff(until) / problems.bin_s))
            first, last = (tau * (1 - np.exp(-max(t - edge, 0.0) / tau)) for t in (start, end))
            energy.append(last - first)
    seen, inside = np.array(seen).T, np.diff(np.clip(bounds, start, end)) - less @ share
    energy = np.array(energy) - less @ seen
    place = problems.bin_s * np.arange(problems.bins)
    wander = np.outer(problems.wander_w[0], problems.wander_w[0])
    wander *= np.exp(-np.abs(place[:, None] - place) / problems.tau_s)
    base = problems.power_w[0].mean()
    y = problems.power_w[0, real] - base
    found = []
    for size in sizes:
        settle = np.maximum(size * np.abs(problems.jump_w[0, known]), 1e-3)
        prior = np.concatenate([np.full(1 + len(edges), problems.scale_w[0]), settle, settle]) ** 2
        covariance = (seen * prior) @ seen.T + share @ wander @ share.T + np.diag(problems.noise_w[0, real] ** 2)
        both = seen @ (prior * energy) + share @ wander @ inside
        gain = np.linalg.solve(covariance, both)
        own = energy @ (prior * energy) + inside @ wander @ inside
        chi2 = y @ np.linalg.solve(covariance, y)
        likelihood = -0.5 * (chi2 + np.linalg.slogdet(covariance)[1])
        found.append((base * energy[0] + gain @ y, own - gain @ both, chi2 / (real.sum() - 1 - len(edges)), likelihood))
    mean, variance, misfit, likelihood = np.array(found).T
    weight = np.exp(likelihood - likelihood.max())
    weight /= weight.sum()
    middle = weight @ mean
    return middle, weight @ (variance + (mean - middle) ** 2), weight @ misfit


@pytest.mark.parametrize(("wander_w", "noise_w"), [(10.0, 1.0), (1.0, 20.0), (40.0, 5.0)])
@pytest.mark.parametrize("less_s", [0.0, 0.013])
def test_the_posterior_is_the_joint_gaussian_of_readings_and_energy_conditioned(wander_w, noise_w, less_s):
    """Readings fluctuate, the last is none, and the fluctuation grows with the bins; one edge is none."""
    problems, response, target = problem(wander_w, noise_w)
    response = replace(response, rise_s=0.004, lag_s=0.003)
    power = problems.power_w + noise_w * np.random.default_rng(3).normal(size=(1, 20))
    problems = replace(
        problems,
        power_w=power,
        noise_w=np.append(noise_w * np.linspace(0.8, 1.2, 19), np.inf)[None],
        edge_s=np.append(problems.edge_s, [[np.nan]], 1),
        jump_w=np.array([[390.0, -410.0, 0.0]]),
        wander_w=wander_w * np.linspace(0.5, 2.0, 100)[None],
    )
    less = np.where(np.arange(20) % 3 == 0, less_s, 0.0)[None]
    target = Target(target.start_s - 0.02, target.end_s + 0.03, less)
    found = posterior._solve(problems, response, target)
    mean, variance, misfit = conditioned(problems, response, target, posterior.SETTLE_SIZES)
    assert found.variance[0] == pytest.approx(variance, rel=1e-5)
    assert found.mean[0] == pytest.approx(mean, abs=1e-4 * np.sqrt(variance))
    assert found.misfit[0] == pytest.approx(misfit, rel=1e-5)


def test_what_hypotheses_of_settling_disagree_by_is_in_the_variance(monkeypatch):
    """A settling after the burst that readings can't distinguish from noise: with one and without, energies differ."""
    problems, response, target = problem(wander_w=1.0, noise_w=5.0)
    settling = 20.0 * np.exp(-np.maximum(problems.time_s - 0.193, 0) / 0.03) * (problems.time_s > 0.193)
    problems = replace(problems, power_w=problems.power_w + settling)

    def with_sizes(*sizes):
        monkeypatch.setattr(posterior, "SETTLE_SIZES", sizes)
        found = posterior._solve(problems, response, target)
        return found.mean[0], found.variance[0]

    (none, var_none), (some, var_some), (mean, variance) = with_sizes(0.0), with_sizes(0.1), with_sizes(0.0, 0.1)
    weight = (mean - none) / (some - none)
    assert 0.1 < weight < 0.9
    apart = weight * (1 - weight) * (some - none) ** 2
    assert variance == pytest.approx((1 - weight) * var_none + weight * var_some + apart, rel=1e-6)
    assert apart > 0.01 * variance


# --- of repeated windows -----------------------------------------------------------------------------


def repetitions(seed=0, count=60, relative=0.0, noise=0.3):
    rng = np.random.default_rng(seed)
    start = 2 + np.cumsum(rng.uniform(0.15, 0.4, count)) + 0.025 * np.arange(count)
    levels = np.tile([120.0, 500.0], count + 1)[: 2 * count + 1]
    load = Load(rng, start[-1] + 3, np.stack([start, start + 0.025], 1).ravel(), levels, relative=relative)
    record = clean(*Sensor(0.1, 0.025, noise=noise, relative=0.0).read(rng, load))
    return record, ns(start), ns(start + 0.025)


def test_the_response_is_in_the_interval_of_repeated_windows():
    sure = StepResponse(0.1, 0.025, origin="calibrated")
    unsure = replace(sure, covariance=((0, 0, 0), (0, 0.003**2, 0), (0, 0, 0)))
    record, start, end = repetitions()
    one, other, moved = (
        repeated_energy(record, response, start, end)[0] for response in (sure, unsure, replace(sure, window_s=0.028))
    )
    shift = 1.96 * abs(moved.value - one.value)
    assert shift > one.half_width
    assert other.half_width == pytest.approx(np.hypot(one.half_width, shift), rel=0.02)


def test_no_windows_are_one_kind_of_too_few():
    record, *_ = repetitions()
    assert [one.reason for one in repeated_energy(record, KNOWN, [], [])] == ["too_few_windows"]


def test_readings_that_follow_one_another_determine_a_level_less():
    """Each the mean of three draws, so that the mean of all varies three times as much as it would without."""
    draws = np.random.default_rng(6).normal(size=2002)
    power = np.convolve(draws, np.ones(3) / 3, mode="valid")
    _, covariance, _ = _regress(np.ones((2000, 1)), power)
    assert covariance[0, 0] > 2 * power.var() / 2000


def test_a_level_that_few_readings_determine_is_not_surer_for_fitting_them():
    """Four readings of a level, each of which pulls a quarter of the fit to itself (HC3)."""
    few = np.arange(3, 40, 10)
    design = np.column_stack([np.isin(np.arange(40), few), ~np.isin(np.arange(40), few)]).astype(float)
    power = 0.01 * np.random.default_rng(0).normal(size=40)
    power[few] = [2.0, -2.0, 1.0, -1.0]
    _, covariance, _ = _regress(design, power)
    assert covariance[0, 0] == pytest.approx(np.sum((power[few] / (1 - 1 / 4)) ** 2) / 4**2, rel=0.01)


def test_a_level_has_the_freedom_of_the_readings_that_saw_it():
    """Four saw it in full; of twenty that saw a tenth, each counts for a hundredth (Kish 1965)."""
    design = np.append(np.ones(4), np.full(20, 0.1))[:, None]
    power = 100 * design[:, 0] + np.random.default_rng(0).normal(size=24)
    _, _, free = _regress(design, power)
    assert free == pytest.approx([4.2**2 / (4 + 20 * 1e-4) - 1])
    assert _regress(np.ones((24, 1)), power)[2] == pytest.approx([23.0])


def test_a_covariance_is_that_of_residuals_enlarged_by_their_leverage_and_alike_over_four_readings():
    """HC3 with Bartlett's weights; of a level that one reading determines it is the ordinary variance."""
    rng = np.random.default_rng(7)
    design = np.column_stack([rng.uniform(size=(40, 2)), np.arange(40) == 11])
    power = design @ np.array([300.0, 100.0, 50.0]) + np.convolve(rng.normal(size=41), [1.0, 0.6], "valid")
    level, covariance, free = _regress(design, power)
    hat = design @ np.linalg.pinv(design)
    left = power - hat @ power
    off = left / np.where(np.arange(40) == 11, 0.1, 1 - np.diag(hat))
    place = np.arange(40)
    alike = np.clip(1 - np.abs(place[:, None] - place) / 5, 0, None)
    inverse = np.linalg.pinv(design)
    expected = inverse @ (np.outer(off, off) * alike) @ inverse.T
    ordinary = left @ left / 37 * np.diag(inverse @ inverse.T)
    grown = np.sqrt(np.maximum(ordinary / np.diag(expected), 1.0))
    assert grown[2] > 1.0 == grown[0]
    assert level == pytest.approx(inverse @ power)
    assert covariance == pytest.approx(expected * np.outer(grown, grown), rel=1e-6)
    assert free == pytest.approx(np.sum(inverse**2, 1) ** 2 / np.sum(inverse**4, 1) - 1)


def test_a_design_that_is_singular_or_has_two_readings_to_spare_determines_nothing():
    for design in (np.ones((40, 2)), np.eye(5, 3)):
        level, covariance, free = _regress(design, np.ones(len(design)))
        assert not level.any()
        assert np.isinf(covariance).all()
        assert free.tolist() == [1.0] * design.shape[1]
    assert np.isfinite(_regress(np.eye(6, 3) + 0.1, np.arange(6.0))[1]).all()


@pytest.mark.parametrize(("early_ns", "late_ns", "why"), [(0, 0, None), (1, 0, "no_samples"), (0, 1, "no_samples")])
def test_repeated_windows_may_take_all_of_a_record_and_no_more(early_ns, late_ns, why):
    at = ns(0.1 * np.arange(11))
    record = clean(at, np.full(11, 100.0), 0.1)
    assert _why_not(record, at[:-1] - early_ns, at[1:] + late_ns) == why


def test_what_was_before_a_neighbourhood_is_taken_to_be_as_its_first_bin():
    problems, response, _ = problem()
    early = replace(problems, time_s=problems.left_s[:, None] + np.array([[-0.1, 0.01, 0.2]]))
    weight = posterior.kernels(early, response)[0]
    assert weight.sum(axis=1) == pytest.approx(np.ones(3))
    assert weight.min() > -1e-9
    assert weight[0, 0] == 1.0
    # half of a window of 20 ms lies before the grid, a quarter in the first bin of 5 ms
    assert weight[1, :3] == pytest.approx([0.75, 0.25, 0.0])
    assert weight[2, :10] == pytest.approx(np.zeros(10))
