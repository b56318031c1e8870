"""The tracing pass: which kernels ran when, and whose they are. Comes last, since tracing leaves a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jouletrace.errors import NotPossibleError
from jouletrace.experiments.parts import Part
from jouletrace.profiler.progress import Progress
from jouletrace.profiler.session import Session
from jouletrace.run import MODEL_UNIT
from jouletrace.steps.base import KnowsLaunches, Launch, TracesItself, VariableStep
from jouletrace.steps.units import Unit
from jouletrace.tracing.cuda import trace_call
from jouletrace.tracing.cupti import demangle
from jouletrace.tracing.trace import KINDS, Trace

ITERATIONS = 10
_MOST_ENTRIES = 30_000
_SETTLING = 2
"""Iterations traced first and left out: the tracer sets itself up in them."""


@dataclass(frozen=True)
class Joined:
    """Entries of a trace and whose they are.

    Attributes:
        trace: Iterations after the tracer has settled, entry by entry.
        iteration: Of each entry, shape (n,).
        unit: Whose it is; None where no operator launches it, or nobody knows.
        problem: Why entries could not be told to be whose; None if they could.
    """

    trace: Trace
    iteration: NDArray[np.intp]
    unit: list[Unit | None]
    problem: str | None = None


def trace_kernels(
    session: Session, step: VariableStep, parts: Sequence[Part], iteration_s: float, progress: Progress
) -> None:
    """Trace some iterations; spans, units of kernels and warnings go to the session.

    Args:
        session: In progress.
        step: The step of the experiment on parts.
        parts: Its parts, whose rows are in the session's units already.
        iteration_s: Seconds of an iteration.
        progress: Told of it.
    """
    if session.devices[0].info.kind != "gpu":
        return  # on a CPU an operator is all there is
    launches = step.launches() if isinstance(step, KnowsLaunches) else []
    n = max(1, min(ITERATIONS, _MOST_ENTRIES // max(len(launches), 1)))
    progress.begin("tracing kernels", n * iteration_s)
    try:
        with session.phase("tracing"):
            trace = _trace(session, step, launches, n)
    except NotPossibleError as error:
        session.run.warn("not_traced", f"kernels are not listed: {error}")
        return
    if trace.dropped:
        session.run.warn("records_dropped", f"the tracer dropped {trace.dropped} records: kernels are missing")
    joined = join(trace, launches, n)
    if joined.problem is not None:
        session.run.warn("kernels_not_joined", f"kernels can't be told to be of which operator: {joined.problem}")
    store(session, joined, parts)


def _trace(session: Session, step: VariableStep, launches: Sequence[Launch], n: int) -> Trace:
    if isinstance(step, TracesItself):
        times = step.kernel_times(n + _SETTLING)
        names = list(dict.fromkeys(launch.name for launch in launches))
        index = {name: i for i, name in enumerate(names)}
        return Trace.of(
            names,
            "simulated",
            name=np.tile([index[launch.name] for launch in launches], len(times)),
            start_ns=times[:, :, 0].ravel(),
            end_ns=times[:, :, 1].ravel(),
        )
    trace, instead = trace_call(lambda: step.replay(n + _SETTLING))
    if instead is not None:
        session.run.warn("traced_by_torch", f"kernels were traced by torch's profiler, not by CUPTI: {instead}")
    return trace


def join(trace: Trace, launches: Sequence[Launch], n: int) -> Joined:
    """Find out which launch of the capture each entry of a trace is, in the last ``n`` iterations.

    What a graph launches runs once an iteration, in the order of its capture where that is one
    stream's; with several, the ids of its nodes are in that order. Kind, launch configuration and
    name of every entry must be those of its launch, as far as both are known: otherwise nothing is joined.
    A node that fills or copies memory may run as a kernel of the driver's, named after what it does
    ("memset32").

    Args:
        trace: Of ``n`` iterations and some before them.
        launches: Of one iteration.
        n: Iterations.
    """
    wanted = [launch for launch in launches if launch.kind in KINDS]
    if not wanted:
        everything = np.zeros(len(trace), np.intp)
        return Joined(trace, everything, [None] * len(trace), "this step has no graph to hold them against")
    inside = trace.take(np.flatnonzero(trace.graph_node != 0)) if (trace.graph_node != 0).any() else trace
    each = len(wanted)
    if len(inside) % each or len(inside) < n * each:
        text = f"{len(inside)} were recorded, and an iteration launches {each}"
        return Joined(trace, np.zeros(len(trace), np.intp), [None] * len(trace), text)
    last = inside.take(slice(len(inside) - n * each, None))
    problem = ""
    for order in _orders(last, n, each):
        ordered = last.take(order)
        problem = _mismatch(ordered, wanted)
        if not problem:
            return Joined(ordered, np.repeat(np.arange(n), each), [launch.unit for launch in wanted] * n)
    return Joined(last, np.repeat(np.arange(n), each), [None] * len(last), problem)


def _orders(trace: Trace, n: int, each: int) -> list[NDArray[np.intp]]:
    """Ways in which entries may be in the order of the capture: by start, and by graph node."""
    plain = np.arange(n * each).reshape(n, each)
    by_node = np.argsort(trace.graph_node.reshape(n, each), axis=1, kind="stable")
    return [plain.ravel(), (by_node + plain[:, :1]).ravel()]


def _mismatch(trace: Trace, wanted: Sequence[Launch]) -> str:
    """What is wrong with an order; "" if nothing is."""
    names = np.array([demangle(launch.name.encode()) for launch in wanted])
    n = len(trace) // len(wanted)
    kinds = np.tile([KINDS.index(launch.kind) for launch in wanted], n)
    kernels = kinds == KINDS.index("kernel")
    found = np.array(trace.names, dtype=object)[trace.name]
    by_driver = np.array([name.startswith(kind) for name, kind in zip(found, np.array(KINDS)[kinds], strict=True)])
    other_kind = (kinds != trace.kind) & ~(by_driver & (trace.kind == KINDS.index("kernel")))
    unequal = other_kind | (kernels & (np.tile(names, n) != "") & (np.tile(names, n) != found))
    for field in ("grid", "block"):
        stated = np.tile(np.array([getattr(launch, field) for launch in wanted]), (n, 1))
        recorded = getattr(trace, field)
        known = kernels & stated.any(axis=1) & recorded.any(axis=1)
        unequal |= known & (stated != recorded).any(axis=1)
    if not unequal.any():
        return ""
    at = int(np.flatnonzero(unequal)[0])
    place = at % len(wanted)
    ran, captured = KINDS[trace.kind[at]], wanted[place].kind
    return f"entry {place} ran as {ran} {found[at]}, and was captured as {f'{captured} {names[place]}'.rstrip()}"


def store(session: Session, joined: Joined, parts: Sequence[Part]) -> None:
    """Write spans and the units of kernels: one for each kernel name under each part."""
    part_of = {unit: part.id for part in _all(parts) for unit in part.units}
    rows_of = {part.id: part.row() for part in _all(parts)}
    trace, n = joined.trace, int(joined.iteration.max()) + 1 if len(joined.trace) else 1
    next_id = 1 + max(session.snapshot().units["id"].to_pylist(), default=MODEL_UNIT)
    units: dict[tuple[int | None, str], dict[str, Any]] = {}
    names = [trace.names[i] for i in trace.name]
    owners: list[int] = []
    for name, unit in zip(names, joined.unit, strict=True):
        part = part_of.get(unit) if unit is not None else None
        row = units.get((part, name))
        if row is None:
            above = rows_of.get(part, {}) if part is not None else {}
            row = units[part, name] = {
                "id": next_id + len(units),
                "parent": MODEL_UNIT if part is None else part,
                "level": "kernel",
                "name": name,
                "op": above.get("op"),
                "shapes": above.get("shapes"),
                "module": above.get("module"),
                "count": 0,
                "phase": above.get("phase"),
            }
        row["count"] += 1
        owners.append(row["id"])
    session.add_units([{**row, "count": round(row["count"] / n)} for row in units.values()])
    session.add_trace(trace, owners, joined.iteration)


def _all(parts: Sequence[Part]) -> list[Part]:
    """Parts that are none, and the members of pools."""
    return [inner for part in parts for inner in (part.members or (part,))]
