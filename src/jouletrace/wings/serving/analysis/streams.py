"""Steps of a server's scheduler, as its streamed answers show them.

A server with continuous batching gives each sequence of a step its token when the step ends: chunks of many answers
arrive together, and each answer gets its next chunk with the next step. Chunks are taken in order of time:

- A chunk belongs to the step after that of the chunk before it in its answer, the first one of an answer to the latest
  step, if it arrives within ``LATE`` of a short interval from that step's first chunk.
- Else it belongs to the latest step, if it arrives in time for that.
- Else it begins a step, unless the latest began within ``SOON``: then its answer gets several chunks with one step.

A step ends with its first chunk, and begins with the end of the one before; after a time without a request when the
first of its prompts is sent.

A prompt has been read when its first token comes. Servers limit the tokens that a step reads: what is beyond the limit
was read in the steps before, back to when the request was sent. The limit is that of ``LIMITS`` by which tokens explain
best how long steps take, if it explains ``CLEARLY`` more than none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from jouletrace.arrays import Floats, Ints
from jouletrace.run import Run, tables
from jouletrace.run.forms import Serving

LATE, SOON = 0.9, 0.5
"""Largest delay of a chunk within its step, and least length of a step; in short intervals (their 10th percentile)
between two chunks of an answer."""

LIMITS = tuple(2**k for k in range(14, 6, -1))
"""Tokens of prompts that a step reads at most."""

CLEARLY = 0.05
"""Share of the sum of residuals by which a limit reduces it."""

_BLOCK = 1 << 17


@dataclass(frozen=True)
class AnswerStream:
    """An answer as it arrived.

    Attributes:
        sent_ns: When its request was sent.
        input_tokens, output_tokens: Of prompt and answer.
        chunks_ns: When its chunks arrived, in order, shape (n,); n > 0.
    """

    sent_ns: int
    input_tokens: int
    output_tokens: int
    chunks_ns: Ints


def stream_of(request: Mapping[str, Any], after_ns: Sequence[float] | Floats) -> AnswerStream | None:
    """The answer to a request (a row of ``requests``) whose chunks arrived so long after it was sent; None without."""
    if not len(after_ns):
        return None
    chunks_ns = request["sent_ns"] + np.round(after_ns).astype(np.int64)
    return AnswerStream(request["sent_ns"], request["input_tokens"] or 0, request["output_tokens"] or 0, chunks_ns)


def add_streams(run: Run, streams: Sequence[AnswerStream]) -> None:
    """Store the steps that answers show as those of a Run."""
    if streams:
        run.steps, together = steps_of(streams)
        serving: Serving = run.workload["serving"]
        serving["streamed"] = together


def steps_of(streams: Sequence[AnswerStream]) -> tuple[pa.Table, float]:
    """The ``steps`` of answers, and how complete they are: 1 if each open answer gets one chunk, a token, in each step.

    It is the number of an answer's steps with a chunk, of all answers, over that of its steps, of chunks or of tokens,
    whichever is most: 1/3 if answers get chunks in turns of three, or three tokens per chunk.
    """
    count = np.array([len(one.chunks_ns) for one in streams])
    time = np.concatenate([one.chunks_ns for one in streams])
    owner = np.repeat(np.arange(len(streams)), count)
    place = np.arange(len(time)) - np.repeat(np.cumsum(count) - count, count)
    intervals = np.diff(time)[place[1:] > 0]
    order = np.lexsort((place, time))
    time, owner, place = time[order], owner[order], place[order]
    short_ns = float(np.quantile(intervals, 0.1)) if len(intervals) else 0.0
    step, end = _assigned(time, owner, len(streams), short_ns)
    sent, prompts = (np.array([getattr(one, name) for one in streams]) for name in ("sent_ns", "input_tokens"))
    size, later = len(end), place > 0
    decoding = np.bincount(step[later], minlength=size)
    context = np.bincount(step[later], (prompts[owner] + place)[later], size)
    since = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(since, step, sent[owner])
    start = np.minimum(np.maximum(np.append(since[:1], end[:-1]), since), end - 1)
    read, last = np.zeros(len(streams), np.int64), np.zeros(len(streams), np.int64)
    read[owner[~later]], last[owner] = step[~later], step
    new, prefilling = _prompts(
        (end - start) / 1e9,
        np.column_stack([np.ones(size), decoding, context]),
        read,
        np.searchsorted(end, sent),
        prompts,
    )
    steps = pa.table(
        {
            "start_ns": start,
            "end_ns": end,
            "new_tokens": new,
            "prefilling": prefilling,
            "decoding": decoding,
            "context_tokens": context.astype(np.int64),
        }
    )
    shown = len(np.unique(owner * size + step))
    tokens = sum(max(one.output_tokens, len(one.chunks_ns)) for one in streams)
    return tables.conform(steps, "steps"), shown / max(tokens, int((last - read + 1).sum()))


def _assigned(time: Ints, owner: Ints, streams: int, short_ns: float) -> tuple[Ints, Ints]:
    """The step of each chunk, shape (n,), and when each step ends, ns."""
    late_ns, soon_ns = LATE * short_ns, SOON * short_ns
    end: list[int] = []
    last, found = [-1] * streams, np.empty(len(time), np.int64)
    for begin in range(0, len(time), _BLOCK):  # numbers of Python take four times the memory
        part, steps = slice(begin, begin + _BLOCK), []
        for at, one in zip(time[part].tolist(), owner[part].tolist(), strict=True):
            newest = len(end) - 1
            step = newest if last[one] < 0 else last[one] + 1
            if step < newest and at - end[step] > late_ns:
                step = newest
            if not end or (at - end[newest] > soon_ns and (step > newest or at - end[step] > late_ns)):
                end.append(at)
                step = newest + 1
            last[one] = min(step, len(end) - 1)
            steps.append(last[one])
        found[part] = steps
    return found, np.array(end)


def _prompts(seconds: Floats, others: Floats, read: Ints, earliest: Ints, prompts: Ints) -> tuple[Ints, Ints]:
    """Tokens of prompts that each step reads, and of how many sequences, shape (n,) each.

    Args:
        seconds: How long steps take, shape (n,).
        others: What else explains it, shape (n, k).
        read: The step with each request's first token, shape (m,).
        earliest: The first step that ends after it was sent, shape (m,).
        prompts: Its tokens, shape (m,).
    """

    def unexplained_s(new: Ints) -> float:
        design = np.column_stack([others, new])
        scale = np.maximum(design.max(axis=0), 1.0)
        factors = np.linalg.lstsq(design / scale, seconds, rcond=None)[0] / scale
        return float(np.abs(seconds - design @ factors).sum())

    found = _filled(len(seconds), read, earliest, prompts, int(prompts.sum()))
    least, most = (1 - CLEARLY) * unexplained_s(found[0]), int(found[0].max())
    for limit in (one for one in LIMITS if one < most):
        limited = _filled(len(seconds), read, earliest, prompts, limit)
        if (left := unexplained_s(limited[0])) < least:
            least, found = left, limited
    return found


def _filled(size: int, read: Ints, earliest: Ints, prompts: Ints, limit: int) -> tuple[Ints, Ints]:
    """As ``_prompts`` under a limit: each prompt fills the fewest steps up to its first token, in their order."""
    new, prefilling = [0] * size, [0] * size
    for k in np.argsort(read, kind="stable").tolist():
        left, last, step = int(prompts[k]), int(read[k]), int(read[k])
        first = min(int(earliest[k]), last)
        free = limit - new[step]
        while free < left and step > first:
            step -= 1
            free += max(limit - new[step], 0)
        for place in range(step, last + 1):
            taken = left if place == last else max(min(left, limit - new[place]), 0)
            new[place] += taken
            prefilling[place] += taken > 0
            left -= taken
    return np.array(new), np.array(prefilling)
