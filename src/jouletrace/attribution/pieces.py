"""Long spans by pieces of them: time and memory of the solve go with the readings, and a day has millions.

A long span has three parts. Both ends and what is near holes are solved like any span. So are blocks in between, which
show how much less than their readings say is known. In between itself power is the mean of the readings, known as well
in proportion as in the blocks: what swings hide from one, they hide from all, and the rest is small beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from jouletrace.run.readings import Readings
from jouletrace.sensor.shares import Floats, Response

_ENOUGH, _BLOCKS = 4096, 8
"""A span with more readings is solved by so many of them, in so many blocks (those of ``log_chain``)."""


@dataclass(frozen=True)
class Pieces:
    """Pieces of s spans, which are solved, and what remains of the spans."""

    spans_s: Floats  # shape (p, 2)
    solid: csr_matrix  # shape (s, p): 1 where a piece is a part of a span
    standing: csr_matrix  # shape (s, p): so many times a block's length stands it for what is between the parts
    between_j: Floats  # shape (s,): energy of that by its readings


def pieces_of(record: Readings, response: Response, spans_s: Floats) -> Pieces:
    """Pieces of spans, shape (s, 2), in seconds: short ones, and all of a log, are one each."""
    pieces: list[tuple[float, float]] = []
    solid: list[tuple[int, int]] = []
    standing: list[tuple[int, int, float]] = []
    between_j = np.zeros(len(spans_s))
    block_s = _ENOUGH / _BLOCKS * response.period_s
    for i, (start, end) in enumerate(spans_s.tolist()):
        firm, free = [(start, end)], np.empty((0, 2))
        if response.width_s and end - start > _ENOUGH * response.period_s:
            firm, free = _divided(record, response, start, end, block_s)
        solid += [(i, len(pieces) + k) for k in range(len(firm))]
        pieces += firm
        if len(free):
            blocks = _blocks(free, block_s)
            each = float(np.diff(free).sum() / np.diff(blocks).sum())
            standing += [(i, len(pieces) + k, each) for k in range(len(blocks))]
            pieces += [(float(a), float(b)) for a, b in blocks]
            between_j[i] = float(np.diff(_summed(record, response, free)).sum())
    shape = (len(spans_s), len(pieces))
    ones = csr_matrix((np.ones(len(solid)), np.array(solid).T), shape)
    some = np.array(standing).reshape(-1, 3)
    stand = csr_matrix((some[:, 2], some[:, :2].T.astype(np.intp)), shape)
    return Pieces(np.array(pieces), ones, stand, between_j)


def _divided(
    record: Readings, response: Response, start: float, end: float, block_s: float
) -> tuple[list[tuple[float, float]], Floats]:
    """The parts of a long span that are solved, and what is between them, shape (f, 2)."""
    reach_s = response.lasts_s + 2 * response.period_s
    holes = record.seconds(record.holes).reshape(-1, 2) - response.delay_s + np.array([-reach_s, reach_s])
    firm: list[tuple[float, float]] = []
    for begun, ended in [(start, start + block_s), *holes.tolist(), (end - block_s, end)]:
        a, b = max(begun, start), min(ended, end)
        if firm and a < firm[-1][1] + block_s:  # too little between for a block
            firm[-1] = firm[-1][0], max(b, firm[-1][1])
        elif a < b:
            firm.append((a, b))
    edges = np.array(firm)
    return firm, np.stack([edges[:-1, 1], edges[1:, 0]], axis=1)


def _blocks(free: Floats, block_s: float) -> Floats:
    """Blocks, evenly over the time between firm parts, shape (b, 2)."""
    lengths_s = np.diff(free)[:, 0]
    before_s = np.append(0.0, np.cumsum(lengths_s))
    at_s = (np.arange(_BLOCKS - 2) + 0.5) / (_BLOCKS - 2) * before_s[-1]
    which = np.unique(np.searchsorted(before_s, at_s, side="right") - 1)
    found = []
    for k in which.tolist():
        inside = at_s[(at_s >= before_s[k]) & (at_s < before_s[k + 1])] - before_s[k]
        room_s = lengths_s[k] / len(inside)  # each has as much room, so that none meets the next
        begin = free[k, 0] + (np.arange(len(inside)) + 0.5) * room_s - min(block_s, room_s) / 2
        found.append(np.stack([begin, begin + min(block_s, room_s)], axis=1))
    return np.concatenate(found)


def _summed(record: Readings, response: Response, at_s: Floats) -> Floats:
    """Energy by the readings up to times, in J, of their shape."""
    step_s, values = np.diff(record.time_s), record.value
    knots_s, each_w = record.time_s - response.delay_s, values[1:]
    if not response.back_to_back:  # a reading is of the time around its middle
        knots_s, each_w = knots_s - response.middle_s, (values[1:] + values[:-1]) / 2
    return np.asarray(np.interp(at_s, knots_s, np.append(0.0, np.cumsum(step_s * each_w))))
