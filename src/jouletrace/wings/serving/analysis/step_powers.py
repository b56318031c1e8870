"""Energies of scheduler steps by the traced kernels of the server."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from jouletrace.arrays import Floats
from jouletrace.run import Run
from jouletrace.run.figures import Figures
from jouletrace.run.forms import RecordingFacts
from jouletrace.wings.serving.analysis.steps import Steps


def step_powers(server: Run, about: RecordingFacts, table: pa.Table) -> tuple[Floats, Floats] | str:
    """Energies of steps by the powers of the kernels that ran in them, and idle power between; or why there are none.

    Args:
        server: The Run of the program.
        about: Its recording of the GPU.
        table: Of steps, on the clock of the kernels.

    Returns:
        Joules of each step, NaN outside of the part of the program that was analysed, shape (n,); the covariance of the
        factors of a step but idle power (``steps.FACTORS``) by that of the kernels' powers, shape (5, 5).
    """
    from jouletrace.analysis.parts import recorded_of  # scipy takes a second to import

    parts = recorded_of(server, Figures(), about)
    if parts.powers is None:
        return parts.reason.replace("_", " ")
    powers, activity = parts.powers, parts.powers.recorded.activity
    steps = Steps.from_table(table, powers.recorded.readings.origin_ns)
    inside = (steps.start >= activity.begin_s) & (steps.end <= activity.finish_s)
    seconds = powers.seconds(np.stack([steps.start, steps.end], axis=1).ravel())[::2]
    energy = np.where(inside, seconds @ powers.of_kinds.watts, np.nan)
    if not inside.any():
        return energy, np.zeros((5, 5))
    amounts = steps.amounts[inside]
    # What an error of each power does to the factors: least squares of the time in each kind on the amounts.
    scale = amounts.max(axis=0)
    scale[scale == 0] = 1.0
    moved = np.linalg.lstsq(amounts / scale, seconds[inside], rcond=None)[0] / scale[:, None] @ powers.of_kinds.root
    return energy, np.asarray(moved @ moved.T)
