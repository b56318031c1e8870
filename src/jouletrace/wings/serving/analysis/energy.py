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
from functools import lru_cache

import numpy as np
import pyarrow as pa

from jouletrace.analysis.latency import of_requests
from jouletrace.analysis.power import power_record
from jouletrace.run import MODEL_UNIT, Estimate, Run, tables
from jouletrace.run.figures import Figures
from jouletrace.stats.interval import Z95
from jouletrace.wings.serving.analysis.measured import VARIES, Factors, Kind, Record, apart, joined, rates
from jouletrace.wings.serving.analysis.steady import (
    Bill,
    Requests,
    Steady,
    going_on,
    overlap,
    shared_time,
)
from jouletrace.wings.serving.analysis.steps import FACTORS, bill_by_steps, factors_of, steps_in

METHOD = "request timeline"
_METRICS = ("baseline_context_idle_w", "power_busy_w", "energy_prompt_token_j", "energy_output_token_j")
_IDLE, _BUSY, _PROMPT, _OUTPUT = range(4)

_WIDEST = np.array([0.5, 1e9, 0.5, 0.5])
"""Half-width of each factor over its value beyond which it isn't resolved; of being busy any."""

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


def add_energies(
    run: Run, figures: Figures, levels: Sequence[Steady], doubts: Callable[[Run, str], Sequence[str]]
) -> None:
    """Add what tokens add, the parts of each level's energy, and write the bills: by steps, or by the requests.

    A load that isn't valid by ``doubts`` (codes, by its name) has neither parts nor bills.
    """
    origin_ns = levels[0].requests.origin_ns
    record = Record.from_run(run, origin_ns, np.array([_extent(level.requests, origin_ns) for level in levels]))
    steps, by_steps = steps_in(run), None
    if steps is not None and isinstance(record, str) and any(power_record(run, one.id) for one in run.devices):
        run.warn(NO_STEPS, f"the steps were not used: {record.replace('_', ' ')}; bills are by the request timeline")
    elif steps is not None and not isinstance(record, str):
        by_steps = factors_of(run, steps.since(origin_ns), record)

    @lru_cache(maxsize=1)
    def by_requests() -> tuple[Factors, list[Factors]]:
        return regress(record, [level.requests for level in levels])

    every = by_steps or by_requests()[0]
    elsewhere = _warn_of_other_gpu(run, every.estimate(_IDLE), levels)

    def stated(one: Factors, k: int) -> Estimate:
        return Estimate.null("load_not_valid", one.method) if elsewhere else one.estimate(k)

    if by_steps is not None:  # what the requests alone would say is less than that
        figures.add_each(MODEL_UNIT, {metric: stated(by_steps, k) for k, metric in enumerate(FACTORS)})
    else:
        pooled, own = by_requests()
        for unit, one in [(MODEL_UNIT, pooled), *((level.unit, own[k]) for k, level in enumerate(levels))]:
            first = _IDLE if unit == MODEL_UNIT and pooled.n else _BUSY
            figures.add_each(unit, {metric: stated(one, k) for k, metric in enumerate(_METRICS) if k >= first})
    if every.n:
        figures.add(MODEL_UNIT, "residual_w", Estimate(every.residual_w, method=every.method))
    columns = {name: np.full(len(run.requests), np.nan) for name in tables.BILL}
    for k, level in enumerate(levels):
        bills: Bill | None = None
        if steps is not None and by_steps is not None:
            bills = bill_by_steps(level, steps, by_steps)
            _warn_of_steps(run, level, bills)
        if bills := bills or bill(level, by_requests()[1][k], by_requests()[0]):
            valid = not doubts(run, level.load["name"])
            figures.add_each(level.unit, _bill_figures(level, bills, valid))
            if valid:
                inside = bills.share > 0
                for name, values in zip(tables.BILL, bills.columns, strict=True):
                    columns[name][level.requests.row[inside]] = np.nan if values is None else values[inside]
    for name, column in columns.items():
        run.requests = tables.changed(run.requests, name, pa.array(column, from_pandas=True))


def _bill_figures(level: Steady, bills: Bill, valid: bool) -> dict[str, Estimate]:
    """The parts of a level's energy, and percentiles of its bills; null if the load isn't valid."""
    complete = bills.energy_j[(bills.share >= 1.0) & level.requests.ok]
    closure = float(bills.energy_j.sum()) / (level.energy.value or np.nan)
    found = bills.parts | {"closure_bills": Estimate(closure, n=int((bills.share > 0).sum()), method="bill")}
    found |= {f"bill_{label}_j": of_requests(complete, p) for label, p in BILLED.items()}
    return found if valid else dict.fromkeys(found, Estimate.null("load_not_valid", "bill"))


def _warn_of_steps(run: Run, level: Steady, bills: Bill | None) -> None:
    """Warn if the steps aren't those of the requests, or don't explain the energy."""
    name = level.load["name"]
    if bills is None:
        run.warn(NO_STEPS, f"{name}: no step within its steady window; its bills are by the request timeline", name)
        return
    if level.requests.ok.any() and abs(bills.accounted - 1) > OTHERS:
        others = bills.accounted < 1
        why = "were there others?" if others else "were prompts in the server's cache, or are steps not in the log?"
        message = f"{name}: its requests have {bills.accounted:.0%} of the tokens of the steps: {why}"
        run.warn(OTHER_STEPS if others else TOO_FEW, message, name)
    closure = bills.parts["closure_steps"].value or 0.0
    if abs(closure - 1) > OPEN:
        message = f"{name}: the steps explain {closure:.0%} of the GPUs' energy: their bills are scaled to it"
        run.warn(NOT_CLOSED, message, name)


def _warn_of_other_gpu(run: Run, idle_w: Estimate, levels: Sequence[Steady]) -> bool:
    """Warn if no load raises the power, though requests were answered: then the server runs elsewhere. True if so."""
    loaded = [level.energy.value / level.seconds for level in levels if level.energy.value is not None]
    answered = any(level.requests.ok.any() for level in levels)
    if not answered or idle_w.high is None or not loaded or max(loaded) >= (1 + _RAISES) * idle_w.high:
        return False
    names = ", ".join(device.name for device in run.devices)
    why = ", on which no server runs" if run.simulated else ""
    run.warn(OTHER_GPU, f"requests don't raise the power of {names}{why}")
    return True


def bill(level: Steady, own: Factors, pooled: Factors) -> Bill | None:
    """The bills of a level, by the rule of the module; None without an energy or a request.

    Factors are those of the level, or where these don't know both tokens, those of all levels if they do.
    """
    r, energy = level.requests, level.energy.value
    share, shared = overlap(r.sent, r.last, level.window), shared_time(r, level.window)
    if energy is None or share.sum() <= 0 or shared.each.sum() <= 0:
        return None
    factors = next((one for one in (own, pooled) if one.known[_PROMPT] and one.known[_OUTPUT]), own)
    tokens = np.stack(level.weights()[1:], axis=1) * factors.x[_PROMPT:]
    idle_w = factors.x[_IDLE] if factors.known[_IDLE] else energy / level.seconds
    unused = min(max(idle_w, 0.0) * shared.nobody, energy)
    if tokens.sum() > energy - unused:  # tokens can't have cost more than there was
        tokens *= (energy - unused) / tokens.sum()
    common = energy - unused - float(tokens.sum())
    energy_j = tokens.sum(axis=1) + common * shared.each / shared.each.sum() + unused * share / share.sum()
    parts = {}
    for k, name in ((_PROMPT, "energy_prompts_j"), (_OUTPUT, "energy_outputs_j")):
        factor, joules = factors.estimate(k), float(tokens[:, k - _PROMPT].sum())
        parts[name] = factor.scaled(joules / factor.value) if factor.value else factor
    parts["energy_common_j"] = Estimate(common, method="bill")
    parts["energy_unused_j"] = Estimate(unused, method="bill")
    return Bill(energy_j, share, parts)


def _extent(r: Requests, origin_ns: int) -> tuple[float, float]:
    """Start and end of a load in seconds from an origin."""
    by = (r.origin_ns - origin_ns) / 1e9
    return float(r.sent[0]) + by, float(np.nanmax(r.last)) + by


def regress(record: Record | str, levels: Sequence[Requests]) -> tuple[Factors, list[Factors]]:
    """The factors that explain the record best, whose origin is that of the first level; with those of each level."""
    if isinstance(record, str):
        none = Factors.none(3, record, METHOD)
        return none, [none] * len(levels)
    origin_ns = levels[0].origin_ns
    each = [_kinds(level, (level.origin_ns - origin_ns) / 1e9) for level in levels]
    pooled = _factors(record, [joined(same) for same in zip(*each, strict=True)])
    if len(levels) == 1:
        return pooled, [pooled]
    alone = [record.alone(*_extent(level, origin_ns)) for level in levels]
    return pooled, [_factors(one, kinds) for one, kinds in zip(alone, each, strict=True)]


def _kinds(r: Requests, by: float) -> list[Kind]:
    """Starts, ends and amounts of being busy, prompt and output tokens, ``by`` seconds later."""
    edges = np.unique(np.concatenate([r.sent, r.last]))
    busy = going_on(r.sent, r.last, edges) > 0.5
    change = edges[np.flatnonzero(np.diff(busy, prepend=False, append=False))]
    start, end = change[::2], change[1::2]
    good = r.ok & np.isfinite(r.first)
    sent, first, last = r.sent[good], r.first[good], r.last[good]
    kinds = (start, end, end - start), (sent, first, r.input_tokens[good]), (first, last, r.output_tokens[good])
    return [(begin + by, until + by, amount) for begin, until, amount in kinds]


def _factors(record: Record | str, kinds: Sequence[Kind]) -> Factors:
    """Idle power and what being busy, a prompt token and an output token add."""
    if isinstance(record, str):
        return Factors.none(3, record, METHOD)
    found = record.units(rates(kinds))
    half = Z95 * np.sqrt(np.diag(found.covariance))
    known = (apart(found.shown) >= VARIES) & (half <= _WIDEST * found.value)
    x = np.where(known, found.value, 0.0)
    return Factors(x, found.covariance, known, found.residual_w, METHOD, len(found.shown))
