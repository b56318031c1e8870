"""Energies of spans with names, by the estimator: marked ranges and steps, and what ran on an imported timeline.

Spans that the sensor follows have energies of their own (``attribution.spans``); steps that follow one another count in
blocks. Means of shorter spans that repeat come from all of them together (``attribution.short_spans``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.figures import Figures
from jouletrace.analysis.power import energies, join, no_power_reason, power_record, readings, sensor_flags
from jouletrace.attribution.outcome import LEAST, REPEATED
from jouletrace.run import Estimate, Run
from jouletrace.run.readings import IMPLAUSIBLE, Readings
from jouletrace.run.spans import Spans, spans_of
from jouletrace.sensor.shares import Response
from jouletrace.stats.interval import Z95, mean_estimate

KINDS = ("iteration", "range", "layer", "op", "kernel", "memcpy")
"""Kinds of spans that energy is given to."""

METHOD, TOGETHER = "timeline", "together"
"""Methods of the energy of all spans of a name, and of the mean of a few: their sum, divided by their number."""

FEWEST = 3
"""Occurrences from which on their mean has the interval of how they differ. Of two, Student's t with one degree of
freedom is nine times as wide as they are apart from their mean: wider than the energy itself. Those get what the
sensor leaves open of both together, as a single one does."""

_LONG, _SHORTEST = 10.0, 1 / 400
"""Readings in a span that has an energy of its own though it repeats; and in one that is as much its marks as what it
does, of which nothing can be said."""

_MOST_NAMES, _MOST, _BLOCKS = 300, 200, 40
"""Names with an energy, those with the most time: each takes its own solve, some tenths of a second. Spans of a name,
evenly spread, and blocks of steps, that are enough for its mean."""

_BLIND = ("outside_record", "hole_in_record")
"""Reasons that have nothing to do with the span itself: the mean of the others stands for it."""

Ints = NDArray[np.int64]
Named = tuple[str, str, str]
"""Kind, name and device of spans."""


class Energy(NamedTuple):
    """Energy of spans of one name on one device, in J."""

    total: Estimate  # of all of them together
    each: Estimate  # mean of one
    flags: list[str]  # codes that qualify both

    @classmethod
    def null(cls, reason: str, method: str = METHOD) -> Energy:
        """None, with the reason."""
        return cls(Estimate.null(reason, method), Estimate.null(reason, method), [])


def energies_by_name(
    run: Run, device: str, names: Sequence[Spans], steps: Sequence[bool], siblings: Sequence[Hashable]
) -> list[Energy]:
    """Energies of spans of several names on one device.

    Args:
        run: With the power record.
        device: Of the record.
        names: The spans of each name, by start.
        steps: Whether those of a name are steps, which may follow one another without a gap.
        siblings: Of each name, equal for those that run in turns, such as ranges in the same one.
    """
    found = readings(run, device)
    if found is None:
        return [Energy.null(no_power_reason(run, device)) for _ in names]
    record, response = found
    if len(record) < 2:
        return [Energy.null(IMPLAUSIBLE if len(record.implausible_ns) else "no_samples") for _ in names]
    order = np.argsort([-float(spans.seconds.sum()) for spans in names], kind="stable").tolist()
    given = {number: Energy.null("too_many_names") for number in order[_MOST_NAMES:]}
    pieces, repeating = {}, dict[Hashable, list[int]]()
    for number in sorted(order[:_MOST_NAMES]):
        spans, readings_each = names[number], float(np.median(names[number].seconds)) / response.period_s
        in_blocks = steps[number] and bool(_follow(spans).any())
        if in_blocks and np.any(spans.end_ns[:-1] > spans.start_ns[1:]):
            given[number] = Energy.null("ranges_overlap")  # of several threads: what was drawn was for all of them
            continue
        pieces[number] = _Pieces.blocks(spans, response.period_s) if in_blocks else _Pieces.spans(spans)
        if not in_blocks and len(spans) >= LEAST and _SHORTEST <= readings_each < _LONG:
            repeating.setdefault(siblings[number], []).append(number)
    for some in repeating.values():
        given.update(zip(some, _repeated(run, device, *found, [names[number] for number in some]), strict=True))
    alone = [k for k in pieces if k not in given or given[k].each.reason not in (None, "ranges_overlap")]
    most = max(_MOST // max(len(alone), 1), FEWEST)
    followed = _followed(run, device, *found, [pieces[number].thinned(most) for number in alone])
    for number, energy in zip(alone, followed, strict=True):
        if number not in given or energy.each.value is not None or energy.each.reason in _BLIND:
            given[number] = energy
    return [given[number] for number in range(len(names))]


class _Pieces(NamedTuple):
    """What the sensor follows of spans of a name: these themselves, or blocks of steps in a row."""

    start_ns: Ints  # shape (b,)
    end_ns: Ints
    each: Ints  # spans in each, shape (b,)
    bursts_ns: Ints  # starts and ends of what has a load of its own, shape (r, 2)
    of: int  # spans in all

    @classmethod
    def spans(cls, spans: Spans) -> _Pieces:
        """All spans."""
        return cls(*spans.edges_ns, np.ones(len(spans), np.int64), np.stack(spans.edges_ns, axis=1), len(spans))

    @classmethod
    def blocks(cls, spans: Spans, period_s: float) -> _Pieces:
        """Steps in blocks, of ten readings or more where so many are in a row."""
        row = np.append(0, np.cumsum(~_follow(spans)))
        first, last = (np.searchsorted(row, np.arange(row[-1] + 1), side=side) for side in ("left", "right"))
        rows_ns = np.stack([spans.start_ns[first], spans.end_ns[last - 1]], axis=1)
        length_ns, since_ns = np.diff(rows_ns)[:, 0], (spans.start_ns + spans.end_ns) / 2 - rows_ns[row, 0]
        many = np.maximum(length_ns / 1e9 // max(_LONG * period_s, float(spans.seconds.sum()) / _BLOCKS), 1)
        place = (since_ns / length_ns[row] * many[row]).astype(np.int64)
        begins = np.flatnonzero((np.diff(row, prepend=-1) != 0) | (np.diff(place, prepend=-1) != 0))
        ends = np.append(begins[1:], len(spans))
        return cls(spans.start_ns[begins], spans.end_ns[ends - 1], ends - begins, rows_ns, len(spans))

    def thinned(self, most: int) -> _Pieces:
        """So many of them at most, evenly spread."""
        some = np.unique(np.linspace(0, len(self.each) - 1, min(len(self.each), most)).round().astype(np.intp))
        bursts_ns = self.bursts_ns[some] if len(self.bursts_ns) == len(self.each) else self.bursts_ns
        return _Pieces(self.start_ns[some], self.end_ns[some], self.each[some], bursts_ns, self.of)


def _follow(spans: Spans) -> NDArray[np.bool_]:
    """True for each span that begins where the one before it ended, shape (n - 1,)."""
    gap = spans.start_ns[1:] - spans.end_ns[:-1]
    # within 2 % of a step's time they are one after the other
    near = np.abs(gap) <= 0.02 * float(np.median(spans.end_ns - spans.start_ns))
    return np.asarray(near & (spans.lane[1:] == spans.lane[:-1]))


def _followed(
    run: Run, device: str, record: Readings, response: Response, pieces: Sequence[_Pieces]
) -> Iterator[Energy]:
    """Energies of what the sensor follows, by one solve."""
    if not pieces:
        return
    of = np.repeat(np.arange(len(pieces)), [len(one.each) for one in pieces])
    start, end, count = (
        np.concatenate(column) for column in zip(*((p.start_ns, p.end_ns, p.each) for p in pieces), strict=True)
    )
    # Shorter than an update, whatever the readings around it say, could be lost in one of them
    long, plain = end - start >= response.period_s * 1e9, all(len(one.bursts_ns) == len(one.each) for one in pieces)
    away = (start < record.time_ns[0]) | (end > record.time_ns[-1])
    reasons = np.where(away, "outside_record", "sensor_too_slow").astype(object)
    bursts_ns = None if plain else np.concatenate([one.bursts_ns for one in pieces])
    found = energies(run, device, start[long], end[long], bursts_ns) if long.any() else None
    if found is not None:
        reasons[long] = found.reason
    for number, one in enumerate(pieces):
        mine = of == number
        why = [reason for reason in reasons[mine] if reason]
        null = Energy.null(max(sorted(set(why)), key=why.count, default=""))
        if found is None or len(why) == len(one.each) or 2 * sum(r not in _BLIND for r in why) >= len(one.each):
            yield null  # most aren't like the others
            continue
        known = mine[long] & found.known
        ones = count[long][known].astype(np.float64)
        mean, low, high = (float(ends[0]) for ends in found.sums(known / ones.sum()))
        together = Estimate(mean, low, high, 1, TOGETHER if len(ones) > 1 else "windows")
        each, flags = together, join(found.flags[place] for place in np.flatnonzero(known))
        if len(ones) >= FEWEST:
            sd_j = (high - low) / 2 / Z95
            each = mean_estimate(found.energy_j[known] / ones, ones, correlated=True, common_sd=sd_j)
        if why:  # a sum that leaves some out would be a quiet wrong number
            yield Energy(null.total, each, [*flags, "windows_left_out"])
        else:
            every = count[mine].sum() == one.of
            yield Energy(replace(together if every else each, method=METHOD).scaled(one.of), each, flags)


def _repeated(run: Run, device: str, record: Readings, response: Response, names: Sequence[Spans]) -> Iterator[Energy]:
    """Energies of short spans by name, by the mean of one."""
    start, end, code = (
        np.concatenate(column)
        for column in zip(*((*spans.edges_ns, np.full(len(spans), k)) for k, spans in enumerate(names)), strict=True)
    )
    inside = (start >= record.time_ns[0]) & (end <= record.time_ns[-1])
    count = np.bincount(code[inside], minlength=len(names))
    there = np.flatnonzero(count > 0)
    means = dict.fromkeys(range(len(names)), Estimate.null("outside_record", REPEATED))
    if len(there):
        kind = np.searchsorted(there, code[inside])
        from jouletrace.attribution.short_spans import short_span_energies  # scipy takes half a second to import

        found = short_span_energies(record, response, start[inside], end[inside], kind)
        means |= zip(there.tolist(), found, strict=True)
    known = power_record(run, device)
    flags = [*(sensor_flags(known[1]) if known else []), *record.flags]
    if record.hole_seconds(start.min(), end.max()) > 0:
        flags.append("hole_in_record")
    for number, spans in enumerate(names):
        if count[number] == len(spans) or means[number].value is None:
            yield Energy(means[number].scaled(len(spans)), means[number], flags)
        else:
            yield Energy(Estimate.null("outside_record", METHOD), means[number], [*flags, "windows_left_out"])


def power_device(run: Run, device: str | None) -> tuple[str | None, list[str]]:
    """The device whose power record speaks for spans of ``device``, and flags; None if there is none.

    Itself, else one of the same index or bus address, which another tool named otherwise; else the
    only one that has a record, where the spans are of one device only, flagged "device_assumed".
    """
    powered = [info for info in run.devices if power_record(run, info.id) is not None]
    if any(info.id == device for info in powered):
        return device, []
    own = next((info for info in run.devices if info.id == device), None)
    if own is not None:
        for info in powered:
            if own.pci_bus and info.pci_bus and own.pci_bus.lower()[-12:] == info.pci_bus.lower()[-12:]:
                return info.id, []
        alike = [info for info in powered if own.index is not None and info.index == own.index]
        if len(alike) == 1:
            return alike[0].id, []
    if len(powered) == 1 and run.remember("spans", "devices", _count_devices) <= 1:
        return powered[0].id, ["device_assumed"]
    return None, []


def _count_devices(spans: pa.Table) -> int:
    return len([name for name in pc.unique(spans["device"]).to_pylist() if name is not None])


def add_energies(
    run: Run, figures: Figures, unit_of: Callable[[Named], int | None], kinds: Sequence[str] = KINDS
) -> None:
    """Add ``energy_total_j`` and ``energy_each_j`` to the units of the spans' names, where ``unit_of`` gives one.

    Without a power record every figure is null with the reason.
    """
    for device, names in _by_device(run, kinds).items():
        source, flags = power_device(run, device)
        of = [kind for kind, _ in names]
        found = energies_by_name(run, source or device or "", list(names.values()), [k == "iteration" for k in of], of)
        for (kind, name), (total, each, codes) in zip(names, found, strict=True):
            unit = unit_of((kind, name, device or ""))
            if unit is not None:
                figures.add(unit, "energy_total_j", total, [*codes, *flags])
                figures.add(unit, "energy_each_j", each, [*codes, *flags])


def _by_device(run: Run, kinds: Sequence[str]) -> dict[str | None, dict[tuple[str, str], Spans]]:
    """The spans of these kinds by device, kind and name; a span without a name has ""."""
    spans, found = spans_of(run, *kinds), dict[str | None, dict[tuple[str, str], Spans]]()
    texts = spans.texts["name"]
    name = np.where(spans.name < 0, texts.index("") if "" in texts else -1, spans.name)
    keys = np.stack([spans.device, spans.kind, name])
    order = np.lexsort((spans.start_ns, *keys[::-1]))
    for rows in np.split(order, np.flatnonzero((np.diff(keys[:, order]) != 0).any(axis=0)) + 1):
        if len(rows):
            device, kind, text = (spans.text(column, rows[0]) for column in ("device", "kind", "name"))
            found.setdefault(device, {})[str(kind), text or ""] = spans.take(rows)
    return found
