"""Into how many waits the pause of an iteration is split."""

from __future__ import annotations

_SPACING_S, _MOST_PIECES = 1.1e-3, 64
"""From one piece of a pause to the next, and how many pieces there may be.

An H100's reading is made of samples some 0.8 ms apart: readings of one window spread by 8 to 23 W with pieces 0.63
to 0.7 or 1.1 to 1.25 ms apart, by 100 W with 0.76 to 0.82 ms, where the sensor sees the same phase again and
again, and by 45 W with one pause in 8 to 16 ms (docs/results/kernel-energy-h100.md).
"""


def pieces(iteration_s: float) -> int:
    """Into how many waits to split a pause, spread over an iteration.

    In one piece it makes the board's power swing by hundreds of watts in every iteration, which the
    sensor shows as beats of ±10 %.

    Args:
        iteration_s: Seconds of an iteration, the pause included.
    """
    return min(max(round(iteration_s / _SPACING_S), 1), _MOST_PIECES)
