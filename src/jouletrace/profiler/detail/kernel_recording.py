"""The recording behind rows of layers, operators and kernels: a trace of some seconds along with the power record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from jouletrace.analysis.nodes import LANE
from jouletrace.arrays import Ints
from jouletrace.errors import NotPossibleError
from jouletrace.execution.calls import UNKNOWN, Listing, RecordedLaunches
from jouletrace.execution.excitation import Excitation, Traceable, variants
from jouletrace.execution.steps.base import KnowsNodes, NodeTimes
from jouletrace.profiler.passes import power_channel
from jouletrace.profiler.progress import Progress
from jouletrace.profiler.settings import ProfileSettings
from jouletrace.recording.session import Session
from jouletrace.run import MODEL_UNIT, ChannelInfo
from jouletrace.run.figures import Units
from jouletrace.run.forms import RecordingFacts, WorkloadFacts
from jouletrace.run.recording_names import RECORDINGS, of_equal_layers
from jouletrace.sensor.kinds import response_of, samples

PLAIN_SHARE = 0.3
"""Fraction of the recording in which the program runs unmodified."""

SPAN_ITERATIONS, MOST_SPANS = 10, 30_000
"""Iterations kept in full for timelines, and the largest number of their entries."""

MOST_SHAPES = 4
"""Shapes of one operator in one module with separate rows; beyond that they share one, as with a growing cache."""

MOST_KERNELS, LEAST_S = 1_250_000, 6.0
"""Largest number of kernels of a recording, but for so many seconds: a million takes 4 to 7 s to analyse, and many
short kernels are resolved sooner. Of DeiT-B as a graph on H100s 1.2 million, of 6.2 s, give rows whose intervals are 2
to 5 % wider than those of 1.9 million."""

MOST_CPU_S = 8.0
"""Longest recording on a CPU in seconds: operators are timed singly, so that more time yields no more."""

REST_S = 0.3
"""Idle time in seconds before and after a recording, which marks its edges in the power record."""

UNMATCHED = 0.01
"""Fraction of kernels of unknown operators above which a warning is added."""


def record(
    session: Session,
    program: Traceable,
    settings: ProfileSettings,
    iteration_s: float,
    progress: Progress,
    facts: WorkloadFacts | None = None,
    before: Units | None = None,
) -> Units | None:
    """Trace a program that is warmed up; add its units, its kernels and the excitation to the session.

    ``iteration_s`` are the seconds of a plain iteration. Facts about the recording go to ``facts``, or to those of the
    Run; units are numbered on from those ``before``. Returns the units; None if it can't be traced, which is warned of.
    """
    progress.begin("listing operators", 1.0)
    try:
        with session.phase("listing"):
            listing = program.listing()
        most_s = min(settings.detail_time_s, MOST_CPU_S if session.devices[0].info.kind == "cpu" else np.inf)
        excitation = plan(listing, power_channel(session), iteration_s, most_s, settings.seed)
        session.clock.sleep(REST_S)
        progress.begin("recording kernels and power", excitation.plain_s + excitation.repeated_s)
        with session.phase("tracing"):
            traced = program.record(listing, excitation, iteration_s, progress.advance)
    except NotPossibleError as error:
        session.run.warn("not_traced", f"--detail {settings.detail}: {error}")
        return None
    session.clock.sleep(REST_S)
    session.recorder.check()
    return _keep(session, listing, rows_of(listing, traced, excitation, before), traced, facts)


def plan(listing: Listing, power: ChannelInfo | None, iteration_s: float, most_s: float, seed: int) -> Excitation:
    """The excitation, of ``most_s`` or less: repetition in place, drawn for each iteration or longer.

    A sampling sensor resolves which operator ran, if drawn per iteration. An averaging sensor reads means over its
    window, so that the same variant must run throughout the window.
    """
    seconds = min(most_s, max(MOST_KERNELS / listing.kernels * iteration_s, LEAST_S))
    if power is None:
        return Excitation(seconds)
    drawn = variants(listing.calls, np.random.default_rng(seed), iteration_s)
    if len(drawn) < 2:  # nothing that could be repeated
        return Excitation(seconds)
    stay = 0.0 if samples(power) else 2 * (response_of(power).memory_s + (power.period_s or 0.1))
    return Excitation(PLAIN_SHARE * seconds, (1 - PLAIN_SHARE) * seconds, tuple(drawn), stay, seed)


@dataclass(frozen=True)
class KernelRows:
    """A recording as rows of a Run.

    Attributes:
        units: Operators, their kernels and call sites.
        activity: Columns of the ``activity`` table.
        about: Facts about the recording, for ``Run.workload``.
        unit: Unit id of each entry of the trace, shape (n,).
    """

    units: Units
    activity: dict[str, Any]
    about: RecordingFacts
    unit: Ints


def rows_of(
    listing: Listing, traced: RecordedLaunches, excitation: Excitation, before: Units | None = None
) -> KernelRows:
    """Convert a recording to rows of a Run; units are numbered on from those ``before``."""
    work, call = traced.work, traced.call
    units = Units(before)
    kernel_of, site_of = _listed(units, listing)
    unit = np.full(len(work), UNKNOWN, np.int64)
    site = np.full(len(work), UNKNOWN, np.int64)
    names = listing.codes(work)
    listed = call != UNKNOWN
    unit[listed], site[listed] = kernel_of[call[listed], names[listed]], site_of[call[listed]]
    for name in np.unique(work.name[~listed]).tolist():
        mine = ~listed & (work.name == name)
        unit[mine] = _kernel(units, work.names[name], round(int(mine.sum()) / traced.iterations))
    units.idle()
    order = np.argsort(work.start_ns, kind="stable")
    activity = {
        "start_ns": work.start_ns[order],
        "end_ns": work.end_ns[order],
        "unit": unit[order],
        "site": pa.array(site[order], mask=site[order] == UNKNOWN),
        "copy": traced.copy[order],
    }
    about: RecordingFacts = {
        "iterations": traced.iterations,
        "start_ns": traced.interval.start_ns,
        "end_ns": traced.interval.end_ns,
        "plain_s": excitation.plain_s,
        "repeated_s": excitation.repeated_s,
        "variants": len(excitation.variants) - 1,
        "unmatched": traced.unknown,
        "dropped": traced.dropped,
        "note": listing.note,
    }
    return KernelRows(units, activity, about, unit)


def _keep(
    session: Session, listing: Listing, rows: KernelRows, traced: RecordedLaunches, facts: WorkloadFacts | None
) -> Units:
    session.add_units(rows.units)
    session.add_activity(rows.activity)
    (session.run.workload if facts is None else facts)[RECORDINGS] = [rows.about]
    for code, text in traced.notes:
        session.run.warn(code, text)
    unmatched = traced.unknown
    if unmatched > UNMATCHED and not listing.note:
        text = f"{100 * unmatched:.1f} % of the kernels match no operator call of the listed iteration"
        session.run.warn("kernels_not_joined", f"{text}: the program's iterations differ")
    _add_spans(session, traced, rows.unit, listing)
    return rows.units


def _add_spans(session: Session, traced: RecordedLaunches, unit: Ints, listing: Listing) -> None:
    """Add spans of some whole iterations, for timelines."""
    few = traced.iteration < max(1, min(SPAN_ITERATIONS, MOST_SPANS // listing.kernels, traced.iterations))
    some = np.flatnonzero(few)
    session.add_trace(traced.work.take(some), unit[some].tolist(), traced.iteration[some])


def _listed(units: Units, listing: Listing) -> tuple[Ints, Ints]:
    """Ids of the kernel units by call and name, shape (calls, names), and of the call sites, shape (calls,)."""
    kernels = np.full((len(listing.calls), len(listing.names)), UNKNOWN, np.int64)
    sites = np.full(len(listing.calls), UNKNOWN, np.int64)
    shapes: dict[tuple[str, ...], set[str]] = {}
    alike: dict[tuple[str, ...], set[str]] = {}
    for call in listing.calls:
        shapes.setdefault((call.op, call.module, call.phase), set()).add(call.shapes)
        alike.setdefault((call.op, of_equal_layers(call.module), call.phase), set()).add(call.module)
    for index, call in enumerate(listing.calls):
        if not call.op:
            for kernel in call.kernels:
                kernels[index, kernel] = _kernel(units, listing.names[kernel], 1)
            continue
        of = (call.op, of_equal_layers(call.module), call.phase)
        pattern = of[1] if len(alike[of]) > 1 else call.module
        several = len(shapes[call.op, call.module, call.phase]) > MOST_SHAPES
        shapes_ = None if several else call.shapes or None
        about: dict[str, Any] = {"op": call.op, "shapes": shapes_, "phase": call.phase or None}
        key = (call.op, about["shapes"], pattern, call.phase)
        row = {"module": pattern or None, **about}
        op = units.once(("op", *key), "op", call.op, MODEL_UNIT, 1, **row)
        for kernel in call.kernels:
            name = listing.names[kernel]
            kernels[index, kernel] = units.once(("kernel", *key, name), "kernel", name, op, 1, **row)
        if call.number == UNKNOWN:
            continue  # nothing is known of where a compiler's kernel is launched
        work = {"flops": call.flops or None, "bytes": call.bytes_moved or None}
        here = {"module": call.module or None, "call": call.site or None, **work, **about}
        sites[index] = units.add("site", call.op, op, count=1, **here)
    return kernels, sites


def _kernel(units: Units, name: str, count: int) -> int:
    """The unit of a kernel whose operator is unknown."""
    return units.once(("kernel", name), "kernel", name, MODEL_UNIT, count)


SECONDS = 2.0
LEAST, MOST = 6, 200
"""Least and largest number of iterations of the pass; half of ``LEAST`` if an iteration exceeds ``LONG_S``."""

LONG_S = 2.0


def nodes(session: Session, step: KnowsNodes, iteration_s: float, progress: Progress) -> None:
    """Run iterations with the counters enabled; add units and spans of nodes to the session.

    This pass comes last, in a separate instance, since counters slow a model down.
    """
    if session.devices[0].info.kind != "cpu":
        text = "on a GPU the runtime's counters time launches, not the kernels: use trace --with nsys"
        session.run.warn("nodes_not_timed", f"nodes are not listed: {text}")
        return
    n = max(LEAST if iteration_s < LONG_S else LEAST // 2, min(MOST, round(SECONDS / iteration_s)))
    progress.begin("nodes: the runtime's counters", n * iteration_s)
    with session.phase("nodes"):
        times = step.node_times(n)
    progress.advance(n * iteration_s)
    iterations = len(times.began_ns)
    kept = min(iterations, max(LEAST, MOST_SPANS * iterations // max(1, len(times.node))))
    store(session, times, kept)
    session.run.workload["nodes"] = {
        "iterations": kept,
        "mean_of": times.mean_of,
        "starts": "as reported by the runtime"
        if times.starts_known
        else "laid end to end: the runtime reports only durations",
    }


def store(session: Session, times: NodeTimes, iterations: int) -> None:
    """Write one unit per node, and spans of the first iterations."""
    units, counts = Units(), np.bincount(times.node[times.iteration == 0], minlength=len(times.nodes)).tolist()
    ids = [
        units.add("op", node.name, op=node.op or None, shapes=node.shapes or None, module=node.name, count=count or 1)
        for node, count in zip(times.nodes, counts, strict=True)
    ]
    session.add_units(units)
    kept = times.iteration < iterations
    node, parent, start_ns, end_ns = (
        column[kept].tolist() for column in (times.node, times.iteration, times.start_ns, times.end_ns)
    )
    whole = zip(times.began_ns[:iterations].tolist(), times.ended_ns[:iterations].tolist(), strict=True)
    rows = [("iteration", "iteration", None, start, end, MODEL_UNIT) for start, end in whole]
    of_nodes = zip(node, parent, start_ns, end_ns, strict=True)
    rows += [
        ("op", times.nodes[node_at].name, above, start, end, ids[node_at]) for node_at, above, start, end in of_nodes
    ]
    columns = ("kind", "name", "parent", "start_ns", "end_ns", "unit")
    session.add_spans([{"id": id, "lane": LANE, **dict(zip(columns, row, strict=True))} for id, row in enumerate(rows)])
