"""Limits on latency and time that a setting must meet, and the share of iterations over them.

A limit on a percentile is one on a share: p99 < 20 ms allows 1 % of the iterations to take longer. A share is a count,
whose error is known without a model of the latencies. Slow iterations come in groups, though: counts of blocks of
consecutive iterations scatter by more than those of independent ones, by the overdispersion (McCullagh and Nelder,
Generalized Linear Models, section 4.5), by which iterations and those over the limit are divided.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from jouletrace.analysis.generation import FIRST_TOKEN
from jouletrace.analysis.latency import LANE, latencies_s
from jouletrace.arrays import Floats
from jouletrace.errors import BadInputError
from jouletrace.report.sweep import EXCEEDS, MEETS, UNDECIDED, Judged
from jouletrace.run import Estimate, Run
from jouletrace.stats.interval import Z95, difference, percentile, ratio
from jouletrace.stats.quantiles import student

SHARES = {"p50": 0.5, "p90": 0.1, "p95": 0.05, "p99": 0.01, "time": None, "ttft": 0.05, "tpot": 0.05}
"""Quantities that may be limited, with the share of iterations that may exceed it; None of a mean. Those of a server
hold for 95 % of the requests, as an SLO of ``bench`` does."""

BLOCKS = 20
"""Blocks that iterations are counted in: with 19 degrees of freedom the overdispersion widens by 7 % for being an
estimate; more blocks are shorter, and hide the correlation between their neighbours."""

FAR = 0.01
"""An iteration is over a limit by far that exceeds it by this share."""

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
_LIMIT = re.compile(
    rf"(?P<quantity>{'|'.join(SHARES)})\s*<=?\s*(?:\+(?P<percent>{{0}})\s*%|(?P<time>{{0}})\s*(?P<unit>{{1}}))".format(
        r"[0-9]+\.?[0-9]*|\.[0-9]+", "|".join(_SECONDS)
    )
)

Counts = tuple[tuple[int, int, int], ...]
"""Of each block: iterations, those over a bound, those over it by far."""


@dataclass(frozen=True)
class Limit:
    """A limit that a setting must meet.

    Attributes:
        quantity: One of ``SHARES``; "time" is that per sample.
        bound: In seconds or, of a relative one, the largest increase above the reference as a share.
        relative: Whether it is relative.
        share: Of iterations that may exceed it; None of a mean.
    """

    quantity: str
    bound: float
    relative: bool
    share: float | None

    def __str__(self) -> str:
        """As it is written: "p99<20ms", "time<+3%"."""
        if self.relative:
            return f"{self.quantity}<+{100 * self.bound:.6g}%"
        unit = next((unit for unit in ("s", "ms", "us") if self.bound >= _SECONDS[unit]), "ns")
        return f"{self.quantity}<{self.bound / _SECONDS[unit]:.6g}{unit}"


def parse_limits(text: str, option: str = "--limit") -> tuple[Limit, ...]:
    """Limits separated by commas: "p99<20ms", "time<+3%", "ttft<200ms,tpot<20ms".

    Raises:
        BadInputError: If one is anything else, or two limit the same quantity.
    """
    found: dict[str, Limit] = {}
    for part in text.split(","):
        match = _LIMIT.fullmatch(part.strip())
        relative = match is not None and match["percent"] is not None
        bound = 0.0
        if match is not None:
            bound = float(match["percent"]) / 100 if relative else float(match["time"]) * _SECONDS[match["unit"]]
        if (
            match is None
            or not 0 < bound < 1e6
            or match["quantity"] in found
            or relative > (match["quantity"] == "time")
        ):
            raise BadInputError(
                f"{option} {text!r}: write limits such as p99<20ms, time<+3% or ttft<200ms,tpot<20ms: "
                f"{', '.join(SHARES)}, each once, in ns, us, ms or s; time may be in % above the reference"
            )
        found[match["quantity"]] = Limit(match["quantity"], bound, relative, SHARES[match["quantity"]])
    return tuple(found.values())


def counts(latencies_s: Floats, bound_s: float, block: int | None = None) -> Counts:
    """Iterations, those over a bound, and those over it by more than 1 %, of each block of consecutive ones.

    Args:
        latencies_s: Seconds of each iteration in their order, shape (n,).
        bound_s: The bound in seconds.
        block: Least iterations of a block; None for ``BLOCKS`` blocks.
    """
    values = np.asarray(latencies_s, np.float64)
    parts = BLOCKS if block is None else len(values) // block
    blocks = np.array_split(values, max(1, min(parts, len(values))))
    return tuple(
        (len(one), int((one > bound_s).sum()), int((one > bound_s * (1 + FAR)).sum())) for one in blocks if len(one)
    )


def share_over(counted: Iterable[tuple[int, int, int]], *, far: bool = False) -> Estimate:
    """Share of iterations over a bound, with Jeffreys' interval of counts divided by their overdispersion.

    Args:
        counted: What ``counts`` returns, of one or several records.
        far: Count only those that are over it by more than 1 %.

    Returns:
        The share, its ``n`` effective iterations; without an interval for a single block, null without iterations.
    """
    rows = np.asarray(tuple(counted), np.float64).reshape(-1, 3)
    n, over = rows[:, 0], rows[:, 2 if far else 1]
    if not n.sum():
        return Estimate.null("no_iterations", "share")
    share = float(over.sum() / n.sum())
    if len(n) < 2:
        return Estimate(share, n=int(n.sum()), method="share")
    from scipy.special import betaincinv  # slow to import, in every process

    worth = float(n.sum()) / overdispersion(n, over)
    all_, none = share == 1, share == 0
    low, high = (float(betaincinv(share * worth + 0.5, (1 - share) * worth + 0.5, p)) for p in (0.025, 0.975))
    # The ends of a share of 0 or 1 are itself (Brown, Cai and DasGupta 2001, section 3.1.2).
    return Estimate(share, 0.0 if none else low, 1.0 if all_ else high, int(worth), "share")


def overdispersion(n: Floats, over: Floats) -> float:
    """Variance of counts of blocks over that of independent iterations, at least 1, by Pearson's χ².

    It is known from few blocks: Student's quantile in place of the normal one widens the interval for that.

    Args:
        n: Iterations of each block, shape (blocks,), two at least.
        over: How many of them count, shape (blocks,).
    """
    share, free = over.sum() / n.sum(), len(n) - 1
    if not 0 < share < 1:
        return 1.0
    chi2 = float(((over - n * share) ** 2 / (n * share * (1 - share))).sum())
    return max(chi2 / free * (student(0.975, free) / Z95) ** 2, 1.0)


def verdict(found: Estimate, most: float) -> str:
    """``MEETS``, ``EXCEEDS`` or ``UNDECIDED``: of a share over a limit, or a mean, and the most that is allowed.

    It is undecided where the 95 % interval contains the most, or there is none.
    """
    if found.low is None or found.high is None:
        return UNDECIDED
    return MEETS if found.high <= most else EXCEEDS if found.low > most else UNDECIDED


def judge(run: Run, limit: Limit, reference: Run) -> Judged:
    """A Run against a limit: a share by its iterations that were timed one by one, a mean by its interval.

    Args:
        run: A profile.
        limit: The limit.
        reference: The Run that a relative limit is relative to.
    """
    if limit.share is not None and limit.quantity != "tpot":
        values = latencies_s(run, FIRST_TOKEN if limit.quantity == "ttft" else LANE)
        if not len(values):
            return Judged(str(limit), limit.quantity, limit.bound, Estimate.null("no_iterations"), UNDECIDED)
        over = share_over(counts(values, limit.bound))
        most = percentile(values, 1 - limit.share, limit.quantity)
        return Judged(str(limit), limit.quantity, limit.bound, most, verdict(over, limit.share), over)
    own = _time_s(run, limit)
    if not limit.relative:
        return Judged(str(limit), limit.quantity, limit.bound, own, verdict(own, limit.bound))
    other = _time_s(reference, limit)
    most_s = (other.value or 0.0) * (1 + limit.bound)
    said = MEETS if run is reference else verdict(ratio(own, other), 1 + limit.bound)
    return Judged(str(limit), limit.quantity, most_s, own, said)


def _time_s(run: Run, limit: Limit) -> Estimate:
    """Time per sample back to back, or per token after the first, in seconds."""
    if limit.quantity == "time":
        time = run.result("iteration_time_s")
        time = time if time.value is not None else run.result("latency_s")
        return time.scaled(1 / (run.workload.get("items") or 1))
    tokens = (run.workload.get("generation") or {}).get("tokens", 0) / (run.workload.get("items") or 1)
    if tokens < 2:
        return Estimate.null("no_iterations")
    return difference(run.result("latency_s"), run.result("time_to_first_token_s")).scaled(1 / (tokens - 1))
