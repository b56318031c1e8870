"""When the kernels of a recording ran, and for how long in an iteration in which nothing was repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jouletrace.arrays import Floats, Ints, Mask
from jouletrace.attribution.activity import LONG_S, Activity, Kind, activity_of
from jouletrace.run import MODEL_UNIT, Run, tables
from jouletrace.run.forms import RecordingFacts
from jouletrace.run.recording_names import IDLE_NAME, recording_of
from jouletrace.run.spans import union_ns
from jouletrace.run.tables import UnitRow

_SUMS = (("seconds", "sum"), ("count", "count"))
"""Columns of a division, and what each is of the seconds of launches."""

MOST_KINDS, OTHERS = 200, Kind("")
"""Kinds of kernels whose powers are solved for, those with the most time, and the one kind that the others make. In 30
programs with up to 570 kinds the others take less than 0.1 % of the time."""


@dataclass(frozen=True)
class KernelTimes:
    """The kernels of a recording.

    Attributes:
        about: How the recording was made.
        device: Whose kernels they are.
        top: Unit of all that ran: the model, or the device where a Run has several.
        units: Operators, kernels and sites, as stored, by id.
        start_ns, end_ns: Of each kernel, shape (n,).
        kind: Index into ``kinds`` of each kernel, shape (n,).
        parts: What an untouched iteration consists of, by site: rows of ``divided``, with these kinds.
    """

    about: RecordingFacts
    device: str
    top: int
    units: dict[int, UnitRow]
    start_ns: Ints
    end_ns: Ints
    kind: Ints
    kinds: tuple[Kind, ...]
    parts: pa.Table

    def activity(self, origin_ns: int) -> Activity:
        """The kernels as disjoint intervals, their seconds from ``origin_ns`` on."""
        return activity_of(self.start_ns, self.end_ns, self.kind, self.kinds, origin_ns)

    @cached_property
    def total_s(self) -> Floats:
        """Seconds of each kind in the whole recording, shape (kinds,)."""
        seconds = (self.end_ns - self.start_ns) / 1e9
        return np.asarray(np.bincount(self.kind, seconds, len(self.kinds)), np.float64)

    @cached_property
    def busy_s(self) -> float:
        """Seconds of an untouched iteration in which at least one kernel runs."""
        union = union_ns(self.start_ns, self.end_ns)
        own_s: float = sum(self.parts["seconds"].to_pylist())
        return own_s * union / max(float((self.end_ns - self.start_ns).sum()), 1.0)


def times_of(run: Run, about: RecordingFacts | None = None) -> KernelTimes:
    """The kernels of a Run's recording; of that of one device, where there are several.

    Raises:
        KeyError: If the Run lacks some of it.
    """
    about, activity = recording_of(run) if about is None else about, run.activity
    device = str(about.get("device") or (run.devices[0].id if run.devices else ""))
    if len(run.workload.get("recordings", ())) > 1:
        activity = activity.filter(pc.equal(activity["device"], device))
    recorded = recorded_units(run)
    devices = (row["id"] for row in run.units.to_pylist() if row["level"] == "device" and row["module"] == device)
    top = next((id for id in devices if id in recorded), MODEL_UNIT)
    units = recorded.get(top, {})
    start, end = activity["start_ns"].to_numpy(), activity["end_ns"].to_numpy()
    unit, own = activity["unit"].to_numpy(), untouched(activity)
    names: dict[Kind, int] = {}
    number = dict[int, int]()
    for row in units.values():
        if row["level"] == "kernel":
            number[row["id"]] = names.setdefault(kind_of(row), len(names))
    ids, where = tables.distinct(unit)
    kind, kinds = np.array([number[int(one)] for one in ids], np.int64)[where], tuple(names)
    length = (end - start) / 1e9
    if len(kinds) > MOST_KINDS:
        largest = np.argsort(-np.bincount(kind, length, len(kinds)), kind="stable")[:MOST_KINDS]
        place = np.full(len(kinds), MOST_KINDS)
        place[largest] = np.arange(MOST_KINDS)
        kind, kinds = place[kind], (*(kinds[one] for one in largest), OTHERS)
        number = {id: int(place[one]) for id, one in number.items()}
    if about.get("variants"):  # an import has none: what isn't its own there ran outside of iterations
        kind, kinds = _part_repeats(kind, kinds, ~own, length)
    if "seconds" in about:  # of a whole program, of which a part is analysed
        rows: list[dict[str, object]] = [
            {
                "unit": int(unit),
                "site": int(site) if site >= 0 else None,
                "seconds": s,
                "count": often[0] if often else None,
            }
            for unit, site, s, *often in about["seconds"]
        ]
        parts = tables.from_rows(rows, "divided")
    else:
        timed = activity.select(["unit", "site"]).append_column("seconds", [length]).filter(pa.array(own))
        sums = timed.group_by(["unit", "site"], use_threads=False).aggregate([("seconds", "sum"), ("seconds", "count")])
        each = {name: pc.divide(sums[f"seconds_{of}"], float(about["iterations"])) for name, of in _SUMS}
        parts = tables.conform(pa.table({"unit": sums["unit"], "site": sums["site"], **each}), "divided")
    parts = parts.sort_by([("site", "ascending"), ("unit", "ascending")])
    parts = tables.changed(parts, "kind", [number[one] for one in parts["unit"].to_pylist()])
    parts = tables.changed(parts, "device", [device] * len(parts))
    return KernelTimes(about, device, top, units, start, end, kind, kinds, parts)


def kind_of(unit: UnitRow) -> Kind:
    """The kind of a kernel's unit, or of an operator's, which has its own name."""
    return Kind(unit["name"], f"{unit['op']} {unit['shapes'] or ''}".strip() if unit["op"] else "")


def by_operator(kind: Kind) -> str:
    """Groups kernels by operator, or by name where the operator is unknown."""
    return kind.operator or kind.name


def untouched(activity: pa.Table) -> Mask:
    """Which kernels of the table ran in iterations as they are, shape (n,).

    Of all others only the power counts, which the column ``copy`` says: in a profile they are repeats in place, in an
    import they ran outside of iterations.
    """
    return np.asarray(~pc.fill_null(activity["copy"], False).to_numpy(zero_copy_only=False))


def recorded_units(run: Run) -> dict[int, dict[int, UnitRow]]:
    """Operators, kernels and sites by id, for the model and each device below which there are some.

    Pools are left out: what these hold is right below the model, or the device, again.
    """
    rows: dict[int | None, UnitRow] = {row["id"]: row for row in run.units.to_pylist()}
    found: dict[int, dict[int, UnitRow]] = {}
    for row in rows.values():
        level, named = row["level"], row["op"] or row["name"] == IDLE_NAME
        if level in ("kernel", "site") or (level == "op" and named):
            top = _top(row, rows)
            if level == "op" or (level == "kernel" and not row["op"]):
                row["parent"] = top
            found.setdefault(top, {})[row["id"]] = row
    return found


def _top(row: UnitRow | None, rows: Mapping[int | None, UnitRow]) -> int:
    """The unit of the device below which a row is; the model if there is none."""
    while row is not None and row["level"] != "device":
        row = rows.get(row["parent"])
    return MODEL_UNIT if row is None else row["id"]


def _part_repeats(kind: Ints, kinds: tuple[Kind, ...], repeat: Mask, length: Floats) -> tuple[Ints, tuple[Kind, ...]]:
    """Repeats of short kernels are kinds of their own: they take most of the time in which these run."""
    mean = np.bincount(kind, length) / np.maximum(np.bincount(kind), 1)
    repeated = repeat & (mean <= LONG_S)[kind]
    some, place = tables.distinct(kind[repeated])
    kind[repeated] = len(kinds) + place
    return kind, kinds + tuple(replace(kinds[one], repeat=True) for one in some)
