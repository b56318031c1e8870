"""The results of a sweep as tables for a terminal: one per model, task and length, profiles by batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jouletrace.addons.mig.listing import table
from jouletrace.report.scale import NBSP, NONE, figure, number, quantity
from jouletrace.run import Estimate

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


def summary(rows: Sequence[dict[str, Any]], *, simulated: bool = False) -> str:
    """All rows; concurrent slices form one line: means, and sums of rates."""
    parts = ["SIMULATED: a simulated GPU, no hardware was measured"] if simulated else []
    for model, task, seq_len in dict.fromkeys((row["model"], row["task"], row["seq_len"]) for row in rows):
        mine = [row for row in rows if (row["model"], row["task"], row["seq_len"]) == (model, task, seq_len)]
        length = f" · seq {seq_len}" if seq_len else ""
        keys = dict.fromkeys((row["profile"], row["together"], row["batch"], row["dtype"], row["mode"]) for row in mine)
        names = ("profile", "together", "batch", "dtype", "mode")
        lines = [_line([row for row in mine if tuple(row[name] for name in names) == key]) for key in keys]
        parts.append(f"{model} · {task}{length}\n\n{table(_HEADS, lines)}")
    failures = dict.fromkeys(f"! {row['detail']}" for row in rows if row["status"] != "done")
    if failures:
        parts.append("\n".join(failures))
    if any(row["power_w"] is not None for row in rows):
        parts.append(
            "Power of a slice is modelled: the GPU's power above idle, split by activity; intervals are 95 %. "
            "Rates of slices together are sums, other figures means."
        )
    return "\n\n".join(parts).replace(NBSP, " ")


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
        f"{quantity(mean, 's')} ± {quantity(spread, 's')}",
        *(quantity(_mean(rows, f"latency_{p}_s"), "s") for p in ("p50", "p95", "p99")),
        *(_rate(rows, name) for name in ("requests_per_s", "samples_per_s")),
        figure(_estimate(rows, "power_w"), "W"),
        figure(_estimate(rows, "energy_active_per_sample_j"), "J"),
        figure(_estimate(rows, "energy_per_sample_j"), "J"),
    )


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
