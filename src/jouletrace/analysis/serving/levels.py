"""Figures of a server under load: latencies, goodput and energy of each level in its steady state (``steady``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from jouletrace.analysis.checks import doubts
from jouletrace.analysis.conditions import capped
from jouletrace.analysis.figures import Figures
from jouletrace.analysis.serving.energy import NO_STEPS, NOT_CLOSED, OTHER_GPU, OTHER_STEPS, TOO_FEW, add_energies
from jouletrace.analysis.serving.measured import BLOCKS, Measured, measured
from jouletrace.analysis.serving.slices import Division, Found, divide
from jouletrace.analysis.serving.steady import (
    FEWEST,
    Floats,
    Rates,
    Requests,
    Steady,
    percentile,
    requests_of,
    steady_window,
    weights_in,
)
from jouletrace.run import Estimate, Run
from jouletrace.run.forms import Load
from jouletrace.stats.interval import ratio
from jouletrace.stats.quantiles import student
from jouletrace.stats.regression import equivalent_noise

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

GROWS = 2.0
"""Growth of open requests that chance doesn't explain: standard deviations of the difference of two Poisson counts."""

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
    _add_totals(run, figures, [load for _, load, requests in found if not len(requests)])
    found = [one for one in found if len(one[2])]
    if not found:
        return
    servers = serving.get("servers") or []
    divided = divide(run, servers, serving.get("slices", 0), found) if servers and run.devices else {}
    if divided:
        windows = [(*divided[k].window, divided[k].is_steady) for k, *_ in found]
        whole = [Measured(replace(divided[k].total, flags=divided[k].flags), None) for k, *_ in found]
    else:
        windows = [steady_window(requests) for *_, requests in found]
        edges = [
            (r.nanoseconds(start), r.nanoseconds(end)) for (*_, r), (start, end, _) in zip(found, windows, strict=True)
        ]
        whole = measured(run, edges, [(r.nanoseconds(0.0), r.nanoseconds(float(np.nanmax(r.last)))) for *_, r in found])
    each = zip(found, windows, whole, strict=True)
    steady = [_add_level(run, figures, one, window, drawn) for one, window, drawn in each]
    if divided:  # bills need the power of a server, of which only the GPU's sum is measured
        _add_divided(figures, steady, divided)
    else:
        add_energies(run, figures, steady, doubts)
    for level, drawn in zip(steady, whole, strict=True):
        if not doubts(run, level.load["name"]):
            stated = figures.get(level.unit, "energy_total_j")
            figures.change(level.unit, "energy_total_j", replace(stated, budget=drawn.energy.budget))
        _add_prices(run, figures, level, drawn.blocks_j)


def _add_level(run: Run, figures: Figures, found: Found, window: tuple[float, float, bool], drawn: Measured) -> Steady:
    (number, load, requests), (start, end, is_steady) = found, window
    unit = figures.units.add("load", load["name"], count=len(requests))
    energy = replace(drawn.energy, flags=(*(() if is_steady else ("load_not_steady",)), *drawn.energy.flags), budget={})
    level = Steady(unit, number, load, requests, (start, end), energy, energy.flags)
    if not load.get("alone"):  # it shows what a server draws, and is no load to choose
        _validity(run, level, is_steady)
    _add_rates(run, figures, level)
    figures.add_energy(unit, energy, level.seconds)
    return level


def _add_totals(run: Run, figures: Figures, loads: Sequence[Load]) -> None:
    """Add loads without single requests: what their files state, and energy where they state their times.

    The window is the whole load with its ramps: without requests no steady state can be determined.
    """
    for load in loads:
        start_ns, end_ns = load.get("start_ns", 0), load.get("end_ns", 0)
        seconds = (end_ns - start_ns) / 1e9
        totals = load.get("totals") if seconds > 0 else None
        stated = load.get("stated", {})
        if totals is None and not stated:
            continue
        unit = figures.units.add("load", load["name"])
        own: dict[str, Estimate] = {}
        if totals is not None and run.devices:
            drawn = measured(run, [(start_ns, end_ns)], [(start_ns, end_ns)])[0].energy
            energy = replace(drawn, budget={})
            if energy.value is not None or "energy_total_j" not in stated:
                own = {
                    "power_w": energy.scaled(1 / seconds),
                    "energy_total_j": energy if doubts(run, load["name"]) else drawn,
                    **_prices(energy, totals["requests"], totals["input_tokens"], totals["output_tokens"]),
                }
        if totals is not None:
            figures.add(unit, "time_s", Estimate(seconds, n=totals["requests"], method="requests"))
        for metric in dict.fromkeys([*stated, *own]):
            estimate = own.get(metric) or Estimate(stated[metric], method=STATED)
            figures.add(unit, metric, estimate)


def _prices(energy: Estimate, requests: float, input_tokens: float, output_tokens: float) -> dict[str, Estimate]:
    """Energy per request and token, by metric."""
    none = Estimate.null("no_requests", "window")
    counts = (requests, output_tokens, input_tokens + output_tokens)
    return {
        metric: energy.scaled(1 / count) if count > 0 else none for metric, count in zip(PRICES, counts, strict=False)
    }


def _add_divided(figures: Figures, levels: Sequence[Steady], divided: Mapping[int, Division]) -> None:
    """Add what is known of servers on slices alone."""
    for level in levels:
        own = divided[level.number]
        figures.add(level.unit, "energy_active_j", own.active, level.flags)
        figures.add(level.unit, "activity", own.activity)
        figures.add(level.unit, "power_gpu_w", own.gpu)
        if math.isfinite(own.idle_w):
            figures.add(level.unit, "baseline_context_idle_w", Estimate(own.idle_w, method="windows"))


def _add_rates(run: Run, figures: Figures, level: Steady) -> None:
    r, (start, end) = level.requests, level.window
    inside = (r.sent >= start) & (r.sent <= end)
    answered = inside & r.ok

    def exact(value: float, n: int) -> Estimate:
        return Estimate(value, n=n, method="requests")

    figures.add(level.unit, "time_s", exact(level.seconds, int(inside.sum())))
    figures.add(level.unit, "time_settling_s", exact(start - float(r.sent[0]), int((r.sent < start).sum())))
    if level.load.get("rate_per_s") is not None:
        figures.add(level.unit, "requests_offered_per_s", exact(float(level.load["rate_per_s"] or 0.0), len(r)))
    done = r.ok & (r.last >= start) & (r.last <= end)
    figures.add(level.unit, "requests_per_s", exact(float(done.sum()) / level.seconds, int(done.sum())))
    _, read, written = level.weights()
    figures.add(level.unit, "tokens_per_s", exact(float(written.sum()) / level.seconds, int(answered.sum())))
    figures.add(level.unit, "tokens_in_per_s", exact(float(read.sum()) / level.seconds, int(answered.sum())))
    open_ = Rates(r.sent, r.last)
    figures.add(level.unit, "requests_open", exact(open_.mean(start, end), len(r)))
    idle = open_.of((open_.value < 0.5).astype(float)).mean(start, end)
    figures.add(level.unit, "share_idle", exact(idle, len(r)))
    for name in LATENCIES:
        values: Floats = getattr(r, name)[answered]
        for label, p in PERCENTILES.items():
            figures.add(level.unit, f"{name}_{label}_s", percentile(values, p))
    slo = run.workload["serving"].get("slo_s") or {}
    if slo and inside.any():
        good = inside & r.ok
        for name, most_s in slo.items():
            values = getattr(r, name)
            good &= (values <= most_s) | (np.isnan(values) if name == "tpot" else False)
        figures.add(level.unit, "share_within_slo", exact(float(good.sum() / inside.sum()), int(inside.sum())))
        figures.add(level.unit, "goodput_per_s", exact(float(good.sum()) / level.seconds, int(good.sum())))
    late = (r.sent - r.due)[inside]
    if len(late):  # of a handful of requests none may be in the steady state
        figures.add(level.unit, "client_late_p99_s", exact(float(np.quantile(late, 0.99)), len(late)))


def _add_prices(run: Run, figures: Figures, level: Steady, blocks_j: Floats | None) -> None:
    """Add energy per request and per token; null at a load that isn't valid, whose requests others don't resemble."""
    counts = tuple(float(one.sum()) for one in level.weights())
    energy, flags = level.energy, level.flags
    if counts[0] > 0 and energy.value is not None and doubts(run, level.load["name"]):
        for metric in PRICES:
            figures.add(level.unit, metric, Estimate.null("load_not_valid", "window"), flags)
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
                for metric, k in CHANCES.items():
                    error = Estimate(100 * blocks.error(k), n=BLOCKS, method=blocks.method)
                    figures.add(level.unit, f"{metric.removesuffix('_j')}_error_pct", error)
    for metric, estimate in _prices(energy, *counts).items():
        figures.add(level.unit, metric, estimate, flags)
    if energy.value is not None:
        tokens = Estimate(counts[2], counts[2], counts[2], 1, energy.method)
        figures.add(level.unit, "tokens_per_j", ratio(tokens, energy, energy.method), flags)


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


def blocks_of(joules: Floats | None, r: Requests, load: Load, window: tuple[float, float]) -> Blocks | None:
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
    name = load["name"]
    rate = load.get("rate_per_s")
    inside = (r.sent >= start) & (r.sent <= end)
    if failed := int((~r.ok).sum()):
        bad = run.requests.take(r.row[~r.ok])["error"].to_pylist()
        why = max(set(bad), key=bad.count)
        run.warn("requests_failed", f"{name}: {failed} of {len(r)} requests failed: {why}", name)
    if not is_steady:
        few = f"only {len(r)} requests" if len(r) < FEWEST else "open requests or completions have a trend throughout"
        run.warn("load_not_steady", f"{name}: no steady state ({few})", name)
    late = float(np.quantile((r.sent - r.due)[inside], 0.99)) if inside.any() else 0.0
    apart = level.seconds / max(int(inside.sum()), 1)
    if late > max(LATE_S, LATE_SHARE * apart):
        run.warn(
            "client_late", f"{name}: the client could not keep up: 1 % of requests were sent {late:.3g} s late", name
        )
    done = float((r.ok & (r.last >= start) & (r.last <= end)).sum()) / level.seconds
    sent = float(inside.sum()) / level.seconds
    first, last = (float((r.ok & (r.sent <= at) & (r.last > at)).sum()) for at in (start, end))
    grows = last - first > GROWS * math.sqrt(first + last)
    if rate is not None and not is_steady and done < REACHED * sent and grows:
        message = f"{name}: the server answers {done:.3g} requests/s of {sent:.3g}; open requests only grow"
        run.warn("rate_not_reached", message, name)
    if count := load.get("without_usage"):
        run.warn(
            "no_usage", f"{name}: {count} answers without usage figures: their chunks were counted as tokens", name
        )
    if count := load.get("short"):
        run.warn("short_answers", f"{name}: {count} answers ended before as many tokens as asked for", name)
    if count := load.get("over"):
        message = f"{name}: {count} answers have more tokens than asked for, by the server's count: figures per token"
        run.warn("more_tokens", f"{message} and bills follow that count", name)
    if count := load.get("sent_again"):
        message = (
            f"{name}: {count} of {len(r)} requests were sent twice: the server closed a connection that it had kept"
        )
        run.warn("sent_again", f"{message}, before any of the answer came", name)
    ends = r.nanoseconds(start), r.nanoseconds(end)
    if held := [device.name for device in run.devices if capped(run, device.id, *ends)]:
        run.warn("load_capped", f"{name}: the power cap held the clock down ({', '.join(held)})", name)
