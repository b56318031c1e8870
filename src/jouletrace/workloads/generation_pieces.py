"""The pieces of an iteration that generates tokens: a prefill, decoding forwards, and the work between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

TOGETHER = 32
"""Repetitions of short pieces within one captured call: the launch of a graph takes time, and a generation in a graph
has a single launch."""

LENGTHS = 3
"""Number of cache lengths at which a decoding forward runs separately; others are interpolated."""

PREFILL, DECODE, BETWEEN = "prefill", "decode", "between forwards"

Call = Callable[[int], Any]


@dataclass(frozen=True)
class Segment:
    """A piece of an iteration that runs separately.

    Attributes:
        phase: ``PREFILL``, ``DECODE`` or ``BETWEEN``.
        weight: Its multiplicity in an iteration; for a forward at one of several lengths, by linear interpolation.
        call: Runs it.
        times: Repetitions in one call.
        length: Tokens that attention reads in it: the prompt's, or those of the cache; None for ``BETWEEN``.
    """

    phase: str
    weight: float
    call: Call
    times: int = 1
    length: int | None = None


@dataclass(frozen=True)
class Generation:
    """The pieces of an iteration that generates.

    Attributes:
        prompt: Tokens of the prompt.
        steps: Forwards of an iteration: the number of tokens of the longest sequence.
        tokens: New tokens of all sequences together.
        cache: One of ``kv_cache.KINDS``.
        segments: Its pieces, which add up to the whole.
        forwards: One forward of each kind in succession: prefill, then decode at each length.
        first_token: Runs until the first token exists.
    """

    prompt: int
    steps: int
    tokens: int
    cache: str
    segments: tuple[Segment, ...]
    forwards: Call
    first_token: Call


def knots(first: int, last: int, most: int = LENGTHS) -> list[int]:
    """Lengths at which to measure: evenly spaced, including both ends; none where nothing is decoded."""
    if last < first:
        return []
    return sorted({first + round((last - first) * i / (most - 1)) for i in range(most)})


def weights(first: int, last: int, at: Sequence[int]) -> list[float]:
    """Weight of each length of ``at`` when every length from ``first`` to ``last`` occurs once.

    Other lengths are interpolated linearly: each is apportioned to its two neighbours in ``at``.

    Args:
        first: The smallest length.
        last: The largest length.
        at: Ascending, from ``first`` to ``last``.
    """
    import numpy as np

    lengths = np.arange(first, last + 1)
    return [float(np.interp(lengths, at, np.eye(len(at))[i]).sum()) for i in range(len(at))]
