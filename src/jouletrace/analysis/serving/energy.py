"""Energy of prompt and output tokens by regression of power on the timeline of requests, and the bill of each request.

**The regression.** Readings are explained by four powers: context idle, what is added while any request is open, a
prompt's tokens (spread evenly from sending to first token) and output tokens (from first to last). Each is seen through
the sensor's response. The last two factors are joules per token: what one token more costs, at these loads. They are
computed with the same factors for all levels, and with factors of each level's own, since larger batches make tokens
cheaper. They are stated only where the load distinguishes them: lengths or rates vary, and prompts rarely wait.

**The bill.** A request pays for its own tokens by these two factors. What is left of the energy of the steady window is
common. Of it, power while no request is open is shared by all requests of the window equally, by their share in it. The
rest is shared at each moment by the requests that are open then, equally. Bills add up to the window's energy exactly.

Where the server's scheduler steps are known, the bills are by these (``steps``), not by this regression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from jouletrace.analysis.figures import Figures
from jouletrace.analysis.serving.readings import VARIES, Rows, apart, regression_rows, shown, solved
from jouletrace.analysis.serving.steady import Bill, Floats, Ints, Rates, Requests, Steady, overlap, percentile
from jouletrace.analysis.serving.steps import FACTORS, Model, bill_by_steps, model_of, timeline_of
from jouletrace.run import MODEL_UNIT, Estimate, Run, tables
from jouletrace.sensor.calibration.response import StepResponse

METHOD = "request timeline"
_WIDEST = 0.5
"""Half-width of a factor over its value beyond which it isn't resolved."""

NO_STEPS, OTHER_STEPS, NOT_CLOSED = "steps_not_used", "steps_of_others", "steps_not_closed"
"""Warnings: the bills aren't by the steps; the steps have tokens of others too; they don't explain the energy."""

TOO_FEW = "steps_too_few"
"""Warning: the requests have tokens that no step has."""

OTHERS, OPEN = 0.05, 0.05
"""Relative differences of tokens, either way, and of energy from which these warnings arise."""

BILLED = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
"""Percentiles of the bills of requests that lie within the steady window as a whole."""

OTHER_GPU, _RAISES = "gpu_not_loaded", 0.02
"""Warning, if the mean power of no level is by so much above idle."""


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


def add_energies(
    run: Run, figures: Figures, levels: Sequence[Steady], doubts: Callable[[Run, str], Sequence[str]]
) -> None:
    """Add what tokens add, the parts of each level's energy, and write the bills: by steps, or by the requests.

    A load that isn't valid by ``doubts`` (codes, by its name) has neither parts nor bills.
    """
    steps = timeline_of(run)
    model = None if steps is None else model_of(run, steps)
    if isinstance(model, str):
        run.warn(NO_STEPS, f"the steps were not used: {model.replace('_', ' ')}; bills are by the request timeline")
    powers = regress(run, [level.requests for level in levels])
    if isinstance(powers, str):
        null = Estimate.null(powers, METHOD)
        powers = Regression(Powers(null, null, null, null), [Powers(null, null, null, null)] * len(levels), 0.0)
    _warn_of_other_gpu(run, powers.pooled.idle_w, levels)
    if isinstance(model, Model):  # what the requests alone would say is less than that
        for k, metric in enumerate(FACTORS):
            figures.add(MODEL_UNIT, metric, model.factor(k))
        figures.add(MODEL_UNIT, "residual_w", Estimate(model.residual_w, method=model.method))
    else:
        _add_powers(figures, levels, powers)
    columns: list[tuple[Ints, list[Floats]]] = []
    for k, level in enumerate(levels):
        bills: Bill | None = None
        if steps is not None and isinstance(model, Model):
            bills = bill_by_steps(level, steps, model)
            _warn_of_steps(run, level, bills)
        bills = bills or bill(level, powers.of(k))
        if bills is None:
            continue
        if doubts(run, level.load["name"]):
            for metric in (*bills.parts, "closure_bills", *(f"bill_{label}_j" for label in BILLED)):
                figures.add(level.unit, metric, Estimate.null("load_not_valid", "bill"))
            continue
        for metric, value in bills.parts.items():
            figures.add(level.unit, metric, value)
        inside = bills.share > 0
        closure = float(bills.energy_j.sum()) / (level.energy.value or np.nan)
        figures.add(level.unit, "closure_bills", Estimate(closure, n=int(inside.sum()), method="bill"))
        complete = bills.energy_j[(bills.share >= 1.0) & level.requests.ok]
        for label, p in BILLED.items():
            figures.add(level.unit, f"bill_{label}_j", percentile(complete, p))
        some = (bills.energy_j, bills.share, bills.own_j, bills.half_j)
        columns.append((level.requests.row[inside], [one[inside] for one in some if one is not None]))
    _write(run, columns)


def _add_powers(figures: Figures, levels: Sequence[Steady], found: Regression) -> None:
    """Add what the regression on the requests gives."""
    if found.residual_w:
        figures.add(MODEL_UNIT, "baseline_context_idle_w", found.pooled.idle_w)
        figures.add(MODEL_UNIT, "residual_w", Estimate(found.residual_w, method=METHOD))
    for unit, powers in [(MODEL_UNIT, found.pooled), *((level.unit, found.own[k]) for k, level in enumerate(levels))]:
        figures.add(unit, "power_busy_w", powers.busy_w)
        figures.add(unit, "energy_prompt_token_j", powers.prompt_j)
        figures.add(unit, "energy_output_token_j", powers.output_j)


def _warn_of_steps(run: Run, level: Steady, bills: Bill | None) -> None:
    """Warn if the steps aren't those of the requests, or don't explain the energy."""
    name = level.load["name"]
    if bills is None:
        run.warn(NO_STEPS, f"{name}: no step within its steady window; its bills are by the request timeline", name)
        return
    if level.requests.ok.any() and abs(bills.accounted - 1) > OTHERS:
        message = f"{name}: its requests have {bills.accounted:.0%} of the tokens of the steps"
        if bills.accounted < 1:
            run.warn(OTHER_STEPS, f"{message}: were there others?", name)
        else:
            run.warn(TOO_FEW, f"{message}: were prompts in the server's cache, or are steps not in the log?", name)
    closure = bills.parts["closure_steps"].value or 0.0
    if abs(closure - 1) > OPEN:
        message = f"{name}: the steps explain {closure:.0%} of the GPUs' energy: their bills are scaled to it"
        run.warn(NOT_CLOSED, message, name)


def bill(level: Steady, powers: Powers) -> Bill | None:
    """The bills of a level, by the rule of the module; None without an energy or a request."""
    r, energy = level.requests, level.energy.value
    share = overlap(r.sent, r.last, level.window)
    if energy is None or share.sum() <= 0:
        return None
    _, read, written = level.weights()
    prompt = (powers.prompt_j.value or 0.0) * read
    output = (powers.output_j.value or 0.0) * written
    open_ = Rates(r.sent, r.last)
    count = np.round(open_.value)
    unused_s = level.seconds * open_.of((count < 1).astype(float)).mean(*level.window)
    mean_w = energy / level.seconds
    idle_w = mean_w if powers.idle_w.value is None else powers.idle_w.value
    unused = min(max(idle_w, 0.0) * unused_s, energy)
    own = float((prompt + output).sum())
    if own > energy - unused:  # tokens can't have cost more than there was
        prompt, output = (part * (energy - unused) / own for part in (prompt, output))
        own = energy - unused
    common = energy - unused - own
    shared = open_.of(1 / np.maximum(count, 1) * (count >= 1))
    sent, last = (shared.integral(np.clip(edge, *level.window)) for edge in (r.sent, r.last))
    each = last - sent
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
    """Warn if no load raises the power, though requests were answered: then the server runs elsewhere."""
    loaded = [level.energy.value / level.seconds for level in levels if level.energy.value is not None]
    answered = any(level.requests.ok.any() for level in levels)
    if answered and idle_w.high is not None and loaded and max(loaded) < (1 + _RAISES) * idle_w.high:
        names = ", ".join(device.name for device in run.devices)
        run.warn(OTHER_GPU, f"requests don't raise the power of {names}: is it the server's GPU?")


def _scaled(factor: Estimate, joules: float) -> Estimate:
    return factor if factor.value is None else factor.scaled(joules / factor.value)


def _write(run: Run, bills: Sequence[tuple[Ints, list[Floats]]]) -> None:
    """Write the bills of levels into the ``requests`` table: rows, and values of the columns of ``tables.BILL``."""
    if not len(run.requests):
        return
    computed = {name: np.full(len(run.requests), np.nan) for name in tables.BILL}
    for rows, values in bills:
        for name, value in zip(tables.BILL, values, strict=False):  # those by the request timeline have two
            computed[name][rows] = value
    for name, column in computed.items():
        run.requests = tables.changed(run.requests, name, pa.array(column, from_pandas=True))


def regress(run: Run, levels: Sequence[Requests]) -> Regression | str:
    """The powers that explain the record of all devices best, or why there are none."""
    if not levels:
        return "no_power_sensor"
    origin = levels[0].origin_ns
    shifts = [(level.origin_ns - origin) / 1e9 for level in levels]
    ends = [float(np.nanmax(level.last)) + by for level, by in zip(levels, shifts, strict=True)]

    def columns(time: Floats, response: StepResponse) -> Floats:
        return np.concatenate(
            [_seen(level, time - by, response) for level, by in zip(levels, shifts, strict=True)], axis=1
        )

    rows = regression_rows(run, origin, min(shifts), max(ends), columns)
    if isinstance(rows, str):
        return rows
    same = rows.design.reshape(len(rows.target), len(levels), 3).sum(axis=1)
    pooled, _ = _fit(replace(rows, design=same))
    own, residual_w = _fit(rows)
    return Regression(pooled[0], own, residual_w)


def _seen(r: Requests, time: Floats, response: StepResponse) -> Floats:
    """Being busy, prompt and output tokens/s as readings at these times show them, shape (n, 3)."""
    busy = Rates(r.sent, r.last)
    good = r.ok & np.isfinite(r.first)
    sent, first, last = r.sent[good], r.first[good], r.last[good]
    read_s, written_s = np.maximum(first - sent, 1e-6), np.maximum(last - first, 1e-6)
    prompt = Rates(sent, sent + read_s, r.input_tokens[good] / read_s)
    output = Rates(first, first + written_s, r.output_tokens[good] / written_s)
    return shown([busy.of((busy.value > 0.5).astype(float)), prompt, output], time, response)


def _fit(rows: Rows) -> tuple[list[Powers], float]:
    """Least squares of power on idle and three regressors of each load; the root mean square of the residuals."""
    design = np.column_stack([np.ones(len(rows.target)), rows.design])
    found = solved(replace(rows, design=design))
    variance = np.diag(found.covariance)
    # Of columns that don't vary by themselves rounding can make it negative: these are unknown below.
    value, half = found.x, found.quantile * np.sqrt(np.where(variance >= 0, variance, np.nan))
    scaled = design / np.maximum(np.sqrt((design**2).mean(axis=0)), 1e-12)

    def stated(k: int, widest: float) -> Estimate:
        if apart(scaled, k) < VARIES or not half[k] <= widest * value[k]:
            return Estimate.null("not_distinguished", METHOD)
        return Estimate(float(value[k]), float(value[k] - half[k]), float(value[k] + half[k]), len(scaled), METHOD)

    powers = [
        Powers(stated(0, _WIDEST), stated(k, np.inf), stated(k + 1, _WIDEST), stated(k + 2, _WIDEST))
        for k in range(1, design.shape[1], 3)
    ]
    return powers, found.residual_w
