"""Mutants of formulas of uncertainties: where, what is changed into what, and which tests have to notice."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One change of the source.

    Attributes:
        path: Of the file, below ``src/jouletrace``.
        what: What is wrong then.
        old: Text that is there once.
        new: What it is changed into.
        tests: Which tests fail then: files, or tests of them, below ``tests``.
    """

    path: str
    what: str
    old: str
    new: str
    tests: list[str]


def _of(path: str, tests: list[str], *changes: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(path, what, old, new, tests) for what, old, new in changes]


MUTANTS = [
    *_of(
        "analysis/budget.py",
        ["analysis/test_budget.py"],
        ("offset of one GPU for several", "sensors * OFFSET_W * over", "OFFSET_W * over"),
        ("limits taken for deviations", "Term(source, limit / math.sqrt(3)", "Term(source, limit"),
        ("offset left in energy above idle", "over = 0.0", "over = seconds or 0.0"),
        ("deviations taken for limits", "[math.sqrt(3) * term.u for", "[term.u for"),
    ),
    *_of(
        "analysis/budget.py",
        ["report/test_absolute.py"],
        ("gain and offset left out of printed intervals", "(_expanded(half, terms) for half", "(half for half"),
        ("offset of a power taken over time", '1.0 if metric(name).unit == "W" else seconds', "seconds"),
        ("gain in what other sensors measured", "and name not in (*_OF_OTHERS, *OF_PARTS)", ""),
        ("gain of the host in that of the GPUs", "energy if name == GPUS_AND_HOST else figure.value", "figure.value"),
        (
            "offset of a part over all of the time",
            'if name != "energy_total_j" or seconds is None',
            "if seconds is None",
        ),
    ),
    *_of(
        "analysis/budget.py",
        ["analysis/test_meter.py"],
        ("covariance of a calibration dropped", "float(at @ covariance @ at)", "0.0"),
        ("scatter about the line dropped", " + scatter**2)", ")"),
        ("accuracy of the meter dropped", "abs(value) * pct / 100 / math.sqrt(3)", "0.0"),
        ("offset error of the meter dropped", "over * len(meters) * watts / math.sqrt(3)", "0.0"),
    ),
    *_of(
        "analysis/meter.py",
        ["analysis/test_meter.py"],
        ("error of the sensor's means dropped", "(beta[1] * ux) ** 2", "0"),
        ("error of the meter's means dropped", "uy**2 + (", "1e-9 + ("),
        ("few levels taken for many", "(student(0.975, df) / Z95) ** 2", "1"),
        ("scatter about the line dropped", "60 if fitted(0.0)[2] > df else 0", "0"),
        ("accuracy of the meter dropped", "accuracy.pct / 100 * w", "0.0"),
    ),
    *_of(
        "run/info.py",
        ["analysis/test_meter.py"],
        ("offset left out of figures", "self.gain * watts + self.offset_w", "self.gain * watts"),
        ("counter left as read", "self.gain * joules + self.offset_w * seconds", "joules"),
    ),
    *_of(
        "analysis/between_runs.py",
        ["analysis/test_between_runs.py"],
        ("scatter between runs dropped", "t = student(0.975, n - 1)", "t = 0.0"),
        ("normal quantile for few runs", "student(0.975, n - 1)", "1.96"),
        (
            "scatter of active energies from the active alone",
            'value("energy_total_j"), joules - idle_w',
            "value(metric), joules - idle_w",
        ),
        ("unsteady windows ignored", "OF_WINDOWS * _beyond(whole, values, block)", "0.0"),
        ("steady windows taken for unsteady", "(STEADY * whole) ** 2", "0.0"),
        ("work taken to scatter by nothing", 'share * value("energy_work_j")', "0.0"),
        ("throughput without windows taken for exact", "else share\n", "else 0.0\n"),
        ("active energies scatter as the total", "joules - idle_w * seconds, block", "joules, block"),
        ("power scatters as energy", "joules / seconds, block", "joules, block"),
    ),
    *_of(
        "analysis/beside.py",
        ["analysis/test_host_energy.py::test_a_counter_bounds_energy_however_late_it_is_read"],
        ("least of a host's counter taken for its mean", "joules[before[:, 1]] - joules[after[:, 0]]", "np.diff(at)"),
        ("most of a host's counter taken for its mean", "joules[after[:, 1]] - joules[before[:, 0]]", "np.diff(at)"),
    ),
    *_of(
        "analysis/beside.py",
        ["analysis/test_host_energy.py::test_a_record_of_some_of_the_time_leaves_the_rest_open"],
        ("time that a host's record lacks taken for known", "(1 - share) * (whole.value or 0.0)", "0.0"),
    ),
    *_of(
        "analysis/host.py",
        ["analysis/test_host.py"],
        (
            "what processes share dropped",
            "widened(mean, float(np.mean([figure.half_width or 0.0 for figure in each])))",
            "mean",
        ),
        ("withdrawn work stated", "if result.reason is not None:", "if False:"),
    ),
    *_of(
        "attribution/program.py",
        ["attribution/test_program_terms.py"],
        ("no jackknife", "blocks=BLOCKS", "blocks=0"),
        ("clock left out of readings", "[prior.clock * value_w, shown]", "[0 * value_w, shown]"),
        ("clock left out of energies", "wanted[:, 0] = prior.clock *", "wanted[:, 0] = 0.0 *"),
        ("clock left out of known samples", "value_w, by_place = seen.value,", "value_w, by_place = 0 * seen.value,"),
        ("clock left out of a delay", "value_w = averaged(", "value_w = 0 * averaged("),
        ("heads and tails as the rest", "> 0, ends_w,", "> 0, 0.0,"),
        ("repeats as their kernel", "activity.repeated, repeats_w, others_w", "activity.repeated, 0.0, others_w"),
        ("delay taken for exact", "shown, mean = by_sensor", "shown, mean = by_sensor * [0, 1]"),
        ("memory taken for exact", "shown, mean = by_sensor", "shown, mean = by_sensor * [1, 0]"),
        (
            "memory of known samples taken for exact",
            "[by_place, by_sensor[:, 1:]]",
            "[by_place, 0 * by_sensor[:, 1:]]",
        ),
        ("times of samples taken for exact", "[by_place, by", "[by_place * (np.arange(len(now)) >= len(now) - 46), by"),
        (
            "response of samples taken for exact",
            "[by_place, by",
            "[by_place * (np.arange(len(now)) < len(now) - 46), by",
        ),
        (
            "response of samples about the last guess",
            "before.rows @ now",
            "before.rows @ (now * (np.arange(len(now)) < len(now) - 46))",
        ),
        ("no spread within kinds", "density = part_s @", "density = 0 * part_s @"),
        (
            "what kernels draw at other times left out",
            "extra_j = (solution.segment_j - ",
            "extra_j = 0 * (solution.segment_j - ",
        ),
        ("excess of idle time taken for what kernels draw", "* of_kernels + prior", "* 1.0 + prior"),
        ("idle power taken for what kernels draw", " - solution.state[:-1, -2] * cuts.h", ""),
        ("clock left out of what kernels draw", " + prior.clock * clock * slower_j", ""),
        (
            "single kernels taken for alike",
            "scatter=_scatter(activity, above_w)",
            "scatter=0 * _scatter(activity, above_w)",
        ),
        ("spread by readings alone", "weight = np.exp(-0.5 *", "weight = np.exp(-0.0 *"),
        ("idle power unknown between kernels", "replace(prior, level_w=prior.rest_w)", "prior"),
    ),
    *_of(
        "attribution/program.py",
        ["attribution/test_program.py"],
        ("what samples miss left out", "missed = part_s @", "missed = 0 * part_s @"),
        ("edges between samples left out", "look.jolt = jolts_of(", "look.jolt = 0 * jolts_of("),
        ("last sample taken for punctual", "lacks_w * response.weight", "0 * lacks_w"),
        ("no slow change", "** 2, *prior.slow[s][:2])", "** 2, 0.0, 0.0)"),
    ),
    *_of(
        "attribution/look.py",
        ["attribution/test_short_spans.py"],
        ("power that moves only at readings", "cuts.h**2 / 3", "0.0"),
    ),
    *_of(
        "attribution/chains.py",
        ["attribution/test_attribute.py"],
        ("power beside a span placed with one reading each", "_BESIDE = 8", "_BESIDE = 0"),
    ),
    *_of(
        "attribution/solve.py",
        ["attribution/test_solve.py"],
        (
            "cases taken to agree in covariances",
            "(means - mean).T @ (self.weight[:, None] * (means - mean))",
            "0.0",
        ),
        (
            "components of a rank taken to agree",
            "np.tensordot(share, joint[order], 1) + spread",
            "np.tensordot(share, joint[order], 1)",
        ),
        ("normal quantile for few blocks", " * stdtrit(blocks - 1, 0.975) / 1.96", ""),
        ("blocks taken for independent samples", "np.sqrt((blocks - 1) / blocks)", "np.sqrt(1 / blocks)"),
        ("prior in blocks", " + self.inverse / self.problem.unknowns.variance @ self.inverse)", ")"),
    ),
    *_of(
        "attribution/activity.py",
        ["attribution/test_program_terms.py"],
        ("energy counted for each that overlaps", "list(members), 1 / len(members))", "list(members), 1)"),
    ),
    *_of(
        "analysis/kernel_powers.py",
        ["analysis/test_kernel_powers.py"],
        ("the sensor's part left out", "white @ (left - sensor) @ white.T", "np.eye(len(watts))"),
    ),
    *_of(
        "run/division.py",
        ["run/test_division.py"],
        ("what tracing changes left out", "_Z95 * tracing, _Z95", "0.0, _Z95"),
        ("some kernels of a kind taken for all", "_Z95 * tracing, _Z95 * varies_j", "_Z95 * tracing, 0.0"),
        ("what kernels draw at other times left out", "(seconds * others) @ self.varies_w,", "0.0,"),
        ("what single kernels draw left out", "np.sqrt((seconds * others) @ self.scatter_w**2)", "0.0"),
        (
            "single kernels of a step taken for all",
            "self.powers.scatter_w * math.sqrt(factor)",
            "self.powers.scatter_w",
        ),
        (
            "rows of a sum taken for independent",
            "u, tracing = float(np.linalg.norm(errors))",
            "u, tracing = float(np.linalg.norm(seconds[:, None] * self.root))",
        ),
    ),
    *_of(
        "run/estimate.py",
        ["stats/test_interval.py"],
        (
            "widening drops what it adds",
            "math.hypot(high - estimate.value, half)",
            "high - estimate.value",
        ),
        (
            "widening makes an interval symmetric",
            "math.hypot(estimate.value - low, half)",
            "math.hypot(high - estimate.value, half)",
        ),
    ),
    *_of(
        "stats/interval.py",
        ["stats/test_interval.py"],
        (
            "sign of the bias of a lag-one correlation",
            "rho = max(rho + (1 + 4 * rho) / n,",
            "rho = max(rho - (1 + 4 * rho) / n,",
        ),
        ("sign of the autocorrelation term", "worth = n * (1 - rho) / (1 + rho)", "worth = n * (1 + rho) / (1 - rho)"),
        ("autocorrelation beyond lag one dropped", "min(worth, n / max(total, 1.0))", "min(worth, n)"),
        ("normal quantile in place of Student's", "student(_TAIL, max(free, 1.0))", "Z95"),
        ("n in place of n - 1", "/ n / (worth - 1)", "/ n / worth"),
        ("pull of a heavy value not undone", "(w / (1 - w)) ** 2", "(w * n / (n - 1)) ** 2"),
        ("heavy values as free as even ones", "min(worth, 1 / float(w @ w)) - 1", "worth - 1"),
        (
            "what all values share dropped from a mean",
            "Z95 * common_sd))\n    return Estimate(mean,",
            "0 * common_sd))\n    return Estimate(mean,",
        ),
        (
            "factors of a sum dropped from its variance",
            "variances = [(f * sd) ** 2",
            "variances = [(abs(f) ** 0 * sd) ** 2",
        ),
        (
            "all but the first dropped from the variance of a sum",
            "np.sqrt(float(sum(variances)))",
            "np.sqrt(float(variances[0]))",
        ),
        (
            "normal quantile for a sum of few",
            "student(_TAIL, free) * np.sqrt(float(",
            "Z95 * np.sqrt(float(",
        ),
        ("a difference is a sum", "[1.0, -1.0]", "[1.0, 1.0]"),
        (
            "denominator's variance dropped from a ratio",
            "sx**2 * (1 - g) + value**2 * sy**2",
            "sx**2 * (1 - g) + 0 * sy**2",
        ),
        (
            "numerator's variance dropped from a ratio",
            "sx**2 * (1 - g) + value**2 * sy**2",
            "0 * sx**2 * (1 - g) + value**2 * sy**2",
        ),
        ("sign in Fieller's formula, under the root", "sx**2 * (1 - g) + value", "sx**2 * (1 + g) + value"),
        ("sign in Fieller's formula, middle", "middle = value / (1 - g)", "middle = value / (1 + g)"),
        ("sign in Fieller's formula, half-width", "0.0))) / (1 - g)", "0.0))) / (1 + g)"),
        ("denominator's freedom dropped from a ratio", "[sx**2, (x / y * sy) ** 2], [fx, fy]", "[sx**2], [fx]"),
    ),
    *_of(
        "analysis/levels.py",
        ["analysis/test_levels.py"],
        ("ramps count", "inner = edges + drop *", "inner = edges + 0 *"),
        ("correlation of readings dropped", "size.astype(float), correlated=True", "size.astype(float)"),
        ("readings that show the same time count each", "len(power) // overlap", "len(power) // 1"),
    ),
    *_of(
        "sensor/counter.py",
        ["sensor/test_counter.py"],
        ("sign of the sensor's delay", "window = edges + delay", "window = edges - delay"),
        ("times of steps dropped", "*(ends * width / np.sqrt(12))", "*(ends * 0)"),
        ("width in place of standard deviation of a step", "width / np.sqrt(12)", "width"),
        ("uneven readings dropped", "np.sqrt(12)), mistimed, lag]", "np.sqrt(12)), lag]"),
        ("uncertain delay dropped", "np.sqrt(12)), mistimed, lag]", "np.sqrt(12)), mistimed]"),
        ("floor dropped", "np.hypot(Z95 * sd, FLOOR * value)", "Z95 * sd"),
        (
            "most between reads dropped",
            "np.maximum(np.interp(edges, time, power), most)",
            "np.interp(edges, time, power)",
        ),
        ("age of a counter's reads dropped", "(update_s * ends) ** 2", "(0 * ends) ** 2"),
    ),
    *_of(
        "attribution/short_spans.py",
        ["attribution/test_short_spans.py"],
        ("one power for all of a span", "most = max(min(_MOST_PARTS, _MOST_COLUMNS // len(names)), 1)", "most = 1"),
    ),
    *_of(
        "attribution/program.py",
        ["attribution/test_short_spans.py"],
        (
            "times of single readings dropped",
            "noise_w = np.hypot(noise_w, (later - earlier) @ above_w / 2)",
            "noise_w = noise_w + 0 * later[:, 0]",
        ),
    ),
    *_of(
        "analysis/model.py",
        ["analysis/test_budget.py"],
        ("idle power dropped from the budget above idle", "{**shared, IDLE: idle_j}", "shared"),
        ("scatter dropped from a budget", "SPREAD: standard_error(mean)[0], **shared}", "SPREAD: 0.0, **shared}"),
    ),
    *_of(
        "analysis/model.py",
        ["analysis/test_model.py"],
        (
            "what windows share dropped from an interval",
            "widened(mean, Z95 * math.hypot(*shared.values()))",
            "own",
        ),
        ("baseline uncertainty dropped from active energy", "{**shared, IDLE: idle_j}", "shared"),
        (
            "windows of all runs taken as one run's",
            "block)) > 1:\n        return mean_estimate(",
            "block)) > 99:\n        return mean_estimate(",
        ),
    ),
    *_of(
        "analysis/model.py",
        ["analysis/test_baselines.py"],
        ("drift between phases dropped", "half = math.hypot((high - low) / 2, apart)", "half = (high - low) / 2"),
        ("chance dropped from an idle level", "half = math.hypot((high - low) / 2, apart)", "half = apart"),
    ),
    *_of(
        "attribution/spans.py",
        ["attribution/test_spans.py"],
        ("noise dropped from long sums", "+ (response.noise_w * gap_s) ** 2", ""),
        ("changes dropped from long sums", "np.diff(value) ** 2 * off_s2", "0 * gap_s"),
        (
            "a hole taken for a part of its burst",
            "bursts = _segments(bursts, holes)",
            "bursts = _segments(bursts, holes[:0])",
        ),
        ("memory of what was before an end kept", "far - np.array([0.0, fades_s])", "far"),
        ("error that spans have in common dropped", " + off_j[:, :, None] * off_j[:, None])", ")"),
    ),
    *_of(
        "attribution/amounts.py",
        ["attribution/test_amounts.py"],
        ("blocks of readings taken to agree", "around = solution.left_out()", "around = 0 * solution.left_out()"),
        ("sensor of amounts taken for exact", "around += np.outer(moved, moved)", "around += 0"),
    ),
    *_of(
        "attribution/look.py",
        [
            "attribution/test_means.py::test_a_delay_as_long_as_a_window_does_no_harm",
            "attribution/test_means.py::test_a_window_that_is_off_does_no_harm",
            "attribution/test_means.py::test_single_times_that_are_off_do_no_harm",
            "attribution/test_means.py::test_reads_of_a_counter_that_are_off_do_no_harm",
        ],
        (
            "delay taken for proportional",
            "left += _WEIGHTS @ (change - np.outer(_NODES, slope)) ** 2",
            "left += 0.0",
        ),
        ("times of single readings taken for exact", "np.array([moved(jitter_s * node)", "np.array([moved(0.0 * node)"),
        ("times of a counter's reads taken for exact", "left += 2 * (last_w", "left += 0 * (last_w"),
    ),
    *_of(
        "attribution/means.py",
        [
            "attribution/test_log_chain.py::test_an_unknown_delay_of_means_moves_the_change_of_power_from_one_end_of_a_span_to_the_other",
            "attribution/test_log_chain.py::test_the_noise_of_means_adds_up_over_a_span",
            "attribution/test_log_chain.py::test_a_mean_that_is_late_by_some_time_places_a_change_as_one_with_noise_does",
            "attribution/test_log_chain.py::test_what_lies_between_windows_of_other_ages_is_unknown",
            "attribution/test_log_chain.py::test_a_log_of_means_over_a_second_is_known_as_well_as_its_sum",
            "attribution/test_log_chain.py::test_a_change_beside_the_end_of_a_span_counts_where_means_over_a_second_place_it",
            "attribution/test_log_chain.py::test_swings_at_the_ends_of_a_span_are_unknown_as_far_as_they_fit_into_a_window",
        ],
        ("delay of means taken for exact", "moved_j = at_w * response.delay_sd_s", "moved_j = 0 * at_w"),
        ("noise of means dropped", "aged + (response.noise_w * np.diff(end_s)) ** 2", "aged"),
        ("ages of means beside an end taken for alike", "aged_jump, aged)", "aged_jump, 0.0)"),
        ("noise of means beside an end dropped", "noise_variance = response.noise_w**2 +", "noise_variance ="),
        ("ages of means taken for alike", "aged = response.jitter_s**2 * (1.5", "aged = 0 * (1.5"),
        ("what lies between means dropped", "aged += _white(value", "aged += 0 * _white(value"),
        ("place of a change taken for exact", "variance = left @ (power - seen @ solved) @ left +", "variance ="),
        ("swing in a window at an end dropped", "@ left + (width_s * swings_w) ** 2", "@ left"),
    ),
    *_of(
        "attribution/log_chain.py",
        [
            "attribution/test_log_chain.py::test_a_change_of_a_load_that_is_still_lies_anywhere_between_two_readings",
            "attribution/test_log_chain.py::test_power_in_a_hole_is_near_to_that_beside_it_and_may_be_any_that_the_log_shows",
            "attribution/test_log_chain.py::test_edges_that_meet_readings_at_one_phase_are_as_unknown_as_the_time_between_two_phases",
        ],
        ("changes while power is still placed exactly", "np.where(moves, 1 / 12, 1 / 2)", "0.0"),
        ("noise of still readings dropped", "(changed + noise_w**2) * step_s**2", "changed * step_s**2"),
        ("power in a hole known", "= max(high_w - beside_w, beside_w - low_w) * step_s[i] / Z95", "= 1e-9"),
        (
            "edges of cycles at independent moments",
            "energies.covariance + np.outer(alike_j, alike_j)",
            "energies.covariance",
        ),
    ),
    *_of(
        "sensor/kinds.py",
        ["sensor/test_kinds.py", "sensor/test_shares.py"],
        ("delay of a calibration taken for exact", "delay_sd_s=math.sqrt(left)", "delay_sd_s=0.0"),
        ("width of a calibration taken for exact", "width_sd=math.sqrt(variance) / width", "width_sd=0.0"),
        ("delay that goes with the width dropped", "delay_by_width_s=float(slope * width)", "delay_by_width_s=0.0"),
        ("age of a counter that is read dropped", "kind.response.period_s / math.sqrt(12)", "0.0"),
    ),
    *_of(
        "analysis/monitor.py",
        ["analysis/test_monitor.py"],
        ("rounding dropped from idle", "(levels.idle, rounding)", "(levels.idle, 0.0)"),
        ("rounding dropped from work", "(levels.working, rounding)", "(levels.working, 0.0)"),
        ("rounding of one level in their difference", "math.sqrt(2) * rounding", "0 * rounding"),
    ),
    *_of(
        "analysis/work.py",
        ["analysis/test_work.py"],
        (
            "times of readings dropped from a block",
            "[widened(figure, Z95 * float(u)) for",
            "[widened(figure, 0 * float(u)) for",
        ),
        ("what blocks share dropped", "common_sd=shared_sd_j / k", "common_sd=0.0"),
        ("ends dropped from the whole", "shared = [edge_j * np", "shared = [0 * edge_j * np"),
    ),
    *_of(
        "analysis/span_energies.py",
        ["profiler/record/test_figures.py"],
        ("what spans share dropped from their mean", "common_sd=sd_j", "common_sd=0 * sd_j"),
    ),
    *_of(
        "stats/interval.py",
        ["analysis/test_latency.py", "stats/test_interval.py"],
        (
            "correlation dropped from a percentile",
            "worth = math.floor(effective_n(values > value)",
            "worth = math.floor(len(values)",
        ),
    ),
    *_of(
        "campaign/race.py",
        ["campaign/test_race.py"],
        ("a choice that nothing confirms", "CONFIRMING: Final = 2", "CONFIRMING: Final = 0"),
    ),
    *_of(
        "stats/stopping.py",
        ["stats/test_stopping.py"],
        (
            "freedom of all windows",
            "student(0.975, dof_windows - 1) * sd / math.sqrt(n)",
            "student(0.975, n - 1) * sd / math.sqrt(n)",
        ),
        ("a wild second stage hidden", "half = max(half, _half_width", "half = min(half, _half_width"),
        ("correlation of windows dropped", "half *= math.sqrt(_inflation(values))", "half *= 1.0"),
        (
            "sign of the autocorrelation term",
            "return (1 + excess) / (1 - excess)",
            "return (1 - excess) / (1 + excess)",
        ),
    ),
    *_of(
        "stats/regression.py",
        ["stats/test_regression.py"],
        ("sign of the neighbours' correlation", "np.sqrt((1 + r) / (1 - r))", "np.sqrt((1 - r) / (1 + r))"),
    ),
    *_of(
        "stats/contrast.py",
        ["comparing/test_compare.py"],
        ("denominator's variance dropped from a change", "math.sqrt(self.var_a), t)", "0.0, t)"),
        ("numerator's variance dropped from a change", "math.sqrt(self.var_b), math", "0.0, math"),
        (
            "one side dropped from a difference",
            "self.df) * math.sqrt(self.var_a + self.var_b)",
            "self.df) * math.sqrt(self.var_b)",
        ),
        (
            "sensors' gain dropped from a difference",
            "self.b * by - self.a for by in",
            "self.b * by**0 - self.a for by in",
        ),
        ("one side dropped from a test", "self.var_b + ratio**2 * self.var_a", "self.var_b"),
        (
            "one side dropped from what can be detected",
            "quantiles * math.sqrt(self.var_a + self.var_b) / self.a",
            "quantiles * math.sqrt(self.var_b) / self.a",
        ),
        ("gain dropped from what can be detected", "/ self.a + self.gain", "/ self.a"),
        ("gain forgives no increase", "self._statistic(ratio * (1 + self.gain))", "self._statistic(ratio)"),
        ("gain forgives no decrease", "-self._statistic(ratio / (1 + self.gain))", "-self._statistic(ratio)"),
    ),
    *_of(
        "stats/contrast.py",
        ["comparing/test_compare.py"],
        (
            "sensors' gain dropped from a change",
            "(1 + end) * by - 1 for end in",
            "(1 + end) * by**0 - 1 for end in",
        ),
    ),
    *_of(
        "comparing/spread.py",
        ["comparing/test_compare.py"],
        (
            "spread of runs in place of their mean's",
            "scale) ** 2 / len(group) for group in groups]",
            "scale) ** 2 for group in groups]",
        ),
        ("single runs taken to scatter as stored", "MOST_SCATTER if stored else 0.0", "0.0"),
        ("what parts share dropped", "contrasts.append((common + variance, ", "contrasts.append((variance, "),
        ("a part's own scatter dropped", "contrasts.append((common + variance, ", "contrasts.append((common, "),
        (
            "a part believed on the word of the others",
            "(alone, df) if alone > of_all else",
            "(alone, df) if False else",
        ),
        ("a part's own scatter as well known as all", "(alone, df) if", "(alone, df_own) if"),
        ("two scatters known better than either", "min(free, max(df, df_used))", "free"),
    ),
    *_of(
        "comparing/paired.py",
        ["profiler/test_ab.py::test_the_spread_is_that_of_the_first_blocks_unless_all_scatter_more"],
        ("first stage ignored", "two_stage_estimate(logs, first)", "two_stage_estimate(logs, len(logs))"),
        ("freedom of all blocks", "float(first - 1))", "float(9 * len(logs)))"),
    ),
    *_of(
        "wings/fleet/variance.py",
        ["wings/fleet/test_variance.py"],
        (
            "levels below not taken out",
            "- lower / freedom, freedom + 1",
            "+ 0 * lower, freedom + 1",
        ),
        (
            "noise of means dropped",
            "np.bincount(codes[1]), noise[1:])",
            "np.bincount(codes[1]), 1e-9 * noise[1:])",
        ),
        (
            "chance of mean squares dropped",
            "np.append(freedom, rng.chisquare(freedom, DRAWS))",
            "np.full(DRAWS + 1, freedom)",
        ),
        (
            "uncertain middle of all dropped",
            "centre += rng.standard_normal(len(centre)) / np.sqrt(known.sum(axis=1))",
            "centre += 0.0",
        ),
        (
            "means not drawn towards one another",
            "middle = centre[:, None] + trust * (self.means - centre[:, None])",
            "middle = np.broadcast_to(self.means, noise.shape)",
        ),
        ("runs weighed by their number, not its square", "np.sqrt(kept) * weight)", "np.sqrt(kept * weight))"),
    ),
    *_of(
        "wings/serving/analysis/steady.py",
        ["wings/serving/test_load_results.py::test_time_per_output_token_is_that_between_tokens"],
        ("time per output token divided by all tokens", "> 1, self.output_tokens - 1,", "> 1, self.output_tokens,"),
    ),
    *_of(
        "profiler/monitoring/watch.py",
        ["profiler/record/test_sums.py"],
        (
            "seconds of a hole halved",
            "float(apart[apart > self._hole_s].sum())",
            "float(apart[apart > self._hole_s].sum()) / 2",
        ),
        ("every period taken for a hole", "HOLE_PERIODS * channel.period_s", "0.5 * channel.period_s"),
    ),
    *_of(
        "profiler/program/timeline.py",
        ["profiler/program/test_gpus.py"],
        ("cause of idle time without the clocks' agreement", "since - SEEN_NS", "since"),
        ("clocks taken to agree worse than they do", "SEEN_NS = 5_000", "SEEN_NS = 50_000"),
        ("first kernel taken for the start of the analysed part", "int(start[order].min())", "int(start.min())"),
    ),
    *_of(
        "analysis/conditions.py",
        ["wings/serving/test_energy.py"],
        ("capped from a tenth of the time on", '"sw_power_cap", 0.0) > 0.5', '"sw_power_cap", 0.0) > 0.1'),
        ("capped only if nearly always", '"sw_power_cap", 0.0) > 0.5', '"sw_power_cap", 0.0) > 0.9'),
    ),
]
