"""Energy of a server's scheduler steps, and the bill of each request by the steps in which it took part.

**The model.** The GPUs draw idle power all the time: the host delays steps by any time, at that power. Above it a
step costs what is common to all in it (reading the weights), and what each prompt token that it reads, each decoding
sequence, each token in the caches of these, and each pair of a query and a key in it adds::

    energy of a step = idle power * time + step + new token * new tokens + sequence * decoding
                       + context token * context + pair * (new tokens + decoding) * (new tokens + context)

Pairs are for servers whose attention computes the whole batch and masks what doesn't belong together, as transformers'
own does. Others have a factor of 0 there.

All six factors are those that explain the readings best (``attribution.amounts``), or the energies of steps by the
server's traced kernels. One is dropped if the steps don't distinguish it from the others, in the order of ``DROPPED``:
its figure is null, its energy is then in the others.

**The closure.** Model energies of a steady window are scaled by one factor to the GPUs' energy of the window. The
factor is a figure: ``closure_steps``, model over measured.

**The bill.** A request pays for its prompt tokens, for one sequence at each step after its first token, and for its
cache at these, with idle power for the time by which these lengthen steps (by least squares). Of pairs it pays half
for its queries and half for its keys. What is common to a step, with idle power for the rest of its time, is shared
equally by the sequences in it. Idle power between steps is shared at each moment by the requests that are open then,
equally; while none is open, by all requests of the window, by their share in it. Prefill and decode are the same sums
over steps: what is common to a step goes to them by the sequences of each. All bills are linear in the factors, so
that they have intervals, and they add up to the window's energy exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.serving.measured import Record, distinguished, rates
from jouletrace.analysis.serving.steady import Bill, Floats, Ints, Rates, Steady, overlap
from jouletrace.attribution.amounts import of_known
from jouletrace.run import Estimate, Run
from jouletrace.stats.interval import Z95

METHOD, STREAMED, TRACED = "scheduler steps", "streamed steps", "traced steps"

TOGETHER, MISSED = 0.95, (0.015, 2.0)
"""Least completeness of steps that answers show (``streams``); scatter of bills by them about those by a log, if they
are complete and per share that is missing (docs/results/accuracy-serving.md)."""

FACTORS = (
    "baseline_context_idle_w",
    "energy_step_j",
    "energy_new_token_j",
    "energy_sequence_j",
    "energy_context_token_j",
    "energy_pair_j",
)
"""Metrics of the factors, in the order of all arrays here."""

_IDLE, _STEP, _NEW, _SEQUENCE, _CONTEXT, _PAIR = range(6)

DROPPED = (_PAIR, _SEQUENCE, _CONTEXT, _NEW, _STEP)
"""Which factor is dropped first where several can't be distinguished; idle power is shown by pauses."""

FEWEST = 30
"""Steps with a traced energy from which these are used."""


@dataclass(frozen=True)
class Timeline:
    """Steps in order of time.

    Attributes:
        origin_ns: Zero of the seconds.
        start, end: Seconds, shape (n,).
        new: Prompt tokens read, shape (n,).
        prefilling: Sequences that read them, shape (n,); NaN where it isn't known.
        decoding: Sequences that got a token, shape (n,).
        context: Tokens in their caches, shape (n,).
        traced_j: By traced kernels, shape (n,); NaN where it isn't known.
    """

    origin_ns: int
    start: Floats
    end: Floats
    new: Floats
    prefilling: Floats
    decoding: Floats
    context: Floats
    traced_j: Floats

    def of(self, origin_ns: int) -> Timeline:
        """The same with another zero."""
        by = (self.origin_ns - origin_ns) / 1e9
        return replace(self, origin_ns=origin_ns, start=self.start + by, end=self.end + by)

    @property
    def queries(self) -> Floats:
        """Of the attention of each step, shape (n,)."""
        return self.new + self.decoding

    @property
    def keys(self) -> Floats:
        """Of the attention of each step, shape (n,)."""
        return self.new + self.context

    @property
    def amounts(self) -> Floats:
        """What each factor but idle is multiplied by, shape (n, 5)."""
        return amounts_of_steps(self.new, self.decoding, self.context)


def amounts_of_steps(new: Floats, decoding: Floats, context: Floats) -> Floats:
    """What each factor but idle is multiplied by, shape (n, 5), from what steps did, shape (n,) each."""
    return np.column_stack([np.ones(len(new)), new, decoding, context, (new + decoding) * (new + context)])


def timeline_of(run: Run) -> Timeline | None:
    """The steps of a Run; None without, or if its answers don't show them."""
    if not len(run.steps) or run.workload["serving"].get("streamed", 1.0) < TOGETHER:
        return None

    def number(name: str) -> Floats:
        return np.asarray(pc.fill_null(pc.cast(run.steps[name], "float64", safe=False), np.nan).to_numpy())

    start, end = run.steps["start_ns"].to_numpy(), run.steps["end_ns"].to_numpy()
    origin = int(start[0])
    names = ("new_tokens", "prefilling", "decoding", "context_tokens", "traced_j")
    return Timeline(origin, (start - origin) / 1e9, (end - origin) / 1e9, *map(number, names))


@dataclass(frozen=True)
class Model:
    """Energy of steps.

    Attributes:
        x: The factors, 0 of a dropped one, shape (6,).
        covariance: Shape (6, 6).
        known: Which factors aren't dropped, shape (6,).
        residual_w: Root mean square of the residuals of the readings.
        method: What the factors are from.
        n: Readings or steps behind them.
        scatter: Of bills about those by the scheduler's own steps, relative.
    """

    x: Floats
    covariance: Floats
    known: NDArray[np.bool_]
    residual_w: float
    method: str
    n: int
    scatter: float = 0.0

    def factor(self, k: int) -> Estimate:
        """A factor with its interval, which ends at 0."""
        if not self.known[k]:
            return Estimate.null("not_distinguished", self.method)
        value, half = float(self.x[k]), Z95 * float(np.sqrt(self.covariance[k, k]))
        return Estimate(value, max(value - half, 0.0), value + half, self.n, self.method)


def model_of(run: Run, steps: Timeline, record: Record) -> Model:
    """The factors that explain the record of all devices best; ``steps`` have its origin."""
    kinds = [(steps.start, steps.end, one) for one in steps.amounts.T]
    known = distinguished(record.shown(rates(kinds)), DROPPED)
    kept = np.flatnonzero(known)
    units = record.units(rates([kinds[k - 1] for k in kept[1:]]))
    x, covariance = np.zeros(6), np.zeros((6, 6))
    x[kept], covariance[np.ix_(kept, kept)] = units.value, units.covariance
    streamed = run.workload["serving"].get("streamed")
    scatter = 0.0 if streamed is None else MISSED[0] + MISSED[1] * (1 - streamed)
    method = METHOD if streamed is None else STREAMED
    model = Model(x, covariance, known, units.residual_w, method, len(units.shown), scatter)
    traced = np.flatnonzero(np.isfinite(steps.traced_j))
    return model if len(traced) < FEWEST else _by_traced(run, steps, traced, model)


def _by_traced(run: Run, steps: Timeline, traced: Ints, model: Model) -> Model:
    """Factors from energies of traced steps; that of idle stays as the readings give it.

    Their covariance has that of the kernels' powers beside that of the residuals.
    """
    amounts, seconds = steps.amounts[traced], (steps.end - steps.start)[traced]
    known = np.append(True, distinguished(amounts, [k - 1 for k in DROPPED]))
    kept = np.flatnonzero(known)[1:]
    x, covariance = np.zeros(6), np.zeros((6, 6))
    above_j = steps.traced_j[traced] - model.x[_IDLE] * seconds
    x[kept], covariance[np.ix_(kept, kept)] = of_known(amounts[:, kept - 1], above_j)
    if stored := run.workload["serving"].get("traced_covariance"):  # without pairs in Runs of versions before 2026-12
        size = len(stored)
        covariance[1 : size + 1, 1 : size + 1] += stored * np.outer(known, known)[1 : size + 1, 1 : size + 1]
    by_idle = np.zeros(6)  # an error of idle power is one of what steps cost beside it
    by_idle[_IDLE], by_idle[kept] = 1.0, -np.linalg.lstsq(amounts[:, kept - 1], seconds, rcond=None)[0]
    covariance += model.covariance[_IDLE, _IDLE] * np.outer(by_idle, by_idle)
    x[_IDLE] = model.x[_IDLE]
    return replace(model, x=x, covariance=covariance, known=known, method=TRACED, n=len(traced))


@dataclass(frozen=True)
class Amounts:
    """What the factors are multiplied by within a steady window.

    Attributes:
        requests: Of each request, shape (n, 6).
        own_s: Seconds by which a request's own tokens lengthen steps, shape (n,).
        prefill, decode, idle: Of these parts of the window, shape (6,) each; they and ``requests`` have the same sum.
        share: Share of each request's time in the window, shape (n,).
        accounted: Tokens of the requests over those of the steps.
    """

    requests: Floats
    own_s: Floats
    prefill: Floats
    decode: Floats
    idle: Floats
    share: Floats
    accounted: float

    @property
    def whole(self) -> Floats:
        """Of the window, shape (6,)."""
        return self.prefill + self.decode + self.idle


def amounts_of(level: Steady, steps: Timeline) -> Amounts:
    """What steps and requests did within the steady window of a level."""
    steps, window = steps.of(level.requests.origin_ns), level.window
    inside = overlap(steps.start, steps.end, window)
    first, last, read = _part_in(level, steps)
    reading = _sequences(steps, first, read)
    sequences = np.maximum(reading + steps.decoding, 1.0)
    new, decoding, context, pairs = (float(one) for one in inside @ steps.amounts[:, 1:])
    part = reading / sequences
    idle_each, unused_s = _idle(level, steps)
    share = overlap(level.requests.sent, level.requests.last, window)
    idle_s = float(idle_each.sum()) + unused_s
    own = (*_own(level, steps, first, read), _pairs(level, steps, (first, read, last), inside))

    def of_whole(each: Floats, whole: float) -> Floats:
        weight = each if each.sum() > 0 else share
        return whole * weight / max(float(weight.sum()), 1e-300)

    done = np.append(0.0, np.cumsum(inside / sequences))
    common = np.where(last >= first, done[last + 1] - done[first], 0.0)
    wholes = (float(inside.sum()), new, decoding, context, pairs)
    parts = [of_whole(each, whole) for each, whole in zip((common, *own), wholes, strict=True)]
    times = _times(steps, inside)
    own_s = sum(time * each for time, each in zip(times[1:], parts[1:], strict=True))
    idle_each = idle_each + of_whole(share, unused_s)
    requests = np.column_stack([idle_each + times[0] * parts[0] + own_s, *parts])
    of_prefill, of_decode = float(inside @ part), float(inside @ (1 - part))
    of_prompts = float(inside @ (steps.new * (steps.keys + steps.queries))) / 2
    prefill = np.array([of_prefill, new, 0.0, 0.0, of_prompts])
    decode = np.array([of_decode, 0.0, decoding, context, pairs - of_prompts])
    prefill, decode = (np.append(times @ one, one) for one in (prefill, decode))
    accounted = float(own[0].sum() + own[1].sum()) / max(new + decoding, 1e-300)
    idle = np.array([idle_s, 0.0, 0.0, 0.0, 0.0, 0.0])
    return Amounts(requests, own_s, prefill, decode, idle, share, accounted)


def _times(steps: Timeline, inside: Floats) -> Floats:
    """By what each amount lengthens steps, s, shape (5,); what isn't explained by amounts is common to the steps."""
    from scipy.optimize import nnls  # a quarter of a second to import

    seconds, amounts = steps.end - steps.start, steps.amounts
    scale = np.maximum(amounts.max(axis=0), 1.0)
    found: Floats = np.asarray(nnls(amounts / scale, seconds)[0]) / scale
    whole = inside @ amounts
    found[0] += float(inside @ seconds - whole @ found) / max(float(whole[0]), 1e-300)
    return np.asarray(found)


def _part_in(level: Steady, steps: Timeline) -> tuple[Ints, Ints, Ints]:
    """Indices of the first and last step of each request, and of that which read the end of its prompt.

    A step belongs to what arrived after its middle: stamps of client and server differ by less than half a step. The
    prompt is taken to be read in the last steps before the first token that together read as many tokens. The last
    index is below the first for a request in no step. Shape (n,) each.
    """
    r = level.requests
    middle, reads = (steps.start + steps.end) / 2, np.flatnonzero(steps.new > 0)
    place = np.searchsorted(middle[reads], np.where(r.ok, r.first, -np.inf), side="right") - 1
    known = r.ok & (place >= 0)
    read = np.where(known, reads[np.maximum(place, 0)], 0) if len(reads) else np.zeros(len(r), np.int64)
    done = np.cumsum(steps.new)
    first = np.searchsorted(done, done[read] - r.input_tokens, side="right")
    first = np.minimum(np.maximum(first, np.searchsorted(steps.end, r.sent, side="right")), read)
    last = np.searchsorted(middle, np.where(r.ok, r.last, -np.inf), side="right") - 1
    return np.where(known, first, 0), np.where(known, last, -1), np.where(known, read, -1)


def _sequences(steps: Timeline, first: Ints, read: Ints) -> Floats:
    """Sequences that read prompt tokens in each step: as logged, or by the requests; shape (n,)."""
    change = np.zeros(len(steps.start) + 1)
    some = read >= 0
    np.add.at(change, first[some], 1.0)
    np.add.at(change, read[some] + 1, -1.0)
    by_requests = np.where(steps.new > 0, np.maximum(np.cumsum(change)[:-1], 1.0), 0.0)
    return np.where(np.isnan(steps.prefilling), by_requests, steps.prefilling)


def _own(level: Steady, steps: Timeline, first: Ints, read: Ints) -> tuple[Floats, Floats, Floats]:
    """Prompt tokens, steps after the first token, and the sum of the cache over these, in the window; shape (n,)."""
    r, (begin, end) = level.requests, level.window
    some = read >= 0
    reading = overlap(steps.start[first], steps.end[np.maximum(read, 0)], level.window)
    new = np.where(some, r.input_tokens * reading, 0.0)
    length = np.where(some & (r.last > r.first), r.last - r.first, np.inf)
    from_, until = (np.clip((edge - np.where(some, r.first, 0.0)) / length, 0.0, 1.0) for edge in (begin, end))
    count = np.maximum(r.output_tokens - 1, 0.0)
    decoding = count * (until - from_)
    return new, decoding, decoding * (r.input_tokens + count * (from_ + until) / 2)


def _pairs(level: Steady, steps: Timeline, part: tuple[Ints, Ints, Ints], inside: Floats) -> Floats:
    """Half of the pairs of its queries and half of those of its keys in the window, shape (n,); as ``_part_in``.

    A request adds one query and one key with each step after its prompt, whose tokens are both.
    """
    first, read, last = part
    r, place = level.requests, np.arange(len(steps.new))

    def summed(each: Floats, since: Ints, until: Ints) -> Floats:
        total = np.append(0.0, np.cumsum(each))
        return np.asarray(total[until + 1] - total[since])

    some = read >= 0
    read_, last_ = np.where(some, read, 0), np.where(some, np.maximum(last, read), 0)
    new = np.maximum(summed(steps.new, first, read_), 1.0)
    prompt = r.input_tokens / new * summed(inside * steps.new * (steps.keys + steps.queries), first, read_)
    queries = summed(inside * steps.keys, read_ + 1, last_)
    keys = (r.input_tokens - read_) * summed(inside * steps.queries, read_ + 1, last_)
    keys += summed(inside * place * steps.queries, read_ + 1, last_)
    return np.where(some, prompt + queries + keys, 0.0) / 2


def _idle(level: Steady, steps: Timeline) -> tuple[Floats, float]:
    """Each request's share of the time without a step, shape (n,), and that time while no request is open; s."""
    r, window = level.requests, level.window
    edges = np.concatenate([r.sent, r.last, steps.start, steps.end, window])
    edges = np.unique(np.clip(edges, *window))
    middle, length = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    open_, busy = (_at(Rates(*one), middle) for one in ((r.sent, r.last), (steps.start, steps.end)))
    free = np.where(busy < 0.5, length, 0.0)
    each = np.append(0.0, np.cumsum(np.where(open_ > 0.5, free / np.maximum(open_, 1.0), 0.0)))
    before, after = (each[np.searchsorted(edges, np.clip(one, *window))] for one in (r.sent, r.last))
    return after - before, float(free[open_ < 0.5].sum())


def _at(rates: Rates, time: Floats) -> Floats:
    """The sum at some times."""
    return np.append(0.0, np.round(rates.value))[np.searchsorted(rates.time, time, side="right")]


def bill_by_steps(level: Steady, steps: Timeline, model: Model) -> Bill | None:
    """The bills of a level, by the rule of the module; None without an energy, a request, or a step."""
    energy, energy_half = level.energy.value, level.energy.half_width or 0.0
    if energy is None:
        return None
    amounts = amounts_of(level, steps)
    whole = amounts.whole
    by_model = float(whole @ model.x)
    if amounts.share.sum() <= 0 or whole[_STEP] <= 0 or by_model <= 0:
        return None
    scale = energy / by_model

    def scaled(some: Floats) -> tuple[Floats, Floats]:
        """Energies of rows of amounts, shape (n, 5), and their half-widths."""
        part = some @ model.x / by_model
        moved = scale * (some - part[:, None] * whole)
        variance = np.einsum("ij,jk,ik->i", moved, model.covariance, moved)
        half = np.hypot(Z95 * np.sqrt(np.maximum(variance, 0.0)), part * energy_half)
        return part * energy, half

    energy_j, half_j = scaled(amounts.requests)
    half_j = np.hypot(half_j, Z95 * model.scatter * energy_j)
    own_j = scale * (amounts.requests[:, _NEW:] @ model.x[_NEW:] + amounts.own_s * model.x[_IDLE])
    values, halves = scaled(np.array([amounts.prefill, amounts.decode, amounts.idle]))
    names = ("energy_prefill_j", "energy_decode_j", "energy_idle_j")
    parts = {
        name: Estimate(float(value), max(float(value - half), 0.0), float(value + half), model.n, model.method)
        for name, value, half in zip(names, values, halves, strict=True)
    }
    lacking = {"energy_prefill_j": _NEW, "energy_decode_j": _NEW, "energy_idle_j": _IDLE}
    parts |= {
        name: Estimate.null("not_distinguished", model.method)
        for name, k in lacking.items()
        if not model.known[k] and (amounts.prefill + amounts.idle)[k] > 0
    }
    half = Z95 * float(np.sqrt(whole @ model.covariance @ whole)) / energy
    half = float(np.hypot(half, energy_half / energy / scale))
    parts["closure_steps"] = Estimate(1 / scale, 1 / scale - half, 1 / scale + half, model.n, model.method)
    return Bill(energy_j, amounts.share, parts, own_j, half_j, amounts.accounted)
