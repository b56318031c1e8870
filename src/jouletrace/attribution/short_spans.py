"""Mean energies of short spans that repeat, from readings of which each sees another share of them.

They are kinds of a program (``attribute_program``), and so is what follows on spans of each kind until the next one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from jouletrace.arrays import Floats, Ints
from jouletrace.attribution.activity import Activity, Kind
from jouletrace.attribution.checks import WIDTH, resolved
from jouletrace.attribution.outcome import LEAST, REPEATED
from jouletrace.attribution.prior import Prior
from jouletrace.attribution.program import attribute_program
from jouletrace.attribution.solve import joined
from jouletrace.run import Estimate
from jouletrace.run.readings import Readings
from jouletrace.sensor.shares import Response
from jouletrace.stats.one_thread import one_thread

_MOST_READINGS, _MOST_SPANS, _ENOUGH = 3000, 100_000, 600
"""Of more those in the middle count: a minute of a record of 20 ms knows a mean as well as power is constant; and
readings that are used however many delays are tried, of which each takes a solve."""

_MOST_KINDS, _OTHERS = 60, 0.05
"""Kinds with a power of their own, those with the most time; and the largest share of the time of the others, which
have one together."""

_PAUSE = 5.0
"""Usual times until the next span beyond which something else may run."""

_PART, _MOST_PARTS, _MOST_COLUMNS = 0.1, 10, 200
"""Length of a span's parts over the sensor's memory, and the most of them, of a kind and of all. Power changes at the
same places in all spans of a kind: with one power for each, rows of spans that swing miss by 17 %, by parts by 2 %."""

_PRIOR = Prior(ends=Prior.swing, between=True)
"""Parts differ from the whole as a burst swings, and the load changes whenever it likes."""

_LEAST_W = 0.1
"""Noise of a reading where its sensor is taken to have none: its resolution."""


@one_thread
def short_span_energies(
    record: Readings, response: Response, start_ns: ArrayLike, end_ns: ArrayLike, kind: ArrayLike
) -> list[Estimate]:
    """Mean energy of one span of each kind, in J; ``n`` is the number of spans that it is of.

    Args:
        record: A cleaned power record, each reading at the time at which it was taken.
        response: What a reading shows of power.
        start_ns: Starts in ns since the Unix epoch, shape (m,).
        end_ns: Ends, shape (m,).
        kind: Number of each span's kind, from 0, shape (m,).

    Returns:
        One for each kind, null with the reason "ranges_overlap", "no_samples" (fewer than 10 readings see nothing but
        spans and what is between them), "too_few_windows" (fewer than 10 spans), "sensor_too_slow" (the interval would
        be wider than the energy) or "phases_not_spread" (readings say little of it, since all see the same of it).
    """
    order = np.argsort(np.asarray(start_ns), kind="stable")
    start, end = (record.seconds(edge)[order] for edge in (start_ns, end_ns))
    kind = np.asarray(kind, np.int64)[order]
    kinds = range(int(kind.max()) + 1)
    if np.any(end[:-1] > start[1:]):
        return [Estimate.null("ranges_overlap", REPEATED) for _ in kinds]
    if not response.width_s:  # a log of momentary readings
        return [Estimate.null("sensor_too_slow", REPEATED) for _ in kinds]
    response = replace(response, back_to_back=False, noise_w=max(response.noise_w, _LEAST_W))  # readings are left out
    until, moment_s = _until(start, end, kind, response), record.time_s - response.delay_s
    # Readings that see spans and what follows on them alone
    begins = np.append(True, start[1:] > until[:-1])
    first, last = start[begins], until[np.append(begins[1:], True)]
    stretch = np.searchsorted(first, moment_s - response.lasts_s, side="right") - 1
    seen = np.flatnonzero((stretch >= 0) & (moment_s <= last[stretch]))
    if len(seen) < LEAST:
        return [Estimate.null("no_samples", REPEATED) for _ in kinds]
    tried = len(response.delays(float(np.median(end - start))))
    most = max(_MOST_READINGS // tried, _ENOUGH)
    most = min(most, max(len(seen) * _MOST_SPANS // len(start), LEAST))

    def means(first: int) -> dict[int, Estimate]:
        some, near = seen[first:][:most], np.ones(len(start), bool)
        if len(seen) > most:
            near = (until > moment_s[some[0]] - response.lasts_s) & (start < moment_s[some[-1]])
        return _means(record.take(some), response, start[near], end[near], until[near], kind[near])

    estimates = means(max((len(seen) - most) // 2, 0))
    for number in np.unique(kind).tolist():
        if number not in estimates and len(seen) > most:  # it came before or after
            estimates = means(int(np.searchsorted(moment_s[seen], start[kind == number][0]))) | estimates
    return [estimates.get(number, Estimate.null("too_few_windows", REPEATED)) for number in kinds]


def _until(start: Floats, end: Floats, kind: Ints, response: Response) -> Floats:
    """When what follows on each span ends, shape (m,): as the next one begins, or with the span if a pause follows."""
    gap, usual = start[1:] - end[:-1], np.zeros(int(kind.max()) + 1)
    for number in np.unique(kind[:-1]).tolist():
        usual[number] = np.median(gap[kind[:-1] == number])
    goes_on = np.append(gap <= np.maximum(_PAUSE * usual[kind[:-1]], response.lasts_s), False)
    return np.where(goes_on, np.append(start[1:], 0.0), end)


def _means(
    record: Readings, response: Response, start: Floats, end: Floats, until: Floats, kind: Ints
) -> dict[int, Estimate]:
    """Mean energy by number of the kinds that have enough of these spans."""
    number, time_s = np.bincount(kind), np.bincount(kind, end - start)
    solved = np.argsort(-time_s, kind="stable")[:_MOST_KINDS]
    many = time_s[solved].sum() < (1 - _OTHERS) * time_s.sum()
    null = Estimate.null("too_many_names" if many else "sensor_too_slow", REPEATED)
    estimates = dict.fromkeys(np.flatnonzero(number >= LEAST).tolist(), null)
    if many:
        return estimates
    code = np.full(len(number), len(solved))
    code[solved] = np.arange(len(solved))
    edges = np.stack([start, end, end, until], axis=1).reshape(-1, 2)
    which = np.stack([2 * code[kind], 2 * code[kind] + 1], axis=1).ravel()
    activity, names = _activity(edges, which, _PART * response.width_s)
    each = (names == 2 * np.arange(len(solved))[:, None]) / np.maximum(number[solved], 1)[:, None]
    cases = response.delays(float(np.median(end - start)))
    more = partial(attribute_program, activity=activity, prior=_PRIOR, times_sd_s=record.unsure_s)
    rows = [more(record.time_s, record.value, np.empty((0, 2)), response=delayed) for delayed, _ in cases]
    # By their prior alone: power that changes within spans looks like another delay
    tried = [replace(row.energies, log_evidence=0.0) for row in rows]
    energies = joined(tried, np.array([weight for _, weight in cases]))
    resolves = resolved(replace(rows[0], energies=energies), each)
    for column, ends in enumerate(zip(*energies.interval(rows[0].together(each)), strict=True)):
        if int(solved[column]) not in estimates:
            continue
        mean, low, high = (float(end) for end in ends)
        if resolves[column]:
            estimates[int(solved[column])] = Estimate(mean, low, high, int(number[solved[column]]), REPEATED)
        elif high - low <= 2 * WIDTH * abs(mean):
            estimates[int(solved[column])] = Estimate.null("phases_not_spread", REPEATED)
    return estimates


def _activity(edges: Floats, which: Ints, longest_s: float) -> tuple[Activity, Ints]:
    """Intervals of kinds ``which`` as an activity, cut into parts of about ``longest_s``; and its kinds."""
    runs = edges[:, 1] > edges[:, 0]
    edges, (names, kind) = edges[runs], np.unique(which[runs], return_inverse=True)
    typical_s = np.bincount(kind, np.diff(edges)[:, 0]) / np.bincount(kind)
    most = max(min(_MOST_PARTS, _MOST_COLUMNS // len(names)), 1)
    count = np.clip(np.ceil(typical_s / longest_s), 1, most).astype(np.int64)[kind]
    of = np.repeat(np.arange(len(kind)), count)
    number = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
    # From the start on, where it does the same each time; the last part has what is left
    ends_s = edges[of, :1] + (typical_s[kind] / count)[of][:, None] * (number[:, None] + [0, 1])
    ends_s[:, 1] = np.where(number == count[of] - 1, np.inf, ends_s[:, 1])
    cuts_s = np.minimum(ends_s, edges[of, 1:])
    some = cuts_s[:, 1] > cuts_s[:, 0]
    cuts_s, of, number = cuts_s[some], of[some], number[some]
    # Where there is one part alone it doesn't differ from the whole
    part = np.where(count[of] > 1, number + 1, 0)
    columns, column = np.unique(np.stack([kind[of], part], axis=1), axis=0, return_inverse=True)
    activity = Activity(
        start_s=cuts_s[:, 0],
        end_s=cuts_s[:, 1],
        column=column.reshape(-1),
        kinds=tuple(Kind(str(name)) for name in names.tolist()),
        members=tuple((kind_number,) for kind_number in columns[:, 0].tolist()),
        part=tuple(columns[:, 1].tolist()),
        begin_s=float(cuts_s[0, 0]),
        finish_s=float(cuts_s[-1, 1]),
        slowness=np.zeros(len(cuts_s)),
        beside_s=np.zeros(len(names)),
    )
    return activity, names
