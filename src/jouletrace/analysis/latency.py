"""How latency is distributed: from the iterations that the latency pass recorded one by one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from jouletrace.arrays import Floats
from jouletrace.run import Estimate, Run
from jouletrace.run.spans import spans_of
from jouletrace.run.tables import SPANS_OF_A_PROCESS
from jouletrace.stats.interval import mean_estimate, percentile

MAY_MISS = 0.05
"""Share of requests, and of first tokens, that may miss a limit on their latency."""

LANE = "latency"
"""Lane of the iterations that were timed one by one."""

FIRST_TOKEN = "first token"  # no secret
"""Lane of those that end with the first token."""

_QUANTILES = {"median": 0.5, "p25": 0.25, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_NONE = Estimate.null("no_iterations")


def latencies_s(run: Run, lane: str = LANE, process: int | None = None) -> Floats:
    """Seconds of each iteration that was timed one by one, of one process or all, in their order, shape (n,)."""
    spans = spans_of(run, "iteration")
    mine = spans.those("lane", (lane,))
    if process is not None:
        mine &= spans.id // SPANS_OF_A_PROCESS == process
    timed = spans.take(mine)
    return ((timed.end_ns - timed.start_ns) / 1e9)[np.argsort(timed.start_ns, kind="stable")]


def distribution(run: Run) -> dict[str, float | None]:
    """Latency of an iteration in milliseconds: ``median``, ``p25``, ``p75``, ``iqr``, ``mean``, ...

    Quantiles are those of ``percentiles``; ``std`` is that of a sample (n − 1).
    ``n`` is how many iterations there are; every other figure is None where n is too small for it.
    """
    values = latencies_s(run) * 1e3
    figures: dict[str, float | None] = dict.fromkeys((*_QUANTILES, "iqr", "mean", "std", "min", "max"))
    if len(values):
        quantiles = percentiles(run)
        figures |= {name: quantile.scaled(1e3).value for name, quantile in quantiles.items()}
        if quantiles["p25"].value is not None and quantiles["p75"].value is not None:
            figures["iqr"] = (quantiles["p75"].value - quantiles["p25"].value) * 1e3
        figures |= {"mean": float(np.mean(values)), "min": float(np.min(values)), "max": float(np.max(values))}
    if len(values) > 1:
        figures["std"] = float(np.std(values, ddof=1))
    return {**figures, "n": len(values)}


def percentiles(run: Run) -> dict[str, Estimate]:
    """Median and percentiles of latency in seconds by name, as ``interval.percentile`` has them; {} of no iteration."""
    values = latencies_s(run)
    return {name: percentile(values, p, name) for name, p in _QUANTILES.items() if len(values)}


def _quartiles(values: Floats, wanted: Mapping[str, float]) -> dict[str, float]:
    """Quantiles by name, and the range between quartiles."""
    quantiles = dict(zip(wanted, np.quantile(values, list(wanted.values())).tolist(), strict=True))
    return {**quantiles, "iqr": quantiles["p75"] - quantiles["p25"]}


def block_means(run: Run, block: int = 100) -> dict[str, float | None]:
    """Latency in milliseconds over means of blocks, to be held beside ``torch.utils.benchmark``'s.

    ``blocked_autorange`` times ``block`` iterations at once and reports the median and the
    interquartile range of those means, which hides what single iterations do. Here each block is
    the mean of iterations timed one by one.

    Returns:
        ``block``, ``n`` (whole blocks; a rest is left out), ``median``, ``p25``, ``p75``, ``iqr``;
        the figures are None without a whole block.
    """
    values = latencies_s(run) * 1e3
    n, wanted = len(values) // block, dict(itertools.islice(_QUANTILES.items(), 3))
    if n == 0:
        return {"block": block, "n": n, **dict.fromkeys((*wanted, "iqr"))}
    return {"block": block, "n": n, **_quartiles(values[: n * block].reshape(n, block).mean(axis=1), wanted)}


def median(run: Run, lane: str = LANE) -> Estimate:
    """Median latency in seconds, as ``interval.percentile`` has it."""
    values = latencies_s(run, lane)
    return percentile(values, 0.5, "median") if len(values) else _NONE


def mean(run: Run) -> Estimate:
    """Mean latency in seconds with a 95 % t-interval, which takes iterations as independent."""
    values = latencies_s(run)
    if len(values) < 2:
        return Estimate(float(values[0]), n=1, method="mean") if len(values) else Estimate.null("no_iterations")
    return mean_estimate(values, method="mean")


def stated_latency(run: Run) -> Estimate:
    """Latency of an inference in seconds: as given, as another tool stated it, or of the timed iterations."""
    given = run.settings.get("latency_s")
    if given is not None:
        return Estimate(float(given), n=1, method="given")
    stated = run.result("latency_s")
    return stated if stated.value is not None else median(run)


def of_requests(values: Floats, p: float) -> Estimate:
    """A percentile of latencies in order of sending, NaN of none, as ``percentile`` has it.

    Of too few requests it is stated without an interval: a load of a minute has no more at low rates.
    """
    values = values[np.isfinite(values)]
    if not len(values):
        return Estimate.null("no_requests", "requests")
    found = percentile(values, p, "requests")
    return (
        found if found.value is not None else Estimate(float(np.quantile(values, p)), n=len(values), method="requests")
    )
