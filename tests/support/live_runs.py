"""Recordings of a user's own loop: made by hand with known power, or on a simulated GPU in real time."""

from jouletrace.analysis import analyse
from records import DEVICE, make_run, ns, phases, readings

REAL = "sim:h100?realtime=1&load=0.5:300"


def marked(spans, watts, seconds, **changes):
    """A recording with these spans: (kind, name, start, end[, parent id[, lane]])."""
    rows = phases(("monitor", 0.1, seconds - 0.1))
    for i, (kind, name, start, end, *rest) in enumerate(spans, start=1):
        parent, lane = [*rest, None, "main"][:2] if len(rest) < 2 else rest
        facts = {"id": i, "parent": parent, "kind": kind, "name": name, "device": DEVICE, "lane": lane}
        rows.append({**facts, "start_ns": ns(start), "end_ns": ns(end)})
    return analyse(make_run(readings(watts, seconds, noise=0.3), kind="record", spans=rows, **changes))


def unit(run, name):
    return next(row for row in run.units.to_pylist() if row["level"] == "range" and row["name"] == name)


def energy(run, name):
    return run.result("energy_each_j", unit(run, name)["id"])


def spans_of(run, kind):
    return [row for row in run.spans.to_pylist() if row["kind"] == kind]
