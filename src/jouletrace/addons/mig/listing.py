"""The possible and present instances of a GPU: as data, and as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from io import StringIO
from typing import Any

from jouletrace.addons.mig.plan import Plan
from jouletrace.devices.mig import GpuInstance, MigBackend, Profile, board_facts
from jouletrace.errors import NotPossibleError
from jouletrace.report.document import printable


def listing(backend: MigBackend) -> dict[str, Any]:
    """Everything that ``mig list`` shows. Only reads.

    Raises:
        NotPossibleError: If the GPU has no MIG.
    """
    mode = backend.mode()
    found: dict[str, Any] = {
        "schema": 1,
        "device": board_facts(backend.info),
        "simulated": backend.info.simulated,
        "mode": {"current": mode.current, "pending": mode.pending},
        "profiles": [_profile(one) for one in backend.profiles()],
        "instances": None,
        "instances_reason": None,
    }
    try:
        found["instances"] = [_instance(one) for one in backend.instances()]
    except NotPossibleError as error:  # it may need root, while profiles don't
        found["instances_reason"] = str(error)
    return found


def _profile(one: Profile) -> dict[str, Any]:
    engines = {"copy": one.copy, "decoder": one.decoders, "encoder": one.encoders, "jpeg": one.jpeg, "ofa": one.ofa}
    return {
        **{name: getattr(one, name) for name in ("name", "id", "slices", "multiprocessors", "p2p", "free", "total")},
        "memory_bytes": one.memory_mib << 20,
        "engines": engines,
        "placements": [str(place) for place in one.placements],
    }


def _instance(one: GpuInstance) -> dict[str, Any]:
    parts = [{**asdict(part), "placement": str(part.placement) if part.placement else None} for part in one.compute]
    return {"id": one.id, "profile": one.profile, "placement": str(one.placement), "compute_instances": parts}


def render(found: dict[str, Any]) -> str:
    """``listing`` for a terminal."""
    device, mode = found["device"], found["mode"]
    state = "on" if mode["current"] else "off"
    if mode["pending"] != mode["current"]:
        state += f", {'on' if mode['pending'] else 'off'} after the next reset"
    lines = [f"{device['name']}  {device['id']}  MIG {state}", ""]
    heads = ("profile", "id", "free/total", "GiB", "SMs", "CE", "DEC", "ENC", "JPEG", "OFA", "P2P", "placements")
    rows: list[Sequence[object]] = [
        (
            one["name"],
            one["id"],
            f"{'–' if one['free'] is None else one['free']}/{one['total']}",
            f"{one['memory_bytes'] / 2**30:.2f}",
            one["multiprocessors"],
            *one["engines"].values(),
            "yes" if one["p2p"] else "no",
            short(one["placements"]),
        )
        for one in found["profiles"]
    ]
    lines.append(table(heads, rows))
    if found["instances_reason"]:
        lines += ["", f"instances: {found['instances_reason']}"]
    elif found["instances"]:
        nothing = {"id": "–", "slices": "–", "uuid": None}
        rows = [
            (one["id"], one["profile"], one["placement"], part["id"], part["slices"], part["uuid"] or "–")
            for one in found["instances"]
            for part in one["compute_instances"] or [nothing]
        ]
        lines += ["", table(("GI", "profile", "placement", "CI", "slices", "UUID"), rows)]
    elif mode["current"]:
        lines += ["", "no instance"]
    return "\n".join(lines)


def render_plan(plan: Plan) -> str:
    """A plan for a terminal."""
    rows = [
        (request, place, f"{request.profile.memory_mib / 1024:.2f} GiB", request.profile.multiprocessors)
        for request, place in zip(plan.requests, plan.placements, strict=True)
    ]
    left = ", ".join(f"{count} × {name}" for name, count in plan.left.items() if count) or "nothing"
    drawn = table(("instance", "placement", "memory", "SMs"), rows)
    return f"{plan.board}: it fits\n\n{drawn}\n\nroom left for one of: {left}"


def short(placements: Sequence[str]) -> str:
    """Placements of one size in the notation of ``nvidia-smi``: "{0,4}:4"."""
    if not placements:
        return "not reported"
    starts = ",".join(place.split(":")[0] for place in placements)
    return f"{{{starts}}}:{placements[0].split(':')[1]}"


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows under headings in plain text, with the columns' own widths; with narrow gutters on a narrow terminal."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    widths = [max(map(cell_len, map(str, column))) for column in zip(heads, *rows, strict=True)]
    apart = 2 if sum(widths) + 2 * (len(widths) - 1) <= Console().width else 1
    drawn = Table(box=None, pad_edge=False, padding=(0, apart, 0, 0))
    for head in heads:
        drawn.add_column(head, no_wrap=True)
    for row in rows:
        drawn.add_row(*(Text(printable(str(cell))) for cell in row))
    sink = StringIO()
    Console(file=sink, width=500, color_system=None).print(drawn)
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines())
