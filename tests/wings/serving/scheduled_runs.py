"""Runs of a simulated scheduler with continuous batching: what a step costs follows a known law.

Prompts are read in chunks beside the sequences that decode. Power in a step is its energy over its time; between steps
it is idle power.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from jouletrace.analysis import analyse
from jouletrace.run import ChannelInfo, DeviceInfo, Run, tables
from jouletrace.wings.serving.analysis.streams import stream_of
from serving_runs import START_NS, serving_run


@dataclass
class Law:
    """Energy and time of a step; idle power."""

    idle_w: float = 120.0
    step_j: float = 3.0
    new_j: float = 0.04
    sequence_j: float = 0.25
    context_j: float = 0.0002
    pair_j: float = 0.0
    step_s: float = 0.012
    new_s: float = 0.00006
    sequence_s: float = 0.0002
    gap_s: float = 0.001
    most_new: int = 512
    most_sequences: int = 64

    def above_idle(self):
        """The same without the idle power of a step's time."""
        step, new, sequence = (self.idle_w * one for one in (self.step_s, self.new_s, self.sequence_s))
        parts = {"step_j": self.step_j - step, "new_j": self.new_j - new, "sequence_j": self.sequence_j - sequence}
        return replace(self, **parts)

    def energy(self, new, decoding, context):
        """Of a step, J."""
        pairs = (new + decoding) * (new + context)
        return (
            self.step_j + self.new_j * new + self.sequence_j * decoding + self.context_j * context + self.pair_j * pairs
        )


class Scheduled:
    """Steps in seconds of the Run, and the power that follows from them."""

    def __init__(self, law):
        self.law, self.rows, self.delayed = law, [], 0.0

    def power(self, time, _):
        """Mean power in each of ``time``'s cells, W."""
        step = time[1] - time[0]
        edges = np.append(time, time[-1] + step)
        start, end, new, decoding, context = np.array([row[:5] for row in self.rows], float).T
        above = self.law.energy(new, decoding, context) - self.law.idle_w * (end - start - self.delayed)
        at = np.column_stack([start, end]).ravel()
        total = np.cumsum(above)
        reached = np.column_stack([total - above, total]).ravel()
        return self.law.idle_w + np.diff(np.interp(edges, at, reached)) / step


def scheduled_level(law, sent, inputs, outputs, concurrency=None, late_s=0.001):
    """A level as of ``level_of``, and its steps: start, end, new, decoding, context, prefilling; seconds of the level.

    With a ``concurrency`` requests are sent when one is answered, in place of ``sent``.
    """
    count = len(inputs)
    sent = [0.0] * count if sent is None else np.array(sent, float).tolist()
    read, written = np.asarray(inputs).tolist(), np.asarray(outputs).tolist()  # NumPy's scalars would take most time
    first, last, steps = np.zeros(count), np.zeros(count), []
    waiting, reading, decoding = deque(), [], {}
    now, arrived, done = 0.0, 0, 0
    open_ = context = 0
    while done < count:
        while arrived < count and (open_ < concurrency if concurrency else sent[arrived] <= now):
            if concurrency:
                sent[arrived] = now
            waiting.append(arrived)
            arrived, open_ = arrived + 1, open_ + 1
        while waiting and len(decoding) + len(reading) < law.most_sequences:
            reading.append([waiting.popleft(), 0])
        if not reading and not decoding:
            now = sent[arrived]
            continue
        left, parts = law.most_new, 0
        ends = []
        for one in reading:
            take = min(left, read[one[0]] - one[1])
            if take <= 0:
                break
            one[1], left, parts = one[1] + take, left - take, parts + 1
            if one[1] == read[one[0]]:
                ends.append(one[0])
        new = law.most_new - left
        end = now + law.step_s + law.new_s * new + law.sequence_s * len(decoding)
        steps.append((now, end, new, len(decoding), context, parts))
        context += len(decoding)  # tokens in all caches: one more of each sequence
        for i, tokens in list(decoding.items()):
            decoding[i] = tokens + 1
            if tokens + 1 == written[i]:
                last[i] = end + late_s
                context -= read[i] + decoding.pop(i)
                done, open_ = done + 1, open_ - 1
        for i in ends:
            first[i], decoding[i] = end + late_s, 1
            context += read[i] + 1
            if written[i] == 1:
                last[i] = first[i]
                context -= read[i] + decoding.pop(i)
                done, open_ = done + 1, open_ - 1
        reading = [one for one in reading if one[0] not in ends]
        now = end + law.gap_s
    level = {"sent": np.array(sent), "first": first, "last": last, "input_tokens": inputs, "output_tokens": outputs}
    return level, steps


def scheduled_run(law, levels, *, pause_s=5.0, logged=("prefilling",), delayed=0.0, **more):
    """A Run of kind "bench" of these levels with their steps; the record as of ``serving_run``.

    Steps last longer than the law says by ``delayed`` seconds each, at idle power.
    """
    scheduled, begin = Scheduled(law), pause_s
    scheduled.delayed = delayed
    for level, steps in levels:
        scheduled.rows += [(begin + row[0], begin + row[1], *row[2:]) for row in steps]
        begin += float(level["last"].max()) + pause_s
    run, record = serving_run(scheduled, [level for level, _ in levels], pause_s=pause_s, **more)
    start, end, new, decoding, context, parts = np.array(scheduled.rows, float).T
    columns = {
        "start_ns": START_NS + np.round(start * 1e9).astype(np.int64),
        "end_ns": START_NS + np.round(end * 1e9).astype(np.int64),
        "new_tokens": new.astype(np.int64),
        "decoding": decoding.astype(np.int64),
        "context_tokens": context.astype(np.int64),
        **({"prefilling": parts.astype(np.int64)} if "prefilling" in logged else {}),
    }
    run.steps = tables.conform(pa.table(columns), "steps")
    return run, record, scheduled


def streams_of(levels, *, pause_s=5.0, late_s=0.001, jitter_s=0.0, per_chunk=1, seed=0):
    """The answers of these levels as they arrive, ``per_chunk`` tokens at once, each later by an exponential delay."""
    rng, begin, found = np.random.default_rng(seed), pause_s, []
    for level, steps in levels:
        end = np.array([row[1] for row in steps])
        for sent, first, inputs, outputs in zip(
            *(level[name] for name in ("sent", "first", "input_tokens", "output_tokens")), strict=True
        ):
            step = int(np.argmin(np.abs(end + 0.001 - first)))
            arrived = end[step : step + outputs][::per_chunk] + late_s
            arrived = np.maximum.accumulate(arrived + rng.exponential(jitter_s, len(arrived)) * (jitter_s > 0))
            sent_ns = START_NS + round((begin + sent) * 1e9)
            request = {"sent_ns": sent_ns, "input_tokens": int(inputs), "output_tokens": int(outputs)}
            found.append(stream_of(request, (arrived - sent) * 1e9))
        begin += float(level["last"].max()) + pause_s
    return found


def drawn(rng, rate, seconds, inputs, outputs):
    """An open loop's arrivals and lengths, as arguments of ``scheduled_level``."""
    sent = np.cumsum(rng.exponential(1 / rate, int(rate * seconds * 1.5 + 30)))
    sent = sent[sent < seconds]
    return sent, *(rng.integers(low, high, len(sent), endpoint=True) for low, high in (inputs, outputs))


def log_of(path, rows, end="\n"):
    """Write a log of steps; its path."""
    path.write_text("\n".join(json.dumps(row) if isinstance(row, dict) else row for row in rows) + end)
    return path


def rows_of(run):
    """Steps of a Run as lines of a log."""
    return [{key: value for key, value in row.items() if value is not None} for row in run.steps.to_pylist()]


PERIOD_S = 0.02
"""Time between readings of the server's own record."""

KERNELS = {"weights": 400.0, "prompts": 800.0, "sequences": 1450.0, "caches": 1400.0}
"""Power of the kernels in a step, W; each runs for as long as its share of the energy above idle takes."""


def server_run(scheduled, device="GPU-served", noise_w=1.0):
    """The Run of the server under ``jouletrace run``, whose kernels make up the energy of each step."""
    law = scheduled.law
    start, end, new, decoding, context, _ = np.array(scheduled.rows, float).T
    watts = np.array(list(KERNELS.values()))
    factors = np.array([law.step_j, law.new_j, law.sequence_j, law.context_j])
    factors -= law.idle_w * np.array([law.step_s, law.new_s, law.sequence_s, 0.0])
    seconds = np.column_stack([np.ones(len(new)), new, decoding, context]) * factors / (watts - law.idle_w)
    assert (start + seconds.sum(axis=1) <= end).all()
    at = start[:, None] + np.cumsum(seconds, axis=1)
    edges = np.column_stack([start, at])
    some = np.flatnonzero(seconds.ravel() > 1e-6)
    ns = START_NS + np.round(edges * 1e9).astype(np.int64)
    unit = np.tile(np.arange(1, 5), len(start))[some]
    begin, until = ns[:, :-1].ravel()[some], ns[:, 1:].ravel()[some]
    power = watts[unit - 1]
    time = np.arange(0.0, end[-1] + 5.0, PERIOD_S)
    above = (power - law.idle_w) * (until - begin) / 1e9
    reached = np.cumsum(above)
    grid = (np.append(time, time[-1] + PERIOD_S) * 1e9).round().astype(np.int64)
    at_ns = np.column_stack([begin - START_NS, until - START_NS]).ravel()
    sums = np.interp(grid, at_ns, np.column_stack([reached - above, reached]).ravel())
    read = law.idle_w + np.diff(sums) / PERIOD_S + np.random.default_rng(0).normal(0, noise_w, len(time))
    names = [{"id": k + 1, "parent": 0, "level": "kernel", "name": name, "count": 1} for k, name in enumerate(KERNELS)]
    idle = {"id": 9, "parent": 0, "level": "op", "name": "idle", "count": 1}
    first, last = int(begin[0]), int(until[-1])
    sums_s = [[k, -1, float((until - begin)[unit == k].sum()) / 1e9] for k in range(1, 5)]
    recording = {"device": device, "iterations": 1, "start_ns": first, "end_ns": last}
    run = Run(
        kind="program",
        created_ns=START_NS,
        workload={"name": "server", "recordings": [{**recording, "seconds": sums_s, "first_ns": first}]},
        devices=[DeviceInfo(device, "SIMULATED GPU", simulated=True, power_limit_w=2000.0)],
        channels=[
            ChannelInfo(
                *(device, "power_w", "W", "simulated"),
                period_s=PERIOD_S,
                window_s=PERIOD_S,
                delay_s=PERIOD_S / 2,
                gapless=True,
            )
        ],
    )
    run.units = tables.from_rows([*names, idle], "units")
    run.activity = tables.conform(pa.table({"start_ns": begin, "end_ns": until, "unit": unit}), "activity")
    stamps = START_NS + np.round((time + PERIOD_S) * 1e9).astype(np.int64)
    run.samples = tables.from_rows(
        [
            {"time_ns": t, "device": device, "channel": "power_w", "value": w}
            for t, w in zip(stamps.tolist(), read.tolist(), strict=True)
        ],
        "samples",
    )
    span = {"id": 1, "kind": "phase", "name": "program", "start_ns": START_NS, "end_ns": int(stamps[-1])}
    run.spans = tables.from_rows([span], "spans")
    return run


def write_server(folder):
    """A load on a server in ``runs/bench``, the log of its steps, and its own Run in ``runs/server``."""
    level = scheduled_level(Law(), *drawn(np.random.default_rng(1), 4, 8, (9, 99), (5, 20)))
    served, _, scheduled = scheduled_run(Law(), [level])
    log_of(folder / "steps.jsonl", rows_of(served))
    served.save(folder / "runs" / "bench")
    analyse(server_run(scheduled)).save(folder / "runs" / "server")
