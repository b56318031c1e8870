"""From a trace to rows of the ``spans`` table."""

from __future__ import annotations

from collections.abc import Sequence

from jouletrace.tracing.trace import KINDS, Trace

_SPAN_KIND = {"kernel": "kernel", "memcpy": "memcpy", "memset": "memcpy"}


def span_rows(
    trace: Trace, units: Sequence[int], parents: Sequence[int], first_id: int, device: str
) -> list[dict[str, object]]:
    """One row per entry of a trace.

    Args:
        trace: The trace.
        units: Unit id of each entry.
        parents: Id of the enclosing span of each entry.
        first_id: Id of the first row.
        device: Id of the device.
    """
    configured = trace.source == "cupti"
    rows: list[dict[str, object]] = []
    for i, (name, kind) in enumerate(zip(trace.name.tolist(), trace.kind.tolist(), strict=True)):
        kernel = configured and KINDS[kind] == "kernel"
        row: dict[str, object] = {
            "id": first_id + i,
            "parent": parents[i],
            "kind": _SPAN_KIND[KINDS[kind]],
            "name": trace.names[name],
            "device": device,
            "lane": f"stream {trace.stream[i]}",
            "start_ns": int(trace.start_ns[i]),
            "end_ns": int(trace.end_ns[i]),
            "unit": units[i],
            "correlation": int(trace.correlation[i]) or None,
            "graph_node": int(trace.graph_node[i]) or None,
            "registers": int(trace.registers[i]) if kernel else None,
            "shared_static_bytes": int(trace.shared_static[i]) if kernel else None,
            "shared_dynamic_bytes": int(trace.shared_dynamic[i]) if kernel else None,
            "bytes": None if kernel or not configured else int(trace.bytes[i]),
        }
        for field, shape in (("grid", trace.grid[i]), ("block", trace.block[i])):
            row |= {f"{field}_{axis}": int(shape[k]) if kernel else None for k, axis in enumerate("xyz")}
        rows.append(row)
    return rows
