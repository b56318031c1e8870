"""Energy of an inference from a power log and a latency: (working level - idle level) x latency.

The practice of artifacts that were measured with ``nvidia-smi dmon`` beside a latency benchmark.
It takes the GPU to be at its working level for the whole latency, with one inference after
the other; what it yields is active energy, over whatever idle level the log shows.
"""

from __future__ import annotations

import math

from jouletrace.analysis import latency
from jouletrace.run import Estimate, Run

METHOD = "levels x latency"


def stated_latency(run: Run) -> Estimate:
    """Latency of an inference in seconds: as given, as another tool stated it, or of the timed iterations."""
    given = run.settings.get("latency_s")
    if given is not None:
        return Estimate(float(given), n=1, method="given")
    stated = run.result("latency_s")
    return stated if stated.value is not None else latency.median(run)


def energy_per_inference(difference: Estimate, seconds: Estimate) -> Estimate:
    """Joules of an inference: a difference of levels in watts times a latency in seconds.

    Null with the reason of whichever is missing. The interval has both uncertainties, as far as
    they are known.
    """
    if difference.value is None or seconds.value is None:
        return Estimate.null(difference.reason or seconds.reason or "not_measured", METHOD)
    value = difference.value * seconds.value
    if difference.half_width is None:
        return Estimate(value, n=difference.n, method=METHOD)
    half = math.hypot(difference.half_width * seconds.value, (seconds.half_width or 0.0) * difference.value)
    return Estimate(value, value - half, value + half, difference.n, METHOD)
