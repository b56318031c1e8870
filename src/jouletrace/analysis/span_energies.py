"""Power given to what ran: energy of every kernel name, operator, range and iteration of a Run that has both.

By the functions and under the flags of a live run: spans that the sensor can follow are integrated
one by one (``sensor.windows.energy``), shorter ones that repeat are distinguished by regression
(``sensor.windows.repeated``) where that is possible, and what neither supports is null with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jouletrace.analysis.figures import Figures
from jouletrace.analysis.power import join, no_power_reason, power_record
from jouletrace.run import Estimate, Run
from jouletrace.run.readings import Readings
from jouletrace.run.spans import Spans, spans_of
from jouletrace.sensor.calibration.response import StepResponse
from jouletrace.sensor.windows.energy import WindowEnergies, window_energy
from jouletrace.sensor.windows.repeated import MIN_WINDOWS, repeated_energy
from jouletrace.stats.interval import Z95

KINDS = ("iteration", "range", "layer", "op", "kernel", "memcpy")
"""Kinds of spans that energy is given to."""

METHOD = "timeline"


_BLIND = ("outside_record", "hole_in_record")
"""Reasons that have nothing to do with the span itself: the mean of the others stands for it."""


@dataclass(frozen=True)
class NamedEnergy:
    """Energy of all spans of one kind and name on one device."""

    # What they have in common; ``device`` as the spans have it
    kind: str
    name: str
    device: str
    count: int  # how many spans there are
    time_s: float  # their durations added up
    total: Estimate  # joules of all of them together
    each: Estimate  # mean joules of one
    flags: list[str]  # codes that qualify both


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


def span_energies(run: Run, kinds: Sequence[str] = KINDS) -> list[NamedEnergy]:
    """Energy by device, kind and name of the spans, the longest in sum first.

    Without a power record every figure is null with the reason; nothing is left out.
    """
    found: list[NamedEnergy] = []
    for (device, kind), spans in _by_device_and_kind(run, kinds):
        source, flags = power_device(run, device)
        record = power_record(run, source) if source is not None else None
        found += _of_kind(spans, kind, device or "", record, flags, no_power_reason(run, device or ""))
    return sorted(found, key=lambda named: -named.time_s)


def _by_device_and_kind(run: Run, kinds: Sequence[str]) -> Iterator[tuple[tuple[str | None, str], Spans]]:
    """The spans of each device and kind: devices in order of appearance, kinds in the order given."""
    spans = spans_of(run, *kinds)
    place = np.array([kinds.index(one) if one in kinds else -1 for one in spans.texts["kind"]], np.int64)
    _, first, number = np.unique(spans.device, return_index=True, return_inverse=True)
    appeared = np.argsort(np.argsort(first))[number.reshape(-1)]
    group = appeared * len(kinds) + place[spans.kind] if len(spans) else appeared
    order = np.lexsort((spans.start_ns, group))
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        if len(rows):
            yield (spans.text("device", rows[0]), str(spans.text("kind", rows[0]))), _named(spans.take(rows))


def _named(spans: Spans) -> Spans:
    """The same with the names that occur alone, "" where there is none."""
    used, code = np.unique(spans.name, return_inverse=True)
    names = [spans.texts["name"][i] if i >= 0 else "" for i in used]
    return replace(spans, name=code.reshape(-1), texts={**spans.texts, "name": names})


def add_energies(
    run: Run, figures: Figures, unit_of: Callable[[NamedEnergy], int | None], kinds: Sequence[str] = KINDS
) -> list[NamedEnergy]:
    """Add ``energy_total_j`` and ``energy_each_j`` to the units of the spans' names, where ``unit_of`` gives one.

    Returns:
        All results.
    """
    found = span_energies(run, kinds)
    for named in found:
        unit = unit_of(named)
        if unit is not None:
            figures.add(unit, "energy_total_j", named.total, named.flags)
            figures.add(unit, "energy_each_j", named.each, named.flags)
    return found


def _of_kind(
    spans: Spans,
    kind: str,
    device: str,
    found: tuple[Readings, StepResponse] | None,
    flags: list[str],
    no_power: str,
) -> list[NamedEnergy]:
    """Energy of each name among the spans of one kind on one device."""
    names = spans.texts["name"]
    count = np.bincount(spans.name, minlength=len(names))
    seconds = np.asarray(np.bincount(spans.name, spans.seconds, minlength=len(names)), np.float64)
    if found is None or len(found[0]) < 2:
        null = Estimate.null(no_power if found is None else "no_samples", METHOD)
        return [
            NamedEnergy(kind, name, device, int(n), float(s), null, null, flags)
            for name, n, s in zip(names, count, seconds, strict=True)
        ]
    record, response = found
    slow = _Repeated(spans, record, response, seconds)
    # longer spans are integrated, even where a regression could determine their mean
    many = (count >= MIN_WINDOWS) & (seconds < 10 * response.period_s * count)
    means = {int(number): slow.mean(int(number)) for number in np.flatnonzero(many)}
    repeated = {number: mean for number, mean in means.items() if mean.value is not None}
    followed = _followed(spans, record, response, ~np.isin(spans.name, list(repeated)))
    named = []
    for number, name in enumerate(names):
        if number in repeated:
            each, codes = repeated[number], [*_own_flags(response), *record.flags]
            total = each.scaled(int(count[number]))
        else:
            total, each, codes = followed.sum(np.flatnonzero(spans.name == number))
        flagged = [*codes, *flags]
        named.append(NamedEnergy(kind, name, device, int(count[number]), float(seconds[number]), total, each, flagged))
    return named


def _own_flags(response: StepResponse) -> list[str]:
    flags = [] if response.modelled else ["unmodelled"]
    return [*flags, "nominal_response"] if response.origin == "nominal" else flags


@dataclass(frozen=True)
class _Followed:
    """Spans integrated one by one: those that are long enough for the sensor to follow."""

    energies: WindowEnergies
    place: NDArray[np.int64]
    outside: NDArray[np.bool_]

    def sum(self, members: NDArray[np.intp]) -> tuple[Estimate, Estimate, list[str]]:
        """Energy of some spans together, the mean of one, and flags."""
        place = self.place[members]
        value = np.append(self.energies.energy_j, np.nan)[place]  # -1 is the span without an energy
        known = np.isfinite(value)
        if not known.any():
            reason = self._reason(members)
            return Estimate.null(reason, METHOD), Estimate.null(reason, METHOD), []
        chosen = place[known]
        # What isn't known of the response all windows share: it adds up, where noise does not.
        sd = float(
            np.hypot(
                np.sqrt((self.energies.sd_statistical_j[chosen] ** 2).sum()), self.energies.sd_model_j[chosen].sum()
            )
        )
        n, energy = len(chosen), float(value[known].sum())
        some = Estimate(energy, energy - Z95 * sd, energy + Z95 * sd, n, METHOD)
        codes = join(self.energies.flags[i] for i in chosen)
        if known.all():
            return some, some.scaled(1 / n), codes
        missing = Estimate.null(self._reason(members[~known]), METHOD)
        if missing.reason not in _BLIND:
            return missing, missing, []  # those that were too slow are not like the others
        # A mean over those that are known; a sum that leaves some out would be a quiet wrong number.
        return missing, some.scaled(1 / n), [*codes, "windows_left_out"]

    def _reason(self, members: NDArray[np.intp]) -> str:
        """Why most of them have no energy."""
        place = self.place[members]
        reasons = [self.energies.reason[i] or "" for i in place[place >= 0]]
        short = place < 0
        reasons += ["outside_record"] * int((short & self.outside[members]).sum())
        reasons += ["sensor_too_slow"] * int((short & ~self.outside[members]).sum())
        reasons = [reason for reason in reasons if reason]
        return max(sorted(set(reasons)), key=reasons.count) if reasons else "sensor_too_slow"


def _followed(spans: Spans, record: Readings, response: StepResponse, use: NDArray[np.bool_]) -> _Followed:
    """Integrate the spans that last an update of the sensor or longer; shorter ones hold no reading of their own."""
    long = use & (spans.end_ns - spans.start_ns >= response.period_s * 1e9)
    place = np.full(len(spans.start_ns), -1, np.int64)
    place[long] = np.arange(int(long.sum()))
    outside = (spans.start_ns < record.time_ns[0]) | (spans.end_ns > record.time_ns[-1])
    return _Followed(window_energy(record, response, spans.start_ns[long], spans.end_ns[long]), place, outside)


class _Repeated:
    """Mean energy of spans too short to be followed, by regression over all that repeat beside them."""

    def __init__(self, spans: Spans, record: Readings, response: StepResponse, seconds: NDArray[np.float64]) -> None:
        self._spans, self._record, self._response = spans, record, response
        share = seconds / max(float(seconds.sum()), 1e-12)
        # other names are pooled: a regression can separate only so many
        self._own = np.flatnonzero(share >= 0.02)
        self._found: dict[int, Estimate] | None = None

    def mean(self, number: int) -> Estimate:
        """Joules of one span of the name with this number; null with the reason."""
        if self._found is None:
            self._found = self._regress()
        return self._found.get(number, Estimate.null("sensor_too_slow", "repeated"))

    def _regress(self) -> dict[int, Estimate]:
        spans, record, names = self._spans, self._record, self._spans.texts["name"]
        start, end = spans.edges_ns
        inside = (start >= record.time_ns[0]) & (end <= record.time_ns[-1]) & (end > start)
        start, end, code = start[inside], end[inside], spans.name[inside]
        if len(start) < MIN_WINDOWS or np.any(start[1:] < end[:-1]):
            return {}
        # so many windows within one reading's memory look the same to every reading
        if _most_within(start, round((self._response.memory_s + self._response.period_s) * 1e9)) > 2000:
            return {}
        kind = np.full(len(names), len(self._own))
        kind[self._own] = np.arange(len(self._own))
        found = repeated_energy(record, self._response, start, end, kind[code])
        counts = np.bincount(code, minlength=len(names))
        everything = np.bincount(spans.name, minlength=len(names))
        # A mean of those inside the record says nothing of the ones outside of it.
        return {int(n): found[i] for i, n in enumerate(self._own) if i < len(found) and counts[n] == everything[n]}


def _most_within(start: NDArray[np.int64], reach_ns: int) -> int:
    """The largest number of starts within an interval of this length."""
    return int((np.searchsorted(start, start + reach_ns) - np.arange(len(start))).max())
