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

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.arrays import Floats, Ints, Mask
from jouletrace.attribution.amounts import of_known
from jouletrace.run import Run
from jouletrace.stats.interval import Z95
from jouletrace.wings.serving.analysis.measured import Factors, Record, distinguished, rates
from jouletrace.wings.serving.analysis.steady import Bill, Requests, Steady, overlap, shared_time

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

PARTS = ("energy_prefill_j", "energy_decode_j", "energy_idle_j")
"""Metrics of what the energy of a window consists of."""

_IDLE, _STEP, _NEW, _SEQUENCE, _CONTEXT, _PAIR = range(6)

DROPPED = (_PAIR, _SEQUENCE, _CONTEXT, _NEW, _STEP)
"""Which factor is dropped first where several can't be distinguished; idle power is shown by pauses."""

LEAST_STEPS = 30
"""Steps with a traced energy from which these are used."""


@dataclass(frozen=True)
class Steps:
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

    @classmethod
    def from_table(cls, table: pa.Table, origin_ns: int | None = None) -> Steps:
        """Those of a ``steps`` table with a row; seconds are from the first start if there is no origin."""
        start, end = table["start_ns"].to_numpy(), table["end_ns"].to_numpy()
        origin = int(start[0]) if origin_ns is None else origin_ns
        names = ("new_tokens", "prefilling", "decoding", "context_tokens", "traced_j")
        columns = [pc.fill_null(pc.cast(table[name], "float64", safe=False), np.nan).to_numpy() for name in names]
        return cls(origin, (start - origin) / 1e9, (end - origin) / 1e9, *columns)

    def since(self, origin_ns: int) -> Steps:
        """The same with another zero."""
        by = (self.origin_ns - origin_ns) / 1e9
        return replace(self, origin_ns=origin_ns, start=self.start + by, end=self.end + by)

    @property
    def keys_and_queries(self) -> Floats:
        """Of the attention of each step, shape (2, n)."""
        return np.stack([self.new + self.context, self.new + self.decoding])

    @property
    def amounts(self) -> Floats:
        """The amounts of each factor but idle, shape (n, 5)."""
        pairs = self.keys_and_queries.prod(axis=0)
        return np.column_stack([np.ones(len(pairs)), self.new, self.decoding, self.context, pairs])


def steps_in(run: Run) -> Steps | None:
    """The steps of a Run; None without, or if its answers don't show them."""
    shown = len(run.steps) and run.workload["serving"].get("streamed", 1.0) >= TOGETHER
    return Steps.from_table(run.steps) if shown else None


def factors_of(run: Run, steps: Steps, record: Record) -> Factors:
    """The factors that explain the record of all devices best; ``steps`` have its origin."""
    kinds = [(steps.start, steps.end, one) for one in steps.amounts.T]
    known = distinguished(record.shown(rates(kinds)), DROPPED)
    units = record.units(rates([kinds[k - 1] for k in np.flatnonzero(known)[1:]]))
    streamed = run.workload["serving"].get("streamed")
    scatter = 0.0 if streamed is None else MISSED[0] + MISSED[1] * (1 - streamed)
    method = METHOD if streamed is None else STREAMED
    x, covariance = _spread(known, units.value, units.covariance)
    found = Factors(x, covariance, known, units.residual_w, method, len(units.shown), scatter)
    traced = np.flatnonzero(np.isfinite(steps.traced_j))
    return found if len(traced) < LEAST_STEPS else _by_traced(run, steps, traced, found)


def _spread(known: Mask, value: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    """Values of the known factors among all, and their covariance, shapes (6,) and (6, 6)."""
    x, every = np.zeros(6), np.zeros((6, 6))
    x[known], every[np.ix_(known, known)] = value, covariance
    return x, every


def _by_traced(run: Run, steps: Steps, traced: Ints, found: Factors) -> Factors:
    """Factors from energies of traced steps; that of idle stays as the readings give it.

    Their covariance has that of the kernels' powers beside that of the residuals.
    """
    amounts, seconds = steps.amounts[traced], (steps.end - steps.start)[traced]
    known = np.append(True, distinguished(amounts, [k - 1 for k in DROPPED]))
    kept = amounts[:, known[1:]]
    value, seen = of_known(kept, steps.traced_j[traced] - found.x[_IDLE] * seconds)
    x, covariance = _spread(known, np.append(found.x[_IDLE], value), np.pad(seen, (1, 0)))
    if stored := run.workload["serving"].get("traced_covariance"):  # without pairs in Runs of versions before 2026-12
        size = len(stored)
        covariance[1 : size + 1, 1 : size + 1] += stored * np.outer(known, known)[1 : size + 1, 1 : size + 1]
    by_idle = np.zeros(6)  # an error of idle power is one of what steps cost beside it
    by_idle[known] = 1.0, *-np.linalg.lstsq(kept, seconds, rcond=None)[0]
    covariance += found.covariance[_IDLE, _IDLE] * np.outer(by_idle, by_idle)
    return replace(found, x=x, covariance=covariance, known=known, method=TRACED, n=len(traced))


class StepIndices(NamedTuple):
    """Indices of steps of each request, shape (n,) each: 0, -1 and -1 of one that is in no step."""

    first: Ints
    read: Ints  # which read the end of its prompt
    last: Ints


@dataclass(frozen=True)
class Amounts:
    """The amounts of each factor within a steady window.

    Attributes:
        requests: Of each request, shape (n, 6).
        own: Of its own tokens, shape (n, 6): with idle power for the time by which they lengthen steps.
        parts: Of prefill, decode and idle, by metric, shape (6,) each; their sum is that of ``requests``.
        share: Share of each request's time in the window, shape (n,).
        accounted: Tokens of the requests over those of the steps.
    """

    requests: Floats
    own: Floats
    parts: dict[str, Floats]
    share: Floats
    accounted: float

    @property
    def whole(self) -> Floats:
        """Of the window, shape (6,)."""
        return np.asarray(sum(self.parts.values()))


def amounts_of(level: Steady, steps: Steps) -> Amounts:
    """The amounts of steps and requests within the steady window of a level."""
    r, window, steps = level.requests, level.window, steps.since(level.requests.origin_ns)
    inside, share = overlap(steps.start, steps.end, window), overlap(r.sent, r.last, window)
    places = _places(r, steps)
    reading = _sequences(steps, places)
    sequences = np.maximum(reading + steps.decoding, 1.0)
    whole = inside @ steps.amounts
    done = np.append(0.0, np.cumsum(inside / sequences))
    common = np.where(places.last >= places.first, done[places.last + 1] - done[places.first], 0.0)
    each = np.column_stack([common, *_own(level, steps, places), _pairs(r, steps, places, inside)])
    total = each.sum(axis=0)
    accounted = float(total[1:3].sum() / max(whole[1:3].sum(), 1e-300))  # prompt tokens, and others
    weight = np.where(total > 0, each, share[:, None])
    each = whole * weight / np.maximum(weight.sum(axis=0), 1e-300)
    times, idle = _times(steps, inside), shared_time(r, window, (steps.start, steps.end))
    own_s = each[:, 1:] @ times[1:]
    idle_s = idle.each + idle.nobody * share / max(float(share.sum()), 1e-300) + times[0] * each[:, 0] + own_s
    prefill, of_prompts = np.zeros(5), float(inside @ (steps.new * steps.keys_and_queries.sum(axis=0))) / 2
    prefill[[0, 1, 4]] = inside @ (reading / sequences), whole[1], of_prompts
    parts = {name: np.append(times @ one, one) for name, one in zip(PARTS, (prefill, whole - prefill), strict=False)}
    parts[PARTS[-1]] = np.append(idle.each.sum() + idle.nobody, np.zeros(5))
    own = np.column_stack([own_s, np.zeros(len(r)), each[:, 1:]])
    return Amounts(np.column_stack([idle_s, each]), own, parts, share, accounted)


def _times(steps: Steps, inside: Floats) -> Floats:
    """By what each amount lengthens steps, s, shape (5,); what isn't explained by amounts is common to the steps."""
    from scipy.optimize import nnls  # a quarter of a second to import

    seconds, amounts = steps.end - steps.start, steps.amounts
    scale = np.maximum(amounts.max(axis=0), 1.0)
    found: Floats = np.asarray(nnls(amounts / scale, seconds)[0]) / scale
    whole = inside @ amounts
    found[0] += float(inside @ seconds - whole @ found) / max(float(whole[0]), 1e-300)
    return found


def _places(r: Requests, steps: Steps) -> StepIndices:
    """The steps of each request.

    A step belongs to what arrived after its middle: stamps of client and server differ by less than half a step. The
    prompt is taken to be read in the last steps before the first token that together read as many tokens.
    """
    middle, reads = (steps.start + steps.end) / 2, np.flatnonzero(steps.new > 0)
    first, last = (np.where(r.ok, one, -np.inf) for one in (r.first, r.last))
    place = np.searchsorted(middle[reads], first, side="right") - 1
    known = r.ok & (place >= 0)
    read = np.where(known, np.append(reads, 0)[place], 0)
    done = np.cumsum(steps.new)
    begun = np.searchsorted(done, done[read] - r.input_tokens, side="right")
    begun = np.minimum(np.maximum(begun, np.searchsorted(steps.end, r.sent, side="right")), read)
    until = np.searchsorted(middle, last, side="right") - 1
    return StepIndices(np.where(known, begun, 0), np.where(known, read, -1), np.where(known, until, -1))


def _sequences(steps: Steps, places: StepIndices) -> Floats:
    """Sequences that read prompt tokens in each step: as logged, or by the requests; shape (n,)."""
    some, size = places.read >= 0, len(steps.start) + 1
    change = np.bincount(places.first[some], minlength=size) - np.bincount(places.read[some] + 1, minlength=size)
    by_requests = np.where(steps.new > 0, np.maximum(np.cumsum(change)[:-1], 1.0), 0.0)
    return np.where(np.isnan(steps.prefilling), by_requests, steps.prefilling)


def _own(level: Steady, steps: Steps, places: StepIndices) -> tuple[Floats, Floats, Floats]:
    """Prompt tokens, steps after the first token, and the sum of the cache over these, in the window; shape (n,)."""
    r, some = level.requests, places.read >= 0
    reading = overlap(steps.start[places.first], steps.end[np.maximum(places.read, 0)], level.window)
    length = np.where(some & (r.last > r.first), r.last - r.first, np.inf)
    from_, until = (np.clip((edge - np.where(some, r.first, 0.0)) / length, 0.0, 1.0) for edge in level.window)
    count = np.maximum(r.output_tokens - 1, 0.0)
    new, decoding = np.where(some, r.input_tokens * reading, 0.0), count * (until - from_)
    return new, decoding, decoding * (r.input_tokens + count * (from_ + until) / 2)


def _pairs(r: Requests, steps: Steps, places: StepIndices, inside: Floats) -> Floats:
    """Half of the pairs of each request's queries and half of those of its keys in the window, shape (n,).

    A request adds one query and one key with each step after its prompt, whose tokens are both.
    """
    some, (keys, queries) = places.read >= 0, steps.keys_and_queries
    read, last = np.where(some, places.read, 0), np.where(some, np.maximum(places.last, places.read), 0)

    def summed(each: Floats, since: Ints, until: Ints) -> Floats:
        total = np.append(0.0, np.cumsum(each))
        return np.asarray(total[until + 1] - total[since])

    new = np.maximum(summed(steps.new, places.first, read), 1.0)
    prompt = r.input_tokens / new * summed(inside * steps.new * (keys + queries), places.first, read)
    own_queries = summed(inside * keys, read + 1, last)
    own_keys = (r.input_tokens - read) * summed(inside * queries, read + 1, last)
    own_keys += summed(inside * np.arange(len(keys)) * queries, read + 1, last)
    return np.where(some, prompt + own_queries + own_keys, 0.0) / 2


def bill_by_steps(level: Steady, steps: Steps, factors: Factors) -> Bill | None:
    """The bills of a level, by the rule of the module; None without an energy, a request, or a step."""
    energy = level.energy
    if energy.value is None:
        return None
    amounts = amounts_of(level, steps)
    whole = amounts.whole
    closure = float(whole @ factors.x) / energy.value
    if amounts.share.sum() <= 0 or whole[_STEP] <= 0 or closure <= 0:
        return None
    energy_j, half_j = factors.parts(amounts.requests, whole, energy)
    half_j = np.hypot(half_j, Z95 * factors.scatter * energy_j)
    found = zip(*factors.parts(np.array([*amounts.parts.values()]), whole, energy), strict=True)
    parts = {name: factors.stated(*one) for name, one in zip(PARTS, found, strict=True)}
    if not factors.known[_NEW] and amounts.parts[PARTS[0]][_NEW] > 0:
        parts |= dict.fromkeys(PARTS[:2], factors.nothing)
    half = math.sqrt(whole @ factors.covariance @ whole)
    half = math.hypot(Z95 * half, closure * (energy.half_width or 0.0)) / energy.value
    parts["closure_steps"] = factors.stated(closure, half)
    return Bill(energy_j, amounts.share, parts, amounts.own @ factors.x / closure, half_j, amounts.accounted)
