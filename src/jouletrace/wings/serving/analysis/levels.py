"""Figures of a server under load: latencies, goodput and energy of each level in its steady state (``steady``)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from jouletrace.analysis.checks import doubts
from jouletrace.analysis.conditions import capped
from jouletrace.analysis.latency import of_requests
from jouletrace.arrays import Floats
from jouletrace.run import Estimate, Run
from jouletrace.run.figures import Figures
from jouletrace.run.forms import LoadFacts
from jouletrace.stats.interval import ratio
from jouletrace.stats.quantiles import student
from jouletrace.stats.regression import equivalent_noise
from jouletrace.wings.serving.analysis.energy import NO_STEPS, NOT_CLOSED, OTHER_GPU, OTHER_STEPS, TOO_FEW, add_energies
from jouletrace.wings.serving.analysis.measured import BLOCKS, Measured, measured
from jouletrace.wings.serving.analysis.steady import (
    LEAST_REQUESTS,
    Requests,
    Steady,
    going_on,
    requests_of,
    shared_time,
    steady_window,
    weights_in,
)

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
LATENCIES = ("ttft", "tpot", "e2e")
"""Time to first token, per output token after the first, end to end."""

LATE_S, LATE_SHARE = 0.01, 0.1
"""The client keeps up if 99 % of requests are late by no more than this, or this share of the mean time between two."""

_DISTINCT = 1e-6
"""Least variation of blocks' tokens in one direction, relative to that in the other, that isn't rounding."""

_DRAWN = 4.0
"""Standard errors by which the mean of drawn lengths may differ from that of what they are drawn from."""

REACHED = 0.95
"""Share of the offered rate that must be completed."""

Found = tuple[int, LoadFacts, Requests]
"""A load's number, what was offered, and its requests."""

CHANCE = 2.0
"""Standard deviations of a Poisson count by which chance may differ."""

OFFERED = "offered rate"
"""Method of prices of an open loop."""

STATED = "stated"
"""Method of figures that the file of a load states."""

CODES = (
    "load_not_steady",
    "requests_failed",
    "client_late",
    "rate_not_reached",
    "no_usage",
    "short_answers",
    "more_tokens",
    "sent_again",
    "load_capped",
    OTHER_GPU,
    NO_STEPS,
    OTHER_STEPS,
    TOO_FEW,
    NOT_CLOSED,
)


_COUNTED = {
    "without_usage": ("no_usage", "{count} answers without usage figures: their chunks were counted as tokens"),
    "short": ("short_answers", "{count} answers ended before as many tokens as asked for"),
    "over": (
        "more_tokens",
        "{count} answers have more tokens than asked for, by the server's count: figures per token and bills follow "
        "that count",
    ),
    "sent_again": (
        "sent_again",
        "{count} of {all} requests were sent twice: the server closed a connection that it had kept, before any of the "
        "answer came",
    ),
}
"""Warnings of what a client counted in a load, by its name there: code and words."""

PRICES = ("energy_per_request_j", "energy_per_output_token_j", "energy_per_any_token_j", "tokens_per_j")
"""Metrics that say what a load costs."""


def add_serving(run: Run, figures: Figures) -> None:
    """Add a unit for each level, the energy of prompt and output tokens, and the bill of each request."""
    if run.kind == "bench":
        figures.model(run.workload.get("name", "server"))
    run.warnings = [one for one in run.warnings if one.code not in CODES]
    serving = run.workload.get("serving")
    if serving is None:
        return
    found = [(k, load, requests_of(run, k)) for k, load in enumerate(serving["levels"])]
    for _, load, requests in found:
        if not len(requests):
            _add_totals(run, figures, load)
    found = [one for one in found if len(one[2])]
    if not found:
        return
    windows = [steady_window(requests) for *_, requests in found]
    several = bool(run.devices and serving.get("servers"))
    if several:  # only the GPU's sum is measured
        whole = [Measured(Estimate.null("not_divided"), None) for _ in found]
    else:
        edges = [(r.nanoseconds(a), r.nanoseconds(b)) for (*_, r), (a, b, _) in zip(found, windows, strict=True)]
        whole = measured(run, edges, [(r.origin_ns, r.nanoseconds(float(np.nanmax(r.last)))) for *_, r in found])
    each = zip(found, windows, whole, strict=True)
    steady = [_add_level(run, figures, one, window, drawn) for one, window, drawn in each]
    if several:
        for level in steady:
            figures.add(level.unit, "energy_active_j", Estimate.null("not_divided"), level.flags)
    else:
        add_energies(run, figures, steady, doubts)
    for level, drawn in zip(steady, whole, strict=True):
        if not doubts(run, level.load["name"]):
            stated = figures.get(level.unit, "energy_total_j")
            figures.change(level.unit, "energy_total_j", replace(stated, budget=drawn.energy.budget))
        _add_prices(run, figures, level, drawn.blocks_j)


def _add_level(run: Run, figures: Figures, found: Found, window: tuple[float, float, bool], drawn: Measured) -> Steady:
    (_, load, requests), (start, end, is_steady) = found, window
    unit = figures.units.add("load", load["name"], count=len(requests))
    energy = replace(drawn.energy, flags=(*(() if is_steady else ("load_not_steady",)), *drawn.energy.flags), budget={})
    level = Steady(unit, load, requests, (start, end), energy, energy.flags)
    if not load.get("alone"):  # it shows what a server draws, and is no load to choose
        _validity(run, level, is_steady)
    figures.add_each(unit, _rates(level, run.workload["serving"].get("slo_s") or {}))
    figures.add_energy(unit, energy, level.seconds)
    return level


def _add_totals(run: Run, figures: Figures, load: LoadFacts) -> None:
    """Add a load without single requests: what its file states, and energy where it states its times.

    The window is the whole load with its ramps: without requests no steady state can be determined.
    """
    window = load.get("start_ns", 0), load.get("end_ns", 0)
    seconds = (window[1] - window[0]) / 1e9
    totals = load.get("totals") if seconds > 0 else None
    stated = {metric: Estimate(value, method=STATED) for metric, value in load.get("stated", {}).items()}
    if totals is None and not stated:
        return
    unit = figures.units.add("load", load["name"])
    if totals is not None:
        figures.add(unit, "time_s", Estimate(seconds, n=totals["requests"], method="requests"))
    if totals is not None and run.devices:
        drawn = measured(run, [window], [window])[0].energy
        energy = replace(drawn, budget={})
        if energy.value is not None or "energy_total_j" not in stated:
            figures.add_energy(unit, energy if doubts(run, load["name"]) else drawn, seconds)
            prices = _prices(energy, totals["requests"], totals["input_tokens"], totals["output_tokens"])
            figures.add_each(unit, prices)
    figures.add_each(unit, stated)


def _rates(level: Steady, slo_s: Mapping[str, float]) -> dict[str, Estimate]:
    """Rates, latencies and goodput of a level."""
    r, (start, end), seconds = level.requests, level.window, level.seconds
    inside = (r.sent >= start) & (r.sent <= end)
    answered, done = inside & r.ok, r.ok & (r.last >= start) & (r.last <= end)
    _, read, written = level.weights()
    settling = float(start - r.sent[0]), int((r.sent < start).sum())
    found: dict[str, tuple[float, int]] = {"time_s": (seconds, inside.sum()), "time_settling_s": settling}
    if (rate := level.load.get("rate_per_s")) is not None:
        found["requests_offered_per_s"] = rate, len(r)
    found["requests_per_s"] = done.sum() / seconds, done.sum()
    found["tokens_per_s"] = written.sum() / seconds, answered.sum()
    found["tokens_in_per_s"] = read.sum() / seconds, answered.sum()
    found["requests_open"] = going_on(r.sent, r.last, np.array([start, end]))[0], len(r)
    found["share_idle"] = shared_time(r, level.window).nobody / seconds, len(r)
    latencies = {name: getattr(r, name) for name in LATENCIES}
    if slo_s and inside.any():
        within = [(latencies[one] <= s) | (np.isnan(latencies[one]) & (one == "tpot")) for one, s in slo_s.items()]
        good = np.all([answered, *within], axis=0).sum()
        found["share_within_slo"] = good / inside.sum(), inside.sum()
        found["goodput_per_s"] = good / seconds, good
    if inside.any():  # of a handful of requests none may be in the steady state
        found["client_late_p99_s"] = np.quantile((r.sent - r.due)[inside], 0.99), inside.sum()
    exact = {metric: Estimate(float(value), n=int(n), method="requests") for metric, (value, n) in found.items()}
    return exact | {
        f"{name}_{label}_s": of_requests(values[answered], p)
        for name, values in latencies.items()
        for label, p in PERCENTILES.items()
    }


def _prices(energy: Estimate, requests: float, input_tokens: float, output_tokens: float) -> dict[str, Estimate]:
    """Energy per request and token, by metric."""
    none = Estimate.null("no_requests", "window")
    counts = (requests, output_tokens, input_tokens + output_tokens)
    return {one: energy.scaled(1 / count) if count > 0 else none for one, count in zip(PRICES, counts, strict=False)}


def _add_prices(run: Run, figures: Figures, level: Steady, blocks_j: Floats | None) -> None:
    """Add energy per request and per token; null at a load that isn't valid, whose requests others don't resemble."""
    counts = tuple(float(one.sum()) for one in level.weights())
    energy, flags = level.energy, level.flags
    if counts[0] > 0 and energy.value is not None and doubts(run, level.load["name"]):
        figures.add_each(level.unit, dict.fromkeys(PRICES, Estimate.null("load_not_valid", "window")), flags)
        return
    if energy.value is not None and level.load.get("group") is None:
        blocks = blocks_of(blocks_j, level.requests, level.load, level.window)
        if blocks is not None and blocks.method == OFFERED:
            scatter = student(0.975, blocks.freedom) * blocks.energy_j * blocks.error(0)
            half = math.hypot(energy.half_width or 0.0, scatter)
            energy = Estimate(blocks.energy_j, blocks.energy_j - half, blocks.energy_j + half, BLOCKS, OFFERED)
            counts = blocks.counts
        else:
            if level.load.get("rate_per_s"):
                flags = (*flags, "rate_not_seen")
            if blocks is not None:
                each = {one: Estimate(100 * blocks.error(k), n=BLOCKS, method="blocks") for one, k in CHANCES.items()}
                figures.add_each(level.unit, {f"{one.removesuffix('_j')}_error_pct": by for one, by in each.items()})
    found = _prices(energy, *counts)
    if energy.value is not None:
        tokens = Estimate(counts[2], counts[2], counts[2], 1, energy.method)
        found["tokens_per_j"] = ratio(tokens, energy, energy.method)
    figures.add_each(level.unit, found, flags)


CHANCES = {"energy_per_request_j": 0, "energy_per_output_token_j": 2}
"""Metrics with a chance of arrivals and lengths; the column of ``Blocks.counts`` that each is divided by."""


@dataclass(frozen=True)
class Blocks:
    """Energy of a window and what it is divided by, from ``BLOCKS`` equal parts of it.

    Attributes:
        energy_j: Of the whole window, J: as measured, or at the offered rate.
        counts: Requests, input tokens and output tokens of it, counted or offered.
        each: By column of counts what each block adds to the relative error of energy over that count, shape
            (3, ``BLOCKS``).
        freedom: Degrees of freedom of these.
        leverage: Squared distance of the tokens that the energy is read at from the blocks' mean, over the sum of those
            of the blocks; 0 as measured.
        method: ``OFFERED``, or "blocks" as measured.
    """

    energy_j: float
    counts: tuple[float, float, float]
    each: Floats
    freedom: int
    leverage: float
    method: str

    def error(self, k: int, other: Blocks | None = None) -> float:
        """Relative standard error of energy over a count, or of its ratio to that of the same requests elsewhere."""
        each = self.each[k] if other is None else self.each[k] - other.each[k]
        leverage = self.leverage if other is None else max(self.leverage, other.leverage)
        noise = equivalent_noise(each, least=0.0) * math.sqrt(BLOCKS / self.freedom)
        return noise * math.sqrt(BLOCKS * (1 + BLOCKS * leverage))


def blocks_of(joules: Floats | None, r: Requests, load: LoadFacts, window: tuple[float, float]) -> Blocks | None:
    """Energy in a window with the chance of arrivals and lengths; at the offered rate, where there is one.

    A window has more or fewer arrivals than the rate stands for, and a GPU that idles most of the time draws nearly the
    same power then. The regression estimator (Cochran, Sampling Techniques, chapter 7) takes that out: least squares of
    the blocks' energies on their input and output tokens, read at the tokens that the rate stands for. Without a rate,
    or if that is farther from the blocks' mean than any of them can be (a leverage above 1), a block adds its share of
    the energy less its share of the count.
    """
    if joules is None:
        return None
    edges = np.linspace(*window, BLOCKS + 1)
    counts = np.array([[one.sum() for one in weights_in(r, (float(a), float(b)))] for a, b in pairwise(edges)])
    energy, whole = float(joules.sum()), counts.sum(axis=0)
    if not whole.all() or energy <= 0:
        return None
    measured = Blocks(energy, tuple(whole.tolist()), joules / energy - (counts / whole).T, BLOCKS - 1, 0.0, "blocks")
    offered = float(load.get("rate_per_s") or 0.0) * (window[1] - window[0])
    if not offered:
        return measured
    differs = load.get("short") or load.get("over") or load.get("without_usage")
    planned = load.get("mean_input_tokens"), None if differs else load.get("mean_output_tokens")
    lengths = map(_expected, planned, (r.input_tokens[r.ok], r.output_tokens[r.ok]))
    expected = offered * np.array([1.0, *lengths])
    centred = counts[:, 1:] - counts[:, 1:].mean(axis=0)
    inverse = np.linalg.pinv(centred, _DISTINCT)
    slope, by = inverse @ (joules - joules.mean()), (expected - whole)[1:] / BLOCKS
    leverage = float(np.square(by @ inverse).sum())
    if leverage > 1:
        return measured
    energy += BLOCKS * float(by @ slope)
    left = (joules - joules.mean() - centred @ slope) / energy
    return Blocks(energy, tuple(expected.tolist()), np.tile(left, (3, 1)), BLOCKS - 1 - len(slope), leverage, OFFERED)


def _expected(planned: float | None, lengths: Floats) -> float:
    """Mean of the lengths that a load draws from, or of its own where that isn't known or the server differs."""
    own, error = float(lengths.mean()), float(lengths.std()) / math.sqrt(len(lengths))
    return own if planned is None or abs(own - planned) > _DRAWN * error else planned


def _validity(run: Run, level: Steady, is_steady: bool) -> None:
    """Warn of all that makes the figures of a level doubtful."""
    r, (start, end), load = level.requests, level.window, level.load
    inside, found = (r.sent >= start) & (r.sent <= end), dict[str, str]()
    if failed := int((~r.ok).sum()):
        why = Counter(run.requests.take(r.row[~r.ok])["error"].to_pylist()).most_common(1)[0][0]
        found["requests_failed"] = f"{failed} of {len(r)} requests failed: {why or 'no reason is stated'}"
    if not is_steady:
        few = (
            f"only {len(r)} requests"
            if len(r) < LEAST_REQUESTS
            else "open requests or completions have a trend throughout"
        )
        found["load_not_steady"] = f"no steady state ({few})"
    late = float(np.quantile((r.sent - r.due)[inside], 0.99)) if inside.any() else 0.0
    if late > max(LATE_S, LATE_SHARE * level.seconds / max(int(inside.sum()), 1)):
        found["client_late"] = f"the client could not keep up: 1 % of requests were sent {late:.3g} s late"
    done = float((r.ok & (r.last >= start) & (r.last <= end)).sum())
    offered = float(load.get("rate_per_s") or 0.0) * level.seconds
    first, last = (int((r.ok & (r.sent <= at) & (r.last > at)).sum()) for at in (start, end))
    # Against what was offered, not what was sent: a queue looks steady where few requests happen to arrive.
    if last > first and done < min(REACHED * offered, offered - CHANCE * math.sqrt(offered)):
        found["rate_not_reached"] = (
            f"overloaded: {done / level.seconds:.3g} requests/s of {load['rate_per_s']:g} were answered, and open "
            f"requests grew from {first} to {last}"
        )
    for key, (code, words) in _COUNTED.items():
        if count := load.get(key):
            found[code] = words.format(count=count, all=len(r))
    ends = r.nanoseconds(start), r.nanoseconds(end)
    if held := [device.name for device in run.devices if capped(run, device.id, *ends)]:
        found["load_capped"] = f"the power cap held the clock down ({', '.join(held)})"
    for code, message in found.items():
        run.warn(code, f"{load['name']}: {message}", load["name"])
