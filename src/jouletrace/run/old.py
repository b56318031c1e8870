"""Runs of older versions, turned into the present form as they are opened: formats 1.0 to 1.2 of ``run.json``, figures.

What they lack stays missing: a Run of a program on several GPUs was one of each GPU, saved apart, and one of the whole,
which states the phases of each GPU and holds no kernels.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

from jouletrace.run import tables
from jouletrace.run.estimate import Estimate
from jouletrace.run.metrics import EACH
from jouletrace.run.model import Run


def upgraded(header: dict[str, Any]) -> dict[str, Any]:
    """The content of an old ``run.json`` with the names and forms of today; a wrong value is left for the checks."""
    today = dict(header)
    if isinstance(today.get("channels"), list):
        today["channels"] = [_channel(channel) for channel in today["channels"]]
    if isinstance(today.get("workload"), dict):
        today["workload"] = _workload(today["workload"])
    stored = today.get("stored")
    if isinstance(stored, dict) and "sample_rate_hz" in stored:
        rates = {_recorded(today): rate} if (rate := stored["sample_rate_hz"]) is not None else {}
        today["stored"] = {**stored, "sample_rate_hz": rates}
    return today


def _channel(channel: Any) -> Any:
    """A channel; its delay was once "lag_s"."""
    if isinstance(channel, dict) and "lag_s" in channel and "delay_s" not in channel:
        return {**channel, "delay_s": channel["lag_s"]}
    return channel


def _workload(workload: dict[str, Any]) -> dict[str, Any]:
    """The workload with a list of recordings, in place of the one recording or of what was stated of each GPU."""
    rest = {name: value for name, value in workload.items() if name not in ("recording", "gpus")}
    if "recording" in workload:
        rest["recordings"] = [workload["recording"]]
    elif "gpus" in workload:
        gpus = workload["gpus"]
        rest["recordings"] = [_gpu(gpu) for gpu in gpus] if isinstance(gpus, list) else gpus
    return rest


def _gpu(stated: Any) -> Any:
    """The facts of a GPU; its parts are units of the Run as well."""
    return {name: value for name, value in stated.items() if name != "parts"} if isinstance(stated, dict) else stated


def _recorded(header: dict[str, Any]) -> str:
    """The id of the device whose rate is stored: that of the recording, or the first."""
    workload, devices = header.get("workload"), header.get("devices")
    recordings = workload.get("recordings") if isinstance(workload, dict) else None
    places = [entry for some in (recordings, devices) if isinstance(some, list) for entry in some]
    ids = [entry.get("device") or entry.get("id") for entry in places if isinstance(entry, dict)]
    return next((id for id in ids if isinstance(id, str)), "")


def name_parts(run: Run) -> None:
    """Name the phases of the GPUs of an old Run by themselves: the GPU was part of each name, "rank-0: compute"."""
    stated = [recording for recording in run.workload.get("recordings", ()) if "start_ns" not in recording]
    if not stated:
        return
    rows = run.units.to_pylist()
    names = {
        recording["device"]: f"{recording['name']}: " for recording in stated if {"device", "name"} <= recording.keys()
    }
    above = {row["id"]: names.get(row["module"], "") for row in rows if row["level"] == "device"}
    for row in rows:
        if row["level"] == "phase":
            row["name"] = row["name"].removeprefix(above.get(row["parent"], ""))
    run.units = tables.changed(run.units, "name", [row["name"] for row in rows])


def add_totals(run: Run) -> None:
    """State of marked ranges what all together took, and each: recordings stated the mean of one as if it were all.

    The uncertainty of a sum isn't known from that: it is as many times that of the mean.
    """
    rows = run.results.to_pylist() if run.kind == "record" else []
    stated = {row["unit"] for row in rows if row["metric"] in EACH.values()}
    count = {unit["id"]: unit["count"] for unit in run.units.to_pylist() if unit["level"] == "range"} if rows else {}
    means = [row for row in rows if row["metric"] in EACH and count.get(row["unit"]) and row["unit"] not in stated]
    if not means:
        return
    rows += [{**row, "metric": EACH[row["metric"]]} for row in means]
    for row in means:
        total = Estimate.from_dict(row).scaled(count[row["unit"]])
        row.update(total.to_dict(), budget=json.dumps(dict(total.budget)) if total.budget else None)
        if row["metric"] == "time_s":  # the clock knows the sum
            row["low"] = row["high"] = row["value"]
    run.results = tables.from_rows(rows, "results")


def crc32(parts: Iterable[bytes]) -> int:
    """CRC-32 of a file given in pieces, which was the checksum up to format 1.1."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc
