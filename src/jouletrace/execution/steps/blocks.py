"""Block means: iteration times as ``torch.utils.benchmark`` reports them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError
from jouletrace.execution.steps.base import Step


def block_means(step: Step, n: int, block: int = 100) -> NDArray[np.float64]:
    """Mean seconds of an iteration in each block of back-to-back iterations.

    The host times a block from an idle device to an idle device and divides by its number of
    iterations, as one measurement of ``torch.utils.benchmark.Timer`` with ``number=block`` does.
    Unlike latencies, a block has no events between iterations, so iterations may overlap
    where the device lets them, and it includes the time until the first kernel starts.

    Args:
        step: The step to run.
        n: Iterations in all; ``n // block`` whole blocks are run.
        block: Iterations per block.

    Returns:
        Means in seconds, shape (n // block,).

    Raises:
        BadInputError: If not even one block is complete.
    """
    if block < 1 or n < block:
        raise BadInputError(f"--block {block}: must lie between 1 and the {n} iterations of the run")
    return np.array([step.replay(block).seconds / block for _ in range(n // block)])
