"""Keeping a step from beating with the samples of which the sensor's readings are made.

An iteration as long as the samples are apart is seen at one phase again and again (``energy.beat``). A pause in every
iteration, the same in all variants, brings their periods to where a window holds many beats; what it costs is known
from references with other pauses and taken off.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from jouletrace.energy.beat import SURE, left

_ALL = range(1, 9)
"""Harmonics that references had better not beat with; all variants, the strong ones alone."""

_NEAR = np.linspace(-0.015, 0.015, 7)
"""Periods of references and of variants that change little, over the step's."""

_SURER = 0.005
"""How far off the time between samples may be where no pause would do for all that it may be; relative."""

_HARMLESS, _MOST = 0.01, 0.05
"""Shares of a swing within an iteration that a window's mean may keep, wanted and at most: it swings by 10 % or so."""

_PAUSES = np.linspace(0.05, 0.5, 46)
"""To choose from, over the iteration."""

_FURTHER = tuple(np.linspace(near, near + 0.03, 7) for near in (0.05, 0.09, 0.13, 0.17, 0.21))
"""By how much more references pause that tell what a pause costs, over the sampling period: each from a range.

What they miss a straight line by tells what the sensor still makes of one period or another (``experiments.alias``).
They differ from the reference by about as much as variants do: with pauses twice as long an H100 went into its other
state (``experiments.steady``), and 0.2 to 0.4 % off the line.
"""


def detuning(iteration_s: float, added: Iterable[float], sampling_s: float | None, window_s: float) -> float | None:
    """The pause that keeps a step and its variants from beating with the sensor; 0 where they don't, None if none does.

    Args:
        iteration_s: Seconds of an iteration.
        added: Time that each variant adds, over the step's; negative if it takes some away.
        sampling_s: From one sample of the sensor to the next; None where it isn't known.
        window_s: Length of a window.
    """
    if not sampling_s or not iteration_s > 0:
        return 0.0
    variants_s = iteration_s * (1 + np.array([*(2 * _NEAR), *added]))
    if left(variants_s, sampling_s, window_s).max() <= _HARMLESS:
        return 0.0
    pauses_s = _PAUSES[:, None] * iteration_s
    for sure in (SURE, _SURER):
        worst = left(variants_s + pauses_s, sampling_s, window_s, sure=sure).max(axis=1)
        if worst.min() > _MOST:
            continue
        # Of those nearly as good as the best, one that serves the references best, and the shortest of such.
        good = pauses_s[worst <= max(1.5 * worst.min(), _HARMLESS)]
        of_references = left((iteration_s + good) * (1 + _NEAR), sampling_s, window_s, _ALL, np.inf, sure).max(axis=1)
        return float(good[np.flatnonzero(of_references <= 1.2 * of_references.min())[0], 0])
    return None


def longer(iteration_s: float, pause_s: float, sampling_s: float, window_s: float) -> list[float]:
    """Pauses in seconds of the references that tell what a pause costs; other arguments as of ``detuning``."""
    choices = [pause_s + more * sampling_s for more in _FURTHER]
    return [float(some[np.argmin(left(iteration_s + some, sampling_s, window_s, _ALL, np.inf))]) for some in choices]
