"""Runs of a simulated scheduler with continuous batching: what a step costs follows a known law.

Prompts are read in chunks beside the sequences that decode. Power in a step is its energy over its time; between steps
it is idle power.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jouletrace.run import tables
from serving_runs import START_NS, serving_run


@dataclass
class Law:
    """Energy and time of a step; idle power."""

    idle_w: float = 120.0
    step_j: float = 3.0
    new_j: float = 0.04
    sequence_j: float = 0.25
    context_j: float = 0.0002
    step_s: float = 0.012
    new_s: float = 0.00006
    sequence_s: float = 0.0002
    gap_s: float = 0.001
    most_new: int = 512
    most_sequences: int = 64

    def energy(self, new, decoding, context):
        """Of a step, J."""
        return self.step_j + self.new_j * new + self.sequence_j * decoding + self.context_j * context


class Scheduled:
    """Steps in seconds of the Run, and the power that follows from them."""

    def __init__(self, law):
        self.law, self.rows = law, []

    def power(self, time, _):
        """Mean power in each of ``time``'s cells, W."""
        step = time[1] - time[0]
        edges = np.append(time, time[-1] + step)
        start, end, new, decoding, context = np.array([row[:5] for row in self.rows], float).T
        above = self.law.energy(new, decoding, context) - self.law.idle_w * (end - start)
        at = np.column_stack([start, end]).ravel()
        total = np.cumsum(above)
        reached = np.column_stack([total - above, total]).ravel()
        return self.law.idle_w + np.diff(np.interp(edges, at, reached)) / step


def scheduled_level(law, sent, inputs, outputs, concurrency=None, late_s=0.001):
    """A level as of ``level_of``, and its steps: start, end, new, decoding, context, prefilling; seconds of the level.

    With a ``concurrency`` requests are sent when one is answered, in place of ``sent``.
    """
    count = len(inputs)
    sent = np.zeros(count) if sent is None else np.array(sent, float)
    first, last, steps = np.zeros(count), np.zeros(count), []
    waiting, reading, decoding = [], [], {}
    now, arrived, done = 0.0, 0, 0
    open_ = 0
    while done < count:
        while arrived < count and (open_ < concurrency if concurrency else sent[arrived] <= now):
            if concurrency:
                sent[arrived] = now
            waiting.append(arrived)
            arrived, open_ = arrived + 1, open_ + 1
        while waiting and len(decoding) + len(reading) < law.most_sequences:
            reading.append([waiting.pop(0), 0])
        if not reading and not decoding:
            now = sent[arrived]
            continue
        left, parts = law.most_new, 0
        ends = []
        for one in reading:
            take = min(left, inputs[one[0]] - one[1])
            if take <= 0:
                break
            one[1], left, parts = one[1] + take, left - take, parts + 1
            if one[1] == inputs[one[0]]:
                ends.append(one[0])
        new, context = law.most_new - left, sum(inputs[i] + k for i, k in decoding.items())
        end = now + law.step_s + law.new_s * new + law.sequence_s * len(decoding)
        steps.append((now, end, new, len(decoding), context, parts))
        for i in list(decoding):
            decoding[i] += 1
            if decoding[i] == outputs[i]:
                last[i] = end + late_s
                del decoding[i]
                done, open_ = done + 1, open_ - 1
        for i in ends:
            first[i], decoding[i] = end + late_s, 1
            if outputs[i] == 1:
                last[i] = first[i]
                del decoding[i]
                done, open_ = done + 1, open_ - 1
        reading = [one for one in reading if one[0] not in ends]
        now = end + law.gap_s
    level = {"sent": sent, "first": first, "last": last, "input_tokens": inputs, "output_tokens": outputs}
    return level, steps


def scheduled_run(law, levels, *, pause_s=5.0, logged=("prefilling",), **more):
    """A Run of kind "bench" of these levels with their steps; the record as of ``serving_run``."""
    scheduled, begin = Scheduled(law), pause_s
    for level, steps in levels:
        scheduled.rows += [(begin + row[0], begin + row[1], *row[2:]) for row in steps]
        begin += float(level["last"].max()) + pause_s
    run, record = serving_run(scheduled, [level for level, _ in levels], pause_s=pause_s, **more)
    run.steps = tables.from_rows(
        [
            {
                "start_ns": START_NS + round(start * 1e9),
                "end_ns": START_NS + round(end * 1e9),
                "new_tokens": int(new),
                "decoding": decoding,
                "context_tokens": int(context),
                "prefilling": parts if "prefilling" in logged else None,
            }
            for start, end, new, decoding, context, parts in scheduled.rows
        ],
        "steps",
    )
    return run, record, scheduled


def drawn(rng, rate, seconds, inputs, outputs):
    """An open loop's arrivals and lengths, as arguments of ``scheduled_level``."""
    sent = np.cumsum(rng.exponential(1 / rate, int(rate * seconds * 1.5 + 30)))
    sent = sent[sent < seconds]
    return sent, *(rng.integers(low, high, len(sent), endpoint=True) for low, high in (inputs, outputs))
