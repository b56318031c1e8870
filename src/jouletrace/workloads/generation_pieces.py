"""What an iteration that generates tokens is made of: a prefill, decoding forwards, and what lies between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

TOGETHER = 32
"""How often short pieces run in a call of their own where they are captured: the launch of a graph takes time, and
there is one launch in a generation that is a graph."""

LENGTHS = 3
"""Lengths of the cache at which a decoding forward is run by itself; what lies between is interpolated."""

PREFILL, DECODE, BETWEEN = "prefill", "decode", "between forwards"

Call = Callable[[int], Any]


@dataclass(frozen=True)
class Segment:
    """A piece of an iteration that is run by itself.

    Attributes:
        phase: ``PREFILL``, ``DECODE`` or ``BETWEEN``.
        weight: How often it counts in an iteration; of a forward at one of several lengths, by linear interpolation.
        call: Runs it.
        times: How often it runs in one call.
        length: Tokens that attention reads in it: the prompt's, or those of the cache; None of what is between.
    """

    phase: str
    weight: float
    call: Call
    times: int = 1
    length: int | None = None


@dataclass(frozen=True)
class Generation:
    """What an iteration that generates is made of.

    Attributes:
        prompt: Tokens of the prompt.
        steps: Forwards of an iteration: tokens that the longest sequence gets.
        tokens: New tokens of all sequences together: fewer than ``steps`` times the batch where some end early.
        cache: One of ``kv_cache.KINDS``.
        segments: Its pieces, which together are the whole.
        forwards: One forward of each kind, one after the other: prefill, then decode at each length.
        first_token: Runs until the first token is there.
    """

    prompt: int
    steps: int
    tokens: int
    cache: str
    segments: tuple[Segment, ...]
    forwards: Call
    first_token: Call


def knots(first: int, last: int, most: int = LENGTHS) -> list[int]:
    """Lengths at which to measure: evenly spread, both ends among them; none where nothing is decoded."""
    if last < first:
        return []
    return sorted({first + round((last - first) * i / (most - 1)) for i in range(most)})


def weights(first: int, last: int, at: Sequence[int]) -> list[float]:
    """How often each of some lengths counts, if every length from ``first`` to ``last`` occurs once.

    What lies between two of them is interpolated linearly: each length is apportioned between its neighbours.

    Args:
        first: The smallest length that occurs.
        last: The largest.
        at: Ascending, from ``first`` to ``last``.
    """
    import numpy as np

    lengths = np.arange(first, last + 1)
    return [float(np.interp(lengths, at, np.eye(len(at))[i]).sum()) for i in range(len(at))]
