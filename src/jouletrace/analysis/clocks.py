"""The SM clock while a workload ran: as the driver tells it, and as the SMs' own cycle counters do.

The driver tells what was asked for. What ran is counted, where a Run was measured on a device whose counters can be
read; the two can be several percent apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jouletrace.analysis.power import mean_over
from jouletrace.analysis.windows import of_variant
from jouletrace.run import Run
from jouletrace.stats.interval import mean_estimate

Floats = NDArray[np.float64]

NOT_AS_TOLD = "clock_not_as_told"
"""Code of the warning."""

APART = 0.01
"""Relative difference of the clock told to the one counted from which it is said."""

_SIDES = {"untouched": "", "a": "A: ", "b": "B: "}
"""Variants of windows in which a workload ran as it is, and how a warning of theirs begins: a profile has the first
one, ``ab`` the others. What else there is are parts of it, and experiments on them."""


def counted(run: Run) -> Floats:
    """Mean clock in MHz of each window of a workload as it is, as counted, shape (n,); windows without it left out.

    They are of the Run's first device.
    """
    found = np.concatenate([_counted(run, variant) for variant in _SIDES])
    return np.asarray(found[np.isfinite(found)])


def warn_if_not_as_told(run: Run) -> None:
    """Say so where the driver told another clock than was counted in the same windows, on average and not by chance.

    What was said before is said anew: of repeats, each has said it of its own windows.
    """
    run.warnings = [warning for warning in run.warnings if warning.code != NOT_AS_TOLD]
    for variant, begin in _SIDES.items():
        found = _counted(run, variant)
        if not np.isfinite(found).any():
            continue
        told, swing = _told(run, variant)
        known = np.isfinite(found) & np.isfinite(told) & (told > 0)
        # A window holds a few readings of a clock that may swing, which polling can meet at the same point each time.
        off = mean_estimate(found[known] / told[known] - 1)
        if off.value is None or off.low is None or off.high is None:
            continue
        if abs(off.value) > max(APART, swing) and off.low * off.high > 0:
            pace = f"{100 * abs(off.value):.0f} % {'slower' if off.value < 0 else 'faster'}"
            run.warn(
                NOT_AS_TOLD,
                f"{begin}the SMs ran {pace} than the driver tells, "
                "by their own cycle counters: take the counted clock for figures per clock (FLOP per cycle, boards "
                "at equal clocks)",
                run.devices[0].id,
            )


def _counted(run: Run, variant: str) -> Floats:
    """Of each window of a variant, NaN where it wasn't counted."""
    return np.asarray(of_variant(run, variant)["counted_mhz"].to_numpy(), np.float64)


def _told(run: Run, variant: str) -> tuple[Floats, float]:
    """Mean of what the driver told in each window of a variant, NaN where it told nothing; and how it swung in them.

    The second is the relative standard deviation of single readings within windows.
    """
    windows = of_variant(run, variant)
    stamps, values = run.series(run.devices[0].id, "clock_sm_mhz")
    edges = list(zip(windows["start_ns"].to_pylist(), windows["end_ns"].to_pylist(), strict=True))
    means = [mean_over(stamps, values, *each) for each in edges]
    inside = [values[(stamps >= start) & (stamps <= end)] for start, end in edges]
    readings = np.concatenate([np.zeros(0), *inside])
    swing = float(readings.std() / readings.mean()) if len(readings) and readings.mean() > 0 else 0.0
    return np.array([np.nan if mean is None else mean for mean in means], np.float64), swing
