"""Finding out whether a power cap acts on a step, and the pause that keeps it from acting."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from jouletrace.experiments import pacing
from jouletrace.experiments.arms import PACE, Arm
from jouletrace.experiments.bench import Bench, Window
from jouletrace.experiments.pacing import Pace, Trial
from jouletrace.experiments.plan import PlanSettings

_FAR = 1.5
"""A pause over the capped iteration with which no cap acts."""


@dataclass(frozen=True)
class Found:
    """Whether a power cap acts, and what keeps it away.

    Attributes:
        capped: Whether one acts, or may: clocks aren't always known.
        pace: What a pause does; None where none is needed, or none was found.
        fraction: Share of the cap that paced variants may draw.
    """

    capped: bool
    pace: Pace | None = None
    fraction: float = 1.0


def find_pause(
    bench: Bench, measured: Callable[[], pa.Table], settings: PlanSettings
) -> Generator[Window, None, Found]:
    """Run a few short windows. Where nothing can be done about a cap, that is noted.

    Args:
        bench: Where to run.
        measured: As of ``Experiment``.
        settings: Length of windows and ramps, and the sensor's period.
    """
    far_ns = round(_FAR * bench.iteration_s * 1e9)
    plain, far = Arm(PACE), Arm(PACE, spin_ns=far_ns)
    yield from _try(bench, plain, settings)
    yield from _try(bench, far, settings)
    free, held = _trial(measured(), far), _trial(measured(), plain)
    acts = pacing.cap_acts(held, free)
    bench.iteration_s = held.time_s  # of a warm window: better than the first look
    if acts is False:
        return Found(False)
    found = None
    if acts:
        # Its time is known by now, so its energy can be had without a beat.
        step_s = free.time_s - free.pause_s
        far_ns = round(
            1e9 * pacing.off_readings(step_s, far_ns / 1e9 * pacing.LADDER, settings.window_s, settings.sensor_s)
        )
        far, empty = Arm(PACE, spin_ns=far_ns), Arm(PACE, None, 0, spin_ns=far_ns)
        yield from _try(bench, far, settings)
        yield from _try(bench, empty, settings)
        found = pacing.pace(held, _trial(measured(), far), _trial(measured(), empty))
    for fraction in pacing.FRACTIONS if found else ():
        pause_s = found.pause_s(fraction) if found else math.nan
        if found is None or math.isnan(pause_s):
            break
        arm = Arm(PACE, spin_ns=round(pause_s * 1e9))
        yield from _try(bench, arm, settings)
        if _trial(measured(), arm).clock_mhz >= found.top_mhz - pacing.UNTOUCHED_MHZ:
            return Found(True, found, fraction / pacing.MARGIN)
    bench.notes.append(("not_paced", "no pause was found that keeps the step from a power cap, if one acts"))
    return Found(True)


def _try(bench: Bench, arm: Arm, settings: PlanSettings) -> Generator[Window, None, None]:
    with ExitStack() as stack:
        variant = bench.capture(arm, {}, stack)
        if variant is not None:
            yield bench.window(variant, arm, -1, settings.window_s, settings.capped_ramp_s)


def _trial(windows: pa.Table, arm: Arm) -> Trial:
    """What is known of the last window of an arm; NaN what isn't."""
    named = (arm.variant, float(arm.multiplicity))
    rows = [row for row in windows.to_pylist() if (row["variant"], row["multiplicity"]) == named]
    if not rows:
        return Trial(arm.spin_ns / 1e9, math.nan, math.nan, math.nan)
    row = rows[-1]
    energy, clock = (math.nan if row[name] is None else row[name] for name in ("energy_j", "clock_mhz"))
    time_s = (row["end_ns"] - row["start_ns"]) / 1e9
    return Trial(arm.spin_ns / 1e9, energy / row["replays"], time_s / row["replays"], clock)
