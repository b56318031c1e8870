"""What the commands of MIG print: instances, plans, and the results of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from io import StringIO
from typing import Any

from jouletrace.addons.mig.plan import Plan
from jouletrace.analysis.checks import Failure, of
from jouletrace.analysis.rules import CARE
from jouletrace.devices.mig import GpuInstance, MigBackend, Profile
from jouletrace.errors import NotPossibleError
from jouletrace.report.console import writer
from jouletrace.report.document import printable
from jouletrace.report.scale import NBSP, NONE, cell, figure, number, quantity, unit_for
from jouletrace.report.trust import headline
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
    from rich.table import Table
    from rich.text import Text

    widths = [max(map(cell_len, map(str, column))) for column in zip(heads, *rows, strict=True)]
    sink = StringIO()
    apart = 2 if sum(widths) + 2 * (len(widths) - 1) <= writer(sink).width else 1
    drawn = Table(box=None, pad_edge=False, padding=(0, apart, 0, 0))
    for head in heads:
        drawn.add_column(head, no_wrap=True)
    for row in rows:
        drawn.add_row(*(Text(printable(str(cell))) for cell in row))
    writer(sink, 500).print(drawn)
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines())


_FIGURES = (
    "FB used",
    "activity",
    "latency mean ± sd",
    "p50",
    "p95",
    "p99",
    "requests/s",
    "samples/s",
    "power of slice",
)
_OF_SLICE, _OF_GPU = "energy_per_sample_j", "board_energy_per_sample_j"
_ENERGIES = {"energy_active_per_sample_j": "slice above idle", _OF_SLICE: "slice", _OF_GPU: "whole GPU"}
"""Headings of the columns of energy per sample; those of a slice are modelled, that of the GPU is measured."""

_BRIEF = ("latency", "samples/s", "slice", "whole GPU")
"""Columns of a summary that isn't verbose: they fit 80 characters."""


def summary(rows: Sequence[dict[str, Any]], *, simulated: bool = False, verbose: bool = False) -> str:
    """All rows; concurrent slices form one line: means, and sums of rates. All columns if ``verbose``."""
    parts = ["SIMULATED: a simulated GPU, no hardware was measured"] if simulated else []
    for model, task, seq_len in dict.fromkeys((row["model"], row["task"], row["seq_len"]) for row in rows):
        mine = [row for row in rows if (row["model"], row["task"], row["seq_len"]) == (model, task, seq_len)]
        length = f" · seq {seq_len}" if seq_len else ""
        keys = dict.fromkeys((row["profile"], row["together"], row["batch"], row["dtype"], row["mode"]) for row in mine)
        names = ("profile", "together", "batch", "dtype", "mode")
        grouped = [[row for row in mine if tuple(row[name] for name in names) == key] for key in keys]
        best = "".join(f"{line}\n" for line in _best(grouped))
        parts.append(f"{model} · {task}{length}\n{best}\n{_table(grouped, verbose=verbose)}")
    failures = dict.fromkeys(f"! {row['detail']}" for row in rows if row["status"] != "done")
    if failures:
        parts.append("\n".join(failures))
    parts.insert(1 if simulated else 0, _trust(rows))
    if verbose and any(row["power_w"] is not None for row in rows):
        parts.append(
            "Power of a slice is modelled: the GPU's power above idle, split by activity; intervals are 95 %. "
            "Rates of slices together are sums, other figures means."
        )
    return "\n\n".join(parts).replace(NBSP, " ")


def _table(groups: Sequence[Sequence[dict[str, Any]]], *, verbose: bool) -> str:
    """A line for each group; energies of a column are in one unit, which its heading states."""
    units = {name: unit_for([_mean(rows, name) for rows in groups], "J") for name in _ENERGIES}
    energy = {head: f"{head}, {units[name].name}/sample" for name, head in _ENERGIES.items()}
    shown = (*_FIGURES, *_ENERGIES.values()) if verbose else _BRIEF
    lines = []
    for rows in groups:
        known = _cells(rows)
        if known is None:
            words = {"out_of_memory": "out of memory"}.get(rows[0]["reason"], rows[0]["reason"] or "failed")
            known = dict.fromkeys(shown, NONE) | {shown[0]: words}
        else:
            known |= {head: cell(_estimate(rows, name), units[name]) for name, head in _ENERGIES.items()}
        lines.append((_slices(rows), str(rows[0]["batch"]), *(known[head] for head in shown)))
    return table(("slices", "batch", *(energy.get(head, head) for head in shown)), lines)


def _slices(rows: Sequence[dict[str, Any]]) -> str:
    return f"{rows[0]['together']} × {rows[0]['profile']}"


def _best(groups: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    """Which slices take the least energy per sample by the meter, and which are charged least if these are others.

    A slice is charged its share of idle power only. What the others draw in idle is charged to none, so that the
    slice with the lowest charge need not be that with which the GPU takes least.
    """
    done = [rows for rows in groups if all(row["status"] == "done" for row in rows)]
    if len(done) < 2:
        return []

    def least(name: str) -> Sequence[dict[str, Any]] | None:
        known = [(value, rows) for rows in done if (value := _mean(rows, name)) is not None]
        return min(known, key=lambda one: one[0])[1] if known else None

    def said(rows: Sequence[dict[str, Any]], name: str) -> str:
        return f"{_slices(rows)}, batch {rows[0]['batch']}: {figure(_estimate(rows, name), 'J')}/sample"

    measured, charged = least(_OF_GPU), least(_OF_SLICE)
    found = [] if measured is None else [f"least energy, whole GPU: {said(measured, _OF_GPU)}"]
    if charged is not None and charged is not measured:
        found += [
            f"lowest charge (modelled): {said(charged, _OF_SLICE)};",
            "  the cheapest only if the other slices work too: idle ones are charged nothing",
        ]
    return found


def _trust(rows: Sequence[dict[str, Any]]) -> str:
    """Says if all slices were measured."""
    failed = [
        Failure("all slices measured", CARE, str(row["reason"]), message=str(row["detail"]), action="")
        for row in rows
        if row["status"] != "done"
    ]
    modelled = any(row["power_w"] is not None for row in rows)
    note = "; slices are modelled, the GPU is measured" if modelled else ""
    return headline(of(["all slices measured", "power sensor"], failed)) + note


def _cells(rows: Sequence[dict[str, Any]]) -> dict[str, str] | None:
    """The figures of concurrent slices by heading, but energies; None where one of them failed."""
    if any(row["status"] != "done" for row in rows):
        return None
    used, active = _mean(rows, "fb_used_bytes"), _mean(rows, "graphics_active")
    return {
        "FB used": NONE if used is None else f"{used / 2**20:.0f} MiB",
        "activity": NONE if active is None else f"{active * 100:.1f} %",
        "latency": quantity(_mean(rows, "latency_mean_s"), "s"),
        "latency mean ± sd": _plus_minus(_mean(rows, "latency_mean_s"), _mean(rows, "latency_std_s")),
        **{p: quantity(_mean(rows, f"latency_{p}_s"), "s") for p in ("p50", "p95", "p99")},
        "requests/s": _rate(rows, "requests_per_s"),
        "samples/s": _rate(rows, "samples_per_s"),
        "power of slice": figure(_estimate(rows, "power_w"), "W"),
    }


def _plus_minus(mean: float | None, spread: float | None) -> str:
    """A mean and its standard deviation in one unit."""
    if mean is None or spread is None:
        return quantity(mean, "s")
    return figure(Estimate(mean, mean - spread, mean + spread), "s")


def _mean(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [row.get(name) for row in rows]  # rows of an earlier version lack some
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _rate(rows: Sequence[dict[str, Any]], name: str) -> str:
    mean = _mean(rows, name)
    return NONE if mean is None else number(mean * len(rows))


def _estimate(rows: Sequence[dict[str, Any]], name: str) -> Estimate:
    value, low, high = (_mean(rows, f"{name}{end}") for end in ("", "_low", "_high"))
    if value is None:
        return Estimate.null(str(rows[0]["power_reason"] or "unknown"))
    return Estimate(value, low, high) if low is not None and high is not None else Estimate(value)
