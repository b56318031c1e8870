"""Energies of scheduler steps by the traced kernels of the server."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from jouletrace.analysis.figures import Figures
from jouletrace.analysis.serving.steady import Floats
from jouletrace.analysis.serving.steps import amounts_of_steps
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
    powers, activity = parts.powers, parts.powers.recorded.activity
    start, end = ((steps[name].to_numpy() - powers.recorded.origin_ns) / 1e9 for name in ("start_ns", "end_ns"))
    inside = (start >= activity.begin_s) & (end <= activity.finish_s)
    seconds = powers.seconds(np.stack([start, end], axis=1).ravel())[::2]
    energy = np.where(inside, seconds @ powers.of_kinds.watts, np.nan)
    chosen = np.flatnonzero(inside)
    if not len(chosen):
        return StepPowers(energy, np.zeros((5, 5)))
    columns = ("new_tokens", "decoding", "context_tokens")
    amounts = amounts_of_steps(*(steps[name].to_numpy()[chosen].astype(float) for name in columns))
    # What an error of each power does to the factors: least squares of the time in each kind on the amounts.
    scale = amounts.max(axis=0)
    scale[scale == 0] = 1.0
    moved = np.linalg.lstsq(amounts / scale, seconds[chosen], rcond=None)[0] / scale[:, None] @ powers.of_kinds.root
    return StepPowers(energy, np.asarray(moved @ moved.T))
