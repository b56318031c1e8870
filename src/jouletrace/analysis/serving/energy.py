"""Energy of prompt and output tokens by regression of power on the timeline of requests, and the bill of each request.

**The regression.** Readings are explained by four powers: context idle, what is added while any request is open, a
prompt's tokens (spread evenly from sending to first token) and output tokens (from first to last), by the estimator
(``attribution.amounts``). The last two factors are joules per token: what one token more costs, at these loads. They
are computed with the same factors for all levels, and with factors of each level's own, since larger batches make
tokens cheaper. They are stated only where the load distinguishes them: lengths or rates vary, and prompts rarely wait.

**The bill.** A request pays for its own tokens by these two factors. What is left of the energy of the steady window is
common. Of it, power while no request is open is shared by all requests of the window equally, by their share in it. The
rest is shared at each moment by the requests that are open then, equally. Bills add up to the window's energy exactly.

Where the server's scheduler steps are known, the bills are by these (``steps``), not by this regression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from jouletrace.analysis.figures import Figures
from jouletrace.analysis.serving.measured import VARIES, Kind, Record, apart, joined, rates
from jouletrace.analysis.serving.steady import Bill, Floats, Ints, Rates, Requests, Steady, overlap, percentile
from jouletrace.analysis.serving.steps import FACTORS, bill_by_steps, model_of, timeline_of
from jouletrace.run import MODEL_UNIT, Estimate, Run, tables
from jouletrace.stats.interval import Z95

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
        residual_w: Root mean square of the residuals of the former.
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
    origin_ns = levels[0].requests.origin_ns
    record = Record.of(run, origin_ns, np.array([_extent(level.requests, origin_ns) for level in levels]))
    steps, model = timeline_of(run), None
    if steps is not None and isinstance(record, str):
        run.warn(NO_STEPS, f"the steps were not used: {record.replace('_', ' ')}; bills are by the request timeline")
    elif steps is not None and not isinstance(record, str):
        model = model_of(run, steps.of(origin_ns), record)

    @lru_cache(maxsize=1)
    def by_requests() -> Regression:
        return regress(record, [level.requests for level in levels])

    if model is not None:  # what the requests alone would say is less than that
        for k, metric in enumerate(FACTORS):
            figures.add(MODEL_UNIT, metric, model.factor(k))
        figures.add(MODEL_UNIT, "residual_w", Estimate(model.residual_w, method=model.method))
    else:
        _add_powers(figures, levels, by_requests())
    _warn_of_other_gpu(run, model.factor(0) if model is not None else by_requests().pooled.idle_w, levels)
    columns: list[tuple[Ints, list[Floats]]] = []
    for k, level in enumerate(levels):
        bills: Bill | None = None
        if steps is not None and model is not None:
            bills = bill_by_steps(level, steps, model)
            _warn_of_steps(run, level, bills)
        if bills := bills or bill(level, by_requests().of(k)):
            valid = not doubts(run, level.load["name"])
            _add_bills(figures, level, bills, valid)
            inside = bills.share > 0
            some = (bills.energy_j, bills.share, bills.own_j, bills.half_j)
            if valid:
                columns.append((level.requests.row[inside], [one[inside] for one in some if one is not None]))
    _write(run, columns)


def _add_bills(figures: Figures, level: Steady, bills: Bill, valid: bool) -> None:
    """Add the parts of a level's energy, and percentiles of its bills."""
    complete = bills.energy_j[(bills.share >= 1.0) & level.requests.ok]
    closure = float(bills.energy_j.sum()) / (level.energy.value or np.nan)
    found = bills.parts | {"closure_bills": Estimate(closure, n=int((bills.share > 0).sum()), method="bill")}
    found |= {f"bill_{label}_j": percentile(complete, p) for label, p in BILLED.items()}
    for metric, value in found.items():
        figures.add(level.unit, metric, value if valid else Estimate.null("load_not_valid", "bill"))


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
        run.warn(OTHER_GPU, f"requests don't raise the power of {names}")


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


def _extent(r: Requests, origin_ns: int) -> tuple[float, float]:
    """Start and end of a load in seconds from an origin."""
    by = (r.origin_ns - origin_ns) / 1e9
    return float(r.sent[0]) + by, float(np.nanmax(r.last)) + by


def regress(record: Record | str, levels: Sequence[Requests]) -> Regression:
    """The powers that explain the record of all devices best; its origin is that of the first level."""
    if isinstance(record, str):
        return Regression(_none(record), [_none(record)] * len(levels), 0.0)
    origin_ns = levels[0].origin_ns
    each = [_kinds(level, (level.origin_ns - origin_ns) / 1e9) for level in levels]
    pooled, residual_w = _powers(record, [joined(same) for same in zip(*each, strict=True)])
    if len(levels) == 1:
        return Regression(pooled, [pooled], residual_w)
    alone = [record.alone(*_extent(level, origin_ns)) for level in levels]
    own = [
        _none(one) if isinstance(one, str) else _powers(one, kinds)[0] for one, kinds in zip(alone, each, strict=True)
    ]
    return Regression(pooled, own, residual_w)


def _none(reason: str) -> Powers:
    null = Estimate.null(reason, METHOD)
    return Powers(null, null, null, null)


def _kinds(r: Requests, by: float) -> list[Kind]:
    """Starts, ends and amounts of being busy, prompt and output tokens, ``by`` seconds later."""
    busy = Rates(r.sent, r.last)
    change = np.flatnonzero(np.diff(busy.value > 0.5, prepend=False))
    start, end = busy.time[change].reshape(-1, 2).T
    good = r.ok & np.isfinite(r.first)
    sent, first, last = r.sent[good], r.first[good], r.last[good]
    kinds = (start, end, end - start), (sent, first, r.input_tokens[good]), (first, last, r.output_tokens[good])
    return [(begin + by, until + by, amount) for begin, until, amount in kinds]


def _powers(record: Record, kinds: Sequence[Kind]) -> tuple[Powers, float]:
    """Powers by being busy, prompt and output tokens; the root mean square of what is left."""
    found = record.units(rates(kinds))
    left, half = apart(found.shown), Z95 * np.sqrt(np.diag(found.covariance))

    def stated(k: int, widest: float) -> Estimate:
        value = float(found.value[k])
        if left[k] < VARIES or not half[k] <= widest * value:
            return Estimate.null("not_distinguished", METHOD)
        return Estimate(value, value - half[k], value + half[k], len(found.shown), METHOD)

    return Powers(stated(0, _WIDEST), stated(1, np.inf), stated(2, _WIDEST), stated(3, _WIDEST)), found.residual_w
