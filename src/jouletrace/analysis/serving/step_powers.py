"""Energies of scheduler steps by the traced kernels of the server."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from jouletrace.analysis.figures import Figures
from jouletrace.analysis.serving.steady import Floats
from jouletrace.analysis.serving.steps import amounts_of_steps
from jouletrace.attribution.fit import Fit
from jouletrace.run import Run
from jouletrace.run.forms import Recording


@dataclass(frozen=True)
class StepPowers:
    """Steps on one GPU.

    Attributes:
        energy_j: Of each step, NaN outside of the part of the program that was analysed; shape (n,).
        covariance: Of the factors of a step but idle power (``steps.FACTORS``), by the covariance of the kernels'
            powers; shape (5, 5).
    """

    energy_j: Floats
    covariance: Floats


def step_powers(server: Run, about: Recording, steps: pa.Table) -> StepPowers | str:
    """Energies of steps by the powers of the kernels that ran in them, and idle power between; or why there are none.

    Args:
        server: The Run of the program.
        about: Its recording of the GPU.
        steps: On the clock of the kernels.
    """
    from jouletrace.analysis.parts import recorded_of  # scipy takes a second to import

    parts = recorded_of(server, Figures(), about)
    if parts.powers is None:
        return parts.reason.replace("_", " ")
    fit = parts.powers.fit
    first = int(np.argmin(parts.times.start_ns))  # zero of the fit's seconds
    origin_ns = int(parts.times.start_ns[first]) - round(float(fit.activity.start_s[0]) * 1e9)
    start, end = ((steps[name].to_numpy() - origin_ns) / 1e9 for name in ("start_ns", "end_ns"))
    inside = (start >= fit.activity.begin_s) & (end <= fit.activity.finish_s)
    energy = np.where(inside, _energies(fit, start, end), np.nan)
    chosen = np.flatnonzero(inside)
    if not len(chosen):
        return StepPowers(energy, np.zeros((5, 5)))
    columns = ("new_tokens", "decoding", "context_tokens")
    amounts = amounts_of_steps(*(steps[name].to_numpy()[chosen].astype(float) for name in columns))
    # What an error of each power does to the factors: least squares of the time in each kind on the amounts.
    scale = amounts.max(axis=0)
    scale[scale == 0] = 1.0
    seconds = _seconds(fit, start[chosen], end[chosen])
    moved = np.linalg.lstsq(amounts / scale, seconds, rcond=None)[0] / scale[:, None]
    return StepPowers(energy, np.asarray(moved @ fit.covariance[:-1, :-1] @ moved.T))


def _energies(fit: Fit, start: Floats, end: Floats) -> Floats:
    """Energy between two times each, J."""
    activity = fit.activity
    above = np.append(0.0, np.cumsum(fit.above_w() * (activity.end_s - activity.start_s)))
    edges = np.column_stack([activity.start_s, activity.end_s]).ravel()
    reached = np.column_stack([above[:-1], above[1:]]).ravel()
    kernels = np.interp(end, edges, reached) - np.interp(start, edges, reached)
    return np.asarray(kernels + fit.power_w[-1] * (end - start))


def _seconds(fit: Fit, start: Floats, end: Floats) -> Floats:
    """Seconds of each kind of interval in each step, idle last; an interval belongs to the step of its middle."""
    activity, count = fit.activity, len(fit.power_w)
    middle = (activity.start_s + activity.end_s) / 2
    step = np.searchsorted(start, middle, side="right") - 1
    known = (step >= 0) & (middle <= end[np.maximum(step, 0)])
    found = np.zeros((len(start), count))
    np.add.at(found, (step[known], activity.column[known]), (activity.end_s - activity.start_s)[known])
    found[:, -1] = end - start - found.sum(axis=1)
    return found
