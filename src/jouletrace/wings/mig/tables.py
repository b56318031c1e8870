"""Tables of the MIG commands: instances, plans, and the results of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from jouletrace.analysis.checks import Failure, of
from jouletrace.analysis.rules import CARE
from jouletrace.errors import NotPossibleError
from jouletrace.report.table import Column, Table
from jouletrace.report.terminal import text
from jouletrace.report.trust import headline
from jouletrace.run import Estimate
from jouletrace.wings.mig.partition import GpuInstance, MigBackend, Profile
from jouletrace.wings.mig.plan import Plan
from jouletrace.words.scale import NBSP, NONE, figure


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
    columns = [Column("profile"), Column("id", True), Column("free", True), Column("GiB", unit="1")]
    columns += [Column("SMs", True), Column("CE/DEC/ENC/JPEG/OFA"), Column("P2P"), Column("placements")]
    profiles = Table("", columns)
    for one in found["profiles"]:
        free = f"{NONE if one['free'] is None else one['free']}/{one['total']}"
        engines = "/".join(map(str, one["engines"].values()))
        row = [one["name"], one["id"], free, one["memory_bytes"] / 2**30, one["multiprocessors"], engines]
        profiles.rows.append([*row, "yes" if one["p2p"] else "no", short(one["placements"])])
    lines.append(text(profiles))
    if found["instances_reason"]:
        lines.append(f"instances: {found['instances_reason']}")
    elif found["instances"]:
        nothing = {"id": NONE, "slices": NONE, "uuid": None}
        names = ("GI", "profile", "placement", "CI", "slices", "UUID")
        instances = Table("", [Column(name, numeric=name in ("GI", "CI", "slices")) for name in names])
        instances.rows = [
            [one["id"], one["profile"], one["placement"], part["id"], part["slices"], part["uuid"] or NONE]
            for one in found["instances"]
            for part in one["compute_instances"] or [nothing]
        ]
        lines.append(text(instances))
    elif mode["current"]:
        lines.append("no instance")
    return "\n".join(lines).rstrip("\n")


def render_plan(plan: Plan) -> str:
    """A plan for a terminal."""
    columns = [Column("instance"), Column("placement"), Column("memory", unit="B"), Column("SMs", numeric=True)]
    table = Table(f"{plan.board}: it fits", columns)
    for request, place in zip(plan.requests, plan.placements, strict=True):
        one = request.profile
        table.rows.append([str(request), str(place), one.memory_mib << 20, one.multiprocessors])
    left = ", ".join(f"{count} × {name}" for name, count in plan.left.items() if count) or "nothing"
    return f"{text(table)}\nroom left for one of: {left}"


def short(placements: Sequence[str]) -> str:
    """Placements of one size in the notation of ``nvidia-smi``: "{0,4}:4"."""
    if not placements:
        return "not reported"
    starts = ",".join(place.split(":")[0] for place in placements)
    return f"{{{starts}}}:{placements[0].split(':')[1]}"


_OF_SLICE, _OF_GPU = "energy_per_sample_j", "board_energy_per_sample_j"
_FIGURES: dict[str, tuple[str, str]] = {
    "fb_used_bytes": ("FB used", "B"),
    "graphics_active": ("activity", "%"),
    "latency_mean_s": ("latency, mean ± sd", "s"),
    "latency_p50_s": ("p50", "s"),
    "latency_p95_s": ("p95", "s"),
    "latency_p99_s": ("p99", "s"),
    "requests_per_s": ("requests/s", "1"),
    "samples_per_s": ("samples/s", "1"),
    "power_w": ("power of slice", "W"),
    "energy_active_per_sample_j": ("slice above idle, per sample", "J"),
    _OF_SLICE: ("slice, per sample", "J"),
    _OF_GPU: ("whole GPU, per sample", "J"),
}
"""Headings and units of columns; energies of a slice are modelled, that of the GPU is measured."""

_BRIEF = ("latency_mean_s", "samples_per_s", _OF_SLICE, _OF_GPU)
"""Columns of a summary that isn't verbose: they fit 80 characters."""


def summary(rows: Sequence[dict[str, Any]], *, simulated: bool = False, verbose: bool = False) -> str:
    """All rows; concurrent slices form one line: means, and sums of rates. All columns if ``verbose``."""
    parts = ["SIMULATED: a simulated GPU, no hardware was measured"] if simulated else []
    kinds: dict[tuple[Any, ...], dict[tuple[Any, ...], list[dict[str, Any]]]] = {}
    for row in rows:
        groups = kinds.setdefault((row["model"], row["task"], row["seq_len"]), {})
        groups.setdefault(tuple(map(row.get, ("profile", "together", "batch", "dtype", "mode"))), []).append(row)
    for (model, task, seq_len), groups in kinds.items():
        grouped = list(groups.values())
        length = f" · seq {seq_len}" if seq_len else ""
        drawn = text(_table(grouped, _FIGURES if verbose else _BRIEF)).rstrip("\n")
        parts.append("\n".join([f"{model} · {task}{length}", *_best(grouped), "", drawn]))
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


def _table(groups: Sequence[Sequence[dict[str, Any]]], shown: Iterable[str]) -> Table:
    """A row for each group; why it has no figures in the place of the first."""
    columns = [Column("slices"), Column("batch", numeric=True)]
    columns += [Column(heading, unit=unit) for heading, unit in map(_FIGURES.__getitem__, shown)]
    table = Table("", columns, apart=True)
    for rows in groups:
        figures: list[Any] = [_figure(rows, name) for name in shown]
        if any(row["status"] != "done" for row in rows):
            reason = rows[0]["reason"] or "failed"
            figures = [reason.replace("_", NBSP), *([None] * (len(figures) - 1))]
        table.rows.append([_slices(rows), str(rows[0]["batch"]), *figures])
    return table


def _figure(rows: Sequence[dict[str, Any]], name: str) -> Estimate | float | None:
    """A figure of concurrent slices; of latency with the standard deviation in place of the interval."""
    mean = _mean(rows, name)
    if mean is None or name.endswith("_per_s"):
        return None if mean is None else mean * len(rows)
    spread = _mean(rows, "latency_std_s") if name == "latency_mean_s" else None
    return _estimate(rows, name) if spread is None else Estimate(mean, mean - spread, mean + spread)


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


def _mean(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [row.get(name) for row in rows]  # rows of an earlier version lack some
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _estimate(rows: Sequence[dict[str, Any]], name: str) -> Estimate:
    value, low, high = (_mean(rows, f"{name}{end}") for end in ("", "_low", "_high"))
    if value is None:
        return Estimate.null(str(rows[0]["power_reason"] or "unknown"))
    return Estimate(value, low, high) if low is not None and high is not None else Estimate(value)
