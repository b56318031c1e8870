"""Mutants of ``sampled.py`` that survive, with the reason: what no test can notice, or need not."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Survivor:
    """One change that goes unnoticed.

    Attributes:
        path: Of the file, below ``src/jouletrace``.
        old: The lines that differ, as they are, without indentation.
        new: The same, as they become.
        why: "Same: ..." if nothing changes, "Slight: ..." if no figure that is stated does, with the reason.
    """

    path: str
    old: str
    new: str
    why: str


SURVIVORS = [
    Survivor(
        "stats/interval.py",
        "size = 2 << n.bit_length()  # a power of two, with as many zeros as values",
        "size = 4 << n.bit_length()  # a power of two, with as many zeros as values",
        "Same: more zeros change no product of values.",
    ),
    Survivor(
        "sensor/calibration/fit.py",
        "size = model - np.percentile(model, 5)",
        "size = model - np.percentile(model, 10)",
        "Slight: of a load that rests a tenth of the time both are its lowest level.",
    ),
    Survivor(
        "sensor/calibration/fit.py",
        "scale = min(float(np.median(np.abs(error))) for error in errors) + 1e-9",
        "scale = min(float(np.median(np.abs(error))) for error in errors) - 1e-9",
        "Slight: a billionth of a watt, for readings without noise; the scale is squared.",
    ),
    Survivor(
        "sensor/calibration/fitter.py",
        "_HIGH = np.array([12.0, 30.0, 12.0, 3.0, 2.5])",
        "_HIGH = np.array([12.0, 60.0, 12.0, 3.0, 2.5])",
        "Slight: windows of more than 30 periods may be found; those of known sensors have ten at most.",
    ),
    Survivor(
        "sensor/calibration/fitter.py",
        "self.step_w = max(float(np.subtract(*np.percentile(power, [95, 5]))), 1e-3)",
        "self.step_w = max(float(np.subtract(*np.percentile(power, [95, 5]))), 0.002)",
        "Slight: of a load that steps by one or two milliwatts; none is calibrated by that.",
    ),
    Survivor(
        "sensor/calibration/fitter.py",
        "_ROUGH, _FINE = 1e-3, 1e-6",
        "_ROUGH, _FINE = 0.002, 1e-6",
        "Slight: where a start of the search stops; the fit that follows goes on to _FINE.",
    ),
    Survivor(
        "sensor/calibration/fitter.py",
        "edges_s, level, float(time_s[0]) - 3 * memory, float(time_s[-1]) + memory, period",
        "edges_s, level, float(time_s[0]) - 6 * memory, float(time_s[-1]) + memory, period",
        "Slight: the grid begins earlier, where the load stands still; its drift is counted over that too.",
    ),
    Survivor(
        "sensor/calibration/fitter.py",
        "x_scale=np.array([0.3, 0.3, 0.3, 1.0, 1.0])[:size],",
        "x_scale=np.array([0.3, 0.3, 0.3, 1.0, 2])[:size],",
        "Slight: another step of the search along the tail's length; it ends at the same shape to within _FINE.",
    ),
    Survivor(
        "sensor/phases.py",
        "edges = np.append(lags - 0.5, lags[-1] + 0.5) * GRID_S",
        "edges = np.append(lags - 0.5, lags[-1] + 1.0) * GRID_S",
        "Same: the response ends before the last edge.",
    ),
    Survivor(
        "sensor/readout.py",
        "_BINS = 400",
        "_BINS = 800",
        "Slight: a finer histogram; the fit to punctual stamps that follows goes to the same grid from either.",
    ),
    Survivor(
        "sensor/stamps.py",
        "candidates = frequency + resolution * np.arange(-np.ceil(reach / resolution), np.ceil(reach / resolution) + 1)",
        "candidates = frequency - resolution * np.arange(-np.ceil(reach / resolution), np.ceil(reach / resolution) + 1)",
        "Same: the candidates lie to both sides alike; they are tried in reverse.",
    ),
    Survivor(
        "sensor/calibration/fluctuation.py",
        "level_var = np.interp(model, [low_w, max(high_w, low_w + 1e-9)], [low_noise**2, high_noise**2 + high_wander**2])",
        "level_var = np.interp(model, [low_w, max(high_w, low_w + 2e-09)], [low_noise**2, high_noise**2 + high_wander**2])",
        "Slight: two levels that are none are one or two billionths of a watt apart.",
    ),
    Survivor(
        "sensor/calibration/fluctuation.py",
        "if excess(0.0) <= 0:",
        "if excess(0.0) < 0:",
        "Same: from a root at its start the search that follows returns that.",
    ),
    Survivor(
        "sensor/stamps.py",
        "pick = np.linspace(0, len(x) - 1, 200).astype(int)",
        "pick = np.linspace(0, len(x) - 1, 400).astype(int)",
        "Slight: the median of the slopes between more blocks, some twice, of a record of hours.",
    ),
    Survivor(
        "attribution/activity.py",
        "overlap = float(np.maximum(np.minimum(before, end) - start, 0).sum() / max((end - start).sum(), 1e-12))",
        "overlap = float(np.maximum(np.minimum(before, end) - start, 0).sum() / max((end - start).sum(), 2e-12))",
        "Same: it keeps a timeline whose kernels take no time from a division by zero; that is refused after it.",
    ),
    Survivor(
        "attribution/activity.py",
        "codes = np.random.default_rng(1).integers(1 << 40, 1 << 56, kinds)",
        "codes = np.random.default_rng(1).integers(1 << 40, 2 << 56, kinds)",
        "Same: other random codes, whose sums are as distinct.",
    ),
    Survivor(
        "attribution/activity.py",
        "members.append(tuple(sorted(kind[(start < middle) & (end > middle)].tolist())))",
        "members.append(tuple(sorted(kind[(start < middle) & (end >= middle)].tolist())))",
        "Same: no kernel ends in the middle of an interval, which lies between two ends.",
    ),
    Survivor(
        "attribution/lock.py",
        "starts = np.linspace(first, last, max(1, round((last - first) / BUSY_STEP_S)))",
        "starts = np.linspace(first, last, max(2, round((last - first) / BUSY_STEP_S)))",
        "Slight: of a recording of 3.5 s a window 0.1 s after the first is looked at too.",
    ),
    Survivor(
        "attribution/checks.py",
        "long = span >= SHORTEST_S and covered >= COVERED and time_s[-1] - time_s[0] >= 2 * HOLD_S",
        "long = span >= SHORTEST_S and covered > COVERED and time_s[-1] - time_s[0] >= 2 * HOLD_S",
        "Slight: a share of four fifths to the last bit.",
    ),
    Survivor(
        "attribution/checks.py",
        "turn = np.floor((readings.time_s - fitted.activity.begin_s) / HOLD_S).astype(int) % 2 == 0",
        "turn = np.floor((readings.time_s - fitted.activity.begin_s) / HOLD_S).astype(int) % 2 != 0",
        "Same: both halves are held out in turn; the other one is first.",
    ),
    Survivor(
        "attribution/lock.py",
        "edges = np.arange(start_s - 1e-3, end_s, GRID_S)",
        "edges = np.arange(start_s + 1e-3, end_s, GRID_S)",
        "Slight: the first sample of a window, which the readings that count, 0.12 s later, have forgotten.",
    ),
    Survivor(
        "attribution/fit.py",
        "ENDS, ALIKE = 0.4, 1e-3",
        "ENDS, ALIKE = 0.4, 0.002",
        "Slight: a thousandth or two beside the whole of that power; it keeps the prior regular.",
    ),
    Survivor(
        "attribution/lock.py",
        "edges = np.arange(zero - 1e-3, begin + BLOCK_S, GRID_S)",
        "edges = np.arange(zero - 0.002, begin + BLOCK_S, GRID_S)",
        "Same: the table begins a millisecond earlier, where no sample is looked up.",
    ),
    Survivor(
        "attribution/lock.py",
        "step = min(0.5 * sensor.delay_spread_s, sensor.window_s / 10)",
        "step = min(0.5 * sensor.delay_spread_s, sensor.window_s / 20)",
        "Slight: twice as many delays are tried; the fit that follows goes on from the best.",
    ),
    Survivor(
        "attribution/lock.py",
        "observer, sensor=replace(sensor, delay_s=min((near + np.arange(-60e-6, 61e-6, 20e-6)).tolist(), key=residual))",
        "observer, sensor=replace(sensor, delay_s=min((near + np.arange(-0.00012, 61e-6, 20e-6)).tolist(), key=residual))",
        "Slight: delays farther from one that is right to 50 us are tried too.",
    ),
    Survivor(
        "attribution/fit.py",
        "ROUNDS = 10",
        "ROUNDS = 20",
        "Slight: the iteration ends by itself before, once the residual falls no more.",
    ),
    Survivor(
        "attribution/fit.py",
        "if round_ >= 2 and before is not None and np.std(left) > GAINED * np.std(before.residual_w):",
        "if round_ >= 2 and before is not None and np.std(left) >= GAINED * np.std(before.residual_w):",
        "Same: the two are never equal to the last bit.",
    ),
    Survivor(
        "attribution/lock.py",
        "rates = rate_hz + RATE_STEP_HZ * np.arange(-1.5, 1.51, 0.25)",
        "rates = rate_hz - RATE_STEP_HZ * np.arange(-1.5, 1.51, 0.25)",
        "Same: rates lie to both sides alike; they are tried in reverse.",
    ),
    Survivor(
        "attribution/lock.py",
        "unexplained = [fit.square / max(part.watts.var(), 1e-12) for fit, part in zip(best, parts, strict=True)]",
        "unexplained = [fit.square / max(part.watts.var(), 2e-12) for fit, part in zip(best, parts, strict=True)]",
        "Slight: it keeps a window of equal readings from a division by zero.",
    ),
    Survivor(
        "attribution/lock.py",
        "busy = until - since >= 0.5 * (until - since).max()",
        "busy = until - since > 0.5 * (until - since).max()",
        "Slight: half as busy as the busiest to the last bit.",
    ),
    Survivor(
        "attribution/lock.py",
        "if all(abs(rates[i] - other) > APART_HZ for other in chosen):",
        "if all(abs(rates[i] - other) >= APART_HZ for other in chosen):",
        "Same: rates are multiples of 0.3 Hz apart, never 1 Hz.",
    ),
    Survivor(
        "attribution/activity.py",
        "for k in np.flatnonzero(busy > 0.01 * busy.sum()):",
        "for k in np.flatnonzero(busy >= 0.01 * busy.sum()):",
        "Slight: a hundredth of the time to the last bit.",
    ),
    Survivor(
        "attribution/activity.py",
        "if len(which) >= 100 and np.std(away) < 0.06:",
        "if len(which) >= 100 and np.std(away) <= 0.06:",
        "Slight: a scatter of 6 % to the last bit.",
    ),
    Survivor(
        "attribution/activity.py",
        "smooth = (sums[last] - sums[first]) / np.maximum(weights[last] - weights[first], 1e-12)",
        "smooth = (sums[last] - sums[first]) / np.maximum(weights[last] - weights[first], 2e-12)",
        "Slight: it keeps 10 ms without a class from a division by zero; kernels take longer.",
    ),
    Survivor(
        "attribution/activity.py",
        "for which in np.split(mine, np.flatnonzero(np.diff(log[mine]) > 0.08) + 1):",
        "for which in np.split(mine, np.flatnonzero(np.diff(log[mine]) >= 0.08) + 1):",
        "Slight: a jump of 8 % to the last bit.",
    ),
    Survivor(
        "attribution/activity.py",
        "if overlap > 2e-3:",
        "if overlap >= 2e-3:",
        "Slight: an overlap of two in a thousand to the last bit.",
    ),
    Survivor(
        "attribution/activity.py",
        "long = (mean > LONG_S)[kind]",
        "long = (mean >= LONG_S)[kind]",
        "Slight: a mean of 60 us to the last bit.",
    ),
    Survivor(
        "attribution/activity.py",
        "codes = np.random.default_rng(1).integers(1 << 40, 1 << 56, kinds)",
        "codes = np.random.default_rng(2).integers(1 << 40, 1 << 56, kinds)",
        "Same: other random codes, whose sums are as distinct.",
    ),
    Survivor(
        "attribution/activity.py",
        "codes = np.random.default_rng(1).integers(1 << 40, 1 << 56, kinds)",
        "codes = np.random.default_rng(1).integers(2 << 40, 1 << 56, kinds)",
        "Same: other random codes, whose sums are as distinct.",
    ),
    Survivor(
        "attribution/checks.py",
        'return Outcome.without_interval("seen", missed <= UNSEEN, missed, most=UNSEEN)',
        'return Outcome.without_interval("seen", missed < UNSEEN, missed, most=UNSEEN)',
        "Slight: a share of 3 % to the last bit.",
    ),
    Survivor(
        "attribution/checks.py",
        "turn = np.floor((readings.time_s - fitted.activity.begin_s) / HOLD_S).astype(int) % 2 == 0",
        "turn = np.floor((readings.time_s - fitted.activity.begin_s) / HOLD_S).astype(int) % 2 == 1",
        "Same: both halves are held out in turn; the other one is first.",
    ),
    Survivor(
        "sensor/stamps.py",
        "if np.std(phase) < 2 * 1.9 * spread / np.sqrt(_BLOCK):",
        "if np.std(phase) <= 2 * 1.9 * spread / np.sqrt(_BLOCK):",
        "Same: the two are equal only where both are 0, and then nothing moves.",
    ),
    Survivor(
        "analysis/levels.py",
        "high = power > _otsu(power)",
        "high = power >= _otsu(power)",
        "Same: the threshold lies between two readings.",
    ),
    Survivor(
        "sensor/counter.py",
        "near = (time > window[0]) & (time < window[1])",
        "near = (time > window[0]) & (time <= window[1])",
        "Slight: a reading in the very nanosecond of a step.",
    ),
    Survivor(
        "sensor/stamps.py",
        "candidates = frequency + resolution * np.arange(-np.ceil(reach / resolution), np.ceil(reach / resolution) + 1)",
        "candidates = frequency + resolution * np.arange(-np.ceil(reach / resolution), np.ceil(reach / resolution) - 1)",
        "Slight: the two candidates farthest up, at what a guess may be off by.",
    ),
    Survivor(
        "sensor/stamps.py",
        "for _ in range(2):",
        "for _ in range(4):",
        "Slight: more rounds of a median on a circle, which two have found.",
    ),
    Survivor(
        "sensor/stamps.py",
        "centre = float(np.angle(angle.mean())) / (2 * np.pi) * period",
        "centre = float(np.angle(angle.mean())) / (4 * np.pi) * period",
        "Slight: where the search for a median on a circle begins.",
    ),
    Survivor(
        "sensor/stamps.py",
        "pick = np.linspace(0, len(x) - 1, 200).astype(int)",
        "pick = np.linspace(0, len(x) - 2, 200).astype(int)",
        "Slight: the median of the slopes between almost the same 200 blocks.",
    ),
    Survivor(
        "analysis/levels.py",
        "below, above = power[power <= threshold], power[power > threshold]",
        "below, above = power[power < threshold], power[power >= threshold]",
        "Same: the threshold lies between two readings.",
    ),
    Survivor(
        "analysis/levels.py",
        "return bool(beyond - level > max(_APART * (most - least), _VALLEY * (middle - level)))",
        "return bool(beyond - level >= max(_APART * (most - least), _VALLEY * (middle - level)))",
        "Slight: a distance to the last bit.",
    ),
    Survivor(
        "run/readings.py",
        "lived = np.cumsum(np.append(0.0, np.diff(knots) * (np.arange(len(knots) - 1) % 2 == 0)))",
        "lived = np.cumsum(np.append(1, np.diff(knots) * (np.arange(len(knots) - 1) % 2 == 0)))",
        "Same: only differences of these seconds count.",
    ),
    Survivor(
        "sensor/calibration/fit.py",
        "if response.explained is not None and response.explained < 0.2:",
        "if response.explained is not None and response.explained <= 0.2:",
        "Slight: a fifth of the variance to the last bit.",
    ),
    Survivor(
        "sensor/calibration/fluctuation.py",
        "hidden = 0.5 * low_noise**2 / max(low_w**2, 1e-9)",
        "hidden = 0.5 * low_noise**2 / max(low_w**2, 2e-09)",
        "Slight: a level of less than a tenth of a milliwatt.",
    ),
    Survivor(
        "sensor/calibration/fluctuation.py",
        "if absolute2 < 0:",
        "if absolute2 <= 0:",
        "Same: at 0 the noise is in proportion to the power already.",
    ),
    Survivor(
        "sensor/calibration/fluctuation.py",
        "return most_s if excess(most_s) >= 0 else float(brentq(excess, 0.0, most_s, xtol=1e-6))",
        "return most_s if excess(most_s) > 0 else float(brentq(excess, 0.0, most_s, xtol=1e-6))",
        "Same: from a root at its end the search returns that.",
    ),
    Survivor(
        "sensor/calibration/fluctuation.py",
        "spread = 5 * SD_OVER_MAD * float(np.median(np.abs(values - np.median(values)))) + 1e-9",
        "spread = 5 * SD_OVER_MAD * float(np.median(np.abs(values - np.median(values)))) + 2e-09",
        "Slight: a billionth of a watt, for readings that don't scatter.",
    ),
    Survivor(
        "sensor/calibration/fit.py",
        "worst = int(np.argmax(np.abs(mean) - 4 * np.where(np.isfinite(se), se, 0)))",
        "worst = int(np.argmax(np.abs(mean) - 4 * np.where(np.isfinite(se), se, 1)))",
        "Slight: which of several bins that chance explains is called the worst.",
    ),
    Survivor(
        "sensor/calibration/fit.py",
        "mean = np.bincount(bins, share, _BINS) / np.maximum(count, 1)",
        "mean = np.bincount(bins, share, _BINS) / np.maximum(count, 2)",
        "Same: the mean of fewer than five readings is not used.",
    ),
    Survivor(
        "sensor/calibration/fit.py",
        "return float(np.mean(np.abs(error[steep]) > 4 * expected))",
        "return float(np.mean(np.abs(error[steep]) >= 4 * expected))",
        "Slight: four deviations to the last bit.",
    ),
    Survivor(
        "sensor/calibration/fitter.py",
        "lags, widths, rises = (-0.5, 0.0, 0.5, 1.5), (0.1, 0.5, 1.0, 1.25, 3.0, 10.0), (0.0, 0.5, 2.0)  # in periods",
        "lags, widths, rises = (-0.5, 0.0, 0.5, 1.5), (0.1, 0.5, 1.0, 2.5, 3.0, 10.0), (0.0, 0.5, 2.0)  # in periods",
        "Slight: where a search starts; from several starts it ends at the same shape.",
    ),
    Survivor(
        "sensor/calibration/fitter.py",
        "stretch = np.searchsorted(self.edges, self.time) // 4 % 2 == 0",
        "stretch = np.searchsorted(self.edges, self.time) // 4 % 2 == 1",
        "Same: both halves are held out in turn; the other one is first.",
    ),
    Survivor(
        "sensor/readout.py",
        "for _ in range(4):",
        "for _ in range(8):",
        "Slight: more rounds of a fit to punctual stamps, which four have found.",
    ),
    Survivor(
        "sensor/readout.py",
        "if punctual.mean() < 0.5:",
        "if punctual.mean() <= 0.5:",
        "Slight: exactly half of the stamps on a grid.",
    ),
    Survivor(
        "sensor/readout.py",
        "pieces = np.array_split(np.arange(len(time)), max(1, round((time[-1] - time[0]) / 10.0)))",
        "pieces = np.array_split(np.arange(len(time)), max(1, round((time[-1] + time[0]) / 10.0)))",
        "Same: times count from the first stamp.",
    ),
    Survivor(
        "sensor/calibration/fitter.py",
        "self.weight = np.minimum(1.0, 3 * spread / np.maximum(np.abs(error), 1e-12)) ** 0.5 / spread",
        "self.weight = np.minimum(1.0, 3 * spread / np.maximum(np.abs(error), 2e-12)) ** 0.5 / spread",
        "Same: it keeps a reading without error from a division by zero; its weight is whole.",
    ),
    Survivor(
        "sensor/sampler.py",
        "return replace(self, start_s=self.start_s + part / self.rate_hz)",
        "return replace(self, start_s=self.start_s - part / self.rate_hz)",
        "Same: quarters of a period earlier or later are the same phases.",
    ),
    Survivor(
        "sensor/calibration/fluctuation.py",
        "if hidden * high_w**2 < 2 * scatter * np.sqrt(2 / count[1]):",
        "if hidden * high_w**2 <= 2 * scatter * np.sqrt(2 / count[1]):",
        "Slight: a scatter at the limit to the last bit.",
    ),
    Survivor(
        "attribution/checks.py",
        "best = max(tried, key=lambda attempt: attempt[:2])",
        "best = max(tried, key=lambda attempt: attempt[:4])",
        "Slight: two fits of the same evidence to the last bit.",
    ),
    Survivor(
        "attribution/lock.py",
        "observer, sensor=replace(sensor, delay_s=min((near + np.arange(-60e-6, 61e-6, 20e-6)).tolist(), key=residual))",
        "observer, sensor=replace(sensor, delay_s=min((near - np.arange(-60e-6, 61e-6, 20e-6)).tolist(), key=residual))",
        "Same: the steps lie evenly to both sides, and are tried in another order.",
    ),
    Survivor(
        "attribution/program.py",
        "near = [point for point in tried if weight(point) > weight(best) + np.log(KEPT)]",
        "near = [point for point in tried if weight(point) >= weight(best) + np.log(KEPT)]",
        "Slight: a weight at the limit to the last bit.",
    ),
    Survivor(
        "sensor/shares.py",
        "late, early = (replace(response, delay_s=response.delay_s + by * response.delay_sd_s) for by in (1, -1))",
        "late, early = (replace(response, delay_s=response.delay_s - by * response.delay_sd_s) for by in (1, -1))",
        "Same: the unknown's sign is the other one, and its prior is even.",
    ),
    Survivor(
        "attribution/prior.py",
        "return float(np.median(values_w[:5])) if self.known_idle_w is None else self.known_idle_w[0]",
        "return float(np.median(values_w[:10])) if self.known_idle_w is None else self.known_idle_w[0]",
        "Slight: any level near idle power serves, of which the chain then says nothing more.",
    ),
    Survivor(
        "attribution/program.py",
        "_ROUNDS = 2",
        "_ROUNDS = 4",
        "Slight: more turns of powers and derivatives, which two have found.",
    ),
    Survivor(
        "attribution/program.py",
        "beside = {(min(max(d + step, 0), last), s) for d, s in points for step in (-1, 1)} - tried.keys()",
        "beside = {(min(max(d + step, 0), last), s) for d, s in points for step in (-2, 1)} - tried.keys()",
        "Slight: by steps of two downwards every other grid point of small spreads is left out.",
    ),
    Survivor(
        "attribution/program.py",
        "return density, missed * (1 - np.exp(-2 * cuts.h / response.rise_s)) / (2 * response.rise_s)",
        "return density, missed * (1 - np.exp(-4 * cuts.h / response.rise_s)) / (2 * response.rise_s)",
        "Slight: over the 20 ms between readings both are 1; where spans cut them, ± grows by 4 % at most.",
    ),
    Survivor(
        "attribution/program.py",
        "last, others = len(prior) - 1, range(prior.shape[1])",
        "last, others = len(prior) - 2, range(prior.shape[1])",
        "Slight: kernels of a kind that differ by as much as their power.",
    ),
    Survivor(
        "attribution/program.py",
        "spans = np.asarray(spans, np.float64).reshape(-1, 2)",
        "spans = np.asarray(spans, np.float64).reshape(-2, 2)",
        "Same: any negative number stands for what is left.",
    ),
    Survivor(
        "attribution/checks.py",
        "if value <= 0:",
        "if value < 0:",
        "Slight: a power at its bound to the last bit.",
    ),
    Survivor(
        "attribution/checks.py",
        "return np.asarray(((high - low) / 2 <= WIDTH * np.abs(mean)) & (after <= PRIOR_SHARE**2 * before))",
        "return np.asarray(((high - low) / 2 < WIDTH * np.abs(mean)) & (after <= PRIOR_SHARE**2 * before))",
        "Slight: a half-width of half the energy to the last bit.",
    ),
    Survivor(
        "analysis/host.py",
        "_SCATTER = np.geomspace(1e-3, 0.3, 12)",
        "_SCATTER = np.geomspace(1e-3, 0.3, 24)",
        "Slight: a finer grid over the same range.",
    ),
    Survivor(
        "analysis/host.py",
        "passed = idle and bool(least <= 0 <= most or abs(mean) <= TOLERANCE_W)",
        "passed = idle and bool(least <= 0 <= most or abs(mean) < TOLERANCE_W)",
        "Slight: a difference of 2 W to the last bit.",
    ),
    Survivor(
        "analysis/host.py",
        "_WALK = np.array([0.05, 0.15, 0.5, 1.5])",
        "_WALK = np.array([0.05, 0.15, 1.0, 1.5])",
        "Slight: other points of a coarse grid.",
    ),
    Survivor(
        "analysis/host.py",
        "_WALK = np.array([0.05, 0.15, 0.5, 1.5])",
        "_WALK = np.array([0.05, 0.15, 0.5, 3.0])",
        "Slight: other points of a coarse grid.",
    ),
    Survivor(
        "analysis/host.py",
        "kept = weight > KEPT * weight.sum()",
        "kept = weight >= KEPT * weight.sum()",
        "Slight: a weight at the limit to the last bit.",
    ),
    Survivor(
        "attribution/solve.py",
        "sd = np.sqrt(np.maximum(variance, 1e-18))",
        "sd = np.sqrt(np.maximum(variance, 2e-18))",
        "Slight: a billionth of a joule, for energies without error.",
    ),
    Survivor(
        "attribution/solve.py",
        'solved = dtbtrs(factor[:, a * k : b * k], right, uplo="L", overwrite_b=1)[0]',
        'solved = dtbtrs(factor[:, a * k : b * k], right, uplo="L", overwrite_b=2)[0]',
        "Same: any number but 0 lets it overwrite.",
    ),
    Survivor(
        "attribution/solve.py",
        "unseen = Unseen(csr_matrix(share), np.concatenate([source.sizes for source in hidden]), hidden[0].chances)",
        "unseen = Unseen(csr_matrix(share), np.concatenate([source.sizes for source in hidden]), hidden[1].chances)",
        "Same: the chances of all are the same.",
    ),
    Survivor(
        "attribution/log_chain.py",
        "mean, variance = np.zeros(1), np.array([100 * scatter + 1e4])",
        "mean, variance = np.zeros(1), np.array([100 * scatter + 20000.0])",
        "Slight: of the level almost nothing is known before the readings.",
    ),
    Survivor(
        "attribution/solve.py",
        "some = np.diff(lever.indptr) > 0",
        "some = np.diff(lever.indptr) > 1",
        "Same: where time is cut changes no product.",
    ),
    Survivor(
        "attribution/log_chain.py",
        "goes_with = np.sign(late[turns - 1]) * np.sign(np.diff(values_w)[turns - 1])",
        "goes_with = np.sign(late[turns - 1]) / np.sign(np.diff(values_w)[turns - 1])",
        "Same: of signs, none of which is 0 where power changes.",
    ),
]
