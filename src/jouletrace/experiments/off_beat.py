"""Pauses with which windows say most, where it was measured how this board's sensor samples.

As ``detuning``, which knows it roughly. A reference and its variants all have periods of their own, on or off the
frequencies at which readings stand still (``energy.sampling_rate``): the step's pause is chosen so that few are on one
by what is roughly known of their times, and a variant that is may pause a little longer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jouletrace.energy.beat import LONG, seen_variance
from jouletrace.energy.sampling_rate import SamplingRate

Floats = NDArray[np.float64]

_QUIET = 0.002
"""What sampling may do to a window, relative: no more than what is seen far off any beat."""

_PAUSES = np.arange(0.05, 0.35, 0.0005)
"""To choose from, over the iteration."""

_STATES = np.array([-0.0035, 0.0])
"""By how much periods of all variants change when an H100 changes its state (``experiments.steady``), relative."""

_UNSURE = np.linspace(-0.003, 0.003, 5)
"""How far off the periods of variants may be that were looked at briefly, relative."""

_LITTLE = np.arange(0, 24e-6, 4e-6)
"""By how much longer a variant may pause than its reference, in seconds: what that costs is known to a few percent."""

_OTHERS = 5
_NEXT, _FARTHEST, _SPACING = 0.05, 0.24, 0.03
"""By how much more those references pause that tell what a pause costs, and how far apart, over the time between
samples: with pauses twice as long an H100 went into its other state, and 0.2 to 0.4 % off the line."""


def step_pause(iteration_s: float, added: Floats, window_s: float, sampling: SamplingRate) -> float:
    """Seconds that the step and all its variants had better pause; 0 where windows are as good without, or may be.

    Args:
        iteration_s: Seconds of an iteration.
        added: Time that each variant adds, over the step's; negative if it takes some away.
        window_s: Length of a window.
        sampling: How the sensor samples.
    """

    def error(pause_s: float) -> float:
        of_reference = _in_all_states(np.array([iteration_s + pause_s]), pause_s, window_s, sampling)[0]
        around = (iteration_s * (1 + added) + pause_s) * (1 + _UNSURE)[:, None]
        of_variants = seen_variance(around, window_s, sampling, pause_s).mean() if len(added) else 0.0
        return float(np.sqrt(of_reference + of_variants))

    if iteration_s * sampling.rate_hz > LONG or error(0.0) <= _QUIET:
        return 0.0
    pauses_s = _PAUSES * iteration_s
    return float(pauses_s[np.argmin([error(float(pause_s)) for pause_s in pauses_s])])


def variant_more(period_s: float, pause_s: float, window_s: float, sampling: SamplingRate) -> float:
    """By how many seconds more than the step a variant had better pause.

    Args:
        period_s: Of its iterations with the step's pause, roughly.
        pause_s: The step's pause.
        window_s: Length of a window.
        sampling: How the sensor samples.
    """
    around = (period_s + _LITTLE) * (1 + _UNSURE)[:, None]
    expected = seen_variance(around, window_s, sampling, pause_s).mean(axis=0)
    return float(_LITTLE[np.flatnonzero(expected <= 1.2 * expected.min())[0]])


def others(iteration_s: float, pause_s: float, window_s: float, sampling: SamplingRate) -> list[float]:
    """Pauses in seconds of the references that tell what a pause costs: those that tell most of a straight line.

    Args:
        iteration_s: Seconds of an iteration without a pause.
        pause_s: The step's pause.
        window_s: Length of a window.
        sampling: How the sensor samples.
    """
    more = np.linspace(_NEXT, _FARTHEST, 200) / sampling.rate_hz
    told = more**2 / _in_all_states(iteration_s + pause_s + more, pause_s + more, window_s, sampling)
    chosen: list[float] = []
    while len(chosen) < _OTHERS and told.any():
        best = int(np.argmax(told))
        chosen.append(float(pause_s + more[best]))
        told[np.abs(more - more[best]) < _SPACING / sampling.rate_hz] = 0.0
    return chosen


def _in_all_states(period_s: Floats, pause_s: Floats | float, window_s: float, sampling: SamplingRate) -> Floats:
    """Variance of windows with these periods and pauses in the worst state of the board; shape of ``period_s``."""
    seen = [seen_variance(period_s * (1 + state), window_s, sampling, pause_s) for state in _STATES]
    return np.asarray(np.max(seen, axis=0), np.float64)
