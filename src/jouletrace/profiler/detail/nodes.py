"""The pass in which a runtime's counters time each node of a model."""

from __future__ import annotations

from jouletrace.analysis.nodes import LANE
from jouletrace.execution.steps.base import KnowsNodes, NodeTimes
from jouletrace.profiler.progress import Progress
from jouletrace.recording.session import Session
from jouletrace.run import MODEL_UNIT

SECONDS = 2.0
LEAST, MOST = 6, 200
"""Least and largest number of iterations of the pass; half of ``LEAST`` if an iteration exceeds ``LONG_S``."""

LONG_S = 2.0

_MOST_SPANS = 30_000


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
        found = step.node_times(n)
    progress.advance(n * iteration_s)
    iterations = len(found.began_ns)
    kept = min(iterations, max(LEAST, _MOST_SPANS * iterations // max(1, len(found.node))))
    store(session, found, kept)
    session.run.workload["nodes"] = {
        "iterations": kept,
        "mean_of": found.mean_of,
        "starts": "as reported by the runtime"
        if found.starts_known
        else "laid end to end: the runtime reports only durations",
    }


def store(session: Session, found: NodeTimes, iterations: int) -> None:
    """Write one unit per node, and spans of the first iterations."""
    first = MODEL_UNIT + 1
    counts = [0] * len(found.nodes)
    for node in found.node[found.iteration == 0].tolist():
        counts[node] += 1
    session.add_units(
        [
            {
                "id": first + i,
                "parent": MODEL_UNIT,
                "level": "op",
                "name": node.name,
                "op": node.op or None,
                "shapes": node.shapes or None,
                "module": node.name,
                "count": count or 1,
            }
            for i, (node, count) in enumerate(zip(found.nodes, counts, strict=True))
        ]
    )
    rows: list[dict[str, object]] = [
        {
            "id": k,
            "parent": None,
            "kind": "iteration",
            "name": "iteration",
            "lane": LANE,
            "start_ns": int(found.began_ns[k]),
            "end_ns": int(found.ended_ns[k]),
            "unit": MODEL_UNIT,
        }
        for k in range(iterations)
    ]
    executed = zip(
        found.node.tolist(), found.iteration.tolist(), found.start_ns.tolist(), found.end_ns.tolist(), strict=True
    )
    for node, iteration, start_ns, end_ns in executed:
        if iteration < iterations:
            place = {"id": len(rows), "parent": iteration, "kind": "op", "name": found.nodes[node].name, "lane": LANE}
            rows.append({**place, "start_ns": start_ns, "end_ns": end_ns, "unit": first + node})
    session.add_spans(rows)
