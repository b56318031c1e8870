"""What the commands of MIG print: instances, plans, and the results of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from io import StringIO
from typing import Any

from jouletrace.addons.mig.plan import Plan
from jouletrace.devices.mig import GpuInstance, MigBackend, Profile
from jouletrace.errors import NotPossibleError
from jouletrace.report.document import printable
from jouletrace.report.rules import CARE
from jouletrace.report.scale import NBSP, NONE, figure, number, quantity
from jouletrace.report.trust import Failed, Trust, of
from jouletrace.run import Estimate


def listing(backend: MigBackend) -> dict[str, Any]:
    """Everything that ``mig list`` shows. Only reads.

    Raises:
        NotPossibleError: If the GPU has no MIG.
    """
    info, mode = backend.info, backend.mode()
    found: dict[str, Any] = {
        "schema": 1,
        "device": {"id": info.id, "name": info.name, "index": info.index, "simulated": info.simulated},
        "simulated": info.simulated,
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


_HEADS = (
    "profile",
    "together",
    "batch",
    "FB used",
    "activity",
    "latency mean ± sd",
    "p50",
    "p95",
    "p99",
    "requests/s",
    "samples/s",
    "power, modelled",
    "J/sample above idle",
    "J/sample with idle",
)


_BRIEF = ("profile", "together", "batch", "latency mean ± sd", "samples/s", "power, modelled", "J/sample with idle")
"""Columns of a summary that isn't verbose: they fit a terminal."""


def summary(rows: Sequence[dict[str, Any]], *, simulated: bool = False, verbose: bool = False) -> str:
    """All rows; concurrent slices form one line: means, and sums of rates. All columns if ``verbose``."""
    parts = ["SIMULATED: a simulated GPU, no hardware was measured"] if simulated else []
    for model, task, seq_len in dict.fromkeys((row["model"], row["task"], row["seq_len"]) for row in rows):
        mine = [row for row in rows if (row["model"], row["task"], row["seq_len"]) == (model, task, seq_len)]
        length = f" · seq {seq_len}" if seq_len else ""
        keys = dict.fromkeys((row["profile"], row["together"], row["batch"], row["dtype"], row["mode"]) for row in mine)
        names = ("profile", "together", "batch", "dtype", "mode")
        grouped = [[row for row in mine if tuple(row[name] for name in names) == key] for key in keys]
        heads = _HEADS if verbose else _BRIEF
        lines = [_shown(_line(group), heads) for group in grouped]
        best = "".join(f"{line}\n" for line in _best(grouped))
        words = [_SHORT.get(head, head) for head in heads] if not verbose else heads
        parts.append(f"{model} · {task}{length}\n{best}\n{table(words, lines)}")
    failures = dict.fromkeys(f"! {row['detail']}" for row in rows if row["status"] != "done")
    if failures:
        parts.append("\n".join(failures))
    parts.insert(1 if simulated else 0, _trust(rows).headline())
    if verbose and any(row["power_w"] is not None for row in rows):
        parts.append(
            "Power of a slice is modelled: the GPU's power above idle, split by activity; intervals are 95 %. "
            "Rates of slices together are sums, other figures means."
        )
    return "\n\n".join(parts).replace(NBSP, " ")


_SHORT = {"latency mean ± sd": "latency ± sd", "power, modelled": "power", "J/sample with idle": "J/sample"}
"""Headings of a summary that isn't verbose."""


def _shown(line: Sequence[str], heads: Sequence[str]) -> tuple[str, ...]:
    """The cells of some columns; why a line has no figures stands in place of its latency."""
    own = dict(zip(_HEADS, line, strict=True))
    if own["samples/s"] == NONE and own["FB used"] != NONE:
        own["latency mean ± sd"] = own["FB used"]
    return tuple(own[head] for head in heads)


def _best(groups: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    """The slices with the least energy per sample."""
    known = [(_mean(rows, "energy_per_sample_j"), rows) for rows in groups if all(r["status"] == "done" for r in rows)]
    energies = [(value, rows) for value, rows in known if value is not None]
    if len(energies) < 2:
        return []
    _, rows = min(energies, key=lambda one: one[0])
    first = rows[0]
    what = f"{first['together']} × {first['profile']}, batch {first['batch']}"
    return [f"least energy: {what}: {figure(_estimate(rows, 'energy_per_sample_j'), 'J')} per sample"]


def _trust(rows: Sequence[dict[str, Any]]) -> Trust:
    """Whether all slices were measured."""
    failed = [
        Failed("all slices measured", CARE, str(row["reason"]), str(row["detail"]), "")
        for row in rows
        if row["status"] != "done"
    ]
    return of(["all slices measured", "power sensor"], failed)


def _line(rows: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    first = rows[0]
    head = (first["profile"], str(first["together"]), str(first["batch"]))
    if any(row["status"] != "done" for row in rows):
        words = {"out_of_memory": "out of memory"}.get(first["reason"], first["reason"] or "failed")
        return (*head, words, *[NONE] * (len(_HEADS) - 4))
    used = _mean(rows, "fb_used_bytes")
    active = _mean(rows, "graphics_active")
    spread = _mean(rows, "latency_std_s")
    mean = _mean(rows, "latency_mean_s")
    return (
        *head,
        NONE if used is None else f"{used / 2**20:.0f} MiB",
        NONE if active is None else f"{active * 100:.1f} %",
        _plus_minus(mean, spread),
        *(quantity(_mean(rows, f"latency_{p}_s"), "s") for p in ("p50", "p95", "p99")),
        *(_rate(rows, name) for name in ("requests_per_s", "samples_per_s")),
        figure(_estimate(rows, "power_w"), "W"),
        figure(_estimate(rows, "energy_active_per_sample_j"), "J"),
        figure(_estimate(rows, "energy_per_sample_j"), "J"),
    )


def _plus_minus(mean: float | None, spread: float | None) -> str:
    """A mean and its standard deviation in one unit."""
    if mean is None or spread is None:
        return quantity(mean, "s")
    return figure(Estimate(mean, mean - spread, mean + spread), "s")


def _mean(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows]
    return None if any(value is None for value in values) else sum(values) / len(values)


def _rate(rows: Sequence[dict[str, Any]], name: str) -> str:
    mean = _mean(rows, name)
    return NONE if mean is None else number(mean * len(rows))


def _estimate(rows: Sequence[dict[str, Any]], name: str) -> Estimate:
    value, low, high = (_mean(rows, f"{name}{end}") for end in ("", "_low", "_high"))
    if value is None:
        return Estimate.null(str(rows[0]["power_reason"] or "unknown"))
    return Estimate(value, low, high) if low is not None and high is not None else Estimate(value)
