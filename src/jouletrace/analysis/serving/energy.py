"""Energy of prompt and output tokens by regression of power on the timeline of requests, and the bill of each request.

**The regression.** Readings are explained by four powers: context idle, what is added while any request is open, a
prompt's tokens (spread evenly from sending to first token) and output tokens (from first to last). Each is seen through
the sensor's response. The last two factors are joules per token: what one token more costs, at these loads. They are
computed with the same factors for all levels, and with factors of each level's own, since larger batches make tokens
cheaper. They are stated only where the load distinguishes them: lengths or rates vary, and prompts rarely wait.

**The bill.** A request pays for its own tokens by these two factors. What is left of the energy of the steady window is
common. Of it, power while no request is open is shared by all requests of the window equally, by their share in it. The
rest is shared at each moment by the requests that are open then, equally. Bills add up to the window's energy exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from jouletrace.analysis.figures import Figures
from jouletrace.analysis.power import power_record
from jouletrace.analysis.serving.steady import Requests, Steady, Steps, overlap
from jouletrace.run import MODEL_UNIT, Estimate, Run, tables
from jouletrace.sensor.windows.response import Response
from jouletrace.stats.regression import Prior, equivalent_noise, quantile95, sandwich, solve

Floats = NDArray[np.float64]

METHOD = "request timeline"
_ROWS, _FEWEST = 2000, 30
"""Rows of the regression at most and at least; more readings are averaged in blocks."""

_CELLS = 48
"""Parts of a reading's response."""

_CORRELATED_S = 2.0
_WIDEST = 0.5
"""Half-width of a factor over its value beyond which it isn't resolved."""

OTHER_GPU, _RAISES = "gpu_not_loaded", 0.02
"""Warning, if the mean power of no level is by so much above idle."""

_VARIES = 0.02
"""Least share of a regressor's variance that the others leave unexplained."""


@dataclass(frozen=True)
class Powers:
    """What the regression gives.

    Attributes:
        idle_w: Context idle.
        busy_w: What is added while any request is open.
        prompt_j, output_j: Of a token of a prompt, and of an answer.
    """

    idle_w: Estimate
    busy_w: Estimate
    prompt_j: Estimate
    output_j: Estimate


@dataclass(frozen=True)
class Regression:
    """Powers with the same factors for all levels, and with factors of each level's own.

    Attributes:
        residual_w: Root mean square of the residuals of the latter.
    """

    pooled: Powers
    own: list[Powers]
    residual_w: float

    def of(self, level: int) -> Powers:
        """Factors for the bills of a level: its own, or else those of all, or else none."""
        own = self.own[level]
        known = [one for one in (own, self.pooled) if one.output_j.value is not None and one.prompt_j.value is not None]
        return known[0] if known else own


def add_energies(run: Run, figures: Figures, levels: Sequence[Steady]) -> None:
    """Add joules per prompt and output token, the parts of each level's energy, and write the bills."""
    found = regress(run, [level.requests for level in levels])
    if isinstance(found, str):
        null = Estimate.null(found, METHOD)
        found = Regression(Powers(null, null, null, null), [Powers(null, null, null, null)] * len(levels), 0.0)
    else:
        figures.add(MODEL_UNIT, "baseline_context_idle_w", found.pooled.idle_w)
        figures.add(MODEL_UNIT, "residual_w", Estimate(found.residual_w, method=METHOD))
        _warn_of_other_gpu(run, found.pooled.idle_w, levels)
    for unit, powers in [(MODEL_UNIT, found.pooled), *((level.unit, found.own[k]) for k, level in enumerate(levels))]:
        figures.add(unit, "power_busy_w", powers.busy_w)
        figures.add(unit, "energy_prompt_token_j", powers.prompt_j)
        figures.add(unit, "energy_output_token_j", powers.output_j)
    columns: list[tuple[NDArray[np.int64], Floats, Floats]] = []
    for k, level in enumerate(levels):
        bills = bill(level, found.of(k))
        if bills is None:
            continue
        for metric, value in bills.parts.items():
            figures.add(level.unit, metric, value)
        inside = bills.share > 0
        closure = float(bills.energy_j.sum()) / (level.energy.value or np.nan)
        figures.add(level.unit, "closure_bills", Estimate(closure, n=int(inside.sum()), method="bill"))
        columns.append((level.requests.row[inside], bills.energy_j[inside], bills.share[inside]))
    _write(run, columns)


@dataclass(frozen=True)
class Bill:
    """Bills of a level.

    Attributes:
        energy_j: Of each request, shape (n,).
        share: Share of each request's time in the steady window, shape (n,).
        parts: Estimates by metric: energies of prompts, outputs, while requests are open in common, without requests.
    """

    energy_j: Floats
    share: Floats
    parts: dict[str, Estimate]


def bill(level: Steady, powers: Powers) -> Bill | None:
    """The bills of a level, by the rule of the module; None without an energy or a request."""
    r, energy = level.requests, level.energy.value
    share = overlap(r.sent, r.last, level.window)
    if energy is None or share.sum() <= 0:
        return None
    _, read, written = level.weights()
    prompt = (powers.prompt_j.value or 0.0) * read
    output = (powers.output_j.value or 0.0) * written
    steps = Steps(r.sent, r.last)
    count = np.round(steps.value)
    unused_s = level.seconds * steps.mean(*level.window, (count < 1).astype(float))
    mean_w = energy / level.seconds
    idle_w = mean_w if powers.idle_w.value is None else powers.idle_w.value
    unused = min(max(idle_w, 0.0) * unused_s, energy)
    own = float((prompt + output).sum())
    if own > energy - unused:  # tokens can't have cost more than there was
        prompt, output = (part * (energy - unused) / own for part in (prompt, output))
        own = energy - unused
    common = energy - unused - own
    each = steps.integral(np.clip(r.last, *level.window), 1 / np.maximum(count, 1) * (count >= 1)) - steps.integral(
        np.clip(r.sent, *level.window), 1 / np.maximum(count, 1) * (count >= 1)
    )
    if each.sum() <= 0:
        return None
    energy_j = prompt + output + common * each / each.sum() + unused * share / share.sum()
    parts = {
        "energy_prompts_j": _scaled(powers.prompt_j, float(prompt.sum())),
        "energy_outputs_j": _scaled(powers.output_j, float(output.sum())),
        "energy_common_j": Estimate(common, method="bill"),
        "energy_unused_j": Estimate(unused, method="bill"),
    }
    return Bill(energy_j, share, parts)


def _warn_of_other_gpu(run: Run, idle_w: Estimate, levels: Sequence[Steady]) -> None:
    """Warn if no load raises the power: then the server runs elsewhere."""
    loaded = [level.energy.value / level.seconds for level in levels if level.energy.value is not None]
    if idle_w.high is not None and loaded and max(loaded) < (1 + _RAISES) * idle_w.high:
        names = ", ".join(device.name for device in run.devices)
        run.warn(OTHER_GPU, f"requests don't raise the power of {names}: is it the server's GPU?")


def _scaled(factor: Estimate, joules: float) -> Estimate:
    return factor if factor.value is None else factor.scaled(joules / factor.value)


def _write(run: Run, bills: Sequence[tuple[NDArray[np.int64], Floats, Floats]]) -> None:
    """Write the bills of levels into the ``requests`` table: rows, joules, share of each request's time."""
    if not len(run.requests):
        return
    joules, shares = np.full(len(run.requests), np.nan), np.full(len(run.requests), np.nan)
    for rows, energy_j, share in bills:
        joules[rows], shares[rows] = energy_j, share
    table = {name: run.requests[name] for name in run.requests.column_names}
    table |= {"energy_j": pa.array(joules, from_pandas=True), "billed": pa.array(shares, from_pandas=True)}
    run.requests = tables.conform(pa.table(table), "requests")


def regress(run: Run, levels: Sequence[Requests]) -> Regression | str:
    """The powers that explain the record of all devices best, or why there are none."""
    found = [power_record(run, device.id) for device in run.devices]
    records = [one for one in found if one is not None and len(one[0]) > _FEWEST]
    if not records or len(records) < len(found) or not levels:
        return "no_power_sensor"
    origin = levels[0].origin_ns
    first = max(int(record.time_ns[0]) for record, _ in records)
    last = min(int(record.time_ns[-1]) for record, _ in records)
    shifts = [(level.origin_ns - origin) / 1e9 for level in levels]
    ends = [float(np.nanmax(level.last)) + by for level, by in zip(levels, shifts, strict=True)]
    begin, end = max(min(shifts) - _LEAD_S, (first - origin) / 1e9), min(max(ends) + _LEAD_S, (last - origin) / 1e9)
    block = max((end - begin) / _ROWS, *(1.001 * response.period_s for _, response in records))
    edges = np.arange(begin, end, block)
    if len(edges) < _FEWEST:
        return "too_few_values"
    target, design = np.zeros(len(edges) - 1), np.zeros((len(edges) - 1, 3 * len(levels)))
    known = np.ones(len(edges) - 1, bool)
    for record, response in records:
        time = (record.time_ns - origin) / 1e9
        place = np.searchsorted(edges, time, side="right") - 1
        count = np.bincount(place[(place >= 0) & (place < len(known))], minlength=len(known))[: len(known)]
        known &= count > 0
        inside = (place >= 0) & (place < len(known))
        target += np.bincount(place[inside], record.power_w[inside], len(known)) / np.maximum(count, 1)
        parts = [_seen(level, time[inside] - by, response) for level, by in zip(levels, shifts, strict=True)]
        for k, seen in enumerate(np.concatenate(parts, axis=1).T):
            design[:, k] += np.bincount(place[inside], seen, len(known)) / np.maximum(count, 1) / len(records)
    if int(known.sum()) < _FEWEST:
        return "too_few_values"
    pooled, _ = _fit(design[known].reshape(int(known.sum()), len(levels), 3).sum(axis=1), target[known], block)
    own, residual_w = _fit(design[known], target[known], block)
    return Regression(pooled[0], own, residual_w)


_LEAD_S = 10.0
"""Of the record before the first and after the last request."""


def _seen(r: Requests, time: Floats, response: Response) -> Floats:
    """Being busy, prompt and output tokens/s as readings at these times show them, shape (n, 3)."""
    busy = Steps(r.sent, r.last)
    good = r.ok & np.isfinite(r.first)
    sent, first, last = r.sent[good], r.first[good], r.last[good]
    read_s, written_s = np.maximum(first - sent, 1e-6), np.maximum(last - first, 1e-6)
    prompt = Steps(sent, sent + read_s, r.input_tokens[good] / read_s)
    output = Steps(first, first + written_s, r.output_tokens[good] / written_s)
    reach = max(response.memory_s, 2 * response.delay_s, 1e-4)
    delays = np.linspace(min(response.lag_s, 0.0), reach, _CELLS + 1)
    weights = np.diff(response.step(delays))
    weights = weights / weights.sum()
    at = time[:, None] - delays[None, :]

    def shown(steps: Steps, function: Floats | None = None) -> Floats:
        integral = steps.integral(at.ravel(), function).reshape(at.shape)
        return np.asarray((-np.diff(integral, axis=1) / np.diff(delays)) @ weights)

    return np.column_stack([shown(busy, (busy.value > 0.5).astype(float)), shown(prompt), shown(output)])


def _fit(loads: Floats, target: Floats, block_s: float) -> tuple[list[Powers], float]:
    """Least squares of power on idle and three regressors of each load; the root mean square of the residuals."""
    design = np.column_stack([np.ones(len(target)), loads])
    scale = np.maximum(np.sqrt((design**2).mean(axis=0)), 1e-12)
    scaled, count = design / scale, design.shape[1]
    wide = Prior.of(np.zeros(count), np.full(count, 1e3 * max(float(np.abs(target).max()), 1.0)))
    noise = equivalent_noise(target - scaled @ solve(scaled, target, wide, 1.0))
    x = solve(scaled, target, wide, noise)
    left = target - scaled @ x
    lags = max(1, min(round(_CORRELATED_S / block_s), len(target) // 4))
    deviation = np.sqrt(np.diag(sandwich(scaled, left, wide, noise, lags))) / scale
    value, half = x / scale, quantile95(lags / len(target)) * deviation

    def stated(k: int, widest: float) -> Estimate:
        if _apart(scaled, k) < _VARIES or not half[k] <= widest * value[k]:
            return Estimate.null("not_distinguished", METHOD)
        return Estimate(float(value[k]), float(value[k] - half[k]), float(value[k] + half[k]), len(target), METHOD)

    found = [
        Powers(stated(0, _WIDEST), stated(k, np.inf), stated(k + 1, _WIDEST), stated(k + 2, _WIDEST))
        for k in range(1, count, 3)
    ]
    return found, float(np.sqrt(np.mean(left**2)))


def _apart(design: Floats, k: int) -> float:
    """Share of a regressor (of its variance, of a constant its square) that the others don't explain."""
    column, others = design[:, k], np.delete(design, k, axis=1)
    left = column - others @ np.linalg.lstsq(others, column, rcond=None)[0]
    whole = column if k == 0 else column - column.mean()
    return float((left @ left) / max(float(whole @ whole), 1e-300))
