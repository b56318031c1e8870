"""Energies of spans with names, by the estimator: marked ranges and steps, and what ran on an imported timeline.

Spans that the sensor follows have energies of their own (``attribution.spans``); steps that follow one another count in
blocks. Means of shorter spans that repeat come from all of them together (``attribution.short_spans``).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.analysis.power import energies, power_record, readings, sensor_flags
from jouletrace.arrays import Ints, Mask
from jouletrace.attribution.outcome import LEAST, REPEATED
from jouletrace.run import Estimate, Run
from jouletrace.run.figures import Figures
from jouletrace.run.readings import Readings
from jouletrace.run.spans import Spans
from jouletrace.sensor.shares import Response
from jouletrace.stats.interval import Z95, mean_estimate

KINDS = ("iteration", "range", "layer", "op", "kernel", "memcpy")
"""Kinds of spans that energy is given to."""

METHOD, TOGETHER = "timeline", "together"
"""Methods of the energy of all spans of a name, and of the mean of a few: their sum, divided by their number."""

LEAST_OF_MEAN = 3
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

Named = tuple[str, str, str]
"""Kind, name and device of spans; "" where unknown."""


class Energy(NamedTuple):
    """Energy of spans of one name on one device, in J: of all of them together, and the mean of one."""

    total: Estimate
    each: Estimate

    def flagged(self, codes: Iterable[str]) -> Energy:
        """The same with more flags."""
        return Energy(*(replace(estimate, flags=(*estimate.flags, *codes)) for estimate in self))


def _none(reason: str) -> Energy:
    return Energy(Estimate.null(reason, METHOD), Estimate.null(reason, METHOD))


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
    record_and_response = readings(run, device)
    if record_and_response is None or len(record_and_response[0]) < 2:
        return [_none(str(energies(run, device, [0], [1]).reason[0]))] * len(names)
    period_s = record_and_response[1].period_s
    order = np.argsort([-float(spans.seconds.sum()) for spans in names], kind="stable").tolist()
    given = dict.fromkeys(order[_MOST_NAMES:], _none("too_many_names"))
    pieces, repeating = {}, dict[Hashable, list[int]]()
    for number in sorted(order[:_MOST_NAMES]):
        spans = names[number]
        in_blocks = steps[number] and bool(_follow(spans).any())
        if in_blocks and np.any(spans.end_ns[:-1] > spans.start_ns[1:]):
            given[number] = _none("ranges_overlap")  # of several threads: what was drawn was for all of them
            continue
        pieces[number] = _Pieces.blocks(spans, period_s) if in_blocks else _Pieces.spans(spans)
        short = _SHORTEST <= float(np.median(spans.seconds)) / period_s < _LONG
        if not in_blocks and len(spans) >= LEAST and short:
            repeating.setdefault(siblings[number], []).append(number)
    for some in repeating.values():
        given.update(zip(some, _repeated(run, device, [names[number] for number in some]), strict=True))
    alone = [k for k in pieces if k not in given or given[k].each.reason not in (None, "ranges_overlap")]
    most = max(_MOST // max(len(alone), 1), LEAST_OF_MEAN)
    followed = _followed(run, device, [pieces[number].thinned(most) for number in alone]) if alone else []
    for number, energy in zip(alone, followed, strict=True):
        if number not in given or energy.each.value is not None or energy.each.reason in _BLIND:
            given[number] = energy
    return [given[number] for number in range(len(names))]


class _Pieces(NamedTuple):
    """The times of a name that the sensor follows: its spans themselves, or blocks of steps in a row."""

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
        block = (since_ns / length_ns[row] * many[row]).astype(np.int64)
        begins = np.flatnonzero((np.diff(row, prepend=-1) != 0) | (np.diff(block, prepend=-1) != 0))
        ends = np.append(begins[1:], len(spans))
        return cls(spans.start_ns[begins], spans.end_ns[ends - 1], ends - begins, rows_ns, len(spans))

    @property
    def rows(self) -> _Pieces:
        """Blocks joined where one follows the other: of their sum the readings say more than of each; else none."""
        rows_ns = self.bursts_ns if len(self.bursts_ns) < len(self.each) else self.bursts_ns[:0]
        return _Pieces(rows_ns[:, 0], rows_ns[:, 1], np.zeros(len(rows_ns), np.int64), rows_ns, self.of)

    def thinned(self, most: int) -> _Pieces:
        """So many of them at most, evenly spread."""
        some = np.unique(np.linspace(0, len(self.each) - 1, min(len(self.each), most)).round().astype(np.intp))
        bursts_ns = self.bursts_ns[some] if len(self.bursts_ns) == len(self.each) else self.bursts_ns
        return _Pieces(self.start_ns[some], self.end_ns[some], self.each[some], bursts_ns, self.of)


def _follow(spans: Spans) -> Mask:
    """True for each span that begins where the one before it ended, shape (n - 1,)."""
    gap = spans.start_ns[1:] - spans.end_ns[:-1]
    # within 2 % of a step's time they are one after the other
    near = np.abs(gap) <= 0.02 * float(np.median(spans.end_ns - spans.start_ns))
    return np.asarray(near & (spans.lane[1:] == spans.lane[:-1]))


def _record(run: Run, device: str) -> tuple[Readings, Response]:
    record_and_response = readings(run, device)
    assert record_and_response is not None
    return record_and_response


def _followed(run: Run, device: str, pieces: Sequence[_Pieces]) -> Iterator[Energy]:
    """Energies of what the sensor follows, by one solve."""
    record, response = _record(run, device)
    windows = [*pieces, *(piece.rows for piece in pieces)]
    of = np.repeat(np.arange(len(windows)), [len(window.each) for window in windows])
    start, end, count = (
        np.concatenate(column) for column in zip(*((p.start_ns, p.end_ns, p.each) for p in windows), strict=True)
    )
    # Shorter than an update, whatever the readings around it say, could be lost in one of them
    long, plain = (
        end - start >= response.period_s * 1e9,
        all(len(piece.bursts_ns) == len(piece.each) for piece in pieces),
    )
    away = (start < record.time_ns[0]) | (end > record.time_ns[-1])
    reasons = np.where(away, "outside_record", "sensor_too_slow").astype(object)
    bursts_ns = None if plain else np.concatenate([piece.bursts_ns for piece in pieces])
    solved = energies(run, device, start[long], end[long], bursts_ns)
    reasons[long] = solved.reason
    for number, piece in enumerate(pieces):
        mine = of == number
        why = [reason for reason in reasons[mine] if reason]
        if len(why) == len(piece.each) or 2 * sum(reason not in _BLIND for reason in why) >= len(piece.each):
            yield _none(max(sorted(set(why)), key=why.count))  # most aren't like the others
            continue
        solved_here = mine[long] & solved.has_energy
        ones = count[long][solved_here].astype(np.float64)
        together = replace(
            solved.estimate(solved_here / ones.sum(), 1, TOGETHER if len(ones) > 1 else "windows"), budget={}
        )
        each = together
        if len(ones) >= LEAST_OF_MEAN:
            sd_j = (together.half_width or 0.0) / Z95
            each = mean_estimate(solved.energy_j[solved_here] / ones, ones, correlated=True, common_sd=sd_j)
        if why:  # a sum that leaves some out would be a quiet wrong number
            yield Energy(_none(max(sorted(set(why)), key=why.count)).total, each).flagged(
                [*together.flags, "windows_left_out"]
            )
        else:
            whole = (together if count[mine].sum() == piece.of else each).scaled(piece.of)
            rows = of == number + len(pieces)
            if rows.any() and all(reason is None for reason in reasons[rows]):
                whole = replace(solved.estimate(rows[long].astype(float), 1), budget={})
            total = replace(whole, method=METHOD)
            yield Energy(replace(total, flags=()), replace(each, flags=())).flagged(together.flags)


def _repeated(run: Run, device: str, names: Sequence[Spans]) -> Iterator[Energy]:
    """Energies of short spans by name, by the mean of one."""
    record, response = _record(run, device)
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

        estimates = short_span_energies(record, response, start[inside], end[inside], kind)
        means |= zip(there.tolist(), estimates, strict=True)
    power = power_record(run, device)
    flags = [*(sensor_flags(power[1]) if power else []), *record.flags]
    if record.hole_seconds(start.min(), end.max()) > 0:
        flags.append("hole_in_record")
    for number, spans in enumerate(names):
        mean = means[number]
        if count[number] == len(spans) or mean.value is None:
            yield Energy(mean.scaled(len(spans)), mean).flagged(flags)
        else:
            yield Energy(Estimate.null("outside_record", METHOD), mean).flagged([*flags, "windows_left_out"])


def power_device(run: Run, device: str | None) -> tuple[str | None, list[str]]:
    """The device whose power record speaks for spans of ``device``, and flags; None if there is none.

    Itself, else one of the same index or bus address, which another tool named otherwise; else the
    only one that has a record, where the spans are of one device only, flagged "device_assumed".
    """
    powered = [info for info in run.devices if power_record(run, info.id) is not None]
    if any(info.id == device for info in powered):
        return device, []
    wanted = next((info for info in run.devices if info.id == device), None)
    if wanted is not None:
        for info in powered:
            if wanted.pci_bus and info.pci_bus and wanted.pci_bus.lower()[-12:] == info.pci_bus.lower()[-12:]:
                return info.id, []
        alike = [info for info in powered if wanted.index is not None and info.index == wanted.index]
        if len(alike) == 1:
            return alike[0].id, []
    if len(powered) == 1 and run.remember("spans", "devices", _count_devices) <= 1:
        return powered[0].id, ["device_assumed"]
    return None, []


def _count_devices(spans: pa.Table) -> int:
    return len([name for name in pc.unique(spans["device"]).to_pylist() if name is not None])


def add_energies(run: Run, figures: Figures, units: Mapping[Named, int], spans: Mapping[Named, Spans]) -> None:
    """Add ``energy_total_j`` and ``energy_each_j`` to the units of the spans' names.

    Without a power record every figure is null with the reason.
    """
    for device in dict.fromkeys(device for _, _, device in spans):
        names = {named: some for named, some in spans.items() if named[2] == device}
        source, flags = power_device(run, device or None)
        kinds = [kind for kind, _, _ in names]
        steps = [kind == "iteration" for kind in kinds]
        energies_of = energies_by_name(run, source or device, list(names.values()), steps, kinds)
        for named, energy in zip(names, energies_of, strict=True):
            total, each = energy.flagged(flags)
            figures.add(units[named], "energy_total_j", total)
            figures.add(units[named], "energy_each_j", each)


def by_name(spans: Spans, kinds: Collection[str]) -> dict[Named, Ints]:
    """Places of the spans of these kinds by kind, name and device, those of each by start."""
    texts = spans.texts["name"]
    name = np.where(spans.name < 0, texts.index("") if "" in texts else -1, spans.name)
    keys = np.stack([spans.device, spans.kind, name])
    order = np.lexsort((spans.start_ns, *keys[::-1]))
    order = order[spans.those("kind", kinds)[order]]
    groups = np.split(order, np.flatnonzero((np.diff(keys[:, order]) != 0).any(axis=0)) + 1) if len(order) else []
    columns = [(getattr(spans, column), [*spans.texts[column], ""]) for column in ("kind", "name", "device")]
    places_of = dict[Named, Ints]()
    for rows in groups:
        kind, named, device = (words[codes[rows[0]]] for codes, words in columns)
        places_of[kind, named, device] = rows
    return places_of
