"""Block means: iteration times as ``torch.utils.benchmark`` reports them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import BadInputError
from jouletrace.execution.steps.base import Step


def block_means(step: Step, n: int, block: int = 100) -> NDArray[np.float64]:
    """Mean seconds of an iteration in each block of back-to-back iterations.

    A block is timed by the host from an idle device to an idle device, and divided by its
    iterations: the same as one measurement of ``torch.utils.benchmark.Timer`` with
    ``number=block``. Unlike latencies it has no events between iterations, so they may overlap
    where the device lets them, and it includes the time until the first kernel starts.

    Args:
        step: What to run.
        n: Iterations in all; ``n // block`` whole blocks are run.
        block: Iterations in a block.

    Returns:
        Means in seconds, shape (n // block,).

    Raises:
        BadInputError: If no block is whole, or the step flushes the L2 cache: the flushes can't be
            kept out of a block.
    """
    if block < 1 or n < block:
        raise BadInputError(f"--block {block}: must lie between 1 and the {n} iterations that are run")
    details: dict[str, Any] = step.describe()
    if details.get("l2") == "cold":
        raise BadInputError("--block: the flushes of --l2 cold can't be kept out of a block's time")
    return np.array([step.replay(block).seconds / block for _ in range(n // block)])
