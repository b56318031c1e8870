"""Limits on latency and time that a setting must meet, and the share of iterations over them.

A limit on a percentile is one on a share: p99 < 20 ms allows 1 % of the iterations to take longer. A share is a count,
whose error is known without a model of the latencies. Slow iterations come in groups, though: counts of blocks of
consecutive iterations scatter by more than those of independent ones, by the overdispersion (McCullagh and Nelder,
Generalized Linear Models, section 4.5), by which iterations and those over the limit are divided.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jouletrace.analysis.latency import FIRST_TOKEN, LANE, MAY_MISS, latencies_s
from jouletrace.arrays import Floats
from jouletrace.errors import BadInputError
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.report.sweep import EXCEEDS, MEETS, UNDECIDED, Entry, Judged
from jouletrace.run import Estimate, Run
from jouletrace.stats.interval import Z95, difference, percentile, ratio
from jouletrace.stats.quantiles import student

SHARES = {"p50": 0.5, "p90": 0.1, "p95": 0.05, "p99": 0.01, "time": None, "ttft": MAY_MISS, "tpot": None}
"""Quantities of a profile that may be limited, with the share of iterations that may exceed it; None of a mean. A first
token is in time for 95 %, as under an SLO."""

OF_TOKENS = ("ttft", "tpot")
"""Those of the tokens that a profile generates."""

BLOCKS = 20
"""Blocks that iterations are counted in: with 19 degrees of freedom the overdispersion widens by 7 % for being an
estimate; more blocks are shorter, and hide the correlation between their neighbours."""

LONG_S = 4.0
"""Seconds for which iterations are timed where a percentile is limited: a p99 of iterations of 10 ms needs them."""

FAR = 0.01
"""An iteration is over a limit by far that exceeds it by this share."""

Counts = Sequence[tuple[int, int, int]]
"""Iterations of each block of a record, those over a bound, and those over it by ``FAR``."""

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
_LIMIT = re.compile(
    rf"(\w+)\s*<=?\s*(?:\+({{0}})\s*%|({{0}})\s*({'|'.join(_SECONDS)})?)".format(r"[0-9]+\.?[0-9]*|\.[0-9]+")
)


@dataclass(frozen=True)
class Limit:
    """A limit that a setting must meet.

    Attributes:
        quantity: One of ``SHARES``, or of a target's; "time" is that per sample.
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


@dataclass(frozen=True)
class Joint(Limit):
    """Limits that a request must meet together: of its quantities over their bounds the largest is at most 1."""

    parts: tuple[Limit, ...] = ()

    def __str__(self) -> str:
        """As they are written."""
        return ",".join(map(str, self.parts))


def joint(limits: Sequence[Limit]) -> Joint | None:
    """Limits that each request must meet as one, which 5 % may miss; None of none."""
    return Joint("requests", 1.0, False, MAY_MISS, tuple(limits)) if limits else None


def parse_limits(
    text: str | None, option: str = "--limit", shares: Mapping[str, float | None] = SHARES
) -> tuple[Limit, ...]:
    """Limits separated by commas: "p99<20ms", "time<+3%", "ttft<200ms,tpot<20ms"; none of None.

    ``shares`` has the quantities that may be limited; without "time" limits may lack a unit: they are seconds then.

    Raises:
        BadInputError: If one is anything else, or two limit the same quantity.
    """
    found: dict[str, Limit] = {}
    for part in () if text is None else text.split(","):
        match = _LIMIT.fullmatch(part.strip())
        quantity, percent, time, unit = ("", None, "0", "s") if match is None else match.groups()
        bound = float(percent) / 100 if percent else float(time) * _SECONDS[unit or "s"]
        units = percent or unit or "time" not in shares
        known = quantity in shares and quantity not in found and (quantity == "time" or not percent)
        if not known or not units or not 0 < bound < math.inf:
            some = "p99<20ms, time<+3% or ttft<200ms,tpot<20ms" if "time" in shares else "ttft<0.5,tpot<50ms"
            more = "; time may be in % above the reference" if "time" in shares else ""
            raise BadInputError(
                f"{option} {text!r}: write limits such as {some}: {', '.join(shares)}, each once, in ns, us, ms or s"
                f"{more}"
            )
        found[quantity] = Limit(quantity, bound, percent is not None, shares[quantity])
    return tuple(found.values())


def only(limits: Sequence[Limit], *, timed: bool) -> Limit | None:
    """The limit of a target, if there is one; ``timed`` if its single iterations are.

    Raises:
        BadInputError: If there are several, or it limits what the target doesn't have.
    """
    limit = limits[0] if limits else None
    said = f"--limit {','.join(map(str, limits))}"
    if len(limits) > 1 or (limit is not None and limit.quantity in OF_TOKENS):
        raise BadInputError(f"{said}: one limit, on p50, p90, p95, p99 (latency of an iteration) or time")
    if limit is not None and limit.share is None and not limit.relative:
        raise BadInputError(f"{said}: a mean time is limited relative to the reference: time<+3%, or p50<…")
    if limit is not None and limit.share is not None and not timed:
        raise BadInputError(f"{said}: a program's iterations aren't timed; limit its time: time<+3%")
    return limit


def counts(latencies_s: Floats, bound_s: float, block: int | None = None) -> Counts:
    """Iterations, those over a bound, and those over it by ``FAR``, of each block of consecutive ones.

    Latencies have shape (n,), in order. ``block`` is the least iterations of one; None makes ``BLOCKS`` of them.
    """
    values = np.asarray(latencies_s, np.float64)
    parts = BLOCKS if block is None else len(values) // block
    blocks = np.array_split(values, max(1, min(parts, len(values))))
    return tuple(
        (len(one), int((one > bound_s).sum()), int((one > bound_s * (1 + FAR)).sum())) for one in blocks if len(one)
    )


def share_over(*records: Counts, far: bool = False) -> Estimate:
    """Share of iterations over a bound, with Jeffreys' interval of counts divided by their overdispersion.

    Each record is of a process; ``far`` counts only what is over by ``FAR``. ``n`` is the effective iterations. A
    single block has no interval; without iterations it is null.
    """
    if not any(map(len, records)):
        return Estimate.null("no_iterations", "share")
    (n, *overs), dispersion = summed(records)
    share = overs[far] / n
    if sum(map(len, records)) < 2:
        return Estimate(share, n=int(n), method="share")
    from scipy.special import betaincinv  # slow to import, in every process

    worth = n / dispersion
    low, high = (float(betaincinv(share * worth + 0.5, (1 - share) * worth + 0.5, p)) for p in (0.025, 0.975))
    # A share of 0 or 1 is an end of its interval (Brown, Cai and DasGupta 2001, section 3.1.2).
    return Estimate(share, min(low, share), max(high, share), int(worth), "share")


def log_evidence(over: float, under: float, share: float) -> float:
    """Log of the evidence that at most ``share`` of iterations is over a bound, by counts over and under it.

    It is the likelihood under smaller shares, weighed by Jeffreys' prior, over that under ``share``. If more is over,
    it ever exceeds 1/α with a probability of at most α, however often one looks (Robbins, Annals of Mathematical
    Statistics 41, 1970, section 2).
    """
    from scipy.special import betainc, betaln

    below = float(betainc(over + 0.5, under + 0.5, share))
    if not below:
        return -math.inf
    weighed = betaln(over + 0.5, under + 0.5) + math.log(below) - betaln(0.5, 0.5) - math.log(betainc(0.5, 0.5, share))
    return float(weighed - over * math.log(share) - under * math.log1p(-share))


def summed(records: Sequence[Counts]) -> tuple[tuple[float, float, float], float]:
    """Iterations, those over a bound and those over it by ``FAR``; and their overdispersion.

    That is the variance of counts over that of independent iterations, at least 1, by Pearson's χ²: of blocks, times
    that of whole records beyond it. Of blocks Student's quantile in place of the normal one widens intervals for the
    estimate's own error; records are as few as two, and count as if two more scattered like independent iterations.
    """
    blocks = np.concatenate(records)
    sums = np.array([np.sum(record, 0) for record in records])
    free = len(blocks) - 1
    within = max(1.0, _chi2(blocks) / free * (student(0.975, free) / Z95) ** 2) if free else 1.0
    between = max(1.0, (_chi2(sums) / within + 2) / (len(sums) + 1))
    n, over, far = sums.sum(0).tolist()
    return (n, over, far), within * between


def _chi2(counted: Floats) -> float:
    """Pearson's χ² of rows of iterations and those among them over the bound."""
    n, over = counted[:, 0], counted[:, 1]
    share = over.sum() / n.sum()
    return float(((over - n * share) ** 2 / (n * share * (1 - share))).sum()) if 0 < share < 1 else 0.0


def verdict(found: Estimate, most: float) -> str:
    """``MEETS`` or ``EXCEEDS`` the most that is allowed, or ``UNDECIDED``: the 95 % interval contains it or is none."""
    if found.low is None or found.high is None:
        return UNDECIDED
    return MEETS if found.high <= most else EXCEEDS if found.low > most else UNDECIDED


def timed(settings: ProfileSettings, limits: Sequence[Limit]) -> ProfileSettings:
    """The settings of points that a limit on a percentile is to judge: iterations are timed for at least 4 s."""
    if all(limit.share is None for limit in limits):
        return settings
    return replace(settings, latency_s=max(settings.latency_s, LONG_S))


def judged(entries: Sequence[Entry], limits: Sequence[Limit]) -> list[Entry]:
    """The points of a sweep, judged by limits; what these are relative to is the first point with a Run."""
    first = next((one.run for one in entries if one.run is not None), None)
    return [
        one if one.run is None else replace(one, judged=tuple(judge(one.run, by, first or one.run) for by in limits))
        for one in entries
    ]


def judge(run: Run, limit: Limit, reference: Run) -> Judged:
    """A profile against a limit: a share by iterations timed one by one, a mean by its interval over the reference."""
    values, name = latencies_s(run, FIRST_TOKEN if limit.quantity == "ttft" else LANE), limit.quantity
    if limit.share is not None and len(values):
        over, own = share_over(counts(values, limit.bound)), percentile(values, 1 - limit.share, name)
        return Judged(str(limit), name, limit.bound, own, verdict(over, limit.share), over)
    own, other = _time_s(run, limit), _time_s(reference, limit)
    if not limit.relative:
        return Judged(str(limit), name, limit.bound, own, verdict(own, limit.bound))
    said = MEETS if run is reference else verdict(ratio(own, other), 1 + limit.bound)
    return Judged(str(limit), name, (other.value or math.inf) * (1 + limit.bound), own, said)


def _time_s(run: Run, limit: Limit) -> Estimate:
    """Time per sample back to back, or per token after the first, in seconds."""
    if limit.quantity == "time":
        time = run.result("iteration_time_s")
        time = time if time.value is not None else run.result("latency_s")
        return time.scaled(1 / (run.workload.get("items") or 1))
    after_first = (run.workload.get("new_tokens") or 1) - 1
    if after_first <= 0:
        return Estimate.null("no_iterations")
    return difference(run.result("latency_s"), run.result("time_to_first_token_s")).scaled(1 / after_first)
