"""Invariants of every table that jouletrace writes, on which all readers of tables rely.

A valid Parquet file may still violate them, if another program wrote it or a user edited it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa

from jouletrace.arrays import Mask
from jouletrace.run.forms import RecordingFacts
from jouletrace.run.lazily import compute as pc
from jouletrace.run.model import MODEL_UNIT, Run
from jouletrace.run.tables import REQUIRED, filled

MOST_NS = 2**62 + 2**61
"""The year 2189: the difference of any two earlier times fits into 64 bits."""

_MOST_ID = 2**62
_MOST_COPIES = 10**9

_NEEDED = {
    "samples": ("time_ns", "device", "channel"),
    "recent": ("time_ns", "device", "channel"),
    "extremes": REQUIRED["extremes"],
    "spans": ("id", "kind"),
    "units": ("id", "level", "name"),
    "windows": ("variant",),
    "results": ("unit", "metric"),
    "counters": ("span", "metric"),
    "activity": ("start_ns", "end_ns", "unit"),
    "waveform": ("start_ns", "end_ns"),
    "requests": ("level", "sent_ns", "last_ns", "status"),
    "steps": ("start_ns", "end_ns", "new_tokens", "decoding", "context_tokens"),
    "divided": ("device", "unit", "seconds"),
    "powers": REQUIRED["powers"],
    "errors": REQUIRED["errors"],
}
"""Columns without a null."""

_COUNTS = {
    "windows": ("beyond",),
    "units": ("count",),
    "results": ("n",),
    "requests": ("level", "input_tokens", "output_tokens", "chunks"),
    "steps": ("new_tokens", "prefilling", "decoding", "context_tokens"),
    "divided": ("kind", "seconds", "count"),
    "powers": ("readings", "coverage", "own", "overlapped", "most_w", "prior_w", "varies_w", "scatter_w"),
}
"""Columns of non-negative numbers."""

_ONCE = {
    "spans": ("id", "start_ns", "end_ns"),  # older recordings gave a phase the id of the first range
    "units": ("id",),
    "windows": ("start_ns", "end_ns", "unit", "block", "order"),
    "requests": ("level", "id", "scheduled_ns", "sent_ns", "first_ns", "last_ns", "input_tokens", "output_tokens"),
}
"""Columns that no two rows share."""

_LONGEST_NS = 10**15
"""Eleven days: the first kernel of a recording lies no further away."""


def check(table: pa.Table, name: str) -> None:
    """Refuse a table that violates an invariant.

    Raises:
        ValueError: With one line that names the first wrong row.
    """
    for wrong, words in _rules(table, name):
        if wrong.any():
            raise ValueError(f"row {int(np.argmax(wrong))}: {words}")


def check_recordings(run: Run) -> None:
    """Refuse facts about recordings that contradict one another, or the devices of their Run.

    Raises:
        ValueError: With one line that names the first wrong one.
    """
    recordings = run.workload.get("recordings", [])
    devices, seen = {device.id for device in run.devices}, set[str]()
    for i, recording in enumerate(recordings):
        for wrong, words in _wrong_recording(recording, devices, seen, several=len(recordings) > 1):
            if wrong:
                raise ValueError(f"workload.recordings[{i}]: {words}")
        seen |= {recording.get("device", ""), f"name: {recording.get('name')}"}
    if run.kind == "profile" and len(recordings) > 1:
        raise ValueError(f"workload.recordings: a profile has one, this has {len(recordings)}")
    if len({"start_ns" in recording for recording in recordings}) > 1:
        raise ValueError("workload.recordings: some have kernels (start_ns) and some have none")


def _wrong_recording(
    recording: RecordingFacts, devices: Collection[str], seen: Collection[str], *, several: bool
) -> Iterator[tuple[bool, str]]:
    """For each rule of a recording, whether it is violated, and the message."""
    device, start, end = recording.get("device", ""), recording.get("start_ns"), recording.get("end_ns", 0)
    yield "device" not in recording and (several or "name" in recording), "it has no device"
    yield "device" in recording and bool(devices) and device not in devices, f"the Run has no device {device[:80]!r}"
    yield device in seen, f"the device {device[:80]!r} has another"
    name = str(recording.get("name"))
    yield "name" in recording and f"name: {name}" in seen, f"the name {name[:80]!r} is that of another"
    if start is not None:
        first = recording.get("first_ns", start)
        yield not {"end_ns", "iterations"} <= recording.keys(), "it has no end_ns or iterations"
        yield not start - _LONGEST_NS <= first <= end or start > end, "its start, first kernel and end are in no order"
    units_s = recording.get("seconds", [])
    wrong = any(
        unit != int(unit) or site != int(site) or not all(0 <= amount <= MOST_NS for amount in sums)
        for unit, site, *sums in units_s
    )
    yield wrong, "its seconds have a wrong unit, time or count"
    yield (
        not 0 <= recording.get("last", 0) <= recording.get("collectives", recording.get("last", 0)),
        "last is not within collectives",
    )
    yield (
        "collectives" in recording and not {"name", "last"} <= recording.keys(),
        "it has collectives without name or last",
    )


def check_kernels(run: Run) -> None:
    """Refuse kernels of devices that have no recording, where several have one.

    Raises:
        ValueError: With one line that names the first wrong row.
    """
    recordings = run.workload.get("recordings", [])
    if run.kind == "program" and len(run.activity) and any("start_ns" not in recording for recording in recordings):
        raise ValueError("it has kernels, and a recording in run.json has no start_ns")
    if len(recordings) > 1 and len(run.activity):
        devices = pa.array([recording.get("device", "") for recording in recordings], pa.string())
        wrong = ~np.asarray(pc.is_in(run.activity["device"].cast(pa.string()), devices).to_numpy(), bool)
        if wrong.any():
            raise ValueError(f"row {int(np.argmax(wrong))}: its device has no recording")


def sound_rows(table: pa.Table, name: str) -> pa.Table:
    """The rows that violate nothing; dropping a row also invalidates its children, so the check is repeated."""
    while True:
        keep = np.ones(len(table), bool)
        for wrong, _ in _rules(table, name):
            keep &= ~wrong
        if keep.all():
            return table
        table = table.filter(pa.array(keep))


def _rules(table: pa.Table, name: str) -> Iterator[tuple[Mask, str]]:
    """For each rule, the rows that violate it, and the message."""
    for column in _NEEDED[name]:
        yield _nulls(table, column), f"it has no {column}"
    for column in table.column_names:
        if column.endswith("_ns"):
            yield _beyond(table, column, -MOST_NS, MOST_NS), f"{column} is no time"
        elif column in ("id", "parent", "unit", "span", "site"):
            yield _beyond(table, column, -_MOST_ID, _MOST_ID), f"{column} is no number of a row"
    for column in _COUNTS.get(name, ()):
        yield _beyond(table, column, 0, _MOST_ID), f"{column} is below zero, or no number"
    if {"start_ns", "end_ns"} <= set(table.column_names):
        yield _nulls(table, "start_ns") != _nulls(table, "end_ns"), "it has only one of start_ns and end_ns"
    if name in _ONCE:
        yield _twice(table, _ONCE[name]), "it is there twice"
    if name == "units":
        yield from _units(table)
    if name == "windows":
        yield _beyond(table, "multiplicity", -_MOST_COPIES, _MOST_COPIES), "multiplicity is no number of copies"
        yield _beyond(table, "replays", 1, _MOST_ID, null=1), "replays is none: a window has an iteration"
    if name == "waveform":
        yield from _bins(table)
    if name == "requests":
        yield from _requests(table)
    if name == "steps":
        yield from _steps(table)


def _requests(table: pa.Table) -> Iterator[tuple[Mask, str]]:
    """A request ends after it was sent, and its first token comes between."""
    sent, last = (pc.fill_null(table[column], 0).to_numpy() for column in ("sent_ns", "last_ns"))
    first = pc.if_else(pc.is_null(table["first_ns"]), table["sent_ns"], table["first_ns"])
    first = pc.fill_null(first, 0).to_numpy()
    yield last < sent, "it ends before it is sent"
    yield (first < sent) | (first > last), "its first token does not come between sent and last"


def _steps(table: pa.Table) -> Iterator[tuple[Mask, str]]:
    """A step takes time, and begins when the one before it has ended."""
    start, end = (pc.fill_null(table[column], 0).to_numpy() for column in ("start_ns", "end_ns"))
    yield end <= start, "it takes no time"
    new = pc.fill_null(table["new_tokens"], 0).to_numpy()
    stated = pc.fill_null(table["prefilling"], -1).to_numpy()
    yield (stated > new) | ((stated == 0) & (new > 0)), "its new_tokens are not of so many sequences prefilling"
    yield np.append(False, start[1:] < end[:-1])[: len(start)], "it begins before the step above it has ended"


def _bins(table: pa.Table) -> Iterator[tuple[Mask, str]]:
    """The bins of a waveform are contiguous, and each power lies within its interval."""
    start, end = (pc.fill_null(table[column], 0).to_numpy() for column in ("start_ns", "end_ns"))
    apart = np.append(start[1:] != end[:-1], False)[: len(start)]
    yield apart | (end <= start), "it doesn't end where the next one begins"
    low, power, high = (pc.fill_null(table[column], 0.0).to_numpy() for column in ("low_w", "power_w", "high_w"))
    yield ~((low <= power) & (power <= high) & np.isfinite(high - low)), "its power is not within its interval"


def _twice(table: pa.Table, names: Sequence[str]) -> Mask:
    """True for a row that repeats an earlier one in these columns, shape (n,)."""
    columns = np.stack([pc.fill_null(table[name].cast("int64"), -_MOST_ID - 1).to_numpy() for name in names])
    order, again = np.lexsort(columns), np.zeros(len(table), bool)
    again[order[1:]] = (columns[:, order[1:]] == columns[:, order[:-1]]).all(axis=0)
    return again


def _nulls(table: pa.Table, column: str) -> Mask:
    if table[column].null_count == 0:
        return np.zeros(len(table), bool)
    return np.asarray(pc.is_null(table[column]).to_numpy(), bool)


def _beyond(table: pa.Table, column: str, low: int, high: int, null: int = 0) -> Mask:
    values = filled(table[column], null).to_numpy()
    return np.asarray(~((values >= low) & (values <= high)))  # true for NaN


def _units(table: pa.Table) -> Iterator[tuple[Mask, str]]:
    """Work is counted; parents exist, and there is no cycle. The analysis adds the whole, which may be missing."""
    for column in ("flops", "bytes"):
        yield _beyond(table, column, 1, _MOST_ID, null=1), f"{column} is less than 1, or no number"
    ids, parent = table["id"].to_numpy(), pc.fill_null(table["parent"], -_MOST_ID - 1).to_numpy()
    order = np.argsort(ids, kind="stable")
    if not len(ids):
        return
    row = order[np.minimum(np.searchsorted(ids[order], parent), len(ids) - 1)]
    has = parent >= -_MOST_ID
    has &= (ids[row] == parent) | (parent != MODEL_UNIT)
    lost = has & (ids[row] != parent)
    yield lost, "its parent is not there"
    # Each pass doubles the levels climbed: a unit that never reaches the top lies on a cycle.
    above = np.where(has & ~lost, row, -1)
    for _ in range(max(len(ids).bit_length(), 1) + 1):
        above = np.where(above >= 0, above[above], -1)
    yield above >= 0, "it lies within itself"
